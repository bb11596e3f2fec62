/**
 * This module knows the Plot tab: what can be drawn, which piece of it is shown, and how it is zoomed.
 * It does not know how lines or colours are put on the canvas (`drawing`).
 */
import { choice, menu } from "./choice";
import { coloured, colourMap, lineColour, MAPS } from "./colours";
import type { Context, Selection, View } from "./context";
import { createDims, type Mapping } from "./dims";
import { h, setAttribute, setText } from "./dom";
import { downloadCanvas } from "./download";
import { type Area, areaOf, type Bars, drawBars, drawHeat, drawLines, type Line, type Surface } from "./drawing";
import { createExport } from "./export";
import { samePath } from "./protocol";
import { type Ring, storageOf } from "./ring";
import { countText, dtypeText, partText, pyNode } from "./text";
import { isAbort } from "./transport";

type Kind = "lines" | "heat" | "histogram";
type Group = { readonly label: string; readonly start: number; readonly count: number };
type LinesReply = {
  rows: readonly [number, number];
  total: number;
  cols: readonly number[];
  labels: readonly string[];
  available: readonly Group[];
  starts: readonly number[];
  gaps: readonly number[];
  order: "storage" | "time";
  ring: Ring | null;
  mapping: Mapping | null;
};
type HeatReply = {
  rows: readonly [number, number];
  cols: readonly [number, number];
  totalRows: number;
  totalCols: number;
  height: number;
  width: number;
  low: number;
  high: number;
  mapping: Mapping;
};
type StatsReply = {
  leaves: readonly {
    histogram: { edges: number[]; counts: number[] } | null;
    note: string;
    nan: number;
    inf: number;
  }[];
};
type Picture =
  | { kind: "lines"; reply: LinesReply; lines: Line[] }
  | { kind: "heat"; reply: HeatReply; values: Float32Array }
  | { kind: "histogram"; bars: Bars; note: string };

const WHEEL_MS = 120;

