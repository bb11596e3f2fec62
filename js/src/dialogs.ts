/**
 * This module knows the dialogs that write another file or more rows: their fields, progress, stop, and how they end.
 * It does not know how anything is written.
 */
import type { Context, Selection } from "./context";
import { button, h, setText, uniqueId } from "./dom";
import { createTask } from "./task";

type Field = {
  readonly name: string;
  readonly label: string;
  readonly hint?: string;
} & (
  | { readonly kind: "text"; readonly value: string }
  | { readonly kind: "select"; readonly options: readonly (readonly [value: string, label: string])[] }
  | { readonly kind: "check" }
);

type Form = {
  readonly title: string;
  readonly intro: string;
  readonly fields: readonly Field[];
  /** Text of the button that begins. */
  readonly action: string;
  readonly op: string;
  readonly what: string;
  /** Asked for a forecast of what the fields lead to, after each change. */
  readonly forecast?: string;
};

type Done = { readonly message: string };

const COMPRESSIONS = [
  ["", "none (mapped in place)"],
  ["deflate", "deflate"],
  ["bzip2", "bzip2"],
  ["lzma", "lzma"],
] as const;

/** Shows a modal form; the promise ends when it is closed. */
function openForm(ctx: Context, host: HTMLElement, form: Form): void {
  const id = uniqueId();
  const task = createTask(ctx);
  const controls = new Map<string, HTMLInputElement | HTMLSelectElement>();
  const lines = form.fields.map((field) => {
    const control = createControl(field, `${id}-${field.name}`);
    controls.set(field.name, control);
    const hint = field.hint ? h("span", { class: "tdv-dim", id: `${control.id}-hint` }, field.hint) : null;
    if (hint) control.setAttribute("aria-describedby", hint.id);
    const label = h("label", { for: control.id }, field.label);
    return h("div", { class: `tdv-field tdv-field-${field.kind}` }, label, control, hint);
  });
  const forecast = h("p", { class: "tdv-forecast", role: "status" });
  const start = h("button", { type: "submit", class: "tdv-button tdv-primary" }, form.action);
  const close = button("Close", () => dialog.close());
  const body = h(
    "form",
    { method: "dialog" },
    ...lines,
    forecast,
    task.element,
    h("div", { class: "tdv-actions" }, close, start),
  );
  const dialog = h(
    "dialog",
    { class: "tdv-dialog", "aria-labelledby": `${id}-title` },
    h("h2", { id: `${id}-title` }, form.title),
    h("p", { class: "tdv-dim" }, form.intro),
    body,
  );

  const values = () =>
    Object.fromEntries(
      [...controls].map(([name, control]) => [
        name,
        control instanceof HTMLInputElement && control.type === "checkbox" ? control.checked : control.value,
      ]),
    );

  async function run(event: Event): Promise<void> {
    event.preventDefault();
    if (task.running) return;
    start.disabled = true;
    const done = await task.run<Done>(form.op, values(), form.what);
    start.disabled = false;
    if (!done) return;
    setText(forecast, done.message);
    ctx.notify(done.message);
    start.hidden = true;
    close.focus();
  }

  async function foresee(): Promise<void> {
    if (!form.forecast || start.hidden) return;
    try {
      const { value } = await ctx.rpc.request<Done>(form.forecast, values(), {
        signal: ctx.signal,
        onProgress: () => undefined,
      });
      setText(forecast, value.message);
    } catch (reason) {
      setText(forecast, (reason as Error).message);
    }
  }

  body.addEventListener("submit", (event) => void run(event));
  body.addEventListener("change", () => void foresee());
  // The notebook must not hear what is typed here.
  dialog.addEventListener("keydown", (event) => event.stopPropagation());
  dialog.addEventListener("close", () => {
    task.stop();
    dialog.remove();
  });
  ctx.signal.addEventListener("abort", () => dialog.remove(), { once: true });
  host.append(dialog);
  dialog.showModal();
  void foresee();
}

function createControl(field: Field, id: string): HTMLInputElement | HTMLSelectElement {
  if (field.kind === "select") {
    return h("select", { id }, ...field.options.map(([value, label]) => h("option", { value }, label)));
  }
  if (field.kind === "check") return h("input", { id, type: "checkbox" });
  return h("input", { id, type: "text", value: field.value, spellcheck: "false", autocomplete: "off" });
}

const OVERWRITE = { name: "existsok", label: "Replace what is there", kind: "check" } as const;

/** The location without `.tdz`. */
const stem = (location: string) => location.replace(/\.tdz$/i, "").replace(/\/+$/, "");

export function openPack(ctx: Context, host: HTMLElement): void {
  const { location, form } = ctx.state.head;
  openForm(ctx, host, {
    title: "Pack into an archive",
    intro: "Writes the save as one .tdz file. This save is not changed.",
    action: "Pack",
    op: "pack",
    what: "Packing",
    fields: [
      {
        name: "path",
        label: "Path",
        kind: "text",
        value: form === "archive" ? `${stem(location)}-packed.tdz` : `${stem(location)}.tdz`,
      },
      {
        name: "compression",
        label: "Compression",
        kind: "select",
        options: COMPRESSIONS,
        hint: "A compressed payload cannot be edited in place.",
      },
      OVERWRITE,
    ],
  });
}

export function openUnpack(ctx: Context, host: HTMLElement): void {
  const { location } = ctx.state.head;
  openForm(ctx, host, {
    title: "Unpack into a directory",
    intro: "Writes the save as a directory of memory-mapped files. This save is not changed.",
    action: "Unpack",
    op: "unpack",
    what: "Unpacking",
    fields: [{ name: "path", label: "Path", kind: "text", value: `${stem(location)}-unpacked` }, OVERWRITE],
  });
}

export function openAppend(ctx: Context, host: HTMLElement, selection: Selection | null): void {
  const { location, form } = ctx.state.head;
  const archive = form === "archive";
  const rows = selection?.rows;
  openForm(ctx, host, {
    title: "Append rows",
    intro: archive
      ? "An archive cannot grow in place: it is unpacked, the rows are appended, and a new archive is packed."
      : "The rows are written behind the last row of every leaf. An interrupted append can be recovered.",
    action: "Append",
    op: "append",
    what: "Appending",
    forecast: "append.forecast",
    fields: [
      {
        name: "source",
        label: "Rows from",
        kind: "select",
        options: [
          ["path", "another save"],
          ["variable", "a variable of the notebook"],
          ["selection", "the selection in the table"],
        ],
      },
      {
        name: "value",
        label: "Path or name",
        kind: "text",
        value: "",
        ...(rows ? { hint: `selected: rows ${rows[0]} to ${rows[1]}` } : {}),
      },
      ...(archive
        ? [
            { name: "path", label: "New archive", kind: "text", value: `${stem(location)}-appended.tdz` } as const,
            OVERWRITE,
          ]
        : []),
    ],
  });
}
