/**
 * This module knows how millions of rows fit under a scrollbar that browsers limit, and how wide columns lie.
 * It does not know the DOM.
 */

/** Browsers cut elements off above some 17 to 33 million pixels. */
export const CAP = 8_000_000;

/** One axis: `offset` in content pixels, and where the scrollbar stands for it. */
export class AxisScroll {
  /** First visible content pixel. */
  offset = 0;
  private total = 0;
  private view = 0;
  private bar = 0;

  /** Pixels of the element that makes the scrollbar. */
  get space(): number {
    return Math.min(this.total, CAP);
  }

  get max(): number {
    return Math.max(0, this.total - this.view);
  }

  /** Whether a pixel of the scrollbar is more than a pixel of content, so that a wheel has to move the content itself. */
  get scaled(): boolean {
    return this.total > CAP;
  }

  resize(total: number, view: number): void {
    this.total = total;
    this.view = view;
    this.offset = Math.min(this.offset, this.max);
  }

  /** Moves to a content pixel. Returns where the scrollbar has to stand. */
  to(offset: number): number {
    this.offset = Math.min(Math.max(0, offset), this.max);
    this.bar = this.scaled ? (this.offset / this.max) * (this.space - this.view) : this.offset;
    return this.bar;
  }

  /** The scrollbar moved. Returns whether the content did; a bar that stands where `to` put it did not move. */
  fromBar(bar: number): boolean {
    if (Math.abs(bar - this.bar) < 1) return false;
    this.bar = bar;
    const offset = this.scaled ? (bar / Math.max(1, this.space - this.view)) * this.max : bar;
    const moved = offset !== this.offset;
    this.offset = Math.min(Math.max(0, offset), this.max);
    return moved;
  }
}

/** Neighbouring columns of equal width. */
export type ColumnGroup = { readonly start: number; readonly count: number; width: number };

/** Where columns lie. */
export class ColumnLayout {
  constructor(readonly groups: readonly ColumnGroup[]) {}

  get total(): number {
    return this.groups.reduce((sum, group) => sum + group.count * group.width, 0);
  }

  private find(test: (group: ColumnGroup, left: number) => boolean): readonly [ColumnGroup, number] | null {
    let left = 0;
    for (const group of this.groups) {
      if (test(group, left)) return [group, left];
      left += group.count * group.width;
    }
    return null;
  }

  group(col: number): ColumnGroup | null {
    return this.find((group) => col < group.start + group.count)?.[0] ?? null;
  }

  left(col: number): number {
    const found = this.find((group) => col < group.start + group.count);
    return found ? found[1] + (col - found[0].start) * found[0].width : this.total;
  }

  width(col: number): number {
    return this.group(col)?.width ?? 0;
  }

  /** The column at a content pixel; the last one behind the end. */
  at(pixel: number): number {
    const found = this.find((group, left) => pixel < left + group.count * group.width);
    if (found) return found[0].start + Math.max(0, Math.floor((pixel - found[1]) / found[0].width));
    const last = this.groups.at(-1);
    return last ? Math.max(0, last.start + last.count - 1) : 0;
  }
}
