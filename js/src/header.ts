/**
 * This module knows the header line: what is open, how much of it there is, and the buttons that ask of the whole save.
 * It does not know what those buttons do.
 */
import type { Context } from "./context";
import { button, h, setText } from "./dom";
import type { Head } from "./protocol";
import { bytesText, countText } from "./text";

export type HeaderActions = { onVerify: () => void; onReload: () => void };

/** `16 leaves, 3.2 MB`, or with a plus while not everything was counted. */
export function sizeText(head: Head): string {
  const more = head.counted ? "" : "+";
  const leaves = head.counted
    ? countText(head.leaves, "leaf", "leaves")
    : `${head.leaves.toLocaleString("en")}+ leaves`;
  return `${leaves}, ${bytesText(head.nbytes)}${more}`;
}

export function createHeader(ctx: Context, actions: HeaderActions): HTMLElement {
  const name = h("span", { class: "tdv-name" });
  const facts = h("span", { class: "tdv-facts" });
  const mode = h("span", { class: "tdv-mode" });
  const stale = h("span", { class: "tdv-stale" });
  const draw = () => {
    const { head, edits } = ctx.state;
    setText(name, head.name);
    name.title = head.location;
    const kind = head.rowsText ? `${head.kindText}, ${head.rowsText}` : head.kindText;
    facts.replaceChildren(...[kind, sizeText(head)].flatMap((text) => [separator(), text]));
    setText(mode, head.mode === "r" ? "read-only" : "r+");
    mode.classList.toggle("tdv-writable", head.mode !== "r");
    mode.title =
      head.mode === "r"
        ? "Opened read-only: nothing is changed"
        : "Opened for editing: edits are written into the file";
    setText(stale, edits.stale ? "checksums stale" : "");
  };
  ctx.state.onChange("head", draw, ctx.signal);
  ctx.state.onChange("edits", draw, ctx.signal);
  draw();
  return h(
    "div",
    { class: "tdv-header" },
    h("div", { class: "tdv-line" }, name, facts, mode, stale),
    button("Verify", actions.onVerify, { title: "Check sizes, checksums and structure of the whole save" }),
    button("Reload", actions.onReload, { title: "Read again what another process wrote" }),
  );
}

function separator(): HTMLElement {
  return h("span", { class: "tdv-separator", "aria-hidden": "true" }, "·");
}
