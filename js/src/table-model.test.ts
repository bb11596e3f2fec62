import { describe, expect, it } from "vitest";
import type { Selection } from "./context";
import { foldedText, type TableInfo, tableModel, unravel } from "./table-model";

const selection = (over: Partial<Selection>): Selection =>
  ({
    key: "x",
    kind: "leaf",
    className: "Tensor",
    dtype: "torch.float32",
    shape: [6, 2],
    batchDims: 1,
    names: null,
    nbytes: 48,
    children: null,
    nested: false,
    writable: true,
    note: "",
    badges: [],
    path: ["x"],
    ...over,
  }) as Selection;
const info = (over: Partial<TableInfo>): TableInfo => ({
  rows: 6,
  cols: 2,
  order: "storage",
  ring: null,
  columns: [],
  hidden: 0,
  batch: [],
  base: [],
  companions: [],
  side: [],
  lead: 0,
  rowAxis: 0,
  colAxis: 1,
  index: [0, 0],
  ...over,
});
const column = (key: string[], shape: number[], over = {}) => ({
  key,
  dtype: "torch.float32",
  shape,
  count: shape.reduce((a, b) => a * b, 1),
  folded: false,
  problem: "",
  ...over,
});

describe("a leaf", () => {
  it("is edited by an index box", () => {
    const model = tableModel(selection({}), info({}));
    expect(model.boxes([2, 4, 1, 2])).toEqual([
      {
        path: ["x"],
        index: [
          [2, 4],
          [1, 2],
        ],
        cells: [
          [0, 0],
          [1, 0],
        ],
      },
    ]);
  });

  it("gives values in the order of the axes when they are swapped", () => {
    const model = tableModel(selection({}), info({ rows: 2, cols: 6, rowAxis: 1, colAxis: 0 }));
    const [box] = model.boxes([0, 2, 3, 5]);
    expect(box?.index).toEqual([
      [3, 5],
      [0, 2],
    ]);
    expect(box?.cells).toEqual([
      [0, 0],
      [1, 0],
      [0, 1],
      [1, 1],
    ]);
  });

  it("holds the other axes at their index", () => {
    const model = tableModel(selection({ shape: [6, 3, 4] }), info({ cols: 4, colAxis: 2, index: [0, 2, 0] }));
    expect(model.boxes([5, 6, 0, 1])[0]?.index).toEqual([
      [5, 6],
      [2, 3],
      [0, 1],
    ]);
  });

  it("is cut at the seam of a ring", () => {
    const ring = {
      capacity: 6,
      certain: true,
      spans: [
        [4, 6],
        [0, 4],
      ] as [number, number][],
    };
    const model = tableModel(selection({}), info({ ring, order: "time" }));
    expect(model.boxes([1, 3, 0, 1])).toEqual([
      {
        path: ["x"],
        index: [
          [5, 6],
          [0, 1],
        ],
        cells: [[0, 0]],
      },
      {
        path: ["x"],
        index: [
          [0, 1],
          [0, 1],
        ],
        cells: [[1, 0]],
      },
    ]);
    expect([model.storage(0), model.tableRow(0), model.time(0)]).toEqual([4, 2, 0]);
    expect(model.rowHeader(2)).toEqual(["0", "2"]);
    expect(model.code("run.tdz", [1, 3, 0, 2])).toContain("np.concatenate([leaf.numpy((5,)), leaf.numpy((0,))])");
  });

  it("is code with the slices that are seen", () => {
    const model = tableModel(selection({ path: ["next", "obs"] }), info({}));
    expect(model.code("run.tdz", [2, 5, 0, 2])).toBe(
      'import tdview\n\nleaf = tdview.scan("run.tdz")["next", "obs"]\nleaf.numpy((slice(2, 5),))',
    );
    expect(model.code("run.tdz", [2, 3, 1, 2])).toContain("leaf.numpy((2, 1))");
  });

  it("names its columns", () => {
    expect(tableModel(selection({}), info({})).header(1).text).toBe("1");
    expect(tableModel(selection({ path: ["next", "reward"], shape: [6, 1] }), info({ cols: 1 })).header(0).text).toBe(
      "next.reward",
    );
  });
});

