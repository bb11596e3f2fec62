/**
 * This module knows which leaves can hold images.
 * It does not know their layout: the kernel decides for good.
 */
import type { Selection } from "./context";

/** Whether a leaf can hold images: the tab is greyed where it cannot. The kernel decides for good. */
export function mayHoldImages(selection: Selection): boolean {
  const { shape, dtype } = selection;
  if (!dtype || !shape || shape.length < 2 || dtype.includes("complex") || selection.nested) return false;
  const [a, b, c] = [shape.at(-3) ?? 0, shape.at(-2) ?? 0, shape.at(-1) ?? 0];
  if (b >= 4 && c >= 4) return shape.length > 2 || dtype === "torch.uint8";
  return shape.length > 2 && [1, 3, 4].includes(c) && a >= 4 && b >= 4;
}
