import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Context, Selection } from "./context";
import { createDims } from "./dims";
import { createExport } from "./export";
import type { Panels } from "./lazy";
import type { Event } from "./protocol";
import { createTable } from "./table";
import type { RequestOptions } from "./transport";

type Asked = { op: string; args: Record<string, unknown> };
type Info = {
  rows: number;
  cols: number;
  mode?: "r" | "r+";
  shape?: number[];
  ring?: object | null;
  side?: { name: string; title: string }[];
};

/**
 * A kernel that knows one int64 leaf: cell (row, col) holds row * 1000 + col, rows past 2^53 exactly. Side columns hold
 * the row as an age, -1 in every third one, then thirds of it as a priority (a tiny one in row 4), NaN in every third one.
 */
function fakeContext({ rows, cols: own, mode = "r+", ring = null, side = [] }: Info) {
  const asked: Asked[] = [];
  const said: string[] = [];
  const copied: string[] = [];
  const controller = new AbortController();
  const listeners: ((event: Event) => void)[] = [];
  let refuse = "";
  const emit = (event: Event) => {
    for (const listener of listeners) listener(event);
  };
  const answer = (op: string, args: Record<string, unknown>) => {
    if (op === "selection") return { value: {}, buffers: [] };
    if (op === "edit") {
      if (refuse) throw new Error(refuse);
      emit({ kind: "event", event: "changed", path: ["x"], rows: null });
      return { value: { message: "" }, buffers: [] };
    }
    const lead = (args.view as { side?: boolean }).side ? side.length : 0;
    const cols = own + lead;
    const aside = (row: number, col: number) => {
      const gone = row % 3 === 2;
      return col === 0
        ? BigInt64Array.of(gone ? -1n : BigInt(row))
        : Float64Array.of(gone ? Number.NaN : row === 4 ? 1 / 3e5 : row / 3);
    };
    const pages = (args.blocks as number[][]).map(([r0 = 0, r1 = 0, c0 = 0, c1 = 0]) => {
      const [top, bottom, left, right] = [
        Math.min(r0, rows),
        Math.min(r1, rows),
        Math.min(c0, cols),
        Math.min(c1, cols),
      ];
      const first = Math.max(left, lead);
      const wide = right - first;
      const data = BigInt64Array.from({ length: (bottom - top) * wide }, (_, i) =>
        BigInt((top + Math.floor(i / wide)) * 1000 + first - lead + (i % wide)),
      );
      const before = Array.from({ length: first - left }, (_, i) => {
        const cells = Array.from({ length: bottom - top }, (_, row) => aside(top + row, left + i));
        return new Uint8Array(cells.flatMap((cell) => [...new Uint8Array(cell.buffer)]));
      });
      return {
        page: {
          rows: [top, bottom],
          cols: [left, right],
          segments: [
            ...before.map((_, i) => ({ start: left + i, cols: 1, wire: left + i === 0 ? "i8" : "f8" })),
            { start: first, cols: wide, wire: "i8" },
          ],
          edited: [[1, 2, lead, lead + 1]],
        },
        data: [...before, data],
      };
    });
    const table = {
      rows,
      cols,
      order: ring ? "time" : "storage",
      ring,
      columns: [],
      hidden: 0,
      batch: [],
      base: ["x"],
      companions: [],
      side,
      lead,
      rowAxis: 0,
      colAxis: 1,
      index: [0, 0],
    };
    return {
      value: { pages: pages.map(({ page }) => page), ...(args.describe ? { table } : {}) },
      buffers: pages.flatMap(({ data }) => data.map(({ buffer }) => new DataView(buffer))),
    };
  };
  const ctx = {
    signal: controller.signal,
    state: { head: { mode, location: "run.tdz" }, edits: {}, onChange: () => undefined },
    notify: (text: string) => said.push(text),
    select: () => undefined,
    copy: (text: string) => copied.push(text),
    rpc: {
      request: async (op: string, args: Record<string, unknown>, options: RequestOptions = {}) => {
        asked.push({ op, args });
        await Promise.resolve();
        if (options.signal?.aborted) throw new DOMException("", "AbortError");
        return answer(op, args);
      },
      onEvent: (listener: (event: Event) => void) => listeners.push(listener),
    },
  } as unknown as Context;
  return {
    ctx,
    asked,
    said,
    copied,
    end: () => controller.abort(),
    emit,
    refuse: (text: string) => (refuse = text),
  };
}

