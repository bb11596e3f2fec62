import { describe, expect, it } from "vitest";
import { FlatTree, foundTree, type Item, PAGE } from "./flat-tree";
import type { Path, Row } from "./protocol";

function makeRow(key: string, children: number | null = null): Row {
  return {
    key,
    kind: children === null ? "leaf" : "tensordict",
    className: null,
    dtype: children === null ? "torch.float32" : null,
    shape: [6],
    batchDims: 1,
    names: null,
    nbytes: children === null ? 24 : null,
    children,
    nested: false,
    writable: false,
    note: "",
    badges: [],
  };
}

function found(tree: FlatTree, path: Path): Item {
  const item = tree.find(path);
  if (!item) throw new Error(`there is no ${path.join(".")}`);
  return item;
}

const rows = (count: number, prefix: string, children: number | null = null) =>
  Array.from({ length: count }, (_, i) => makeRow(`${prefix}${i}`, children));

/** A root of `n` levels with 3 leaves each. */
function makeTree(n: number): FlatTree {
  return new FlatTree(makeRow("root", n), { path: [], start: 0, total: n, rows: rows(n, "level", 3) });
}

function openLevel(tree: FlatTree, path: Path, count = 3): void {
  tree.setPage({ path, start: 0, total: count, rows: rows(count, "leaf") });
  const item = tree.find(path);
  if (item) tree.setOpen(item, true);
}

const names = (tree: FlatTree) => Array.from({ length: tree.size }, (_, i) => tree.at(i).item?.row.key ?? "?");

describe("FlatTree", () => {
  it("shows the root and its first page", () => {
    expect(names(makeTree(2))).toEqual(["root", "level0", "level1"]);
  });

  it("finds every row after levels were opened and closed", () => {
    const tree = makeTree(3);
    openLevel(tree, ["level0"]);
    openLevel(tree, ["level2"]);
    expect(names(tree)).toEqual([
      "root",
      "level0",
      "leaf0",
      "leaf1",
      "leaf2",
      "level1",
      "level2",
      "leaf0",
      "leaf1",
      "leaf2",
    ]);
    for (let i = 0; i < tree.size; i++) {
      const { parent, index } = tree.at(i);
      expect(tree.positionOf(parent, index)).toBe(i);
    }
    tree.setOpen(found(tree, ["level0"]), false);
    expect(names(tree)).toEqual(["root", "level0", "level1", "level2", "leaf0", "leaf1", "leaf2"]);
  });

  it("keeps the opened levels inside a closed one", () => {
    const tree = makeTree(1);
    const root = tree.root;
    openLevel(tree, ["level0"]);
    tree.setOpen(root, false);
    expect(tree.size).toBe(1);
    tree.setOpen(root, true);
    expect(tree.size).toBe(5);
  });

  it("knows what is missing of a wide level, in whole pages", () => {
    const tree = new FlatTree(makeRow("root", 10_000), { path: [], start: 0, total: 10_000, rows: rows(100, "x") });
    expect(tree.size).toBe(10_001);
    expect(tree.missing(0, 90)).toEqual([]);
    expect(tree.missing(90, 120)).toEqual([{ path: [], start: 0, count: PAGE }]);
    expect(tree.missing(9_990, 10_000)).toEqual([{ path: [], start: 9_800, count: 200 }]);
    tree.press("End", 20);
    expect(tree.active).toBe(10_000);
    expect(tree.at(tree.active)).toMatchObject({ index: 9_999, item: undefined });
    tree.setPage({ path: [], start: 9_800, total: 10_000, rows: rows(200, "y") });
    expect(tree.at(tree.active).item?.row.key).toBe("y199");
  });

  it("keeps the active node when rows appear or vanish above it", () => {
    const tree = makeTree(2);
    tree.active = 2;
    openLevel(tree, ["level0"]);
    expect(tree.at(tree.active).item?.row.key).toBe("level1");
    tree.active = 3;
    tree.setOpen(found(tree, ["level0"]), false);
    expect(tree.at(tree.active).item?.row.key).toBe("level0");
  });

  it("grows a level whose size was not known", () => {
    const tree = new FlatTree(makeRow("root", 2), {
      path: [],
      start: 0,
      total: 2,
      rows: [makeRow("a", -1), makeRow("b")],
    });
    tree.active = 2;
    const item = found(tree, ["a"]);
    tree.setOpen(item, true);
    expect(tree.isLoaded(item)).toBe(true);
    tree.setPage({ path: ["a"], start: 0, total: 4, rows: rows(4, "k") });
    expect(names(tree)).toEqual(["root", "a", "k0", "k1", "k2", "k3", "b"]);
    expect(tree.at(tree.active).item?.row.key).toBe("b");
  });

  it("opens the levels above a node to reveal it", () => {
    const tree = makeTree(2);
    tree.setPage({ path: ["level1"], start: 0, total: 3, rows: rows(3, "leaf") });
    expect(tree.reveal(["level1", "leaf2"])).toBe(true);
    expect(tree.active).toBe(5);
    expect(tree.reveal(["level0", "leaf0"])).toBe(false);
  });

  it("takes a page again without closing what is open", () => {
    const tree = makeTree(2);
    openLevel(tree, ["level0"]);
    tree.setPage({ path: [], start: 0, total: 2, rows: rows(2, "level", 3) });
    expect(tree.size).toBe(6);
    tree.setPage({ path: [], start: 0, total: 2, rows: [makeRow("other"), makeRow("level1", 3)] });
    expect(names(tree)).toEqual(["root", "other", "level1"]);
  });
});

describe("keys", () => {
  it("follow the tree pattern", () => {
    const tree = makeTree(2);
    expect(tree.press("ArrowUp", 10)).toBe("none");
    expect(tree.press("ArrowDown", 10)).toBe("moved");
    expect(tree.press("ArrowRight", 10)).toBe("open");
    openLevel(tree, ["level0"]);
    expect(tree.press("ArrowRight", 10)).toBe("moved");
    expect(tree.press("ArrowRight", 10)).toBe("none");
    expect(tree.press("ArrowLeft", 10)).toBe("moved");
    expect(tree.active).toBe(1);
    expect(tree.press("ArrowLeft", 10)).toBe("close");
    expect(tree.press("PageDown", 10)).toBe("moved");
    expect(tree.active).toBe(tree.size - 1);
    expect(tree.press("Home", 10)).toBe("moved");
    expect(tree.press("Enter", 10)).toBe("select");
    expect(tree.press("F7", 10)).toBe("none");
  });

  it("find a row by its first letters", () => {
    const tree = new FlatTree(makeRow("root", 3), {
      path: [],
      start: 0,
      total: 3,
      rows: [makeRow("action"), makeRow("reward"), makeRow("Return")],
    });
    tree.typeAhead("r");
    expect(tree.active).toBe(2);
    tree.typeAhead("re");
    expect(tree.active).toBe(2);
    tree.typeAhead("ret");
    expect(tree.active).toBe(3);
    expect(tree.typeAhead("zz")).toBe("none");
  });
});

describe("foundTree", () => {
  it("lists found rows flat, with their own paths", () => {
    const tree = foundTree(makeRow("root", 9), [{ ...makeRow("reward"), path: ["next", "reward"] }]);
    expect(tree.size).toBe(2);
    expect(tree.at(1).item).toMatchObject({ path: ["next", "reward"], level: 2 });
  });
});
