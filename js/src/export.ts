/**
 * This module knows how a file that the kernel makes is fetched, with a bar and a button that stops it, and given to the user.
 * It does not know what is in the file.
 */
import type { Context } from "./context";
import { download } from "./download";
import { createTask } from "./task";
import { isAbort } from "./transport";

export type Export = {
  /** Where progress is shown; hidden otherwise. */
  readonly element: HTMLElement;
  /** Gives the file that the kernel answers `op` with to the user, and says how that ended. */
  run(op: string, args: object): Promise<void>;
};

export function createExport(ctx: Context): Export {
  const task = createTask(ctx);
  return {
    element: task.element,
    async run(op, args) {
      try {
        const { value, buffers } = await task.reply<{ name: string; mime: string }>(op, args, "Exporting");
        download(value.name, value.mime, buffers as unknown as BlobPart[]);
        ctx.notify(`Saved ${value.name}.`);
      } catch (reason) {
        if (!isAbort(reason)) ctx.notify((reason as Error).message, "error");
        else if (!ctx.signal.aborted) ctx.notify("Export stopped.");
      }
    },
  };
}
