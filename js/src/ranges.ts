/**
 * This module knows a selected range of cells: how keys move it, and how it becomes tab-separated text and back.
 * It does not know the values or the DOM.
 */
import type { Rect } from "./blocks";

/** The active cell is `row, col`; the range reaches from it to `toRow, toCol`, both ends included. */
export type Range = { readonly row: number; readonly col: number; readonly toRow: number; readonly toCol: number };

export type Size = { readonly rows: number; readonly cols: number; readonly page: number };

export const cellRange = (row: number, col: number): Range => ({ row, col, toRow: row, toCol: col });

/** The range as a half-open rectangle. */
export function rectOfRange(range: Range): Rect {
  return [
    Math.min(range.row, range.toRow),
    Math.max(range.row, range.toRow) + 1,
    Math.min(range.col, range.toCol),
    Math.max(range.col, range.toCol) + 1,
  ];
}

export const isSingle = (range: Range): boolean => range.row === range.toRow && range.col === range.toCol;

const clamp = (value: number, size: number): number => Math.min(Math.max(0, value), Math.max(0, size - 1));

/** The range after a key, or null where the key moves nothing. `keepAnchor` (Shift) moves its far end only. */
export function moved(range: Range, key: string, whole: boolean, keepAnchor: boolean, size: Size): Range | null {
  const steps: Record<string, readonly [number, number]> = {
    ArrowUp: [whole ? -size.rows : -1, 0],
    ArrowDown: [whole ? size.rows : 1, 0],
    ArrowLeft: [0, whole ? -size.cols : -1],
    ArrowRight: [0, whole ? size.cols : 1],
    PageUp: [-size.page, 0],
    PageDown: [size.page, 0],
    Home: [whole ? -size.rows : 0, -size.cols],
    End: [whole ? size.rows : 0, size.cols],
  };
  const step = steps[key];
  if (!step) return null;
  const row = clamp((keepAnchor ? range.toRow : range.row) + step[0], size.rows);
  const col = clamp((keepAnchor ? range.toCol : range.col) + step[1], size.cols);
  return keepAnchor ? { ...range, toRow: row, toCol: col } : cellRange(row, col);
}

/** Tab-separated text of a rectangle of texts. */
export function toTsv(rows: readonly (readonly string[])[]): string {
  return rows.map((row) => row.join("\t")).join("\n");
}

/** Rows of texts out of tab-separated text, as spreadsheets put it on the clipboard; null where rows differ in length. */
export function fromTsv(text: string): string[][] | null {
  const lines = text.replace(/\r\n?/g, "\n").replace(/\n$/, "").split("\n");
  const rows = lines.map((line) => line.split("\t").map((cell) => cell.trim()));
  return rows.every((row) => row.length === rows[0]?.length) ? rows : null;
}
