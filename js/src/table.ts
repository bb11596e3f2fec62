/**
 * This module knows the Table tab: which pages the grid needs, how it is arranged, and what its cells mean.
 * It does not know how a grid is drawn (`grid`) nor how rows and columns map to a leaf (`table-model`).
 */
import "./grid.css";
import {
  ahead,
  BLOCK_COLS,
  BLOCK_ROWS,
  type Block,
  BlockCache,
  blocksIn,
  type Place,
  type Rect,
  rectOf,
  type Segment,
} from "./blocks";
import { choice, menu } from "./choice";
import type { Context, Selection, View } from "./context";
import type { Dims, Mapping } from "./dims";
import { button, h, setAttribute, setText } from "./dom";
import type { Export } from "./export";
import { type Cell, cellText, FORMATS, type Format, isWidened, mark, reader, type Wire } from "./formats";
import { createGrid, type Drawn, type GridSource } from "./grid";
import type { Panels } from "./lazy";
import { type Path, samePath } from "./protocol";
import { fromTsv, isSingle, type Range, rectOfRange, toTsv } from "./ranges";
import { isSeam } from "./ring";
import { foldedText, type TableInfo, type TableModel, tableModel } from "./table-model";
import { dottedText } from "./text";
import { explain } from "./transport";

type WirePage = {
  rows: readonly [number, number];
  cols: readonly [number, number];
  segments: readonly { start: number; cols: number; wire: Wire }[];
  edited: readonly Rect[];
};
type PageReply = { table?: TableInfo; at?: number | null; pages: readonly WirePage[] };

const MAX_UNDER_WAY = 3;
const MAX_COPY_CELLS = 100_000;
const READ_ONLY = 'The save was opened read-only. Open it with tdview.open(path, mode="r+") to edit cells.';

