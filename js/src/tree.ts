/**
 * This module knows how the visible rows of a `FlatTree` are drawn, scrolled and operated by mouse and keyboard.
 * It does not know where pages come from nor what a selection leads to.
 */
import { debounced, h, setAttribute, setText, uniqueId } from "./dom";
import { type FlatTree, type Item, isBranch, type Missing } from "./flat-tree";
import { type Badge, type Path, samePath } from "./protocol";
import { family, keyText, pathText, typeText } from "./text";

/** Height of a row in pixels; the style sheet says the same. */
const ROW = 24;
const OVERSCAN = 6;
const FOLLOW_MS = 180;

export type TreeOptions = {
  signal: AbortSignal;
  label: string;
  /** A row was chosen: at once by click, Enter and Space, after a rest by the arrow keys. */
  onSelect: (item: Item) => void;
  /** Rows are shown whose pages have not come. */
  onMissing: (pages: Missing[]) => void;
  /** Escape was pressed. */
  onEscape: () => void;
};

type Parts = {
  row: HTMLElement;
  twist: HTMLElement;
  dot: HTMLElement;
  crumb: HTMLElement;
  key: HTMLElement;
  badges: HTMLElement;
  type: HTMLElement;
};

/** A virtualised tree after the W3C pattern: the container has the focus and names the active row. */
export class TreeView {
  readonly element: HTMLElement;
  readonly #spacer = h("div", { class: "tdv-spacer", role: "presentation" });
  readonly #id = uniqueId();
  readonly #parts = new Map<number, Parts>();
  readonly #follow: ((item: Item) => void) & { cancel(): void };
  #selected: Path | null = null;
  #marks: ReadonlyMap<string, Badge> = new Map();
  #typed = "";
  #typedAt = 0;
  #late = false;
  #scrolled = 0;
  #frame = 0;

  readonly #options: TreeOptions;
  #model: FlatTree;