export function createPlot(ctx: Context): View {
  let selection: Selection | null = null;
  let kind: Kind = "lines";
  let rows: readonly [number, number] | null = null;
  let cols: readonly number[] | null = null;
  let mapping: Mapping | null = null;
  let log = false;
  let map = MAPS[0] ?? "grey";
  let inverted = false;
  let picture: Picture | null = null;
  let asking: AbortController | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let drag: { from: number; to: number } | null = null;

  const kinds = choice(
    "Kind of plot",
    [
      ["lines", "lines"],
      ["heat", "heat map"],
      ["histogram", "histogram"],
    ],
    (value) => {
      kind = value as Kind;
      rows = null;
      setText(hover, "");
      void ask();
    },
  );
  const maps = choice(
    "Colour map",
    MAPS.map((name) => [name, name]),
    (value) => {
      map = value;
      draw();
    },
  );
  const toggle = (text: string, title: string, flip: () => boolean) => {
    const element = h("button", { type: "button", class: "tdv-toggle", "aria-pressed": "false", title }, text);
    element.addEventListener("click", () => {
      setAttribute(element, "aria-pressed", String(flip()));
      draw();
    });
    return element;
  };
  const logs = toggle("log", "Logarithmic scale (linear around zero)", () => (log = !log));
  const inverts = toggle("invert", "Invert the colours", () => (inverted = !inverted));
  const reset = h("button", { type: "button", class: "tdv-toggle", onclick: () => zoom(null) }, "all rows");
  const files = menu(
    "export",
    "Export the plot",
    [
      ["png", "PNG of this view"],
      ["figure", "PNG by matplotlib"],
    ],
    (value) => void save(value),
  );
  const exporter = createExport(ctx);
  const dims = createDims((next, done) => {
    const same = next.rowAxis === mapping?.rowAxis && next.colAxis === mapping?.colAxis;
    mapping = next;
    if (!same) {
      cols = null;
      rows = null;
    }
    if (done) drawDims();
    void ask();
  });
  let dimsOf = "";
  const series = h("span", { class: "tdv-series", role: "group", "aria-label": "Lines" });
  const note = h("span", { class: "tdv-shown" });
  const canvas = h("canvas", { class: "tdv-canvas", tabindex: 0, role: "img" });
  const hover = h("div", { class: "tdv-cellbar" });
  const element = h(
    "div",
    { class: "tdv-plot" },
    h(
      "div",
      { class: "tdv-tools" },
      note,
      reset,
      dims.element,
      h("span", { class: "tdv-fill" }),
      kinds,
      maps,
      inverts,
      logs,
      files,
    ),
    exporter.element,
    series,
    h("div", { class: "tdv-stage" }, canvas),
    hover,
  );

  const on = <K extends keyof HTMLElementEventMap>(name: K, listener: (event: HTMLElementEventMap[K]) => void) =>
    canvas.addEventListener(name, listener, { signal: ctx.signal, passive: false });
  on("wheel", onWheel);
  on("pointerdown", (event) => {
    const place = along(event);
    if (place === null || event.button !== 0) return;
    canvas.setPointerCapture?.(event.pointerId);
    drag = { from: place, to: place };
  });
  on("pointermove", onMove);
  on("pointerup", () => {
    const range = drag;
    drag = null;
    const shown = extent();
    if (!range || !shown) return;
    const [from, to] = [Math.min(range.from, range.to), Math.max(range.from, range.to)];
    if (to - from > 0.01) zoom([shown[0] + from * (shown[1] - shown[0]), shown[0] + to * (shown[1] - shown[0])]);
    else draw();
  });
  on("pointerleave", () => setText(hover, ""));
  on("dblclick", () => zoom(null));
  on("keydown", onKey);
  if (typeof ResizeObserver !== "undefined") {
    const observer = new ResizeObserver(() => draw());
    observer.observe(canvas);
    ctx.signal.addEventListener("abort", () => observer.disconnect(), { once: true });
  }
  const themes = new MutationObserver(() => setTimeout(draw));
  themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "class"] });
  ctx.signal.addEventListener("abort", () => themes.disconnect(), { once: true });
  ctx.rpc.onEvent((event) => {
    const path = selection?.path;
    if (
      event.event === "changed" &&
      path &&
      (!event.path || path.every((part, i) => part === event.path?.[i])) &&
      element.isConnected &&
      element.offsetParent
    )
      void ask();
  }, ctx.signal);

  async function ask(): Promise<void> {
    if (!selection) return;
    asking?.abort();
    asking = new AbortController();
    const mine = asking;
    const { path } = selection;
    const options = {
      signal: AbortSignal.any([ctx.signal, mine.signal]),
      onProgress: (done: number, total: number) =>
        setText(note, `reading… ${Math.floor((100 * done) / Math.max(1, total))} %`),
    };
    const width = Math.max(200, canvas.clientWidth || 800);
    const view = mapping ? { rowAxis: mapping.rowAxis, colAxis: mapping.colAxis, index: mapping.index } : {};
    try {
      if (kind === "lines") {
        const { value, buffers } = await ctx.rpc.request<LinesReply>(
          "plot.lines",
          { path, view, bins: Math.min(2000, width), ...(rows && { rows }), ...(cols && { cols }) },
          options,
        );
        if (mine !== asking) return;
        picture = {
          kind,
          reply: value,
          lines: value.labels.map((label, i) => lineOf(partText(label), buffers[i], value.starts)),
        };
        cols = value.cols;
        mapping = value.mapping;
      } else if (kind === "heat") {
        const size = { height: Math.max(64, canvas.clientHeight || 400), width };
        const { value, buffers } = await ctx.rpc.request<HeatReply>(
          "plot.heat",
          { path, view, ...size, ...(rows && { rows }) },
          options,
        );
        if (mine !== asking) return;
        picture = { kind, reply: value, values: floats(buffers[0]) };
        mapping = value.mapping;
      } else {
        const { value } = await ctx.rpc.request<StatsReply>("stats", { path, bins: 96 }, options);
        const leaf = value.leaves[0];
        if (mine !== asking) return;
        picture = {
          kind,
          bars: { edges: (leaf?.histogram?.edges ?? []).map(Number), counts: leaf?.histogram?.counts ?? [] },
          note: leaf?.note ?? "",
        };
      }
      draw();
      drawBar();
    } catch (reason) {
      if (mine === asking && !isAbort(reason)) {
        picture = null;
        draw();
        drawBar();
        setText(note, (reason as Error).message);
      }
    }
  }

  function draw(): void {
    const surface = prepare(canvas);
    if (!surface) return;
    if (!picture) return;
    if (picture.kind === "lines") drawLines(surface, picture.lines, picture.reply.rows, log, drag, seam(picture.reply));
    else if (picture.kind === "histogram") drawBars(surface, picture.bars, log);
    else {
      const { reply, values } = picture;
      const pixels = coloured(values, reply.low, reply.high, colourMap(map, inverted), log);
      drawHeat(surface, pixels, reply, colourMap(map, inverted), drag);
    }
  }

  /** Where time jumps back: the place of the ring that was written last, in storage order. */
  function seam(reply: LinesReply): number | null {
    const first = reply.ring?.spans[0]?.[0] ?? 0;
    return reply.order === "storage" && reply.ring && reply.ring.spans.length > 1 ? first : null;
  }

  function drawBar(): void {
    maps.hidden = inverts.hidden = kind !== "heat";
    drawDims();
    reset.hidden = kind === "histogram" || rows === null;
    series.hidden = picture?.kind !== "lines";
    if (!picture) return;
    if (picture.kind === "histogram") {
      setText(note, picture.note);
      setAttribute(canvas, "aria-label", `Histogram, ${picture.note}`);
    } else if (picture.kind === "heat") {
      const { reply } = picture;
      const averaged =
        reply.height < reply.rows[1] - reply.rows[0] || reply.width < reply.cols[1] - reply.cols[0] ? ", averaged" : "";
      setText(note, rowsText(reply.rows, reply.totalRows) + averaged);
      setAttribute(canvas, "aria-label", `Heat map, ${note.textContent}`);
    } else {
      const { reply, lines } = picture;
      const gaps = reply.gaps.reduce((a, b) => a + b, 0);
      const time = reply.order === "time" ? " in time order" : "";
      setText(
        note,
        reply.available.length
          ? `${rowsText(reply.rows, reply.total)}${time}${lines[0]?.band ? ", least and greatest of each pixel" : ""}${gaps && reply.total ? `, ${countText(gaps, "gap")} without numbers` : ""}`
          : "No leaf here can be drawn as lines beside others. Select one of them.",
      );
      setAttribute(canvas, "aria-label", `Lines of ${reply.labels.join(", ")}, ${note.textContent}`);
      drawSeries(reply);
    }
  }

  /** The controls are made anew only for other axes, so that a slider stays under the pointer. */
  function drawDims(): void {
    const axes = JSON.stringify([selection?.path, mapping?.rowAxis, mapping?.colAxis]);
    if (mapping && selection && axes !== dimsOf) dims.show(selection, mapping);
    dimsOf = axes;
    dims.element.hidden = kind === "histogram" || !mapping || (selection?.shape?.length ?? 0) < 3;
  }

  function drawSeries(reply: LinesReply): void {
    const chips = reply.cols.map((col, i) => {
      const chip = h(
        "button",
        {
          type: "button",
          class: "tdv-chip-line",
          title: "Remove this line",
          onclick: () => pick(reply.cols.filter((other) => other !== col)),
        },
        h("i", { style: `background:${lineColour(i)}` }),
        partText(reply.labels[i] ?? ""),
      );
      return chip;
    });
    const rest = reply.available
      .flatMap((group) =>
        Array.from(
          { length: Math.min(group.count, 64) },
          (_, i) =>
            [
              String(group.start + i),
              group.count > 1 ? `${partText(group.label)}[${i}]` : partText(group.label),
            ] as const,
        ),
      )
      .filter(([col]) => !reply.cols.includes(Number(col)));
    const add =
      rest.length && reply.cols.length < 8
        ? [menu("+ line", "Add a line", rest.slice(0, 500), (col) => pick([...reply.cols, Number(col)]))]
        : [];
    series.replaceChildren(...chips, ...add);
  }

  function pick(next: readonly number[]): void {
    cols = next;
    void ask();
  }

  function extent(): readonly [number, number] | null {
    return picture && picture.kind !== "histogram" ? picture.reply.rows : null;
  }

  function total(): number {
    return picture?.kind === "lines" ? picture.reply.total : picture?.kind === "heat" ? picture.reply.totalRows : 0;
  }

  /** Shows rows `next`, all of them for null, and asks for their finer envelope. */
  function zoom(next: readonly [number, number] | null): void {
    if (next) {
      const width = Math.max(2, Math.round(next[1] - next[0]));
      const start = Math.min(Math.max(0, Math.round(next[0])), Math.max(0, total() - width));
      rows = start === 0 && width >= total() ? null : [start, Math.min(total(), start + width)];
    } else rows = null;
    clearTimeout(timer);
    timer = setTimeout(() => void ask(), next ? WHEEL_MS : 0);
  }

  /** Position between 0 and 1 along the axis of rows: across for lines, down for a heat map. */
  function along(event: MouseEvent): number | null {
    if (!picture || picture.kind === "histogram") return null;
    const box = canvas.getBoundingClientRect();
    const area: Area = areaOf(box.width, box.height, picture.kind === "heat");
    const place =
      picture.kind === "heat"
        ? (event.clientY - box.top - area.top) / area.height
        : (event.clientX - box.left - area.left) / area.width;
    return Math.min(1, Math.max(0, place));
  }

  function onWheel(event: WheelEvent): void {
    const place = along(event);
    const shown = rows ?? extent();
    if (place === null || !shown) return;
    event.preventDefault();
    const width = shown[1] - shown[0];
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const step = Math.sign(event.deltaX || event.deltaY) * width * 0.15;
      zoom([shown[0] + step, shown[1] + step]);
      return;
    }
    const factor = event.deltaY > 0 ? 1.4 : 1 / 1.4;
    const middle = shown[0] + place * width;
    zoom([middle - place * width * factor, middle + (1 - place) * width * factor]);
  }

  function onMove(event: PointerEvent): void {
    const place = along(event);
    const shown = extent();
    if (place === null || !shown || !picture) return;
    if (drag) {
      drag.to = place;
      draw();
    }
    if (picture.kind !== "lines") return;
    const { reply, lines } = picture;
    if (!lines.length || !reply.total) return;
    const bin = Math.min(reply.starts.length - 2, Math.floor(place * (reply.starts.length - 1)));
    const row = reply.starts[bin] ?? 0;
    const storage = reply.order === "time" && reply.ring ? `, row ${storageOf(reply.ring, row)}` : "";
    const values = lines.map((line) => {
      const [low, high] = [line.low[bin] ?? NaN, line.high[bin] ?? NaN];
      return `${line.label} ${low === high || Number.isNaN(low) ? number(low) : `${number(low)} … ${number(high)}`}`;
    });
    setText(hover, [`${reply.order === "time" ? "t" : "row"} ${row}${storage}`, ...values].join("  ·  "));
  }

  function onKey(event: KeyboardEvent): void {
    const shown = rows ?? extent();
    if (!shown) return;
    const width = shown[1] - shown[0];
    const steps: Record<string, () => void> = {
      ArrowLeft: () => zoom([shown[0] - width / 4, shown[1] - width / 4]),
      ArrowRight: () => zoom([shown[0] + width / 4, shown[1] + width / 4]),
      "+": () => zoom([shown[0] + width / 4, shown[1] - width / 4]),
      "-": () => zoom([shown[0] - width / 2, shown[1] + width / 2]),
      Home: () => zoom(null),
      "0": () => zoom(null),
    };
    const step = steps[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    step();
  }

  async function save(what: string): Promise<void> {
    const name = selection?.path.join(".") || "plot";
    if (what === "png") return downloadCanvas(`${name}.png`, canvas);
    const kinds = { lines: "line", heat: "heatmap", histogram: "histogram" };
    await exporter.run("plot.figure", { path: selection?.path ?? [], kind: kinds[kind] });
  }

  return {
    element,
    show(next) {
      const same = !!next && samePath(next.path, selection?.path ?? null);
      selection = next;
      if (!next) return;
      if (!same) {
        kind = kindOf(next);
        cols = null;
        rows = null;
        mapping = null;
        picture = null; // of another leaf: it must not be read for this one
        draw();
        drawBar();
        setText(note, "");
        setText(hover, "");
      }
      kinds.value = kind;
      for (const option of kinds.options) option.hidden = next.dtype === null && option.value !== "lines";
      for (const option of files.options) option.hidden = next.dtype === null && option.value === "figure";
      if (next.rows) {
        const air = Math.max(20, next.rows[1] - next.rows[0]);
        rows = [Math.max(0, next.rows[0] - air), next.rows[1] + air];
      }
      void ask();
    },
    hide: () => asking?.abort(),
    code: () => {
      if (!selection?.dtype) return null;
      const kinds = { lines: "line", heat: "heatmap", histogram: "histogram" };
      return `import tdview\n\nleaf = ${pyNode(ctx.state.head.location, selection.path)}\nleaf.plot(kind="${kinds[kind]}")`;
    },
    destroy: () => clearTimeout(timer),
  };
}