/** `load` gets the second bundle, which exports and maps the axes of a leaf with more than two. */
export function createTable(ctx: Context, load: () => Promise<Panels>): View {
  let selection: Selection | null = null;
  let model: TableModel | null = null;
  let cache = new BlockCache();
  let format: Format = "plain";
  /** Other leaves that stand beside the selected one, as long as they can. */
  let beside: readonly Path[] = [];
  /** Whether ages and priorities stand in front, where there are any. */
  let side = false;
  let view: Partial<Mapping> & { order?: "storage" | "time" } = {};
  let serial = 0;
  const underWay = new Map<number, AbortController>();
  let opening: AbortController | null = null;
  let telling: ReturnType<typeof setTimeout> | undefined;
  let told = false;

  const grid = createGrid(
    { onView: fetchFor, onRange, onRefused: (why) => ctx.notify(`Not written: ${why}`, "error") },
    ctx.signal,
  );
  const shown = h("span", { class: "tdv-shown" });
  const order = toggle("time order", "Rows as they were written, oldest first", flip);
  const sides = toggle("", "", () => {
    side = !model?.info.lead;
    void open(true, null);
  });
  const goto = h("input", {
    class: "tdv-goto",
    type: "text",
    inputmode: "numeric",
    placeholder: "go to row",
    "aria-label": "Go to row",
  });
  const formats = choice(
    "Number format",
    FORMATS.map((name) => [name, name]),
    (name) => reformat(name as Format),
  );
  const files = menu(
    "export",
    "Export the table or the selected range",
    [
      ["csv", "CSV"],
      ["npy", "NPY"],
      ["parquet", "Parquet"],
    ],
    (kind) => void save(kind),
  );
  const others = h("span", { class: "tdv-axis" });
  const bar = h(
    "div",
    { class: "tdv-tools" },
    order,
    sides,
    goto,
    others,
    h("span", { class: "tdv-axis tdv-end" }, formats, files),
  );
  const saving = h("div", {});
  let exporter: Export | null = null;
  let dims: Dims | null = null;
  const place = h("span", { class: "tdv-cell-text" });
  // Down here and not among the controls: it is as long as the numbers of rows are.
  const status = h("div", { class: "tdv-cellbar" }, place, shown);
  const failure = h("p", { class: "tdv-empty tdv-error", role: "alert", hidden: true });
  const element = h("div", { class: "tdv-table" }, bar, saving, failure, grid.element, status);

  goto.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Enter") jump();
  });
  ctx.rpc.onEvent((event) => {
    if (event.event !== "changed" || !selection) return;
    const { path } = event;
    if (path && !(model?.info.base ?? selection.path).every((part, i) => part === path[i])) return;
    cache.expire();
    grid.draw();
  }, ctx.signal);

  async function open(keep: boolean, at: number | null): Promise<void> {
    if (!selection) return;
    const asked = selection;
    opening?.abort();
    opening = new AbortController();
    const first: Rect[] = keep
      ? blocksIn(grid.visible, Infinity, Infinity).map((block) => rectOf(block, Infinity, Infinity))
      : [];
    const blocks = first.length
      ? first
      : [0, 1].map((i) => [0, BLOCK_ROWS, i * BLOCK_COLS, (i + 1) * BLOCK_COLS] as const);
    try {
      const { value, buffers } = await ctx.rpc.request<PageReply>(
        "table.page",
        {
          path: asked.path,
          view: { ...view, with: beside, side },
          describe: true,
          raw: format === "hex",
          blocks,
          ...(at === null ? {} : { at }),
        },
        { signal: opening.signal },
      );
      if (asked !== selection || !value.table) return;
      forget();
      model = tableModel(asked, value.table);
      store(value.pages, buffers);
      fail("");
      drawBar();
      grid.setSource(source(model), keep);
      if (typeof value.at === "number") grid.go(value.at, value.table.lead, true);
      else if (at !== null) ctx.notify(`Row ${at} was not written; it shows in storage order.`, "warning");
    } catch (reason) {
      explain(reason, fail);
    }
  }

  function forget(): void {
    for (const controller of underWay.values()) controller.abort();
    underWay.clear();
    cache = new BlockCache();
  }

  function store(pages: readonly WirePage[], buffers: readonly DataView[]): void {
    let next = 0;
    for (const page of pages) {
      const segments: Segment[] = page.segments.map(({ start, cols, wire }) => {
        const buffer = buffers[next++] ?? new DataView(new ArrayBuffer(0));
        return { start, cols, read: reader(wire, buffer) };
      });
      if (page.rows[0] >= page.rows[1] || page.cols[0] >= page.cols[1]) continue;
      const block: Block = { rows: page.rows, segments, edited: page.edited, stale: false };
      cache.put({ row: Math.floor(page.rows[0] / BLOCK_ROWS), col: Math.floor(page.cols[0] / BLOCK_COLS) }, block);
    }
  }

  function fetchFor(rect: Rect, down: number, right: number): void {
    if (!model) return;
    drawShown(rect);
    drawPlace(grid.selection);
    const { rows, cols } = model.info;
    const near = blocksIn(rect, rows, cols);
    const wanted = blocksIn(ahead(rect, down, right), rows, cols);
    for (const old of cache.unwanted(wanted)) {
      underWay.get(old)?.abort();
      underWay.delete(old);
      cache.drop(old);
    }
    if (underWay.size >= MAX_UNDER_WAY) return; // the next answer draws, and so asks again
    const missing = cache.take(
      [...near, ...wanted.filter((block) => !near.some((one) => one.row === block.row && one.col === block.col))],
      ++serial,
    );
    if (missing.length) void fetchBlocks(model, missing.slice(0, 48), missing.slice(48), serial);
  }

  async function fetchBlocks(
    asked: TableModel,
    places: readonly Place[],
    later: readonly Place[],
    mine: number,
  ): Promise<void> {
    const controller = new AbortController();
    underWay.set(mine, controller);
    const { rows, cols } = asked.info;
    try {
      const { value, buffers } = await ctx.rpc.request<PageReply>(
        "table.page",
        {
          path: asked.selection.path,
          view: arrangement(asked),
          raw: format === "hex",
          blocks: places.map((block) => rectOf(block, rows, cols)),
        },
        { signal: controller.signal },
      );
      if (asked !== model) return;
      store(value.pages, buffers);
      // Rows that the kernel does not have any more are not asked for again and again.
      for (const block of places)
        if (!cache.has([block])) cache.put(block, { rows: [0, 0], segments: [], edited: [], stale: false });
    } catch (reason) {
      explain(reason, fail);
    } finally {
      if (underWay.get(mine) === controller) underWay.delete(mine);
      cache.drop(mine);
      if (asked === model && (later.length || !controller.signal.aborted)) grid.draw();
    }
  }

  const arrangement = ({ info }: TableModel) => ({
    rowAxis: info.rowAxis,
    colAxis: info.colAxis,
    index: info.index,
    order: info.order,
    with: info.columns.length ? beside : [],
    side: info.lead > 0,
  });

  function source(table: TableModel): GridSource {
    return {
      label: `Values of ${dottedText(table.selection.path) || "the save"}`,
      rows: table.info.rows,
      layout: table.layout(format),
      lead: table.info.lead,
      headers: table.headers(),
      header: (col) => table.header(col),
      rowHeader: (row) => table.rowHeader(row),
      rowClass: (row) => rowClass(table, row),
      cell: (row, col) => drawn(table, row, col),
      editText: (row, col) => editText(table, row, col),
      commit: (rect, text) => send(table, rect, text),
      copy: (rect) => void copy(table, rect),
      paste: (row, col, text) => void paste(table, row, col, text),
    };
  }

  function drawn(table: TableModel, row: number, col: number): Drawn {
    const dtype = table.dtype(col);
    const folded = table.isLevel ? table.column(col)?.[0] : undefined;
    if (folded?.folded) return { text: foldedText(folded), classes: "tdv-folded", title: folded.problem };
    const cell = cache.cell(row, col);
    if (cell === undefined) return { text: null, classes: "" };
    if (cell === null) return { text: "–", classes: "tdv-folded" };
    if (table.aside(col)) return { text: sideText(cell, format === "exact"), classes: "" };
    const special = format === "hex" ? "" : mark(cell);
    const storage = table.storage(row);
    const edited = cache
      .at(row, col)
      ?.edited.some(([r0, r1, c0, c1]) => storage >= r0 && storage < r1 && col >= c0 && col < c1);
    return {
      text: cellText(cell, dtype, format),
      classes: `${special && `tdv-${special}`}${edited ? " tdv-edited" : ""}${cell === false ? " tdv-off" : ""}`,
    };
  }

  function rowClass(table: TableModel, row: number): string {
    const { ring, order: now } = table.info;
    if (!ring) return "";
    const { inner } = table;
    if (now === "time")
      return row % inner === 0 && row > 0 && table.storage(row) !== table.storage(row - inner) + inner
        ? "tdv-wrap"
        : "";
    const unwritten = table.time(row) === null;
    return unwritten ? "tdv-unwritten" : row % inner === 0 && isSeam(ring, row / inner) ? "tdv-seam" : "";
  }

  function editText(table: TableModel, row: number, col: number): string | null {
    const leaf = table.isLevel ? table.column(col)?.[0] : undefined;
    const cell = cache.cell(row, col);
    const why = table.aside(col)
      ? "This column is worked out from the buffer's own files: it is not edited."
      : ctx.state.head.mode === "r"
        ? READ_ONLY
        : leaf?.folded
          ? leaf.problem || "Select this leaf to edit its elements."
          : format === "hex"
            ? "Bits are not edited: choose another number format."
            : (!table.isLevel || selection?.nested) && !selection?.writable
              ? "This leaf cannot be edited in place: it is nested, compressed, a view, or damaged. Info says more."
              : cell === undefined
                ? "This cell is still loading."
                : "";
    if (why) ctx.notify(why, "warning");
    return why || cell === undefined || cell === null ? null : cellText(cell, table.dtype(col), "exact");
  }

  /** Sends the edits of a rectangle, one request unless it spans several leaves or the seam of a ring. */
  async function send(table: TableModel, rect: Rect, text: string | ((row: number, col: number) => string)) {
    const boxes = table.boxes(rect).map((box) => {
      const { path, index } = box;
      // A fill sends one text: the cells of a box are not even counted, there may be a hundred million.
      const values = typeof text === "string" ? text : box.cells.map(([row, col]) => text(row, col));
      return { path, index, values };
    });
    // What one leaf cannot hold is written into none.
    if (boxes.length > 1) await ctx.rpc.request("edit.check", { boxes });
    for (const box of boxes) await ctx.rpc.request("edit", box); // the kernel says what changed
  }

  async function paste(table: TableModel, row: number, col: number, text: string): Promise<void> {
    const cells = fromTsv(text);
    if (editText(table, row, col) === null) return;
    if (!cells) return ctx.notify("The clipboard holds rows of different lengths.", "warning");
    const rows = Math.min(cells.length, table.info.rows - row);
    const cols = Math.min(cells[0]?.length ?? 0, table.info.cols - col);
    const rect: Rect = [row, row + rows, col, col + cols];
    try {
      await send(table, rect, (r, c) => cells[r]?.[c] ?? "");
      grid.select({ row, col, toRow: row + rows - 1, toCol: col + cols - 1 });
      ctx.notify(`Pasted ${rows} × ${cols} cells.`);
    } catch (reason) {
      explain(reason, ctx.notify);
    }
  }

  async function copy(table: TableModel, rect: Rect): Promise<void> {
    if ((rect[1] - rect[0]) * (rect[3] - rect[2]) > MAX_COPY_CELLS) {
      return ctx.notify(`More than ${MAX_COPY_CELLS.toLocaleString("en")} cells: use export instead.`, "warning");
    }
    const missing = cache.take(blocksIn(rect, table.info.rows, table.info.cols), ++serial);
    if (missing.length) await fetchBlocks(table, missing, [], serial);
    const lines: string[][] = [];
    for (let row = rect[0]; row < rect[1]; row++) {
      const line: string[] = [];
      for (let col = rect[2]; col < rect[3]; col++) {
        const cell = cache.cell(row, col);
        line.push(
          cell === undefined || cell === null
            ? ""
            : table.aside(col)
              ? sideText(cell, true)
              : cellText(cell, table.dtype(col), format === "plain" ? "exact" : format),
        );
      }
      lines.push(line);
    }
    ctx.copy(
      toTsv(lines),
      lines.length * (lines[0]?.length ?? 0) === 1 ? "cell" : `${lines.length} × ${lines[0]?.length ?? 0} cells`,
    );
  }

  async function save(kind: string): Promise<void> {
    if (!model) return;
    const [r0, r1, c0, c1] = isSingle(grid.selection)
      ? [0, model.info.rows, 0, model.info.cols]
      : rectOfRange(grid.selection);
    const args = { path: model.selection.path, view: arrangement(model), format: kind, rows: [r0, r1], cols: [c0, c1] };
    try {
      exporter ??= (await load()).createExport(ctx);
      saving.replaceChildren(exporter.element);
      await exporter.run("table.export", args);
    } catch (reason) {
      explain(reason, ctx.notify);
    }
  }

  function remap(mapping: Mapping, done: boolean): void {
    view = { ...view, rowAxis: mapping.rowAxis, colAxis: mapping.colAxis, index: mapping.index };
    if (done && selection) drawDims(selection, mapping);
    void open(true, null);
  }

  function flip(): void {
    if (!model) return;
    const row = Math.floor(model.storage(grid.selection.row) / model.inner);
    view = { ...view, order: model.info.order === "time" ? "storage" : "time" };
    void open(true, row);
  }

  function reformat(next: Format): void {
    const refetch = (next === "hex") !== (format === "hex");
    format = next;
    if (refetch) void open(true, null);
    else if (model) grid.setSource(source(model), true);
  }

  function jump(): void {
    const text = goto.value.trim();
    const row = Number(text.replace(/[\s,_]/g, ""));
    if (!model || !text) return;
    if (!Number.isInteger(row)) ctx.notify(`${text} is no row number.`, "warning");
    else {
      toStorage(row);
      grid.element.focus();
    }
  }

  /** Shows an index of axis 0, whatever the order. */
  function toStorage(row: number): void {
    const found = model?.tableRow(row) ?? null;
    if (found !== null) {
      grid.go(found, grid.selection.col, true);
      return;
    }
    const size = model?.info.ring?.capacity ?? model?.info.rows ?? 0;
    if (row < 0 || row >= size) {
      ctx.notify(`There is no row ${row}: the rows are 0 to ${size - 1}.`, "warning");
      return;
    }
    view = { ...view, order: "storage" }; // an unwritten row has no place in time
    void open(true, row);
  }

  function fail(text: string): void {
    failure.hidden = text === "";
    setText(failure, text);
    grid.element.hidden = bar.hidden = status.hidden = text !== "";
  }

  function drawBar(): void {
    if (!model) return;
    const { ring, order: now, rows } = model.info;
    drawBeside(model.info);
    const names = model.info.side.map(({ name }) => name);
    sides.hidden = !names.length;
    setText(sides, names.length > 2 ? `${names[0]}, ${names[1]}…` : names.join(", "));
    sides.title = `Before the values, what the buffer's own files say of each row: ${names.join(", ")}`;
    setAttribute(sides, "aria-pressed", String(model.info.lead > 0));
    order.hidden = !ring;
    setAttribute(order, "aria-pressed", String(now === "time"));
    goto.hidden = rows < 2;
    drawDims(model.selection, model.info);
  }

  /** The controls of the axes, which come with the second bundle: few leaves have three. */
  function drawDims(leaf: Selection, mapping: Mapping): void {
    if (dims) dims.show(leaf, mapping);
    else if ((leaf.shape ?? []).length > 2 && !leaf.nested)
      load().then(
        (panels) => {
          dims ??= panels.createDims(remap);
          bar.append(dims.element);
          if (model) dims.show(model.selection, model.info);
        },
        (reason) => explain(reason, ctx.notify),
      );
  }

  /** Which leaves stand beside this one, and a menu of those that can. */
  function drawBeside({ companions, columns }: TableInfo): void {
    const isIn = (key: Path) => beside.some((other) => samePath(other, key));
    const set = (keys: readonly Path[]) => {
      beside = keys;
      void open(true, null);
    };
    const text = `with: ${beside.map(dottedText).join(", ")}`;
    const shownOnes =
      columns.length && companions.length
        ? [button(text, () => set([]), { class: "tdv-toggle", title: "Remove these columns" })]
        : [];
    const rest = companions
      .filter((key) => !columns.length || !isIn(key))
      .map((key) => [JSON.stringify(key), dottedText(key)] as const);
    const add = rest.length
      ? [
          menu("+ column", "Show another leaf beside this one", rest, (key) =>
            set([...beside.filter((other) => !samePath(other, JSON.parse(key))), JSON.parse(key)]),
          ),
        ]
      : [];
    others.replaceChildren(...shownOnes, ...add);
  }

  function drawShown(rect: Rect): void {
    if (!model) return;
    const { rows, columns, hidden } = model.info;
    const last = rect[1] < rows ? rect[1] - 2 : rows - 1; // the last row of the rectangle is seen in part
    const [first, final] = [rect[0], Math.max(rect[0], last)].map((row) => model?.rowHeader(row)[0] || "0");
    const range = rows ? (first === final ? first : `${first}–${final}`) : "none";
    const more = hidden ? ` · ${hidden} more leaves not shown` : "";
    const damaged = columns.filter((column) => column.problem).length;
    const faults = damaged ? ` · ${damaged} damaged` : "";
    shown.replaceChildren("rows ", h("b", {}, range), ` of ${rows.toLocaleString("en")}${more}${faults}`);
  }

  /** Tells the kernel what `browser.selection` is, once the selection rests. */
  function tell(range: Range): void {
    clearTimeout(telling);
    telling = setTimeout(() => {
      if (!model || (isSingle(range) && !told)) return;
      told = !isSingle(range);
      const [r0, r1, c0, c1] = rectOfRange(range);
      const what = told ? { view: arrangement(model), rows: [r0, r1], cols: [c0, c1] } : {};
      ctx.rpc.request("selection", { path: model.selection.path, ...what }).catch(() => undefined);
    }, 250);
  }

  function onRange(range: Range): void {
    drawPlace(range);
    tell(range);
  }

  function drawPlace(range: Range): void {
    if (!model) return;
    const { row, col } = range;
    const { lead, rows, cols } = model.info;
    if (!rows || !cols) {
      setText(place, "no elements");
      return;
    }
    const aside = model.aside(col);
    const cell = cache.cell(row, col);
    const dtype = model.dtype(col);
    const parts = [
      `row ${model.rowHeader(row)[0] || 0}`,
      aside || model.isLevel || cols < lead + 2 ? model.header(col).text : `column ${col - lead}`,
    ];
    if (cell !== undefined && cell !== null && (aside || format !== "hex"))
      parts.push(aside ? sideText(cell, true) || "no value" : cellText(cell, dtype, "exact"));
    if (aside) parts.push(aside.title);
    if (!isSingle(range)) {
      const [r0, r1, c0, c1] = rectOfRange(range);
      parts.push(`${(r1 - r0).toLocaleString("en")} × ${(c1 - c0).toLocaleString("en")} cells selected`);
    }
    if (isWidened(dtype)) parts.push(`${dtype}, widened exactly to ${dtype === "complex32" ? "complex64" : "float32"}`);
    setText(place, parts.join("  ·  "));
  }

  return {
    element,
    show(next) {
      const same =
        !!next &&
        !!selection &&
        samePath(next.path, selection.path) &&
        next.dtype === selection.dtype &&
        String(next.shape) === String(selection.shape);
      selection = next;
      if (!next) return;
      const at = next.rows?.[0] ?? null;
      if (!same) view = {};
      if (!same) goto.value = "";
      if (!same) grid.element.classList.add("tdv-opening");
      void open(same, at).finally(() => selection === next && grid.element.classList.remove("tdv-opening"));
    },
    code: () =>
      model && selection
        ? model.code(ctx.state.head.location, isSingle(grid.selection) ? grid.visible : rectOfRange(grid.selection))
        : null,
    destroy: () => forget(),
  };
}

/** A value of a side column: four digits, or all of them; nothing for a negative count and NaN, which say there is none. */
function sideText(cell: Cell, exact: boolean): string {
  const value = Number(cell);
  if (typeof cell === "bigint" ? value < 0 : Number.isNaN(value)) return "";
  if (exact || typeof cell === "bigint") return String(cell);
  return value && Math.abs(value) < 1e-3 ? value.toExponential(3) : value.toPrecision(4);
}

/** A button that is on or off. */
function toggle(text: string, title: string, onclick: () => void): HTMLButtonElement {
  return button(text, onclick, { class: "tdv-toggle", "aria-pressed": "false", title });
}
