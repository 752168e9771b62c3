// Pictures of brackets and curves, drawn as SVG at the size they are shown in.

const SVG = "http://www.w3.org/2000/svg";

function element(parent, name, attributes = {}, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  parent.append(made);
  return made;
}

function sheet(host, height, label) {
  host.replaceChildren();
  const width = Math.max(260, Math.floor(host.clientWidth));
  const svg = element(host, "svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  return { svg, width, height };
}

// Round steps: at most `most` ticks from `low` to `high`.
export function ticks(low, high, most) {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * (1 - 1e-9));
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-9); i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

// Every second power of ten from `low` on, as the doubles people mean by them.
const powers = (low, decades) => Array.from({ length: Math.round(decades) / 2 + 1 }, (_, i) => Number((low * 100 ** i).toPrecision(6)));

export function plain(number) {
  if (number !== 0 && (Math.abs(number) < 1e-3 || Math.abs(number) >= 1e6)) return number.toExponential().replace("e+", "e");
  return number.toLocaleString("en-US", { maximumFractionDigits: 6 });
}

// A logarithmic axis is worth it when the numbers differ by more than an eye can compare on an even one.
function bracketScale(rows, left, right) {
  const finite = rows.flatMap((row) => [row.lower.exact, row.upper.exact, row.claim?.exact]).filter((v) => v > 0 && Number.isFinite(v));
  const high = finite.length ? Math.max(...finite) : 1;
  const low = finite.length ? Math.min(...finite) : 0.1;
  if (high / low <= 12) {
    const last = high * 1.08;
    return { place: (v) => left + (right - left) * Math.max(0, v) / last, marks: ticks(0, last, Math.max(3, Math.floor((right - left) / 90))), last };
  }
  const from = Math.floor(Math.log10(low * 0.7)), to = Math.log10(high * 1.3);
  const every = Math.max(1, Math.ceil((to - from) / Math.max(2, (right - left) / 70)));
  const marks = [];
  for (let e = from; e <= to; e += every) marks.push(10 ** e);
  const place = (v) => left + (right - left) * Math.min(1, Math.max(0, (Math.log10(Math.max(v, 1e-300)) - from) / (to - from)));
  return { place, marks, last: 10 ** to };
}

export function drawBrackets(host, rows, label) {
  const each = 50, top = 6, bottom = 26;
  const { svg, width, height } = sheet(host, top + each * rows.length + bottom, label);
  // Long names are cut, so that the beams keep most of the width.
  const longest = Math.max(...rows.map((row) => row.name.length), 5), fits = Math.min(longest, Math.max(6, Math.floor(width / 45)));
  const left = 84 + 7.2 * Math.max(0, fits - 5), right = width - 78;
  const { place, marks } = bracketScale(rows, left, right);
  for (const mark of marks) {
    element(svg, "line", { x1: place(mark), x2: place(mark), y1: top, y2: height - bottom, class: "grid" });
    element(svg, "text", { x: place(mark), y: height - 8, "text-anchor": "middle" }, plain(mark));
  }
  rows.forEach((row, i) => {
    const y = top + each * i + 16;
    const group = element(svg, "g", { class: `c${row.color}` });
    element(group, "text", { x: 2, y: y + 5, class: "name" }, row.name.length > fits ? `${row.name.slice(0, fits - 1)}…` : row.name);
    const from = place(row.lower.exact ?? 0);
    const to = row.upper.exact === null ? right : place(row.upper.exact);
    element(group, "rect", { x: from, y: y - 8, width: Math.max(0, to - from), height: 16, class: "band" });
    element(group, "line", { x1: from, x2: from, y1: y - 10, y2: y + 10, class: "attack" });
    element(group, "line", { x1: to, x2: to, y1: y - 10, y2: y + 10, class: "proof" });
    value(group, from - 6, y + 4, "end", row.lower, "attack");
    value(group, to + 6, y + 4, "start", row.upper, "proof");
    if (!row.claim || row.claim.exact === null) return;
    const x = place(row.claim.exact), beyond = x > (left + right) / 2;
    element(group, "path", { d: `M${x} ${y + 15}l5 5-5 5-5-5z`, class: `claim-mark${row.refuted ? " refuted" : ""}` });
    const text = `claim ${row.claim.shown}${row.refuted ? ", refuted" : ""}`;
    const said = element(group, "text", { x: beyond ? x - 9 : x + 9, y: y + 24, "text-anchor": beyond ? "end" : "start", "data-exact": row.claim.exact, class: row.refuted ? "refuted-text" : "" }, text);
    said.dataset.what = "claim";
  });
}

function value(group, x, y, anchor, end, what) {
  const shown = end.exact === null ? "∞" : end.shown;
  const text = element(group, "text", { x, y, "text-anchor": anchor, class: "value", "data-exact": end.exact ?? "no finite bound is proven" }, shown);
  text.dataset.what = what;
}

