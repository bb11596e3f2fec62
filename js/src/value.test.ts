import { describe, expect, it } from "vitest";
import type { Context } from "./context";
import { createHandOn, createValue, type Value } from "./value";

type Asked = { op: string; args: object };

function fakeContext({ mode = "r+", form = "directory", refuse = "" } = {}) {
  const asked: Asked[] = [];
  const said: string[] = [];
  const ctx = {
    signal: new AbortController().signal,
    state: { head: { mode, form }, edits: {}, onChange: () => undefined },
    notify: (text: string) => said.push(text),
    copy: (text: string) => said.push(`copied ${text}`),
    rpc: {
      request: async (op: string, args: object) => {
        asked.push({ op, args });
        if (refuse) throw new Error(refuse);
        return { value: { message: "Changed note", name: "edits.py", mime: "text/x-python" }, buffers: [] };
      },
    },
  } as unknown as Context;
  return { ctx, asked, said };
}

const text: Value = { text: "<b>hi</b>", form: "text", cut: false };
const settled = () => new Promise((resolve) => setTimeout(resolve));

function press(section: HTMLElement, name: string): void {
  const found = [...section.querySelectorAll("button")].find((button) => button.textContent === name);
  expect(found, name).toBeDefined();
  found?.click();
}

const names = (section: HTMLElement) => [...section.querySelectorAll("button")].map((button) => button.textContent);

describe("the value of a non-tensor", () => {
  it("is shown as text, never as markup", () => {
    const section = createValue(fakeContext().ctx, ["note"], text);
    expect(section.querySelector("pre")?.textContent).toBe("<b>hi</b>");
    expect(section.querySelector("b")).toBeNull();
  });

  it("is edited and saved once", async () => {
    const { ctx, asked, said } = fakeContext();
    const section = createValue(ctx, ["note"], text);
    press(section, "edit value");
    const input = section.querySelector("textarea") as HTMLTextAreaElement;
    expect(input.value).toBe("<b>hi</b>");
    input.value = "bye";
    press(section, "Save value");
    await settled();
    expect(asked).toEqual([{ op: "edit.value", args: { path: ["note"], text: "bye", json: false } }]);
    expect(said).toEqual(["Changed note"]);
    expect(section.querySelector("textarea")).toBeNull();
  });

  it("says why it was refused and keeps what was typed", async () => {
    const { ctx } = fakeContext({ refuse: "note: this is no JSON" });
    const section = createValue(ctx, ["note"], { text: "[1]", form: "json", cut: false });
    press(section, "edit value");
    const input = section.querySelector("textarea") as HTMLTextAreaElement;
    expect(input.getAttribute("aria-label")).toBe("New value as JSON");
    input.value = "[1";
    input.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", ctrlKey: true, bubbles: true }));
    await settled();
    expect(section.querySelector("[role=alert]")?.textContent).toBe("note: this is no JSON");
    expect(section.querySelector("textarea")?.value).toBe("[1");
  });

  it("keeps its keys to itself, and Escape gives up", () => {
    const section = createValue(fakeContext().ctx, ["note"], text);
    let heard = 0;
    section.addEventListener("keydown", () => heard++);
    press(section, "edit value");
    const input = section.querySelector("textarea") as HTMLTextAreaElement;
    input.dispatchEvent(new KeyboardEvent("keydown", { key: "d", bubbles: true }));
    input.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
    expect(heard).toBe(0);
    expect(section.querySelector("pre")).not.toBeNull();
  });

  it("cannot be edited read-only, cut or in an archive, and says so", () => {
    expect(names(createValue(fakeContext({ mode: "r" }).ctx, ["n"], text))).toEqual(["copy value"]);
    const cut = createValue(fakeContext().ctx, ["n"], { ...text, cut: true });
    expect(names(cut)).toEqual(["copy value"]);
    const archive = createValue(fakeContext({ form: "archive" }).ctx, ["n"], text);
    expect(names(archive)).toEqual(["copy value"]);
    expect(archive.textContent).toContain("unpack the archive");
    const refused = createValue(fakeContext().ctx, ["n"], { text: "a pickle", form: "refused", cut: false });
    expect(names(refused)).toEqual([]);
  });
});

describe("the edits of a save", () => {
  it("are handed on as a script and as a patch", async () => {
    const { ctx, asked, said } = fakeContext();
    const links = createHandOn(ctx);
    press(links, "Python script");
    press(links, "JSON patch");
    await settled();
    expect(asked.map(({ args }) => args)).toEqual([{ format: "script" }, { format: "patch" }]);
    expect(said).toEqual(["Saved edits.py.", "Saved edits.py."]);
  });
});
