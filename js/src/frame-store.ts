/**
 * This module knows which frames of an image leaf are at hand, and which to ask for next while it plays.
 * It does not know how they are asked for or drawn.
 */

export type Frame = { readonly bytes: Uint8Array };

/** Frames by number, the oldest forgotten; `budget` bytes in all. */
export class FrameStore {
  private readonly frames = new Map<number, Uint8Array>();
  private readonly asked = new Set<number>();
  private held = 0;

  constructor(private readonly budget = 48 << 20) {}

  get(frame: number): Uint8Array | undefined {
    return this.frames.get(frame);
  }

  put(frame: number, bytes: Uint8Array): void {
    this.asked.delete(frame);
    if (this.frames.has(frame)) return;
    this.frames.set(frame, bytes);
    this.held += bytes.byteLength;
    for (const [old, data] of this.frames) {
      if (this.held <= this.budget || old === frame) break;
      this.frames.delete(old);
      this.held -= data.byteLength;
    }
  }

  clear(): void {
    this.frames.clear();
    this.asked.clear();
    this.held = 0;
  }

  /** Forgets that `count` frames from `start` are under way. */
  drop(start: number, count: number): void {
    for (let frame = start; frame < start + count; frame++) this.asked.delete(frame);
  }

  /**
   * The next run to ask for: the first frame that is missing from `frame` on, within `reach`, and how many behind it are
   * missing too, at most `batch`. Null where nothing is missing. The run counts as under way.
   */
  next(frame: number, total: number, reach: number, batch: number): { start: number; count: number } | null {
    const missing = (place: number) => place < total && !this.frames.has(place) && !this.asked.has(place);
    let start = frame;
    while (start < frame + reach && !missing(start)) start++;
    if (start >= frame + reach || start >= total) return null;
    let count = 1;
    while (count < batch && missing(start + count)) count++;
    for (let place = start; place < start + count; place++) this.asked.add(place);
    return { start, count };
  }
}

/** RGBA of a frame with 1 (grey), 3 or 4 channels. */
export function rgba(bytes: Uint8Array, channels: number): Uint8ClampedArray<ArrayBuffer> {
  const count = Math.floor(bytes.length / channels);
  const pixels = new Uint8ClampedArray(4 * count);
  for (let i = 0; i < count; i++) {
    const from = i * channels;
    pixels[4 * i] = bytes[from] ?? 0;
    pixels[4 * i + 1] = bytes[channels === 1 ? from : from + 1] ?? 0;
    pixels[4 * i + 2] = bytes[channels === 1 ? from : from + 2] ?? 0;
    pixels[4 * i + 3] = channels === 4 ? (bytes[from + 3] ?? 255) : 255;
  }
  return pixels;
}
