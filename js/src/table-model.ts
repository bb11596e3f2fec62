/**
 * This module knows what the kernel says of a table: its columns, rows and order, and which elements a rectangle of it is.
 * It does not know how cells are fetched or drawn.
 */
import type { Rect } from "./blocks";
import type { Selection } from "./context";
import { axisName, type Mapping } from "./dims";
import { columnWidth, type Format } from "./formats";
import type { Path } from "./protocol";
import { type Ring, runsOf, type Span, storageOf, timeOf } from "./ring";
import { ColumnLayout } from "./scrolling";
import { dtypeText, pyNode, pyString, shapeText } from "./text";

/** One leaf's columns in the table of a level. */
export type LevelColumn = {
  readonly key: Path;
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly count: number;
  readonly folded: boolean;
  readonly problem: string;
};

/** The answer to `table.page` with `describe`. */
export type TableInfo = Mapping & {
  readonly rows: number;
  readonly cols: number;
  readonly order: "storage" | "time";
  readonly ring: Ring | null;
  readonly columns: readonly LevelColumn[];
  /** Leaves that the table leaves out because there are too many. */
  readonly hidden: number;
  readonly batch: readonly number[];
};

/** What one edit changes: a box of one leaf, and where its elements stand in the rectangle. */
export type EditBox = {
  readonly path: Path;
  readonly index: readonly Span[];
  readonly cells: readonly (readonly [number, number])[];
};

export class TableModel {
  /** First column of each entry of `info.columns`. */
  private readonly starts: readonly number[];

  constructor(
    readonly selection: Selection,
    readonly info: TableInfo,
  ) {
    let start = 0;
    this.starts = info.columns.map((column) => {
      start += column.count;
      return start - column.count;
    });
  }

  get isLevel(): boolean {
    return this.selection.dtype === null;
  }

  layout(format: Format): ColumnLayout {
    if (!this.isLevel) {
      const name = this.header(0).text;
      const width = Math.max(columnWidth(this.dtype(0), format), this.info.cols === 1 ? titleWidth(name) : 0);
      return new ColumnLayout([{ start: 0, count: this.info.cols, width }]);
    }
    return new ColumnLayout(
      this.info.columns.map((column, i) => {
        const start = this.starts[i] ?? 0;
        const needed = column.folded ? titleWidth(foldedText(column)) : columnWidth(dtypeText(column.dtype), format);
        return { start, count: column.count, width: Math.max(needed, titleWidth(this.header(start).text)) };
      }),
    );
  }

