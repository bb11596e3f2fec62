/**
 * This module knows how lines, bars and heat maps are put on a canvas with their axes.
 * It does not know where the numbers come from.
 */
import { position, type Scale, scaleOf, ticks, tickText } from "./axes";
import { lineColour } from "./colours";

export type Surface = {
  readonly context: CanvasRenderingContext2D;
  readonly width: number;
  readonly height: number;
  /** Colours of the theme: labels, axis lines, selection. */
  readonly text: string;
  readonly line: string;
  readonly accent: string;
  readonly font: string;
};

export type Area = { readonly left: number; readonly top: number; readonly width: number; readonly height: number };

/** Least and greatest value of bin `i`, which starts at row `starts[i]`; equal where `band` is false. */
export type Line = {
  readonly label: string;
  readonly low: Float64Array;
  readonly high: Float64Array;
  readonly starts: readonly number[];
  readonly band: boolean;
};

export type Bars = { readonly edges: readonly number[]; readonly counts: readonly number[] };

type Drag = { readonly from: number; readonly to: number } | null;

const LEFT = 64;
const BOTTOM = 26;
const TOP = 10;
const RIGHT = 12;
const LEGEND = 70;

/** Where the picture lies inside the canvas; a heat map leaves room for its colours. */
export function areaOf(width: number, height: number, legend: boolean): Area {
  return {
    left: LEFT,
    top: TOP,
    width: Math.max(1, width - LEFT - RIGHT - (legend ? LEGEND : 0)),
    height: Math.max(1, height - TOP - BOTTOM),
  };
}

export function drawLines(
  surface: Surface,
  lines: readonly Line[],
  rows: readonly [number, number],
  log: boolean,
  drag: Drag,
  seam: number | null,
): void {
  const { context } = surface;
  const area = areaOf(surface.width, surface.height, false);
  let [low, high] = [Infinity, -Infinity];
  for (const line of lines) {
    for (const x of line.low) if (x < low) low = x;
    for (const x of line.high) if (x > high) high = x;
  }
  const down = scaleOf(low, high, log);
  const across: Scale = { low: rows[0], high: Math.max(rows[0] + 1, rows[1] - 1), log: false };
  drawAxes(surface, area, across, down, true);
  context.save();
  context.beginPath();
  context.rect(area.left, area.top, area.width, area.height);
  context.clip();
  if (seam !== null) drawSeam(surface, area, across, seam);
  for (const [i, line] of lines.entries()) drawLine(context, area, line, across, down, lineColour(i));
  if (drag) {
    context.fillStyle = surface.accent;
    context.globalAlpha = 0.18;
    context.fillRect(area.left + drag.from * area.width, area.top, (drag.to - drag.from) * area.width, area.height);
  }
  context.restore();
}

function drawSeam(surface: Surface, area: Area, across: Scale, seam: number): void {
  const { context } = surface;
  const x = area.left + position(seam - 0.5, across) * area.width;
  context.strokeStyle = surface.accent;
  context.setLineDash([4, 3]);
  context.beginPath();
  context.moveTo(x, area.top);
  context.lineTo(x, area.top + area.height);
  context.stroke();
  context.setLineDash([]);
}

function drawLine(
  context: CanvasRenderingContext2D,
  area: Area,
  line: Line,
  across: Scale,
  down: Scale,
  colour: string,
): void {
  const x = (bin: number) => area.left + position(line.starts[bin] ?? 0, across) * area.width;
  const y = (value: number) => area.top + (1 - position(value, down)) * area.height;
  context.strokeStyle = colour;
  context.fillStyle = colour;
  context.lineWidth = 1.25;
  context.lineJoin = "round";
  context.beginPath();
  let open = false;
  const count = line.low.length;
  for (let bin = 0; bin < count; bin++) {
    const [low, high] = [line.low[bin] ?? NaN, line.high[bin] ?? NaN];
    if (Number.isNaN(low)) {
      open = false; // a gap where there is no number
      continue;
    }
    if (open) context.lineTo(x(bin), y(low));
    else context.moveTo(x(bin), y(low));
    if (high !== low) context.lineTo(x(bin), y(high));
    open = true;
  }
  context.stroke();
  if (count > 80) return;
  for (let bin = 0; bin < count; bin++) {
    const value = line.low[bin] ?? NaN;
    if (Number.isNaN(value)) continue;
    context.beginPath();
    context.arc(x(bin), y(value), 2, 0, 2 * Math.PI);
    context.fill();
  }
}

