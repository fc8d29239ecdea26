// The summary in words: how much there is, what was slow, what failed, what was lost.

function sentences() {
  const said = [];
  const when = choice.brush ? `From ${time(choice.brush[0])} to ${time(choice.brush[1])}` : "";
  for (const side of report.sides) {
    const name = hasSeveral ? `${side.name}: ` : "";
    if (!when) {
      const host = side.hosts.filter(Boolean).join(", ");
      const began = side.began ? `, from ${side.began}` : "";
      said.push([`${name}${count(side.n_events)} events in ${duration(side.duration)}${host ? " on " + host : ""}${began}.`]);
    }
    const rows = [...choice.kinds].map((kind) => ({ name: report.kinds[kind].name, ...sumsOf(side, side.kinds[kind]) })).filter((row) => row.count > 0);
    const total = rows.reduce((sum, row) => sum + row.self, 0);
    const most = rows.reduce((best, row) => (!best || row.self > best.self ? row : best), null);
    if (!most) {
      said.push([`${name}${when ? when + " no" : "No"} span ended${when ? "" : "; the events are counted below"}.`]);
    } else {
      const share = total > 0 && rows.length > 1 ? `, ${percent(most.self / total)} of the time in spans` : "";
      said.push([`${name}${when ? when + ": most" : "Most"} time was spent in ${most.name}: ${count(most.count)} spans, ${duration(most.self)} in themselves${share}; half took at most ${duration(most.p50)}, 99 % at most ${duration(most.p99)}.`]);
      const slow = side.slowest.filter((one) => choice.kinds.has(one.kind) && isChosen(side.offset + one.end)).reduce((best, one) => (!best || one.dur > best.dur ? one : best), null);
      if (slow) said.push([`${name}The slowest was ${report.kinds[slow.kind].name}${slow.key == null ? "" : ` (${slow.key.slice(0, 80)})`}: ${duration(slow.dur)}, until ${time(side.offset + slow.end)} on ${slow.thread}.`]);
      const tail = rows.filter((row) => row.count >= 100 && row.p99 > 10 * row.p50).sort((a, b) => b.p99 / b.p50 - a.p99 / a.p50)[0];
      if (tail) said.push([`${name}${tail.name} has a long tail: its 99th percentile is ${(tail.p99 / tail.p50).toFixed(0)} times its median.`]);
      const failed = rows.reduce((sum, row) => sum + row.errors, 0);
      if (failed) {
        const worst = rows.reduce((best, row) => (row.errors > best.errors ? row : best));
        said.push([`${name}${count(failed)} spans failed, ${count(worst.errors)} of them ${worst.name} (${percent(worst.errors / worst.count)} of these).`]);
      }
    }
    if (!when && side.unmatched) said.push([`${name}${count(side.unmatched)} begins and ends had no partner and are in no span.`]);
    said.push([`${name}${side.complete ? "The recording is " + side.verdict : "Not everything is here: " + side.verdict}.`, side.complete ? "" : "lost"]);
  }
  if (report.sides.length === 2) said.push(...compared(...report.sides));
  if (hasSeveral) said.push([isByClock ? "The recordings overlap in time and are drawn by the clock." : "The recordings are of different times; each is drawn from its own start."]);
  return said;
}
/** The kind of span whose 99th percentile has changed most. */
function compared(before, after) {
  const both = [...choice.kinds].map((kind) => ({ name: report.kinds[kind].name, a: sumsOf(before, before.kinds[kind]), b: sumsOf(after, after.kinds[kind]) })).filter(({ a, b }) => a.count > 0 && b.count > 0 && a.p99 > 0);
  const change = ({ a, b }) => Math.abs(Math.log(Math.max(1, b.p99) / Math.max(1, a.p99)));
  const most = both.sort((x, y) => change(y) - change(x))[0];
  if (!most) return [];
  const share = most.b.p99 / most.a.p99 - 1;
  return [[`The 99th percentile of ${most.name} went from ${duration(most.a.p99)} in ${before.name} to ${duration(most.b.p99)} in ${after.name} (${share >= 0 ? "+" : "−"}${percent(Math.abs(share))}), which is the greatest change of all spans. \`nopal diff\` says what chance explains.`]];
}
function makeSummary() {
  const list = document.getElementById("summary");
  onChange(() => list.replaceChildren(...sentences().map(([text, kind]) => {
    const item = document.createElement("li");
    item.textContent = text;
    if (kind) item.className = kind;
    return item;
  })));
}
