// A job as boxes and lines: columns by what comes before what, the critical path thick.

import type { Graph, GraphNode } from "./api";
import { count, duration, h, svg } from "./dom";

const WIDTH = 190;
const HEIGHT = 46;
const GAP_X = 50;
const GAP_Y = 14;
/** More boxes than this are a list: nobody reads lines between them. */
const BOXES_MAX = 300;

export function graph(parent: HTMLElement, shape: Graph): void {
  if (shape.nodes.length > BOXES_MAX) return list(parent, shape);
  const columns = depths(shape.nodes);
  const rows: number[] = [];
  const places = shape.nodes.map((_, place) => {
    const column = columns[place]!;
    const row = rows[column] ?? 0;
    rows[column] = row + 1;
    return { x: column * (WIDTH + GAP_X) + 4, y: row * (HEIGHT + GAP_Y) + 4 };
  });
  const width = Math.max(...places.map((place) => place.x), 0) + WIDTH + 4;
  const height = Math.max(...places.map((place) => place.y), 0) + HEIGHT + 4;
  const drawing = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Graph of the job" });
  shape.nodes.forEach((node, place) => {
    for (const before of node.after) {
      const from = places[before]!;
      const to = places[place]!;
      const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x, to.y + HEIGHT / 2];
      const critical = node.is_critical && shape.nodes[before]!.is_critical;
      drawing.append(
        svg("path", {
          d: `M${x1} ${y1} C${x1 + GAP_X / 2} ${y1} ${x2 - GAP_X / 2} ${y2} ${x2} ${y2}`,
          class: critical ? "edge critical" : "edge",
        }),
      );
    }
  });
  shape.nodes.forEach((node, place) => drawing.append(box(node, shape, places[place]!)));
  parent.replaceChildren(drawing);
}

function box(node: GraphNode, shape: Graph, place: { x: number; y: number }): SVGElement {
  const word = stateOf(node);
  const time = node.longest_sec ?? node.expected_sec;
  const note = [
    node.is_array ? `${count(node.tasks.succeeded)}/${count(node.tasks.total)}` : null,
    word,
    time === undefined ? null : `${node.longest_sec === undefined ? "about " : ""}${duration(time)}`,
  ]
    .filter((part) => part !== null)
    .join(" · ");
  const label = `${node.name}: ${note}${node.is_critical ? ", on the critical path" : ""}`;
  const target = node.is_array ? `#job/${shape.job}` : `#task/${node.first_task}`;
  return svg(
    "a",
    { href: target, "aria-label": label },
    svg("title", {}, label),
    svg("rect", { x: place.x, y: place.y, width: WIDTH, height: HEIGHT, rx: 6, class: `box ${word}${node.is_critical ? " critical" : ""}` }),
    svg("text", { x: place.x + 10, y: place.y + 19, class: "title" }, shorten(node.name, 25)),
    svg("text", { x: place.x + 10, y: place.y + 36, class: "note" }, shorten(note, 30)),
  );
}

function list(parent: HTMLElement, shape: Graph): void {
  const critical = shape.nodes.filter((node) => node.is_critical);
  parent.replaceChildren(
    h("p", {}, `${count(shape.nodes.length)} tasks are too many to draw; this is the critical path:`),
    h(
      "ol",
      {},
      ...critical.map((node) => h("li", {}, h("a", { href: `#task/${node.first_task}` }, node.name), ` ${stateOf(node)}`)),
    ),
  );
}

function stateOf(node: GraphNode): string {
  const tasks = node.tasks;
  if (tasks.failed > 0) return "failed";
  if (tasks.started > 0) return "running";
  if (tasks.held > 0) return "held";
  if (tasks.queued + tasks.running > 0) return "queued";
  if (tasks.waiting + tasks.pending > 0) return "waiting";
  return tasks.cancelled > 0 ? "cancelled" : "succeeded";
}

/** How many nodes come before each, at most. */
function depths(nodes: GraphNode[]): number[] {
  const known: (number | undefined)[] = [];
  const depth = (place: number, seen: number): number => {
    const found = known[place];
    if (found !== undefined) return found;
    // No job waits in a circle; should one, it is drawn all the same.
    if (seen > nodes.length) return 0;
    const value = nodes[place]!.after.reduce((most, before) => Math.max(most, depth(before, seen + 1) + 1), 0);
    known[place] = value;
    return value;
  };
  return nodes.map((_, place) => depth(place, 0));
}

function shorten(text: string, length: number): string {
  const letters = Array.from(text);
  return letters.length <= length ? text : `${letters.slice(0, length - 1).join("")}…`;
}