// One chart with both bounds of several runs. `chart`: x, y (names), log (of y), low, high, series.
export function drawCurves(host, chart, tip) {
  const { svg, width, height } = sheet(host, 300, `${chart.y} against ${chart.x}`);
  const left = 54, right = width - 12, top = 8, bottom = height - 40;
  // `first` makes the horizontal axis logarithmic, from there to `last`.
  const decades = chart.first ? Math.log10(chart.last / chart.first) : 0;
  const across = chart.first
    ? (v) => left + (right - left) * Math.log10(Math.max(v, chart.first) / chart.first) / decades
    : (v) => left + (right - left) * v / chart.last;
  const span = Math.log10(chart.high / chart.low);
  const up = chart.log
    ? (v) => bottom - (bottom - top) * Math.log10(Math.max(v, chart.low / 10) / chart.low) / span
    : (v) => bottom - (bottom - top) * (v - chart.low) / (chart.high - chart.low);
  const clip = `clip-${chart.id}`;
  element(element(element(svg, "defs"), "clipPath", { id: clip }), "rect", { x: left, y: top - 2, width: right - left, height: bottom - top + 4 });
  const steps = chart.first ? powers(chart.first, decades) : ticks(0, chart.last, Math.max(3, Math.floor((right - left) / 52)));
  for (const mark of steps) {
    element(svg, "line", { x1: across(mark), x2: across(mark), y1: top, y2: bottom, class: "grid" });
    element(svg, "text", { x: across(mark), y: bottom + 16, "text-anchor": "middle" }, plain(mark));
  }
  const marks = chart.log ? powers(chart.low, span) : ticks(chart.low, chart.high, 5);
  for (const mark of marks) {
    element(svg, "line", { x1: left, x2: right, y1: up(mark), y2: up(mark), class: "grid" });
    element(svg, "text", { x: left - 6, y: up(mark) + 4, "text-anchor": "end" }, plain(mark));
  }
  element(svg, "text", { x: (left + right) / 2, y: height - 6, "text-anchor": "middle" }, chart.xTitle);
  element(svg, "text", { transform: `translate(12 ${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, chart.yTitle);
  const ideal = chart.first ? [chart.first, chart.first, 1, 1] : [0, 1, 1, 0];
  if (chart.ideal) element(svg, "line", { x1: across(ideal[0]), y1: up(ideal[1]), x2: across(ideal[2]), y2: up(ideal[3]), class: "ideal" });
  const drawing = element(svg, "g", { "clip-path": `url(#${clip})` });
  for (const run of chart.series) {
    const points = (side) => run.x.map((x, i) => `${across(x).toFixed(2)},${up(run[side][i]).toFixed(2)}`);
    const group = element(drawing, "g", { class: `c${run.color}` });
    element(group, "polygon", { points: [...points("upper"), ...points("lower").reverse()].join(" "), class: "band" });
    element(group, "polyline", { points: points("upper").join(" "), class: "proof" });
    element(group, "polyline", { points: points("lower").join(" "), class: "attack" });
  }
  element(svg, "line", { x1: left, x2: right, y1: bottom, y2: bottom, class: "axis" });
  element(svg, "line", { x1: left, x2: left, y1: top, y2: bottom, class: "axis" });
  follow(svg, chart, { left, right, top, bottom }, tip);
}

// The exact values at the drawn point nearest to the pointer.
function follow(svg, chart, box, tip) {
  const cursor = element(svg, "line", { y1: box.top, y2: box.bottom, class: "cursor", visibility: "hidden" });
  const leave = () => { cursor.setAttribute("visibility", "hidden"); tip.hide(); };
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("pointermove", (event) => {
    const at = event.clientX - svg.getBoundingClientRect().left;
    if (at < box.left - 4 || at > box.right + 4 || !chart.series.length) { leave(); return; }
    const share = (at - box.left) / (box.right - box.left);
    const wanted = chart.first ? chart.first * (chart.last / chart.first) ** share : share * chart.last;
    cursor.setAttribute("x1", at); cursor.setAttribute("x2", at); cursor.setAttribute("visibility", "visible");
    // One line for each run: both ends, rounded outward, at its drawn point nearest to the pointer.
    const [low, high] = chart.ends;
    const lines = chart.series.map((run) => {
      const i = nearest(run.x, wanted);
      return `${run.name}: ${chart.y} ${run.shown[low][i]} to ${run.shown[high][i]} at ${chart.x} ${Number(run.x[i].toPrecision(3))}`;
    });
    tip.show(lines.join("\n"), event.clientX, event.clientY);
  });
}

export function nearest(sorted, wanted) {
  let low = 0, high = sorted.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= wanted) low = middle; else high = middle;
  }
  return wanted - sorted[low] <= sorted[high] - wanted ? low : high;
}
