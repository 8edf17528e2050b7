// How balanced the fleet is: now, and since the server started.

import uPlot from "uplot";
import * as api from "./api";
import { bytes, count, duration, h, moment, sync, text, nextFrame } from "./dom";
import { isHere } from "./fleet";
import { showFigures } from "./jobs";
import { problems } from "./health";
import type { View } from "./main";

interface Samples {
  every_sec: number;
  since_unix_ms: number;
  unix_ms: number[];
  series: Record<string, (number | null)[]>;
}

interface Chart {
  title: string;
  /** Name in the samples, what people read, colour. */
  lines: [string, string, string][];
  share?: boolean;
  target?: number;
}

const CHARTS: Chart[] = [
  { title: "Load imbalance (target < 1.2)", lines: [["load_imbalance", "max / average", "blue"]], target: 1.2 },
  { title: "Straggler ratio (target < 2)", lines: [["straggler_ratio", "max / median", "blue"]], target: 2 },
  { title: "Worker utilization (target > 90 %)", lines: [["worker_utilization", "busy", "blue"]], share: true, target: 0.9 },
  { title: "Queue-depth variance", lines: [["queue_depth_variance", "variance", "blue"]] },
  { title: "Tasks", lines: [["running", "running", "blue"], ["queued", "queued", "orange"], ["waiting", "waiting", "purple"], ["held", "held", "red"]] },
  { title: "Completion rate", lines: [["tasks_per_sec", "tasks a second", "green"]] },
  { title: "Steals", lines: [["steal_success_rate", "success", "green"], ["steal_rate", "stolen of those that ended", "orange"]], share: true },
  { title: "Latency to assignment", lines: [["assign_p50_sec", "p50, seconds", "blue"], ["assign_p99_sec", "p99, seconds", "red"]] },
  { title: "Deadlines and retries, in all", lines: [["deadline_misses", "deadlines missed", "red"], ["retries", "retries", "orange"]] },
  { title: "Journal", lines: [["commit_sec", "seconds a commit", "purple"]] },
];

const share = (value: number) => `${(value * 100).toFixed(1)} %`;

/** What agents say of their machines: the name in the API, what people read, how it is shown. */
const VITALS: [string, string, (value: number) => string][] = [
  ["load", "load", (value) => value.toFixed(2)],
  ["cpu_pressure", "waiting for processors", share],
  ["memory_pressure", "waiting for memory", share],
  ["io_pressure", "waiting for disks", share],
  ["memory_available_bytes", "free memory", bytes],
  ["context_switches_per_sec", "context switches a second", (value) => count(Math.round(value))],
  ["temperature_celsius", "hottest sensor", (value) => `${value.toFixed(0)} °C`],
  ["power_watts", "power", (value) => `${value.toFixed(1)} W`],
  ["cache_misses_per_sec", "cache misses a second", (value) => count(Math.round(value))],
  ["memory_bytes_per_sec", "memory traffic a second", bytes],
];

function table(caption: string, columns: string[], body: HTMLElement): HTMLElement {
  return h(
    "div",
    { class: "scroll" },
    h("table", {}, h("caption", { class: "sr" }, caption), h("thead", {}, h("tr", {}, ...columns.map((name) => h("th", { scope: "col" }, name)))), body),
  );
}

/** So many rows of a table are written in one frame. */
const ROWS_AT_ONCE = 25;

/** Rows of text, the first of each its name. */
async function fill(body: HTMLElement, rows: string[][], none: string): Promise<void> {
  const all = rows.length === 0 ? [[none]] : rows;
  sync(
    body,
    all,
    (row) => row[0]!,
    (row) => h("tr", {}, h("th", { scope: "row" }), ...row.slice(1).map(() => h("td", { class: "number" }))),
    () => {},
  );
  const elements = Array.from(body.children);
  for (const [place, row] of all.entries()) {
    if (place % ROWS_AT_ONCE === ROWS_AT_ONCE - 1) await nextFrame();
    row.forEach((cell, column) => text(elements[place]!.children[column]!, cell));
  }
}

