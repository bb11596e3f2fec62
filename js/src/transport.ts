/**
 * This module knows how a request finds its answer: ids, errors, progress, abort, and the silence of a busy kernel.
 * It does not know what is asked.
 */
import { type Event, isAnswer, isEvent } from "./protocol";

/** The part of an anywidget model that requests need. */
export type Channel = {
  send(content: unknown, callbacks?: unknown, buffers?: ArrayBuffer[] | ArrayBufferView[]): void;
  on(name: "msg:custom", callback: (message: unknown, buffers: DataView[]) => void): void;
  off(name: "msg:custom", callback: (message: unknown, buffers: DataView[]) => void): void;
};

export type RequestOptions = {
  buffers?: ArrayBuffer[] | ArrayBufferView[] | undefined;
  /** Aborting drops the answer and rejects with an `AbortError`; with `onProgress` the kernel is told to stop too. */
  signal?: AbortSignal | undefined;
  /** Given for long work: called between its blocks. */
  onProgress?: ((done: number, total: number) => void) | undefined;
};

export type Reply<T> = { value: T; buffers: DataView[] };

export type Rpc = {
  /**
   * Asks the kernel for one thing. Costs at least one round trip (about 45 ms in a stock Jupyter server), so an action of
   * the user is one request, never a chain. There is no time limit: a busy kernel answers when its cell ends.
   *
   * Rejects with `RpcError` when the kernel refuses, the channel is closed, or the kernel is gone.
   */
  request<T>(op: string, args: object, options?: RequestOptions): Promise<Reply<T>>;
  /** Calls `callback` for each unsolicited event of the kernel, until `signal` aborts. */
  onEvent(callback: (event: Event) => void, signal: AbortSignal): void;
};

/** The kernel refused or could not answer; `code` is one of the closed list in docs/protocol.md. */
export class RpcError extends Error {
  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message);
    this.name = "RpcError";
  }
}

/** Whether a rejection only says that nobody wants the answer any more. */
export function isAbort(reason: unknown): boolean {
  return reason instanceof DOMException && reason.name === "AbortError";
}

/** Says why a request failed; one that was stopped needs no word. */
export function explain(reason: unknown, say: (text: string, severity: "error") => void): void {
  if (!isAbort(reason)) say((reason as Error).message, "error");
}

export type Quiet = "answering" | "quiet";

export type TransportOptions = {
  /** Ends every request and stops listening. */
  signal: AbortSignal;
  /** Told when nothing was heard for `quietMs` though a quick answer is due, and when something is heard again. */
  onQuiet?: (state: Quiet) => void;
  quietMs?: number;
};

type Pending = {
  resolve: (reply: Reply<never>) => void;
  reject: (reason: unknown) => void;
  onProgress?: ((done: number, total: number) => void) | undefined;
};

/** Requests over one view's channel. All views of a model hear every message, so ids start with a random word. */
export class Transport implements Rpc {
  readonly #pending = new Map<string, Pending>();
  readonly #listeners = new Set<(event: Event) => void>();
  readonly #prefix = Math.random().toString(36).slice(2, 10);
  #serial = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #quiet = false;
  #closed: RpcError | null = null;

  readonly #channel: Channel;
  readonly #options: TransportOptions;

  constructor(channel: Channel, options: TransportOptions) {
    this.#channel = channel;
    this.#options = options;
    const hear = (message: unknown, buffers: DataView[]) => this.#hear(message, buffers ?? []);
    channel.on("msg:custom", hear);
    options.signal.addEventListener(
      "abort",
      () => {
        channel.off("msg:custom", hear);
        this.#rejectAll(new DOMException("The view was closed", "AbortError"));
        this.#closed = new RpcError("closed", "The view is closed.");
        this.#listeners.clear();
        clearTimeout(this.#timer);
      },
      { once: true },
    );
  }

  request<T>(op: string, args: object, options: RequestOptions = {}): Promise<Reply<T>> {
    if (this.#closed) return Promise.reject(this.#closed);
    const { signal, buffers, onProgress } = options;
    if (signal?.aborted) return Promise.reject(new DOMException("Aborted", "AbortError"));
    const id = `${this.#prefix}.${++this.#serial}`;
    return new Promise<Reply<T>>((resolve, reject) => {
      const abort = () => {
        if (!this.#pending.delete(id)) return;
        if (onProgress) this.#channel.send({ id, op: "cancel" });
        reject(new DOMException("Aborted", "AbortError"));
        this.#watch();
      };
      const settle =
        <A>(end: (value: A) => void) =>
        (value: A) => {
          signal?.removeEventListener("abort", abort);
          end(value);
        };
      signal?.addEventListener("abort", abort, { once: true });
      this.#pending.set(id, { resolve: settle(resolve) as Pending["resolve"], reject: settle(reject), onProgress });
      if (this.#timer === undefined) this.#watch();
      try {
        this.#channel.send({ id, op, args }, undefined, buffers);
      } catch (cause) {
        this.#pending.delete(id);
        settle(reject)(new RpcError("unsent", `The request could not be sent: ${String(cause)}`));
      }
    });
  }

  onEvent(callback: (event: Event) => void, signal: AbortSignal): void {
    this.#listeners.add(callback);
    signal.addEventListener("abort", () => this.#listeners.delete(callback), { once: true });
  }

  /** Rejects everything that waits, and every later request: the kernel is gone. Without an argument requests are sent again. */
  close(reason?: RpcError): void {
    this.#closed = reason ?? null;
    if (reason) this.#rejectAll(reason);
  }

  /** Number of requests without an answer. */
  get waiting(): number {
    return this.#pending.size;
  }

  #hear(message: unknown, buffers: DataView[]): void {
    if (isEvent(message)) {
      for (const listener of [...this.#listeners]) listener(message);
      return;
    }
    if (!isAnswer(message) || message.id === null) return;
    const entry = this.#pending.get(message.id);
    if (!entry) return; // another view's, or stale
    if (this.#quiet) {
      this.#quiet = false;
      this.#options.onQuiet?.("answering");
    }
    if (message.kind === "progress") {
      this.#watch();
      entry.onProgress?.(message.done, message.total);
      return;
    }
    this.#pending.delete(message.id);
    this.#watch();
    if (message.kind === "reply") entry.resolve({ value: message.value as never, buffers });
    else entry.reject(new RpcError(message.error.code, message.error.message));
  }

  #rejectAll(reason: unknown): void {
    const all = [...this.#pending.values()];
    this.#pending.clear();
    for (const entry of all) entry.reject(reason);
    this.#watch();
  }

  #watch(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    // Long work shows itself that it goes on; silence means something only where an answer was due at once.
    if (![...this.#pending.values()].some((entry) => !entry.onProgress)) {
      if (this.#quiet) this.#options.onQuiet?.("answering");
      this.#quiet = false;
      return;
    }
    if (this.#quiet) return;
    this.#timer = setTimeout(() => {
      this.#quiet = true;
      this.#options.onQuiet?.("quiet");
    }, this.#options.quietMs ?? 1500);
  }
}
