// A task: where it is and why, what it prints, what became of its attempts, what would help.

import * as api from "./api";
import { ask, bytes, count, duration, h, moment, state, sync, text } from "./dom";
import { remedies, words } from "./health";
import { taskTime } from "./jobs";
import { order, type View } from "./main";

export const task: View = (main, session, argument) => {
  const id = Number(argument);
  const may = session.role === "admin" || session.role === "submit";
  const up = h("p", {});
  const line = h("p", {});
  const command = h("pre", { class: "command", tabindex: "0", "aria-label": "What it does" });
  const facts = h("dl", { class: "facts" });
  const cancel = h("button", { class: "danger" }, "Cancel");
  const retry = h("button", {}, "Retry");
  cancel.addEventListener("click", () => {
    void ask(`Cancel task ${id}?`, "Cancel it").then((yes) => {
      if (yes) void order(`Cancel task ${id}`, () => api.call("DELETE", `/v1/tasks/${id}`));
    });
  });
  retry.addEventListener("click", () => void order(`Retry task ${id}`, () => api.call("POST", `/v1/tasks/${id}/retry`)));
  const why = h("div", { class: "explain" });
  const happened = h("ol", { class: "happened" });
  const stdout = h("pre", { class: "output", tabindex: "0", "aria-label": "Standard output" });
  const stderr = h("pre", { class: "output", tabindex: "0", "aria-label": "Standard error" });
  const outNote = h("p", { class: "quiet" });
  main.append(
    up,
    h("h1", {}, `Task ${argument}`),
    line,
    command,
    may ? h("div", { class: "row" }, retry, cancel) : "",
    h("h2", {}, "Why it is there"),
    why,
    facts,
    h("h2", {}, "What happened"),
    happened,
    h("h2", {}, "Standard output"),
    stdout,
    h("h2", {}, "Standard error"),
    stderr,
    outNote,
  );
  let explained = "";
  const names = new Map<number, string>();
  return api.repeat(1000, async (signal) => {
    const task = await api.get<api.Task>(`/v1/tasks/${id}`, signal).catch((error: unknown) => {
      if (error instanceof api.Refusal) text(line, error.message);
      throw error;
    });
    if (up.firstChild === null) up.append(h("a", { href: `#job/${task.job}` }, `Job ${task.job}`));
    line.replaceChildren(
      state(task.state),
      `${task.name === undefined ? "" : ` ${task.name}`}${task.agent === undefined ? "" : ` on ${task.agent}`}` +
        `${task.started_unix_ms === undefined ? "" : `, ${taskTime(task)}`}`,
    );
    text(command, task.does.join(" "));
    const isOver = /^(succeeded|failed|cancelled)$/.test(task.state);
    cancel.disabled = isOver;
    retry.disabled = task.state !== "failed";
    showFacts(facts, task);
    const explanation = await api.get<api.Explanation>(`/v1/tasks/${id}/explain`, signal);
    const key = JSON.stringify(explanation);
    if (key !== explained) {
      explained = key;
      why.replaceChildren(
        h("p", {}, `It ${explanation.place}.`),
        h("ul", {}, ...explanation.obstacles.map((obstacle) => h("li", {}, ...words(obstacle)))),
        explanation.remedies.length === 0 ? "" : h("p", {}, "What would help:"),
        remedies(explanation.remedies, session),
      );
    }
    const marks = await api.get<api.Marks>(`/v1/marks?task=${id}`, signal);
    if (marks.items.some((mark) => mark.event === "task_moved" && !(names.has(mark.from ?? -1) && names.has(mark.to ?? -1)))) {
      for (const agent of await api.get<api.Agent[]>("/v1/agents", signal)) names.set(agent.id, agent.name);
    }
    showHappened(happened, task, marks, names);
    const output = await api.get<api.Output>(`/v1/tasks/${id}/output`, signal);
    showOutput(stdout, output.stdout, output.stdout_dropped_bytes);
    showOutput(stderr, output.stderr, output.stderr_dropped_bytes);
    text(outNote, output.directory === undefined ? "" : `The agent wrote all of it to ${output.directory}.`);
  });
};

/** Output grows at its end: whoever looks at the end stays there. */
function showOutput(element: HTMLElement, content: string, dropped: number): void {
  const shown = dropped > 0 ? `[${bytes(dropped)} before this are not kept]\n${content}` : content;
  if (element.textContent === shown) return;
  const atEnd = element.scrollTop + element.clientHeight >= element.scrollHeight - 20;
  element.textContent = shown;
  if (atEnd) element.scrollTop = element.scrollHeight;
}

function showFacts(list: Element, task: api.Task): void {
  const last = task.last;
  const usage = last?.usage;
  const rows: [string, string | undefined][] = [
    ["entry", task.entry],
    ["priority", String(task.priority)],
    ["attempts", String(task.attempts)],
    ["moves", String(task.moves)],
    ["accepted", moment(task.created_unix_ms)],
    ["started", task.started_unix_ms === undefined ? undefined : moment(task.started_unix_ms)],
    ["ended", task.ended_unix_ms === undefined ? undefined : moment(task.ended_unix_ms)],
    ["deadline", task.deadline_unix_ms === undefined ? undefined : moment(task.deadline_unix_ms)],
    ["last attempt", last?.failure],
    ["message", last?.message],
    ["exit code", last?.exit_code?.toString()],
    ["signal", last?.signal?.toString()],
    ["processor time", usage === undefined ? undefined : `${duration(usage.user_sec)} own, ${duration(usage.system_sec)} system`],
    ["memory", usage === undefined || usage.memory_max_bytes === 0 ? undefined : bytes(usage.memory_max_bytes)],
  ];
  sync(
    list,
    rows.filter((row): row is [string, string] => row[1] !== undefined),
    ([name]) => name,
    ([name]) => h("div", { "data-fact": name }, h("dt", {}, name), h("dd", {})),
    (element, [, value]) => text(element.lastElementChild!, value),
  );
}

function showHappened(list: Element, task: api.Task, marks: api.Marks, names: Map<number, string>): void {
  const name = (id: number | undefined) => names.get(id ?? -1) ?? `agent ${id}`;
  const items = marks.items.map((mark): [string, string] => {
    const what =
      mark.event === "task_moved"
        ? `moved from ${name(mark.from)} to ${name(mark.to)}: ${(mark.reason ?? "").replace(/_/g, " ")}`
        : mark.event === "task_retried"
          ? `an attempt failed (${mark.failure ?? "unknown"}), to be tried again`
          : "its deadline was missed";
    return [String(mark.sequence), `${moment(mark.unix_ms)}: ${what}`];
  });
  if (items.length === 0) {
    const before = task.created_unix_ms < marks.since_unix_ms ? ` since ${moment(marks.since_unix_ms)}; moves and retries before that are not kept` : "";
    items.push(["none", `no move and no retry${before}`]);
  }
  if (marks.next !== undefined) items.push(["more", `these are the first ${count(marks.items.length)}`]);
  sync(
    list,
    items,
    ([key]) => key,
    () => h("li", {}),
    (element, [, line]) => text(element, line),
  );
}
