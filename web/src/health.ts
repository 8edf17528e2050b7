// What is wrong and what to do about it; a remedy that is a command we know is a button.

import * as api from "./api";
import { h, sync } from "./dom";
import { order } from "./main";

export function problems(parent: Element, health: api.Health, session: api.Session): void {
  sync(
    parent,
    health.problems,
    (problem) => `${problem.kind}${problem.message}${problem.remedies.join()}`,
    (problem) =>
      h(
        "section",
        { class: `problem ${problem.severity === "critical" ? "critical" : "warning"}`, "aria-label": problem.severity },
        h("p", {}, h("strong", {}, `${problem.severity}: `), ...words(problem.message)),
        remedies(problem.remedies, session),
      ),
    () => {},
  );
}

/** The remedies, each with what can be done about it from here. */
export function remedies(list: string[], session: api.Session): HTMLElement {
  return h("ul", { class: "remedies" }, ...list.map((remedy) => h("li", {}, ...words(remedy), ...buttons(remedy, session))));
}

/** Commands and names stand between backticks. */
export function words(remedy: string): (Node | string)[] {
  return remedy.split("`").map((part, index) => (index % 2 === 1 ? h("code", {}, part) : part));
}

function buttons(remedy: string, session: api.Session): HTMLElement[] {
  const found: HTMLElement[] = [];
  const may = session.role === "admin" || session.role === "submit";
  for (const match of remedy.matchAll(/`loxley (job|task) (cancel|retry|info|explain|logs|wait) (\d+)`/g)) {
    const [, kind, what, number] = match as unknown as [string, string, string, string];
    if (what === "cancel" || what === "retry") {
      if (!may) continue;
      const label = `${what === "cancel" ? "Cancel" : "Retry"} ${kind} ${number}`;
      const method = what === "cancel" ? "DELETE" : "POST";
      const path = `/v1/${kind}s/${number}${what === "retry" ? "/retry" : ""}`;
      found.push(h("button", { click: () => void order(label, () => api.call(method, path)) }, label));
    } else {
      found.push(h("a", { class: "button", href: `#${kind}/${number}` }, `Look at ${kind} ${number}`));
    }
  }
  return found;
}
