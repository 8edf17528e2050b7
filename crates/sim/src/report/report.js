"use strict";
const report = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const tip = $("tip");
let run = null;          // the run that is shown
let view = { from: 0, to: 1 };
let showSteals = true;
let colours = {};

function duration(s) {
  const a = Math.abs(s);
  const three = (v) => (v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v.toFixed(2));
  if (a === 0) return "0 s";
  if (a < 1e-6) return three(s * 1e9) + " ns";
  if (a < 1e-3) return three(s * 1e6) + " µs";
  if (a < 1) return three(s * 1e3) + " ms";
  if (a < 600) return three(s) + " s";
  if (a < 36000) return three(s / 60) + " min";
  return three(s / 3600) + " h";
}

// Round steps for an axis: 1, 2 or 5 times a power of ten.
function ticks(from, to, count) {
  const span = to - from || 1;
  const raw = span / count;
  const power = Math.pow(10, Math.floor(Math.log10(raw)));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const list = [];
  for (let t = Math.ceil(from / step) * step; t <= to + step * 1e-9; t += step) list.push(t);
  return list;
}

function readColours() {
  for (const name of ["own", "stolen", "failed", "stopped", "steal", "grid", "soft", "ink", "lane", "card", "accent", "area", "line"]) {
    colours[name] = css("--" + name);
  }
}

// ---- the Gantt chart --------------------------------------------------------------------------
const gantt = $("gantt");
const NAME = 92, TOP = 22;
let rows = { height: 0, tops: [], heights: [] };

function layout() {
  const lanes = run.timeline.lanes;
  const slot = lanes.length > 64 ? 7 : lanes.length > 24 ? 12 : 20;
  let y = TOP;
  rows = { tops: [], heights: [], height: 0 };
  for (const lane of lanes) {
    const many = run.timeline.spans.length ? Math.min(lane.slots, 8) : 1;
    const h = Math.max(slot, many * (many > 1 ? Math.min(slot, 10) : slot));
    rows.tops.push(y);
    rows.heights.push(h);
    y += h + (slot > 10 ? 4 : 2);
  }
  rows.height = y + 4;
}

function surface(canvas, height) {
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  canvas.style.height = height + "px";
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  return [pen, width];
}

const nameWidth = () => (gantt.clientWidth < 500 ? 62 : NAME);
const toX = (t, width) => nameWidth() + ((t - view.from) / (view.to - view.from)) * (width - nameWidth());
const toTime = (x, width) => view.from + ((x - nameWidth()) / (width - nameWidth())) * (view.to - view.from);

function drawGantt() {
  const { timeline } = run;
  const [pen, width] = surface(gantt, rows.height);
  const left = nameWidth();
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  for (const t of ticks(view.from, view.to, Math.max(3, width / 110))) {
    const x = toX(t, width);
    if (x < left) continue;
    pen.fillStyle = colours.grid;
    pen.fillRect(x, TOP - 4, 1, rows.height);
    pen.fillStyle = colours.soft;
    pen.textAlign = x > width - 30 ? "right" : "center";
    pen.fillText(duration(t), x, 9);
  }
  pen.textAlign = "right";
  timeline.lanes.forEach((lane, i) => {
    pen.fillStyle = colours.lane;
    pen.fillRect(left, rows.tops[i], width - left, rows.heights[i]);
    if (rows.heights[i] >= 10 || i % 4 === 0) {
      pen.fillStyle = colours.soft;
      pen.fillText(lane.name, left - 8, rows.tops[i] + rows.heights[i] / 2, left - 10);
    }
  });
  pen.save();
  pen.beginPath();
  pen.rect(left, 0, width - left, rows.height);
  pen.clip();
  if (timeline.spans.length) drawSpans(pen, width);
  else drawStrips(pen, width);
  if (showSteals) drawSteals(pen, width);
  drawIncidents(pen, width);
  pen.restore();
}

function drawSpans(pen, width) {
  const { spans, lanes } = run.timeline;
  for (const span of spans) {
    if (span.end < view.from || span.start > view.to) continue;
    const slots = Math.min(lanes[span.lane].slots, 8);
    const h = rows.heights[span.lane] / slots;
    const x = toX(span.start, width);
    const w = Math.max(0.7, toX(span.end, width) - x - (h > 8 ? 0.8 : 0));
    const y = rows.tops[span.lane] + (span.slot % slots) * h;
    pen.fillStyle = colours[span.kind];
    pen.fillRect(x, y, w, Math.max(1, h - (slots > 1 ? 1 : 0)));
    if (w > 34 && h >= 14) {
      pen.fillStyle = "rgba(255,255,255,.92)";
      pen.textAlign = "left";
      pen.fillText(nameOf(span.task), Math.max(x, nameWidth()) + 5, y + h / 2 + .5, w - 8);
    }
  }
}

