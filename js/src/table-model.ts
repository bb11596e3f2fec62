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
import { dottedText, dtypeText, pyNode, pyString, shapeText } from "./text";

/** One leaf's columns in the table of a level. */
export type LevelColumn = {
  readonly key: Path;
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly count: number;
  readonly folded: boolean;
  readonly problem: string;
};

/** A column that no leaf holds: how old the rows of a replay buffer are, and how they are drawn. */
export type SideColumn = { readonly name: string; readonly title: string };

/** The answer to `table.page` with `describe`. */
export type TableInfo = Mapping & {
  readonly rows: number;
  readonly cols: number;
  /** Side columns that there are, and how many of them the table starts with: all or none. */
  readonly side: readonly SideColumn[];
  readonly lead: number;
  readonly order: "storage" | "time";
  readonly ring: Ring | null;
  readonly columns: readonly LevelColumn[];
  /** Leaves that the table leaves out because there are too many. */
  readonly hidden: number;
  readonly batch: readonly number[];
  /** The level that `columns` stand below; the leaf itself without columns. */
  readonly base: Path;
  /** Keys below the shared level of leaves that can stand beside this one. */
  readonly companions: readonly Path[];
};

/** What one edit changes: a box of one leaf, and where its elements stand in the rectangle. */
export type EditBox = {
  readonly path: Path;
  readonly index: readonly Span[];
  readonly cells: readonly (readonly [number, number])[];
};

export type TableModel = ReturnType<typeof tableModel>;

