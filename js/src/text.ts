/**
 * This module knows how sizes, shapes, dtypes, keys and findings are written for people and for Python.
 * It does not know the DOM.
 */
import type { Badge, Path, Problem, Row, Severity } from "./protocol";

/** `1.0 kB`, `25 kB`, `3.2 MB`: two digits where they say something. */
export function bytesText(nbytes: number): string {
  if (nbytes < 1000) return `${nbytes} B`;
  let value = nbytes;
  for (const unit of ["kB", "MB", "GB", "TB"]) {
    value /= 1000;
    if (value < 999.5 || unit === "TB") return `${value < 9.95 ? value.toFixed(1) : Math.round(value)} ${unit}`;
  }
  return "";
}

/** `1 leaf`, `16 leaves`. */
export function countText(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

/** `float32` of `torch.float32`. */
export function dtypeText(dtype: string): string {
  return dtype.replace(/^torch\./, "");
}

/** `[256, 1]`. */
export function shapeText(shape: readonly number[]): string {
  return `[${shape.join(", ")}]`;
}

/** What stands right of the key in the tree. */
export function typeText(row: Row): string {
  if (!row.dtype) return row.note;
  return `${dtypeText(row.dtype)} ${row.nested ? "nested" : shapeText(row.shape ?? [])}`;
}

/** One key as it can be read: an empty or blank one is seen, and what steers the text around it is escaped. */
export function partText(key: string): string {
  if (!key.trim()) return key ? `"${key}"` : "(empty key)";
  return key.replace(
    /[\p{Cc}\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/gu,
    (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** How a row is named: files beside the save are no entry. */
export function keyText(row: Row): string {
  return row.kind === "side_files" ? (row.className ?? "") : partText(row.key);
}

/** `next.reward`. */
export function dottedText(path: Path): string {
  return path.map(partText).join(".");
}

/** Which colour a row has: one of a few families of dtypes, or none. */
export function family(row: Row): string {
  if (row.kind === "side_files" || row.kind.startsWith("non_tensor")) return "value";
  if (!row.dtype) return "branch";
  const name = dtypeText(row.dtype);
  if (name === "bool") return "bool";
  if (name === "uint8") return "byte";
  if (name.startsWith("complex")) return "complex";
  if (/^u?int|^bits/.test(name)) return "int";
  return name.includes("float") ? "float" : "other";
}

/** `boundary leak` of `boundary_leak`. */
export function codeText(code: string): string {
  return code.replaceAll("_", " ");
}

/** Number of rows that a finding names. */
export function rowCount(problem: Problem): number {
  return problem.rows.reduce((sum, [start, stop]) => sum + stop - start, 0);
}

const RANK: Record<Severity, number> = { error: 2, warning: 1, note: 0 };

/** One short mark for several findings of a node: the worst of them, and how many. Notes are no fault. */
export function badgeOf(problems: readonly Problem[]): Badge | null {
  const faults = problems.filter((problem) => problem.severity !== "note");
  const worst = faults.reduce<Problem | null>((a, b) => (a && RANK[a.severity] >= RANK[b.severity] ? a : b), null);
  if (!worst) return null;
  const rows = rowCount(worst);
  const text =
    faults.length > 1 ? `${faults.length} findings` : `${rows > 1 ? `${rows} × ` : ""}${codeText(worst.code)}`;
  return { severity: worst.severity, text };
}

/** `2 errors, 1 warning`. */
export function severityText(problems: readonly Problem[]): string {
  const parts = (["error", "warning", "note"] as const).flatMap((severity) => {
    const count = problems.filter((problem) => problem.severity === severity).length;
    return count ? [countText(count, severity)] : [];
  });
  return parts.join(", ") || "nothing found";
}

/** A Python string literal. JSON's escapes are Python's too. */
export function pyString(text: string): string {
  return JSON.stringify(text);
}

/** `"next", "reward"`: a nested key as a Python subscript, without brackets. */
export function pyKey(path: Path): string {
  return path.map(pyString).join(", ");
}

/** Python that opens the node `path` of the save at `location`. */
export function pyNode(location: string, path: Path): string {
  return `tdview.scan(${pyString(location)})${path.length ? `[${pyKey(path)}]` : ""}`;
}

/** `next › reward`. */
export function pathText(path: Path): string {
  return path.map(partText).join(" › ");
}
