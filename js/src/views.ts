/**
 * This module knows which tabs there are, in which order, and for which nodes each has something to show.
 * It does not know how they show it.
 */
import type { Context, Selection, View } from "./context";
import { createEpisodes } from "./episodes";
import { createInfo } from "./info";
import type { Tab } from "./tabs";

const isValue = (selection: Selection) => selection.kind.startsWith("non_tensor") || selection.kind === "side_files";

const VALUE = "This is no tensor; its value is in Info.";
const LEAF = "Select a leaf: this view shows one tensor.";

const notBuffer = (_: Selection, ctx: Context) =>
  ctx.state.head.kind === "collection"
    ? "Episodes belong to one save; open a member of the collection by itself."
    : null;

/** The tabs; `createAudit` is given by the shell, which marks the findings in the tree. */
export function createViews(createAudit: (ctx: Context) => View): Tab[] {
  return [
    { name: "Episodes", create: createEpisodes, empty: notBuffer },
    { name: "Audit", create: createAudit },
    { name: "Info", create: createInfo },
  ];
}

export { isValue, LEAF, VALUE };
