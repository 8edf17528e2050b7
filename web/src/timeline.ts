// What ran where and when: a row for each agent, drawn on a canvas.
//
// The server adds up what does not fit: a column of a row says how much of the agent's slots was busy in that time, and
// how it ended. Where few enough tasks are in sight, each is drawn by itself. Nothing is left out: what was added up
// instead of drawn is said below.

import * as api from "./api";
import { count, duration, h, moment, text } from "./dom";
import type { View } from "./main";

interface Span {
  task: number;
  job: number;
  start_ms: number;
  end_ms: number;
  state: string;
  attempt: number;
  /** What it is when it is not the last attempt of its task. */
  kind?: "copy" | "retried" | "outrun" | "given_back" | "lost";
}
interface Row {
  id: number;
  name: string;
  slots: number;
  tasks: number;
  failed: number;
  /** Its place, and milliseconds of slots that went to what succeeded, failed, was cancelled, and still runs. */
  columns: [number, number, number, number, number][];
  spans: Span[];
}
interface Answer {
  from_unix_ms: number;
  to_unix_ms: number;
  column_ms: number;
  agents: Row[];
  tasks: number;
  earlier_attempts: number;
  spans_omitted: number;
  attempts_pending: boolean;
  attempts_since_unix_ms?: number;
  next?: number;
  first_unix_ms?: number;
}

/** What an attempt that is not the last is called, and the sign on it. */
const KINDS: Record<string, [sign: string, words: string]> = {
  copy: ["‖", "a second copy"],
  retried: ["✕", "failed and tried again"],
  outrun: ["‖", "another copy was first"],
  given_back: ["⇄", "stopped, and went on elsewhere"],
  lost: ["?", "lost with its agent"],
};

/** The room for names; less of it on a phone. */
let LABEL = 130;
const AXIS = 24;
const ROW = 34;
/** So far apart are marks at least. */
const MARK = 24;
/** So many columns of all agents together are asked for. */
const CELLS = 12_000;
/** How long rows are drawn in one frame. */
const DRAW_MS = 3;
/** From a day to a millisecond. */
const SPAN_MIN = 1;
const SPAN_MAX = 24 * 3600 * 1000 * 31;