const nameOf = (task) => run.timeline.names?.[task] ?? "#" + task;

function drawStrips(pen, width) {
  const { lanes, column } = run.timeline;
  pen.fillStyle = colours.own;
  lanes.forEach((lane, i) => {
    lane.busy.forEach((share, c) => {
      if (share <= 0) return;
      const x = toX(c * column, width);
      const end = toX((c + 1) * column, width);
      if (end < nameWidth() || x > width) return;
      pen.globalAlpha = Math.min(1, .08 + .92 * share);
      pen.fillRect(x, rows.tops[i], Math.max(.6, end - x + .3), rows.heights[i]);
    });
  });
  pen.globalAlpha = 1;
}

function drawSteals(pen, width) {
  const seen = run.timeline.steals.filter((s) => s.at >= view.from && s.at <= view.to);
  pen.strokeStyle = colours.steal;
  pen.fillStyle = colours.steal;
  pen.globalAlpha = Math.max(.12, Math.min(.85, 160 / (seen.length + 1)));
  pen.lineWidth = 1.2;
  for (const steal of seen) {
    const x = toX(steal.at, width);
    const y1 = rows.tops[steal.from] + rows.heights[steal.from] / 2;
    const y2 = rows.tops[steal.to] + rows.heights[steal.to] / 2;
    const bend = Math.min(18, Math.abs(y2 - y1) / 3);
    pen.beginPath();
    pen.moveTo(x, y1);
    pen.quadraticCurveTo(x - bend, (y1 + y2) / 2, x, y2);
    pen.stroke();
    pen.beginPath();
    pen.arc(x, y2, 2.2, 0, 7);
    pen.fill();
  }
  pen.globalAlpha = 1;
}

function drawIncidents(pen, width) {
  pen.textAlign = "left";
  for (const incident of run.timeline.incidents) {
    if (incident.at < view.from || incident.at > view.to) continue;
    const x = toX(incident.at, width);
    const y = rows.tops[incident.lane];
    const bad = incident.what === "crashed" || incident.what === "cut off";
    pen.fillStyle = bad ? colours.failed : colours.accent;
    pen.fillRect(x - 1, y - 2, 2.5, rows.heights[incident.lane] + 4);
    if (rows.heights[incident.lane] >= 18) pen.fillText(incident.what, x + 5, y + 7);
  }
}

// ---- zoom, pan, hover -------------------------------------------------------------------------
function setView(from, to) {
  const end = run.timeline.end || 1;
  const width = Math.max(Math.min(to - from, end), end * 1e-6);
  const start = Math.max(0, Math.min(from, end - width));
  view = { from: start, to: start + width };
  drawGantt();
  drawOverview();
  drawCharts();
}

function zoom(factor, at) {
  const centre = at ?? (view.from + view.to) / 2;
  setView(centre - (centre - view.from) * factor, centre + (view.to - centre) * factor);
}

const overview = $("overview");
function drawOverview() {
  const [pen, width] = surface(overview, 34);
  const left = nameWidth();
  const { lanes, column, end } = run.timeline;
  const slots = lanes.reduce((sum, lane) => sum + lane.slots, 0) || 1;
  const scale = (width - left) / (end || 1);
  pen.fillStyle = colours.lane;
  pen.fillRect(left, 0, width - left, 34);
  pen.fillStyle = colours.own;
  pen.globalAlpha = .45;
  const columns = lanes[0] ? lanes[0].busy.length : 0;
  pen.beginPath();
  pen.moveTo(left, 34);
  for (let c = 0; c < columns; c++) {
    const share = lanes.reduce((sum, lane) => sum + lane.busy[c] * lane.slots, 0) / slots;
    pen.lineTo(left + c * column * scale, 34 - 34 * share);
    pen.lineTo(Math.min(width, left + (c + 1) * column * scale), 34 - 34 * share);
  }
  pen.lineTo(Math.min(width, left + columns * column * scale), 34);
  pen.fill();
  pen.globalAlpha = 1;
  const a = left + view.from * scale, b = left + view.to * scale;
  pen.fillStyle = colours.card;
  pen.globalAlpha = .6;
  pen.fillRect(left, 0, a - left, 34);
  pen.fillRect(b, 0, width - b, 34);
  pen.globalAlpha = 1;
  pen.strokeStyle = colours.accent;
  pen.lineWidth = 2;
  pen.strokeRect(a + 1, 1, Math.max(3, b - a - 2), 32);
}

