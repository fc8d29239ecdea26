// How often spans took how long, in the chosen time.

function makeHistogram() {
  const element = document.getElementById("histogram");
  let u = null;
  const height = 220;
  const width = () => Math.max(200, element.clientWidth);
  const lows = (row) => low(row * 4);
  const counted = () => report.sides.map((side) => {
    const rows = new Map();
    for (const [b, n] of sumsOfAll(side).buckets) rows.set(Math.floor(b / 4), (rows.get(Math.floor(b / 4)) ?? 0) + n);
    return rows;
  });
  const refresh = () => {
    const sides = counted();
    const used = sides.flatMap((rows) => [...rows.keys()]);
    // A picture of one bar would say nothing of where it lies.
    const [first, last] = used.length ? [Math.max(0, Math.min(...used) - 4), Math.max(...used) + 4] : [0, 8];
    const x = Array.from({ length: last - first + 1 }, (_, i) => first + i);
    const data = [x, ...sides.map((rows) => x.map((row) => rows.get(row) ?? 0))];
    if (u) {
      u.setData(data);
    } else {
      const bars = (at) => uPlot.paths.bars({ size: [hasSeveral ? 0.9 / sides.length : 0.9, Infinity], align: hasSeveral ? (at ? 1 : -1) : 0 });
      u = new uPlot({
        width: width(), height,
        scales: { x: { time: false, range: (_, min, max) => [min - 1, max + 1] }, y: { range: (_, __, max) => [0, (max || 1) * 1.05] } },
        axes: [
          { ...axisStyle(), incrs: [1, 2, 4, 8, 16, 32], space: 60, values: (_, splits) => splits.map((row) => (Number.isInteger(row) && row >= 0 ? duration(lows(row)) : "")) },
          { ...axisStyle(), size: 68, values: (_, splits) => splits.map((n) => (Number.isInteger(n) ? count(n) : "")) },
        ],
        series: [
          { label: "duration", value: (_, row) => (row == null ? "" : `${duration(lows(row))} to ${duration(lows(row + 1))}`) },
          ...report.sides.map((side, at) => ({
            label: hasSeveral ? side.name : "spans", stroke: () => (hasSeveral ? colour(at) : css("--accent")),
            fill: () => (hasSeveral ? colour(at) + "99" : css("--accent") + "99"), paths: bars(at), points: { show: false }, value: (_, n) => (n == null ? "–" : count(n)),
          })),
        ],
        cursor: { drag: { x: false, y: false } },
      }, data, element);
      u.root.setAttribute("role", "img");
      charts.push({ resize: () => u.setSize({ width: width(), height }) });
    }
    const total = sides.map((rows) => [...rows.values()].reduce((a, b) => a + b, 0));
    u.root.setAttribute("aria-label", "histogram of durations: " + report.sides.map((side, at) => `${side.name} ${count(total[at])} spans`).join(", "));
  };
  onChange(refresh);
}
