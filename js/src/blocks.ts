/**
 * This module knows which blocks of a table are loaded, under way or wanted.
 * It does not know how a block is asked for or drawn.
 */
import type { Cell, Reader } from "./formats";

export const BLOCK_ROWS = 128;
export const BLOCK_COLS = 16;

/** Half-open rectangle of cells: `[row, row, col, col]`. */
export type Rect = readonly [number, number, number, number];

/** Neighbouring columns of one dtype inside a block. */
export type Segment = { readonly start: number; readonly cols: number; readonly read: Reader };

export type Block = {
  readonly rows: readonly [number, number];
  readonly segments: readonly Segment[];
  /** Rectangles of storage rows and columns that were edited. */
  readonly edited: readonly Rect[];
  /** The bytes changed since: shown until the new ones are here. */
  stale: boolean;
};

export type Place = { readonly row: number; readonly col: number };

const keyOf = (place: Place): string => `${place.row},${place.col}`;

/** The last blocks that were used, and which ones are under way. */
export class BlockCache {
  private readonly blocks = new Map<string, Block>();
  private readonly waiting = new Map<string, number>();

  constructor(private readonly limit = 400) {}

  get size(): number {
    return this.blocks.size;
  }

  /** The block that holds a cell. */
  at(row: number, col: number): Block | undefined {
    return this.blocks.get(keyOf({ row: Math.floor(row / BLOCK_ROWS), col: Math.floor(col / BLOCK_COLS) }));
  }

  /** One cell; undefined while it is not loaded, null where its column has no numbers. */
  cell(row: number, col: number): Cell | null | undefined {
    const block = this.at(row, col);
    if (!block || row >= block.rows[1]) return undefined;
    const segment = block.segments.find((part) => col >= part.start && col < part.start + part.cols);
    return segment ? segment.read((row - block.rows[0]) * segment.cols + col - segment.start) : null;
  }

  put(place: Place, block: Block): void {
    const key = keyOf(place);
    this.waiting.delete(key);
    this.blocks.delete(key); // the newest goes to the end
    this.blocks.set(key, block);
    for (const old of this.blocks.keys()) {
      if (this.blocks.size <= this.limit) break;
      this.blocks.delete(old);
    }
  }

  /** Blocks of `places` that have to be asked for; they count as under way for request `serial` from now on. */
  take(places: readonly Place[], serial: number): Place[] {
    const missing = places.filter((place) => {
      const key = keyOf(place);
      const block = this.blocks.get(key);
      if (block && !block.stale) {
        this.blocks.delete(key); // used again: the newest
        this.blocks.set(key, block);
        return false;
      }
      return !this.waiting.has(key);
    });
    for (const place of missing) this.waiting.set(keyOf(place), serial);
    return missing;
  }

  /** Whether all of `places` are loaded and fresh. */
  has(places: readonly Place[]): boolean {
    return places.every((place) => this.blocks.get(keyOf(place))?.stale === false);
  }

  /** Forgets that a request is under way, so that its blocks can be asked for again. */
  drop(serial: number): void {
    for (const [key, owner] of this.waiting) if (owner === serial) this.waiting.delete(key);
  }

  /** Requests that none of `places` waits for. */
  unwanted(places: readonly Place[]): number[] {
    const wanted = new Set(places.map((place) => this.waiting.get(keyOf(place))));
    return [...new Set(this.waiting.values())].filter((serial) => !wanted.has(serial));
  }

  /** Marks every block stale: drawn until replaced, and asked for again. */
  expire(): void {
    for (const block of this.blocks.values()) block.stale = true;
    this.waiting.clear();
  }
}

/** Blocks that meet a rectangle, clamped to the table. */
export function blocksIn(rect: Rect, rows: number, cols: number): Place[] {
  const found: Place[] = [];
  const [r0, r1, c0, c1] = [
    Math.max(0, rect[0]),
    Math.min(rows, rect[1]),
    Math.max(0, rect[2]),
    Math.min(cols, rect[3]),
  ];
  if (r0 >= r1 || c0 >= c1) return found;
  for (let row = Math.floor(r0 / BLOCK_ROWS); row * BLOCK_ROWS < r1; row++)
    for (let col = Math.floor(c0 / BLOCK_COLS); col * BLOCK_COLS < c1; col++) found.push({ row, col });
  return found;
}

/** The rectangle that a block covers. */
export function rectOf(place: Place, rows: number, cols: number): Rect {
  return [
    place.row * BLOCK_ROWS,
    Math.min(rows, (place.row + 1) * BLOCK_ROWS),
    place.col * BLOCK_COLS,
    Math.min(cols, (place.col + 1) * BLOCK_COLS),
  ];
}

/** The visible rectangle grown where the user is heading: `pages` of its own size ahead, half a page behind. */
export function ahead(rect: Rect, down: number, right: number, pages = 4): Rect {
  const tall = rect[1] - rect[0];
  const wide = rect[3] - rect[2];
  const behind = Math.ceil(tall / 2);
  return [
    rect[0] - (down < 0 ? pages * tall : behind),
    rect[1] + (down > 0 ? pages * tall : behind),
    rect[2] - (right < 0 ? wide : 0),
    rect[3] + (right > 0 ? wide : 0),
  ];
}