  /** The entry of `info.columns` that a column belongs to, and the element of it. */
  column(col: number): readonly [LevelColumn, number] | null {
    let low = 0;
    let high = this.starts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((this.starts[middle] ?? 0) <= col) low = middle;
      else high = middle - 1;
    }
    const column = this.info.columns[low];
    return column ? [column, col - (this.starts[low] ?? 0)] : null;
  }

  dtype(col: number): string {
    return dtypeText((this.isLevel ? this.column(col)?.[0].dtype : this.selection.dtype) ?? "");
  }

  header(col: number): { text: string; title: string } {
    const { path, shape } = this.selection;
    if (this.isLevel) {
      const found = this.column(col);
      if (!found) return { text: "", title: "" };
      const [column, element] = found;
      const place = column.count > 1 ? `[${unravel(element, column.shape).join(", ")}]` : "";
      const text = column.key.join(".") + place;
      return { text, title: column.problem || `${text}  ${dtypeText(column.dtype)} ${shapeText(column.shape)}` };
    }
    const name = path.join(".") || "value";
    const { colAxis } = this.info;
    if (colAxis === null || shape?.[colAxis] === 1) return { text: name, title: name };
    return { text: String(col), title: `${name}, ${axisName(this.selection, colAxis)} = ${col}` };
  }

  /** Storage row of a table row. */
  storage(row: number): number {
    const { ring, order } = this.info;
    if (!ring || order === "storage") return row;
    const inner = this.inner;
    return storageOf(ring, Math.floor(row / inner)) * inner + (row % inner);
  }

  /** Table row of an index of axis 0, null where the order leaves it out. */
  tableRow(storage: number): number | null {
    const { ring, order, rows } = this.info;
    const row = ring && order === "time" ? timeOf(ring, storage) : storage;
    return row === null || row * this.inner >= rows ? null : row * this.inner;
  }

  /** Position in time of a table row; null without a ring and for an unwritten row. */
  time(row: number): number | null {
    const { ring, order } = this.info;
    if (!ring) return null;
    const place = Math.floor(row / this.inner);
    return order === "time" ? place : timeOf(ring, place);
  }

  /** Table rows that share an index of axis 0. */
  get inner(): number {
    return this.isLevel
      ? Math.max(
          1,
          this.info.batch.slice(1).reduce((a, b) => a * b, 1),
        )
      : 1;
  }

  /** Titles of the row header's columns, and the widest text in each. */
  headers(): { title: string; chars: number }[] {
    const { rowAxis, batch, ring, rows } = this.info;
    const axis = this.isLevel ? 0 : rowAxis;
    const widest =
      this.isLevel && batch.length > 1
        ? batch.map((size) => String(size - 1)).join(", ")
        : String(Math.max(0, rows - 1, (ring?.capacity ?? 0) - 1));
    const named = this.isLevel && batch.length > 1 ? batch.map((_, i) => axisName(this.selection, i)).join(", ") : null;
    const title =
      axis === null ? "" : axis === 0 ? (named ?? this.selection.names?.[0] ?? "row") : axisName(this.selection, axis);
    const chars = Math.max(3, title.length, widest.length);
    return [{ title, chars }, ...(ring ? [{ title: "t", chars: Math.max(2, String(ring.capacity).length) }] : [])];
  }

  rowHeader(row: number): string[] {
    const { batch, rowAxis, ring } = this.info;
    const storage = this.storage(row);
    const place = this.isLevel && batch.length > 1 ? unravel(storage, batch).join(", ") : String(storage);
    const label = !this.isLevel && rowAxis === null ? "" : this.isLevel && !batch.length ? "" : place;
    return ring ? [label, String(this.time(row) ?? "")] : [label];
  }

  /** The edits that change a rectangle: one per leaf and run of storage rows. */
  boxes(rect: Rect): EditBox[] {
    const runs = this.runs(rect[0], rect[1]);
    let first = 0;
    return runs.flatMap(([start, stop]) => {
      const top = first;
      first += stop - start;
      return this.isLevel ? this.levelBoxes(rect, start, stop, top) : [this.leafBox(rect, start, stop, top)];
    });
  }

  /** Python that gives the numbers of a rectangle. */
  code(location: string, rect: Rect): string {
    const { path } = this.selection;
    const runs = this.runs(rect[0], rect[1]);
    if (this.isLevel) {
      const keys: string[] = [];
      for (let col = rect[2]; col < rect[3]; col++) {
        const key = this.column(col)?.[0].key.map(pyString) ?? [];
        const text = key.length === 1 ? (key[0] ?? "") : `(${key.join(", ")})`;
        if (keys.at(-1) !== text) keys.push(text);
      }
      const only = keys.length < this.info.columns.length ? `, keys=[${keys.join(", ")}]` : "";
      const parts = runs.map(
        ([start, stop]) =>
          `frame(rows=slice(${Math.floor(start / this.inner)}, ${Math.ceil(stop / this.inner)})${only})`,
      );
      return python(pyNode(location, path), "level", this.info.batch.length ? parts : ["frame()"], "pandas", "pd");
    }
    const parts = runs.map(
      ([start, stop]) => `numpy(${indexText(this.leafBox(rect, start, stop, 0).index, this.selection.shape ?? [])})`,
    );
    return python(pyNode(location, path), "leaf", parts, "numpy", "np");
  }

  private runs(start: number, stop: number): Span[] {
    const { ring, order } = this.info;
    if (!ring || order === "storage") return [[start, stop]];
    const { inner } = this;
    if (inner === 1) return runsOf(ring, start, stop);
    const spans = ring.spans.map(([low, high]) => [low * inner, high * inner] as const);
    return runsOf({ ...ring, spans }, start, stop);
  }

  private leafBox(rect: Rect, start: number, stop: number, top: number): EditBox {
    const { rowAxis, colAxis, index } = this.info;
    const box = index.map((place, axis): Span => {
      if (axis === rowAxis) return [start, stop];
      return axis === colAxis ? [rect[2], rect[3]] : [place, place + 1];
    });
    const [tall, wide] = [stop - start, rect[3] - rect[2]];
    const across = rowAxis !== null && colAxis !== null && rowAxis > colAxis; // values go in the order of the axes
    return {
      path: this.selection.path,
      index: box,
      get cells() {
        return Array.from({ length: tall * wide }, (_, i) =>
          across
            ? ([top + (i % tall), Math.floor(i / tall)] as const)
            : ([top + Math.floor(i / wide), i % wide] as const),
        );
      },
    };
  }

  private levelBoxes(rect: Rect, start: number, stop: number, top: number): EditBox[] {
    const { batch } = this.info;
    const rows =
      batch.length === 1
        ? [[start, stop] as const]
        : Array.from({ length: stop - start }, (_, i) => [start + i, start + i + 1] as const);
    const found: EditBox[] = [];
    for (let col = rect[2]; col < rect[3]; ) {
      const here = this.column(col);
      if (!here) break;
      const [column, element] = here;
      const many = column.shape.length === 1 ? Math.min(rect[3] - col, column.count - element) : 1;
      const inside =
        column.shape.length === 1
          ? [[element, element + many] as const]
          : unravel(element, column.shape).map((i) => [i, i + 1] as const);
      for (const [low, high] of rows) {
        const outside =
          batch.length === 1 ? [[low, high] as const] : unravel(low, batch).map((i) => [i, i + 1] as const);
        const left = col - rect[2];
        found.push({
          path: [...this.selection.path, ...column.key],
          index: [...outside, ...inside],
          get cells() {
            return Array.from(
              { length: (high - low) * many },
              (_, i) => [top + low - start + Math.floor(i / many), left + (i % many)] as const,
            );
          },
        });
      }
      col += many;
    }
    return found;
  }
}