describe("a level", () => {
  const level = selection({ path: [], dtype: null, shape: [6], kind: "tensordict" });
  const columns = [
    column(["obs"], [2]),
    column(["image"], [64, 64], { folded: true, count: 1 }),
    column(["next", "m"], [2, 2]),
  ];
  const model = tableModel(level, info({ cols: 7, columns, batch: [6] }));

  it("knows which leaf a column belongs to", () => {
    expect(Array.from({ length: 7 }, (_, col) => model.header(col).text)).toEqual([
      "obs[0]",
      "obs[1]",
      "image",
      "next.m[0, 0]",
      "next.m[0, 1]",
      "next.m[1, 0]",
      "next.m[1, 1]",
    ]);
  });

  it("is edited leaf by leaf", () => {
    expect(model.boxes([3, 5, 0, 2])).toEqual([
      {
        path: ["obs"],
        index: [
          [3, 5],
          [0, 2],
        ],
        cells: [
          [0, 0],
          [0, 1],
          [1, 0],
          [1, 1],
        ],
      },
    ]);
    expect(model.boxes([3, 4, 5, 6])).toEqual([
      {
        path: ["next", "m"],
        index: [
          [3, 4],
          [1, 2],
          [0, 1],
        ],
        cells: [[0, 0]],
      },
    ]);
  });

  it("is not edited where a column stands for a whole leaf", () => {
    expect(() => model.boxes([0, 6, 0, 7])).toThrow("image: select this leaf");
    expect(() => model.boxes([0, 1, 2, 3])).toThrow("image: select this leaf");
    const short = column(["x"], [], { folded: true, count: 1, problem: "x.memmap: the payload is 5 bytes" });
    const damaged = tableModel(selection({ path: [], dtype: null }), info({ cols: 1, columns: [short], batch: [6] }));
    expect(() => damaged.boxes([0, 1, 0, 1])).toThrow("the payload is 5 bytes");
  });

  it("is code with the keys that are seen", () => {
    expect(model.code("run", [0, 2, 0, 2])).toContain('level.frame(rows=slice(0, 2), keys=["obs"])');
    expect(model.code("run", [0, 2, 0, 7])).toContain("level.frame(rows=slice(0, 2))");
    expect(model.code("run", [0, 2, 3, 4])).toContain('keys=[("next", "m")]');
  });

  it("may be a leaf with others beside it", () => {
    const two = tableModel(
      selection({ path: ["next", "reward"], shape: [6, 1] }),
      info({ cols: 2, columns: [column(["next", "reward"], [1]), column(["done"], [1])], batch: [6] }),
    );
    expect(two.boxes([1, 2, 0, 2]).map(({ path }) => path)).toEqual([["next", "reward"], ["done"]]);
    expect(two.code("run", [0, 2, 0, 2])).toContain('frame(rows=slice(0, 2), keys=[("next", "reward"), "done"])');
  });

  it("shows several batch dims as one index", () => {
    const two = tableModel(
      selection({ path: [], dtype: null, shape: [2, 3], names: ["time", null] }),
      info({ rows: 6, cols: 1, columns: [column(["x"], [])], batch: [2, 3] }),
    );
    expect(two.rowHeader(4)).toEqual(["1, 1"]);
    expect(two.headers()[0]?.title).toBe("time, dim 1");
    expect(two.boxes([4, 5, 0, 1])[0]?.index).toEqual([
      [1, 2],
      [1, 2],
    ]);
  });
});

it("says what stands folded in a column", () => {
  const folded = { folded: true, count: 1 };
  expect(foldedText(column(["image"], [3, 8], folded))).toBe("float32 [3, 8]");
  expect(foldedText(column(["tokens"], [-1, 4], folded))).toBe("float32 nested");
  expect(foldedText(column(["x"], [2], { ...folded, problem: "short" }))).toBe("damaged");
});

it("unravels in C order", () => {
  expect(unravel(7, [2, 2, 3])).toEqual([1, 0, 1]);
  expect(unravel(0, [])).toEqual([]);
});

describe("side columns", () => {
  const side = [
    { name: "age", title: "Steps behind the newest row" },
    { name: "priority", title: "As it was given" },
  ];
  const ahead = { side, lead: 2 };

  it("stand before the columns of a leaf, which keep their numbers", () => {
    const model = tableModel(selection({}), info({ ...ahead, cols: 4 }));
    expect([0, 1, 2, 3].map((col) => model.header(col).text)).toEqual(["age", "priority", "0", "1"]);
    expect(model.header(0).title).toBe("Steps behind the newest row");
    expect(model.layout("plain").groups.map(({ start, count }) => [start, count])).toEqual([
      [0, 1],
      [1, 1],
      [2, 2],
    ]);
    expect(model.boxes([2, 4, 0, 4])[0]?.index).toEqual([
      [2, 4],
      [0, 2],
    ]);
    expect(model.boxes([2, 4, 3, 4])[0]?.index).toEqual([
      [2, 4],
      [1, 2],
    ]);
    expect(model.code("run", [2, 4, 1, 3])).toContain("leaf.numpy((slice(2, 4), 0))");
    expect(model.code("run", [2, 4, 0, 2])).toContain("leaf.numpy((slice(2, 4),))");
  });

  it("stand before the leaves of a level", () => {
    const columns = [column(["a"], []), column(["b"], [2])];
    const model = tableModel(
      selection({ dtype: null, shape: null, path: [] }),
      info({ ...ahead, cols: 5, columns, batch: [6], rowAxis: null, colAxis: null, index: [] }),
    );
    expect([0, 1, 2, 3, 4].map((col) => model.header(col).text)).toEqual(["age", "priority", "a", "b[0]", "b[1]"]);
    expect(model.column(1)).toBeNull();
    expect(model.boxes([0, 6, 0, 3]).map(({ path }) => path)).toEqual([["a"]]);
    expect(model.code("run", [0, 2, 0, 2])).toContain("level.frame(rows=slice(0, 2))");
  });

  it("names the whole nested tensor in code: its rows are no rows of the leaf", () => {
    const columns = [column(["tensor"], []), column(["position"], []), column(["x"], [2])];
    const model = tableModel(
      selection({ nested: true, shape: [3, -1, 2] }),
      info({ columns, batch: [6], cols: 4, base: ["x"] }),
    );
    expect(model.code("run", [0, 2, 2, 4])).toBe('import tdview\n\nleaf = tdview.scan("run")["x"]\nleaf.numpy()');
    expect(model.header(3).text).toBe("x[1]");
  });
});
