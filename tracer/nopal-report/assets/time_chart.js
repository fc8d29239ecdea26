// Charts over time: rates, latencies, the heat map. What was lost is drawn where it happened, the chosen time is left clear.

const charts = [];

/** Paints over what lies outside of the chosen time, and hatches what was lost. */
function drawOver(u) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  const x = (ns) => u.valToPos(ns / SECOND, "x", true);
  drawLosses(ctx, x, bbox.top, bbox.height);
  if (choice.brush) {
    const [from, to] = choice.brush.map(x);
    ctx.fillStyle = css("--veil");
    ctx.fillRect(bbox.left, bbox.top, from - bbox.left, bbox.height);
    ctx.fillRect(to, bbox.top, bbox.left + bbox.width - to, bbox.height);
  }
  ctx.restore();
}
function drawLosses(ctx, x, top, height) {
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = css("--loss");
  const band = (from, to) => {
    const left = x(from);
    const width = Math.max(2, x(to) - left);
    ctx.globalAlpha = 0.22;
    ctx.fillRect(left, top, width, height);
    ctx.globalAlpha = 0.9;
    ctx.fillRect(left, top, width, 4);
  };
  for (const side of report.sides) {
    for (const loss of side.losses) band(side.offset + Math.max(0, loss.from), side.offset + loss.to);
    for (const gap of side.gaps) band(side.offset + gap.at, side.offset + gap.at);
  }
  ctx.restore();
}

const axisStyle = () => ({ stroke: () => css("--dim"), grid: { stroke: () => css("--line"), width: 1 }, ticks: { stroke: () => css("--line") } });

/** Lines of an axis of powers of ten are at the powers. */
const powersOfTen = (_, splits) => splits.map((v) => (v > 0 && Math.abs(Math.log10(v) - Math.round(Math.log10(v))) < 1e-9 ? v : null));
const logAxis = (format) => {
  const style = axisStyle();
  return { ...style, size: 68, filter: powersOfTen, grid: { ...style.grid, filter: powersOfTen }, ticks: { ...style.ticks, filter: powersOfTen },
    values: (_, splits) => splits.map((v) => (v == null ? "" : format(v))) };
};
/** A chart with time on its x axis. `make` gives { data, series, range }, `draw` paints what is no line. */
function timeChart(id, { height, isLog, format, make, draw, label, hasLegend = true }) {
  const element = document.getElementById(id);
  let u = null;
  let shown = "";
  const range = { y: [0, 1] };
  const width = () => Math.max(200, element.clientWidth);
  const build = (made) => {
    u?.destroy();
    const options = {
      width: width(), height, ms: 1e-3,
      scales: {
        x: { time: false, range: () => choice.view.map((ns) => ns / SECOND) },
        y: { distr: isLog ? 3 : 1, range: () => range.y },
      },
      axes: [
        { ...axisStyle(), space: 80, values: (_, splits) => splits.map((s) => time(s * SECOND)) },
        isLog ? logAxis(format) : { ...axisStyle(), size: 68, values: (_, splits) => splits.map((v) => (v == null ? "" : format(v))) },
      ],
      series: [{ label: "time", value: (_, v) => (v == null ? "" : time(v * SECOND)) }, ...made.series],
      cursor: { drag: { x: true, y: false, setScale: false }, points: { size: 6 }, bind: { dblclick: () => () => { showAll(); return null; } } },
      legend: { show: hasLegend },
      hooks: {
        drawClear: draw ? [(plot) => draw(plot)] : [],
        draw: [drawOver],
        setSelect: [(plot) => {
          const { left, width } = plot.select;
          if (width < 3) return;
          const at = (pos) => plot.posToVal(pos, "x") * SECOND;
          setBrush(at(left), at(left + width));
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        }],
      },
    };
    u = new uPlot(options, made.data, element);
    u.root.setAttribute("role", "img");
  };
  const refresh = () => {
    const made = make();
    range.y = made.range;
    const names = made.series.map((series) => series.label).join("\n");
    if (!u || names !== shown) build(made);
    else u.setData(made.data);
    shown = names;
    u.root.setAttribute("aria-label", label(made));
  };
  charts.push({ resize: () => u && u.setSize({ width: width(), height }) });
  onChange(refresh);
}

