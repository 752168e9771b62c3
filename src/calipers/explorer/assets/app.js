// The page: a form that describes runs, and the answers that follow every change.

import { DEFAULTS, FORM, LETTERS, MOST_PHASES, SHARED, applies, fromHash, phasesOf, questionRecord, runRecord, toHash } from "./state.js";
import { made, showResults, showStatus, showVerdicts, tip } from "./view.js";

const PAUSE = 220; // milliseconds of quiet before a change is measured
const form = document.getElementById("form");
let state = fromHash(location.hash);
// One entry per run, in the order of `state.runs`: what was asked last, and what came back.
let entries = state.runs.map(fresh);
let verdictsFor = "";

function fresh() {
  return { asked: "", answer: null, error: "", abort: null, timer: 0, since: 0, stale: false };
}

async function post(path, record, signal) {
  let response;
  try {
    response = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(record), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The explorer does not answer; is `calipers explore` still running?");
  }
  if (response.ok) return response;
  const reply = await response.json().catch(() => ({}));
  throw new Error(reply.error ?? `The explorer answered with status ${response.status}.`);
}

const nameOf = (index) => state.runs[index].name.trim() || `Run ${LETTERS[index].toUpperCase()}`;
const current = () => phasesOf(state.runs[state.selected])[state.phase];
const question = (run) => ({ run: runRecord(run), ...questionRecord(state.questions) });

// The samplers, and the fields that some of them have.
function makeFields() {
  const options = (choices) => choices.map(({ value, words }) => made("option", { value }, words));
  const named = FORM.samplers.map(({ name, summary }) => ({ value: name, words: `${name} (${summary})` }));
  form.elements.sampler.append(...options(named));
  document.getElementById("own").append(...FORM.fields.map(({ key, label, choices }) => {
    const input = choices ? made("select", { name: key }, ...options(choices)) : made("input", { name: key, inputmode: "numeric" });
    return made("label", { class: "field", "data-key": key }, made("span", {}, label), input);
  }));
}
makeFields();

// ---- asking

function changed() {
  history.replaceState(null, "", toHash(state));
  state.runs.forEach((run, index) => {
    const asked = JSON.stringify(question(run));
    const entry = entries[index];
    if (asked === entry.asked) return;
    entry.asked = asked;
    entry.abort?.abort();
    entry.abort = null;
    entry.stale = true;
    clearTimeout(entry.timer);
    entry.timer = setTimeout(() => ask(entry, asked), PAUSE);
  });
  show();
}

async function ask(entry, asked) {
  const abort = new AbortController();
  Object.assign(entry, { abort, error: "", since: performance.now() });
  show();
  try {
    const answer = await (await post("/api/explore", JSON.parse(asked), abort.signal)).json();
    if (entry.asked === asked) Object.assign(entry, { answer, error: "", stale: false });
  } catch (error) {
    if (entry.asked !== asked) return;
    const cancelled = error.name === "AbortError";
    Object.assign(entry, { answer: null, stale: false, error: cancelled ? "Cancelled. Change a field to measure again." : error.message });
  } finally {
    if (entry.abort === abort) entry.abort = null;
    show();
    compare();
  }
}

// Two runs may not have one name: the second of a kind gets its letter.
const distinct = (names) => names.map((name, index) => (names.indexOf(name) === index ? name : `${name} (${LETTERS[index].toUpperCase()})`));

// All runs together, once every one of them has its answer; null before that.
function together() {
  if (entries.length < 2 || !entries.every((entry) => entry.answer && !entry.stale)) return null;
  return { runs: state.runs.map(runRecord), names: distinct(state.runs.map((_, index) => nameOf(index))), ...questionRecord(state.questions) };
}

async function compare() {
  const record = together();
  const wanted = record ? JSON.stringify(record) : "";
  if (wanted === verdictsFor) return;
  verdictsFor = wanted;
  showVerdicts([]);
  if (!wanted) return;
  try {
    const found = await (await post("/api/compare", record)).json();
    if (verdictsFor === wanted) showVerdicts(found.verdicts, found.headline);
  } catch (error) {
    if (verdictsFor === wanted) showVerdicts([{ order: "error", sentence: error.message }]);
  }
}

// ---- showing

function show() {
  showTabs();
  showForm();
  status();
  const shown = entries.map((entry, index) => ({ index, color: index, name: nameOf(index), answer: entry.answer, stale: entry.stale }));
  showResults(shown.filter((run) => run.answer), state.selected);
  document.getElementById("save-all").hidden = !together();
  document.documentElement.dataset.state = entries.some((entry) => entry.stale) ? "busy" : entries.some((entry) => entry.error) ? "error" : "ready";
}

function status() {
  showStatus(entries.map((entry, index) => {
    const seconds = entry.abort ? (performance.now() - entry.since) / 1000 : 0;
    return { index, name: nameOf(index), error: entry.error, busy: seconds > 0.6, seconds: Math.floor(seconds) };
  }), (index) => entries[index].abort?.abort());
}

let tabsShown = "";

