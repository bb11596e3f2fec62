/**
 * This module knows the Episodes panel: the strip, and a table with a line per episode.
 * It does not know how episodes are found.
 */
import type { Context, View } from "./context";
import { h, link, setText } from "./dom";
import { createStrip, type Episode, numberText } from "./strip";
import { createTask } from "./task";
import { bytesText } from "./text";

/** Reply of `episodes`. */
export type Episodes = {
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
  let asked = -1;

  async function ask(): Promise<void> {
    asked = ctx.state.head.generation;
    const reply = await task.run<Episodes>("episodes", {}, "Finding episodes");
    if (!reply) return;
    setText(summary, reply.summary || "No episodes: there are no end flags.");
    if (reply.episodes.length) body.replaceChildren(createStrip(reply.episodes, pick), createList(reply));
    else body.replaceChildren();
  }

  function pick(episode: Episode): void {
    const rows = episode.rows[0];
    if (rows) ctx.select([], { rows, tab: "Table" });
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
    show() {
      if (asked === ctx.state.head.generation || task.running) return;
      if (ctx.state.head.nbytes <= AUTO_NBYTES) void ask();
      else setText(summary, `Reads the end flags of ${bytesText(ctx.state.head.nbytes)}.`);
    },
    destroy: () => task.stop(),
  };
}