export function drawBars(surface: Surface, bars: Bars, log: boolean): void {
  const { context } = surface;
  const area = areaOf(surface.width, surface.height, false);
  const first = bars.edges[0] ?? 0;
  const across: Scale = { low: first, high: bars.edges.at(-1) ?? first + 1, log: false };
  const down: Scale = { low: 0, high: Math.max(1, ...bars.counts) * 1.05, log };
  drawAxes(surface, area, across, down, false);
  context.fillStyle = lineColour(0);
  bars.counts.forEach((count, i) => {
    const left = area.left + position(bars.edges[i] ?? 0, across) * area.width;
    const right = area.left + position(bars.edges[i + 1] ?? 0, across) * area.width;
    const tall = count ? Math.max(1, position(count, down) * area.height) : 0;
    context.fillRect(left, area.top + area.height - tall, Math.max(1, right - left - 1), tall);
  });
}

export type Heat = {
  readonly rows: readonly [number, number];
  readonly cols: readonly [number, number];
  readonly height: number;
  readonly width: number;
  readonly low: number;
  readonly high: number;
};

export function drawHeat(
  surface: Surface,
  pixels: Uint8ClampedArray<ArrayBuffer>,
  heat: Heat,
  map: Uint8ClampedArray,
  drag: Drag,
): void {
  const { context } = surface;
  const area = areaOf(surface.width, surface.height, true);
  context.imageSmoothingEnabled = false;
  if (heat.width && heat.height)
    context.drawImage(picture(pixels, heat.width, heat.height), area.left, area.top, area.width, area.height);
  const across: Scale = { low: heat.cols[0] - 0.5, high: heat.cols[1] - 0.5, log: false };
  const down: Scale = { low: heat.rows[1] - 0.5, high: heat.rows[0] - 0.5, log: false };
  drawLabels(surface, area, across, { low: down.high, high: down.low, log: false }, true, true);
  const bar = new Uint8ClampedArray(1024);
  for (let i = 0; i < 256; i++) bar.set(map.subarray(4 * (255 - i), 4 * (255 - i) + 4), 4 * i);
  const left = area.left + area.width + 12;
  context.drawImage(picture(bar, 1, 256), left, area.top, 12, area.height);
  context.fillStyle = surface.text;
  context.textAlign = "left";
  context.textBaseline = "top";
  context.fillText(tickText(Number(heat.high.toPrecision(4))), left + 16, area.top);
  context.textBaseline = "bottom";
  context.fillText(tickText(Number(heat.low.toPrecision(4))), left + 16, area.top + area.height);
  if (!drag) return;
  context.fillStyle = surface.accent;
  context.globalAlpha = 0.3;
  context.fillRect(area.left, area.top + drag.from * area.height, area.width, (drag.to - drag.from) * area.height);
  context.globalAlpha = 1;
}

/** Pixels as something that can be drawn at any size. */
export function picture(pixels: Uint8ClampedArray<ArrayBuffer>, width: number, height: number): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  canvas.getContext("2d")?.putImageData(new ImageData(pixels, width, height), 0, 0);
  return canvas;
}

function drawAxes(surface: Surface, area: Area, across: Scale, down: Scale, whole: boolean): void {
  const { context } = surface;
  context.strokeStyle = surface.line;
  context.lineWidth = 1;
  context.beginPath();
  for (const tick of ticks(down, Math.max(2, area.height / 60))) {
    const y = Math.round(area.top + (1 - position(tick, down)) * area.height) + 0.5;
    context.moveTo(area.left, y);
    context.lineTo(area.left + area.width, y);
  }
  context.stroke();
  drawLabels(surface, area, across, down, whole, false);
}

function drawLabels(
  surface: Surface,
  area: Area,
  across: Scale,
  down: Scale,
  whole: boolean,
  downwards: boolean,
): void {
  const { context } = surface;
  context.fillStyle = surface.text;
  context.font = surface.font;
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const tick of ticks(across, Math.max(2, area.width / 90), whole)) {
    const text = tickText(tick);
    const furthest = surface.width - context.measureText(text).width / 2;
    const place = area.left + position(tick, across) * area.width;
    context.fillText(text, Math.min(place, furthest), area.top + area.height + 7);
  }
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const tick of ticks(down, Math.max(2, area.height / 60), downwards)) {
    const place = position(tick, down);
    context.fillText(tickText(tick), area.left - 8, area.top + (downwards ? place : 1 - place) * area.height);
  }
}