/** Waits until what was set in motion is drawn: a frame to see what is missing, its answer, a frame to draw it. */
const settle = () => vi.advanceTimersByTimeAsync(5 * 16);

/** Waits until the selection rests. */
const rest = () => vi.advanceTimersByTimeAsync(250);

async function open(info: Info) {
  const kernel = fakeContext(info);
  const view = createTable(kernel.ctx, async () => ({ createDims, createExport }) as unknown as Panels);
  document.body.append(view.element);
  const selection = {
    key: "x",
    path: ["x"],
    kind: "leaf",
    dtype: "torch.int64",
    shape: info.shape ?? [info.rows, info.cols],
    names: null,
    writable: true,
    nested: false,
  } as unknown as Selection;
  view.show(selection);
  await settle();
  const grid = view.element.querySelector<HTMLElement>('[role="grid"]');
  if (!grid) throw new Error("no grid");
  const press = async (key: string, options: KeyboardEventInit = {}) => {
    const target = document.activeElement instanceof HTMLInputElement ? document.activeElement : grid;
    target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...options }));
    await settle();
  };
  const active = () => grid.querySelector(".tdv-active");
  return { ...kernel, view, grid, press, active, selection };
}

// Frames and delays pass when a test says so: the machine may be as busy as it likes.
beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
  document.body.replaceChildren();
});

