/**
 * This module knows how elements of every dtype arrive as bytes and are written as text.
 * It does not know where a cell stands.
 */

/** How elements travel: kind and bytes of one element; bfloat16, float8 and float16 come widened to `f4`, exactly. */
export type Wire = "b1" | "i1" | "u1" | "i2" | "u2" | "i4" | "u4" | "i8" | "u8" | "f4" | "f8" | "c8" | "c16";

/** One element. Complex numbers are pairs. */
export type Cell = number | bigint | boolean | readonly [number, number];

export type Format = "plain" | "exact" | "scientific" | "hex";
export const FORMATS: readonly Format[] = ["plain", "exact", "scientific", "hex"];

type Numbers = {
  readonly length: number;
  readonly [index: number]: number | bigint;
};

const ARRAYS: Record<string, new (buffer: ArrayBuffer, offset: number, length: number) => Numbers> = {
  b1: Uint8Array,
  i1: Int8Array,
  u1: Uint8Array,
  i2: Int16Array,
  u2: Uint16Array,
  i4: Int32Array,
  u4: Uint32Array,
  i8: BigInt64Array,
  u8: BigUint64Array,
  f4: Float32Array,
  f8: Float64Array,
  c8: Float32Array,
  c16: Float64Array,
};

/** Reads elements out of a buffer. */
export type Reader = (index: number) => Cell;

/** A reader of the elements in `view`, which is copied only where it is not aligned. */
export function reader(wire: Wire, view: DataView): Reader {
  const make = ARRAYS[wire];
  if (!make) throw new Error(`Elements of type ${wire} are not known to this view.`);
  const size = wire === "c16" ? 8 : wire === "c8" ? 4 : Number(wire.slice(1));
  const aligned = view.byteOffset % size === 0;
  const buffer = (
    aligned ? view.buffer : view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength)
  ) as ArrayBuffer;
  const values = new make(buffer, aligned ? view.byteOffset : 0, Math.floor(view.byteLength / size));
  if (wire[0] === "c") return (i) => [Number(values[2 * i] ?? NaN), Number(values[2 * i + 1] ?? NaN)];
  if (wire === "b1") return (i) => values[i] !== 0;
  return (i) => values[i] ?? NaN;
}

/** Mantissa bits and least exponent of floats below float64. */
const FLOATS: Record<string, readonly [number, number]> = {
  float32: [23, -126],
  float16: [10, -14],
  bfloat16: [7, -126],
  float8_e4m3fn: [3, -6],
  float8_e4m3fnuz: [3, -7],
  float8_e5m2: [2, -14],
  float8_e5m2fnuz: [2, -15],
};

/** The float of a narrow type that is nearest to `x`, ties to even. */
export function rounded(x: number, dtype: string): number {
  const type = FLOATS[dtype];
  if (!type || x === 0 || !Number.isFinite(x)) return x;
  const exponent = Math.max(Math.floor(Math.log2(Math.abs(x))), type[1]);
  const unit = 2 ** (exponent - type[0]);
  const scaled = x / unit;
  const whole = Math.round(scaled);
  return (whole - scaled === 0.5 && whole % 2 !== 0 ? whole - 1 : whole) * unit;
}

/** The shortest decimal that reads back as the same element; a whole number in full, so that 448 is not written 450. */
export function exactNumber(x: number, dtype: string): string {
  if (Number.isNaN(x)) return "NaN";
  if (!Number.isFinite(x)) return x > 0 ? "Infinity" : "-Infinity";
  if (Object.is(x, -0)) return "-0.0";
  if (Number.isInteger(x) && Math.abs(x) < 1e15 && FLOATS[dtype]) return `${x}.0`;
  if (!FLOATS[dtype]) return dtype.includes("float") || dtype.startsWith("complex") ? dotted(String(x)) : String(x);
  for (let digits = 1; digits < 10; digits++) {
    const text = String(Number(x.toPrecision(digits)));
    if (rounded(Number(text), dtype) === x) return dotted(text);
  }
  return dotted(String(x));
}

function dotted(text: string): string {
  return /^-?\d+$/.test(text) ? `${text}.0` : text;
}

function plainNumber(x: number): string {
  const size = Math.abs(x);
  if (!Number.isFinite(x)) return exactNumber(x, "float64");
  return x === 0 || (size >= 1e-3 && size < 1e6) ? x.toFixed(4) : x.toExponential(4);
}

function part(x: number, dtype: string, format: Format): string {
  if (format === "exact" || !Number.isFinite(x)) return exactNumber(x, dtype);
  return format === "scientific" ? x.toExponential(6) : plainNumber(x);
}

/** An element as text. `dtype` is without `"torch."`; in format `"hex"` the cell is the element's bits as an integer. */
export function cellText(cell: Cell, dtype: string, format: Format): string {
  if (typeof cell === "boolean") return cell ? "True" : "False";
  if (typeof cell === "object") {
    const type = dtype === "complex128" ? "complex128" : "float32";
    const [re, im] = [part(cell[0], type, format), part(cell[1], type, format)];
    return `${re}${im.startsWith("-") ? "" : "+"}${im}j`;
  }
  if (format === "hex") return `0x${cell.toString(16).padStart(2 * (HEX_BYTES[dtype] ?? 1), "0")}`;
  if (!dtype.includes("float")) return format === "scientific" ? Number(cell).toExponential(6) : String(cell);
  return part(Number(cell), dtype, format);
}

const HEX_BYTES: Record<string, number> = {
  int16: 2,
  uint16: 2,
  float16: 2,
  bfloat16: 2,
  int32: 4,
  uint32: 4,
  float32: 4,
  qint32: 4,
  int64: 8,
  uint64: 8,
  float64: 8,
};

/** What is not finite: `"nan"`, `"inf"` or nothing. */
export function mark(cell: Cell): "" | "nan" | "inf" {
  const parts = typeof cell === "object" ? cell : [cell];
  if (parts.some((x) => typeof x === "number" && Number.isNaN(x))) return "nan";
  return parts.some((x) => x === Infinity || x === -Infinity) ? "inf" : "";
}

/** Pixels that a column of this dtype needs to begin with; columns grow where their text is longer. */
export function columnWidth(dtype: string, format: Format): number {
  if (dtype === "bool") return 72;
  if (dtype.startsWith("complex")) return format === "plain" ? 168 : 224;
  if (dtype.includes("float")) return format === "plain" || format === "hex" ? 104 : 124;
  return dtype.endsWith("int8") ? 64 : 88;
}

/** Whether elements travel in a wider type than they are stored in. */
export function isWidened(dtype: string): boolean {
  return dtype === "bfloat16" || dtype.startsWith("float8") || dtype === "complex32";
}
