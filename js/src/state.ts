/**
 * This module knows how the traits of the model become shared state, and how a view notices that its kernel is gone.
 * It does not know what is drawn.
 */
import type { SharedState } from "./context";
import type { Edits, Head, Path } from "./protocol";
import type { Channel } from "./transport";

/** The part of an anywidget model that the shell uses. */
export type Model = Channel & {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(name: string, callback: (...args: never[]) => void): void;
  off(name: string, callback: (...args: never[]) => void): void;
  readonly widget_manager?: unknown;
};

const NO_EDITS: Edits = { count: 0, undo: false, redo: false, stale: 0, journal: "" };

function listen(model: Model, name: string, callback: () => void, signal: AbortSignal): void {
  model.on(name, callback);
  signal.addEventListener("abort", () => model.off(name, callback), { once: true });
}

export function createState(model: Model): SharedState {
  return {
    get head() {
      return model.get("_head") as Head;
    },
    get edits() {
      return (model.get("_edits") as Edits | undefined) ?? NO_EDITS;
    },
    onChange: (name, callback, signal) => listen(model, `change:_${name}`, callback, signal),
  };
}

/** The selection that all views and Python share. Writing it is a message, so it is put off while rows fly by. */
export function createSelected(model: Model, onForeign: (path: Path | null) => void, signal: AbortSignal) {
  let own: string | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  listen(
    model,
    "change:selected",
    () => {
      const path = model.get("selected") as Path | null;
      if (JSON.stringify(path) !== own) onForeign(path);
    },
    signal,
  );
  signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
  return {
    get: () => model.get("selected") as Path | null,
    set(path: Path): void {
      own = JSON.stringify(path);
      clearTimeout(timer);
      timer = setTimeout(() => {
        model.set("selected", path);
        model.save_changes();
      }, 250);
    },
  };
}

type Status = { status?: string; connectionStatus?: string; statusChanged?: JupyterSignal };
type JupyterSignal = { connect(slot: () => void): void; disconnect(slot: () => void): void };

/** What is known of the kernel: `unknown` outside JupyterLab, where only its silence shows. */
export type KernelState = "idle" | "busy" | "dead" | "unknown";

/**
 * Watches the comm (`comm_live_update` of the ipywidgets model) and, in JupyterLab, the kernel's status.
 * `onChange` is called with every new state until `signal` aborts.
 */
export function watchKernel(
  model: Model,
  onChange: (state: KernelState) => void,
  signal: AbortSignal,
): () => KernelState {
  let closed = false;
  const kernel = (): Status | null => {
    const manager = model.widget_manager as { kernel?: Status } | undefined;
    return manager?.kernel ?? null;
  };
  const read = (): KernelState => {
    const status = kernel()?.status;
    if (
      closed ||
      status === "dead" ||
      status === "terminating" ||
      status === "restarting" ||
      status === "autorestarting"
    )
      return "dead";
    return status === "busy" ? "busy" : status === "idle" ? "idle" : "unknown";
  };
  const changed = () => onChange(read());
  const gone = () => {
    // The event has no argument; a model that was reconnected never comes here again, so ask the kernel first.
    closed = true;
    changed();
  };
  listen(model, "comm_live_update", gone, signal);
  const status = kernel()?.statusChanged;
  status?.connect(changed);
  signal.addEventListener("abort", () => status?.disconnect(changed), { once: true });
  return read;
}