describe("the table", () => {
  it("opens with one request, and shows exact values under grid roles", async () => {
    const { asked, grid, active } = await open({ rows: 1000, cols: 3 });
    expect(asked.filter(({ args }) => args.describe)).toHaveLength(1);
    expect(grid.getAttribute("aria-rowcount")).toBe("1001");
    expect(grid.getAttribute("aria-colcount")).toBe("4");
    expect(active()?.textContent).toBe("0");
    expect(grid.getAttribute("aria-activedescendant")).toBe(active()?.id);
    expect(grid.querySelectorAll('[role="row"]').length).toBeLessThan(40);
    expect([...grid.querySelectorAll('[role="columnheader"]')].map((head) => head.textContent)).toEqual([
      "row",
      "0",
      "1",
      "2",
    ]);
  });

  it("walks with keys and fetches what comes into sight, once", async () => {
    const { asked, press, active } = await open({ rows: 1_000_000, cols: 40 });
    await press("End", { ctrlKey: true });
    expect(active()?.textContent).toBe("999999039");
    expect(active()?.parentElement?.getAttribute("aria-rowindex")).toBe("1000001");
    await press("ArrowUp");
    await press("ArrowLeft");
    expect(active()?.textContent).toBe("999998038");
    const blocks = asked.flatMap(({ args }) => (args.blocks as number[][]).map(String));
    expect(new Set(blocks).size).toBe(blocks.length);
    await press("Home", { ctrlKey: true });
    expect(active()?.textContent).toBe("0");
  });

  it("asks for what lies ahead before it is seen", async () => {
    const { asked, press } = await open({ rows: 10_000, cols: 2 });
    for (let page = 0; page < 6; page++) await press("PageDown");
    const furthest = Math.max(...asked.flatMap(({ args }) => (args.blocks as number[][]).map(([, stop]) => stop ?? 0)));
    expect(furthest).toBeGreaterThan(6 * 18 + 40);
  });

  it("copies a range as tab-separated exact text", async () => {
    const { press, copied } = await open({ rows: 50, cols: 3 });
    await press("ArrowDown", { shiftKey: true });
    await press("ArrowRight", { shiftKey: true });
    await press("c", { ctrlKey: true });
    expect(copied).toEqual(["0\t1\n1000\t1001"]);
  });

  it("edits with Enter, moves on, and asks for the new values", async () => {
    const { press, asked, active, grid } = await open({ rows: 50, cols: 3 });
    await press("ArrowRight");
    await press("Enter");
    const input = grid.querySelector("input");
    expect(input?.value).toBe("1");
    if (input) input.value = "77";
    const before = asked.length;
    await press("Enter");
    expect(asked[before]).toEqual({
      op: "edit",
      args: {
        path: ["x"],
        index: [
          [0, 1],
          [1, 2],
        ],
        values: "77",
      },
    });
    expect(asked.slice(before + 1).map(({ op }) => op)).toEqual(["table.page"]);
    expect(grid.querySelector("input")).toBeNull();
    expect(active()?.textContent).toBe("1001");
  });

  it("shows why the kernel refuses, and Escape leaves", async () => {
    const { press, refuse, grid, asked } = await open({ rows: 50, cols: 3 });
    refuse("int64 cannot hold 1.5");
    await press("F2");
    await press("Enter");
    const input = grid.querySelector("input");
    expect(input?.getAttribute("aria-invalid")).toBe("true");
    expect(grid.querySelector('[role="alert"]')?.textContent).toBe("int64 cannot hold 1.5");
    await press("Escape");
    expect(grid.querySelector("input")).toBeNull();
    expect(asked.filter(({ op }) => op === "edit")).toHaveLength(1);
  });

  const edits = (asked: readonly Asked[]) => asked.filter(({ op }) => op === "edit").map(({ args }) => args.values);
  const pressAt = (target: EventTarget) => target.dispatchEvent(new Event("pointerdown", { bubbles: true }));

  it("keeps the editor when the focus is taken by script", async () => {
    const { press, grid, asked } = await open({ rows: 50, cols: 3 });
    await press("7");
    const input = grid.querySelector("input");
    if (input) pressAt(input); // the person places the cursor
    input?.blur();
    await settle();
    expect(grid.querySelector("input")).toBe(input);
    expect(grid.ownerDocument.activeElement).toBe(input);
    expect(edits(asked)).toEqual([]);
  });

  it("writes what was typed when the person presses elsewhere, and nothing where nothing was typed", async () => {
    const { press, grid, asked, active } = await open({ rows: 50, cols: 3 });
    await press("F2");
    pressAt(document.body);
    expect(grid.querySelector("input")).toBeNull();
    await press("7");
    pressAt(document.body);
    await settle();
    expect(grid.querySelector("input")).toBeNull();
    expect(edits(asked)).toEqual(["7"]);
    expect(active()?.parentElement?.getAttribute("aria-rowindex")).toBe("2");
  });

  it("keeps a refused value in its editor when the person presses elsewhere", async () => {
    const { press, refuse, grid, said } = await open({ rows: 50, cols: 3 });
    refuse("int64 cannot hold x");
    await press("x");
    pressAt(grid);
    expect(grid.querySelector("input")?.getAttribute("aria-busy")).toBeNull(); // a scroll bar is no elsewhere
    pressAt(document.body);
    await settle();
    const input = grid.querySelector("input");
    expect([input?.value, input?.getAttribute("aria-invalid")]).toEqual(["x", "true"]);
    expect(grid.ownerDocument.activeElement).toBe(input);
    expect(grid.querySelector('[role="alert"]')?.textContent).toBe("int64 cannot hold x");
    expect(said).toEqual([]);
  });

  it("says what was refused when the table has gone", async () => {
    const { press, refuse, view, selection, grid, said } = await open({ rows: 50, cols: 3 });
    refuse("int64 cannot hold x");
    await press("x");
    pressAt(document.body);
    view.show({ ...selection, path: ["y"] });
    await settle();
    expect(grid.querySelector("input")).toBeNull();
    expect(said).toEqual(["Not written: int64 cannot hold x"]);
    await press("y");
    view.show(selection);
    await settle();
    expect(said.at(-1)).toContain("Not written: ");
    expect(said.at(-1)).toContain("y");
  });

  it("goes on typing when the same table is read again", async () => {
    const { press, grid, view, selection, said } = await open({ rows: 50, cols: 3 });
    await press("7");
    view.show(selection);
    await settle();
    expect(said).toEqual([]);
    expect(grid.querySelector("input")?.value).toBe("7");
    expect(grid.ownerDocument.activeElement).toBe(grid.querySelector("input"));
  });

  it("fills the selection with Ctrl+Enter", async () => {
    const { press, asked, grid } = await open({ rows: 50, cols: 3 });
    await press("ArrowDown", { shiftKey: true });
    await press("5");
    expect(grid.querySelector("input")?.value).toBe("5");
    await press("Enter", { ctrlKey: true });
    expect(asked.find(({ op }) => op === "edit")?.args).toEqual({
      path: ["x"],
      index: [
        [0, 2],
        [0, 1],
      ],
      values: "5",
    });
  });

  it("pastes a rectangle, cut at the end of the table", async () => {
    const { press, asked, grid, said } = await open({ rows: 3, cols: 3 });
    await press("ArrowDown");
    await press("ArrowDown");
    const event = new Event("paste", { bubbles: true, cancelable: true });
    Object.assign(event, { clipboardData: { getData: () => "1\t2\n3\t4" } });
    grid.dispatchEvent(event);
    await settle();
    expect(asked.find(({ op }) => op === "edit")?.args).toEqual({
      path: ["x"],
      index: [
        [2, 3],
        [0, 2],
      ],
      values: ["1", "2"],
    });
    expect(said.at(-1)).toContain("Pasted 1 × 2");
  });

  it("says in a read-only save how to edit", async () => {
    const { press, grid, said } = await open({ rows: 5, cols: 1, mode: "r" });
    await press("Enter");
    expect(grid.querySelector("input")).toBeNull();
    expect(said.at(-1)).toContain('mode="r+"');
  });

  it("marks edited cells, and follows edits made elsewhere", async () => {
    const { grid, asked, emit } = await open({ rows: 50, cols: 2 });
    expect([...grid.querySelectorAll(".tdv-edited")].map((cell) => cell.textContent)).toEqual(["1000"]);
    const before = asked.length;
    emit({ kind: "event", event: "changed", path: ["y"], rows: null });
    await settle();
    expect(asked.length).toBe(before);
    emit({ kind: "event", event: "changed", path: ["x"], rows: [0, 1] });
    await settle();
    expect(asked.length).toBe(before + 1);
  });

  it("goes to a storage row in time order", async () => {
    const ring = {
      capacity: 100,
      certain: true,
      spans: [
        [60, 100],
        [0, 60],
      ],
    };
    const { view, grid, active, said } = await open({ rows: 100, cols: 1, ring });
    expect(
      [...(grid.querySelectorAll('[role="rowheader"]') ?? [])].slice(0, 2).map((head) => head.textContent),
    ).toEqual(["60", "0"]);
    const box = view.element.querySelector<HTMLInputElement>(".tdv-goto");
    if (!box) throw new Error("no box");
    box.value = "10";
    box.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
    await settle();
    expect(active()?.textContent).toBe("50000"); // row 10 is the 50th in time
    box.value = "1.5";
    box.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
    expect(said.at(-1)).toBe("1.5 is no row number.");
  });

  it("has no cells where there are no columns or rows", async () => {
    for (const size of [
      { rows: 4, cols: 0 },
      { rows: 0, cols: 3 },
    ]) {
      const { view, grid } = await open(size);
      expect(grid.querySelectorAll('[role="gridcell"]').length).toBe(0);
      expect([...grid.querySelectorAll(".tdv-grid-title")].map((title) => title.textContent)).not.toContain("-1");
      expect(view.element.querySelector(".tdv-cell-text")?.textContent).toBe("no elements");
    }
  });

  it("stays where it is when asked for a row that is not there", async () => {
    const { view, grid, active, said } = await open({ rows: 50, cols: 1 });
    const box = view.element.querySelector<HTMLInputElement>(".tdv-goto");
    for (const text of ["-1", "50", "99999999999999999999"]) {
      if (box) box.value = text;
      box?.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
      await settle();
      expect(said.pop()).toBe(`There is no row ${Number(text)}: the rows are 0 to 49.`);
      expect(active()?.textContent).toBe("0");
      expect(grid.querySelector(".tdv-active")).not.toBeNull();
    }
  });

  it("tells Python of a selected range, and when there is none any more", async () => {
    const { press, asked } = await open({ rows: 50, cols: 3 });
    await press("ArrowDown");
    await press("ArrowDown", { shiftKey: true });
    await press("ArrowRight", { shiftKey: true });
    await rest();
    const told = () => asked.filter(({ op }) => op === "selection").map(({ args }) => args);
    expect(told()).toEqual([expect.objectContaining({ path: ["x"], rows: [1, 3], cols: [0, 2] })]);
    await press("Escape");
    await rest();
    expect(told().at(-1)).toEqual({ path: ["x"] });
  });

  it("maps the axes of a leaf with three, and hides the controls from one with fewer", async () => {
    const { view, selection, asked } = await open({ rows: 5, cols: 3, shape: [5, 3, 2] });
    const controls = () => view.element.querySelector<HTMLElement>(".tdv-dims");
    const role = controls()?.querySelector("select");
    if (!role) throw new Error("no controls");
    role.value = "col";
    role.dispatchEvent(new Event("change"));
    await settle();
    expect(asked.at(-1)?.args.view).toMatchObject({ rowAxis: 1, colAxis: 0 });
    view.show({ ...selection, shape: [5, 3] });
    await settle();
    expect(controls()?.hidden).toBe(true);
  });

  it("keeps keys from the notebook", async () => {
    const { grid } = await open({ rows: 5, cols: 1 });
    const heard = vi.fn();
    document.body.addEventListener("keydown", heard);
    for (const key of ["ArrowDown", "Enter", "PageDown", "a"]) {
      const target = grid.querySelector("input") ?? grid;
      target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    }
    document.body.removeEventListener("keydown", heard);
    expect(heard).not.toHaveBeenCalled();
  });

  it("names the rows that are seen", async () => {
    const { view } = await open({ rows: 50, cols: 1 });
    const shown = view.element.querySelector(".tdv-shown");
    expect(shown?.textContent).toMatch(/^rows 0–\d+ of 50$/);
    view.element.remove();
    const one = await open({ rows: 1, cols: 1 });
    expect(one.view.element.querySelector(".tdv-shown")?.textContent).toBe("rows 0 of 1");
  });

  it("gives code for the selected range", async () => {
    const { view, press } = await open({ rows: 50, cols: 3 });
    await press("ArrowDown", { shiftKey: true });
    expect(view.code?.()).toContain('leaf = tdview.scan("run.tdz")["x"]\nleaf.numpy((slice(0, 2), 0))');
  });
});

