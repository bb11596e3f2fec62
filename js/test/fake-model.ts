/** A model whose kernel is a table of functions. */
import { vi } from "vitest";
import type { Edits, Head, Row } from "../src/protocol";
import type { Model } from "../src/state";

export type Handler = (args: Record<string, unknown>) => unknown;
type Callback = (...args: never[]) => void;

export class FakeModel implements Model {
  readonly sent: { id: string; op: string; args?: Record<string, unknown> }[] = [];
  readonly handlers: Record<string, Handler> = {};
  readonly callbacks = new Map<string, Set<Callback>>();
  readonly traits: Record<string, unknown>;
  saves = 0;
  widget_manager?: unknown;

  constructor(head: Head, edits: Edits | null = null) {
    this.traits = { _head: head, _edits: edits, selected: null };
  }

  get(name: string): unknown {
    return this.traits[name];
  }
  set(name: string, value: unknown): void {
    this.traits[name] = value;
    this.trigger(`change:${name}`);
  }
  save_changes(): void {
    this.saves += 1;
  }
  on(name: string, callback: Callback): void {
    if (!this.callbacks.has(name)) this.callbacks.set(name, new Set());
    this.callbacks.get(name)?.add(callback);
  }
  off(name: string, callback: Callback): void {
    this.callbacks.get(name)?.delete(callback);
  }
  trigger(name: string, ...args: unknown[]): void {
    for (const callback of [...(this.callbacks.get(name) ?? [])]) callback(...(args as never[]));
  }
  send(content: unknown): void {
    const message = content as { id: string; op: string; args?: Record<string, unknown> };
    this.sent.push(message);
    const handler = this.handlers[message.op];
    if (!handler) return;
    queueMicrotask(() => {
      try {
        this.say({ id: message.id, kind: "reply", value: handler(message.args ?? {}) });
      } catch (reason) {
        const text = (reason as Error).message;
        this.say({ id: message.id, kind: "error", error: { code: "KeyMissingError", message: text } });
      }
    });
  }
  say(message: unknown): void {
    this.trigger("msg:custom", message, []);
  }
  asked(op: string): Record<string, unknown>[] {
    return this.sent.filter((message) => message.op === op).map((message) => message.args ?? {});
  }
}

export function makeRow(key: string, more: Partial<Row> = {}): Row {
  const branch = more.children !== undefined && more.children !== null;
  return {
    key,
    kind: branch ? "tensordict" : "leaf",
    className: null,
    dtype: branch ? null : "torch.float32",
    shape: [6],
    batchDims: 1,
    names: null,
    nbytes: branch ? null : 24,
    children: null,
    nested: false,
    writable: false,
    note: "",
    badges: [],
    ...more,
  };
}

export function makeHead(rows: readonly Row[], more: Partial<Head> = {}): Head {
  return {
    name: "run.tdz",
    location: "data/run.tdz",
    form: "archive",
    kind: "tensordict",
    kindText: "tensordict",
    mode: "r",
    rowsText: "6 rows",
    fill: null,
    leaves: rows.length,
    nbytes: 1234,
    counted: true,
    problems: 0,
    generation: 0,
    root: makeRow("run.tdz", { children: rows.length, note: "6 rows" }),
    page: { path: [], start: 0, total: rows.length, rows },
    ...more,
  };
}

/** Lets the time of the fake timers pass: what is due runs, and promises with it. */
export const settle = (ms = 0) => vi.advanceTimersByTimeAsync(ms);
