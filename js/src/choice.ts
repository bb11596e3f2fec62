/**
 * This module knows two kinds of select: one that keeps what was chosen, and one that is a menu.
 * It does not know what is chosen from.
 */
import { h } from "./dom";

/** A select of `items` (value and text); choosing one calls `onChoose` with its value. Its keys stay its own. */
export function choice(
  label: string,
  items: readonly (readonly [string, string])[],
  onChoose: (value: string) => void,
): HTMLSelectElement {
  const element = h(
    "select",
    { class: "tdv-menu", "aria-label": label },
    ...items.map(([value, text]) => h("option", { value }, text)),
  );
  element.addEventListener("change", () => onChoose(element.value));
  element.addEventListener("keydown", (event) => event.stopPropagation());
  return element;
}

/** A select that acts as a menu: `title` stays shown, choosing an item calls `onChoose` with it. */
export function menu(
  title: string,
  label: string,
  items: readonly (readonly [string, string])[],
  onChoose: (value: string) => void,
): HTMLSelectElement {
  const element = choice(label, [["", title], ...items], (value) => {
    element.value = "";
    if (value) onChoose(value);
  });
  return element;
}
