/**
 * This module knows how long work in the kernel is shown: a bar, a count, a button that stops it.
 * It does not know what the work is.
 */
import type { Context } from "./context";
import { button, h, setText } from "./dom";
import { isAbort, type Reply } from "./transport";

export type Task = {
  readonly element: HTMLElement;
  readonly running: boolean;
  /** Runs `op` and shows how far it is; rejects where it was stopped or failed. */
  reply<T>(op: string, args: object, what: string): Promise<Reply<T>>;
  /** Runs `op`; null where it was stopped or failed, which is then said in the element. */
  run<T>(op: string, args: object, what: string): Promise<T | null>;
  stop(): void;
};

export function createTask(ctx: Context): Task {
  let controller: AbortController | null = null;
  const bar = h("progress", { class: "tdv-progress", max: 1 });
  const text = h("span", { class: "tdv-task-text" });
  const cancel = button("Cancel", () => controller?.abort());
  const element = h(
    "div",
    { class: "tdv-task", role: "group", "aria-label": "Progress", hidden: true },
    bar,
    text,
    cancel,
  );

  const say = (message: string, failed = false) => {
    element.hidden = message === "";
    element.classList.toggle("tdv-failed", failed);
    bar.hidden = cancel.hidden = controller === null;
    setText(text, message);
  };

  async function reply<T>(op: string, args: object, what: string): Promise<Reply<T>> {
    controller?.abort();
    const mine = new AbortController();
    controller = mine;
    bar.removeAttribute("value");
    bar.setAttribute("aria-label", what);
    say(`${what}…`);
    try {
      return await ctx.rpc.request<T>(op, args, {
        signal: AbortSignal.any([ctx.signal, mine.signal]),
        onProgress: (done, total) => {
          if (total <= 0) return;
          bar.value = done / total;
          setText(text, `${what}… ${Math.floor((100 * done) / total)} %`);
        },
      });
    } finally {
      if (controller === mine) {
        controller = null;
        say("");
      }
    }
  }

  return {
    element,
    get running() {
      return controller !== null;
    },
    stop: () => controller?.abort(),
    reply,
    async run<T>(op: string, args: object, what: string): Promise<T | null> {
      try {
        return (await reply<T>(op, args, what)).value;
      } catch (reason) {
        if (controller) return null; // a newer run has the element
        say(isAbort(reason) ? `${what}: stopped.` : `${what}: ${(reason as Error).message}`, !isAbort(reason));
        return null;
      }
    },
  };
}
