// All jobs, and one of them.

import * as api from "./api";
import { ago, ask, count, duration, figure, h, moment, state, sync, text } from "./dom";
import { graph } from "./graph";
import { order, type View } from "./main";

const STATES = ["", "open", "waiting", "succeeded", "failed", "cancelled"];
const TASK_STATES = ["", "running", "queued", "assigned", "waiting", "held", "backoff", "pending", "failed", "cancelled", "succeeded"];
const PAGE = 50;

export const jobs: View = (main) => {
  let before: number | undefined;
  const search = h("input", { type: "search", id: "search", placeholder: "name, user or number  ( / )" });
  const wanted = h(
    "select",
    { id: "state" },
    ...STATES.map((name) => h("option", { value: name }, name === "" ? "any state" : name)),
  );
  const body = h("tbody", {});
  const none = h("p", { class: "quiet" });
  const older = h("button", { hidden: true }, "Older");
  const newest = h("button", { hidden: true }, "Newest");
  main.append(
    h("h1", {}, "Jobs"),
    h(
      "div",
      { class: "row" },
      h("label", { for: "search" }, "Search"),
      search,
      h("label", { for: "state" }, "State"),
      wanted,
    ),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        {},
        h("caption", { class: "sr" }, "Jobs, the newest first"),
        h("thead", {}, h("tr", {}, ...["job", "name", "user", "state", "progress", "tasks", "submitted", "took"].map((name) => h("th", { scope: "col" }, name)))),
        body,
      ),
    ),
    none,
    h("div", { class: "row" }, newest, older),
  );
  let next: number | undefined;
  const load = async (signal?: AbortSignal) => {
    const query = new URLSearchParams({ limit: String(PAGE) });
    if (search.value.trim() !== "") query.set("search", search.value.trim());
    if (wanted.value !== "") query.set("state", wanted.value);
    if (before !== undefined) query.set("before", String(before));
    const page = await api.get<api.Page<api.Job>>(`/v1/jobs?${query}`, signal);
    next = page.next;
    sync(body, page.items, (job) => String(job.id), jobRow, showJobRow);
    text(none, page.items.length === 0 ? "No job is like that. Submit one: loxley submit -- ./work" : "");
    older.hidden = next === undefined;
    newest.hidden = before === undefined;
  };
  const reload = () => {
    before = undefined;
    void load().catch(() => {});
  };
  search.addEventListener("input", reload);
  wanted.addEventListener("change", reload);
  newest.addEventListener("click", reload);
  older.addEventListener("click", () => {
    before = next;
    void load().catch(() => {});
  });
  return api.repeat(1500, load);
};

function jobRow(job: api.Job): HTMLElement {
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, h("a", { href: `#job/${job.id}` }, String(job.id))),
    h("td", {}, h("a", { href: `#job/${job.id}` }, job.name ?? "–")),
    h("td", {}, job.user),
    h("td", {}),
    h("td", {}, progress()),
    h("td", { class: "number" }),
    h("td", {}, moment(job.created_unix_ms)),
    h("td", { class: "number" }),
  );
}

function showJobRow(row: Element, job: api.Job): void {
  const cells = row.children;
  if (cells[3]!.textContent !== job.state) cells[3]!.replaceChildren(state(job.state));
  showProgress(cells[4]!.firstElementChild as HTMLElement, job.tasks);
  text(cells[5]!, tasksText(job.tasks));
  const end = job.ended_unix_ms ?? Date.now();
  text(cells[7]!, duration((end - job.created_unix_ms) / 1000));
}

function tasksText(tasks: api.TaskCounts): string {
  const failed = tasks.failed > 0 ? `, ${count(tasks.failed)} failed` : "";
  return `${count(over(tasks))}/${count(tasks.total)}${failed}`;
}

function over(tasks: api.TaskCounts): number {
  return tasks.succeeded + tasks.failed + tasks.cancelled;
}

/** What it is called, and where it is counted. */
const PARTS = [
  ["succeeded", "succeeded"],
  ["failed", "failed"],
  ["cancelled", "cancelled"],
  ["running", "started"],
] as const;

function progress(): HTMLElement {
  return h("div", { class: "progress", role: "img" }, ...PARTS.map(([name]) => h("div", { class: name })));
}

