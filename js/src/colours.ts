/**
 * This module knows colour maps: 256 colours between a few anchors, and the colours of lines.
 * It does not know what is coloured.
 */

const ANCHORS: Record<string, string> = {
  viridis: "440154 482878 3e4a89 31688e 26828e 1f9e89 35b779 6ece58 b5de2b fde725",
  magma: "000004 180f3d 440f76 721f81 9e2f7f cd4071 f1605d fd9668 feca8d fcfdbf",
  grey: "000000 ffffff",
  "cool–warm": "3b4cc0 6f92f3 aac7fd dddddd f7b89c e7745b b40426",
};

export const MAPS = Object.keys(ANCHORS);

/** 256 colours, four bytes each. */
export function colourMap(name: string, inverted = false): Uint8ClampedArray {
  const anchors = (ANCHORS[name] ?? ANCHORS.grey ?? "")
    .split(" ")
    .map((hex) => [0, 2, 4].map((i) => Number.parseInt(hex.slice(i, i + 2), 16)));
  if (inverted) anchors.reverse();
  const table = new Uint8ClampedArray(1024);
  for (let i = 0; i < 256; i++) {
    const place = (i / 255) * (anchors.length - 1);
    const low = Math.min(Math.floor(place), anchors.length - 2);
    for (let part = 0; part < 3; part++) {
      const [a, b] = [anchors[low]?.[part] ?? 0, anchors[low + 1]?.[part] ?? 0];
      table[4 * i + part] = a + (b - a) * (place - low);
    }
    table[4 * i + 3] = 255;
  }
  return table;
}

/** Colours of values between `low` and `high`, RGBA; what is not finite is transparent. */
export function coloured(
  values: Float32Array,
  low: number,
  high: number,
  map: Uint8ClampedArray,
  log: boolean,
): Uint8ClampedArray<ArrayBuffer> {
  const pixels = new Uint8ClampedArray(values.length * 4);
  const scale = log ? symlog : (x: number) => x;
  const [from, to] = [scale(low), scale(high)];
  const factor = to > from ? 255 / (to - from) : 0;
  for (let i = 0; i < values.length; i++) {
    const value = values[i] ?? NaN;
    if (!Number.isFinite(value)) continue;
    const entry = 4 * Math.min(255, Math.max(0, Math.round((scale(value) - from) * factor)));
    for (let part = 0; part < 4; part++) pixels[4 * i + part] = map[entry + part] ?? 0;
  }
  return pixels;
}

/** A logarithm that takes negative numbers and zero too: linear up to 1e-3, logarithmic in size beyond. */
export function symlog(x: number): number {
  return Math.sign(x) * Math.log10(1 + Math.abs(x) * 1e3);
}

export function symexp(y: number): number {
  return (Math.sign(y) * (10 ** Math.abs(y) - 1)) / 1e3;
}

/** Colour of line number `i`, readable on light and dark ground. */
export function lineColour(i: number): string {
  return ["#3b82d6", "#e8871e", "#3fa45b", "#c2479d", "#8b6fd6", "#b08d2f", "#2aa5a5", "#d3524a"][i % 8] ?? "#888";
}
