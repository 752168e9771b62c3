// What the page shows, and how an address carries it.
//
// An address names only what differs from the defaults of a run: #a.dataset_size=60000&a.epochs=60&b.sampler=shuffle...
// Texts are kept as they were typed; whether they are numbers in their domain is for the server to say.

// What the server says of samplers and their keys; nothing here knows one by name.
export const FORM = await (await fetch("/api/form")).json();
export const LETTERS = [..."abcdefgh"].slice(0, FORM.most_runs);
const SAMPLERS = Object.fromEntries(FORM.samplers.map((sampler) => [sampler.name, sampler]));
const OWN = Object.fromEntries(FORM.fields.map((field) => [field.key, field]));
export const DEFAULTS = {
  sampler: FORM.assumed, normalization: "none", adjacency: "", view: "worst-case",
  ...Object.fromEntries(FORM.fields.filter((field) => field.choices).map((field) => [field.key, field.default])),
};
// How large a batch is follows from what some samplers are given instead.
const SIZES = ["batch_size", "sample_rate"];
// Whether a key means something to the sampler of a run, beside what else is said of it.
export function applies(run, key) {
  const sampler = SAMPLERS[run.sampler];
  if (SIZES.includes(key)) return sampler?.sized ?? true;
  if (!(key in OWN)) return true;
  return (sampler?.keys.includes(key) ?? false) && (!OWN[key].beside || run.batch_by === OWN[key].beside);
}
// Keys that the phases of one run share.
export const SHARED = ["dataset_size", "adjacency", "view", "unit", "records_per_unit", "name"];
export const MOST_PHASES = FORM.most_phases;
export const QUESTIONS = { delta: "1e-5", epsilon: "", fpr: "0.1, 0.01, 0.001", delta0: "1e-10", tolerance: "0.001" };
const NUMBERS = [
  "dataset_size", "batch_size", "sample_rate", "epochs", "steps", "noise_multiplier", "dimension", "records_per_unit",
  ...FORM.fields.filter((field) => !field.choices).map((field) => field.key),
];
const WORDS = ["unit"];
const EITHER = { batch_by: ["batch_size", "sample_rate"], length_by: ["epochs", "steps"] };
const LISTS = ["delta", "epsilon", "fpr"];

export function firstRun() {
  return { ...emptyRun(), dataset_size: "60000", batch_size: "256", epochs: "60", noise_multiplier: "1.1" };
}

function emptyRun() {
  const run = { ...DEFAULTS, batch_by: "batch_size", length_by: "epochs", name: "", more: [] };
  for (const key of [...NUMBERS, ...WORDS]) run[key] = "";
  return run;
}

// Keys of a run that count: of two alternatives only the chosen one, and what the sampler has.
function counted(run) {
  const dropped = Object.entries(EITHER).map(([choice, pair]) => pair.find((key) => key !== run[choice]));
  return [...NUMBERS, ...WORDS, ...Object.keys(DEFAULTS)].filter((key) => !dropped.includes(key) && applies(run, key));
}

// A run and the phases that follow its first.
export const phasesOf = (run) => [run, ...run.more];

export function toHash(state) {
  const words = new URLSearchParams();
  state.runs.forEach((run, i) => {
    if (run.name.trim()) words.set(`${LETTERS[i]}.name`, run.name.trim());
    phasesOf(run).forEach((phase, number) => {
      for (const key of counted(phase)) {
        const value = phase[key].trim();
        if (value !== (DEFAULTS[key] ?? "")) words.set(`${LETTERS[i]}${number ? number + 1 : ""}.${key}`, value);
      }
    });
  });
  for (const [key, value] of Object.entries(state.questions)) {
    if (value.trim() !== QUESTIONS[key]) words.set(key, value.trim());
  }
  if (state.selected) words.set("show", LETTERS[state.selected]);
  return `#${words.toString()}`;
}

function read(given) {
  const run = emptyRun();
  for (const [key, value] of given) {
    if (![...NUMBERS, ...WORDS, "name"].includes(key) && !(key in DEFAULTS)) continue;
    run[key] = value;
    for (const [choice, pair] of Object.entries(EITHER)) if (pair.includes(key)) run[choice] = key;
  }
  return run;
}

export function fromHash(hash) {
  const words = new URLSearchParams(hash.replace(/^#/, ""));
  const state = { runs: [], selected: 0, phase: 0, questions: { ...QUESTIONS } };
  for (const letter of LETTERS) {
    const phases = [];
    for (let number = 1; number <= MOST_PHASES; number += 1) {
      const start = `${letter}${number > 1 ? number : ""}.`;
      const given = [...words].filter(([key]) => key.startsWith(start)).map(([key, value]) => [key.slice(start.length), value]);
      if (!given.length) break;
      phases.push(read(given));
    }
    if (phases.length) state.runs.push({ ...phases[0], more: phases.slice(1) });
  }
  if (!state.runs.length) state.runs.push(firstRun());
  for (const key of Object.keys(QUESTIONS)) if (words.has(key)) state.questions[key] = words.get(key);
  state.selected = Math.max(0, Math.min(state.runs.length - 1, LETTERS.indexOf(words.get("show") ?? "a")));
  return state;
}

// A number where the text is one; otherwise the text, for the server to refuse by name.
function value(text) {
  const number = Number(text);
  return text !== "" && Number.isFinite(number) && !/^[+-]?0[xob]/i.test(text) ? number : text;
}

export function runRecord(run) {
  return run.more.length ? { phase: phasesOf(run).map(phaseRecord) } : phaseRecord(run);
}

function phaseRecord(run) {
  const record = {};
  for (const key of counted(run)) {
    const text = run[key].trim();
    if (text !== "") record[key] = NUMBERS.includes(key) ? value(text) : text;
  }
  return record;
}

export function questionRecord(questions) {
  const record = {};
  for (const [key, text] of Object.entries(questions)) {
    const parts = text.split(/[,;\s]+/).filter(Boolean).map(value);
    if (LISTS.includes(key)) record[key] = parts;
    else if (parts.length) record[key] = parts.length === 1 ? parts[0] : text;
  }
  return record;
}
