/**
 * This module knows how header, tree, title, tabs and footer make one widget, and what a selection sets in motion.
 * It does not know what any of them draws.
 */
import type { Context, Selection } from "./context";
import { h } from "./dom";
import { createFooter } from "./footer";
import { createHeader } from "./header";
import { createLoader } from "./lazy";
import { type Path, samePath } from "./protocol";
import { createSide } from "./side";
import { createSplitter } from "./splitter";
import { createSelected, createState, type Model, watchKernel } from "./state";
import { createTabs } from "./tabs";
import { pathText } from "./text";
import { followTheme } from "./theme";
import { createTitle } from "./title";
import { explain, RpcError, Transport } from "./transport";
import { createViews } from "./views";

const DEAD = "The kernel has stopped. What is shown stays; run the cell again to go on.";
const BUSY = "The kernel is busy; its answer comes when the running cell ends.";
const QUIET = "No answer yet: the kernel is busy or gone.";

/** Draws the widget of `model` into `root` until `signal` aborts. */
export function createShell(model: Model, root: HTMLElement, signal: AbortSignal): void {
  const state = createState(model);
  let selection: Selection | null = null;
  let dead = false;

  const rpc = new Transport(model, {
    signal,
    onQuiet: (quiet) => {
      if (!dead) footer.hold(quiet === "quiet" ? (kernel() === "busy" ? BUSY : QUIET) : "", "warning");
    },
  });
  const kernel = watchKernel(
    model,
    (now) => {
      if (now !== "dead" || dead) return;
      dead = true;
      rpc.close(new RpcError("dead", DEAD));
      root.classList.add("tdv-dead");
      footer.hold(DEAD, "error");
    },
    signal,
  );

  const ctx: Context = {
    rpc,
    signal,
    state,
    notify: (text, severity = "note") => footer.say(dead ? DEAD : text, dead ? "error" : severity),
    select: (path, options = {}) => void go(path, options),
    copy: (text, what) =>
      void copyText(text).then(
        () => footer.say(`Copied the ${what}.`, "note"),
        () => footer.say(`The browser does not allow to copy. ${text}`, "warning"),
      ),
  };

  const load = createLoader(ctx);
  const footer = createFooter(ctx, root, load, () => selection);
  const side = createSide(ctx, (next) => choose(next));
  const views = createViews(ctx, load, (report) => side.mark(report.problems));
  const tabs = createTabs(ctx, views.tabs);
  const title = createTitle(ctx, () => tabs.view?.code?.() ?? null);
  const header = createHeader(ctx, {
    onVerify: () => {
      views.verify();
      tabs.open("Audit");
    },
    onReload: () => void reload(),
  });
  const selected = createSelected(
    model,
    (path) => path && !samePath(path, selection?.path ?? null) && void go(path, {}),
    signal,
  );

  function choose(next: Selection, tab?: string): void {
    const same = !tab && samePath(next.path, selection?.path ?? null) && next.rows === selection?.rows;
    selection = next;
    title.show(next);
    if (!same) tabs.show(next, tab);
    selected.set(next.path);
  }

  /** Shows a node that may have to be fetched; false where it is not there. A choice made meanwhile wins. */
  async function go(path: Path, options: { rows?: readonly [number, number]; tab?: string }): Promise<boolean> {
    try {
      const next = await side.reveal(path);
      if (!next) return true;
      selection = null; // the same node at other rows is shown again
      choose(options.rows ? { ...next, rows: options.rows } : next, options.tab);
      return true;
    } catch (reason) {
      explain(reason, ctx.notify);
      return false;
    }
  }

  async function reload(): Promise<void> {
    try {
      await rpc.request("reload", {}, { signal });
      ctx.notify("Read again.");
    } catch (reason) {
      explain(reason, ctx.notify);
    }
  }

  rpc.onEvent((event) => {
    if (event.event !== "reloaded") return;
    side.mark([]);
    side.reload();
    const path = selection?.path ?? null;
    selection = null;
    if (path)
      void go(path, {}).then((there) => {
        if (there || signal.aborted) return;
        showRoot();
        ctx.notify(`${pathText(path)} is not in the save any more.`, "warning");
      });
    count();
  }, signal);

  /** What is seen first: the save itself. It is not yet a selection that others share. */
  function showRoot(): void {
    selection = { ...state.head.root, path: [] };
    side.setSelected([]);
    title.show(selection);
    tabs.show(selection);
  }

  /** Counts the leaves of a large save behind the first paint. */
  function count(): void {
    if (state.head.counted) return;
    rpc.request("summary", {}, { signal, onProgress: () => undefined }).catch((reason) => {
      explain(reason, ctx.notify);
    });
  }

  followTheme(root, signal);
  root.classList.add("tdview");
  // Without this JupyterLab takes keys as its own: D D deletes the cell.
  root.dataset.lmSuppressShortcuts = "true";
  root.append(
    header,
    h(
      "div",
      { class: "tdv-body" },
      side.element,
      createSplitter(side.element, "Width of the tree"),
      h("div", { class: "tdv-main" }, title.element, tabs.element),
    ),
    footer.element,
  );
  signal.addEventListener("abort", () => tabs.destroy(), { once: true });
  const start = selected.get();
  if (start) void go(start, {});
  else showRoot();
  count();
}

async function copyText(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Plain http and old browsers have no clipboard object.
    const area = h("textarea", { class: "tdv-offscreen", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) throw new Error("copy refused");
  }
}
