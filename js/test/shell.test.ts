import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import widget from "../src/browser";
import { FakeModel, makeHead, makeRow, settle } from "./fake-model";

const HOSTILE = "<img src=x onerror=alert(1)>";

describe("the widget", () => {
  let model: FakeModel;
  let host: HTMLElement;
  let controller: AbortController;
  let close: () => void;

  const all = (selector: string) => [...host.querySelectorAll<HTMLElement>(selector)];
  const one = (selector: string) => {
    const found = host.querySelector<HTMLElement>(selector);
    if (!found) throw new Error(`there is no ${selector}`);
    return found;
  };
  const item = (key: string) => {
    const found = all('[role="treeitem"]').find((row) => row.querySelector(".tdv-key")?.textContent === key);
    if (!found) throw new Error(`there is no row ${key}`);
    return found;
  };
  const keys = () => all('[role="treeitem"] .tdv-key').map((span) => span.textContent);
  const button = (text: string) => all("button").find((element) => element.textContent === text) as HTMLButtonElement;
  const press = (key: string, target = one('[role="tree"]')) => {
    const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true });
    target.dispatchEvent(event);
    return event;
  };
  const frame = () => settle(70);

  function open(more: Parameters<typeof makeHead>[1] = {}): void {
    const rows = [makeRow("obs"), makeRow(HOSTILE), makeRow("next", { children: 2, note: "2 leaves" })];
    model = new FakeModel(makeHead(rows, more));
    model.handlers["tree.children"] = ({ path, start }) => ({
      path,
      start,
      total: 2,
      rows: [makeRow("reward"), makeRow("done")],
    });
    model.handlers["tree.locate"] = ({ path }) => {
      if ((path as string[])[0] !== "next") throw new Error("there is no such entry");
      return {
        pages: [{ path: ["next"], start: 0, total: 2, rows: [makeRow("reward"), makeRow("done")] }],
        row: makeRow("reward"),
      };
    };
    model.handlers["table.page"] = () => {
      throw new Error("no table here");
    };
    host = document.createElement("div");
    document.body.append(host);
    controller = new AbortController();
    close = widget.render({ model, el: host, signal: controller.signal });
  }

  // Frames and delays pass when a test says so: the machine may be as busy as it likes.
  beforeEach(() => {
    vi.useFakeTimers();
    open();
  });
  afterEach(() => {
    close();
    host.remove();
    vi.useRealTimers();
  });

  it("paints header, tree and tabs from the traits", () => {
    expect(one(".tdv-header").textContent).toContain("run.tdz");
    expect(one(".tdv-header").textContent).toContain("3 leaves, 1.2 kB");
    expect(one(".tdv-mode").textContent).toBe("read-only");
    expect(keys()).toEqual(["run.tdz", "obs", HOSTILE, "next"]);
    expect(all('[role="tab"]').map((tab) => tab.textContent)).toEqual([
      "Table",
      "Plot",
      "Frames",
      "Stats",
      "Episodes",
      "Audit",
      "Info",
    ]);
    expect(model.asked("tree.children")).toEqual([]);
    expect(host.querySelector("img")).toBeNull();
  });

  it("tells a screen reader where a row stands", () => {
    const row = item("next");
    const aria = (name: string) => row.getAttribute(`aria-${name}`);
    expect([aria("level"), aria("setsize"), aria("posinset"), aria("expanded"), aria("selected")]).toEqual([
      "2",
      "3",
      "3",
      "false",
      "false",
    ]);
    expect(item("obs").hasAttribute("aria-expanded")).toBe(false);
    expect(one('[role="tree"]').getAttribute("aria-activedescendant")).toBe(item("run.tdz").id);
  });

  it("opens a level with one request and selects by click", async () => {
    item("next").click();
    await frame();
    expect(model.asked("tree.children")).toHaveLength(1);
    expect(keys()).toContain("reward");
    item("reward").click();
    await frame();
    expect(all('[aria-selected="true"][role="treeitem"]')).toHaveLength(1);
    expect(one(".tdv-title").textContent).toContain("next › reward");
    await settle(300);
    expect(model.get("selected")).toEqual(["next", "reward"]);
    expect(model.saves).toBe(1);
  });

  it("says why a level cannot be opened, and closes it", async () => {
    model.handlers["tree.children"] = () => {
      throw new Error("meta.json is damaged");
    };
    item("next").click();
    await frame();
    expect(one('[role="status"].tdv-status').textContent).toContain("meta.json is damaged");
    expect(item("next").getAttribute("aria-expanded")).toBe("false");
  });

  it("moves by keys, and no handled key leaves the widget", async () => {
    const outside = vi.fn();
    document.body.addEventListener("keydown", outside);
    for (const key of ["ArrowDown", "ArrowDown", "Home", "End", "b", "d", "Enter", " ", "*"]) {
      expect(press(key).defaultPrevented).toBe(true);
    }
    expect(outside).not.toHaveBeenCalled();
    press("Tab");
    expect(outside).toHaveBeenCalledTimes(1);
    document.body.removeEventListener("keydown", outside);
    expect(one(".tdview").hasAttribute("data-lm-suppress-shortcuts")).toBe(true);
    await frame();
  });

  it("selects by arrow key after a rest, once", async () => {
    press("ArrowDown");
    press("ArrowDown");
    expect(one('[role="tree"]').getAttribute("aria-activedescendant")).toBe(item(HOSTILE).id);
    await settle(220);
    await frame();
    expect(item(HOSTILE).getAttribute("aria-selected")).toBe("true");
    await settle(300);
    expect(model.saves).toBe(1);
  });

  it("filters in the kernel and comes back", async () => {
    const input = one(".tdv-filter") as HTMLInputElement;
    model.handlers["tree.search"] = () => ({
      rows: [{ ...makeRow("reward"), path: ["next", "reward"] }],
      total: 1,
      complete: true,
    });
    input.value = "rew";
    press("Enter", input);
    await frame();
    expect(model.asked("tree.search")).toEqual([{ query: "rew", limit: 1000 }]);
    expect(item("reward").textContent).toContain("next › ");
    expect(one(".tdv-hits").textContent).toBe("1 key found");
    item("reward").click();
    press("Escape", input);
    await frame();
    expect(keys()).toContain("obs");
    expect(item("reward").getAttribute("aria-selected")).toBe("true");
  });

  it("follows a selection that Python or another view makes", async () => {
    model.set("selected", ["next", "reward"]);
    await frame();
    expect(model.asked("tree.locate")).toEqual([{ path: ["next", "reward"], count: 200 }]);
    expect(item("reward").getAttribute("aria-selected")).toBe("true");
    model.set("selected", ["absent"]);
    await frame();
    expect(one(".tdv-status").textContent).toContain("no such entry");
  });

  it("keeps open levels over a reload", async () => {
    item("next").click();
    await frame();
    model.set("_head", makeHead([makeRow("next", { children: 2 }), makeRow("new")], { generation: 1 }));
    model.say({ kind: "event", event: "reloaded" });
    await frame();
    expect(keys()).toEqual(["run.tdz", "next", "reward", "done", "new"]);
  });

  it("goes to the root when a reload finds the selected entry gone", async () => {
    item("obs").click();
    model.handlers["tree.locate"] = () => {
      throw new Error("there is no such entry");
    };
    model.set("_head", makeHead([makeRow("new")], { generation: 1 }));
    model.say({ kind: "event", event: "reloaded" });
    await frame();
    expect(one(".tdv-title").textContent).toContain("run.tdz");
    expect(item("run.tdz").getAttribute("aria-selected")).toBe("true");
    expect(one(".tdv-status").textContent).toBe("obs is not in the save any more.");
  });

  it("lets a later choice win over a node that is still fetched", async () => {
    const locate = model.handlers["tree.locate"];
    delete model.handlers["tree.locate"];
    model.set("selected", ["next", "reward"]);
    const request = model.sent.find((message) => message.op === "tree.locate");
    item("obs").click();
    model.say({ id: request?.id, kind: "reply", value: locate?.(request?.args ?? {}) });
    await frame();
    expect(one(".tdv-title").textContent).toContain("obs");
    expect(item("obs").getAttribute("aria-selected")).toBe("true");
  });

  it("counts a large save behind the first paint", async () => {
    close();
    host.remove();
    open({ counted: false, leaves: 2000 });
    expect(one(".tdv-header").textContent).toContain("2,000+ leaves");
    expect(model.asked("summary")).toHaveLength(1);
  });

  it("walks the tabs by arrow keys", async () => {
    const tab = (name: string) => all('[role="tab"]').find((element) => element.textContent === name) as HTMLElement;
    tab("Table").focus();
    press("ArrowLeft", tab("Table"));
    expect(tab("Info").getAttribute("aria-selected")).toBe("true");
    const panel = document.getElementById(tab("Info").getAttribute("aria-controls") ?? "");
    expect(panel?.hidden).toBe(false);
    expect(all('[role="tabpanel"]').filter((element) => !element.hidden)).toHaveLength(1);
    press("Home", tab("Info"));
    expect(document.activeElement).toBe(tab("Table"));
  });

  it("offers the editor only where the save is open for it", async () => {
    expect(button("Undo").hidden).toBe(true);
    expect(button("Append…").hidden).toBe(true);
    expect(button("Pack…").hidden).toBe(false);
    model.set("_head", makeHead([], { mode: "r+" }));
    model.set("_edits", { count: 3, undo: true, redo: false, stale: 1, journal: "run.tdz.tdview-journal" });
    expect(one(".tdv-edits").textContent).toBe("3 edits");
    expect(one(".tdv-edits").title).toContain("run.tdz.tdview-journal");
    expect(one(".tdv-footer").textContent).toContain("checksum of 1 entry is stale");
    expect([button("Undo").disabled, button("Redo").disabled]).toEqual([false, true]);
    model.handlers.undo = () => ({ message: "Undone: next.reward[0]" });
    button("Undo").click();
    await settle();
    expect(one(".tdv-status").textContent).toBe("Undone: next.reward[0]");
  });

  it("undoes and redoes by key", async () => {
    model.set("_head", makeHead([], { mode: "r+" }));
    model.set("_edits", { count: 1, undo: true, redo: true, stale: 0, journal: "" });
    model.handlers.undo = model.handlers.redo = () => ({});
    const type = (key: string, shiftKey = false) =>
      one('[role="tree"]').dispatchEvent(new KeyboardEvent("keydown", { key, ctrlKey: true, shiftKey, bubbles: true }));
    type("z");
    type("Z", true);
    type("y");
    await settle();
    expect(model.sent.map((message) => message.op).filter((op) => /do$/.test(op))).toEqual(["undo", "redo", "redo"]);
  });

  it("changes the width of the tree by key", () => {
    const bar = one('[role="separator"]');
    press("ArrowRight", bar);
    press("ArrowRight", bar);
    expect(one(".tdv-side").style.width).toMatch(/px$/);
  });

  it("says that the kernel has stopped, and asks no more", async () => {
    model.trigger("comm_live_update");
    expect(one(".tdv-status").textContent).toContain("kernel has stopped");
    const asked = model.sent.length;
    item("next").click();
    await frame();
    expect(model.sent).toHaveLength(asked);
  });

  it("draws two views that do not disturb each other", async () => {
    const second = document.createElement("div");
    document.body.append(second);
    const closeSecond = widget.render({ model, el: second });
    item("next").click();
    await frame();
    const rows = [...second.querySelectorAll('[role="treeitem"]')].length;
    expect(rows).toBe(4);
    const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
    expect(new Set(ids).size).toBe(ids.length);
    closeSecond();
    expect(second.childElementCount).toBe(0);
    second.remove();
  });

  it("offers to append where rows can grow", () => {
    const shown = (more: Parameters<typeof makeHead>[1]) => {
      close();
      host.remove();
      open(more);
      return !button("Append…").hidden;
    };
    expect(shown({ mode: "r+" })).toBe(true);
    expect(shown({ mode: "r" })).toBe(false);
    expect(shown({ mode: "r+", kind: "replay_buffer" })).toBe(false);
    expect(shown({ mode: "r+", rowsText: "" })).toBe(false);
  });

  it("leaves no listener and no request behind", async () => {
    item("next").click();
    controller.abort();
    close();
    const left = [...model.callbacks].filter(([, callbacks]) => callbacks.size > 0).map(([name]) => name);
    expect(left).toEqual([]);
    model.say({ kind: "event", event: "reloaded" });
    await frame();
    expect(host.childElementCount).toBe(0);
  });
});
