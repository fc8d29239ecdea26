"use strict";
// The data of the page, and what is chosen of it: a part of the time, some kinds of spans.
const report = JSON.parse(document.getElementById("data").textContent);
const SECOND = 1e9;
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8f6d00", "#7f7fff", "#c44", "#5a9"];
const colour = (at) => COLOURS[at % COLOURS.length];
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Recordings of one time are shown by the clock, others each from its own start. */
function setOffsets(sides) {
  const began = sides.map((side) => BigInt(side.base));
  const first = began.reduce((a, b) => (b < a ? b : a), began[0] ?? 0n);
  const starts = began.map((base) => Number(base - first));
  const overlaps = sides.every((one, i) =>
    sides.every((other, j) => starts[i] <= starts[j] + other.duration && starts[j] <= starts[i] + one.duration));
  sides.forEach((side, i) => { side.offset = overlaps ? starts[i] : 0; });
  return overlaps;
}
const isByClock = setOffsets(report.sides);
const hasSeveral = report.sides.length > 1;
/** The cell that the sliders and the brush go by. */
const step = report.sides[0]?.width ?? 1;
const end = Math.max(step, ...report.sides.map((side) => side.offset + side.cells * side.width));
const nSteps = Math.ceil(end / step);

const choice = {
  /** The part of the time that counts, in nanoseconds, or null for all. */
  brush: null,
  /** The part of the time that is drawn. */
  view: [0, end],
  kinds: new Set(report.kinds.map((_, at) => at)),
};
const watchers = [];
const onChange = (watcher) => watchers.push(watcher);
let isPending = false;
/** Everything is drawn anew, once for all changes of a moment. */
function changed() {
  if (isPending) return;
  isPending = true;
  requestAnimationFrame(() => {
    isPending = false;
    watchers.forEach((watcher) => watcher());
  });
}
function setBrush(from, to) {
  const low = Math.max(0, Math.round(Math.min(from, to) / step));
  const high = Math.min(nSteps, Math.max(low + 1, Math.round(Math.max(from, to) / step)));
  choice.brush = low === 0 && high === nSteps ? null : [low * step, high * step];
  changed();
}
function setView(from, to) {
  const least = Math.max(1000, step / 1000);
  const width = Math.min(end, Math.max(least, to - from));
  const start = Math.min(Math.max(0, from), end - width);
  choice.view = [start, start + width];
  changed();
}
function zoom(factor, around = (choice.view[0] + choice.view[1]) / 2) {
  const [from, to] = choice.view;
  setView(around - (around - from) * factor, around + (to - around) * factor);
}
function showAll() {
  choice.brush = null;
  setView(0, end);
}
const isChosen = (ns) => !choice.brush || (ns >= choice.brush[0] && ns < choice.brush[1]);
const isChosenCell = (side, cell) => isChosen(side.offset + (cell + 0.5) * side.width);

// A bucket holds durations from low(b) up to low(b + 1); there are 16 to a power of two.
const low = (b) => (b < 16 ? b : (16 + (b % 16)) * 2 ** (Math.floor(b / 16) - 1));
function quantile(buckets, n, share, max) {
  const rank = Math.min(n, Math.max(1, Math.ceil(share * n)));
  let seen = 0;
  for (const [b, count] of buckets) {
    seen += count;
    if (seen >= rank) return rank === n ? max : Math.min(max, (low(b) + low(b + 1)) / 2);
  }
  return 0;
}
const emptySums = () => ({ count: 0, errors: 0, total: 0, self: 0, max: 0, buckets: new Map() });
function addCell(sums, series, at) {
  sums.count += series.count[at];
  sums.errors += series.errors[at];
  sums.total += series.total[at];
  sums.self += series.self[at];
  sums.max = Math.max(sums.max, series.max[at]);
  const hist = series.hist[at];
  for (let i = 0; i < hist.length; i += 2) sums.buckets.set(hist[i], (sums.buckets.get(hist[i]) ?? 0) + hist[i + 1]);
}
const sorted = (buckets) => [...buckets].sort((a, b) => a[0] - b[0]);
function finish(sums) {
  const buckets = sorted(sums.buckets);
  for (const [name, share] of [["p50", 0.5], ["p90", 0.9], ["p99", 0.99], ["p999", 0.999]])
    sums[name] = quantile(buckets, sums.count, share, sums.max);
  return sums;
}
/** The numbers of a group of spans in the chosen time: exact for all of it, else within 3 %. */
function sumsOf(side, group) {
  if (!choice.brush) return group.all;
  const sums = emptySums();
  group.series.at.forEach((cell, at) => { if (isChosenCell(side, cell)) addCell(sums, group.series, at); });
  return finish(sums);
}
/** The same for all chosen kinds of a recording together. */
function sumsOfAll(side) {
  const sums = emptySums();
  for (const kind of choice.kinds) {
    const { series } = side.kinds[kind];
    series.at.forEach((cell, at) => { if (isChosenCell(side, cell)) addCell(sums, series, at); });
  }
  return finish(sums);
}

function duration(ns) {
  if (ns == null) return "";
  const units = [[1e9, "s"], [1e6, "ms"], [1e3, "us"]];
  for (const [factor, unit] of units)
    if (ns >= factor * 0.9995) {
      const value = ns / factor;
      return value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0) + unit;
    }
  return Math.round(ns) + "ns";
}
const count = (n) => Math.round(n).toLocaleString("en");
/** A time since the start, in the unit and with as many digits as what is drawn needs. */
function time(ns) {
  const [from, to] = choice.view;
  const [factor, unit] = to >= SECOND ? [SECOND, "s"] : to >= 1e6 ? [1e6, "ms"] : [1e3, "us"];
  const digits = Math.min(9, Math.max(0, Math.ceil(-Math.log10((to - from) / factor)) + 2));
  return (ns / factor).toFixed(digits) + unit;
}
const percent = (share) => (share * 100).toFixed(Math.abs(share) < 0.1 ? 1 : 0) + " %";
