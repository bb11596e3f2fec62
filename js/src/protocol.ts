/**
 * This module knows the messages between a view and the kernel, and what a row of the tree says.
 * It does not know how messages travel. It mirrors `tdview/widgets/messages.py`.
 */

/** Nested key of a node; `[]` is the root. */
export type Path = readonly string[];

export type Severity = "error" | "warning" | "note";

export type Kind =
  | "tensordict"
  | "lazy_stack"
  | "tensorclass"
  | "sub_tensordict"
  | "lazy_view"
  | "non_tensor"
  | "non_tensor_stack"
  | "leaf"
  | "replay_buffer"
  | "collection"
  | "side_files";

/** A finding. `rows` are half-open ranges of storage rows. */
export type Problem = {
  readonly code: string;
  readonly severity: Severity;
  readonly key: Path;
  readonly rows: readonly (readonly [number, number])[];
  readonly message: string;
};

/** A short mark behind a key: a fault in the tree. */
export type Badge = { readonly severity: Severity; readonly text: string };

/** Everything that the tree, the title and the views need to know of a node before they ask for more. */
export type Row = {
  readonly key: string;
  readonly kind: Kind;
  /** Of files beside the save what they are called together. */
  readonly className: string | null;
  /** `"torch.float32"`; null for all but leaves. */
  readonly dtype: string | null;
  /** Logical shape of a leaf, batch size of a node; null where there is none. */
  readonly shape: readonly number[] | null;
  /** Number of leading batch dimensions in `shape`. */
  readonly batchDims: number;
  /** Names of the batch dimensions, null where they have none. */
  readonly names: readonly (string | null)[] | null;
  /** Payload bytes of a leaf; null where it would have to be counted. */
  readonly nbytes: number | null;
  /** Number of children, null for leaves; -1 where it is not known without opening the level. */
  readonly children: number | null;
  /** A strided nested tensor: its rows have different shapes. */
  readonly nested: boolean;
  /** A cell of it can be edited. */
  readonly writable: boolean;
  /** What stands right of the key where shape and dtype do not. */
  readonly note: string;
  readonly badges: readonly Badge[];
};

/** A row found by the filter; `path` is its nested key. */
export type FoundRow = Row & { readonly path: Path };

/** One page of the children of `path`: `rows[0]` is child number `start` of `total`. */
export type Page = {
  readonly path: Path;
  readonly start: number;
  readonly total: number;
  readonly rows: readonly Row[];
};

/** Ring state of a replay buffer. */
export type Fill = {
  readonly capacity: number;
  readonly rows: number;
  readonly cursor: number | null;
  readonly oldest: number | null;
};

/** What the header says. A trait: the same for all views. */
export type Head = {
  readonly name: string;
  readonly location: string;
  readonly form: "directory" | "archive" | "memory";
  readonly kind: Kind;
  readonly kindText: string;
  readonly mode: "r" | "r+";
  /** `"256 of 256 rows, oldest at 144"`, or empty. */
  readonly rowsText: string;
  readonly fill: Fill | null;
  readonly leaves: number;
  readonly nbytes: number;
  /** false: there are more leaves and bytes than were counted. */
  readonly counted: boolean;
  readonly problems: number;
  /** Rises with every reload; a view that holds data of an older generation asks again. */
  readonly generation: number;
  /** The first page of the root's children, so that the first paint needs no request. */
  readonly root: Row;
  readonly page: Page;
};

/** State of the editor. A trait: the same for all views. */
export type Edits = {
  readonly count: number;
  readonly undo: boolean;
  readonly redo: boolean;
  /** Archive entries whose checksum does not fit any more. */
  readonly stale: number;
  /** File name of the journal, empty where none is kept. */
  readonly journal: string;
};

export type Request = { readonly id: string; readonly op: string; readonly args: object };
export type Cancel = { readonly id: string; readonly op: "cancel" };

export type Answer =
  | { readonly id: string | null; readonly kind: "reply"; readonly value: unknown }
  | {
      readonly id: string | null;
      readonly kind: "error";
      readonly error: { readonly code: string; readonly message: string };
    }
  | { readonly id: string; readonly kind: "progress"; readonly done: number; readonly total: number };

/** Sent by the kernel unasked, to every view. */
export type Event =
  /** Payload bytes changed: of the leaf `path`, or of anything where it is null. */
  | {
      readonly kind: "event";
      readonly event: "changed";
      readonly path: Path | null;
      readonly rows: readonly [number, number] | null;
    }
  /** The save was read again: forget everything. The `head` trait follows or has come. */
  | { readonly kind: "event"; readonly event: "reloaded" };

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null;

/** Whether a custom message is an answer in the form of this protocol. */
export function isAnswer(message: unknown): message is Answer {
  if (!isObject(message) || !(typeof message.id === "string" || message.id === null)) return false;
  if (message.kind === "reply") return "value" in message;
  if (message.kind === "progress") return typeof message.done === "number" && typeof message.total === "number";
  if (message.kind !== "error" || !isObject(message.error)) return false;
  return typeof message.error.code === "string" && typeof message.error.message === "string";
}

/** Whether a custom message is an event in the form of this protocol. */
export function isEvent(message: unknown): message is Event {
  return isObject(message) && message.kind === "event" && (message.event === "changed" || message.event === "reloaded");
}

/** Whether two nested keys are the same. */
export function samePath(a: Path | null, b: Path | null): boolean {
  return a === b || (!!a && !!b && a.length === b.length && a.every((part, i) => part === b[i]));
}
