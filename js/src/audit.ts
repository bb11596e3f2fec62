/**
 * This module knows the Audit panel: the rules of replay buffers, the checks of the files, and what both found.
 * It does not know any rule.
 */
import type { Context, View } from "./context";
import { h, link, setText } from "./dom";
import { createFindings } from "./findings";
import type { Problem } from "./protocol";
import { createStrip, type Episode } from "./strip";
import { createTask } from "./task";
import { bytesText, countText } from "./text";

/** Reply of `verify` and `audit`. */
export type Report = {
  readonly ok: boolean;
  readonly problems: readonly Problem[];
  /** Number of all problems; `problems` may be cut. */
  readonly total: number;
  /** One line about the episodes, empty where there are none. */
  readonly summary: string;
  readonly episodes: readonly Episode[];
};

/** Below this an audit starts by itself. */
const AUTO_NBYTES = 256_000_000;

export type AuditView = View & { verify(): void };

export function createAudit(ctx: Context, onReport: (report: Report) => void): AuditView {
  const task = createTask(ctx);
  const summary = h("p", { class: "tdv-summary" });
  const body = h("div", { class: "tdv-report" });
  const run = link("run again", () => void ask("audit", "Auditing"));
  const verifyFiles = link("verify files", () => void ask("verify", "Verifying"));
  const element = h(
    "div",
    { class: "tdv-audit" },
    h("div", { class: "tdv-bar" }, summary, run, verifyFiles),
    task.element,
    body,
  );
  let asked = -1;

  async function ask(op: "audit" | "verify", what: string): Promise<void> {
    asked = ctx.state.head.generation;
    const report = await task.run<Report>(op, {}, what);
    if (!report) return;
    const sound = op === "verify" ? "The files are sound." : "No rule found anything.";
    setText(summary, report.summary || (report.total ? "" : sound));
    body.replaceChildren(
      ...(report.episodes.length ? [createStrip(report.episodes, pick)] : []),
      createFindings(ctx, report.problems, report.total),
    );
    const found = report.total ? countText(report.total, "finding") : "sound";
    ctx.notify(`${op === "verify" ? "Verified" : "Audited"}: ${found}.`);
    onReport(report);
  }

  function pick(episode: Episode): void {
    const rows = episode.rows[0];
    if (rows) ctx.select([], { rows, tab: "Table" });
  }

  return {
    element,
    show() {
      if (asked === ctx.state.head.generation || task.running) return;
      if (ctx.state.head.counted && ctx.state.head.nbytes <= AUTO_NBYTES) void ask("audit", "Auditing");
      else setText(summary, `Reads ${bytesText(ctx.state.head.nbytes)}.`);
    },
    verify: () => void ask("verify", "Verifying"),
    destroy: () => task.stop(),
  };
}
