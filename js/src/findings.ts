/**
 * This module knows how a list of findings is shown, with a way to the rows that each names.
 * It does not know who found them.
 */
import type { Context } from "./context";
import { h, link } from "./dom";
import type { Problem, Severity } from "./protocol";
import { dottedText, severityText } from "./text";

const ORDER: readonly Severity[] = ["error", "warning", "note"];

/** Findings, the worst first; `total` says how many there are where not all were sent. */
export function createFindings(ctx: Context, problems: readonly Problem[], total = problems.length): HTMLElement {
  const sorted = ORDER.flatMap((severity) => problems.filter((problem) => problem.severity === severity));
  const more = total > problems.length ? `, ${total - problems.length} more not shown` : "";
  return h(
    "section",
    { class: "tdv-findings", "aria-label": "Findings" },
    h("h3", {}, "Findings ", h("span", { class: "tdv-dim" }, severityText(problems) + more)),
    sorted.length > 0 && h("ul", {}, ...sorted.map((problem) => createFinding(ctx, problem))),
  );
}

function createFinding(ctx: Context, problem: Problem): HTMLElement {
  const first = problem.rows[0];
  const jump = first
    ? link(`show row ${first[0]}`, () => ctx.select(problem.key, { rows: first, tab: "Table" }))
    : problem.key.length > 0 && link("show", () => ctx.select(problem.key, { tab: "Info" }));
  // One line, and the whole text by click: a long list stays readable.
  const message = h("button", {
    type: "button",
    class: "tdv-message",
    title: problem.message,
    "aria-expanded": "false",
  });
  message.textContent = problem.message;
  message.addEventListener("click", () => {
    message.setAttribute("aria-expanded", String(message.getAttribute("aria-expanded") === "false"));
  });
  const where = dottedText(problem.key);
  return h(
    "li",
    { class: "tdv-finding" },
    h("span", { class: `tdv-badge tdv-${problem.severity}` }, problem.severity),
    h("span", { class: "tdv-code" }, problem.code),
    problem.key.length > 0 && h("span", { class: "tdv-where", title: where }, where),
    message,
    jump,
  );
}