/** What stands in a column whose leaf has too many elements in a row. */
export function foldedText(column: LevelColumn): string {
  return column.problem ? "damaged" : `${dtypeText(column.dtype)} ${shapeText(column.shape)}`;
}

/** Indices of a flat position in C order. */
export function unravel(position: number, sizes: readonly number[]): number[] {
  const found: number[] = [];
  for (const size of [...sizes].reverse()) {
    found.unshift(size ? position % size : 0);
    position = size ? Math.floor(position / size) : 0;
  }
  return found;
}

const titleWidth = (text: string): number => Math.min(200, Math.ceil(text.length * 7.3) + 22);

function indexText(index: readonly Span[], shape: readonly number[]): string {
  const places = index.map(([start, stop], axis) =>
    start === 0 && stop === shape[axis] && stop > 1
      ? "slice(None)"
      : stop === start + 1
        ? String(start)
        : `slice(${start}, ${stop})`,
  );
  while (places.at(-1) === "slice(None)") places.pop();
  return places.length === 1 ? `(${places[0]},)` : places.length ? `(${places.join(", ")})` : "";
}

function python(node: string, name: string, parts: readonly string[], module: string, alias: string): string {
  const lines = ["import tdview", "", `${name} = ${node}`];
  if (parts.length === 1) return [...lines, `${name}.${parts[0]}`].join("\n");
  const join = alias === "np" ? "np.concatenate" : "pd.concat";
  return [
    `import ${module} as ${alias}`,
    ...lines,
    `${join}([${parts.map((part) => `${name}.${part}`).join(", ")}])`,
  ].join("\n");
}
