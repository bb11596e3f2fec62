/**
 * This module knows the Stats tab: statistics of a leaf in full, of a level as a table, with progress and a way to stop.
 * It does not know how they are computed.
 */
import type { Context, Selection, View } from "./context";
import { button, h, setText } from "./dom";
import type { Path } from "./protocol";
import { createTask } from "./task";
import { dottedText, dtypeText, pyNode, shapeText } from "./text";

type Value = number | string | boolean | null;
type LeafStats = {
  key: Path;
  dtype: string;
  shape: readonly number[];
  count: number;
  nan: number;
  inf: number;
  min: Value;
  max: Value;
  mean: Value;
  std: Value;
  quantiles: readonly (readonly [number, Value])[];
  distinct: number | null;
  histogram: { edges: readonly number[]; counts: readonly number[] } | null;
  sampled: number;
  note: string;
  problem: string;
};
type StatsReply = { leaves: readonly LeafStats[]; hidden: number };

/** Above this a level is only read when the user asks: it may take a while. */
const AT_ONCE_BYTES = 1 << 30;

export function createStats(ctx: Context): View {
  let selection: Selection | null = null;
  const task = createTask(ctx);
  const content = h("div", { class: "tdv-stats-content" });
  const start = button("Compute", () => void run());
  const element = h(
    "div",
    { class: "tdv-stats", tabindex: 0, role: "region", "aria-label": "Statistics" },
    start,
    task.element,
    content,
  );

  async function run(): Promise<void> {
    const asked = selection;
    if (!asked) return;
    start.hidden = true;
    content.classList.add("tdv-old");
    const reply = await task.run<StatsReply>(
      "stats",
      { path: asked.path, bins: asked.dtype ? 48 : 24 },
      "Reading values",
    );
    if (asked !== selection) return;
    content.classList.remove("tdv-old");
    if (!reply) {
      start.hidden = false; // stopped or failed: the task says why
      return;
    }
    draw(asked, reply);
  }

  function draw(asked: Selection, reply: StatsReply): void {
    const only = reply.leaves[0];
    if (asked.dtype && only) content.replaceChildren(...leafView(only));
    else content.replaceChildren(levelTable(reply, asked.path.length));
  }

  function levelTable(reply: StatsReply, depth: number): HTMLElement {
    const heads = ["key", "type", "histogram", "elements", "NaN", "Inf", "min", "max", "mean", "std", "distinct"];
    const rows = reply.leaves.map((leaf) => {
      const open = button(dottedText(leaf.key.slice(depth)), () => ctx.select(leaf.key, { tab: "Stats" }), {
        class: "tdv-link",
      });
      const texts = [
        whole(leaf.count),
        whole(leaf.nan),
        whole(leaf.inf),
        short(leaf.min, isInteger(leaf)),
        short(leaf.max, isInteger(leaf)),
        short(leaf.mean),
        short(leaf.std),
        distinct(leaf),
      ];
      return h(
        "tr",
        { title: leaf.note },
        h("th", { scope: "row" }, open),
        h("td", { class: "tdv-dim", title: shapeText(leaf.shape) }, dtypeText(leaf.dtype)),
        ...(leaf.problem
          ? [h("td", { class: "tdv-error", colspan: texts.length + 1 }, leaf.problem)]
          : [
              h("td", {}, bars(leaf, 72, 18)),
              ...texts.map((text, i) =>
                h(
                  "td",
                  { class: `tdv-number${i === 1 && leaf.nan ? " tdv-nan" : i === 2 && leaf.inf ? " tdv-inf" : ""}` },
                  text,
                ),
              ),
            ]),
      );
    });
    const sampled = reply.leaves.some((leaf) => leaf.sampled < leaf.count);
    const notes = [
      reply.hidden ? `${reply.hidden} more leaves are not listed; tdview.stats gives all.` : "",
      sampled
        ? "Distinct and histogram of large leaves come from an even sample: a row's tooltip says of how much."
        : "",
    ];
    return h(
      "div",
      { class: "tdv-scroll" },
      h(
        "table",
        { class: "tdv-facts-table" },
        h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))),
        h("tbody", {}, ...rows),
      ),
      h("p", { class: "tdv-shown" }, notes.join(" ")),
    );
  }

  return {
    element,
    show(next) {
      selection = next;
      content.replaceChildren();
      task.stop();
      if (!next) return;
      const large = (next.nbytes ?? (next.path.length ? 0 : ctx.state.head.nbytes)) > AT_ONCE_BYTES;
      start.hidden = !large;
      if (!large) void run();
    },
    hide: () => task.stop(),
    code: () =>
      selection ? `import tdview\n\ntdview.stats(${pyNode(ctx.state.head.location, selection.path)})` : null,
    destroy: () => task.stop(),
  };
}

