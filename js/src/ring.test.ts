import { expect, it } from "vitest";
import { isSeam, type Ring, runsOf, storageOf, timeOf } from "./ring";

const ring: Ring = {
  capacity: 10,
  certain: true,
  spans: [
    [6, 10],
    [0, 6],
  ],
};
const partial: Ring = { capacity: 10, certain: true, spans: [[0, 4]] };

it("goes from storage to time and back", () => {
  for (let row = 0; row < 10; row++) expect(storageOf(ring, timeOf(ring, row) ?? -1)).toBe(row);
  expect([timeOf(ring, 6), timeOf(ring, 5), timeOf(partial, 7)]).toEqual([0, 9, null]);
});

it("finds the seam and no other break", () => {
  expect(Array.from({ length: 10 }, (_, row) => isSeam(ring, row)).indexOf(true)).toBe(6);
  expect(Array.from({ length: 10 }, (_, row) => isSeam(partial, row)).includes(true)).toBe(false);
});

it("cuts a range of time into runs of storage", () => {
  expect(runsOf(ring, 2, 6)).toEqual([
    [8, 10],
    [0, 2],
  ]);
  expect(runsOf(ring, 0, 4)).toEqual([[6, 10]]);
});
