/**
 * This module knows the Info panel: where an entry lies, what is wrong with it, and the value of what is no tensor.
 * It does not know how the kernel finds that out.
 */
import type { Context, Selection, View } from "./context";
import { h, link } from "./dom";
import { createFindings } from "./findings";
import type { Problem } from "./protocol";
import { keyText, pathText, pyKey } from "./text";
import { isAbort } from "./transport";
import { createHandOn, createValue, type Value } from "./value";

/** Reply of `node.info`. */
export type NodeInfo = {
  readonly facts: readonly (readonly [label: string, value: string])[];
  readonly problems: readonly Problem[];
  /** Of a non-tensor: its value. */
  readonly value: Value | null;
};

export function createInfo(ctx: Context): View {
  const element = h("div", { class: "tdv-info", tabindex: 0, role: "region", "aria-label": "Facts" });
  let asked: AbortController | null = null;
  let shown = "";

  async function show(selection: Selection | null): Promise<void> {
    asked?.abort();
    if (!selection) return;
    asked = new AbortController();
    const key = JSON.stringify(selection.path);
    if (key !== shown) element.replaceChildren();
    shown = key;
    try {
      const { value } = await ctx.rpc.request<NodeInfo>(
        "node.info",
        { path: selection.path },
        { signal: AbortSignal.any([ctx.signal, asked.signal]) },
      );
      draw(selection, value);
    } catch (reason) {
      if (!isAbort(reason))
        element.replaceChildren(h("p", { class: "tdv-empty tdv-failed" }, (reason as Error).message));
    }
  }

  function draw(selection: Selection, info: NodeInfo): void {
    const facts = info.facts.flatMap(([label, value]) => [h("dt", {}, label), h("dd", {}, value)]);
    const key = selection.kind === "side_files" ? "" : pyKey(selection.path);
    element.replaceChildren(
      ...(info.value ? [createValue(ctx, selection.path, info.value)] : []),
      h(
        "dl",
        { class: "tdv-facts-list" },
        h("dt", {}, "key"),
        h(
          "dd",
          {},
          selection.path.length ? pathText([...selection.path.slice(0, -1), keyText(selection)]) : "the save itself",
        ),
        ...facts,
      ),
      ...(key ? [link("copy key", () => ctx.copy(key, "key"))] : []),
      ...(selection.path.length === 0 && ctx.state.edits.count ? [createHandOn(ctx)] : []),
      ...(info.problems.length ? [createFindings(ctx, info.problems)] : []),
    );
  }

  return { element, show: (selection) => void show(selection), destroy: () => asked?.abort() };
}