function dragOn(canvas, move) {
  const pointers = new Map();
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, event.offsetX);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!pointers.has(event.pointerId)) return hover(canvas, event);
    const before = [...pointers.values()];
    const last = pointers.get(event.pointerId);
    pointers.set(event.pointerId, event.offsetX);
    const after = [...pointers.values()];
    if (after.length === 2) {
      const apart = (p) => Math.max(8, Math.abs(p[0] - p[1]));
      zoom(apart(before) / apart(after), toTime((after[0] + after[1]) / 2, gantt.clientWidth));
    } else move(event.offsetX - last);
  });
  for (const end of ["pointerup", "pointercancel", "pointerleave"]) {
    canvas.addEventListener(end, (event) => { pointers.delete(event.pointerId); hideTip(); });
  }
}

function hover(canvas, event) {
  if (canvas !== gantt) return;
  const { lanes, spans, column, steals } = run.timeline;
  const width = gantt.clientWidth;
  const y = event.offsetY;
  const lane = rows.tops.findIndex((top, i) => y >= top - 2 && y <= top + rows.heights[i] + 2);
  if (lane < 0 || event.offsetX < nameWidth()) return hideTip();
  const time = toTime(event.offsetX, width);
  const near = (view.to - view.from) * 4 / width;
  if (!spans.length) {
    const c = Math.floor(time / column);
    const l = lanes[lane];
    return showTip(event, [
      l.name,
      `${duration(time)}: ${Math.round(100 * (l.busy[c] || 0))} % busy, ${(l.queue[c] || 0).toFixed(1)} waiting`,
    ]);
  }
  const slots = Math.min(lanes[lane].slots, 8);
  const slot = Math.floor((y - rows.tops[lane]) / (rows.heights[lane] / slots));
  const span = spans.find((s) => s.lane === lane && s.slot % slots === slot && s.start - near / 4 <= time && s.end + near / 4 >= time);
  if (!span) return hideTip();
  const steal = steals.findLast((s) => s.task === span.task && s.at <= span.start);
  const words = { failed: "failed", stopped: "stopped before its end" };
  showTip(event, [
    `${run.timeline.names?.[span.task] ?? `task ${span.task}`} on ${lanes[lane].name}`,
    steal && `taken from ${lanes[steal.from].name} at ${duration(steal.at)}`,
    words[span.kind],
    `${duration(span.start)} to ${duration(span.end)}, ran ${duration(span.end - span.start)}`,
  ]);
}

function showTip(event, lines) {
  tip.replaceChildren(...lines.filter(Boolean).map((line) => {
    const node = document.createElement("div");
    node.textContent = line;
    return node;
  }));
  tip.classList.add("shown");
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.min(event.clientX + 14, innerWidth - box.width - 8) + "px";
  tip.style.top = Math.min(event.clientY + 16, innerHeight - box.height - 8) + "px";
}
const hideTip = () => tip.classList.remove("shown");

dragOn(gantt, (dx) => {
  const perPixel = (view.to - view.from) / (gantt.clientWidth - nameWidth());
  setView(view.from - dx * perPixel, view.to - dx * perPixel);
});
dragOn(overview, (dx) => {
  const perPixel = run.timeline.end / (overview.clientWidth - nameWidth());
  setView(view.from + dx * perPixel, view.to + dx * perPixel);
});
gantt.addEventListener("wheel", (event) => {
  if (!(event.ctrlKey || event.metaKey || event.shiftKey)) return;
  event.preventDefault();
  const delta = event.deltaY || event.deltaX;
  zoom(delta > 0 ? 1.2 : 1 / 1.2, toTime(event.offsetX, gantt.clientWidth));
}, { passive: false });
gantt.addEventListener("dblclick", (event) => zoom(.4, toTime(event.offsetX, gantt.clientWidth)));
gantt.addEventListener("keydown", (event) => {
  const step = (view.to - view.from) / 8;
  const keys = {
    ArrowLeft: () => setView(view.from - step, view.to - step),
    ArrowRight: () => setView(view.from + step, view.to + step),
    "+": () => zoom(.6), "-": () => zoom(1.6), "0": () => setView(0, run.timeline.end),
  };
  if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
});
$("in").onclick = () => zoom(.5);
$("out").onclick = () => zoom(2);
$("all").onclick = () => setView(0, run.timeline.end);
$("steals").onclick = (event) => {
  showSteals = !showSteals;
  event.currentTarget.setAttribute("aria-pressed", showSteals);
  drawGantt();
};