/** Lines for few columns, a heat map for many, a histogram where there is only one row. */
function kindOf(selection: Selection): Kind {
  const shape = selection.shape ?? [];
  if (selection.dtype === null) return "lines";
  if ((shape[0] ?? 1) < 2) return "histogram";
  const wide = shape.slice(1).reduce((a, b) => a * b, 1);
  return wide > 8 && dtypeText(selection.dtype) !== "bool" ? "heat" : "lines";
}

/** `rows 0–99 of 1,000`. */
function rowsText([start, stop]: readonly [number, number], total: number): string {
  return start < stop ? `rows ${start}–${stop - 1} of ${total.toLocaleString("en")}` : "no rows";
}

function lineOf(label: string, buffer: DataView | undefined, starts: readonly number[]): Line {
  const values = doubles(buffer);
  const half = values.length / 2;
  const band = starts.some((start, i) => i > 0 && start - (starts[i - 1] ?? 0) > 1);
  return { label, low: values.subarray(0, half), high: values.subarray(half), starts, band };
}

function bytes(buffer: DataView | undefined): ArrayBuffer {
  if (!buffer) return new ArrayBuffer(0);
  return buffer.buffer.slice(buffer.byteOffset, buffer.byteOffset + buffer.byteLength) as ArrayBuffer;
}

const doubles = (buffer: DataView | undefined) => new Float64Array(bytes(buffer));
const floats = (buffer: DataView | undefined) => new Float32Array(bytes(buffer));
const number = (x: number) => (Number.isNaN(x) ? "no number" : String(Number(x.toPrecision(6))));

/** The canvas at the size of its place and the sharpness of the screen, cleared. */
function prepare(canvas: HTMLCanvasElement): Surface | null {
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  const context = canvas.getContext?.("2d");
  if (!context || !width || !height) return null;
  const sharp = globalThis.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * sharp)) canvas.width = Math.round(width * sharp);
  if (canvas.height !== Math.round(height * sharp)) canvas.height = Math.round(height * sharp);
  context.setTransform(sharp, 0, 0, sharp, 0, 0);
  context.clearRect(0, 0, width, height);
  const style = getComputedStyle(canvas);
  return {
    context,
    width,
    height,
    text: style.color,
    line: style.borderTopColor,
    accent: style.outlineColor,
    font: `11px ${style.fontFamily}`,
  };
}
