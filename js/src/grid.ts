/**
 * This module knows how a table of any size is drawn with a few elements, walked through with keys, selected and edited.
 * It does not know where cells come from nor what an edit does.
 */
import type { Rect } from "./blocks";
import { h, setAttribute, setText, uniqueId } from "./dom";
import { cellRange, isSingle, moved, type Range, rectOfRange } from "./ranges";
import { AxisScroll, type ColumnLayout } from "./scrolling";
import { isAbort } from "./transport";

export const ROW_PX = 24;
const CHAR_PX = 7.3;
const CELL_PAD = 22;
const MAX_GROWN = 420;

/** What a cell shows; `null` text is drawn as a place that is still loading. */
export type Drawn = { readonly text: string | null; readonly classes: string; readonly title?: string };

export type GridSource = {
  readonly label: string;
  readonly rows: number;
  readonly layout: ColumnLayout;
  /** Columns before the values, which can not be edited. */
  readonly lead: number;
  /** Titles of the row header's columns, and their widths in characters. */
  readonly headers: readonly { readonly title: string; readonly chars: number }[];
  header(col: number): { readonly text: string; readonly title: string };
  rowHeader(row: number): readonly string[];
  rowClass(row: number): string;
  cell(row: number, col: number): Drawn;
  /** What the editor starts with; null, after saying why, where the cell cannot be edited. */
  editText(row: number, col: number): string | null;
  /** Resolves when the edit was made; rejects with the reason. `rect` is one cell or, with Ctrl+Enter, the selection. */
  commit(rect: Rect, text: string): Promise<void>;
  copy(rect: Rect): void;
  paste(row: number, col: number, text: string): void;
};

export type GridEvents = {
  /** Other cells are visible, or the same ones are drawn again. `down` and `right` say where the user is heading. */
  onView(rect: Rect, down: number, right: number): void;
  onRange(range: Range): void;
  /** What was typed is not written, and its editor is gone. */
  onRefused(why: string): void;
};

type RowParts = { element: HTMLElement; heads: HTMLElement[]; cells: HTMLElement[]; row: number };
type Editor = { input: HTMLInputElement; box: HTMLElement; row: number; col: number; text: string; busy: boolean };

export type Grid = {
  readonly element: HTMLElement;
  readonly selection: Range;
  /** Cells that are visible now. */
  readonly visible: Rect;
  /** Shows another table; `keep` leaves scroll and selection where they are. */
  setSource(source: GridSource, keep?: boolean): void;
  /** Selects a cell and brings it into view, `center` in its middle. */
  go(row: number, col?: number, center?: boolean): void;
  select(range: Range): void;
  /** Draws in the next frame: cells came, or the selection moved. */
  draw(): void;
};