function showProgress(bar: HTMLElement, tasks: api.TaskCounts): void {
  const label = PARTS.map(([name, part]) => `${tasks[part]} ${name}`).join(", ") + ` of ${tasks.total}`;
  if (bar.getAttribute("aria-label") === label) return;
  bar.setAttribute("aria-label", label);
  bar.title = label;
  PARTS.forEach(([, part], place) => {
    const share = tasks.total === 0 ? 0 : tasks[part] / tasks.total;
    (bar.children[place] as HTMLElement).style.setProperty("--share", String(share));
  });
}

/** The time left by the pace so far, and how sure that is. */
function timeLeft(job: api.Job): string {
  if (job.ended_unix_ms !== undefined) return "";
  const done = over(job.tasks);
  const left = job.tasks.total - done;
  if (left <= 0) return job.open === true ? "open: more entries may come" : "";
  if (done === 0) return "time left: unknown, nothing has ended yet";
  const elapsed = (Date.now() - job.created_unix_ms) / 1000;
  const guess = duration((elapsed / done) * left);
  const held = job.tasks.held > 0 ? `; ${count(job.tasks.held)} are held and may never run` : "";
  const how = done < 20 ? `a guess from ${count(done)} that ended` : "by the pace so far";
  return `about ${guess} left (${how}${held})`;
}

export const job: View = (main, session, argument) => {
  const id = Number(argument);
  const may = session.role === "admin" || session.role === "submit";
  const title = h("h1", {}, `Job ${argument}`);
  const line = h("p", {});
  const bar = progress();
  const left = h("p", { class: "quiet" });
  const figures = h("dl", { class: "figures", "aria-label": "Balance of this job" });
  const cancel = h("button", { class: "danger" }, "Cancel what is left");
  const retry = h("button", {}, "Retry what failed");
  cancel.addEventListener("click", () => {
    void ask(`Cancel what is left of job ${id}?`, "Cancel it").then((yes) => {
      if (yes) void order(`Cancel job ${id}`, () => api.call("DELETE", `/v1/jobs/${id}`));
    });
  });
  retry.addEventListener("click", () => void order(`Retry job ${id}`, () => api.call("POST", `/v1/jobs/${id}/retry`)));
  const drawing = h("div", { class: "scroll graph" });
  const drawingNote = h("p", { class: "quiet" });
  const wanted = h(
    "select",
    { id: "task-state" },
    ...TASK_STATES.map((name) => h("option", { value: name }, name === "" ? "any state" : name)),
  );
  const body = h("tbody", {});
  const more = h("button", { hidden: true }, "More tasks");
  const first = h("button", { hidden: true }, "First tasks");
  main.append(
    h("p", {}, h("a", { href: "#jobs" }, "All jobs")),
    title,
    line,
    bar,
    left,
    may ? h("div", { class: "row" }, retry, cancel) : "",
    h("h2", {}, "Balance"),
    figures,
    h("h2", {}, "Graph"),
    drawing,
    drawingNote,
    h("h2", {}, "Tasks"),
    h("div", { class: "row" }, h("label", { for: "task-state" }, "State"), wanted),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        {},
        h("caption", { class: "sr" }, "Tasks of the job, by their numbers"),
        h("thead", {}, h("tr", {}, ...["task", "does", "state", "agent", "attempts", "moves", "took"].map((name) => h("th", { scope: "col" }, name)))),
        body,
      ),
    ),
    h("div", { class: "row" }, first, more),
  );
  let from: number | undefined;
  let next: number | undefined;
  const loadTasks = async (signal?: AbortSignal) => {
    const query = new URLSearchParams({ limit: String(PAGE) });
    if (wanted.value !== "") query.set("state", wanted.value);
    if (from !== undefined) query.set("from", String(from));
    const page = await api.get<api.Page<api.Task>>(`/v1/jobs/${id}/tasks?${query}`, signal);
    next = page.next;
    sync(body, page.items, (task) => String(task.id), taskRow, showTaskRow);
    more.hidden = next === undefined;
    first.hidden = from === undefined;
  };
  const reload = (place?: number) => {
    from = place;
    void loadTasks().catch(() => {});
  };
  wanted.addEventListener("change", () => reload());
  first.addEventListener("click", () => reload());
  more.addEventListener("click", () => reload(next));
  let drawn = "";
  return api.repeat(1000, async (signal) => {
    const job = await api.get<api.Job>(`/v1/jobs/${id}`, signal).catch((error: unknown) => {
      if (error instanceof api.Refusal) text(line, error.message);
      throw error;
    });
    text(title, `Job ${id}${job.name === undefined ? "" : `: ${job.name}`}`);
    const end = job.ended_unix_ms;
    line.replaceChildren(
      state(job.state),
      ` for ${job.user}, submitted ${moment(job.created_unix_ms)}` +
        (end === undefined ? "" : `, took ${duration((end - job.created_unix_ms) / 1000)}`) +
        `: ${count(over(job.tasks))} of ${count(job.tasks.total)} tasks over (${count(job.tasks.failed)} failed), ${count(job.tasks.started)} running, ${count(job.tasks.queued + job.tasks.running - job.tasks.started)} queued, ` +
        `${count(job.tasks.waiting + job.tasks.pending)} waiting, ${count(job.tasks.held)} held`,
    );
    showProgress(bar, job.tasks);
    text(left, timeLeft(job));
    cancel.disabled = end !== undefined;
    retry.disabled = job.tasks.failed === 0;
    await loadTasks(signal);
    showFigures(figures, await api.get<api.Figures>(`/v1/jobs/${id}/figures`, signal));
    const shape = await api.get<api.Graph>(`/v1/jobs/${id}/graph`, signal);
    const key = JSON.stringify(shape);
    if (key !== drawn) {
      drawn = key;
      graph(drawing, shape);
      const cut = shape.tasks_counted < shape.tasks_total;
      text(
        drawingNote,
        `Critical path (thick): ${duration(shape.critical_sec)}. ` +
          (cut ? `Counts are of the first ${count(shape.tasks_counted)} of ${count(shape.tasks_total)} tasks.` : ""),
      );
    }
  });
};

