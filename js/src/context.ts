/**
 * This module knows what a view of a tab is given and what it must offer.
 * It does not know any view.
 */
import type { Edits, Head, Path, Row, Severity } from "./protocol";
import type { Rpc } from "./transport";

/** The node that the tree has selected; it comes with the click, without a request. */
export type Selection = Row & {
  readonly path: Path;
  /** Storage rows to go to, half-open: set by "show row" and by a click on an episode. */
  readonly rows?: readonly [number, number];
};

/** Small state that all views of one widget share. */
export type SharedState = {
  readonly head: Head;
  readonly edits: Edits;
  /** Calls `callback` after `head` or `edits` changed, until `signal` aborts. */
  onChange(name: "head" | "edits", callback: () => void, signal: AbortSignal): void;
};

export type Context = {
  readonly rpc: Rpc;
  /** Aborts when the whole widget view is closed: pass it to every listener. */
  readonly signal: AbortSignal;
  readonly state: SharedState;
  /** Says something in the status line (`aria-live`); an error stays until the next message. */
  notify(text: string, severity?: Severity): void;
  /** Shows another node, optionally at some storage rows and in another tab ("Table", "Plot", …). */
  select(path: Path, options?: { rows?: readonly [number, number]; tab?: string }): void;
  /** Puts text on the clipboard and says so in the status line. */
  copy(text: string, what: string): void;
};

/**
 * The content of one tab. It is made when its tab is opened first, shown again whenever the selection changes while its tab
 * is open, hidden when another tab opens, and destroyed with the widget. `rpc` rejections with `isAbort` are silent, all
 * others belong into the view or into `notify`.
 */
export type View = {
  readonly element: HTMLElement;
  show(selection: Selection | null): void;
  /** Another tab was opened: stop what plays. */
  hide?(): void;
  /** Python that reproduces what is shown, for "copy code"; null where the plain code of the node is right. */
  code?(): string | null;
  destroy(): void;
};