export const balance: View = (main, session) => {
  const now = h("dl", { class: "figures", "aria-label": "The last minutes" });
  const note = h("p", { class: "quiet" });
  const health = h("div", { class: "health" });
  const healthy = h("p", { class: "quiet" });
  const waits = h("tbody", {});
  const priorities = h("tbody", { id: "priorities" });
  const users = h("tbody", { id: "users" });
  const hardware = h("tbody", { id: "hardware" });
  const deadlines = h("p", { id: "deadlines" });
  const unsaid = h("p", { class: "quiet" });
  const charts = h("div", { class: "charts" });
  main.append(
    h("h1", {}, "Balance"),
    now,
    note,
    h("h2", {}, "Health"),
    health,
    healthy,
    h("h2", {}, "Waits by priority"),
    table("From being ready to being given to an agent, in the last minutes", ["priority", "given to agents", "half waited at most", "99 in 100 at most"], priorities),
    h("h2", {}, "Users' shares"),
    table("What each user had of the fleet in the last minutes", ["user", "given to agents", "waited on average", "slot time", "share"], users),
    h("h2", {}, "Deadlines"),
    deadlines,
    h("h2", {}, "Machines"),
    table("What agents say of their machines", ["agent", ...VITALS.map(([, name]) => name)], hardware),
    unsaid,
    h("h2", {}, "Over time"),
    charts,
    h("h2", {}, "From queued to started"),
    table("How long tasks waited on queues", ["at most", "tasks", "share"], waits),
  );
  const drawn = CHARTS.map((chart) => draw(charts, chart));
  const resize = new ResizeObserver(() => {
    for (const one of drawn) one.plot.setSize({ width: Math.max(200, one.box.clientWidth - 16), height: 180 });
  });
  resize.observe(charts);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const redraw = () => drawn.forEach((one) => one.plot.redraw());
  dark.addEventListener("change", redraw);
  const stop = api.repeat(2000, async (signal) => {
    const [figures, found, agents, server, samples] = await Promise.all([
      api.get<api.Figures>("/v1/figures", signal),
      api.get<api.Health>("/v1/health", signal),
      api.get<api.Agent[]>("/v1/agents", signal),
      api.get<api.Server & { fleet: { wait_histogram: [number, number][]; waits_total: number } }>("/v1/server", signal),
      api.get<Samples>("/v1/figures/history?points=300", signal),
    ]);
    showFigures(now, figures);
    text(note, `Of the last ${duration(figures.window_sec)}. The lines below begin ${moment(samples.since_unix_ms)}, a point every ${duration(samples.every_sec)}.`);
    problems(health, found, session);
    text(healthy, found.problems.length === 0 ? "Nothing is wrong." : "");
    for (const one of drawn) {
      await nextFrame();
      one.show(samples);
    }
    await nextFrame();
    const seconds = (value: number | undefined) => (value === undefined ? "–" : duration(value));
    await fill(priorities, (figures.waits ?? []).map((one) => [String(one.priority), count(one.tasks), seconds(one.p50_sec), seconds(one.p99_sec)]), "No task was given to an agent in the last minutes.");
    await fill(
      users,
      (figures.users ?? []).map((one) => [one.user, count(one.tasks), seconds(one.wait_mean_sec), duration(one.busy_sec), one.share === undefined ? "–" : `${(one.share * 100).toFixed(1)} %`]),
      "Nobody had anything of the fleet in the last minutes.",
    );
    const { deadlines_met: met, deadlines_missed: missed } = figures;
    text(
      deadlines,
      met + missed === 0
        ? "No task with a deadline ended in the last minutes."
        : `${count(met)} of ${count(met + missed)} tasks with a deadline met it in the last minutes; ${count(missed)} did not.`,
    );
    const here = agents.filter(isHere);
    await nextFrame();
    await fill(
      hardware,
      here.map((agent) => [agent.name, ...VITALS.map(([name, , show]) => (agent.vitals?.[name] === undefined ? "–" : show(agent.vitals[name]!)))]),
      "No agent is here.",
    );
    const silent = VITALS.filter(([name]) => here.length > 0 && here.every((agent) => agent.vitals?.[name] === undefined));
    text(unsaid, silent.length === 0 ? "" : `No machine says: ${silent.map(([, name]) => name).join(", ")}. What cannot be read is not made up.`);
    const { wait_histogram: histogram, waits_total: total } = server.fleet;
    const rows: [string, number][] = histogram.map(([bound, number]) => [duration(bound), number]);
    rows.push(["any time", total]);
    waits.replaceChildren(
      ...rows.map(([bound, number]) =>
        h("tr", {}, h("th", { scope: "row" }, bound), h("td", { class: "number" }, count(number)), h("td", { class: "number" }, total === 0 ? "–" : `${((number / total) * 100).toFixed(1)} %`)),
      ),
    );
  });
  return () => {
    stop();
    resize.disconnect();
    dark.removeEventListener("change", redraw);
    drawn.forEach((one) => one.plot.destroy());
  };
};

function draw(parent: HTMLElement, chart: Chart): { box: HTMLElement; plot: uPlot; show: (samples: Samples) => void } {
  const box = h("section", { class: "chart", "aria-label": chart.title }, h("h2", {}, chart.title));
  parent.append(box);
  const colour = (name: string) => () => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const axis = { stroke: colour("quiet"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line") } };
  const value = (_: uPlot, number: number | null) =>
    number === null ? "–" : chart.share === true ? `${(number * 100).toFixed(1)} %` : Number(number.toPrecision(4)).toString();
  const target = chart.target;
  const plot = new uPlot(
    {
      width: 480,
      height: 180,
      cursor: { drag: { x: false, y: false } },
      scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(high ?? 1, target ?? 0, 1e-9) * 1.05] } },
      axes: [axis, { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => (chart.share === true ? `${Math.round(tick * 100)} %` : String(Number(tick.toPrecision(4))))) }],
      series: [
        {},
        ...chart.lines.map(([, label, name], place) => ({
          label,
          stroke: colour(name),
          width: 2,
          // Lines can be told apart without colour.
          dash: [[], [8, 4], [2, 3], [10, 3, 2, 3]][place] ?? [],
          spanGaps: false,
          value,
        })),
        ...(target === undefined ? [] : [{ label: "target", stroke: colour("grey"), width: 1, dash: [3, 3], value }]),
      ],
    },
    [[], ...chart.lines.map(() => []), ...(target === undefined ? [] : [[]])],
    box,
  );
  const show = (samples: Samples) => {
    const times = samples.unix_ms.map((time) => time / 1000);
    const lines = chart.lines.map(([name]) => samples.series[name] ?? times.map(() => null));
    plot.setData([times, ...lines, ...(target === undefined ? [] : [times.map(() => target)])] as uPlot.AlignedData);
  };
  return { box, plot, show };
}
