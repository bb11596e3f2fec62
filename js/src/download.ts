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

/** A select that acts as a menu: `title` stays shown, choosing an item calls `onChoose` with it. */
export function menu(
  title: string,
  label: string,
  items: readonly (readonly [string, string])[],
  onChoose: (value: string) => void,
): HTMLSelectElement {
  const element = h(
    "select",
    { class: "tdv-menu", "aria-label": label },
    h("option", { value: "" }, title),
    ...items.map(([value, text]) => h("option", { value }, text)),
  );
  element.addEventListener("change", () => {
    const { value } = element;
    element.value = "";
    if (value) onChoose(value);
  });
  element.addEventListener("keydown", (event) => event.stopPropagation());
  return element;
}
