import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Event } from "./protocol";
import { type Channel, explain, isAbort, RpcError, Transport } from "./transport";

type Sent = { id: string; op: string; args?: object };

class FakeChannel implements Channel {
  readonly sent: Sent[] = [];
  readonly callbacks = new Set<(message: unknown, buffers: DataView[]) => void>();
  send(content: unknown): void {
    this.sent.push(content as Sent);
  }
  on(_: "msg:custom", callback: (message: unknown, buffers: DataView[]) => void): void {
    this.callbacks.add(callback);
  }
  off(_: "msg:custom", callback: (message: unknown, buffers: DataView[]) => void): void {
    this.callbacks.delete(callback);
  }
  say(message: unknown, buffers: DataView[] = []): void {
    for (const callback of [...this.callbacks]) callback(message, buffers);
  }
  get lastId(): string {
    return this.sent.at(-1)?.id ?? "";
  }
}

describe("Transport", () => {
  let channel: FakeChannel;
  let controller: AbortController;
  let quiet: string[];
  let rpc: Transport;

  beforeEach(() => {
    vi.useFakeTimers();
    channel = new FakeChannel();
    controller = new AbortController();
    quiet = [];
    rpc = new Transport(channel, { signal: controller.signal, onQuiet: (state) => quiet.push(state), quietMs: 1000 });
  });
  afterEach(() => vi.useRealTimers());

  it("pairs answers with requests in any order, with their buffers", async () => {
    const first = rpc.request("a", {});
    const second = rpc.request<string>("b", { n: 1 });
    const [a, b] = channel.sent;
    expect(b).toMatchObject({ op: "b", args: { n: 1 } });
    const bytes = new DataView(new ArrayBuffer(3));
    channel.say({ id: b?.id, kind: "reply", value: "second" }, [bytes]);
    channel.say({ id: a?.id, kind: "reply", value: "first" });
    expect(await second).toEqual({ value: "second", buffers: [bytes] });
    expect((await first).value).toBe("first");
    expect(rpc.waiting).toBe(0);
  });

  it("rejects with the code of the kernel", async () => {
    const asked = rpc.request("a", {});
    channel.say({ id: channel.lastId, kind: "error", error: { code: "KeyMissingError", message: "no entry" } });
    await expect(asked).rejects.toMatchObject({ code: "KeyMissingError", message: "no entry" });
  });

  it("reports progress and goes on waiting", async () => {
    const seen: number[][] = [];
    const asked = rpc.request("long", {}, { onProgress: (done, total) => seen.push([done, total]) });
    channel.say({ id: channel.lastId, kind: "progress", done: 1, total: 4 });
    channel.say({ id: channel.lastId, kind: "reply", value: {} });
    await asked;
    expect(seen).toEqual([[1, 4]]);
  });

  it("drops the answer of an aborted request and tells the kernel only of long work", async () => {
    const stop = new AbortController();
    const short = rpc.request("short", {}, { signal: stop.signal });
    const long = rpc.request("long", {}, { signal: stop.signal, onProgress: () => undefined });
    const ends = Promise.allSettled([short, long]);
    const before = channel.sent.map((message) => message.id);
    stop.abort();
    for (const end of await ends) expect(end.status === "rejected" && isAbort(end.reason)).toBe(true);
    expect(channel.sent.slice(2)).toEqual([{ id: before[1], op: "cancel" }]);
    channel.say({ id: before[0], kind: "reply", value: {} });
    expect(rpc.waiting).toBe(0);
  });

  it("does not send what was aborted before", async () => {
    await expect(rpc.request("a", {}, { signal: AbortSignal.abort() })).rejects.toSatisfy(isAbort);
    expect(channel.sent).toEqual([]);
  });

  it("ignores foreign, stale and malformed messages", async () => {
    const asked = rpc.request("a", {});
    for (const message of [null, 7, {}, { id: "x", kind: "reply", value: 1 }, { id: channel.lastId, kind: "reply" }])
      channel.say(message);
    channel.say({ id: channel.lastId, kind: "error", error: "text" });
    expect(rpc.waiting).toBe(1);
    channel.say({ id: channel.lastId, kind: "reply", value: 2 });
    expect((await asked).value).toBe(2);
  });

  it("says that the kernel is quiet, and when it answers again", () => {
    void rpc.request("a", {});
    vi.advanceTimersByTime(900);
    expect(quiet).toEqual([]);
    vi.advanceTimersByTime(200);
    expect(quiet).toEqual(["quiet"]);
    channel.say({ id: channel.lastId, kind: "reply", value: 1 });
    expect(quiet).toEqual(["quiet", "answering"]);
  });

  it("is quiet though new requests are made", () => {
    for (let i = 0; i < 5; i++) {
      void rpc.request("a", {});
      vi.advanceTimersByTime(300);
    }
    expect(quiet).toEqual(["quiet"]);
  });

  it("is not quiet while something comes", () => {
    void rpc.request("quick", {});
    void rpc.request("long", {}, { onProgress: () => undefined });
    for (let i = 0; i < 5; i++) {
      vi.advanceTimersByTime(700);
      channel.say({ id: channel.lastId, kind: "progress", done: i, total: 5 });
    }
    expect(quiet).toEqual([]);
  });

  it("is not quiet for long work, which shows that it goes on", () => {
    void rpc.request("long", {}, { onProgress: () => undefined });
    vi.advanceTimersByTime(5000);
    expect(quiet).toEqual([]);
  });

  it("rejects everything when the kernel is gone", async () => {
    const asked = rpc.request("a", {});
    rpc.close(new RpcError("dead", "the kernel has stopped"));
    await expect(asked).rejects.toMatchObject({ code: "dead" });
    await expect(rpc.request("b", {})).rejects.toMatchObject({ code: "dead" });
    rpc.close();
    void rpc.request("c", {});
    expect(rpc.waiting).toBe(1);
  });

  it("rejects when the channel cannot send", async () => {
    channel.send = () => {
      throw new Error("comm is closed");
    };
    await expect(rpc.request("a", {})).rejects.toMatchObject({ code: "unsent" });
    expect(rpc.waiting).toBe(0);
  });

  it("hands events to listeners until they are aborted", () => {
    const heard: Event[] = [];
    const stop = new AbortController();
    rpc.onEvent((event) => heard.push(event), stop.signal);
    channel.say({ kind: "event", event: "reloaded" });
    stop.abort();
    channel.say({ kind: "event", event: "reloaded" });
    expect(heard).toHaveLength(1);
  });

  it("says why a request failed, and nothing of one that was stopped", () => {
    const say = vi.fn();
    explain(new RpcError("ArgumentError", "no such axis"), say);
    explain(new DOMException("Aborted", "AbortError"), say);
    expect(say.mock.calls).toEqual([["no such axis", "error"]]);
  });

  it("leaves nothing behind when the view is closed", async () => {
    const asked = rpc.request("a", {});
    controller.abort();
    await expect(asked).rejects.toSatisfy(isAbort);
    expect(channel.callbacks.size).toBe(0);
    await expect(rpc.request("b", {})).rejects.toMatchObject({ code: "closed" });
    expect(vi.getTimerCount()).toBe(0);
  });
});
