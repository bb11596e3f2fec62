import { afterEach, describe, expect, it, vi } from "vitest";
import type { Context } from "./context";
import { createExport } from "./export";
import type { RequestOptions } from "./transport";

/** A kernel whose one request is answered by hand. */
function open() {
  const said: string[] = [];
  const controller = new AbortController();
  let end: (answer: unknown) => void = () => undefined;
  let options: RequestOptions = {};
  const request = (_op: string, _args: object, given: RequestOptions) => {
    options = given;
    return new Promise((resolve, reject) => {
      end = (answer) => (answer instanceof Error ? reject(answer) : resolve(answer));
      given.signal?.addEventListener("abort", () => reject(new DOMException("stopped", "AbortError")));
    });
  };
  const ctx = { signal: controller.signal, notify: (text: string) => said.push(text), rpc: { request } };
  const { element, run } = createExport(ctx as unknown as Context);
  document.body.append(element);
  return {
    element,
    run,
    said,
    end: (answer: unknown) => end(answer),
    progress: (done: number, total: number) => options.onProgress?.(done, total),
  };
}

afterEach(() => {
  document.body.replaceChildren();
  vi.restoreAllMocks();
});

describe("an export", () => {
  it("shows how far it is, and gives the file to the user", async () => {
    const saved: string[] = [];
    vi.spyOn(HTMLAnchorElement.prototype, "click").mockImplementation(function (this: HTMLAnchorElement) {
      saved.push(this.download);
    });
    vi.stubGlobal("URL", { createObjectURL: () => "blob:x", revokeObjectURL: () => undefined });
    const { element, run, said, end, progress } = open();
    expect(element.hidden).toBe(true);
    const running = run("table.export", {});
    progress(1, 4);
    expect(element.hidden).toBe(false);
    expect(element.textContent).toContain("25 %");
    end({ value: { name: "x.csv", mime: "text/csv" }, buffers: [] });
    await running;
    vi.unstubAllGlobals();
    expect([element.hidden, saved, said]).toEqual([true, ["x.csv"], ["Saved x.csv."]]);
  });

  it("is stopped by its button", async () => {
    const { element, run, said } = open();
    const running = run("table.export", {});
    element.querySelector("button")?.click();
    await running;
    expect([element.hidden, said]).toEqual([true, ["Export stopped."]]);
  });

  it("says why it failed", async () => {
    const { element, run, said, end } = open();
    const running = run("table.export", {});
    end(new Error("too many cells"));
    await running;
    expect([element.hidden, said]).toEqual([true, ["too many cells"]]);
  });
});
