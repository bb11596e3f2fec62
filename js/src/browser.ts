/**
 * This module knows the entry that anywidget calls for each view.
 * It does not know what is drawn.
 */
import "./browser.css";
import { createShell } from "./shell";
import type { Model } from "./state";

type Props = { model: Model; el: HTMLElement; signal?: AbortSignal };

export default {
  /** Draws a view; it is cleaned up when `signal` aborts or, in older hosts, when the returned function is called. */
  render({ model, el, signal }: Props): () => void {
    const controller = new AbortController();
    const root = document.createElement("div");
    el.append(root);
    signal?.addEventListener("abort", () => controller.abort(), { once: true });
    createShell(model, root, controller.signal);
    return () => {
      controller.abort();
      root.remove();
    };
  },
};
