/**
 * This module knows the footer: undo and redo, stale checksums, the actions that write, and the status line.
 * It does not know how anything is written.
 */
import type { Context, Selection } from "./context";
import { button, h, setText } from "./dom";
import type { Panels } from "./lazy";
import type { Severity } from "./protocol";
import { countText } from "./text";
import { explain } from "./transport";

export type Footer = {
  readonly element: HTMLElement;
  say(text: string, severity: Severity): void;
  /** A state that lasts, such as a dead kernel; empty text ends it. */
  hold(text: string, severity: Severity): void;
};

/** How long a message that is no error stays. */
const SAY_MS = 8000;

export function createFooter(
  ctx: Context,
  host: HTMLElement,
  load: () => Promise<Panels>,
  selection: () => Selection | null,
): Footer {
  const status = h("div", { class: "tdv-status", role: "status", "aria-live": "polite" });
  const undo = button("Undo", () => void act("undo"));
  const redo = button("Redo", () => void act("redo"));
  const edits = h("span", { class: "tdv-dim tdv-edits" });
  const stale = h("span", { class: "tdv-stale" });
  const refresh = button("Refresh checksums", () => void act("refresh_checksums"), { class: "tdv-button tdv-primary" });
  const append = button("Append…", () => open((panels) => panels.openAppend(ctx, host, selection())));
  const pack = button("Pack…", () => open((panels) => panels.openPack(ctx, host)));
  const unpack = button("Unpack…", () => open((panels) => panels.openUnpack(ctx, host)));
  const element = h("div", { class: "tdv-footer" }, undo, redo, edits, status, stale, refresh, append, pack, unpack);
  let held = "";
  let timer: ReturnType<typeof setTimeout> | undefined;

  function open(show: (panels: Panels) => void): void {
    load().then(show, (reason) => explain(reason, say));
  }

  async function act(op: string): Promise<void> {
    try {
      const { value } = await ctx.rpc.request<{ message?: string }>(op, {});
      if (value.message) say(value.message, "note");
    } catch (reason) {
      explain(reason, say);
    }
  }

  host.addEventListener(
    "keydown",
    (event) => {
      const typing = (event.target as Element).closest("input, textarea, select, dialog");
      if (typing || !(event.ctrlKey || event.metaKey) || event.altKey) return;
      const key = event.key.toLowerCase();
      const button = key === "y" || (key === "z" && event.shiftKey) ? redo : key === "z" ? undo : null;
      if (!button || button.hidden) return;
      event.preventDefault();
      event.stopPropagation();
      button.click();
    },
    { signal: ctx.signal },
  );

  function draw(): void {
    const { head, edits: state } = ctx.state;
    const writable = head.mode === "r+";
    const archive = head.form === "archive";
    undo.hidden = redo.hidden = edits.hidden = !writable;
    append.hidden = !writable || !head.rowsText || head.kind === "replay_buffer"; // a ring has no end
    undo.disabled = !state.undo;
    redo.disabled = !state.redo;
    undo.classList.toggle("tdv-primary", state.undo);
    setText(edits, state.count ? countText(state.count, "edit") : "no edits");
    edits.title = state.journal ? `Kept in ${state.journal} beside the save` : "";
    stale.hidden = refresh.hidden = !writable || !archive;
    setText(stale, state.stale ? `checksum of ${countText(state.stale, "entry", "entries")} is stale` : "");
    refresh.classList.toggle("tdv-primary", state.stale > 0);
    pack.hidden = head.kind === "collection";
    unpack.hidden = !archive;
  }

  function write(text: string, severity: Severity): void {
    setText(status, text);
    status.title = text;
    status.className = `tdv-status tdv-says-${severity}`;
  }

  function say(text: string, severity: Severity): void {
    clearTimeout(timer);
    write(text, severity);
    if (severity !== "error") timer = setTimeout(() => write(held, "warning"), SAY_MS);
  }

  ctx.state.onChange("head", draw, ctx.signal);
  ctx.state.onChange("edits", draw, ctx.signal);
  ctx.signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
  draw();
  return {
    element,
    say,
    hold(text, severity) {
      if (text === held) return;
      held = text;
      clearTimeout(timer);
      write(text, severity);
    },
  };
}
