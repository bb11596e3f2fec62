/**
 * This module knows how to make elements. Text is set as text, so nothing from a file can become markup.
 * It does not know what the elements mean.
 */

type Value = string | number | boolean | null | undefined | ((event: never) => void);
export type Attributes = Record<string, Value>;
export type Child = Node | string | null | undefined | false;

/** An element; `on…` attributes are listeners, `true` is an empty attribute, `false` and `null` are left out. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value as EventListener);
    else setAttribute(element, name, value);
  }
  element.append(
    ...children.filter((child): child is Node | string => child !== null && child !== undefined && child !== false),
  );
  return element;
}

/** Sets or removes an attribute, touching the DOM only where it changes. */
export function setAttribute(
  element: Element,
  name: string,
  value: string | number | boolean | null | undefined,
): void {
  if (value === null || value === undefined || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
    return;
  }
  const text = value === true ? "" : String(value);
  if (element.getAttribute(name) !== text) element.setAttribute(name, text);
}

/** Sets text, touching the DOM only where it changes. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** A push button. */
export function button(text: string, onclick: () => void, attributes: Attributes = {}): HTMLButtonElement {
  return h("button", { type: "button", class: "tdv-button", onclick, ...attributes }, text);
}

/** A button that looks like a link. */
export function link(text: string, onclick: () => void, title?: string): HTMLButtonElement {
  return h("button", { type: "button", class: "tdv-link", onclick, title }, text);
}

/** Calls `fn` once, `ms` after the last call. */
export function debounced<A extends unknown[]>(fn: (...args: A) => void, ms: number, signal: AbortSignal) {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const cancel = () => clearTimeout(timer);
  signal.addEventListener("abort", cancel, { once: true });
  const call = (...args: A) => {
    clearTimeout(timer);
    if (!signal.aborted) timer = setTimeout(() => fn(...args), ms);
  };
  return Object.assign(call, { cancel });
}

let serial = 0;

/** A word that no other element of the page has as its id. Bundles are loaded once per model, hence the random part. */
export function uniqueId(): string {
  return `tdv-${Math.random().toString(36).slice(2, 8)}-${++serial}`;
}
