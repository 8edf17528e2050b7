// Every agent: what it has in hand, what waits for it, and who took from whom.

import * as api from "./api";
import { ago, ask, count, duration, h, nextFrame, state, sync, text } from "./dom";
import { order, type View } from "./main";
import { problems } from "./health";

/** So many agents are brought up to date in one frame. */
const AT_ONCE = 12;
/** How long a move is shown. */
const MOVES_MS = 60_000;

export const fleet: View = (main, session) => {
  const totals = h("dl", { class: "figures", "aria-label": "Fleet" });
  const instances = h("ul", { class: "moves", "aria-label": "Instances of the server" });
  const several = h("div", { hidden: true }, h("h2", {}, "Instances of the server"), instances);
  const health = h("div", { class: "health" });
  const list = h("ul", { class: "agents", "aria-label": "Agents" });
  const moves = h("ul", { class: "moves", "aria-label": "Who took from whom in the last minute" });
  const none = h("p", { class: "quiet" });
  main.append(
    h("h1", {}, "Fleet"),
    totals,
    several,
    health,
    list,
    none,
    h("h2", {}, "Who took from whom in the last minute"),
    moves,
  );
  const recent = new RecentMoves();
  let cluster: api.Cluster = { instances: [], shards: [] };
  let looks = 0;
  return api.repeat(1000, async (signal) => {
    const [server, agents, found] = await Promise.all([
      api.get<api.Server>("/v1/server", signal),
      api.get<api.Agent[]>("/v1/agents", signal),
      api.get<api.Health>("/v1/health", signal),
    ]);
    // What the server knows of others is some seconds old anyway.
    if (looks % 5 === 0) cluster = await api.get<api.Cluster>("/v1/cluster", signal);
    looks += 1;
    await recent.follow(server.started_unix_ms, signal);
    showTotals(totals, server, agents);
    several.hidden = cluster.instances.length < 2;
    showInstances(instances, cluster);
    problems(health, found, session);
    const here = agents.filter((agent) => isHere(agent));
    const gone = agents.length - here.length;
    const taken = recent.taken();
    const rows = byZone([...here, ...agents.filter((agent) => !isHere(agent))]);
    await nextFrame();
    sync(
      list,
      rows,
      (row) => (typeof row === "string" ? `zone ${row}` : String(row.id)),
      (row) => (typeof row === "string" ? h("li", { class: "zone" }) : agentRow(row, session)),
      () => {},
    );
    const elements = Array.from(list.children);
    for (const [place, row] of rows.entries()) {
      if (place % AT_ONCE === 0) await nextFrame();
      if (typeof row === "string") text(elements[place]!, zoneLine(row, here));
      else showAgent(elements[place]!, row, taken.get(row.id) ?? "");
    }
    text(
      none,
      here.length === 0
        ? "No agent is here. On a machine that is to run tasks: loxley agent start"
        : gone > 0
          ? `${count(gone)} of them ${gone === 1 ? "is" : "are"} not here any more.`
          : "",
    );
    showMoves(moves, recent, agents);
  });
};

/** The moves of the last minute. Each look asks only for what is new. */
class RecentMoves {
  items: api.Mark[] = [];
  isBehind = false;
  private after: number | undefined;
  private startedMs = 0;

  async follow(startedMs: number, signal: AbortSignal): Promise<void> {
    if (startedMs !== this.startedMs) {
      // Another process counts from the beginning.
      [this.startedMs, this.after, this.items] = [startedMs, undefined, []];
    }
    const from = Date.now() - MOVES_MS;
    this.items = this.items.filter((mark) => mark.unix_ms >= from);
    for (let page = 0; page < 10; page += 1) {
      const where = this.after === undefined ? `from_unix_ms=${from}` : `after=${this.after}`;
      const marks = await api.get<api.Marks>(`/v1/marks?${where}&limit=10000`, signal);
      this.after = marks.items.at(-1)?.sequence ?? this.after;
      this.items.push(...marks.items.filter((mark) => mark.event === "task_moved"));
      this.isBehind = marks.next !== undefined;
      if (!this.isBehind) return;
    }
  }

