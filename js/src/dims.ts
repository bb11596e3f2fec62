/**
 * This module knows how the axes of a leaf are mapped: one runs down, one across, the others stand at an index.
 * It does not know what is shown of them.
 */
import type { Selection } from "./context";
import { h, setText } from "./dom";

/** Which axes are shown; `index` has a place for every axis, also for those two. */
export type Mapping = {
  readonly rowAxis: number | null;
  readonly colAxis: number | null;
  readonly index: readonly number[];
};

/** Name of an axis: the dim name, or its number. */
export function axisName(selection: Selection, axis: number): string {
  return selection.names?.[axis] ?? `dim ${axis}`;
}

/** Puts `axis` where the user wants it; the axis that was there changes places with it. */
export function mapped(mapping: Mapping, axis: number, role: "row" | "col" | "index"): Mapping {
  const was = axis === mapping.rowAxis ? "row" : axis === mapping.colAxis ? "col" : "index";
  const next = { rowAxis: mapping.rowAxis, colAxis: mapping.colAxis, index: mapping.index };
  const displaced = role === "row" ? mapping.rowAxis : role === "col" ? mapping.colAxis : null;
  if (was === "row") next.rowAxis = role === "col" ? displaced : null;
  if (was === "col") next.colAxis = role === "row" ? displaced : null;
  if (role === "row") next.rowAxis = axis;
  if (role === "col") next.colAxis = axis;
  return next;
}

/** Holds an axis at another index. */
export function indexed(mapping: Mapping, axis: number, place: number): Mapping {
  return { ...mapping, index: mapping.index.map((old, i) => (i === axis ? place : old)) };
}

export type Dims = { readonly element: HTMLElement; show(selection: Selection, mapping: Mapping): void };

/** One control per axis: what it does, and a slider for one that stands at an index. Hidden for two axes and fewer, and for a nested tensor. */
export function createDims(onChange: (mapping: Mapping, done: boolean) => void): Dims {
  const element = h("div", { class: "tdv-dims", role: "group", "aria-label": "Dimensions" });

  function show(selection: Selection, mapping: Mapping): void {
    const shape = selection.shape ?? [];
    element.hidden = shape.length < 3 || selection.nested;
    element.replaceChildren(...shape.map((size, axis) => control(selection, mapping, axis, size)));
  }

  function control(selection: Selection, mapping: Mapping, axis: number, size: number): HTMLElement {
    const name = axisName(selection, axis);
    const role = axis === mapping.rowAxis ? "row" : axis === mapping.colAxis ? "col" : "index";
    const choose = h(
      "select",
      { class: "tdv-select", "aria-label": `${name}: shown as` },
      ...(["row", "col", "index"] as const).map((value) =>
        h("option", { value, selected: value === role }, { row: "rows", col: "columns", index: "at index" }[value]),
      ),
    );
    choose.addEventListener("change", () => {
      onChange(mapped(mapping, axis, choose.value as "row" | "col" | "index"), true);
      element.querySelectorAll("select")[axis]?.focus(); // the controls were made anew
    });
    const label = h("span", { class: "tdv-dim-name" }, name, h("span", { class: "tdv-dim" }, ` ${size}`));
    if (role !== "index" || size < 1) return h("span", { class: "tdv-axis" }, label, choose);
    return h(
      "span",
      { class: "tdv-axis" },
      label,
      choose,
      ...slider(name, size, mapping.index[axis] ?? 0, axis, () => mapping),
    );
  }

  function slider(name: string, size: number, place: number, axis: number, mapping: () => Mapping): HTMLElement[] {
    let current = mapping();
    const out = h("output", { class: "tdv-place" }, String(place));
    const input = h("input", {
      type: "range",
      class: "tdv-slider",
      min: 0,
      max: size - 1,
      value: place,
      "aria-label": `${name}: index`,
    });
    const move = (done: boolean) => {
      setText(out, input.value);
      current = indexed(current, axis, Number(input.value));
      onChange(current, done);
    };
    input.addEventListener("input", () => move(false));
    input.addEventListener("keydown", (event) => event.stopPropagation());
    return [input, out];
  }

  return { element, show };
}
