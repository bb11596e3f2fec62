/**
 * This module knows how the value of a non-tensor is shown and edited, and how edits are handed on as a file.
 * It does not know where the value is kept.
 */
import type { Context } from "./context";
import { button, h, link, setText } from "./dom";
import { createExport } from "./export";
import type { Path } from "./protocol";
import { isAbort } from "./transport";

/** A non-tensor value as JSON or text, or why it is not shown. */
export type Value = { readonly text: string; readonly form: "json" | "text" | "refused"; readonly cut: boolean };

export function createValue(ctx: Context, path: Path, value: Value): HTMLElement {
  if (value.form === "refused") return h("p", { class: "tdv-empty" }, value.text);
  const shown = h("pre", { tabindex: 0 }, value.text);
  const actions = h(
    "div",
    {},
    link("copy value", () => ctx.copy(value.text, "value")),
  );
  const section = h("section", { class: "tdv-shown-value", "aria-label": "Value" }, shown, actions);
  const { mode, form } = ctx.state.head;
  if (value.cut) actions.append(" The text is cut.");
  else if (mode === "r+" && form === "archive") actions.append(" To edit it, unpack the archive.");
  else if (mode === "r+") actions.append(" ", link("edit value", edit));
  return section;

  function edit(): void {
    const input = h("textarea", {
      "aria-label": value.form === "json" ? "New value as JSON" : "New value as text",
      rows: Math.min(12, value.text.split("\n").length + 1),
      spellcheck: "false",
    });
    input.value = value.text;
    const failure = h("p", { class: "tdv-failed", role: "alert" });
    const close = () => section.replaceChildren(shown, actions);
    const save = async () => {
      try {
        const args = { path, text: input.value, json: value.form === "json" };
        const { value: done } = await ctx.rpc.request<{ message: string }>("edit.value", args, { signal: ctx.signal });
        ctx.notify(done.message);
        close(); // what was written comes with the tree that is read again
      } catch (reason) {
        if (!isAbort(reason)) setText(failure, (reason as Error).message);
      }
    };
    input.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Escape") close();
      else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void save();
      else return;
      event.preventDefault();
    });
    const buttons = h(
      "div",
      { class: "tdv-actions" },
      button("Cancel", close),
      button("Save value", () => void save()),
    );
    section.replaceChildren(input, failure, buttons);
    input.focus();
  }
}

/** Links that give the edits of the save as files. */
export function createHandOn(ctx: Context): HTMLElement {
  const { run } = createExport(ctx);
  const give = (format: string) => run("edits.export", { format });
  return h(
    "p",
    {},
    "The edits of this save: ",
    link("Python script", () => void give("script"), "Makes the same edits in another copy"),
    ", ",
    link("JSON patch", () => void give("patch"), "Tests the old values first; see Editor.apply_patch"),
  );
}