export const timeline: View = (main) => {
  let span = 2 * 60_000;
  let from = Date.now() - span;
  let live = true;
  let answer: Answer | null = null;
  let marks: api.Marks | null = null;
  const canvas = h("canvas", {
    tabindex: "0",
    role: "img",
    "aria-label": "What ran where and when. Arrow keys move, plus and minus zoom, End goes to now. The table below says the same.",
  });
  // As high as all rows; the canvas within is as high as the window, and stays in sight.
  const box = h("div", { class: "timeline" }, canvas);
  const where = h("p", { "aria-live": "off", class: "where" });
  const note = h("p", { class: "quiet", id: "timeline-note" });
  const pointed = h("p", { class: "quiet pointed" }, "Point at a task to see which it is; a click opens it.");
  const follow = h("button", { "aria-pressed": "true" }, "Live");
  const rows = h("tbody", {});
  const button = (name: string, work: () => void) => h("button", { click: work }, name);
  main.append(
    h("h1", {}, "Timeline"),
    h(
      "div",
      { class: "row" },
      follow,
      button("Earlier", () => move(-0.5)),
      button("Later", () => move(0.5)),
      button("Zoom in", () => zoom(0.5, 0.5)),
      button("Zoom out", () => zoom(2, 0.5)),
      button("All there is", () => {
        const first = answer?.first_unix_ms;
        if (first === undefined) return;
        live = false;
        from = first;
        span = clamp(Date.now() - first);
        changed();
      }),
      where,
    ),
    h(
      "ul",
      { class: "legend", "aria-label": "Legend" },
      ...["succeeded", "failed", "cancelled", "running"].map((name) => h("li", {}, h("i", { class: `l-${name}` }), name)),
      h("li", {}, "▲ taken from another agent, one or several"),
      h("li", {}, h("i", { class: "l-earlier" }), "not the last attempt:"),
      h("li", {}, "✕ failed, tried again"),
      h("li", {}, "‖ copy"),
      h("li", {}, "⇄ stopped, went on elsewhere"),
      h("li", {}, "? lost with its agent"),
      h("li", {}, "↻ not the first attempt"),
      h("li", {}, "⚑ agent came, left or was silent"),
    ),
    box,
    pointed,
    note,
    h("details", { toggle: () => table() }, h("summary", {}, "The same as a table"), h("table", {}, h("thead", {}, h("tr", {}, ...["agent", "slots", "busy", "tasks", "failed"].map((name) => h("th", { scope: "col" }, name)))), rows)),
  );

  const move = (share: number) => {
    live = false;
    from += span * share;
    changed();
  };
  const zoom = (factor: number, at: number) => {
    const middle = from + span * at;
    span = clamp(span * factor);
    from = middle - span * at;
    if (factor < 1 && at < 0.98) live = false;
    changed();
  };
  const clamp = (ms: number) => Math.min(SPAN_MAX, Math.max(SPAN_MIN, ms));
  let wanted = 0;
  let timer = 0;
  /** The last answer did not come: it is asked for again. */
  let behind = false;
  const changed = () => {
    follow.setAttribute("aria-pressed", String(live));
    draw();
    clearTimeout(timer);
    timer = window.setTimeout(() => void load().catch(() => (behind = true)), 80);
  };

  const load = async (signal?: AbortSignal) => {
    if (live) from = Date.now() - span;
    behind = false;
    const mine = (wanted += 1);
    // With many agents each has fewer: what is asked for has to be read within a frame.
    const agents = Math.max(1, answer?.agents.length ?? 1);
    const wide = Math.floor((canvas.clientWidth - LABEL) / 2);
    const columns = Math.max(50, Math.min(1000, wide, Math.floor(CELLS / agents)));
    const window = `from_unix_ms=${from}&to_unix_ms=${from + span}`;
    let whole = await api.get<Answer>(`/v1/timeline?${window}&columns=${columns}`, signal);
    const found = await api.get<api.Marks>(
      `/v1/marks?from_unix_ms=${Math.floor(from)}&to_unix_ms=${Math.ceil(from + span)}&limit=5000`,
      signal,
    );
    // Long times come in parts, each added to what is there.
    while (mine === wanted) {
      // As people look for them; the server's order is that in which they first came.
      whole.agents.sort((one, other) => one.name.localeCompare(other.name, "en", { numeric: true }));
      answer = whole;
      marks = found;
      draw();
      table();
      if (whole.next !== undefined) {
        const part = await api.get<Answer>(`/v1/timeline?${window}&columns=${columns}&cursor=${whole.next}`, signal);
        whole = add(whole, part);
      } else if (whole.attempts_pending && !live) {
        // The journal is still being read for them; who follows asks again anyway.
        whole = await api.get<Answer>(`/v1/timeline?${window}&columns=${columns}`, signal);
      } else break;
    }
  };

  const table = () => {
    if (answer === null) return;
    const whole = answer;
    // Hundreds of rows that nobody has opened are not worth their while.
    if ((rows.closest("details") as HTMLDetailsElement).open) rows.replaceChildren(
      ...whole.agents.map((row) => {
        const busy = row.columns.reduce((sum, [, a, b, c, d]) => sum + a + b + c + d, 0);
        const share = busy / Math.max(1, row.slots * (whole.to_unix_ms - whole.from_unix_ms));
        return h(
          "tr",
          {},
          h("th", { scope: "row" }, row.name),
          h("td", {}, String(row.slots)),
          h("td", {}, `${(share * 100).toFixed(1)} %`),
          h("td", {}, count(row.tasks)),
          h("td", {}, count(row.failed)),
        );
      }),
    );
    const parts = [
      `${count(whole.tasks)} tasks in sight`,
      whole.earlier_attempts > 0 ? `${count(whole.earlier_attempts)} earlier attempts or copies` : null,
      whole.attempts_pending ? "the journal is still being read for earlier attempts" : null,
      whole.attempts_since_unix_ms !== undefined && whole.attempts_since_unix_ms > Math.max(from, whole.first_unix_ms ?? 0) + 1000
        ? `earlier attempts are known since ${moment(whole.attempts_since_unix_ms)}`
        : null,
      whole.spans_omitted > 0
        ? `too many to draw one by one: each column says how much of the slots was busy. Zoom in to see single tasks`
        : "each drawn by itself",
      whole.next === undefined ? null : "more are being added up",
      marks?.next === undefined ? null : `${count(marks.items.length)} marks are drawn, and there are more: zoom in`,
      marks !== null && marks.since_unix_ms > from
        ? `moves and retries are kept since ${moment(marks.since_unix_ms)}`
        : null,
      marks !== null && marks.missed > 0 ? `${count(marks.missed)} events were missed` : null,
    ];
    text(note, `${parts.filter((part) => part !== null).join("; ")}.`);
    note.dataset["from"] = String(whole.from_unix_ms);
    note.dataset["to"] = String(whole.to_unix_ms);
    note.dataset["tasks"] = String(whole.tasks);
    note.dataset["earlier"] = String(whole.earlier_attempts);
    note.dataset["pending"] = String(whole.attempts_pending || whole.next !== undefined);
  };

  const colours = () => {
    const style = getComputedStyle(document.documentElement);
    const get = (name: string) => style.getPropertyValue(`--${name}`).trim();
    return {
      ink: get("ink"),
      quiet: get("quiet"),
      line: get("line"),
      ground: get("ground"),
      succeeded: get("green"),
      failed: get("red"),
      cancelled: get("purple"),
      running: get("sky"),
      mark: get("orange"),
    };
  };

  const x = (unixMs: number) => LABEL + ((unixMs - from) / span) * (canvas.clientWidth - LABEL);

  let frame = 0;
  const draw = () => {
    const list = answer?.agents ?? [];
    const ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth;
    const header = document.getElementById("top")!.offsetHeight;
    LABEL = width < 600 ? 84 : 130;
    canvas.style.top = `${header}px`;
    const whole = AXIS + Math.max(1, list.length) * ROW + 4;
    const height = Math.min(whole, Math.max(200, window.innerHeight - header));
    box.style.height = `${whole}px`;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.height = `${height}px`;
    }
    const pen = canvas.getContext("2d")!;
    const c = colours();
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = c.ground;
    pen.fillRect(0, 0, width, list.length === 0 ? height : AXIS);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    axis(pen, c, width, 0, list.length === 0 ? height : AXIS, true);
    text(where, `${label(from, span)} to ${label(from + span, span)} (${duration(span / 1000)})`);
    if (list.length === 0) {
      pen.fillStyle = c.quiet;
      pen.fillText(answer === null ? "asking the server" : "nothing ran in this time", LABEL + 10, AXIS + ROW / 2);
      return;
    }
    cancelAnimationFrame(frame);
    const hidden = scrolled();
    const signs = marksByAgent(marks?.items ?? []);
    const drawRow = (row: Row, top: number) => {
      pen.save();
      pen.beginPath();
      pen.rect(0, Math.max(AXIS, top), width, ROW + 4);
      pen.clip();
      pen.fillStyle = c.ground;
      pen.fillRect(0, top, width, ROW + 4);
      axis(pen, c, width, top, top + ROW + 4, false);
      pen.strokeStyle = c.line;
      pen.strokeRect(LABEL + 0.5, top + 0.5, width - LABEL - 1, ROW - 4);
      pen.fillStyle = c.ink;
      pen.fillText(fit(pen, row.name, LABEL - 12), 6, top + ROW / 2 - 2);
      if (answer!.spans_omitted > 0) drawColumns(pen, c, row, top);
      else drawSpans(pen, c, row, top);
      drawMarks(pen, c, signs.get(row.id) ?? [], top);
      pen.restore();
    };
    // Row by row, each in place of what was there: what does not fit into this frame comes with the next.
    let place = Math.max(0, Math.floor(hidden / ROW));
    const goOn = () => {
      const begun = performance.now();
      for (; place < list.length; place += 1) {
        const top = AXIS + place * ROW - hidden;
        if (top > height) return;
        if (performance.now() - begun > DRAW_MS) {
          frame = requestAnimationFrame(goOn);
          return;
        }
        drawRow(list[place]!, top);
      }
    };
    goOn();
  };

  /** How much of the rows is above what is in sight. */
  const scrolled = () => Math.max(0, canvas.getBoundingClientRect().top - box.getBoundingClientRect().top);
  const drawSoon = () => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(draw);
  };

  const axis = (pen: CanvasRenderingContext2D, c: ReturnType<typeof colours>, width: number, top: number, bottom: number, says: boolean) => {
    const step = nice(span / Math.max(2, (width - LABEL) / 110));
    pen.strokeStyle = c.line;
    pen.fillStyle = c.quiet;
    // Steps count from midnight here, not in Greenwich.
    const shift = new Date(from).getTimezoneOffset() * 60_000;
    for (let at = Math.ceil((from - shift) / step) * step + shift; at < from + span; at += step) {
      const left = x(at);
      pen.beginPath();
      pen.moveTo(left, Math.max(top, AXIS - 6));
      pen.lineTo(left, bottom);
      pen.stroke();
      if (says && left < width - 60) pen.fillText(label(at, step), left + 3, AXIS / 2);
    }
  };

  const drawColumns = (pen: CanvasRenderingContext2D, c: ReturnType<typeof colours>, row: Row, top: number) => {
    const whole = answer!;
    const inner = ROW - 6;
    for (const [column, succeeded, failed, cancelled, running] of row.columns) {
      const left = x(whole.from_unix_ms + column * whole.column_ms);
      const right = x(whole.from_unix_ms + (column + 1) * whole.column_ms);
      if (right < LABEL) continue;
      const busy = succeeded + failed + cancelled + running;
      const tall = Math.max(Math.min(1, busy / (row.slots * whole.column_ms)) * inner, 1);
      let bottom = top + 1 + inner;
      for (const [kind, number] of [["succeeded", succeeded], ["running", running], ["cancelled", cancelled], ["failed", failed]] as const) {
        if (number === 0) continue;
        const part = (tall * number) / Math.max(busy, 1e-9);
        pen.fillStyle = c[kind];
        pen.fillRect(Math.max(left, LABEL + 1), bottom - part, Math.max(0.7, right - Math.max(left, LABEL + 1)), part);
        bottom -= part;
      }
    }
  };

  const drawSpans = (pen: CanvasRenderingContext2D, c: ReturnType<typeof colours>, row: Row, top: number) => {
    const whole = answer!;
    const lanes = lay(row);
    const tall = (ROW - 6) / Math.max(row.slots, lanes.count, 1);
    row.spans.forEach((one, place) => {
      const { start_ms: begin, end_ms: end, state: kind, attempt } = one;
      const earlier = one.kind === undefined ? undefined : KINDS[one.kind];
      const left = Math.max(LABEL + 1, x(whole.from_unix_ms + begin));
      const right = Math.min(canvas.clientWidth - 1, x(whole.from_unix_ms + end));
      if (right < LABEL) return;
      const high = top + 1 + lanes.lane[place]! * tall;
      const wide = Math.max(1, right - left - (right - left > 4 ? 1 : 0));
      const thick = Math.max(1, tall - (tall > 4 ? 1 : 0));
      pen.fillStyle = c[kind as "succeeded"] ?? c.cancelled;
      // What came to nothing is an outline: the slot was busy, but not with what counts.
      if (earlier !== undefined && wide > 3 && thick > 3) {
        pen.globalAlpha = 0.25;
        pen.fillRect(left, high, wide, thick);
        pen.globalAlpha = 1;
        pen.strokeStyle = c[kind as "succeeded"] ?? c.cancelled;
        pen.strokeRect(left + 0.5, high + 0.5, wide - 1, thick - 1);
      } else pen.fillRect(left, high, wide, thick);
      if (kind === "failed" && earlier === undefined && wide > 4 && tall > 3) hatch(pen, c.ground, left, high, wide, tall - 1);
      if (earlier !== undefined && wide > 12 && tall > 9) {
        pen.fillStyle = c.ink;
        pen.fillText(earlier[0], left + 2, high + tall / 2);
      } else if (attempt > 1 && wide > 12 && tall > 9) {
        pen.fillStyle = c.ground;
        pen.fillText("↻", left + 2, high + tall / 2);
      }
    });
  };

  /** Marks of one kind that would cover each other, and what runs below them, are drawn as one. */
  const drawMarks = (pen: CanvasRenderingContext2D, c: ReturnType<typeof colours>, signs: api.Mark[], top: number) => {
    const last = { "▲": -Infinity, "⚑": -Infinity };
    pen.fillStyle = c.mark;
    for (const mark of signs) {
      const left = x(mark.unix_ms);
      const sign = mark.event === "task_moved" ? "▲" : "⚑";
      if (left < LABEL || left > canvas.clientWidth || left - last[sign] < MARK) continue;
      last[sign] = left;
      pen.fillText(sign, left - 5, top + ROW - 9);
    }
  };

  const at = (event: PointerEvent | MouseEvent): [Row, Span] | null => {
    if (answer === null || answer.spans_omitted > 0) return null;
    const place = canvas.getBoundingClientRect();
    const down = event.clientY - place.top - AXIS;
    const row = answer.agents[Math.floor((down + scrolled()) / ROW)];
    if (row === undefined || down < 0) return null;
    const when = from - answer.from_unix_ms + ((event.clientX - place.left - LABEL) / (place.width - LABEL)) * span;
    const slack = (span / place.width) * 2;
    const lanes = lay(row);
    const high = ((down + scrolled()) % ROW) / ((ROW - 6) / Math.max(row.slots, lanes.count, 1));
    const near = row.spans.filter((one) => one.start_ms - slack <= when && when <= one.end_ms + slack);
    const best = near.find((one) => lanes.lane[row.spans.indexOf(one)] === Math.floor(high)) ?? near[0];
    return best === undefined ? null : [row, best];
  };

  let held: { x: number; from: number; moved: boolean } | null = null;
  canvas.addEventListener("pointerdown", (event) => {
    held = { x: event.clientX, from, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (held !== null) {
      const shift = ((event.clientX - held.x) / (canvas.clientWidth - LABEL)) * span;
      if (Math.abs(event.clientX - held.x) > 4) held.moved = true;
      if (!held.moved) return;
      live = false;
      from = held.from - shift;
      return changed();
    }
    const found = at(event);
    if (found === null) return;
    const [row, one] = found;
    const took = duration((one.end_ms - one.start_ms) / 1000);
    const whose = one.job === 0 ? "" : ` of job ${one.job}`;
    const what = one.kind === undefined ? one.state : (KINDS[one.kind]?.[1] ?? one.kind);
    text(pointed, `task ${one.task}${whose} on ${row.name}: ${what}, ${took}, attempt ${one.attempt}`);
  });
  canvas.addEventListener("pointerup", (event) => {
    const click = held !== null && !held.moved;
    held = null;
    if (!click) return;
    const found = at(event);
    if (found !== null) location.hash = `task/${found[1].task}`;
  });
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.shiftKey && Math.abs(event.deltaX) < Math.abs(event.deltaY)) {
        const box = canvas.getBoundingClientRect();
        zoom(event.deltaY > 0 ? 1.25 : 0.8, Math.max(0, (event.clientX - box.left - LABEL) / (box.width - LABEL)));
      } else {
        move(event.deltaX / 1000);
      }
      event.preventDefault();
    },
    { passive: false },
  );
  canvas.addEventListener("keydown", (event) => {
    const keys: Record<string, () => void> = {
      ArrowLeft: () => move(-0.2),
      ArrowRight: () => move(0.2),
      "+": () => zoom(0.5, 0.5),
      "-": () => zoom(2, 0.5),
      End: () => {
        live = true;
        changed();
      },
    };
    const work = keys[event.key];
    if (work === undefined) return;
    event.preventDefault();
    work();
  });
  follow.addEventListener("click", () => {
    live = !live;
    changed();
  });
  const size = new ResizeObserver(() => draw());
  size.observe(box);
  window.addEventListener("scroll", drawSoon, { passive: true });
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", draw);
  const stop = api.repeat(1000, async (signal) => {
    if (live || behind || answer === null || answer.to_unix_ms > Date.now()) await load(signal);
  });
  return () => {
    stop();
    clearTimeout(timer);
    wanted += 1;
    size.disconnect();
    cancelAnimationFrame(frame);
    window.removeEventListener("scroll", drawSoon);
    dark.removeEventListener("change", draw);
  };
};

