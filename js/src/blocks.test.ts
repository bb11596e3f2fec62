import { describe, expect, it } from "vitest";
import { ahead, type Block, BlockCache, blocksIn, type Place, rectOf } from "./blocks";

const block = (rows: readonly [number, number], read = () => 1 as const): Block => ({
  rows,
  segments: [{ start: 0, cols: 16, read }],
  edited: [],
  stale: false,
});
const at = (row: number, col = 0): Place => ({ row, col });

describe("BlockCache", () => {
  it("gives a cell once its block is there", () => {
    const cache = new BlockCache();
    expect(cache.cell(130, 3)).toBeUndefined();
    cache.put(at(1), { ...block([128, 256]), segments: [{ start: 2, cols: 2, read: (i) => i }] });
    expect(cache.cell(130, 3)).toBe(2 * 2 + 1);
    expect(cache.cell(130, 5)).toBeNull();
    expect(cache.cell(130, 16)).toBeUndefined();
  });

  it("asks for a block once, and again after the request was dropped", () => {
    const cache = new BlockCache();
    expect(cache.take([at(0), at(1)], 1)).toHaveLength(2);
    expect(cache.take([at(1), at(2)], 2)).toEqual([at(2)]);
    cache.drop(1);
    expect(cache.take([at(0), at(1), at(2)], 3)).toEqual([at(0), at(1)]);
    cache.put(at(0), block([0, 128]));
    cache.drop(3);
    expect(cache.take([at(0), at(1)], 4)).toEqual([at(1)]);
  });

  it("names the requests that nobody waits for", () => {
    const cache = new BlockCache();
    cache.take([at(0), at(1)], 1);
    cache.take([at(50)], 2);
    expect(cache.unwanted([at(50), at(51)])).toEqual([1]);
    expect(cache.unwanted([at(1), at(50)])).toEqual([]);
  });

  it("forgets the blocks that were not used for longest", () => {
    const cache = new BlockCache(2);
    cache.put(at(0), block([0, 128]));
    cache.put(at(1), block([128, 256]));
    cache.take([at(0)], 1); // used again
    cache.put(at(2), block([256, 384]));
    expect([cache.size, cache.cell(0, 0), cache.cell(128, 0)]).toEqual([2, 1, undefined]);
  });

  it("shows an expired block until the new one is here", () => {
    const cache = new BlockCache();
    cache.put(at(0), block([0, 128]));
    cache.expire();
    expect(cache.cell(0, 0)).toBe(1);
    expect(cache.has([at(0)])).toBe(false);
    expect(cache.take([at(0)], 7)).toEqual([at(0)]);
  });
});

it("finds the blocks that meet a rectangle, inside the table", () => {
  expect(blocksIn([-50, 130, 0, 17], 1000, 20)).toEqual([at(0, 0), at(0, 1), at(1, 0), at(1, 1)]);
  expect(blocksIn([990, 5000, 0, 99], 1000, 3)).toEqual([at(7)]);
  expect(blocksIn([0, 10, 0, 10], 0, 0)).toEqual([]);
  expect(rectOf(at(7, 1), 1000, 20)).toEqual([896, 1000, 16, 20]);
});

it("looks ahead where the user is heading", () => {
  expect(ahead([100, 120, 0, 10], 1, 0)).toEqual([90, 200, 0, 10]);
  expect(ahead([100, 120, 10, 20], -1, 1)).toEqual([20, 130, 10, 30]);
});
