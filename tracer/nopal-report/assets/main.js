// Puts the page together.

window.addEventListener("error", (event) => {
  const failure = document.getElementById("failure");
  failure.hidden = false;
  failure.textContent = `This page could not be drawn: ${event.message}`;
});

function makeControls() {
  const [from, to, chosen] = ["from", "to", "chosen"].map((id) => document.getElementById(id));
  from.max = to.max = nSteps;
  const slide = () => setBrush(Number(from.value) * step, Number(to.value) * step);
  from.addEventListener("input", slide);
  to.addEventListener("input", slide);
  const click = (id, act) => document.getElementById(id).addEventListener("click", act);
  click("zoom", () => choice.brush && setView(...choice.brush));
  click("zoom-in", () => zoom(0.5));
  click("zoom-out", () => zoom(2));
  click("reset", showAll);
  click("theme", () => {
    const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = document.documentElement.dataset.theme ?? (isDark ? "dark" : "light");
    document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
    changed();
  });
  const field = document.getElementById("kinds");
  report.kinds.forEach((kind, at) => {
    const label = document.createElement("label");
    label.title = kind.doc;
    label.innerHTML = `<input type="checkbox" checked><span class="swatch"></span>`;
    label.querySelector(".swatch").style.background = colour(at);
    label.append(kind.name);
    label.querySelector("input").addEventListener("change", (event) => {
      if (event.target.checked) choice.kinds.add(at);
      else choice.kinds.delete(at);
      changed();
    });
    field.append(label);
  });
  field.hidden = report.kinds.length === 0;
  onChange(() => {
    const [low, high] = choice.brush ?? [0, nSteps * step];
    from.value = Math.round(low / step);
    to.value = Math.round(high / step);
    from.setAttribute("aria-valuetext", time(low));
    to.setAttribute("aria-valuetext", time(high));
    const spans = report.sides.reduce((sum, side) => sum + sumsOfAll(side).count, 0);
    chosen.textContent = `${choice.brush ? `${time(low)} to ${time(high)}` : "all of the time"}: ${count(spans)} spans`;
    // For whoever wants to ask `nopal query` about the same time: since the epoch.
    const base = BigInt(report.sides[0]?.base ?? 0);
    chosen.dataset.from = String(base + BigInt(Math.round(low)));
    chosen.dataset.to = String(base + BigInt(Math.round(high)));
  });
}

makeControls();
makeSummary();
makeTimeCharts();
makeHistogram();
makeTimeline();
makeTables();
watchers.forEach((watcher) => watcher());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
let resized = null;
window.addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => charts.forEach((chart) => chart.resize()), 100);
});
document.documentElement.dataset.ready = "yes";
