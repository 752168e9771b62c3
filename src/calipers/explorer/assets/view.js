// The results as they are shown: status, headline, charts, table, evidence, notes, verdicts.

import { drawBrackets, drawCurves } from "./charts.js";

const find = (id) => document.getElementById(id);

export function made(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

export const tip = {
  show(text, x, y) {
    const box = find("tip");
    box.textContent = text;
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    box.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - width - 8))}px`;
    box.style.top = `${y + 18 + height > innerHeight ? Math.max(8, y - height - 12) : y + 18}px`;
  },
  hide() { find("tip").hidden = true; },
};

let statusShown = "";

export function showStatus(entries, onCancel) {
  const noted = entries.filter((entry) => entry.error || entry.busy);
  const box = find("status");
  const wanted = noted.map((entry) => `${entry.name}${entry.busy} ${entry.error}`).join("\n");
  if (wanted !== statusShown) {
    statusShown = wanted;
    box.replaceChildren(...noted.map((entry) => statusNote(entry, onCancel)));
  }
  for (const entry of noted) {
    const place = box.querySelector(`[data-seconds="${entry.name}"]`);
    if (place) place.textContent = `${entry.seconds} s`;
  }
}

function statusNote(entry, onCancel) {
  if (entry.error) return made("div", { class: "note error", role: "alert" }, made("span", {}, made("b", {}, `${entry.name}: `), entry.error));
  const cancel = made("button", { type: "button" }, "Cancel");
  cancel.addEventListener("click", () => onCancel(entry.index));
  const seconds = made("span", { "data-seconds": entry.name });
  return made("div", { class: `note c${entry.index}` }, made("span", { class: "spin" }), made("span", {}, `Measuring ${entry.name} … `, seconds), cancel);
}

// `shown`: the runs that have an answer, as {name, color, answer, stale}.
export function showResults(shown, selected) {
  const several = shown.length > 1;
  const first = shown[0]?.answer.rows[0];
  find("headline-title").textContent = first ? first.quantity : "epsilon";
  drawBrackets(find("brackets"), shown.map((run) => ({ ...run.answer.rows[0], name: run.name, color: run.color })), "Brackets of epsilon");
  const chosen = shown.find((run) => run.index === selected);
  find("words").textContent = chosen ? chosen.answer.words : "";
  find("sentence").textContent = chosen ? (several ? `${chosen.name}: ` : "") + chosen.answer.verdict : "";
  find("report-this").replaceChildren(...(chosen ? [made("b", {}, "Report this: "), chosen.answer.report_this] : []));
  // On a narrow screen the form hides the results; this line stays in sight.
  find("glance").replaceChildren(...shown.map((run) => {
    const { lower, upper } = run.answer.rows[0];
    return made("span", { class: `c${run.color}` }, made("span", { class: "dot" }), run.stale ? "…" : `epsilon ${lower.shown} – ${upper.exact === null ? "∞" : upper.shown}`);
  }));
  showCharts(shown);
  showNumbers(shown, several);
  for (const place of document.querySelectorAll(".of")) place.textContent = several && chosen ? `of ${chosen.name}` : "";
  find("evidence").replaceChildren(...(chosen?.answer.evidence ?? []).map(evidenceItem));
  find("notes").replaceChildren(...(chosen?.answer.measurement.notes ?? []).map((note) => made("li", {}, note)));
  for (const button of document.querySelectorAll("[data-save]")) button.disabled = !chosen || chosen.stale;
  for (const card of document.querySelectorAll("#results > .card, #results > .pair")) card.classList.toggle("stale", shown.some((run) => run.stale) || !shown.length);
}

export function showCharts(shown) {
  const of = (name, x) => shown.map((run) => ({ name: run.name, color: run.color, x: run.answer.curves[name][x], lower: run.answer.curves[name].lower, upper: run.answer.curves[name].upper, shown: run.answer.curves[name].shown }));
  const profiles = of("profile", "epsilon");
  const last = Math.max(...profiles.map((run) => run.x[run.x.length - 1]), 1e-12);
  drawCurves(find("low-rates"), {
    id: "low-rates", x: "FPR", y: "TPR", xTitle: "false positive rate", yTitle: "true positive rate", log: true, low: 1e-6, high: 1, ends: ["lower", "upper"],
    first: 1e-6, last: 1, ideal: true, series: of("low_rates", "fpr"),
  }, tip);
  drawCurves(find("profile"), {
    id: "profile", x: "epsilon", y: "delta", xTitle: "epsilon", yTitle: "delta", log: true, low: 1e-8, high: 1, ends: ["lower", "upper"],
    last: profiles.length ? last : 1, series: profiles,
  }, tip);
  drawCurves(find("tradeoff"), {
    id: "tradeoff", x: "FPR", y: "FNR", xTitle: "false positive rate", yTitle: "false negative rate", log: false, low: 0, high: 1,
    ends: ["upper", "lower"], last: 1, ideal: true, series: of("tradeoff", "alpha"),
  }, tip);
}

function number(end, what, refuted = false) {
  if (!end) return made("td", {}, "");
  const cell = made("td", refuted ? { class: "refuted" } : {});
  const shown = end.exact === null ? "∞" : end.shown;
  cell.append(made("span", { tabindex: "0", "data-what": what, "data-exact": end.exact ?? "no finite bound is proven" }, shown));
  return cell;
}

function showNumbers(shown, several) {
  const head = made("tr", {}, made("th", {}, "quantity"));
  const body = [];
  if (!several) {
    head.append(made("th", {}, "at least (attack)"), made("th", {}, "at most (proof)"), made("th", {}, "standard accounting"));
    for (const row of shown[0]?.answer.rows ?? []) {
      body.push(made("tr", { "data-kind": row.kind }, quantity(row.quantity), number(row.lower, "attack"), number(row.upper, "proof"), number(row.claim, row.refuted ? "claim, refuted by the attack" : "claim", row.refuted)));
    }
  } else {
    for (const run of shown) head.append(made("th", { class: `c${run.color}` }, made("span", { class: "dot" }), ` ${run.name}`));
    shown[0].answer.rows.forEach((row, i) => {
      const line = made("tr", { "data-kind": row.kind }, quantity(row.quantity));
      for (const run of shown) line.append(interval(run.answer.rows[i]));
      body.push(line);
    });
  }
  find("numbers").replaceChildren(made("thead", {}, head), made("tbody", {}, ...body));
}

// A setting (delta = 1e-5) stays on one line; a hyphen would part it.
function quantity(words) {
  const parts = words.split(/(\S+ = [\d.]+(?:e-?\d+)?)/);
  return made("td", {}, ...parts.map((part, i) => (i % 2 ? made("span", { class: "together" }, part) : part)));
}

function interval(row) {
  const cell = number(row.upper, "proof");
  if (row.lower) cell.prepend(...number(row.lower, "attack").childNodes, " – ");
  return cell;
}

function evidenceItem(entry) {
  return made("li", {}, made("b", {}, `${entry.licenses}: `), `${entry.kind}. ${entry.statement} `, made("span", { class: "source" }, `[${entry.source}]`));
}

export function showVerdicts(verdicts, headline = "") {
  find("winner").textContent = headline;
  find("verdict-card").hidden = !verdicts.length;
  // A headline that says it all is not said again.
  const more = verdicts.length > 1 ? verdicts : verdicts.filter((verdict) => verdict.sentence !== headline);
  find("verdicts").replaceChildren(...more.map((verdict) => made("li", { "data-order": verdict.order }, verdict.sentence)));
}
