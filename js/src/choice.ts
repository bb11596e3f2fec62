/**
 * This module knows a select that keeps what was chosen.
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