describe("ages and priorities", () => {
  const side = [
    { name: "age", title: "Steps behind the newest row" },
    { name: "priority", title: "As it was given" },
  ];
  const switchOf = (view: { element: HTMLElement }, name = "age, priority") => {
    const found = [...view.element.querySelectorAll<HTMLButtonElement>("button")].find((b) => b.textContent === name);
    if (!found) throw new Error(`no button ${name}`);
    return found;
  };
  const turnOn = async (info: Partial<Info> = {}) => {
    const table = await open({ rows: 9, cols: 3, side, ...info });
    switchOf(table.view).click();
    await settle();
    return table;
  };
  const row = (grid: HTMLElement, index: number) =>
    [...grid.querySelectorAll(`[aria-rowindex="${index + 2}"] [role="gridcell"]`)].map((cell) => cell.textContent);

  it("are named on the switch, the first two of them, and all in its title", async () => {
    const names = ["age", "priority", "probability"].map((name) => ({ name, title: "" }));
    const { view } = await open({ rows: 9, cols: 3, side: names });
    expect(switchOf(view, "age, priority…").title).toContain("age, priority, probability");
  });

  it("are off at first, and not even offered where there are none", async () => {
    const table = await open({ rows: 9, cols: 3, side });
    expect(switchOf(table.view).getAttribute("aria-pressed")).toBe("false");
    expect(table.asked[0]?.args.view).toMatchObject({ side: false });
    expect(row(table.grid, 1)).toEqual(["1000", "1001", "1002"]);
    document.body.replaceChildren();
    const plain = await open({ rows: 9, cols: 3 });
    expect(switchOf(plain.view, "").hidden).toBe(true);
  });

  it("stand before the values, short, and empty where there are none", async () => {
    const { grid, view } = await turnOn();
    expect(switchOf(view).getAttribute("aria-pressed")).toBe("true");
    expect(row(grid, 1)).toEqual(["1", "0.3333", "1000", "1001", "1002"]);
    expect(row(grid, 4).slice(0, 2)).toEqual(["4", "3.333e-6"]);
    expect(row(grid, 2)).toEqual(["", "", "2000", "2001", "2002"]);
    const heads = [...grid.querySelectorAll('[role="columnheader"]')];
    expect(heads.map((head) => head.textContent)).toEqual(["row", "age", "priority", "0", "1", "2"]);
    expect(heads.map((head) => head.getAttribute("aria-colindex"))).toEqual(["1", "2", "3", "4", "5", "6"]);
    expect(heads[1]?.getAttribute("title")).toBe("Steps behind the newest row");
    expect(grid.getAttribute("aria-colcount")).toBe("6");
    const cells = [...grid.querySelectorAll('[aria-rowindex="3"] [role="gridcell"]')];
    expect(cells.map((cell) => cell.getAttribute("aria-readonly"))).toEqual(["true", "true", null, null, null]);
    expect(cells.map((cell) => cell.getAttribute("aria-colindex"))).toEqual(["2", "3", "4", "5", "6"]);
  });

  it("leave the selection on its value, and go as they came", async () => {
    const { view, grid, press, active } = await open({ rows: 9, cols: 3, side });
    await press("ArrowDown");
    await press("ArrowRight");
    expect(active()?.textContent).toBe("1001");
    switchOf(view).click();
    await settle();
    expect(active()?.textContent).toBe("1001");
    expect(active()?.getAttribute("aria-colindex")).toBe("5");
    switchOf(view).click();
    await settle();
    expect(active()?.textContent).toBe("1001");
    expect(row(grid, 1)).toEqual(["1000", "1001", "1002"]);
  });

  it("are walked through and copied exactly, but not edited", async () => {
    const { press, active, said, grid, copied, asked } = await turnOn();
    await press("ArrowDown");
    await press("Home");
    expect(active()?.textContent).toBe("1");
    for (const key of ["Enter", "5"]) {
      await press(key);
      expect(grid.querySelector("input")).toBeNull();
    }
    expect(said.at(-1)).toContain("not edited");
    await press("ArrowDown", { shiftKey: true });
    await press("ArrowRight", { shiftKey: true });
    await press("ArrowRight", { shiftKey: true });
    await press("c", { ctrlKey: true });
    expect(copied).toEqual([`1\t${1 / 3}\t1000\n\t\t2000`]);
    expect(asked.some(({ op }) => op === "edit")).toBe(false);
  });

  it("edits the value behind them", async () => {
    const { press, asked, grid } = await turnOn();
    expect([...grid.querySelectorAll(".tdv-edited")].map((cell) => cell.textContent)).toEqual(["1000"]);
    await press("7");
    await press("Enter");
    expect(asked.find(({ op }) => op === "edit")?.args.index).toEqual([
      [0, 1],
      [0, 1],
    ]);
  });

  it("stay on for the next leaf, and ask for every page with them", async () => {
    const { view, selection, asked, press } = await turnOn({ rows: 1000 });
    view.show({ ...selection, path: ["y"] });
    await settle();
    await press("End", { ctrlKey: true });
    const last = asked.filter(({ op }) => op === "table.page").at(-1)?.args;
    expect(last).toMatchObject({ path: ["y"], view: { side: true } });
  });

  it("follow the last of several quick clicks", async () => {
    const { view, grid } = await open({ rows: 9, cols: 3, side });
    for (let click = 0; click < 3; click++) switchOf(view).click(); // the first answer has not come: it stays on
    await settle();
    expect(row(grid, 1)).toHaveLength(5);
    switchOf(view).click();
    await settle();
    expect(row(grid, 1)).toHaveLength(3);
  });
});