function showTabs() {
  // Made anew only when they differ: a button replaced while it is being pressed never hears of it.
  const wanted = JSON.stringify([state.runs.map((run, index) => [nameOf(index), run.more.length]), state.selected, state.phase]);
  if (wanted === tabsShown) return;
  tabsShown = wanted;
  const tabs = state.runs.map((_, index) => {
    const chosen = index === state.selected;
    const tab = made("button", { type: "button", role: "tab", class: `tab c${index}`, "aria-selected": chosen, "data-run": LETTERS[index] }, made("span", { class: "dot" }), nameOf(index));
    tab.addEventListener("click", () => { state.selected = index; state.phase = 0; changed(); });
    return tab;
  });
  const add = made("button", { type: "button", id: "add", title: "Add a copy of this run to compare" }, "+ Compare");
  add.addEventListener("click", addRun);
  const remove = made("button", { type: "button", id: "remove", title: "Remove this run" }, "Remove");
  remove.addEventListener("click", removeRun);
  const controls = [...(state.runs.length < LETTERS.length ? [add] : []), ...(state.runs.length > 1 ? [remove] : [])];
  const focused = document.activeElement?.id || document.activeElement?.dataset?.run;
  document.getElementById("tabs").replaceChildren(...tabs, ...controls);
  showPhases();
  // Whoever was using the keyboard stays where they were.
  if (focused === "add" || focused === "remove") document.getElementById(focused)?.focus();
  else if (LETTERS.includes(focused)) document.querySelector(`[data-run="${focused}"]`)?.focus();
}

// One button for each phase, one to add a copy of the last, one to remove this one.
function showPhases() {
  const run = state.runs[state.selected];
  const phases = phasesOf(run);
  const choose = (number) => { state.phase = number; changed(); };
  const buttons = phases.length < 2 ? [] : phases.map((_, number) => {
    const button = made("button", { type: "button", "aria-pressed": number === state.phase }, `Phase ${number + 1}`);
    button.addEventListener("click", () => choose(number));
    return button;
  });
  const add = made("button", { type: "button", id: "add-phase", title: "Add a phase that follows, to begin with like this one" }, "+ Phase");
  add.addEventListener("click", () => { run.more.push({ ...current(), more: [] }); choose(run.more.length); });
  const remove = made("button", { type: "button", id: "remove-phase", title: "Remove this phase" }, "− Phase");
  remove.addEventListener("click", () => {
    const left = phases.filter((_, number) => number !== state.phase).map(({ more, ...phase }) => phase);
    Object.assign(run, left[0], { more: left.slice(1).map((phase) => ({ ...phase, more: [] })) });
    choose(Math.max(0, state.phase - 1));
  });
  document.getElementById("phases").replaceChildren(...buttons, ...(phases.length < MOST_PHASES ? [add] : []), ...(phases.length > 1 ? [remove] : []));
}

function showForm() {
  const run = current();
  form.elements.name.placeholder = `Run ${LETTERS[state.selected].toUpperCase()}`;
  for (const input of form.querySelectorAll("input[name], select[name]")) {
    if ("target" in input.dataset) continue;
    const text = "question" in input.dataset ? state.questions[input.name] : run[input.name];
    if (input.value !== text) input.value = text;
  }
  for (const { key } of FORM.fields) form.querySelector(`[data-key="${key}"]`).hidden = !applies(run, key);
  for (const either of form.querySelectorAll("[data-choice]")) {
    const chosen = run[either.dataset.choice];
    either.hidden = !applies(run, chosen);
    for (const button of either.querySelectorAll("button")) button.setAttribute("aria-pressed", button.dataset.value === chosen);
    for (const field of either.querySelectorAll(".field")) field.hidden = field.dataset.key !== chosen;
  }
  const slider = document.getElementById("noise");
  const noise = Number(run.noise_multiplier);
  if (noise > 0 && document.activeElement !== slider) slider.value = Math.log10(noise);
  const said = entries[state.selected].error;
  for (const field of form.querySelectorAll(".field")) field.classList.toggle("wrong", new RegExp(`\\b${field.dataset.key}\\b`).test(said));
  if (form.querySelector("#questions .wrong")) document.getElementById("questions").open = true;
}

// ---- doing

function addRun() {
  const copied = state.runs[state.selected];
  state.runs.push({ ...copied, name: "", more: copied.more.map((phase) => ({ ...phase })) });
  entries.push(fresh());
  state.selected = state.runs.length - 1;
  changed();
}

function removeRun() {
  entries[state.selected].abort?.abort();
  clearTimeout(entries[state.selected].timer);
  entries[state.selected].asked = null;
  state.runs.splice(state.selected, 1);
  entries.splice(state.selected, 1);
  state.selected = Math.max(0, state.selected - 1);
  state.phase = 0;
  changed();
  compare();
}

