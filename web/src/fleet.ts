// Every agent: what it has in hand, what waits for it, and who took from whom.

import * as api from "./api";
import { ago, ask, count, duration, h, state, sync, text } from "./dom";
import { order, type View } from "./main";
import { problems } from "./health";

/** How long a move is shown. */
const MOVES_MS = 60_000;

export const fleet: View = (main, session) => {
  const totals = h("dl", { class: "figures", "aria-label": "Fleet" });
  const health = h("div", { class: "health" });
  const list = h("ul", { class: "agents", "aria-label": "Agents" });
  const moves = h("ul", { class: "moves", "aria-label": "Who took from whom in the last minute" });
  const none = h("p", { class: "quiet" });
  main.append(
    h("h1", {}, "Fleet"),
    totals,
    health,
    list,
    none,
    h("h2", {}, "Who took from whom in the last minute"),
    moves,
  );
  return api.repeat(1000, async (signal) => {
    const [server, agents, found, marks] = await Promise.all([
      api.get<api.Server>("/v1/server", signal),
      api.get<api.Agent[]>("/v1/agents", signal),
      api.get<api.Health>("/v1/health", signal),
      api.get<api.Marks>(`/v1/marks?from_unix_ms=${Date.now() - MOVES_MS}&limit=10000`, signal),
    ]);
    showTotals(totals, server, agents);
    problems(health, found, session);
    const here = agents.filter((agent) => isHere(agent));
    const gone = agents.length - here.length;
    sync(
      list,
      [...here, ...agents.filter((agent) => !isHere(agent))],
      (agent) => String(agent.id),
      (agent) => agentRow(agent, session),
      (element, agent) => showAgent(element, agent, taken(agent, marks.items)),
    );
    text(
      none,
      here.length === 0
        ? "No agent is here. On a machine that is to run tasks: loxley agent start"
        : gone > 0
          ? `${count(gone)} of them ${gone === 1 ? "is" : "are"} not here any more.`
          : "",
    );
    showMoves(moves, marks, agents);
  });
};

export function isHere(agent: api.Agent): boolean {
  return agent.state === "alive" || agent.state === "suspected" || agent.state === "draining";
}

function showTotals(list: Element, server: api.Server, agents: api.Agent[]): void {
  const slots = agents.filter(isHere).reduce((sum, agent) => sum + agent.slots, 0);
  const fleet = server.fleet;
  const rows: [string, string, string][] = [
    ["agents", count(agents.filter(isHere).length), "that are here"],
    ["slots", count(slots), "tasks that they run at once"],
    ["running", count(fleet.tasks.running), "tasks with agents"],
    ["queued", count(fleet.tasks.queued), "tasks on queues"],
    ["waiting", count(fleet.tasks.waiting + fleet.tasks.pending), "for other tasks, a limit or their turn"],
    ["held", count(fleet.tasks.held), "tasks that no agent can do"],
    ["succeeded", count(fleet.tasks.succeeded), "tasks"],
    ["failed", count(fleet.tasks.failed), "tasks"],
    ["moved", count(fleet.tasks_migrated), "tasks that went from one agent to another"],
    ["open jobs", count(server.jobs_open), ""],
  ];
  sync(
    list,
    rows,
    ([name]) => name,
    ([name, , title]) => h("div", { title, "data-figure": name }, h("dt", {}, name), h("dd", {})),
    (element, [, value]) => text(element.lastElementChild!, value),
  );
}

function agentRow(agent: api.Agent, session: api.Session): HTMLElement {
  const act = (what: string, path: string, question: string) => async () => {
    if (await ask(question, what)) {
      await order(`${what} ${agent.name}`, () => api.call("POST", `/v1/agents/${agent.id}/${path}`));
    }
  };
  return h(
    "li",
    { class: "agent" },
    h("div", { class: "name" }, h("strong", {}, agent.name), " ", h("span", { class: "word" })),
    h("div", { class: "bar", role: "meter", "aria-valuemin": "0" }, h("div", { class: "fill" })),
    h("div", { class: "numbers" }),
    h("div", { class: "skills" }),
    h("details", { class: "notes", hidden: true }, h("summary", {}, "What it cannot keep"), h("p", {})),
    session.role === "admin"
      ? h(
          "div",
          { class: "row orders" },
          h(
            "button",
            { click: act("Drain", "drain", `Let ${agent.name} finish what it has, and end?`) },
            "Drain",
            h("span", { class: "sr" }, ` ${agent.name}`),
          ),
          h(
            "button",
            { click: act("Stop", "stop", `End ${agent.name} now? What it runs is killed and goes to others.`) },
            "Stop",
            h("span", { class: "sr" }, ` ${agent.name}`),
          ),
        )
      : null,
  );
}

