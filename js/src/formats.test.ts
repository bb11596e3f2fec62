import { describe, expect, it } from "vitest";
import { type Cell, cellText, exactNumber, type Format, mark, reader, rounded, type Wire } from "./formats";

const view = (values: ArrayBufferView, offset = 0): DataView => {
  const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  const shifted = new Uint8Array(bytes.length + offset);
  shifted.set(bytes, offset);
  return new DataView(shifted.buffer, offset);
};

describe("reader", () => {
  it.each<[Wire, ArrayBufferView, Cell[]]>([
    ["b1", Uint8Array.of(1, 0), [true, false]],
    ["i1", Int8Array.of(-128, 127), [-128, 127]],
    ["u8", BigUint64Array.of(2n ** 64n - 1n, 0n), [2n ** 64n - 1n, 0n]],
    ["i8", BigInt64Array.of(-(2n ** 63n), 2n ** 53n + 1n), [-(2n ** 63n), 2n ** 53n + 1n]],
    ["f4", Float32Array.of(0.5, Number.NaN), [0.5, Number.NaN]],
    ["f8", Float64Array.of(1e300, -0), [1e300, -0]],
    [
      "c8",
      Float32Array.of(1, 2, 3, 4),
      [
        [1, 2],
        [3, 4],
      ],
    ],
    ["c16", Float64Array.of(1, -2), [[1, -2]]],
  ])("reads %s, aligned or not", (wire, values, expected) => {
    for (const offset of [0, 1, 4]) {
      const read = reader(wire, view(values, offset));
      expect(expected.map((_, i) => read(i))).toEqual(expected);
    }
  });

  it("refuses a wire type that it does not know", () => {
    expect(() => reader("f2" as Wire, new DataView(new ArrayBuffer(2)))).toThrow("f2");
  });
});

describe("cellText", () => {
  it.each<[Cell, string, Format, string]>([
    [true, "bool", "plain", "True"],
    [7, "uint8", "plain", "7"],
    [2n ** 63n - 1n, "int64", "plain", "9223372036854775807"],
    [2n ** 63n - 1n, "int64", "scientific", "9.223372e+18"],
    [7.5, "float32", "plain", "7.5000"],
    [0, "float32", "plain", "0.0000"],
    [Math.fround(0.1), "float32", "exact", "0.1"],
    [0.1, "float64", "exact", "0.1"],
    [3, "float32", "exact", "3.0"],
    [1.5e-7, "float32", "plain", "1.5000e-7"],
    [123456789, "float64", "plain", "1.2346e+8"],
    [0.5, "float64", "scientific", "5.000000e-1"],
    [Number.NaN, "float32", "plain", "NaN"],
    [Number.NEGATIVE_INFINITY, "float32", "scientific", "-Infinity"],
    [[1, -2], "complex64", "exact", "1.0-2.0j"],
    [[0, 2], "complex64", "plain", "0.0000+2.0000j"],
    [0x3f80, "bfloat16", "hex", "0x3f80"],
    [255n, "int64", "hex", "0x00000000000000ff"],
    [1, "int8", "hex", "0x01"],
  ])("writes %s of %s as %s: %s", (cell, dtype, format, expected) => {
    expect(cellText(cell, dtype, format)).toBe(expected);
  });
});

describe("exactNumber", () => {
  it("is the shortest text that reads back, in the precision of the dtype", () => {
    expect(exactNumber(0.10009765625, "bfloat16")).toBe("0.1");
    expect(exactNumber(0.0999755859375, "float16")).toBe("0.1");
    expect(exactNumber(Math.fround(16777217), "float32")).toBe("16777216.0");
    expect(exactNumber(-0, "float32")).toBe("-0.0");
  });

  it("gives whole numbers in full", () => {
    expect(exactNumber(448, "float8_e4m3fn")).toBe("448.0");
    expect(exactNumber(57344, "float8_e5m2")).toBe("57344.0");
    expect(exactNumber(-65504, "float16")).toBe("-65504.0");
    expect(exactNumber(Math.fround(123456789), "float32")).toBe("123456792.0");
    expect(exactNumber(Math.fround(3e38), "float32")).toBe("3e+38");
  });

  it("reads back for many floats", () => {
    let seed = 1;
    for (let i = 0; i < 2000; i++) {
      seed = (seed * 48271) % 2147483647;
      const x = new Float32Array(Int32Array.of(seed).buffer)[0] ?? 0;
      if (Number.isFinite(x)) expect(Math.fround(Number(exactNumber(x, "float32")))).toBe(x);
    }
  });
});

describe("rounded", () => {
  it("rounds to the nearest, ties to even, and keeps subnormals", () => {
    expect(rounded(1 + 2 ** -8, "bfloat16")).toBe(1);
    expect(rounded(1 + 3 * 2 ** -8, "bfloat16")).toBe(1 + 2 ** -6);
    expect(rounded(2 ** -24, "float16")).toBe(2 ** -24);
    expect(rounded(2 ** -26, "float16")).toBe(0);
    expect(rounded(Number.NaN, "float16")).toBeNaN();
  });
});

it("marks what is not finite", () => {
  expect([Number.NaN, 1, Infinity, [0, Number.NaN] as const, 3n, true].map((cell) => mark(cell))).toEqual([
    "nan",
    "",
    "inf",
    "nan",
    "",
    "",
  ]);
});