function save(name, blob) {
  const link = made("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

async function saveReport(kind) {
  const entry = entries[state.selected];
  if (kind === "toml") {
    save("run.toml", new Blob([entry.answer.toml], { type: "application/toml" }));
    return;
  }
  try {
    const response = await post("/api/report", { ...question(state.runs[state.selected]), format: kind });
    save(`calipers.${kind}`, await response.blob());
  } catch (error) {
    entry.error = error.message;
    show();
  }
}

async function saveComparison(kind) {
  try {
    const response = await post("/api/compare/report", { ...together(), format: kind });
    save(`calipers-compare.${kind}`, await response.blob());
  } catch (error) {
    entries[state.selected].error = error.message;
    show();
  }
}

// The smallest noise whose proof meets the epsilon wanted at the first delta; several phases keep their ratios.
// While it is searched for, the button says for how long, and cancels.
let solving = null;
async function solveNoise() {
  if (solving) {
    solving.abort();
    return;
  }
  const button = document.getElementById("solve-noise"), index = state.selected, run = state.runs[index];
  const { delta, ...record } = { run: runRecord(run), delta: questionRecord(state.questions).delta?.[0] };
  const wanted = form.elements.target.value.trim() || form.elements.target.placeholder;
  const began = Date.now();
  const count = () => { button.textContent = `Cancel (${Math.round((Date.now() - began) / 1000)} s)`; };
  solving = new AbortController();
  const counting = setInterval(count, 1000);
  count();
  try {
    const asked = { ...record, epsilon: Number(wanted), delta };
    const found = await (await post("/api/calibrate", asked, solving.signal)).json();
    phasesOf(run).forEach((phase, number) => { phase.noise_multiplier = found.shown[number]; });
    changed();
  } catch (error) {
    if (error.name !== "AbortError") entries[index].error = error.message;
    show();
  } finally {
    clearInterval(counting);
    solving = null;
    button.textContent = "Solve for sigma";
  }
}
document.getElementById("solve-noise").addEventListener("click", solveNoise);

function edited(event) {
  const input = event.target;
  const run = current();
  if ("target" in input.dataset) return;
  if (input.id === "noise") run.noise_multiplier = String(Number((10 ** Number(input.value)).toPrecision(3)));
  else if ("question" in input.dataset) state.questions[input.name] = input.value;
  else for (const phase of SHARED.includes(input.name) ? phasesOf(state.runs[state.selected]) : [run]) phase[input.name] = input.value;
  changed();
}

// Menus tell of a choice by "change", some browsers by that alone; hearing it twice changes nothing.
for (const kind of ["input", "change"]) form.addEventListener(kind, edited);
form.addEventListener("submit", (event) => event.preventDefault());
for (const either of form.querySelectorAll("[data-choice]")) {
  either.addEventListener("click", (event) => {
    if (!event.target.dataset.value) return;
    const run = current();
    convert(run, event.target.dataset.value);
    run[either.dataset.choice] = event.target.dataset.value;
    changed();
  });
}

// Switching the unit keeps the run where the other unit has a round number for it.
function convert(run, to) {
  const [size, batch, rate] = [Number(run.dataset_size), Number(run.batch_size), Number(run.sample_rate)];
  const perEpoch = run.batch_by === "batch_size" ? Math.floor(size / batch) : Math.floor(1 / rate + 1e-9);
  const keep = (key, number) => { if (!run[key] && Number.isFinite(number) && number > 0) run[key] = String(number); };
  if (to === "sample_rate") keep(to, batch / size);
  if (to === "batch_size") keep(to, Math.round(size * rate));
  if (to === "steps") keep(to, Math.round(Number(run.epochs) * perEpoch));
  if (to === "epochs") keep(to, Number(run.steps) / perEpoch);
}

document.getElementById("share").addEventListener("click", async (event) => {
  const button = event.currentTarget;
  const done = await navigator.clipboard.writeText(location.href).then(() => true, () => false);
  button.textContent = done ? "Copied" : "Copy it from the address bar";
  setTimeout(() => { button.textContent = "Copy link"; }, 1800);
});
document.getElementById("saves").addEventListener("click", (event) => {
  if (event.target.dataset.save) saveReport(event.target.dataset.save);
  if (event.target.dataset.saveAll) saveComparison(event.target.dataset.saveAll);
});
window.addEventListener("hashchange", () => {
  if (location.hash === toHash(state)) return;
  for (const entry of entries) { entry.abort?.abort(); clearTimeout(entry.timer); entry.asked = null; }
  state = fromHash(location.hash);
  entries = state.runs.map(fresh);
  changed();
});

// Exact values: on hover, on focus, on touch.
function exact(event) {
  const holder = event.target.closest?.("[data-exact]");
  if (!holder) return;
  const box = holder.getBoundingClientRect();
  tip.show(`${holder.dataset.what}: ${holder.dataset.exact}`, event.clientX || box.left, event.clientY || box.bottom - 10);
}
for (const kind of ["pointerover", "focusin"]) document.addEventListener(kind, exact);
for (const kind of ["pointerout", "focusout"]) document.addEventListener(kind, (event) => { if (event.target.closest?.("[data-exact]")) tip.hide(); });

let width = innerWidth;
window.addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; show(); } });
setInterval(() => { if (entries.some((entry) => entry.abort)) status(); }, 500);
for (const key of Object.keys(DEFAULTS)) form.elements[key].value = DEFAULTS[key];
changed();