function taskRow(task: api.Task): HTMLElement {
  const what = task.does.join(" ");
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, h("a", { href: `#task/${task.id}` }, String(task.id))),
    h("td", { class: "command", title: what }, task.name === undefined ? what : `${task.name}: ${what}`),
    ...[0, 1, 2, 3, 4].map((place) => h("td", place >= 2 ? { class: "number" } : {})),
  );
}

function showTaskRow(row: Element, task: api.Task): void {
  const cells = row.children;
  if (cells[2]!.textContent !== task.state) cells[2]!.replaceChildren(state(task.state));
  text(cells[3]!, task.agent ?? "");
  text(cells[4]!, String(task.attempts));
  text(cells[5]!, String(task.moves));
  text(cells[6]!, taskTime(task));
}

export function taskTime(task: api.Task): string {
  if (task.started_unix_ms === undefined) return "";
  const used = task.last?.usage?.duration_sec;
  if (task.ended_unix_ms !== undefined && used !== undefined) return duration(used);
  return duration(((task.ended_unix_ms ?? Date.now()) - task.started_unix_ms) / 1000);
}

export function showFigures(list: Element, figures: api.Figures): void {
  const rows: [string, string, string][] = figures.balance.map((one) => [
    one.name,
    figure(one.value, one.is_share),
    `target ${one.is_above ? ">" : "<"} ${figure(one.target, one.is_share)}: ${one.verdict}`,
  ]);
  const seconds = (value: number | undefined) => (value === undefined ? "–" : duration(value));
  rows.push(
    ["ended", count(figures.tasks_ended), figures.tasks_per_sec === undefined ? "" : `${figures.tasks_per_sec.toFixed(1)} a second`],
    ["average task", seconds(figures.task_mean_sec), ""],
    ["idle time", duration(figures.idle_sec), `of ${count(figures.slots)} slots`],
    ["to assignment", seconds(figures.assign_p50_sec), `p99 ${seconds(figures.assign_p99_sec)}`],
    ["stolen", figures.tasks_stolen === undefined ? "–" : count(figures.tasks_stolen), figures.steal_mean_sec === undefined ? "" : `each in ${duration(figures.steal_mean_sec)}`],
  );
  sync(
    list,
    rows,
    ([name]) => name,
    ([name]) => h("div", { "data-figure": name }, h("dt", {}, name), h("dd", {}), h("dd", { class: "quiet" })),
    (element, [, value, note]) => {
      text(element.children[1]!, value);
      text(element.children[2]!, note);
      element.classList.toggle("missed", /: missed$/.test(note));
    },
  );
}

export { ago };
