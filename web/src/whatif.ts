// What if, beside what was: the work in the server's journal again in virtual time, with something else.

import * as api from "./api";
import { count, duration, h, moment, text } from "./dom";
import type { View } from "./main";

interface Figure {
  name: string;
  title: string;
  error?: number;
  before?: number;
  half_width?: number;
  more_than_noise: boolean;
  /** As it was, as simulated, the means as recorded and of what would have been. */
  shown: string[];
}
interface Row {
  name: string;
  slots: number;
  /** Thousandths of its slots that were busy in each column. */
  busy: number[];
}
interface Report {
  label: string;
  tasks: number;
  from_unix_ms: number;
  seeds: number;
  figures: Figure[];
  verdicts: string[];
  notes: string[];
  column_ms: number;
  was: Row[];
  would: Row[];
}

/** So long an answer may take: some seconds, and more where the server is busy. */
const LIMIT_MS = 120_000;
const ROW = 20;
const AXIS = 18;

export const whatIf: View = (main, session) => {
  const field = (name: string, hint: string, input: HTMLElement) =>
    h("div", { class: "field" }, h("label", { for: input.id }, name), input, h("span", { class: "quiet", id: `${input.id}-hint` }, hint));
  const input = (id: string, attributes: Record<string, string>) => h("input", { id, "aria-describedby": `${id}-hint`, ...attributes });
  const set = h("textarea", { id: "whatif-set", rows: 2, spellcheck: "false", "aria-describedby": "whatif-set-hint", placeholder: "strategy=pull" });
  const agents = input("whatif-agents", { type: "number", min: "0", max: "1000", value: "0" });
  const without = input("whatif-without", { type: "text", spellcheck: "false", autocomplete: "off" });
  const load = input("whatif-load", { type: "number", min: "0.1", max: "10", step: "0.1", value: "1" });
  const run = h("button", { type: "submit" }, "Run it again");
  const wrong = h("p", { class: "wrong", role: "alert" });
  const form = h(
    "form",
    {
      class: "whatif",
      submit: (event) => {
        event.preventDefault();
        void ask();
      },
    },
    field("Other settings", "a key of the configuration with its value on each line", set),
    field("More agents", "like those that were there", agents),
    field("Without", "names, zones or skills of agents, with commas between", without),
    field("Load ×", "each job comes so many times", load),
    h("div", { class: "row" }, run),
  );
  const result = h("div", { class: "result", "aria-live": "polite" });
  const may = session.role === "admin" || session.role === "submit";
  main.append(
    h("h1", {}, "What if"),
    h(
      "p",
      { class: "quiet" },
      "What is in the journal runs again in virtual time, with the scheduler of this server: as it was, and with what you change here. Nothing changes in the fleet. Leave all as it is to see how near that comes to what happened.",
    ),
    may ? form : h("p", {}, "This takes a processor of the server for some seconds: a token of role submit or admin may ask."),
    wrong,
    result,
  );

  let ended = false;
  let report: Report | null = null;
  const canvases: [HTMLCanvasElement, (report: Report) => Row[]][] = [];

  const ask = async () => {
    const lines = (value: string, separator: RegExp) => value.split(separator).map((part) => part.trim()).filter((part) => part !== "");
    const request: Record<string, unknown> = { set: lines(set.value, /\n/), without: lines(without.value, /,/) };
    if (Number(agents.value) > 0) request["more_agents"] = Number(agents.value);
    if (Number(load.value) !== 1) request["load"] = Number(load.value);
    run.disabled = true;
    text(wrong, "");
    text(run, "Running");
    try {
      report = await api.call<Report>("POST", "/v1/what-if", request, api.secret(), undefined, LIMIT_MS);
      if (!ended) show(report);
    } catch (error) {
      const help = error instanceof api.Refusal && error.help !== undefined ? ` (${error.help})` : "";
      text(wrong, `${error instanceof Error ? error.message : String(error)}${help}`);
      result.replaceChildren();
      report = null;
    }
    run.disabled = false;
    text(run, "Run it again");
  };

  const show = (found: Report) => {
    const asked = found.verdicts.length > 0 || found.seeds > 0;
    const noise = (figure: Figure) => {
      if (figure.before === undefined) return "";
      return figure.more_than_noise ? "more than noise" : "no difference beyond noise";
    };
    const error = (figure: Figure) => {
      if (figure.error === undefined) return "";
      const share = `${figure.error < 0 ? "" : "+"}${(figure.error * 100).toFixed(1)}`;
      return figure.name === "utilization" ? `${share} points` : `${share} %`;
    };
    const columns = ["", "what was", "the same, simulated", "off by", ...(asked ? ["as recorded, mean", "what if, mean", ""] : [])];
    const rows = found.figures.map((figure) => {
      const [was, simulated, before, after] = figure.shown;
      const cells = [was, simulated, error(figure), ...(asked ? [before, after, noise(figure)] : [])];
      return h("tr", { "data-figure": figure.name }, h("th", { scope: "row" }, figure.title), ...cells.map((cell) => h("td", { class: "number" }, cell ?? "")));
    });
    canvases.length = 0;
    const lanes = (title: string, pick: (report: Report) => Row[]) => {
      const canvas = h("canvas", { role: "img", "aria-label": `${title}: how busy each agent was; the table above has the figures` });
      canvases.push([canvas, pick]);
      return [h("h2", {}, title), h("div", { class: "timeline still" }, canvas)];
    };
    const pairs = asked ? `, means of ${found.seeds} pairs of runs` : "";
    result.replaceChildren(
      h("h2", {}, asked ? found.label : "As it was"),
      h("p", { class: "quiet" }, `${count(found.tasks)} tasks since ${moment(found.from_unix_ms)}${pairs}.`),
      h("ul", { class: "verdicts" }, ...found.verdicts.map((verdict) => h("li", {}, verdict))),
      h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ...columns.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, ...rows))),
      ...lanes("What was", (report) => report.was),
      ...lanes(asked ? "What would have been" : "The same, simulated", (report) => report.would),
      ...(found.notes.length === 0 ? [] : [h("h2", {}, "What the journal does not say"), h("ul", { class: "quiet" }, ...found.notes.map((note) => h("li", {}, note)))]),
    );
    draw();
  };

  const draw = () => {
    if (report === null) return;
    const style = getComputedStyle(document.documentElement);
    const colour = (name: string) => style.getPropertyValue(`--${name}`).trim();
    for (const [canvas, pick] of canvases) {
      const rows = pick(report);
      const ratio = window.devicePixelRatio || 1;
      const width = canvas.clientWidth;
      const label = width < 600 ? 84 : 130;
      const height = AXIS + rows.length * ROW + 4;
      canvas.style.height = `${height}px`;
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      const pen = canvas.getContext("2d")!;
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.font = "12px system-ui, sans-serif";
      pen.textBaseline = "middle";
      const columns = Math.max(1, ...rows.map((row) => row.busy.length));
      const wide = (width - label) / columns;
      pen.fillStyle = colour("quiet");
      // The same time at the same place in both.
      for (const share of [0, 0.25, 0.5, 0.75]) {
        const place = label + (width - label) * share;
        pen.fillText(duration((report.column_ms * columns * share) / 1000), place + 3, AXIS / 2);
        pen.fillRect(place, AXIS - 5, 1, 5);
      }
      rows.forEach((row, number) => {
        const top = AXIS + number * ROW;
        pen.fillStyle = colour("ink");
        pen.save();
        pen.beginPath();
        pen.rect(0, top, label - 6, ROW);
        pen.clip();
        pen.fillText(row.name, 6, top + ROW / 2 - 1);
        pen.restore();
        pen.strokeStyle = colour("line");
        pen.strokeRect(label + 0.5, top + 0.5, width - label - 1, ROW - 3);
        pen.fillStyle = colour("blue");
        row.busy.forEach((busy, column) => {
          const tall = ((ROW - 4) * Math.min(1000, busy)) / 1000;
          if (tall > 0) pen.fillRect(label + column * wide, top + 1 + (ROW - 4) - tall, Math.max(0.7, wide), tall);
        });
      });
    }
  };
  const resize = new ResizeObserver(() => draw());
  resize.observe(result);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", draw);
  return () => {
    ended = true;
    resize.disconnect();
    dark.removeEventListener("change", draw);
  };
};
