/**
 * This module knows which rows of a lazily loaded tree are visible, in what order, and what a key press does to them.
 * It does not know the DOM nor how pages are fetched.
 */
import type { FoundRow, Page, Path, Row } from "./protocol";

/** A node that was loaded. `kids` is sparse: pages come in any order. */
export type Item = {
  readonly path: Path;
  readonly level: number;
  readonly index: number;
  readonly parent: Item | null;
  row: Row;
  open: boolean;
  total: number;
  kids: (Item | undefined)[];
  /** Indexes of open kids, ascending: what makes a row findable without walking all siblings. */
  openKids: number[];
  /** Rows visible below this one. */
  visible: number;
};

/** One visible row. `item` is undefined where its page has not come. */
export type Place = { readonly parent: Item | null; readonly index: number; readonly item: Item | undefined };

/** A page that is missing: children `start .. start + count` of `path`. */
export type Missing = { readonly path: Path; readonly start: number; readonly count: number };

/** What a key asks of the tree beyond moving the active row. */
export type Deed = "none" | "moved" | "select" | "open" | "close";

export const PAGE = 200;

/** Whether a row can be opened. */
export const isBranch = (row: Row): boolean => row.children !== null && row.children !== 0;

function makeItem(row: Row, path: Path, index: number, parent: Item | null): Item {
  const level = parent ? parent.level + 1 : 1;
  const total = Math.max(row.children ?? 0, 0);
  return { path, level, index, parent, row, open: false, total, kids: [], openKids: [], visible: 0 };
}

/** Visible rows of a tree with its root as row 0. */
export class FlatTree {
  root: Item;
  /** Visible row that has the keyboard. */
  active = 0;

  constructor(root: Row, page: Page) {
    this.root = makeItem(root, [], 0, null);
    this.setPage(page);
    this.setOpen(this.root, true);
  }

  /** Number of visible rows, loaded or not. */
  get size(): number {
    return 1 + this.root.visible;
  }

  /** The row at visible position `position`. Costs a step per open level on the way. */
  at(position: number): Place {
    if (position <= 0) return { parent: null, index: 0, item: this.root };
    let parent = this.root;
    let rest = position - 1;
    for (;;) {
      let index = rest;
      let inside: Item | undefined;
      for (const k of parent.openKids) {
        if (k >= index) break;
        const kid = parent.kids[k] as Item;
        if (index <= k + kid.visible) {
          inside = kid;
          rest = index - k - 1;
          break;
        }
        index -= kid.visible;
      }
      if (!inside) return { parent, index, item: parent.kids[index] };
      parent = inside;
    }
  }

  /** Visible position of child `index` of `parent`; every level above must be open. */
  positionOf(parent: Item | null, index: number): number {
    if (!parent) return 0;
    let position = this.positionOf(parent.parent, parent.index) + 1 + index;
    for (const k of parent.openKids) {
      if (k >= index) break;
      position += (parent.kids[k] as Item).visible;
    }
    return position;
  }

  /** The loaded item with this nested key. */
  find(path: Path): Item | undefined {
    let item: Item | undefined = this.root;
    for (const key of path) item = item?.kids.find((kid) => kid?.row.key === key);
    return item;
  }

  /** Takes in a page; the active row stays the same node. False where its parent is not loaded. */
  setPage(page: Page): boolean {
    const parent = this.find(page.path);
    if (!parent) return false;
    if (page.total !== parent.total) {
      const rows = page.total - parent.total;
      const end =
        parent.open && this.#isShown(parent) ? this.positionOf(parent.parent, parent.index) + parent.visible : -1;
      if (parent.open) this.#grow(parent, rows);
      if (end >= 0 && this.active > end) this.active += rows;
      parent.total = page.total;
      parent.row = { ...parent.row, children: page.total };
    }
    page.rows.forEach((row, i) => {
      const index = page.start + i;
      const known = parent.kids[index];
      if (known?.row.key === row.key) {
        known.row = row;
        return;
      }
      if (known) this.setOpen(known, false);
      parent.kids[index] = makeItem(row, [...page.path, row.key], index, parent);
    });
    return true;
  }

