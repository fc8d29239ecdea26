// Tables that sort and filter, and follow the brush.

const MAX_ROWS = 200;

/** `rows()` gives objects; a column has a name, a label, and for numbers a format. */
function makeTable(id, title, columns, rows, note = () => "") {
  const section = document.createElement("div");
  section.className = "table";
  section.id = id;
  section.innerHTML = `<div class="head"><h2></h2><label>Filter <input type="search"></label><span class="hint" aria-live="polite"></span></div>
    <div class="scroll" tabindex="0" role="region"><table><caption class="skip"></caption><thead><tr></tr></thead><tbody></tbody></table></div>`;
  section.querySelector("h2").textContent = title;
  section.querySelector("caption").textContent = title;
  section.querySelector(".scroll").setAttribute("aria-label", title);
  const [input, hint, body] = ["input", ".hint", "tbody"].map((name) => section.querySelector(name));
  input.setAttribute("aria-label", "Filter " + title);
  const sort = { by: columns.find((column) => column.isFirst) ?? columns[0], isDown: true };
  const heads = columns.map((column) => {
    const th = document.createElement("th");
    th.scope = "col";
    if (column.format) th.className = "number";
    const button = document.createElement("button");
    button.type = "button";
    button.addEventListener("click", () => {
      sort.isDown = sort.by === column ? !sort.isDown : Boolean(column.format);
      sort.by = column;
      refresh();
    });
    th.append(button);
    section.querySelector("thead tr").append(th);
    return { column, th, button };
  });
  const text = (column, row) => (column.format ? column.format(row[column.name]) : String(row[column.name] ?? ""));
  const refresh = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const all = rows();
    const matches = (row) => {
      const line = columns.map((column) => text(column, row)).join(" ").toLowerCase();
      return words.every((word) => line.includes(word));
    };
    const found = words.length ? all.filter(matches) : all;
    const { by, isDown } = sort;
    const value = (row) => row[by.name] ?? (by.format ? -Infinity : "");
    found.sort((a, b) => {
      const order = by.format ? value(a) - value(b) : String(value(a)).localeCompare(String(value(b)), "en", { numeric: true });
      return isDown ? -order : order;
    });
    for (const { column, th, button } of heads) {
      const isBy = column === by;
      th.setAttribute("aria-sort", isBy ? (isDown ? "descending" : "ascending") : "none");
      button.textContent = column.label + (isBy ? (isDown ? " ▾" : " ▴") : "");
    }
    body.replaceChildren(...found.slice(0, MAX_ROWS).map((row) => {
      const tr = document.createElement("tr");
      for (const column of columns) {
        const td = document.createElement("td");
        td.className = column.format ? "number" : column.isLong ? "long" : "";
        td.textContent = text(column, row);
        tr.append(td);
      }
      return tr;
    }));
    const shown = found.length > MAX_ROWS ? `the first ${MAX_ROWS} of ${count(found.length)} rows` : `${count(found.length)} rows`;
    hint.textContent = [shown, note()].filter(Boolean).join("; ");
  };
  input.addEventListener("input", refresh);
  document.getElementById("tables").append(section);
  onChange(refresh);
}

const about = (label, name, format, more = {}) => ({ label, name, format, ...more });
const ofSide = hasSeveral ? [about("recording", "side")] : [];
const NUMBERS = [
  about("count", "count", count), about("errors", "errors", count), about("total", "total", duration, { isFirst: true }),
  about("self", "self", duration), about("p50", "p50", duration), about("p90", "p90", duration),
  about("p99", "p99", duration), about("p99.9", "p999", duration), about("max", "max", duration),
];
const rough = () => (choice.brush ? "quantiles of a part of the time are within 3 %" : "");

function makeTables() {
  makeTable("spans", "Spans by kind", [...ofSide, about("span", "name"), ...NUMBERS], () =>
    report.sides.flatMap((side) => [...choice.kinds]
      .map((kind) => ({ side: side.name, name: report.kinds[kind].name, ...sumsOf(side, side.kinds[kind]) }))
      .filter((row) => row.count > 0)), rough);
  const leftOut = report.sides.reduce((sum, side) => sum + side.keys.left_out, 0);
  makeTable("keys", "Spans by value", [...ofSide, about("span", "name"), about("value", "key", null, { isLong: true }), ...NUMBERS], () =>
    report.sides.flatMap((side) => side.keys.rows.filter((row) => choice.kinds.has(row.kind))
      .map((row) => ({ side: side.name, name: report.kinds[row.kind].name, key: row.key, ...sumsOf(side, row) }))
      .filter((row) => row.count > 0)),
    () => [rough(), leftOut ? `${count(leftOut)} values that took less time together are left out` : ""].filter(Boolean).join("; "));
  makeTable("slowest", "The slowest spans", [
    ...ofSide, about("took", "dur", duration, { isFirst: true }), about("self", "self", duration), about("span", "name"),
    about("ended at", "end", time), about("pid/tid", "thread"), about("failed", "error"), about("fields", "fields", null, { isLong: true }),
  ], () => report.sides.flatMap((side) => side.slowest
    .filter((slow) => choice.kinds.has(slow.kind) && isChosen(side.offset + slow.end))
    .map((slow) => ({ ...slow, side: side.name, name: report.kinds[slow.kind].name, end: side.offset + slow.end, error: slow.error ? "yes" : "" }))));
  makeTable("events", "Events", [...ofSide, about("event", "name"), about("count", "count", count, { isFirst: true }), about("a second", "rate", perSecond)], () =>
    report.sides.flatMap((side) => side.events.map((event) => {
      const cells = event.cells.filter((_, cell) => isChosenCell(side, cell));
      const n = cells.reduce((a, b) => a + b, 0);
      const ns = choice.brush ? cells.length * side.width : side.duration;
      return { side: side.name, name: event.name, count: n, rate: ns ? n / (ns / SECOND) : 0 };
    }).filter((row) => row.count > 0)));
  if (report.sides.some((side) => side.losses.length || side.gaps.length))
    makeTable("losses", "What was lost", [
      ...ofSide, about("from", "from", time), about("to", "to", time), about("CPU", "cpu"), about("lost", "count", (n) => (n == null ? "" : count(n)), { isFirst: true }), about("what", "what", null, { isLong: true }),
    ], () => report.sides.flatMap((side) => [
      ...side.losses.map((loss) => ({ side: side.name, from: side.offset + loss.from, to: side.offset + loss.to, cpu: loss.cpu, count: loss.count, what: loss.packets ? "packets of events" : "events" })),
      ...side.gaps.map((gap) => ({ side: side.name, from: side.offset + gap.at, to: side.offset + gap.at, what: gap.text })),
    ]).filter((row) => !choice.brush || (row.to >= choice.brush[0] && row.from < choice.brush[1])),
    () => {
      const more = report.sides.reduce((sum, side) => sum + side.n_losses - side.losses.length + side.n_gaps - side.gaps.length, 0);
      return more > 0 ? `${count(more)} more are not listed` : "";
    });
}
