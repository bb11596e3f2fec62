/**
 * This module knows the Frames tab: showing one frame of an image leaf, stepping, scrubbing and playing at a speed.
 * It does not know how frames are stored or fetched ahead (`frame-store`).
 */
import { choice } from "./choice";
import type { Context, Selection, View } from "./context";
import { button, h, setAttribute, setText } from "./dom";
import { downloadCanvas } from "./download";
import { FrameStore, rgba } from "./frame-store";
import { samePath } from "./protocol";
import { type Ring, storageOf, timeOf } from "./ring";
import { pyNode } from "./text";
import { isAbort } from "./transport";

type Layout = "CHW" | "HWC" | "HW";
type FramesReply = {
  total: number;
  height: number;
  width: number;
  channels: number;
  thin: number;
  layout: Layout;
  layouts: readonly Layout[];
  low: number;
  high: number;
  perRow: number;
  order: "storage" | "time";
  ring: Ring | null;
  start: number;
  count: number;
};

const LAYOUT_TEXT: Record<Layout, string> = { CHW: "channels first", HWC: "channels last", HW: "grey planes" };
const AHEAD_BYTES = 4 << 20;
const PAGE_BYTES = 256 << 10;
const MAX_UNDER_WAY = 4;

export function createFrames(ctx: Context): View {
  let selection: Selection | null = null;
  let info: FramesReply | null = null;
  let layout: Layout | null = null;
  let order: "storage" | "time" = "time";
  let frame = 0;
  let playing = false;
  let speed = 30;
  let clock = 0;
  let due = 0;
  let asking = new AbortController();
  let underWay = 0;
  const store = new FrameStore();

  const canvas = h("canvas", { class: "tdv-frame", width: 160, height: 160, role: "img", tabindex: 0 });
  const play = button("Play", toggle, { "aria-pressed": "false" });
  const back = button("‹", () => step(-1), { "aria-label": "Previous frame" });
  const forth = button("›", () => step(1), { "aria-label": "Next frame" });
  const slider = h("input", { type: "range", class: "tdv-scrub", min: 0, max: 0, value: 0, "aria-label": "Frame" });
  const place = h("output", { class: "tdv-place" });
  const speeds = choice(
    "Frames per second",
    ["1", "5", "10", "30", "60"].map((value) => [value, `${value} fps`]),
    (value) => (speed = Number(value)),
  );
  speeds.value = "30";
  const layouts = choice("Layout", [], (value) => {
    layout = value as Layout;
    void open(0);
  });
  const timeOrder = h(
    "button",
    { type: "button", class: "tdv-toggle", "aria-pressed": "true", title: "Frames as they were written, oldest first" },
    "time order",
  );
  timeOrder.addEventListener("click", () => {
    const row = storageRow();
    order = order === "time" ? "storage" : "time";
    void open(0, row);
  });
  const save = button("PNG", () => downloadCanvas(`${selection?.path.join(".") || "frame"}-${frame}.png`, canvas), {
    title: "Save this frame",
  });
  const facts = h("span", { class: "tdv-shown" });
  const failure = h("p", { class: "tdv-empty", role: "status", hidden: true });
  const stage = h("div", { class: "tdv-stage tdv-screen" }, canvas);
  const controls = h("div", { class: "tdv-tools tdv-player" }, play, back, forth, slider, place, speeds);
  const bar = h("div", { class: "tdv-tools" }, facts, timeOrder, h("span", { class: "tdv-fill" }), layouts, save);
  const element = h("div", { class: "tdv-frames" }, bar, failure, stage, controls);

  slider.addEventListener("input", () => go(Number(slider.value)), { signal: ctx.signal });
  element.addEventListener("keydown", onKey, { signal: ctx.signal });
  ctx.rpc.onEvent((event) => {
    if (event.event !== "changed" || !selection || !element.offsetParent) return;
    if (!event.path || samePath(event.path, selection.path)) void open(frame);
  }, ctx.signal);
  ctx.signal.addEventListener("abort", pause, { once: true });

  async function open(start: number, row: number | null = null): Promise<void> {
    if (!selection) return;
    pause();
    asking.abort();
    asking = new AbortController();
    underWay = 0;
    const asked = selection;
    const { path } = selection;
    try {
      const { value, buffers } = await ctx.rpc.request<FramesReply>(
        "frames",
        { path, layout, order, start, count: 24 },
        { signal: AbortSignal.any([ctx.signal, asking.signal]) },
      );
      if (asked !== selection) return;
      store.clear();
      info = value;
      ({ layout, order } = value);
      keep(value, buffers[0]);
      fail("");
      drawBar();
      const time = row !== null && value.ring && value.order === "time" ? timeOf(value.ring, row) : row;
      go(time === null ? value.start : time * value.perRow);
    } catch (reason) {
      if (!isAbort(reason)) fail((reason as Error).message);
    }
  }

  function keep(reply: FramesReply, buffer: DataView | undefined): void {
    if (!buffer) return;
    const size = reply.height * reply.width * reply.channels;
    for (let i = 0; i < reply.count; i++)
      store.put(reply.start + i, new Uint8Array(buffer.buffer, buffer.byteOffset + i * size, size).slice());
  }

  /** Asks for what is missing at and behind the current frame; several answers are under way while it plays. */
  function fill(): void {
    const now = info;
    if (!now || !selection) return;
    const size = Math.max(1, now.height * now.width * now.channels);
    const batch = Math.max(1, Math.floor(PAGE_BYTES / size));
    const reach = Math.max(2, Math.min(120, Math.floor(AHEAD_BYTES / size)));
    while (underWay < MAX_UNDER_WAY) {
      const run = store.next(frame, now.total, playing ? reach : batch + 1, batch);
      if (!run) return;
      underWay++;
      const { signal } = asking;
      ctx.rpc
        .request<FramesReply>(
          "frames",
          { path: selection.path, layout, order, ...run },
          { signal: AbortSignal.any([ctx.signal, signal]) },
        )
        .then(({ value, buffers }) => {
          keep(value, buffers[0]);
          store.drop(run.start, run.count); // fewer may have come than were asked for
          if (!playing && frame >= value.start && frame < value.start + value.count) draw();
        })
        .catch((reason) => {
          store.drop(run.start, run.count);
          if (!isAbort(reason)) fail((reason as Error).message);
        })
        .finally(() => {
          if (signal.aborted) return;
          underWay--;
          if (playing || !store.get(frame)) fill();
        });
    }
  }

  function draw(): boolean {
    const bytes = store.get(frame);
    if (!info || !bytes) return false;
    const { height, width, channels } = info;
    if (canvas.width !== width) canvas.width = width;
    if (canvas.height !== height) canvas.height = height;
    // Small frames are enlarged by whole steps, without smoothing, so that a pixel stays a pixel.
    const room = Math.min((stage.clientWidth || 480) / width, (stage.clientHeight || 360) / height);
    const zoom = room >= 1 ? Math.max(1, Math.floor(room)) : room;
    canvas.style.width = `${width * zoom}px`;
    canvas.style.height = `${height * zoom}px`;
    canvas.getContext?.("2d")?.putImageData(new ImageData(rgba(bytes, channels), width, height), 0, 0);
    slider.value = String(frame);
    const row = Math.floor(frame / info.perRow);
    const plane = info.perRow > 1 ? `, plane ${frame % info.perRow}` : "";
    setText(
      place,
      info.ring
        ? `t ${info.order === "time" ? row : (timeOf(info.ring, row) ?? "–")}, row ${storageRow()}${plane}`
        : `row ${row}${plane}`,
    );
    setAttribute(canvas, "aria-label", `Frame ${frame} of ${info.total}, ${place.textContent}`);
    return true;
  }

  function storageRow(): number {
    const row = Math.floor(frame / Math.max(1, info?.perRow ?? 1));
    return info?.ring && info.order === "time" ? storageOf(info.ring, row) : row;
  }

  function go(next: number): void {
    frame = Math.min(Math.max(0, next), Math.max(0, (info?.total ?? 1) - 1));
    slider.value = String(frame);
    draw();
    fill();
  }

  function step(by: number): void {
    pause();
    go(frame + by);
  }

  function toggle(): void {
    if (playing) {
      pause();
      return;
    }
    if (!info || info.total < 2) return;
    playing = true;
    setText(play, "Pause");
    setAttribute(play, "aria-pressed", "true");
    if (frame >= info.total - 1) go(0);
    due = performance.now();
    fill();
    clock = requestAnimationFrame(tick);
  }

  function pause(): void {
    playing = false;
    cancelAnimationFrame(clock);
    setText(play, "Play");
    setAttribute(play, "aria-pressed", "false");
  }

  /** Shows the frame that is due. A frame that has not come holds the film; it is never skipped. */
  function tick(now: number): void {
    if (!playing || !info) return;
    const wait = 1000 / speed;
    if (now - due >= wait - 2) {
      if (frame >= info.total - 1) {
        pause();
        return;
      }
      frame++;
      if (draw()) due = now - due > 4 * wait ? now : due + wait;
      else frame--;
      fill();
    }
    clock = requestAnimationFrame(tick);
  }

  function drawBar(): void {
    if (!info) return;
    slider.max = String(Math.max(0, info.total - 1));
    for (const part of [play, back, forth, slider]) part.disabled = info.total < 2;
    timeOrder.hidden = !info.ring;
    setAttribute(timeOrder, "aria-pressed", String(info.order === "time"));
    layouts.replaceChildren(...info.layouts.map((name) => h("option", { value: name }, LAYOUT_TEXT[name])));
    layouts.value = info.layout;
    layouts.hidden = info.layouts.length < 2;
    const thin = info.thin > 1 ? `, every ${info.thin}. pixel` : "";
    const scale =
      info.low === 0 && info.high === 255
        ? ""
        : `, ${Number(info.low.toPrecision(4))} … ${Number(info.high.toPrecision(4))} shown black to white`;
    setText(facts, `${info.total.toLocaleString("en")} frames, ${info.width} × ${info.height}${thin}${scale}`);
  }

  function fail(text: string): void {
    failure.hidden = text === "";
    setText(failure, text);
    stage.hidden = controls.hidden = bar.hidden = text !== "";
  }

  function onKey(event: KeyboardEvent): void {
    if (event.target !== canvas) return;
    const steps: Record<string, () => void> = {
      ArrowLeft: () => step(-1),
      ArrowRight: () => step(1),
      PageUp: () => step(-30),
      PageDown: () => step(30),
      Home: () => step(-frame),
      End: () => step(info?.total ?? 0),
      " ": toggle,
    };
    const action = steps[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  }

  return {
    element,
    show(next) {
      const same = !!next && samePath(next.path, selection?.path ?? null);
      selection = next;
      if (!next) return;
      if (!same) {
        layout = null;
        order = "time";
      }
      void open(same && !next.rows ? frame : 0, next.rows?.[0] ?? null);
    },
    hide: pause,
    code: () =>
      selection?.dtype && info
        ? `import tdview\n\nleaf = ${pyNode(ctx.state.head.location, selection.path)}\nleaf.numpy((${storageRow()},))`
        : null,
    destroy: pause,
  };
}
