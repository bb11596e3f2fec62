/**
 * This module knows the two orders of a replay buffer's rows: as they are stored, and as they were written.
 * It does not know what the rows hold.
 */

export type Span = readonly [number, number];

/** The written rows, oldest first. */
export type Ring = { readonly capacity: number; readonly spans: readonly Span[]; readonly certain: boolean };

/** Position in time of a storage row; null for a row that was not written. */
export function timeOf(ring: Ring, row: number): number | null {
  let before = 0;
  for (const [start, stop] of ring.spans) {
    if (row >= start && row < stop) return before + row - start;
    before += stop - start;
  }
  return null;
}

/** Storage row of a position in time. */
export function storageOf(ring: Ring, time: number): number {
  let before = 0;
  for (const [start, stop] of ring.spans) {
    if (time < before + stop - start) return start + time - before;
    before += stop - start;
  }
  return ring.spans.at(-1)?.[1] ?? 0;
}

/** Whether row `next` of the storage does not follow row `next - 1` in time though both are written: the seam of the ring. */
export function isSeam(ring: Ring, next: number): boolean {
  const before = timeOf(ring, next - 1);
  const after = timeOf(ring, next);
  return before !== null && after !== null && after !== before + 1;
}

/** The rectangle rows `[start, stop)` of a table in time order as runs of storage rows. */
export function runsOf(ring: Ring, start: number, stop: number): Span[] {
  const runs: Span[] = [];
  let before = 0;
  for (const [low, high] of ring.spans) {
    const left = Math.max(start, before);
    const right = Math.min(stop, before + high - low);
    if (left < right) runs.push([low + left - before, low + right - before]);
    before += high - low;
  }
  return runs;
}
