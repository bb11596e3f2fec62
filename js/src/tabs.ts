/**
 * This module knows a row of tabs with their panels after the W3C pattern, each panel's view made when it is opened first.
 * It does not know what the views show.
 */
import type { Context, Selection, View } from "./context";
import { h, setAttribute, setText, uniqueId } from "./dom";

export type Tab = {
  readonly name: string;
  readonly create: (ctx: Context) => View;
  /** Why the tab has nothing to show for this node, or null where it has. */
  readonly empty?: (selection: Selection, ctx: Context) => string | null;
};

export type Tabs = {
  readonly element: HTMLElement;
  /** Name of the open tab. */
  readonly current: string;
  /** The open view, if it was made and shows something. */
  readonly view: View | null;
  open(name: string): void;
  /** Shows a node, in another tab if one is named. */
  show(selection: Selection | null, tab?: string): void;
  destroy(): void;
};

type Entry = Tab & { button: HTMLButtonElement; panel: HTMLElement; reason: HTMLElement; view: View | null };

export function createTabs(ctx: Context, tabs: readonly Tab[]): Tabs {
  let selection: Selection | null = null;
  let current = 0;
  const entries: Entry[] = tabs.map((tab, i) => {
    const id = uniqueId();
    return {
      ...tab,
      view: null,
      button: h(
        "button",
        { type: "button", role: "tab", class: "tdv-tab", id, "aria-controls": `${id}-panel`, onclick: () => open(i) },
        tab.name,
      ),
      reason: h("p", { class: "tdv-empty", hidden: true }),
      panel: h("div", { role: "tabpanel", class: "tdv-panel", id: `${id}-panel`, "aria-labelledby": id, hidden: true }),
    };
  });
  const list = h(
    "div",
    { role: "tablist", class: "tdv-tabs", "aria-label": "Views" },
    ...entries.map((entry) => entry.button),
  );
  list.addEventListener("keydown", onKey, { signal: ctx.signal });
  for (const entry of entries) entry.panel.append(entry.reason);
  const element = h("div", { class: "tdv-views" }, list, ...entries.map((entry) => entry.panel));
  draw();

  function open(index: number): void {
    if (index !== current) entries[current]?.view?.hide?.();
    current = index;
    draw();
    fill();
  }

  function draw(): void {
    entries.forEach((entry, i) => {
      setAttribute(entry.button, "aria-selected", String(i === current));
      setAttribute(entry.button, "tabindex", i === current ? 0 : -1);
      entry.panel.hidden = i !== current;
    });
  }

  function fill(): void {
    const entry = entries[current];
    if (!entry) return;
    const reason = selection ? (entry.empty?.(selection, ctx) ?? null) : "Select an entry in the tree.";
    entry.reason.hidden = reason === null;
    setText(entry.reason, reason ?? "");
    if (entry.view) entry.view.element.hidden = reason !== null;
    if (reason !== null || !selection) {
      entry.view?.hide?.();
      return;
    }
    if (!entry.view) {
      entry.view = entry.create(ctx);
      entry.panel.append(entry.view.element);
    }
    entry.view.show(selection);
  }

  function onKey(event: KeyboardEvent): void {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -current, End: entries.length - 1 - current }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    open((current + step + entries.length) % entries.length);
    entries[current]?.button.focus();
  }

  return {
    element,
    get current() {
      return entries[current]?.name ?? "";
    },
    get view() {
      const entry = entries[current];
      return entry?.reason.hidden ? entry.view : null;
    },
    open(name) {
      const index = entries.findIndex((entry) => entry.name === name);
      if (index >= 0) open(index);
    },
    show(next, tab) {
      selection = next;
      const index = tab ? entries.findIndex((entry) => entry.name === tab) : -1;
      open(index < 0 ? current : index);
    },
    destroy() {
      for (const entry of entries) entry.view?.destroy();
    },
  };
}
