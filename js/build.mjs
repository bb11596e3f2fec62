// Bundles the widget into ES modules and one style sheet in tdview/widgets/static: "browser" is what the first paint
// needs and travels with every widget, "panels" is fetched when one of its tabs is opened first.
// anywidget loads a module from a blob URL, where relative imports cannot resolve: no code splitting.
import { statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build, context } from "esbuild";

const LIMIT_BYTES = 60_000;
const ENTRIES = ["browser", "panels"];
const FILES = ["browser.js", "browser.css", "panels.js"];

const here = dirname(fileURLToPath(import.meta.url));
const outdir = join(here, "..", "tdview", "widgets", "static");
const watch = process.argv.includes("--watch");

const options = {
  absWorkingDir: here,
  entryPoints: ENTRIES.map((name) => `src/${name}.ts`),
  outdir,
  bundle: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  minify: !watch,
  sourcemap: watch ? "inline" : false,
  legalComments: "none",
  logLevel: "warning",
};

function checkSizes() {
  let tooLarge = false;
  for (const file of FILES) {
    const size = statSync(join(outdir, file)).size;
    const over = size > LIMIT_BYTES;
    tooLarge ||= over;
    console.log(`${file}  ${(size / 1000).toFixed(1)} kB${over ? `  over the limit of ${LIMIT_BYTES / 1000} kB` : ""}`);
  }
  return tooLarge;
}

if (watch) {
  const running = await context({ ...options, logLevel: "info" });
  await running.watch();
} else {
  await build(options);
  if (checkSizes()) process.exitCode = 1;
}
