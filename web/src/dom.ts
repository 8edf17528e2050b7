// Elements out of data. Whatever comes from outside becomes text, never markup: nothing here parses HTML.

export type Child = Node | string | number | null | undefined | false;
type Attributes = Record<string, string | number | boolean | ((event: Event) => void) | null | undefined>;

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  apply(element, attributes);
  append(element, children);
  return element;
}

export function svg(tag: string, attributes: Attributes = {}, ...children: Child[]): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  apply(element, attributes);
  append(element, children);
  return element;
}

function apply(element: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

function append(element: Element, children: Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    element.append(typeof child === "number" ? String(child) : child);
  }
}

/** Sets the text only where it changed: what a person selected stays selected, and nothing is laid out anew. */
export function text(element: Element, value: string): void {
  if (element.textContent !== value) element.textContent = value;
}

/** Makes the children of an element those of a list, by their keys: what stays is kept, with its focus. */
export function sync<T>(
  parent: Element,
  items: readonly T[],
  key: (item: T) => string,
  create: (item: T) => Element,
  update: (element: Element, item: T) => void,
): void {
  const old = new Map<string, Element>();
  for (const child of Array.from(parent.children)) {
    const name = (child as HTMLElement).dataset["key"];
    if (name === undefined) child.remove();
    else old.set(name, child);
  }
  let place: Element | null = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let element = old.get(name);
    if (element === undefined) {
      element = create(item);
      (element as HTMLElement).dataset["key"] = name;
    }
    old.delete(name);
    update(element, item);
    if (element === place) place = place.nextElementSibling;
    else parent.insertBefore(element, place);
  }
  for (const element of old.values()) element.remove();
}

/** The next frame, so that much work does not hold up one; at once where nobody looks and there are none. */
export function nextFrame(): Promise<void> {
  return new Promise((resolve) => {
    const late = setTimeout(resolve, 100);
    requestAnimationFrame(() => {
      clearTimeout(late);
      resolve();
    });
  });
}

/** A dialog that asks before something is done that cannot be undone. */
export function ask(question: string, yes: string): Promise<boolean> {
  return new Promise((resolve) => {
    const dialog = h(
      "dialog",
      { "aria-label": question },
      h("p", {}, question),
      h(
        "div",
        { class: "row" },
        h("button", { class: "danger", click: () => dialog.close("yes") }, yes),
        h("button", { click: () => dialog.close("no") }, "No"),
      ),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

// Figures for people.

export function duration(seconds: number): string {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 0.001) return `${(seconds * 1e6).toFixed(0)} µs`;
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function count(value: number): string {
  return value.toLocaleString("en");
}

export function bytes(value: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value.toFixed(unit === 0 || value >= 100 ? 0 : 1)} ${units[unit]}`;
}

export function moment(unixMs: number): string {
  const date = new Date(unixMs);
  const today = new Date().toDateString() === date.toDateString();
  return today ? date.toLocaleTimeString("en-GB") : date.toLocaleString("en-GB");
}

export function ago(unixMs: number): string {
  return `${duration(Math.max(0, (Date.now() - unixMs) / 1000))} ago`;
}

export function figure(value: number | undefined | null, isShare: boolean): string {
  if (value === undefined || value === null) return "–";
  return isShare ? `${(value * 100).toFixed(1)} %` : value.toFixed(2);
}

/** A word with a mark that can be told apart without colour. */
export function state(name: string): HTMLElement {
  return h("span", { class: `state ${name.replace(/[^a-z_]/g, "")}` }, name);
}
