import { expect, it } from "vitest";
import { cellRange, fromTsv, isSingle, moved, rectOfRange, toTsv } from "./ranges";

const size = { rows: 100, cols: 5, page: 10 };

it.each([
  ["ArrowDown", false, [51, 2]],
  ["ArrowUp", true, [0, 2]],
  ["PageDown", false, [60, 2]],
  ["PageUp", false, [40, 2]],
  ["Home", false, [50, 0]],
  ["End", false, [50, 4]],
  ["Home", true, [0, 0]],
  ["End", true, [99, 4]],
  ["ArrowRight", true, [50, 4]],
] as const)("%s (Ctrl %s) goes to %s", (key, whole, [row, col]) => {
  expect(moved(cellRange(50, 2), key, whole, false, size)).toEqual(cellRange(row, col));
});

it("stays inside and leaves other keys alone", () => {
  expect(moved(cellRange(99, 4), "ArrowDown", false, false, size)).toEqual(cellRange(99, 4));
  expect(moved(cellRange(0, 0), "x", false, false, size)).toBeNull();
});

it("Shift moves the far end of the range", () => {
  const range = moved(
    moved(cellRange(5, 1), "ArrowUp", false, true, size) ?? cellRange(0, 0),
    "ArrowRight",
    false,
    true,
    size,
  );
  expect(range).toEqual({ row: 5, col: 1, toRow: 4, toCol: 2 });
  expect(rectOfRange(range ?? cellRange(0, 0))).toEqual([4, 6, 1, 3]);
  expect([isSingle(cellRange(1, 1)), range && isSingle(range)]).toEqual([true, false]);
});

it("writes and reads tab-separated text", () => {
  const rows = [
    ["1.5", "NaN"],
    ["-2", "True"],
  ];
  expect(fromTsv(toTsv(rows))).toEqual(rows);
  expect(fromTsv("1\t2\r\n3\t4\r\n")).toEqual([
    ["1", "2"],
    ["3", "4"],
  ]);
  expect(fromTsv("1\t2\n3")).toBeNull();
});
