/**
 * This module knows the Episodes panel: the strip, and a table with a line per episode.
 * It does not know how episodes are found.
 */
import type { Context, Selection, View } from "./context";
import { h, link, setText } from "./dom";
import type { Path } from "./protocol";
import { createStrip, type Episode, numberText } from "./strip";
import { createTask } from "./task";
import { bytesText } from "./text";

/** Reply of `episodes`. */
export type Episodes = {
  /** The save that holds the path that was asked for. */
  readonly path: Path;
  readonly summary: string;
  readonly episodes: readonly Episode[];
  /** Number of all episodes; the list may be cut. */
  readonly total: number;
};

const AUTO_NBYTES = 1_000_000_000;
const LINES = 500;

export function createEpisodes(ctx: Context): View {
  const task = createTask(ctx);
  const summary = h("p", { class: "tdv-summary" });
  const body = h("div", { class: "tdv-report" });
  const run = link("find again", () => void ask());
  const element = h("div", { class: "tdv-audit" }, h("div", { class: "tdv-bar" }, summary, run), task.element, body);
  let wanted: Path = [];
  let shown: { readonly generation: number; readonly path: Path } | null = null;

  /** Whether what is shown are the episodes of the save that holds the selected node. */
  const current = () =>
    shown?.generation === ctx.state.head.generation && shown.path.every((part, place) => part === wanted[place]);

  async function ask(): Promise<void> {
    const { generation } = ctx.state.head;
    shown = { generation, path: wanted };
    body.replaceChildren();
    const reply = await task.run<Episodes>("episodes", { path: wanted }, "Finding episodes");
    if (!reply) return;
    shown = { generation, path: reply.path };
    if (!current()) return void ask(); // another save was selected meanwhile
    setText(summary, reply.summary || "No episodes: there are no end flags.");
    if (reply.episodes.length) body.replaceChildren(createStrip(reply.episodes, pick), createList(reply));
  }

  function pick(episode: Episode): void {
    const rows = episode.rows[0];
    if (rows) ctx.select(shown?.path ?? [], { rows, tab: "Table" });
  }

  function createList(reply: Episodes): HTMLElement {
    const shown = reply.episodes.slice(0, LINES);
    const head = ["episode", "first row", "steps", "return", "end", ""].map((text) => h("th", { scope: "col" }, text));
    const lines = shown.map((episode) =>
      h(
        "tr",
        {},
        ...[episode.number, episode.rows[0]?.[0] ?? "", episode.length, numberText(episode.return)].map((value) =>
          h("td", {}, String(value)),
        ),
        h("td", { class: "tdv-left" }, episode.end + (episode.cut ? ", cut" : "")),
        h(
          "td",
          {},
          link("show rows", () => pick(episode)),
        ),
      ),
    );
    const rest = reply.total - shown.length;
    return h(
      "div",
      { class: "tdv-scroll", tabindex: 0, role: "region", "aria-label": "List of episodes" },
      h("table", { class: "tdv-list" }, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...lines)),
      rest > 0 && h("p", { class: "tdv-empty" }, `${rest} more are in tdview.episodes(…).`),
    );
  }

  return {
    element,
    show(selection: Selection | null) {
      wanted = selection?.path ?? [];
      if (current() || task.running) return;
      if (ctx.state.head.nbytes <= AUTO_NBYTES) void ask();
      else setText(summary, `Reads the end flags of ${bytesText(ctx.state.head.nbytes)}.`);
    },
    destroy: () => task.stop(),
  };
}