function leafView(leaf: LeafStats): HTMLElement[] {
  if (leaf.problem) return [h("p", { class: "tdv-empty tdv-error" }, leaf.problem)];
  const facts: (readonly [string, string, string])[] = [
    ["elements", whole(leaf.count), ""],
    ["NaN", whole(leaf.nan), leaf.nan ? "tdv-nan" : ""],
    ["Inf", whole(leaf.inf), leaf.inf ? "tdv-inf" : ""],
    ["distinct", distinct(leaf), ""],
    ["min", text(leaf.min), ""],
    ["max", text(leaf.max), ""],
    ["mean", text(leaf.mean), ""],
    ["std", text(leaf.std), ""],
  ];
  const list = (pairs: readonly (readonly [string, string, string])[]) =>
    h(
      "dl",
      { class: "tdv-facts-list" },
      ...pairs.flatMap(([name, value, kind]) => [h("dt", {}, name), h("dd", { class: kind }, value)]),
    );
  const quantiles = leaf.quantiles.map(
    ([share, value]) => [`${Number((100 * share).toPrecision(4))} %`, text(value), ""] as const,
  );
  const { histogram } = leaf;
  const ends = histogram
    ? [histogram.edges[0], histogram.edges.at(-1)].map((edge) => text(edge ?? null))
    : ["no finite numbers"];
  const note = h("p", { class: "tdv-shown" });
  setText(note, leaf.note);
  return [
    h(
      "div",
      { class: "tdv-stats-leaf" },
      list(facts),
      quantiles.length ? list(quantiles) : null,
      h(
        "figure",
        { class: "tdv-histogram" },
        bars(leaf, 330, 170),
        h("figcaption", {}, ...ends.map((end) => h("span", {}, end))),
      ),
    ),
    note,
  ];
}

/** The histogram as bars that carry their counts as titles. */
function bars(leaf: LeafStats, width: number, height: number): HTMLElement {
  const counts = leaf.histogram?.counts ?? [];
  const edges = leaf.histogram?.edges ?? [];
  const top = Math.max(1, ...counts);
  return h(
    "div",
    {
      class: "tdv-bars",
      style: `width:${width}px;height:${height}px`,
      role: "img",
      "aria-label": `Histogram of ${counts.length} bins`,
    },
    ...counts.map((count, i) =>
      h("i", {
        style: `height:${count ? Math.max(1, (height * count) / top) : 0}px`,
        title: `${text(edges[i] ?? null)} … ${text(edges[i + 1] ?? null)}: ${whole(count)}`,
      }),
    ),
  );
}

const isInteger = (leaf: LeafStats): boolean => /int\d/.test(leaf.dtype);

const whole = (count: number): string => count.toLocaleString("en");

const distinct = (leaf: LeafStats): string =>
  leaf.distinct === null ? "" : `${leaf.sampled < leaf.count ? "≥ " : ""}${whole(leaf.distinct)}`;

/** Integers in full, others to nine digits. */
function text(value: Value): string {
  if (value === null) return "–";
  if (typeof value === "boolean") return value ? "True" : "False";
  return typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(9))) : String(value);
}

/** To six digits, for a table; `exact` integers, which an element may hold, in full. */
function short(value: Value, exact = false): string {
  if (!exact && String(value).length > 14) return String(Number(Number(value).toPrecision(6)));
  return typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(6))) : text(value);
}