/** Columns of numbers over the cells of each recording as the rows that uPlot wants. */
function table(lines) {
  if (lines.length === 0) return [[0, 1]];
  const x = (side) => Array.from({ length: side.cells }, (_, cell) => (side.offset + (cell + 0.5) * side.width) / SECOND);
  if (!hasSeveral) return [x(report.sides[0]), ...lines.map((line) => line.values)];
  return uPlot.join(lines.map((line) => [x(line.side), line.values]));
}
const greatest = (lines) => lines.reduce((max, line) => line.values.reduce((a, b) => Math.max(a, b ?? 0), max), 0);
function linesOf(lines, format) {
  return {
    data: table(lines),
    series: lines.map((line) => ({
      label: line.label, stroke: line.colour, width: 1.5, dash: line.dash, spanGaps: hasSeveral || line.spanGaps,
      fill: line.fill, points: { show: false }, value: (_, v) => (v == null ? "–" : format(v)),
    })),
    range: [0, (greatest(lines) || 1) * 1.05],
  };
}
const perSecond = (v) => (v >= 1e6 ? (v / 1e6).toPrecision(3) + "M" : v >= 1e4 ? (v / 1e3).toPrecision(3) + "k" : +v.toPrecision(3)) + "/s";
const MAX_LINES = 10;

/** Spans a second: a line for each kind, or of several recordings one for each. */
function spanRates() {
  const rate = (side, kinds) => {
    const values = new Array(side.cells).fill(0);
    for (const kind of kinds) {
      const { series } = side.kinds[kind];
      series.at.forEach((cell, at) => { values[cell] += series.count[at] / (side.width / SECOND); });
    }
    return values;
  };
  const chosen = [...choice.kinds];
  if (hasSeveral) return report.sides.map((side, at) => ({ side, label: side.name, values: rate(side, chosen), colour: colour(at) }));
  const side = report.sides[0];
  if (!side) return [];
  chosen.sort((a, b) => side.kinds[b].all.count - side.kinds[a].all.count);
  const lines = chosen.slice(0, MAX_LINES).map((kind) => ({ side, label: report.kinds[kind].name, values: rate(side, [kind]), colour: colour(kind) }));
  const rest = chosen.slice(MAX_LINES);
  if (rest.length) lines.push({ side, label: `${rest.length} others`, values: rate(side, rest), colour: css("--dim") });
  return lines;
}
function eventRates() {
  const lines = [];
  for (const [at, side] of report.sides.entries()) {
    const rates = (cells) => cells.map((n) => n / (side.width / SECOND));
    const sum = (events) => events.reduce((all, one) => all.map((n, cell) => n + one.cells[cell]), new Array(side.cells).fill(0));
    if (hasSeveral) { lines.push({ side, label: side.name, values: rates(sum(side.events)), colour: colour(at) }); continue; }
    const total = (event) => event.cells.reduce((a, b) => a + b, 0);
    const events = [...side.events].sort((a, b) => total(b) - total(a));
    events.slice(0, MAX_LINES).forEach((event, i) => lines.push({ side, label: event.name, values: rates(event.cells), colour: colour(i) }));
    const rest = events.slice(MAX_LINES);
    if (rest.length) lines.push({ side, label: `${rest.length} others`, values: rates(sum(rest)), colour: css("--dim") });
  }
  return lines;
}