  /** Opens or closes a branch; the active row stays the same node, or becomes the branch that swallowed it. */
  setOpen(item: Item, open: boolean): void {
    if (item.open === open || !isBranch(item.row)) return;
    const position = this.#isShown(item) ? this.positionOf(item.parent, item.index) : -1;
    const rows = item.total + item.openKids.reduce((sum, k) => sum + (item.kids[k] as Item).visible, 0);
    item.open = open;
    if (item.parent) {
      const siblings = item.parent.openKids.filter((k) => k !== item.index);
      item.parent.openKids = open ? [...siblings, item.index].sort((a, b) => a - b) : siblings;
    }
    this.#grow(item, open ? rows : -rows);
    if (position < 0 || this.active <= position) return;
    if (open) this.active += rows;
    else this.active = this.active <= position + rows ? position : this.active - rows;
  }

  /** Opens all levels above `path` and makes it active. False where a page on the way is missing. */
  reveal(path: Path): boolean {
    const item = this.find(path);
    if (!item) return false;
    for (let up = item.parent; up; up = up.parent) this.setOpen(up, true);
    this.active = this.positionOf(item.parent, item.index);
    return true;
  }

  /** The pages that the visible rows `first .. last` need and that have not come, whole pages aligned to `PAGE`. */
  missing(first: number, last: number): Missing[] {
    const wanted = new Map<string, Missing>();
    for (let i = Math.max(first, 0); i <= Math.min(last, this.size - 1); i++) {
      const { parent, index, item } = this.at(i);
      if (item || !parent) continue;
      const start = index - (index % PAGE);
      const key = JSON.stringify([parent.path, start]);
      if (!wanted.has(key)) wanted.set(key, { path: parent.path, start, count: Math.min(PAGE, parent.total - start) });
    }
    return [...wanted.values()];
  }

  /** Whether the first page of a branch has come. */
  isLoaded(item: Item): boolean {
    return item.kids[0] !== undefined || item.total === 0;
  }

  /** Applies a key of the tree pattern. `page` is the number of rows of the window. */
  press(key: string, page: number): Deed {
    const { parent, item } = this.at(this.active);
    const branch = item !== undefined && isBranch(item.row);
    switch (key) {
      case "ArrowDown":
        return this.#moveTo(this.active + 1);
      case "ArrowUp":
        return this.#moveTo(this.active - 1);
      case "PageDown":
        return this.#moveTo(this.active + page);
      case "PageUp":
        return this.#moveTo(this.active - page);
      case "Home":
        return this.#moveTo(0);
      case "End":
        return this.#moveTo(this.size - 1);
      case "ArrowRight":
        if (!branch) return "none";
        return item.open ? this.#moveTo(this.active + 1) : "open";
      case "ArrowLeft":
        if (branch && item.open) return "close";
        return parent ? this.#moveTo(this.positionOf(parent.parent, parent.index)) : "none";
      case "Enter":
      case " ":
        return "select";
      default:
        return "none";
    }
  }

  /** Moves to the next loaded row whose key starts with `text`, beginning behind the active row (at it, for more letters). */
  typeAhead(text: string): Deed {
    const wanted = text.toLowerCase();
    const from = text.length > 1 ? 0 : 1;
    for (let i = 0; i < this.size; i++) {
      const position = (this.active + from + i) % this.size;
      if (this.at(position).item?.row.key.toLowerCase().startsWith(wanted)) return this.#moveTo(position);
    }
    return "none";
  }

  /** Loaded siblings of the active row that are closed branches: what the key `*` opens. */
  closedSiblings(): Item[] {
    const { parent } = this.at(this.active);
    return (parent?.kids ?? []).filter((kid): kid is Item => !!kid && !kid.open && isBranch(kid.row));
  }

  #moveTo(position: number): Deed {
    const target = Math.min(Math.max(position, 0), this.size - 1);
    if (target === this.active) return "none";
    this.active = target;
    return "moved";
  }

  #isShown(item: Item): boolean {
    for (let up = item.parent; up; up = up.parent) if (!up.open) return false;
    return true;
  }

  #grow(item: Item, rows: number): void {
    item.visible += rows;
    for (let up = item.parent; up?.open; up = up.parent) up.visible += rows;
  }
}

/** The rows that a filter found, as a flat tree of leaves with breadcrumbs. */
export function foundTree(root: Row, rows: readonly FoundRow[]): FlatTree {
  const flat = new FlatTree(
    { ...root, children: rows.length },
    { path: [], start: 0, total: rows.length, rows: rows.map((row) => ({ ...row, children: null })) },
  );
  flat.root.kids.forEach((kid, i) => {
    const found = rows[i];
    if (kid && found) flat.root.kids[i] = { ...kid, path: found.path, row: { ...found, children: null } };
  });
  return flat;
}
