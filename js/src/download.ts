/**
 * This module knows how bytes become a file in the user's download folder.
 * It does not know what the bytes are.
 */
import { h } from "./dom";

/** Offers `parts` as one file. The browser asks or saves, as the user has set it. */
export function download(name: string, mime: string, parts: readonly BlobPart[]): void {
  const url = URL.createObjectURL(new Blob([...parts], { type: mime }));
  const anchor = h("a", { href: url, download: name });
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Offers what a canvas shows as a PNG. */
export function downloadCanvas(name: string, canvas: HTMLCanvasElement): void {
  canvas.toBlob((blob) => blob && download(name, "image/png", [blob]), "image/png");
}