function showAgent(element: Element, agent: api.Agent, taken: string): void {
  const [name, bar, numbers, skills, notes, orders] = Array.from(element.children) as HTMLElement[];
  const busy = agent.started;
  const here = isHere(agent);
  element.classList.toggle("gone", !here);
  const word = name!.querySelector(".word")!;
  if (word.textContent !== agent.state) word.replaceChildren(state(agent.state));
  const label = `${agent.name}: ${busy} of ${agent.slots} slots busy`;
  if (bar!.getAttribute("aria-label") !== label) {
    bar!.setAttribute("aria-label", label);
    bar!.setAttribute("aria-valuemax", String(agent.slots));
    bar!.setAttribute("aria-valuenow", String(busy));
    bar!.title = label;
    bar!.style.setProperty("--slots", String(agent.slots));
    (bar!.firstElementChild as HTMLElement).style.setProperty("--busy", String(busy / Math.max(1, agent.slots)));
    bar!.classList.toggle("fine", agent.slots > 48);
  }
  const parts = [
    `${busy}/${agent.slots} slots`,
    `${count(agent.queue_length)} queued`,
    `speed ${agent.speed.toFixed(2)}`,
    agent.throttle > 0 ? `slowed down by ${(agent.throttle * 100).toFixed(0)} %` : null,
    `${count(agent.total_completed)} done`,
    agent.total_failed > 0 ? `${count(agent.total_failed)} failed` : null,
    agent.zone === undefined ? null : `in ${agent.zone}`,
    here && agent.round_trip_sec !== undefined ? `round trip ${duration(agent.round_trip_sec)}` : null,
    agent.heard_unix_ms === undefined || (here && agent.state === "alive") ? null : `heard ${ago(agent.heard_unix_ms)}`,
    agent.incarnation > 1 ? `came ${agent.incarnation} times` : null,
    taken === "" ? null : taken,
  ];
  text(numbers!, parts.filter((part) => part !== null).join(" · "));
  const words = [
    ...agent.capabilities,
    ...agent.suspended.map((skill) => `${skill} (lost after failures)`),
  ];
  text(skills!, words.length === 0 ? "" : `skills: ${words.join(", ")}`);
  notes!.hidden = (agent.notes ?? []).length === 0;
  text(notes!.lastElementChild!, (agent.notes ?? []).join("; "));
  if (orders !== undefined) orders.hidden = !here;
}

function taken(agent: api.Agent, marks: api.Mark[]): string {
  let got = 0;
  let gave = 0;
  for (const mark of marks) {
    if (mark.event !== "task_moved") continue;
    if (mark.to === agent.id) got += 1;
    if (mark.from === agent.id) gave += 1;
  }
  return got + gave === 0 ? "" : `took ${count(got)}, gave ${count(gave)} in the last minute`;
}

function showMoves(list: Element, marks: api.Marks, agents: api.Agent[]): void {
  const names = new Map(agents.map((agent) => [agent.id, agent.name]));
  const name = (id: number | undefined) => names.get(id ?? -1) ?? `agent ${id}`;
  const pairs = new Map<string, { text: string; count: number; last: number }>();
  for (const mark of marks.items) {
    if (mark.event !== "task_moved") continue;
    const key = `${mark.from} ${mark.to} ${mark.reason}`;
    const pair = pairs.get(key) ?? {
      text: `${name(mark.to)} ← ${name(mark.from)}: ${(mark.reason ?? "").replace(/_/g, " ")}`,
      count: 0,
      last: 0,
    };
    pair.count += 1;
    pair.last = mark.unix_ms;
    pairs.set(key, pair);
  }
  const rows = [...pairs.entries()].sort(([, one], [, other]) => other.last - one.last);
  const shown = rows.slice(0, 50);
  const items: [string, string][] = shown.map(([key, pair]) => [
    key,
    `${pair.text} × ${count(pair.count)}, ${ago(pair.last)}`,
  ]);
  if (rows.length > shown.length) items.push(["more", `and ${count(rows.length - shown.length)} other pairs`]);
  if (marks.next !== undefined) items.push(["next", "there were more moves in this minute than are counted here"]);
  if (rows.length === 0) items.push(["none", "Nobody took anything: agents have enough of their own, or nothing is queued."]);
  sync(
    list,
    items,
    ([key]) => key,
    () => h("li", {}),
    (element, [, line]) => text(element, line),
  );
}