/** A grid without a table; it listens until `signal` aborts. */
export function createGrid(events: GridEvents, signal: AbortSignal): Grid {
  const vertical = new AxisScroll();
  const horizontal = new AxisScroll();
  const id = uniqueId();
  const last = { row: 0, col: 0, down: 1, right: 0 };
  let source: GridSource | null = null;
  let range: Range = cellRange(0, 0);
  let pool: RowParts[] = [];
  let headCells: HTMLElement[] = [];
  let corner: HTMLElement[] = [];
  let frame = 0;
  let dragging = false;
  let editor: Editor | null = null;

  const head = h("div", { class: "tdv-grid-head", role: "row", "aria-rowindex": 1 });
  const layer = h("div", { class: "tdv-grid-layer", role: "presentation" }, head);
  const space = h("div", { class: "tdv-grid-space", role: "presentation" }, layer);
  const element = h("div", { class: "tdv-grid", role: "grid", tabindex: 0, "aria-multiselectable": "true" }, space);
  const on = <K extends keyof HTMLElementEventMap>(
    name: K,
    listener: (event: HTMLElementEventMap[K]) => void,
    passive = false,
  ) => element.addEventListener(name, listener, { signal, passive });
  on("scroll", onScroll, true);
  on("wheel", onWheel);
  on("keydown", onKey);
  on("pointerdown", onPointer);
  on("pointermove", onDrag);
  on("pointerup", endDrag);
  document.addEventListener("pointerdown", onPress, { capture: true, signal });
  on("dblclick", onDouble);
  on("paste", onPaste);
  if (typeof ResizeObserver !== "undefined") {
    const observer = new ResizeObserver(() => resize());
    observer.observe(element);
    signal.addEventListener("abort", () => observer.disconnect(), { once: true });
  }
  signal.addEventListener("abort", () => cancelAnimationFrame(frame), { once: true });

  function setSource(next: GridSource, keep = false): void {
    const more = next.lead - (source?.lead ?? 0);
    const focused = document.activeElement === editor?.input;
    if (!keep || (editor && editor.row >= next.rows)) dropEditor();
    if (editor) editor.col += more;
    source = next;
    space.replaceChildren(layer);
    layer.replaceChildren(head, ...(editor ? [editor.box] : []));
    if (focused) editor?.input.focus();
    pool = [];
    headCells = [];
    corner = source.headers.map(({ title }) => h("div", { class: "tdv-grid-corner", role: "columnheader" }, title));
    head.replaceChildren(...corner);
    setAttribute(element, "aria-label", source.label);
    setAttribute(element, "aria-rowcount", source.rows + 1);
    setAttribute(element, "aria-colcount", cols() + source.headers.length);
    if (!keep) {
      range = cellRange(0, next.lead);
      vertical.to(0);
    }
    if (!keep || more > 0) horizontal.to(0);
    const { row, col, toRow, toCol } = range;
    const within = (value: number, size: number) => Math.max(0, Math.min(value, size - 1));
    range = {
      row: within(row, source.rows),
      toRow: within(toRow, source.rows),
      col: within(keep ? col + more : col, cols()),
      toCol: within(keep ? toCol + more : toCol, cols()),
    };
    resize();
    placeBars();
    events.onRange(range);
  }

  function visible(): Rect {
    const rows = Math.max(1, Math.ceil(viewHeight() / ROW_PX) + 1);
    const first = Math.floor(vertical.offset / ROW_PX);
    const layout = source?.layout;
    const left = layout?.at(horizontal.offset) ?? 0;
    const right = layout?.at(horizontal.offset + viewWidth()) ?? 0;
    return [first, Math.min(first + rows, source?.rows ?? 0), left, Math.min(right + 1, cols())];
  }

  function go(row: number, col = range.col, center = false): void {
    range = cellRange(row, col);
    if (center) vertical.to(row * ROW_PX - Math.floor(viewHeight() / 2 / ROW_PX) * ROW_PX);
    reveal(row, col);
    events.onRange(range);
  }

  function select(next: Range): void {
    range = next;
    reveal(range.toRow, range.toCol);
    events.onRange(range);
  }

  function draw(): void {
    if (frame) return;
    frame = requestAnimationFrame(() => {
      frame = 0;
      drawNow();
    });
  }

  function drawNow(): void {
    if (!source) return;
    const rect = visible();
    const heads = headWidths();
    const left = headWidth();
    const grown = drawRows(source, rect, left, heads);
    drawHead(source, rect, left, heads);
    setAttribute(element, "aria-activedescendant", activeId(rect));
    placeEditor(left);
    if (grown) {
      resize();
      return;
    }
    const { row, col } = last;
    if (rect[0] !== row) last.down = Math.sign(rect[0] - row);
    last.right = Math.sign(rect[2] - col);
    last.row = rect[0];
    last.col = rect[2];
    events.onView(rect, last.down, last.right);
  }

  /** Opens the editor over a cell, with `start` instead of its value where a key was typed. */
  function edit(row = range.row, col = range.col, start?: string): void {
    const text = source?.editText(row, col);
    if (text === null || text === undefined) return;
    closeEditor();
    const input = h("input", {
      class: "tdv-grid-input",
      "aria-label": `Row ${row}, column ${col}`,
      spellcheck: "false",
      autocomplete: "off",
    });
    const box = h("div", { class: "tdv-grid-editor" }, input);
    input.value = start ?? text;
    editor = { input, box, row, col, text, busy: false };
    input.addEventListener("keydown", (event) => onEditKey(event));
    input.addEventListener("blur", () => {
      // A notebook that activates its cell late takes the focus by script: what is typed must not go to it.
      requestAnimationFrame(() => editor?.input === input && !editor.busy && input.focus());
    });
    layer.append(box);
    placeEditor(headWidth());
    input.focus();
    if (start === undefined) input.select();
  }

  function cols(): number {
    const last = source?.layout.groups.at(-1);
    return last ? last.start + last.count : 0;
  }

  function headWidths(): number[] {
    return (source?.headers ?? []).map(({ chars }) => Math.ceil(chars * CHAR_PX) + CELL_PAD);
  }

  function headWidth(): number {
    return headWidths().reduce((sum, width) => sum + width, 0);
  }

  function viewHeight(): number {
    return Math.max(0, (element.clientHeight || 20 * ROW_PX) - ROW_PX);
  }

  function viewWidth(): number {
    const heads = headWidth();
    return Math.max(1, (element.clientWidth || 640) - heads);
  }

  function resize(): void {
    if (!source) return;
    const heads = headWidth();
    vertical.resize(source.rows * ROW_PX, viewHeight());
    horizontal.resize(source.layout.total, viewWidth());
    space.style.height = `${vertical.space + ROW_PX}px`;
    space.style.width = `${horizontal.space + heads}px`;
    layer.style.width = `${element.clientWidth}px`;
    layer.style.height = `${element.clientHeight}px`;
    draw();
  }

  function placeBars(): void {
    const top = vertical.to(vertical.offset);
    const left = horizontal.to(horizontal.offset);
    if (Math.abs(element.scrollTop - top) >= 1) element.scrollTop = top;
    if (Math.abs(element.scrollLeft - left) >= 1) element.scrollLeft = left;
    draw();
  }

  function onScroll(): void {
    const down = vertical.fromBar(element.scrollTop);
    const across = horizontal.fromBar(element.scrollLeft);
    if (down || across) draw();
  }

  function onWheel(event: WheelEvent): void {
    const line = event.deltaMode === 1 ? ROW_PX : event.deltaMode === 2 ? viewHeight() : 1;
    const sideways = event.shiftKey && !event.deltaX;
    const [x, y] = sideways ? [event.deltaY * line, 0] : [event.deltaX * line, event.deltaY * line];
    // The browser scrolls by itself, and past our ends the page, as long as a pixel of the bar is a pixel of content.
    if (!(vertical.scaled && y) && !(horizontal.scaled && x)) return;
    event.preventDefault();
    vertical.to(vertical.offset + y);
    horizontal.to(horizontal.offset + x);
    placeBars();
  }

  function reveal(row: number, col: number): void {
    const top = row * ROW_PX;
    const whole = Math.floor(viewHeight() / ROW_PX) * ROW_PX;
    if (top < vertical.offset) vertical.to(top);
    else if (top + ROW_PX > vertical.offset + whole) vertical.to(top + ROW_PX - whole);
    const layout = source?.layout;
    const left = layout?.left(col) ?? 0;
    const right = left + (layout?.width(col) ?? 0);
    if (right > horizontal.offset + viewWidth()) horizontal.to(right - viewWidth());
    if (left < horizontal.offset) horizontal.to(left);
    placeBars();
  }

  function drawRows(source: GridSource, rect: Rect, left: number, heads: readonly number[]): boolean {
    const count = Math.min(source.rows, Math.ceil(viewHeight() / ROW_PX) + 2);
    while (pool.length < count) pool.push(makeRow(source.headers.length));
    for (const extra of pool.splice(count)) extra.element.remove();
    const selected = rectOfRange(range);
    let grown = false;
    for (let row = rect[0]; row < Math.min(rect[0] + count, source.rows); row++) {
      const parts = pool[row % count];
      if (!parts) continue;
      parts.row = row;
      setAttribute(parts.element, "aria-rowindex", row + 2);
      setAttribute(parts.element, "class", `tdv-grid-row ${source.rowClass(row)}`);
      parts.element.style.transform = `translateY(${row * ROW_PX - vertical.offset}px)`;
      parts.element.hidden = false;
      const texts = source.rowHeader(row);
      for (const [i, head] of parts.heads.entries()) setText(head, texts[i] ?? "");
      placeHeads(parts.heads, heads);
      grown = drawCells(source, parts, rect, left, selected) || grown;
    }
    for (const parts of pool) if (parts.row < rect[0] || parts.row >= rect[0] + count) parts.element.hidden = true;
    return grown;
  }

  function drawCells(source: GridSource, parts: RowParts, rect: Rect, left: number, selected: Rect): boolean {
    const wanted = rect[3] - rect[2];
    while (parts.cells.length < wanted) {
      const cell = h("div", { role: "gridcell" });
      parts.cells.push(cell);
      parts.element.append(cell);
    }
    for (const extra of parts.cells.splice(wanted)) extra.remove();
    let grown = false;
    const { row } = parts;
    for (let i = 0; i < wanted; i++) {
      const cell = parts.cells[i];
      if (!cell) continue;
      const col = rect[2] + i;
      const drawn = source.cell(row, col);
      const width = source.layout.width(col);
      const active = row === range.row && col === range.col;
      const aside = col < source.lead;
      const inside = row >= selected[0] && row < selected[1] && col >= selected[2] && col < selected[3];
      setText(cell, drawn.text ?? "");
      setAttribute(
        cell,
        "class",
        `tdv-cell ${drawn.classes}${aside ? " tdv-aside" : ""}${drawn.text === null ? " tdv-loading" : ""}${inside ? " tdv-in" : ""}${active ? " tdv-active" : ""}`,
      );
      setAttribute(cell, "aria-colindex", col + source.headers.length + 1);
      setAttribute(cell, "aria-selected", inside);
      setAttribute(cell, "aria-readonly", aside && "true");
      setAttribute(cell, "title", drawn.title);
      setAttribute(cell, "id", active ? `${id}-active` : null);
      cell.style.width = `${width}px`;
      cell.style.left = `${left + source.layout.left(col) - horizontal.offset}px`;
      const need = (drawn.text?.length ?? 0) * CHAR_PX + CELL_PAD;
      const group = need > width && width < MAX_GROWN ? source.layout.group(col) : null;
      if (group) {
        group.width = Math.min(MAX_GROWN, Math.ceil(need));
        grown = true;
      }
    }
    return grown;
  }

  function drawHead(source: GridSource, rect: Rect, left: number, heads: readonly number[]): void {
    const wanted = rect[3] - rect[2];
    while (headCells.length < wanted) {
      const cell = h("div", { role: "columnheader" });
      headCells.push(cell);
      head.append(cell);
    }
    for (const extra of headCells.splice(wanted)) extra.remove();
    headCells.forEach((cell, i) => {
      const col = rect[2] + i;
      const { text, title } = source.header(col);
      setAttribute(cell, "class", `tdv-grid-title${col < source.lead ? " tdv-aside" : ""}`);
      setText(cell, text);
      setAttribute(cell, "title", title);
      setAttribute(cell, "aria-colindex", col + source.headers.length + 1);
      cell.style.width = `${source.layout.width(col)}px`;
      cell.style.left = `${left + source.layout.left(col) - horizontal.offset}px`;
    });
    placeHeads(corner, heads);
    for (const [i, cell] of corner.entries()) setAttribute(cell, "aria-colindex", i + 1);
  }

  function makeRow(headCount: number): RowParts {
    const heads = Array.from({ length: headCount }, (_, i) =>
      h("div", { class: "tdv-grid-rowhead", role: "rowheader", "aria-colindex": i + 1 }),
    );
    const element = h("div", { class: "tdv-grid-row", role: "row" }, ...heads);
    layer.append(element);
    return { element, heads, cells: [], row: -1 };
  }

  function activeId(rect: Rect): string | null {
    const { row, col } = range;
    const seen = row >= rect[0] && row < rect[1] && col >= rect[2] && col < rect[3];
    return seen ? `${id}-active` : null;
  }

  function cellAt(event: MouseEvent): { row: number; col: number } | null {
    if (!source) return null;
    const box = element.getBoundingClientRect();
    const heads = headWidth();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top - ROW_PX;
    if (y < 0 || x > element.clientWidth || y > viewHeight()) return null;
    const row = Math.floor((y + vertical.offset) / ROW_PX);
    if (row >= source.rows || cols() === 0) return null;
    return { row, col: x < heads ? -1 : source.layout.at(x - heads + horizontal.offset) };
  }

  function onPointer(event: PointerEvent): void {
    if (event.button !== 0 || (event.target as Element).closest(".tdv-grid-editor")) return;
    const cell = cellAt(event);
    if (!cell) return;
    element.focus({ preventScroll: true });
    const whole = cell.col < 0; // the row header selects the row
    const from = event.shiftKey ? range : { row: cell.row, col: whole ? 0 : cell.col };
    range = { row: from.row, col: whole ? 0 : from.col, toRow: cell.row, toCol: whole ? cols() - 1 : cell.col };
    dragging = true;
    element.setPointerCapture?.(event.pointerId);
    events.onRange(range);
    draw();
  }

  function onDrag(event: PointerEvent): void {
    if (!dragging) return;
    const cell = cellAt(event);
    if (!cell || (cell.row === range.toRow && cell.col === range.toCol)) return;
    select({ ...range, toRow: cell.row, toCol: cell.col < 0 ? range.toCol : cell.col });
  }

  function endDrag(): void {
    dragging = false;
  }

  function onDouble(event: MouseEvent): void {
    const cell = cellAt(event);
    if (cell && cell.col >= 0 && !(event.target as Element).closest(".tdv-grid-editor")) edit(cell.row, cell.col);
  }

  /** A press elsewhere ends typing as Enter does, but goes where the person goes. */
  function onPress(event: PointerEvent): void {
    const [target] = event.composedPath();
    if (!editor || target === element || editor.box.contains(target as Node)) return; // `element`: its scroll bars
    if (editor.input.value === editor.text) closeEditor();
    else void commit(false, null);
  }

  function onPaste(event: ClipboardEvent): void {
    if (editor?.box.contains(event.target as Node)) return;
    const text = event.clipboardData?.getData("text/plain");
    event.stopPropagation();
    if (!text) return;
    event.preventDefault();
    const rect = rectOfRange(range);
    source?.paste(rect[0], rect[2], text);
  }

  function onKey(event: KeyboardEvent): void {
    if (!source || (editor && !editor.busy) || event.altKey) return;
    const control = event.ctrlKey || event.metaKey;
    const page = Math.max(1, Math.floor(viewHeight() / ROW_PX) - 1);
    const next = moved(range, event.key, control, event.shiftKey, { rows: source.rows, cols: cols(), page });
    if (next) {
      if (event.key.startsWith("Page")) {
        // The view moves by what the selection moves, so that the next page is where the last one ended.
        vertical.to(vertical.offset + (event.key === "PageDown" ? page : -page) * ROW_PX);
      }
      select(next);
    } else if (control && event.key.toLowerCase() === "c") source.copy(rectOfRange(range));
    else if (control && event.key.toLowerCase() === "a")
      select({ row: 0, col: 0, toRow: source.rows - 1, toCol: cols() - 1 });
    else if (event.key === "Escape" && !isSingle(range)) select(cellRange(range.row, range.col));
    else if (event.key === "Enter" || event.key === "F2") edit();
    else if (!control && event.key.length === 1 && event.key !== " ") edit(range.row, range.col, event.key);
    else return;
    event.stopPropagation();
    event.preventDefault();
  }

  function onEditKey(event: KeyboardEvent): void {
    event.stopPropagation();
    if (event.key === "Escape") {
      event.preventDefault();
      closeEditor(true);
    } else if (event.key === "Enter" || event.key === "Tab") {
      event.preventDefault();
      void commit(event.ctrlKey || event.metaKey, event.key === "Tab" ? "ArrowRight" : "ArrowDown");
    } else if (event.key.length === 1 || event.key === "Backspace") complain("");
  }

  /** `then` is the key that says where to go on; null where the person went elsewhere already. */
  async function commit(fill: boolean, then: string | null): Promise<void> {
    const mine = editor;
    if (!mine || !source || mine.busy) return;
    const { row, col, input } = mine;
    const rect: Rect = fill ? rectOfRange(range) : [row, row + 1, col, col + 1];
    mine.busy = true;
    setAttribute(input, "aria-busy", "true");
    try {
      await source.commit(rect, input.value);
      if (editor !== mine) return;
      closeEditor(then !== null);
      const next =
        fill || then === null
          ? null
          : moved(cellRange(row, col), then, false, false, { rows: source.rows, cols: cols(), page: 1 });
      if (next) select(next);
    } catch (reason) {
      const { message } = reason as Error;
      if (editor !== mine) return isAbort(reason) ? undefined : events.onRefused(message);
      mine.busy = false;
      dragging = false;
      setAttribute(input, "aria-busy", null);
      complain(message);
      if (then === null) go(row, col);
      input.focus();
    }
  }

  function complain(text: string): void {
    if (!editor) return;
    setAttribute(editor.input, "aria-invalid", text ? "true" : null);
    setAttribute(editor.input, "title", text || null);
    editor.box.querySelector(".tdv-grid-reason")?.remove();
    if (text) editor.box.append(h("div", { class: "tdv-grid-reason", role: "alert" }, text));
  }

  function closeEditor(focus = false): void {
    const closed = editor;
    editor = null;
    closed?.box.remove();
    if (focus) element.focus({ preventScroll: true });
    if (closed) draw();
  }

  /** Closes the editor because its table goes; says so where that loses what was typed. */
  function dropEditor(): void {
    if (editor && !editor.busy && editor.input.value !== editor.text)
      events.onRefused(editor.input.title || `the table was left before ${editor.input.value} was entered`);
    closeEditor();
  }

  function placeEditor(heads: number): void {
    if (!editor || !source) return;
    const { style } = editor.box;
    style.left = `${heads + source.layout.left(editor.col) - horizontal.offset}px`;
    style.top = `${ROW_PX + editor.row * ROW_PX - vertical.offset}px`;
    style.width = `${Math.max(90, source.layout.width(editor.col))}px`;
    // The reason of a refusal stands below the cell and to its right, or where the table has room.
    editor.box.classList.toggle("tdv-far", source.layout.left(editor.col) - horizontal.offset > viewWidth() / 2);
    editor.box.classList.toggle("tdv-low", (editor.row + 3) * ROW_PX - vertical.offset > viewHeight());
  }

  return {
    element,
    get selection() {
      return range;
    },
    get visible() {
      return visible();
    },
    setSource,
    go,
    select,
    draw,
  };
}

function placeHeads(heads: readonly HTMLElement[], widths: readonly number[]): void {
  let left = 0;
  heads.forEach((head, i) => {
    head.style.left = `${left}px`;
    head.style.width = `${widths[i] ?? 0}px`;
    left += widths[i] ?? 0;
  });
}
