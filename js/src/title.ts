/**
 * This module knows the line above the tabs: which entry is shown, its dtype, shape and bytes, and what can be copied.
 * It does not know the views.
 */
import type { Context, Selection } from "./context";
import { h, link } from "./dom";
import { bytesText, dtypeText, keyText, partText, pathText, pyKey, pyNode, shapeText } from "./text";

export type Title = { readonly element: HTMLElement; show(selection: Selection | null): void };

/** `code` gives the Python of what the open view shows, or null to copy the plain one. */
export function createTitle(ctx: Context, code: () => string | null): Title {
  const crumbs = h("h2", { class: "tdv-crumbs" });
  const chips = h("span", { class: "tdv-chips" });
  const actions = h("span", { class: "tdv-copies" });
  const element = h("div", { class: "tdv-title" }, crumbs, chips, actions);

  function show(selection: Selection | null): void {
    actions.hidden = !selection;
    if (!selection) {
      crumbs.replaceChildren(h("span", { class: "tdv-dim" }, "Nothing selected"));
      chips.replaceChildren();
      return;
    }
    const { path } = selection;
    const above = path
      .slice(0, -1)
      .flatMap((part, i) => [
        link(partText(part), () => ctx.select(path.slice(0, i + 1))),
        h("span", { class: "tdv-dim", "aria-hidden": "true" }, " › "),
      ]);
    const name = path.length ? keyText(selection) : ctx.state.head.name;
    crumbs.replaceChildren(...(above.length ? [h("span", {}, ...above)] : []), h("strong", {}, name));
    crumbs.title = path.length ? pathText([...path.slice(0, -1), name]) : "";
    chips.replaceChildren(...texts(selection).map((text) => h("span", { class: "tdv-chip" }, text)));
    const node = pyNode(ctx.state.head.location, path);
    actions.replaceChildren(
      link(
        "copy path",
        () => ctx.copy(pyKey(path) || ctx.state.head.location, path.length ? "key" : "path"),
        "The nested key",
      ),
      link("copy code", () => ctx.copy(code() ?? `import tdview\n${node}`, "code"), "Python that opens this"),
    );
  }

  return { element, show };
}

function texts(selection: Selection): string[] {
  if (selection.kind === "side_files") return [];
  const shape = selection.nested ? " nested" : selection.shape ? ` ${shapeText(selection.shape)}` : "";
  const first = selection.dtype
    ? dtypeText(selection.dtype) + shape
    : (selection.className?.split(".").at(-1) ?? "") + shape;
  return [first.trim(), selection.nbytes === null ? "" : bytesText(selection.nbytes)].filter((text) => text !== "");
}