/** From the least to the greatest duration, for an axis of powers of ten. */
function durationRange() {
  let [least, most] = [Infinity, 0];
  for (const side of report.sides)
    for (const kind of choice.kinds) {
      const { all, series } = side.kinds[kind];
      most = Math.max(most, all.max);
      series.hist.forEach((hist) => { if (hist.length) least = Math.min(least, low(hist[0])); });
    }
  if (!(most > 0)) return [1, 1e6];
  const [low10, high10] = [Math.floor(Math.log10(Math.max(1, least))), Math.ceil(Math.log10(Math.max(most, 10)) + 0.01)];
  return [10 ** low10, 10 ** high10];
}
const QUANTILES = [["p50", [6, 4]], ["p99", undefined], ["max", [2, 3]]];
function latencyLines() {
  const lines = [];
  for (const [at, side] of report.sides.entries()) {
    const cells = Array.from({ length: side.cells }, emptySums);
    for (const kind of choice.kinds) {
      const { series } = side.kinds[kind];
      series.at.forEach((cell, i) => addCell(cells[cell], series, i));
    }
    cells.forEach(finish);
    QUANTILES.forEach(([name, dash], i) => lines.push({
      side, dash, spanGaps: true, label: hasSeveral ? `${side.name} ${name}` : name,
      values: cells.map((sums) => (sums.count ? Math.max(1, sums[name]) : null)), colour: hasSeveral ? colour(at) : css(i === 1 ? "--loss" : "--dim"),
    }));
  }
  return lines;
}
function drawDots(u) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  const size = 2 * devicePixelRatio;
  report.sides.forEach((side, at) => {
    const { points } = side;
    ctx.globalAlpha = 0.55;
    for (let i = 0; i < points.end.length; i++) {
      if (!choice.kinds.has(points.kind[i])) continue;
      ctx.fillStyle = points.error[i] ? css("--loss") : colour(hasSeveral ? at : points.kind[i]);
      const x = u.valToPos((side.offset + points.end[i]) / SECOND, "x", true);
      const y = u.valToPos(Math.max(1, points.dur[i]), "y", true);
      ctx.fillRect(x - size / 2, y - size / 2, size, size);
    }
  });
  ctx.restore();
}
/** Four rows to a power of two. */
function drawHeat(u) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  report.sides.forEach((side, at) => {
    const cells = new Map();
    let most = 1;
    for (const kind of choice.kinds) {
      const { series } = side.kinds[kind];
      series.at.forEach((cell, i) => {
        const hist = series.hist[i];
        for (let j = 0; j < hist.length; j += 2) {
          const place = cell * 1024 + Math.floor(hist[j] / 4);
          const n = (cells.get(place) ?? 0) + hist[j + 1];
          cells.set(place, n);
          most = Math.max(most, n);
        }
      });
    }
    ctx.fillStyle = hasSeveral ? colour(at) : css("--accent");
    for (const [place, n] of cells) {
      const [cell, row] = [Math.floor(place / 1024), place % 1024];
      const x = (k) => u.valToPos((side.offset + k * side.width) / SECOND, "x", true);
      const y = (b) => u.valToPos(Math.max(1, low(b)), "y", true);
      const [left, right] = [x(cell), x(cell + 1)];
      const [bottom, top] = [y(row * 4), y(row * 4 + 4)];
      ctx.globalAlpha = (0.12 + 0.88 * Math.log1p(n) / Math.log1p(most)) * (hasSeveral ? 0.6 : 1);
      ctx.fillRect(left, top, Math.max(1, right - left), Math.max(1, bottom - top));
    }
  });
  ctx.restore();
}

function makeTimeCharts() {
  const rateWords = (what) => (made) => `${what} over time, ${made.series.length} lines: ` + made.series.map((s) => s.label).join(", ");
  timeChart("rate", { height: 200, format: perSecond, make: () => linesOf(spanRates(), perSecond), label: rateWords("spans a second") });
  timeChart("event-rate", { height: 160, format: perSecond, make: () => linesOf(eventRates(), perSecond), label: rateWords("events a second") });
  const latency = () => ({ ...linesOf(latencyLines(), duration), range: durationRange() });
  const words = (what) => () => {
    const all = report.sides.map((side) => { const s = sumsOfAll(side); return `${side.name}: median ${duration(s.p50)}, p99 ${duration(s.p99)}, longest ${duration(s.max)}`; });
    return `${what}. ${all.join("; ")}`;
  };
  timeChart("latency", { height: 280, isLog: true, format: duration, make: latency, draw: drawDots, label: words("latency over time") });
  const nothing = () => ({ data: [[0, end / SECOND], [null, null]], series: [{ label: "duration", show: true, points: { show: false }, value: () => "" }], range: durationRange() });
  timeChart("heat", { height: 240, isLog: true, format: duration, make: nothing, draw: drawHeat, hasLegend: false, label: words("heat map of latency over time") });
}
