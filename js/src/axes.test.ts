import { expect, it } from "vitest";
import { position, scaleOf, ticks, tickText, valueAt } from "./axes";
import { coloured, colourMap, symexp, symlog } from "./colours";
import { mapped } from "./dims";
import { FrameStore, rgba } from "./frame-store";

it("puts round numbers on an axis", () => {
  expect(ticks({ low: 0, high: 256, log: false }, 8)).toEqual([0, 50, 100, 150, 200, 250]);
  expect(ticks({ low: 0, high: 3, log: false }, 10, true)).toEqual([0, 1, 2, 3]);
  expect(ticks({ low: -0.04, high: 1.04, log: false }, 4).map(tickText)).toEqual(["0", "0.5", "1"]);
  expect(ticks({ low: 5, high: 5, log: false }, 4)).toEqual([5]);
});

it("maps values to positions and back, linear and logarithmic", () => {
  for (const log of [false, true]) {
    const scale = { low: -2, high: 1000, log };
    for (const value of [-2, 0, 0.5, 1000]) expect(valueAt(position(value, scale), scale)).toBeCloseTo(value, 6);
  }
  expect(symexp(symlog(-3.5))).toBeCloseTo(-3.5);
});

it("gives a constant and nothing a scale too", () => {
  expect(scaleOf(3, 3, false)).toEqual({ low: 2.7, high: 3.3, log: false });
  expect(scaleOf(Infinity, -Infinity, false)).toEqual({ low: 0, high: 1, log: false });
});

it("colours values, and leaves out what is not finite", () => {
  const map = colourMap("grey");
  expect([...map.subarray(0, 4), ...map.subarray(1020)]).toEqual([0, 0, 0, 255, 255, 255, 255, 255]);
  const pixels = coloured(Float32Array.of(0, 1, Number.NaN), 0, 1, map, false);
  expect([...pixels]).toEqual([0, 0, 0, 255, 255, 255, 255, 255, 0, 0, 0, 0]);
  expect(colourMap("viridis", true)[0]).toBe(0xfd);
});

it("lets an axis change places with the one that stood there", () => {
  const mapping = { rowAxis: 0, colAxis: 2, index: [0, 1, 0] };
  expect(mapped(mapping, 2, "row")).toMatchObject({ rowAxis: 2, colAxis: 0 });
  expect(mapped(mapping, 1, "col")).toMatchObject({ rowAxis: 0, colAxis: 1 });
  expect(mapped(mapping, 0, "index")).toMatchObject({ rowAxis: null, colAxis: 2 });
});

it("asks for frames ahead once, in runs", () => {
  const store = new FrameStore();
  expect(store.next(0, 100, 20, 8)).toEqual({ start: 0, count: 8 });
  expect(store.next(0, 100, 20, 8)).toEqual({ start: 8, count: 8 });
  for (let i = 0; i < 8; i++) store.put(i, new Uint8Array(3));
  store.drop(8, 8);
  expect(store.next(4, 10, 20, 8)).toEqual({ start: 8, count: 2 });
  expect(store.next(4, 8, 20, 8)).toBeNull();
});

it("forgets frames beyond its budget", () => {
  const store = new FrameStore(10);
  for (let i = 0; i < 4; i++) store.put(i, new Uint8Array(4));
  expect([0, 1, 2, 3].map((i) => store.get(i) !== undefined)).toEqual([false, false, true, true]);
});

it("spreads grey, RGB and RGBA over pixels", () => {
  expect([...rgba(Uint8Array.of(7), 1)]).toEqual([7, 7, 7, 255]);
  expect([...rgba(Uint8Array.of(1, 2, 3), 3)]).toEqual([1, 2, 3, 255]);
  expect([...rgba(Uint8Array.of(1, 2, 3, 4), 4)]).toEqual([1, 2, 3, 4]);
});