/** The marks that are drawn, by the agent in whose row they stand. */
function marksByAgent(marks: api.Mark[]): Map<number, api.Mark[]> {
  const found = new Map<number, api.Mark[]>();
  for (const mark of marks) {
    const isSeen = mark.event === "task_moved" || mark.event === "agent_joined" || mark.event === "agent_changed";
    const agent = mark.event === "task_moved" ? mark.to : mark.agent;
    if (!isSeen || agent === undefined) continue;
    const known = found.get(agent);
    if (known === undefined) found.set(agent, [mark]);
    else known.push(mark);
  }
  return found;
}

/** Two parts of one time, added up. */
function add(one: Answer, other: Answer): Answer {
  const rows = new Map(one.agents.map((row) => [row.id, { ...row, columns: [...row.columns], spans: [...row.spans] }]));
  for (const row of other.agents) {
    const known = rows.get(row.id);
    if (known === undefined) rows.set(row.id, row);
    else {
      const columns = new Map(known.columns.map((column) => [column[0], [...column] as Row["columns"][number]]));
      for (const column of row.columns) {
        const there = columns.get(column[0]);
        if (there === undefined) columns.set(column[0], column);
        else for (const field of [1, 2, 3, 4] as const) there[field] += column[field];
      }
      known.columns = [...columns.values()];
      known.tasks += row.tasks;
      known.failed += row.failed;
      known.spans.push(...row.spans);
    }
  }
  const whole: Answer = {
    ...one,
    agents: [...rows.values()],
    tasks: one.tasks + other.tasks,
    earlier_attempts: one.earlier_attempts + other.earlier_attempts,
    spans_omitted: one.spans_omitted + other.spans_omitted,
    attempts_pending: other.attempts_pending,
  };
  // Only what has been read is known to be the first.
  if (other.first_unix_ms !== undefined) whole.first_unix_ms = other.first_unix_ms;
  if (other.next === undefined) delete whole.next;
  else whole.next = other.next;
  return whole;
}