  constructor(model: FlatTree, options: TreeOptions) {
    const { signal } = options;
    this.#model = model;
    this.#options = options;
    this.element = h(
      "div",
      { class: "tdv-tree", role: "tree", tabindex: 0, "aria-label": options.label },
      this.#spacer,
    );
    this.#follow = debounced((item: Item) => options.onSelect(item), FOLLOW_MS, signal);
    this.element.addEventListener("scroll", () => this.#onScroll(), { passive: true, signal });
    this.element.addEventListener("keydown", (event) => this.#onKey(event), { signal });
    this.element.addEventListener("click", (event) => this.#onClick(event), { signal });
    const observer = new ResizeObserver(() => this.#onResize());
    observer.observe(this.element);
    signal.addEventListener("abort", () => {
      observer.disconnect();
      cancelAnimationFrame(this.#frame);
    });
    this.#drawNow();
  }

  /** Shows other rows. */
  setModel(model: FlatTree): void {
    this.#model = model;
    this.scrollToActive();
    this.#drawNow();
  }

  /** Marks a node as selected; draws, asks nothing. */
  setSelected(path: Path | null): void {
    this.#selected = path;
    this.draw();
  }

  /** Sets the marks of findings by nested key (as JSON). */
  setMarks(marks: ReadonlyMap<string, Badge>): void {
    this.#marks = marks;
    this.draw();
  }

  /** Draws again before the next frame. */
  draw(): void {
    if (this.#frame || this.#options.signal.aborted) return;
    this.#frame = requestAnimationFrame(() => this.#drawNow());
  }

  /** Brings the active row into the window. */
  scrollToActive(): void {
    const top = this.#model.active * ROW;
    const { scrollTop, clientHeight } = this.element;
    this.#spacer.style.height = `${this.#model.size * ROW}px`;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (clientHeight && top + ROW > scrollTop + clientHeight) this.element.scrollTop = top + ROW - clientHeight;
    if (clientHeight) this.#scrolled = this.element.scrollTop;
  }

  /** Opens or closes a branch. */
  toggle(item: Item, open = !item.open): void {
    this.#model.setOpen(item, open);
    if (open && !this.#model.isLoaded(item)) this.#options.onMissing([{ path: item.path, start: 0, count: 0 }]);
    this.draw();
  }

  #drawNow(): void {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    const model = this.#model;
    const height = this.element.clientHeight || 20 * ROW;
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW) - OVERSCAN);
    const last = Math.min(model.size - 1, Math.ceil((this.element.scrollTop + height) / ROW) + OVERSCAN);
    this.#spacer.style.height = `${model.size * ROW}px`;
    for (const [position, { row }] of this.#parts) {
      if (position >= first && position <= last) continue;
      row.remove();
      this.#parts.delete(position);
    }
    for (let position = first; position <= last; position++) this.#drawRow(position);
    const shown = model.active >= first && model.active <= last;
    setAttribute(this.element, "aria-activedescendant", shown ? this.#rowId(model.active) : null);
    const { item } = model.at(model.active);
    if (this.#late && item) this.#followWhenLoaded(item);
    const missing = model.missing(first, last);
    if (missing.length) this.#options.onMissing(missing);
  }

  #onScroll(): void {
    if (this.element.clientHeight) this.#scrolled = this.element.scrollTop;
    this.draw();
  }

  /** A notebook takes outputs out of the page that are scrolled away, and an element forgets its scroll position then. */
  #onResize(): void {
    if (this.element.clientHeight && this.element.scrollTop !== this.#scrolled) this.element.scrollTop = this.#scrolled;
    this.draw();
  }

  #rowId(position: number): string {
    return `${this.#id}-${position}`;
  }

  #partsAt(position: number): Parts {
    const known = this.#parts.get(position);
    if (known) return known;
    const span = (name: string, hidden = false) => h("span", { class: name, "aria-hidden": hidden && "true" });
    const parts = {
      row: h("div", { class: "tdv-row", role: "treeitem", id: this.#rowId(position) }),
      twist: span("tdv-twist", true),
      dot: span("tdv-dot", true),
      crumb: span("tdv-crumb"),
      key: span("tdv-key"),
      badges: span("tdv-badges"),
      type: span("tdv-type"),
    };
    parts.row.append(parts.twist, parts.dot, parts.crumb, parts.key, parts.badges, parts.type);
    parts.row.style.top = `${position * ROW}px`;
    parts.row.dataset.position = String(position);
    // Rows stand in the DOM in the order in which they are read.
    const after = [...this.#parts.keys()].filter((other) => other < position).reduce((a, b) => Math.max(a, b), -1);
    const before = this.#parts.get(after);
    if (before) before.row.after(parts.row);
    else this.#spacer.prepend(parts.row);
    this.#parts.set(position, parts);
    return parts;
  }

  #drawRow(position: number): void {
    const { parent, index, item } = this.#model.at(position);
    const { row, twist, dot, crumb, key, badges, type } = this.#partsAt(position);
    const branch = item !== undefined && isBranch(item.row);
    setAttribute(row, "aria-level", item?.level ?? (parent?.level ?? 0) + 1);
    setAttribute(row, "aria-setsize", parent?.total ?? 1);
    setAttribute(row, "aria-posinset", index + 1);
    setAttribute(row, "aria-expanded", branch ? String(item.open) : null);
    setAttribute(row, "aria-selected", String(item !== undefined && samePath(item.path, this.#selected)));
    setAttribute(row, "aria-busy", item ? null : "true");
    row.classList.toggle("tdv-cursor", position === this.#model.active);
    row.style.paddingInlineStart = `${8 + 16 * ((item?.level ?? (parent?.level ?? 0) + 1) - 1)}px`;
    setText(twist, branch ? (item.open ? "▾" : "▸") : "");
    setAttribute(dot, "class", `tdv-dot tdv-${item ? family(item.row) : "value"}`);
    setText(crumb, item && item.path.length >= item.level ? `${pathText(item.path.slice(0, -1))} › ` : "");
    setText(key, item ? keyText(item.row) : "…");
    setText(type, item ? typeText(item.row) : "");
    const mark = item && this.#marks.get(JSON.stringify(item.path));
    const wanted = item ? (mark ? [mark] : item.row.badges) : [];
    if (badges.childElementCount || wanted.length) {
      badges.replaceChildren(
        ...wanted.map((badge) => h("span", { class: `tdv-badge tdv-${badge.severity}` }, badge.text)),
      );
    }
    row.title = item ? `${keyText(item.row)}  ${typeText(item.row)}` : "";
  }

  #onClick(event: MouseEvent): void {
    const row = (event.target as Element).closest<HTMLElement>(".tdv-row");
    if (!row) return;
    const position = Number(row.dataset.position);
    const { item } = this.#model.at(position);
    this.#model.active = position;
    this.element.focus({ preventScroll: true });
    if (!item) {
      this.draw();
      return;
    }
    const onTwist = (event.target as Element).closest(".tdv-twist");
    // A click on a branch selects and opens it; a click on the selected one closes it again.
    if (onTwist) this.toggle(item);
    else if (isBranch(item.row) && (!item.open || samePath(item.path, this.#selected))) this.toggle(item);
    if (!onTwist) this.#choose(item);
    this.draw();
  }

  #choose(item: Item): void {
    this.#late = false;
    this.#follow.cancel();
    this.#options.onSelect(item);
  }

  #onKey(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (!this.#apply(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  #apply(key: string): boolean {
    const model = this.#model;
    if (key === "Escape") {
      this.#options.onEscape();
      return true;
    }
    if (key === "*") {
      for (const item of model.closedSiblings()) this.toggle(item, true);
      return true;
    }
    const typing = key.length === 1 && (key !== " " || this.#isTyping());
    if (!typing) this.#typed = "";
    const page = Math.max(1, Math.floor(this.element.clientHeight / ROW) - 1);
    const deed = typing ? this.#typeAhead(key) : model.press(key, page);
    const { item } = model.at(model.active);
    if (deed === "none" && !typing && !/^(Arrow|Page|Home|End)/.test(key)) return false;
    if (deed === "moved") this.scrollToActive();
    if (deed === "moved") this.#followWhenLoaded(item);
    if ((deed === "open" || deed === "close") && item) this.toggle(item, deed === "open");
    if (deed === "select" && item) {
      if (isBranch(item.row)) this.toggle(item);
      this.#choose(item);
    }
    this.#drawNow();
    return true;
  }

  /** The row that a jump reached may have to be fetched first. */
  #followWhenLoaded(item: Item | undefined): void {
    this.#follow.cancel();
    this.#late = item === undefined;
    if (item) this.#follow(item);
  }

  #isTyping(): boolean {
    return this.#typed !== "" && Date.now() - this.#typedAt < 700;
  }

  #typeAhead(key: string) {
    this.#typed = this.#isTyping() ? this.#typed + key : key;
    this.#typedAt = Date.now();
    return this.#model.typeAhead(this.#typed);
  }
}