// ---- the small charts -------------------------------------------------------------------------
const H = 210, L = 44, B = 26, T = 10, R = 10;
let W = 560;

// A chart is drawn as wide as its place is, so that letters keep their size on a phone.
function fitCharts() {
  W = Math.max(260, $("queues").clientWidth || W);
  for (const chart of ["queues", "utilization", "waits", "workers"]) $(chart).setAttribute("viewBox", `0 0 ${W} ${H}`);
}

function frame(xs, ys, x, y, xLabel, yLabel) {
  let svg = "";
  for (const t of ys) svg += `<line x1="${L}" x2="${W - R}" y1="${y(t)}" y2="${y(t)}" stroke="var(--grid)"/><text x="${L - 6}" y="${y(t) + 4}" text-anchor="end">${yLabel(t)}</text>`;
  for (const t of xs) svg += `<text x="${x(t)}" y="${H - 8}" text-anchor="${x(t) > W - 30 ? "end" : "middle"}">${xLabel(t)}</text>`;
  return svg;
}

function path(points) {
  return points.map((p, i) => (i ? "L" : "M") + p[0].toFixed(1) + " " + p[1].toFixed(1)).join("");
}

function columnsInView() {
  const { lanes, column } = run.timeline;
  const count = lanes[0] ? lanes[0].busy.length : 0;
  const list = [];
  for (let c = Math.floor(view.from / column); c < Math.min(count, Math.ceil(view.to / column)); c++) list.push(c);
  return list;
}

function drawQueues() {
  const { lanes, column } = run.timeline;
  const list = columnsInView();
  const most = Math.max(1, ...lanes.map((lane) => Math.max(0, ...list.map((c) => lane.queue[c]))));
  const x = (t) => L + ((t - view.from) / (view.to - view.from)) * (W - L - R);
  const y = (v) => H - B - (v / most) * (H - B - T);
  const points = (of) => list.map((c) => [Math.max(L, Math.min(W - R, x((c + .5) * column))), y(of(c))]);
  let svg = frame(ticks(view.from, view.to, 5), ticks(0, most, 4), x, y, duration, (v) => v >= 10000 ? +(v / 1000).toFixed(1) + " k" : +v.toFixed(2));
  if (lanes.length <= 64) {
    for (const lane of lanes) svg += `<path d="${path(points((c) => lane.queue[c]))}" fill="none" stroke="var(--own)" stroke-width="1" opacity=".35"/>`;
  }
  svg += `<path d="${path(points((c) => Math.max(...lanes.map((lane) => lane.queue[c]))))}" fill="none" stroke="var(--stolen)" stroke-width="2"/>`;
  svg += `<path d="${path(points((c) => lanes.reduce((s, lane) => s + lane.queue[c], 0) / lanes.length))}" fill="none" stroke="var(--own)" stroke-width="2.4"/>`;
  $("queues").innerHTML = svg;
}

function drawUtilization() {
  const { lanes, column, end } = run.timeline;
  const slots = lanes.reduce((sum, lane) => sum + lane.slots, 0) || 1;
  const x = (t) => L + ((t - view.from) / (view.to - view.from)) * (W - L - R);
  const y = (v) => H - B - v * (H - B - T);
  const points = columnsInView().map((c) => {
    // The last column may reach beyond the end of the run.
    const width = Math.min(column, end - c * column) / column || 1;
    const share = lanes.reduce((s, lane) => s + lane.busy[c] * lane.slots, 0) / slots / width;
    return [Math.max(L, Math.min(W - R, x((c + .5) * column))), y(Math.min(1, share))];
  });
  let svg = frame(ticks(view.from, view.to, 5), [0, .25, .5, .75, 1], x, y, duration, (v) => Math.round(v * 100) + " %");
  if (points.length) {
    const first = points[0], last = points[points.length - 1];
    svg += `<path d="${path(points)}L${last[0]} ${y(0)}L${first[0]} ${y(0)}Z" fill="var(--area)"/><path d="${path(points)}" fill="none" stroke="var(--own)" stroke-width="2"/>`;
  }
  svg += `<line x1="${L}" x2="${W - R}" y1="${y(.9)}" y2="${y(.9)}" stroke="var(--good)" stroke-dasharray="4 4"/>`;
  $("utilization").innerHTML = svg;
}

