/**
 * This module knows the bar between two panes that changes the width of the first, by mouse and by keyboard.
 * It does not know what is in the panes.
 */
import { h, setAttribute } from "./dom";

const LEAST = 160;
const STEP = 20;

export function createSplitter(pane: HTMLElement, label: string): HTMLElement {
  const bar = h("div", {
    class: "tdv-splitter",
    role: "separator",
    tabindex: 0,
    "aria-orientation": "vertical",
    "aria-label": label,
    "aria-valuenow": 348,
    onpointerdown: (event: PointerEvent) => {
      bar.setPointerCapture(event.pointerId);
      event.preventDefault();
    },
    onpointermove: (event: PointerEvent) => {
      if (bar.hasPointerCapture(event.pointerId)) resize(event.clientX - pane.getBoundingClientRect().left);
    },
    onkeydown: (event: KeyboardEvent) => {
      const step = { ArrowLeft: -STEP, ArrowRight: STEP }[event.key];
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      resize(pane.offsetWidth + step);
    },
  });

  function resize(wanted: number): void {
    const width = Math.max(LEAST, wanted);
    pane.style.width = `${width}px`; // the style sheet says how wide it gets at most
    setAttribute(bar, "aria-valuenow", Math.round(pane.offsetWidth));
  }

  return bar;
}