/** How the table `info` of the node `selection` is read. */
export function tableModel(selection: Selection, info: TableInfo) {
  const { rows, cols, order, ring, columns, batch, rowAxis, colAxis, index, lead } = info;
  const { path, shape } = selection;
  const isLevel = selection.dtype === null || columns.length > 0;
  /** Table rows that share an index of axis 0. */
  const inner = isLevel
    ? Math.max(
        1,
        batch.slice(1).reduce((a, b) => a * b, 1),
      )
    : 1;
  let next = lead;
  /** First column of each entry of `columns`. */
  const starts = columns.map((entry) => {
    next += entry.count;
    return next - entry.count;
  });

  function layout(format: Format): ColumnLayout {
    const before = info.side.slice(0, lead).map(({ name }, start) => ({ start, count: 1, width: titleWidth(name) }));
    if (!isLevel) {
      const count = cols - lead;
      const name = header(lead).text;
      const width = Math.max(columnWidth(dtype(lead), format), count === 1 ? titleWidth(name) : 0);
      return new ColumnLayout([...before, { start: lead, count, width }]);
    }
    return new ColumnLayout([
      ...before,
      ...columns.map((leaf, i) => {
        const start = starts[i] ?? 0;
        const needed = leaf.folded ? titleWidth(foldedText(leaf)) : columnWidth(dtypeText(leaf.dtype), format);
        return { start, count: leaf.count, width: Math.max(needed, titleWidth(header(start).text)) };
      }),
    ]);
  }

  /** The side column that a column is, undefined where it is one of a leaf. */
  function aside(col: number): SideColumn | undefined {
    return col < lead ? info.side[col] : undefined;
  }

  /** The entry of `info.columns` that a column belongs to, and the element of it. */
  function column(col: number): readonly [LevelColumn, number] | null {
    if (col < lead) return null;
    let low = 0;
    let high = starts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((starts[middle] ?? 0) <= col) low = middle;
      else high = middle - 1;
    }
    const leaf = columns[low];
    return leaf ? [leaf, col - (starts[low] ?? 0)] : null;
  }

  function dtype(col: number): string {
    return dtypeText((isLevel ? column(col)?.[0].dtype : selection.dtype) ?? "");
  }

  function header(col: number): { text: string; title: string } {
    const found = aside(col);
    if (found) return { text: found.name, title: found.title };
    if (isLevel) {
      const here = column(col);
      if (!here) return { text: "", title: "" };
      const [leaf, element] = here;
      const place = leaf.count > 1 ? `[${unravel(element, leaf.shape).join(", ")}]` : "";
      const text = dottedText(leaf.key) + place;
      return { text, title: leaf.problem || `${text}  ${foldedText(leaf)}` };
    }
    const name = dottedText(path) || "value";
    if (colAxis === null || shape?.[colAxis] === 1) return { text: name, title: name };
    return { text: String(col - lead), title: `${name}, ${axisName(selection, colAxis)} = ${col - lead}` };
  }

  /** Storage row of a table row. */
  function storage(row: number): number {
    if (!ring || order === "storage") return row;
    return storageOf(ring, Math.floor(row / inner)) * inner + (row % inner);
  }

  /** Table row of an index of axis 0, null where the order leaves it out. */
  function tableRow(storage: number): number | null {
    const row = ring && order === "time" ? timeOf(ring, storage) : storage;
    return row === null || row < 0 || row * inner >= rows ? null : row * inner;
  }

  /** Position in time of a table row; null without a ring and for an unwritten row. */
  function time(row: number): number | null {
    if (!ring) return null;
    const place = Math.floor(row / inner);
    return order === "time" ? place : timeOf(ring, place);
  }

  /** Titles of the row header's columns, and the widest text in each. */
  function headers(): { title: string; chars: number }[] {
    const axis = isLevel ? 0 : rowAxis;
    const widest =
      isLevel && batch.length > 1
        ? batch.map((size) => String(size - 1)).join(", ")
        : String(Math.max(0, rows - 1, (ring?.capacity ?? 0) - 1));
    const named = isLevel && batch.length > 1 ? batch.map((_, i) => axisName(selection, i)).join(", ") : null;
    const title =
      axis === null ? "" : axis === 0 ? (named ?? selection.names?.[0] ?? "row") : axisName(selection, axis);
    const chars = Math.max(3, title.length, widest.length);
    return [{ title, chars }, ...(ring ? [{ title: "t", chars: Math.max(2, String(ring.capacity).length) }] : [])];
  }

  function rowHeader(row: number): string[] {
    const stored = storage(row);
    const place = isLevel && batch.length > 1 ? unravel(stored, batch).join(", ") : String(stored);
    const label = !isLevel && rowAxis === null ? "" : isLevel && !batch.length ? "" : place;
    return ring ? [label, String(time(row) ?? "")] : [label];
  }

  /** The edits that change a rectangle: one per leaf and run of storage rows. Throws where it holds a folded leaf. */
  function boxes(whole: Rect): EditBox[] {
    const rect = behind(whole);
    let first = 0;
    return runs(rect[0], rect[1]).flatMap(([start, stop]) => {
      const top = first;
      first += stop - start;
      return isLevel ? levelBoxes(rect, start, stop, top) : [leafBox(rect, start, stop, top)];
    });
  }

  /** Python that gives the numbers of a rectangle. */
  function code(location: string, whole: Rect): string {
    const rect = behind(whole);
    const spans = runs(rect[0], rect[1]);
    if (selection.nested) return python(pyNode(location, path), "leaf", ["numpy()"], "numpy", "np");
    if (isLevel) {
      const keys: string[] = [];
      for (let col = rect[2]; col < rect[3]; col++) {
        const key = column(col)?.[0].key.map(pyString) ?? [];
        const text = key.length === 1 ? (key[0] ?? "") : `(${key.join(", ")})`;
        if (keys.at(-1) !== text) keys.push(text);
      }
      const only = keys.length < columns.length || selection.dtype ? `, keys=[${keys.join(", ")}]` : "";
      const parts = spans.map(
        ([start, stop]) => `frame(rows=slice(${Math.floor(start / inner)}, ${Math.ceil(stop / inner)})${only})`,
      );
      return python(pyNode(location, info.base), "level", batch.length ? parts : ["frame()"], "pandas", "pd");
    }
    const parts = spans.map(
      ([start, stop]) => `numpy(${indexText(leafBox(rect, start, stop, 0).index, selection.shape ?? [])})`,
    );
    return python(pyNode(location, path), "leaf", parts, "numpy", "np");
  }

  /** A rectangle without its side columns; these alone stand for their rows. */
  function behind([top, bottom, left, right]: Rect): Rect {
    return right > lead ? [top, bottom, Math.max(left, lead), right] : [top, bottom, lead, cols];
  }

  function runs(start: number, stop: number): Span[] {
    if (!ring || order === "storage") return [[start, stop]];
    if (inner === 1) return runsOf(ring, start, stop);
    const spans = ring.spans.map(([low, high]) => [low * inner, high * inner] as const);
    return runsOf({ ...ring, spans }, start, stop);
  }

  function leafBox(rect: Rect, start: number, stop: number, top: number): EditBox {
    const box = index.map((place, axis): Span => {
      if (axis === rowAxis) return [start, stop];
      return axis === colAxis ? [rect[2] - lead, rect[3] - lead] : [place, place + 1];
    });
    const [tall, wide] = [stop - start, rect[3] - rect[2]];
    const across = rowAxis !== null && colAxis !== null && rowAxis > colAxis; // values go in the order of the axes
    return {
      path: selection.path,
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

  function levelBoxes(rect: Rect, start: number, stop: number, top: number): EditBox[] {
    const rows =
      batch.length === 1
        ? [[start, stop] as const]
        : Array.from({ length: stop - start }, (_, i) => [start + i, start + i + 1] as const);
    const found: EditBox[] = [];
    for (let col = rect[2]; col < rect[3]; ) {
      const here = column(col);
      if (!here) break;
      const [leaf, element] = here;
      if (leaf.folded)
        throw new Error(leaf.problem || `${dottedText(leaf.key)}: select this leaf to edit its elements.`);
      const many = leaf.shape.length === 1 ? Math.min(rect[3] - col, leaf.count - element) : 1;
      const inside =
        leaf.shape.length === 1
          ? [[element, element + many] as const]
          : unravel(element, leaf.shape).map((i) => [i, i + 1] as const);
      for (const [low, high] of rows) {
        const outside =
          batch.length === 1 ? [[low, high] as const] : unravel(low, batch).map((i) => [i, i + 1] as const);
        const left = col - rect[2];
        found.push({
          path: [...info.base, ...leaf.key],
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

  return {
    selection,
    info,
    isLevel,
    inner,
    layout,
    aside,
    column,
    dtype,
    header,
    storage,
    tableRow,
    time,
    headers,
    rowHeader,
    boxes,
    code,
  };
}

/** What stands in a column whose leaf has too many elements in a row. */
export function foldedText(column: LevelColumn): string {
  if (column.problem) return "damaged";
  const nested = column.shape.some((size) => size < 0);
  return `${dtypeText(column.dtype)} ${nested ? "nested" : shapeText(column.shape)}`;
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
