/**
 * This module knows which tabs there are, in which order, and for which nodes each has something to show.
 * It does not know how they show it.
 */
import type { AuditView, Report } from "./audit";
import type { Context, Selection } from "./context";
import { mayHoldImages } from "./images";
import { lazyView, type Panels } from "./lazy";
import { createTable } from "./table";
import type { Tab } from "./tabs";

type Reason = (selection: Selection, ctx: Context) => string | null;

const noValue: Reason = ({ kind }) =>
  kind.startsWith("non_tensor")
    ? "This is no tensor. Its value is under Info."
    : kind === "side_files"
      ? "These are no tensors. They are listed under Info."
      : null;

const severalSaves: Reason = ({ kind }) =>
  kind === "collection" ? "This holds several saves. Select one of them in the tree." : null;

const noNumbers: Reason = (selection, ctx) =>
  selection.nested
    ? "The tensors of a nested tensor differ in shape. Info lists the shapes; numpy() of the leaf gives the tensors."
    : noTable(selection, ctx);

const noTable: Reason = (selection, ctx) => severalSaves(selection, ctx) ?? noValue(selection, ctx);

const noImages: Reason = (selection, ctx) =>
  noValue(selection, ctx) ??
  (!selection.dtype
    ? "Select a leaf: this view shows the images of one tensor."
    : mayHoldImages(selection)
      ? null
      : "No images here: they are leaves of shape [T, C, H, W], [T, H, W, C] or [T, H, W].");

export type Views = {
  readonly tabs: readonly Tab[];
  /** Shows the checks of the files in the Audit tab, once it is there. */
  verify(): void;
};

/** The tabs; `onReport` is told what an audit found, to mark it in the tree. */
export function createViews(ctx: Context, load: () => Promise<Panels>, onReport: (report: Report) => void): Views {
  let audit: AuditView | null = null;
  let verifying = false;
  const tabs: Tab[] = [
    { name: "Table", create: () => createTable(ctx, load), empty: noTable },
    { name: "Plot", create: () => lazyView(ctx, load, (panels) => panels.createPlot(ctx)), empty: noNumbers },
    { name: "Frames", create: () => lazyView(ctx, load, (panels) => panels.createFrames(ctx)), empty: noImages },
    { name: "Stats", create: () => lazyView(ctx, load, (panels) => panels.createStats(ctx)), empty: noValue },
    {
      name: "Episodes",
      create: () => lazyView(ctx, load, (panels) => panels.createEpisodes(ctx)),
      empty: severalSaves,
    },
    {
      name: "Audit",
      create: () =>
        lazyView(ctx, load, (panels) => {
          audit = panels.createAudit(ctx, onReport);
          if (verifying) audit.verify();
          return audit;
        }),
    },
    { name: "Info", create: () => lazyView(ctx, load, (panels) => panels.createInfo(ctx)) },
  ];
  return {
    tabs,
    verify() {
      verifying = true;
      audit?.verify();
    },
  };
}
