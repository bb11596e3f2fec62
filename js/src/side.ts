/**
 * This module knows the left pane: the filter box, the tree, and how their pages are fetched.
 * It does not know what a selection shows.
 */
import type { Context, Selection } from "./context";
import { debounced, h, setText } from "./dom";
import { FlatTree, foundTree, type Item, type Missing, PAGE } from "./flat-tree";
import type { FoundRow, Page, Path, Problem, Row } from "./protocol";
import { badgeOf, countText } from "./text";
import { explain, isAbort } from "./transport";
import { TreeView } from "./tree";

const FILTER_MS = 200;
const FOUND_LIMIT = 1000;

export type Side = {
  readonly element: HTMLElement;
  /** Selects a node, loading the levels above it; null where another was chosen meanwhile. One request at most. */
  reveal(path: Path): Promise<Selection | null>;
  /** Marks a loaded node as selected without showing it. */
  setSelected(path: Path): void;
  /** Reads the tree anew, with the same levels open. */
  reload(): void;
  /** Marks the nodes that findings name. */
  mark(problems: readonly Problem[]): void;
};

export function createSide(ctx: Context, onSelect: (selection: Selection) => void): Side {
  let flat = new FlatTree(ctx.state.head.root, ctx.state.head.page);
  let found: FlatTree | null = null;
  let selected: Path | null = null;
  let asked = 0;
  let searching: AbortController | null = null;
  const loading = new Set<string>();

  const input = h("input", {
    class: "tdv-filter",
    type: "search",
    placeholder: "Filter keys…",
    "aria-label": "Filter keys",
    spellcheck: "false",
    autocomplete: "off",
  });
  const hits = h("div", { class: "tdv-hits", role: "status" });
  const tree = new TreeView(flat, {
    signal: ctx.signal,
    label: `Entries of ${ctx.state.head.name}`,
    onSelect: choose,
    onMissing: (pages) => pages.forEach(load),
    onEscape: () => (found ? clear() : undefined),
  });

  function choose(item: Item): void {
    asked += 1;
    selected = item.path;
    tree.setSelected(selected);
    onSelect({ ...item.row, path: item.path });
  }

  function load(missing: Missing): void {
    if (found) return;
    const target = flat;
    const args = { path: missing.path, start: missing.start, count: missing.count || PAGE };
    const key = JSON.stringify(args);
    if (loading.has(key)) return;
    loading.add(key);
    ctx.rpc
      .request<Page>("tree.children", args)
      .then(({ value }) => {
        if (target === flat) flat.setPage(value);
        tree.draw();
      })
      .catch((reason) => {
        if (isAbort(reason)) return;
        const item = flat.find(missing.path);
        if (item && !flat.isLoaded(item)) tree.toggle(item, false);
        ctx.notify(String(reason.message), "error");
      })
      .finally(() => loading.delete(key));
  }

  async function search(query: string): Promise<void> {
    searching?.abort();
    if (!query) return clear();
    searching = new AbortController();
    const signal = AbortSignal.any([ctx.signal, searching.signal]);
    try {
      const { value } = await ctx.rpc.request<{ rows: FoundRow[]; total: number; complete: boolean }>(
        "tree.search",
        { query, limit: FOUND_LIMIT },
        { signal, onProgress: () => undefined },
      );
      found = foundTree(ctx.state.head.root, value.rows);
      tree.setModel(found);
      const more = value.complete
        ? ""
        : value.total > value.rows.length
          ? `, the first ${value.rows.length} shown`
          : " so far";
      setText(hits, value.total ? `${countText(value.total, "key")} found${more}` : "No key contains this.");
    } catch (reason) {
      explain(reason, ctx.notify);
    }
  }

  function clear(): void {
    searching?.abort();
    later.cancel();
    input.value = "";
    setText(hits, "");
    if (!found) return;
    found = null;
    tree.setModel(flat);
    if (selected) void reveal(selected);
  }

  const later = debounced((query: string) => void search(query), FILTER_MS, ctx.signal);
  input.addEventListener("input", () => later(input.value.trim()), { signal: ctx.signal });
  input.addEventListener(
    "keydown",
    (event) => {
      event.stopPropagation();
      if (event.key === "Escape") clear();
      if (event.key === "ArrowDown") {
        event.preventDefault();
        tree.element.focus();
      }
      if (event.key === "Enter") {
        later.cancel();
        void search(input.value.trim());
      }
    },
    { signal: ctx.signal },
  );

  async function reveal(path: Path): Promise<Selection | null> {
    asked += 1;
    const mine = asked;
    let row: Row | null = null;
    if (!flat.reveal(path)) {
      const { value } = await ctx.rpc.request<{ pages: Page[]; row: Row }>(
        "tree.locate",
        { path, count: PAGE },
        { signal: ctx.signal },
      );
      for (const page of value.pages) flat.setPage(page);
      if (mine !== asked) return null;
      row = value.row;
      flat.reveal(path);
    }
    row = flat.find(path)?.row ?? row;
    selected = path;
    if (!found) tree.setModel(flat);
    tree.setSelected(path);
    return row && { ...row, path };
  }

  function reload(): void {
    const open: Path[] = [];
    const collect = (item: Item) => {
      for (const kid of item.kids) {
        if (!kid?.open) continue;
        open.push(kid.path);
        collect(kid);
      }
    };
    collect(flat.root);
    flat = new FlatTree(ctx.state.head.root, ctx.state.head.page);
    loading.clear();
    found = null;
    tree.setModel(flat);
    const target = flat;
    for (const path of open) {
      const item = flat.find(path);
      if (item) tree.toggle(item, true);
      else if (path.length > 1) {
        ctx.rpc
          .request<Page>("tree.children", { path, start: 0, count: PAGE }, { signal: ctx.signal })
          .then(({ value }) => {
            if (target !== flat || !flat.setPage(value)) return;
            const opened = flat.find(path);
            if (opened) tree.toggle(opened, true);
          })
          .catch(() => undefined); // the level is gone: it stays closed
      }
    }
    if (input.value) void search(input.value.trim());
  }

  function mark(problems: readonly Problem[]): void {
    const byKey = new Map<string, Problem[]>();
    for (const problem of problems) {
      const key = JSON.stringify(problem.key);
      byKey.set(key, [...(byKey.get(key) ?? []), problem]);
    }
    const badges = [...byKey].flatMap(([key, list]) => {
      const badge = badgeOf(list);
      return badge ? ([[key, badge]] as const) : [];
    });
    tree.setMarks(new Map(badges));
  }

  const element = h("div", { class: "tdv-side" }, h("div", { class: "tdv-search" }, input, hits), tree.element);
  function setSelected(path: Path): void {
    selected = path;
    tree.setSelected(path);
  }

  return { element, reveal, setSelected, reload, mark };
}
