// Spans one by one, a row for each thread and a lane for each depth. Of many spans only the longest of each moment are
// drawn; where others were left out there is a shade.

const LANE = 15;
const MAX_LANES = 40;

/** The lane of each bar, and where each thread begins. */
function layOut(side) {
  const { start, dur, thread, depth, threads } = side.timeline;
  const ends = threads.map(() => []);
  const lanes = new Array(start.length);
  for (let i = 0; i < start.length; i++) {
    const open = ends[thread[i]];
    let lane = Math.min(depth[i], MAX_LANES);
    while (lane < MAX_LANES && (open[lane] ?? -Infinity) > start[i]) lane++;
    lanes[i] = lane;
    open[lane] = Math.max(open[lane] ?? -Infinity, start[i] + Math.max(1, dur[i]));
  }
  return { lanes, heights: ends.map((open) => Math.max(1, open.length) * LANE + 6) };
}

function makeTimeline() {
  const element = document.getElementById("timeline");
  const canvas = document.createElement("canvas");
  element.append(canvas);
  const HEAD = 22;
  const rows = [];
  let height = 4;
  for (const side of report.sides) {
    const { lanes, heights } = layOut(side);
    side.timeline.lanes = lanes;
    side.timeline.tops = heights.map((h, at) => {
      const top = height + HEAD - 6;
      rows.push({ label: (hasSeveral ? side.name + " " : "") + side.timeline.threads[at], top: height });
      height += h + HEAD - 6;
      return top;
    });
  }
  height = Math.min(height + 6, 12000);
  const width = () => Math.max(200, element.clientWidth);
  const x = (ns) => ((ns - choice.view[0]) / (choice.view[1] - choice.view[0])) * width();
  let nDrawn = 0;
  const refresh = () => {
    const ratio = Math.min(devicePixelRatio, height > 6000 ? 1 : 2);
    canvas.width = width() * ratio;
    canvas.height = height * ratio;
    canvas.style.width = width() + "px";
    canvas.style.height = height + "px";
    const ctx = canvas.getContext("2d");
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.font = "11px system-ui, sans-serif";
    ctx.textBaseline = "middle";
    const loss = css("--loss");
    nDrawn = 0;
    let nLeftOut = 0;
    for (const side of report.sides) {
      const t = side.timeline;
      ctx.fillStyle = css("--dim");
      for (const [thread, cell, n] of t.left_out) {
        const [from, to] = [side.offset + cell * side.width, side.offset + (cell + 1) * side.width];
        if (to < choice.view[0] || from > choice.view[1]) continue;
        nLeftOut += n;
        ctx.globalAlpha = Math.min(0.35, 0.08 + Math.log10(n) * 0.06);
        ctx.fillRect(x(from), t.tops[thread], Math.max(1, x(to) - x(from)), LANE);
      }
      for (let i = 0; i < t.start.length; i++) {
        const from = side.offset + t.start[i];
        if (!choice.kinds.has(t.kind[i]) || from > choice.view[1] || from + t.dur[i] < choice.view[0]) continue;
        const left = Math.max(-2, x(from));
        const right = Math.min(width() + 2, x(from + t.dur[i]));
        const top = t.tops[t.thread[i]] + t.lanes[i] * LANE;
        ctx.globalAlpha = isChosen(from + t.dur[i]) ? 1 : 0.25;
        ctx.fillStyle = colour(t.kind[i]);
        ctx.fillRect(left, top, Math.max(1, right - left), LANE - 2);
        if (t.error[i]) {
          ctx.fillStyle = loss;
          ctx.fillRect(left, top + LANE - 4, Math.max(1, right - left), 2);
        }
        if (right - left > 40) {
          ctx.fillStyle = "#fff";
          ctx.save();
          ctx.beginPath();
          ctx.rect(left, top, right - left, LANE);
          ctx.clip();
          ctx.fillText(nameOf(t, i), Math.max(left, 0) + 3, top + LANE / 2 - 1);
          ctx.restore();
        }
        nDrawn++;
      }
      ctx.globalAlpha = 1;
    }
    drawLosses(ctx, x, 0, height);
    ctx.fillStyle = css("--fg");
    for (const row of rows) ctx.fillText(row.label, 4, row.top + 9);
    if (choice.brush) {
      ctx.fillStyle = css("--veil");
      ctx.globalAlpha = 0.5;
      ctx.fillRect(0, 0, x(choice.brush[0]), height);
      ctx.fillRect(x(choice.brush[1]), 0, width(), height);
      ctx.globalAlpha = 1;
    }
    const more = nLeftOut ? `; ${count(nLeftOut)} shorter ones are not drawn (make a report of less time with --from and --until to see them)` : "";
    const threads = report.sides.reduce((sum, side) => sum + side.timeline.threads_left_out, 0);
    const others = threads ? `; ${count(threads)} threads with less to do are not drawn` : "";
    element.setAttribute("aria-label", `${count(nDrawn)} spans of ${rows.length} threads from ${time(choice.view[0])} to ${time(choice.view[1])}${more}${others}`);
    if (!hovered) say(element.getAttribute("aria-label"));
  };
  const nameOf = (t, i) => report.kinds[t.kind[i]].name + (t.key[i] == null ? "" : " " + t.texts[t.key[i]]);
  const say = (text) => { document.getElementById("bar").textContent = text; };
  let hovered = null;
  /** The bar below a place of the canvas. */
  const barAt = (event) => {
    const box = canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    const ns = choice.view[0] + (px / width()) * (choice.view[1] - choice.view[0]);
    const slack = ((choice.view[1] - choice.view[0]) / width()) * 2;
    let best = null;
    for (const side of report.sides) {
      const t = side.timeline;
      for (let i = 0; i < t.start.length; i++) {
        const top = t.tops[t.thread[i]] + t.lanes[i] * LANE;
        const from = side.offset + t.start[i];
        if (py < top || py > top + LANE || ns < from - slack || ns > from + t.dur[i] + slack || !choice.kinds.has(t.kind[i])) continue;
        if (!best || t.dur[i] > best.dur) best = { side, i, from, dur: t.dur[i] };
      }
    }
    return { best, ns };
  };
  element.addEventListener("mousemove", (event) => {
    hovered = barAt(event).best;
    if (!hovered) return;
    const t = hovered.side.timeline;
    say(`${nameOf(t, hovered.i)}: ${duration(hovered.dur)} from ${time(hovered.from)} on ${t.threads[t.thread[hovered.i]]}${t.error[hovered.i] ? ", failed" : ""}`);
  });
  element.addEventListener("mouseleave", () => { hovered = null; });
  element.addEventListener("dblclick", (event) => {
    const { best } = barAt(event);
    if (best) setView(best.from - best.dur * 0.2, best.from + best.dur * 1.2);
    else showAll();
  });
  element.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.4 : 1 / 1.4, barAt(event).ns);
  }, { passive: false });
  let dragged = null;
  element.addEventListener("pointerdown", (event) => { if (event.pointerType === "mouse" && event.target === canvas) dragged = { at: event.clientX, ns: barAt(event).ns }; });
  window.addEventListener("pointerup", (event) => {
    if (dragged && Math.abs(event.clientX - dragged.at) > 4) setBrush(dragged.ns, barAt(event).ns);
    dragged = null;
  });
  element.addEventListener("keydown", (event) => {
    const width = choice.view[1] - choice.view[0];
    const moves = {
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), Home: showAll,
      ArrowLeft: () => setView(choice.view[0] - width / 5, choice.view[1] - width / 5),
      ArrowRight: () => setView(choice.view[0] + width / 5, choice.view[1] + width / 5),
    };
    if (!moves[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    moves[event.key]();
  });
  charts.push({ resize: refresh });
  onChange(refresh);
}