interface Lanes {
  lane: number[];
  count: number;
}
const laid = new WeakMap<Row, Lanes>();

/** Which lane each span of a row is drawn in: the first that is free when it begins. */
function lay(row: Row): Lanes {
  const known = laid.get(row);
  if (known !== undefined) return known;
  const order = row.spans.map((_, place) => place).sort((a, b) => row.spans[a]!.start_ms - row.spans[b]!.start_ms);
  const ends: number[] = [];
  const lane: number[] = [];
  for (const place of order) {
    const { start_ms: begin, end_ms: end } = row.spans[place]!;
    // Begin and end are told by different clocks: a little overlap is none.
    let free = ends.findIndex((end) => end <= begin + 1);
    if (free < 0) free = ends.length;
    ends[free] = end;
    lane[place] = free;
  }
  const lanes = { lane, count: ends.length };
  laid.set(row, lanes);
  return lanes;
}

function hatch(pen: CanvasRenderingContext2D, colour: string, left: number, top: number, wide: number, tall: number): void {
  pen.save();
  pen.beginPath();
  pen.rect(left, top, wide, tall);
  pen.clip();
  pen.strokeStyle = colour;
  pen.beginPath();
  for (let place = left - tall; place < left + wide; place += 6) {
    pen.moveTo(place, top + tall);
    pen.lineTo(place + tall, top);
  }
  pen.stroke();
  pen.restore();
}

function fit(pen: CanvasRenderingContext2D, name: string, width: number): string {
  if (pen.measureText(name).width <= width) return name;
  const letters = Array.from(name);
  while (letters.length > 1 && pen.measureText(`${letters.join("")}…`).width > width) letters.pop();
  return `${letters.join("")}…`;
}

const STEPS = [
  0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000,
  600_000, 900_000, 1_800_000, 3_600_000, 7_200_000, 14_400_000, 28_800_000, 43_200_000, 86_400_000, 172_800_000,
  604_800_000,
];

function nice(ms: number): number {
  return STEPS.find((step) => step >= ms) ?? 604_800_000;
}

function label(unixMs: number, step: number): string {
  const date = new Date(unixMs);
  const two = (value: number) => String(value).padStart(2, "0");
  if (step >= 86_400_000) return date.toLocaleDateString("en-GB");
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}`;
  if (step >= 60_000) return clock;
  const seconds = `${clock}:${two(date.getSeconds())}`;
  if (step >= 1000) return seconds;
  const millis = (((unixMs % 1000) + 1000) % 1000).toFixed(step < 1 ? 1 : 0);
  return `${seconds}.${millis.padStart(step < 1 ? 5 : 3, "0")}`;
}
