/**
 * This module knows the strip of episodes: one box an episode, as wide as it is long and as strong as its return is high.
 * It does not know how episodes are found.
 */
import { h } from "./dom";

/** An episode of a replay buffer; `rows` are half-open storage ranges in the order of time. */
export type Episode = {
  readonly number: number;
  readonly rows: readonly (readonly [number, number])[];
  readonly length: number;
  readonly return: number | string | null;
  /** `"terminated"`, `"truncated"`, `"done"`, `"open"`. */
  readonly end: string;
  /** Its first or last step is not in the buffer. */
  readonly cut: boolean;
};

/** A return or a length as short text. */
export function numberText(value: number | string | null): string {
  if (value === null) return "–";
  const number = Number(value);
  return Number.isInteger(number) ? String(number) : number.toPrecision(4);
}

export function episodeText(episode: Episode): string {
  const first = episode.rows[0]?.[0] ?? 0;
  const cut = episode.cut ? ", cut" : "";
  return `episode ${episode.number}: ${episode.length} steps from row ${first}, return ${numberText(episode.return)}, ${episode.end}${cut}`;
}

/** Above this a box would be thinner than a pixel. */
const MOST = 600;

/** The strip; `pick` is called with the episode that was clicked. */
export function createStrip(episodes: readonly Episode[], pick: (episode: Episode) => void): HTMLElement {
  const shown = episodes.slice(0, MOST);
  const returns = shown.map((episode) => Number(episode.return ?? Number.NaN)).filter(Number.isFinite);
  const low = Math.min(...returns);
  const span = Math.max(...returns) - low || 1;
  const strip = h("div", {
    class: "tdv-strip",
    role: "group",
    "aria-label": "Episodes: width is length, strength is return",
  });
  for (const episode of shown) {
    const value = Number(episode.return ?? Number.NaN);
    const strength = Number.isFinite(value) ? 0.3 + (0.7 * (value - low)) / span : 0.3;
    const box = h("button", {
      type: "button",
      class: `tdv-episode${episode.cut ? " tdv-cut" : ""}`,
      title: episodeText(episode),
      "aria-label": episodeText(episode),
      onclick: () => pick(episode),
    });
    box.style.flexGrow = String(Math.max(episode.length, 1));
    box.style.setProperty("--tdv-strength", `${Math.round(100 * strength)}%`);
    strip.append(box);
  }
  return strip;
}
