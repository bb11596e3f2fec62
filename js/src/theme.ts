/**
 * This module knows whether the page around the widget is light or dark, in JupyterLab, VS Code, Colab and elsewhere.
 * It does not know any colour: those are in the style sheet.
 */

function isDark(): boolean {
  const { body, documentElement: root } = document;
  const light = body.dataset.jpThemeLight;
  if (light) return light === "false";
  if (body.classList.contains("vscode-dark") || body.classList.contains("vscode-high-contrast")) return true;
  if (body.classList.contains("vscode-light")) return false;
  const theme = root.getAttribute("theme") ?? root.dataset.theme ?? (root.classList.contains("dark") ? "dark" : null);
  if (theme) return theme === "dark";
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Keeps `data-tdv-theme` of the element at `light` or `dark` until `signal` aborts. */
export function followTheme(element: HTMLElement, signal: AbortSignal): void {
  const apply = () => {
    element.dataset.tdvTheme = isDark() ? "dark" : "light";
  };
  const observer = new MutationObserver(apply);
  const options = { attributes: true, attributeFilter: ["data-jp-theme-light", "class", "theme", "data-theme"] };
  observer.observe(document.body, options);
  observer.observe(document.documentElement, options);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply, { signal });
  signal.addEventListener("abort", () => observer.disconnect(), { once: true });
  apply();
}