  /** What each agent took and gave. */
  taken(): Map<number, string> {
    const counts = new Map<number, [got: number, gave: number]>();
    const of = (id: number | undefined) => {
      const found = counts.get(id ?? -1) ?? [0, 0];
      counts.set(id ?? -1, found);
      return found;
    };
    for (const mark of this.items) {
      of(mark.to)[0] += 1;
      of(mark.from)[1] += 1;
    }
    return new Map(Array.from(counts, ([id, [got, gave]]) => [id, `took ${count(got)}, gave ${count(gave)} in the last minute`]));
  }
}

/** The agents, those of each zone together below its name where there are several zones. */
function byZone(agents: api.Agent[]): (api.Agent | string)[] {
  const zones = [...new Set(agents.map((agent) => agent.zone ?? ""))].sort();
  if (zones.length < 2) return agents;
  return zones.flatMap((zone) => [zone, ...agents.filter((agent) => (agent.zone ?? "") === zone)]);
}

function zoneLine(zone: string, here: api.Agent[]): string {
  const agents = here.filter((agent) => (agent.zone ?? "") === zone);
  const sum = (of: (agent: api.Agent) => number) => count(agents.reduce((total, agent) => total + of(agent), 0));
  const name = zone === "" ? "in no zone" : `zone ${zone}`;
  const noun = agents.length === 1 ? "agent" : "agents";
  return `${name}: ${count(agents.length)} ${noun}, ${sum((agent) => agent.started)} of ${sum((agent) => agent.slots)} slots busy, ${sum((agent) => agent.queue_length)} queued`;
}

function showInstances(list: Element, cluster: api.Cluster): void {
  sync(
    list,
    cluster.instances,
    (instance) => instance.name,
    () => h("li", {}, h("strong", {}), " ", h("span", { class: "word" }), " ", h("span", { class: "quiet" })),
    (element, instance) => {
      const [name, word, more] = Array.from(element.children) as HTMLElement[];
      text(name!, instance.name);
      if (word!.textContent !== instance.state.replace(/_/g, " ")) word!.replaceChildren(state(instance.state.replace(/_/g, " ")));
      const shards = cluster.shards.filter((shard) => shard.holder === instance.name).map((shard) => shard.shard);
      const parts = [
        instance.url,
        `version ${instance.version}`,
        `heard ${duration(instance.silent_sec)} ago`,
        shards.length > 0 && cluster.shards.length > 1 ? `shards ${shards.join(", ")}` : null,
      ];
      text(more!, parts.filter((part) => part !== null).join(" · "));
    },
  );
}

export function isHere(agent: api.Agent): boolean {
  return agent.state === "alive" || agent.state === "suspected" || agent.state === "draining";
}

function showTotals(list: Element, server: api.Server, agents: api.Agent[]): void {
  const slots = agents.filter(isHere).reduce((sum, agent) => sum + agent.slots, 0);
  const fleet = server.fleet;
  const rows: [string, string, string][] = [
    ["agents", count(agents.filter(isHere).length), "that are here"],
    ["slots", count(slots), "tasks that they run at once"],
    ["running", count(fleet.tasks.started), "tasks that agents have begun"],
    ["in hand", count(fleet.tasks.running - fleet.tasks.started), "tasks that agents have and will begin next"],
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
    ...agent.capabilities.map((skill) => ((agent.earned ?? []).includes(skill) ? `${skill} (earned)` : skill)),
    ...agent.suspended.map((skill) => `${skill} (lost after failures)`),
  ];
  text(skills!, words.length === 0 ? "" : `skills: ${words.join(", ")}`);
  notes!.hidden = (agent.notes ?? []).length === 0;
  text(notes!.lastElementChild!, (agent.notes ?? []).join("; "));
  if (orders !== undefined) orders.hidden = !here;
}

function showMoves(list: Element, recent: RecentMoves, agents: api.Agent[]): void {
  const names = new Map(agents.map((agent) => [agent.id, agent.name]));
  const name = (id: number | undefined) => names.get(id ?? -1) ?? `agent ${id}`;
  const pairs = new Map<string, { text: string; count: number; last: number }>();
  for (const mark of recent.items) {
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
  if (recent.isBehind) items.push(["next", "there were more moves in this minute than are counted here"]);
  if (rows.length === 0) items.push(["none", "Nobody took anything: agents have enough of their own, or nothing is queued."]);
  sync(
    list,
    items,
    ([key]) => key,
    () => h("li", {}),
    (element, [, line]) => text(element, line),
  );
}