function drawWaits() {
  const waits = run.timeline.waits;
  const most = waits[100] || 1e-9;
  const x = (v) => L + (v / most) * (W - L - R);
  const y = (share) => H - B - share * (H - B - T);
  let svg = frame(ticks(0, most, 4), [0, .25, .5, .75, 1], x, y, duration, (v) => Math.round(v * 100) + " %");
  const points = waits.map((v, i) => [x(v), y(i / 100)]);
  svg += `<path d="${path(points)}" fill="none" stroke="var(--own)" stroke-width="2.2"/>`;
  // Where the curve is not: below it on the right, unless most waited nearly as long as the longest.
  const right = waits[50] < most / 2;
  [50, 90, 99].forEach((percent, i) => {
    const px = x(waits[percent]), py = y(percent / 100);
    const tx = right ? W - R - 6 : L + 6, ty = right ? H - B - 40 + i * 15 : T + 14 + i * 15;
    svg += `<circle cx="${px}" cy="${py}" r="3.6" fill="var(--stolen)"/><text x="${tx}" y="${ty}" text-anchor="${right ? "end" : "start"}">p${percent} ${duration(waits[percent])}</text>`;
  });
  $("waits").innerHTML = svg;
}

// How busy each worker was in the part of the run that is shown; many workers are sorted.
function drawWorkers() {
  const { lanes, column, end } = run.timeline;
  const list = columnsInView();
  const time = list.reduce((sum, c) => sum + Math.min(column, end - c * column), 0) || 1;
  const shares = lanes.map((lane) => ({
    name: lane.name,
    share: Math.min(1, list.reduce((sum, c) => sum + lane.busy[c] * column, 0) / time),
  }));
  const many = shares.length > 12;
  if (many) shares.sort((one, other) => other.share - one.share);
  const left = many ? L : 84;
  const x = (share) => left + share * (W - left - R);
  const step = (H - B - T) / shares.length;
  let svg = "";
  for (const t of [0, .25, .5, .75, 1]) svg += `<line x1="${x(t)}" x2="${x(t)}" y1="${T}" y2="${H - B}" stroke="var(--grid)"/><text x="${x(t)}" y="${H - 8}" text-anchor="${t === 1 ? "end" : "middle"}">${t * 100} %</text>`;
  shares.forEach((worker, i) => {
    const y = T + i * step;
    svg += `<rect x="${left}" y="${y + step * .1}" width="${x(worker.share) - left}" height="${step * .8}" rx="${Math.min(3, step * .3)}" fill="var(--own)"><title>${worker.name.replace(/[<&]/g, "")}: ${(worker.share * 100).toFixed(1)} %</title></rect>`;
    if (!many) svg += `<text x="${left - 8}" y="${y + step / 2 + 4}" text-anchor="end">${worker.name.replace(/[<&]/g, "")}</text>`;
  });
  svg += `<line x1="${x(.9)}" x2="${x(.9)}" y1="${T}" y2="${H - B}" stroke="var(--good)" stroke-dasharray="4 4"/>`;
  $("workers").innerHTML = svg;
}

function drawCharts() { fitCharts(); drawQueues(); drawUtilization(); drawWaits(); drawWorkers(); }

// ---- which run --------------------------------------------------------------------------------
function show(index) {
  run = report.runs[index];
  document.querySelectorAll("[data-run]").forEach((node) => {
    const chosen = +node.dataset.run === index;
    if (node.tagName === "BUTTON") node.setAttribute("aria-selected", chosen);
    else node.hidden = !chosen;
  });
  const { spans, steals, left_out } = run.timeline;
  const tasks = new Set(spans.map((span) => span.task)).size;
  const attempts = spans.length === tasks ? "" : ` in ${spans.length} attempts`;
  $("kind").textContent = spans.length
    ? `${tasks} tasks${attempts}, ${steals.length} changed hands. Drag to move, Ctrl + wheel, pinch or double-click to zoom.`
    : `Too many tasks to draw one by one (${left_out.toLocaleString("en")} left out): the darker, the busier. Drag to move, Ctrl + wheel, pinch or double-click to zoom.`;
  layout();
  setView(0, run.timeline.end);
}

document.querySelectorAll("button[data-run]").forEach((button) => {
  button.onclick = () => show(+button.dataset.run);
});
function refresh() { readColours(); if (run) { layout(); setView(view.from, view.to); } }
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
addEventListener("resize", refresh);
readColours();
show(0);
document.documentElement.dataset.ready = "yes";
