// The shell: who is signed in, which view is shown, whether the server is there.

import * as api from "./api";
import { h, text } from "./dom";
import { balance } from "./balance";
import { fleet } from "./fleet";
import { job, jobs } from "./jobs";
import { task } from "./task";
import { timeline } from "./timeline";
import { whatIf } from "./whatif";

/** A view fills an element and returns what ends it. */
export type View = (main: HTMLElement, session: api.Session, argument: string) => () => void;

const VIEWS: Record<string, { title: string; view: View; key?: string }> = {
  fleet: { title: "Fleet", view: fleet, key: "1" },
  jobs: { title: "Jobs", view: jobs, key: "2" },
  timeline: { title: "Timeline", view: timeline, key: "3" },
  balance: { title: "Balance", view: balance, key: "4" },
  whatif: { title: "What if", view: whatIf, key: "5" },
  job: { title: "Job", view: job },
  task: { title: "Task", view: task },
};

const top = document.getElementById("top")!;
const main = document.getElementById("main")!;
const says = document.getElementById("says")!;
const connection = h("span", { id: "connection", role: "status" });
let session: api.Session | null = null;
let end: () => void = () => {};

/** Tells a person something, also one who hears instead of sees. */
export function say(message: string): void {
  text(says, message);
  says.classList.add("shown");
  setTimeout(() => says.classList.remove("shown"), 8000);
}

/** Does something by order of a person, and says what came of it. */
export async function order(what: string, work: () => Promise<unknown>): Promise<void> {
  try {
    await work();
    say(`${what}: done`);
  } catch (error) {
    const help = error instanceof api.Refusal && error.help !== undefined ? ` (${error.help})` : "";
    say(`${what}: ${error instanceof Error ? error.message : String(error)}${help}`);
  }
}

function show(): void {
  end();
  end = () => {};
  if (session === null) return signInPage();
  const [name = "", argument = ""] = location.hash.slice(1).split("/");
  const found = VIEWS[name] ?? VIEWS["fleet"]!;
  document.title = `${found.title}${argument === "" ? "" : ` ${argument}`} – Loxley`;
  for (const link of top.querySelectorAll("nav a")) {
    const here = link.getAttribute("href") === `#${VIEWS[name] === undefined ? "fleet" : name}`;
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.replaceChildren();
  end = found.view(main, session, argument);
}

function header(): void {
  const links = Object.entries(VIEWS)
    .filter(([, view]) => view.key !== undefined)
    .map(([name, view]) =>
      h("a", { href: `#${name}`, title: `key ${view.key}`, "aria-keyshortcuts": view.key }, view.title),
    );
  const who =
    session === null
      ? null
      : h(
          "span",
          { class: "who" },
          h("span", { title: "the token behind this session, and its role" }, `${session.name} (${session.role})`),
          h(
            "button",
            {
              click: () =>
                void api.signOut().then(() => {
                  session = null;
                  header();
                  show();
                }),
            },
            "Sign out",
          ),
        );
  top.replaceChildren(
    h("strong", {}, "Loxley"),
    session === null ? "" : h("nav", { "aria-label": "Views" }, ...links),
    connection,
    who ?? "",
  );
}

function signInPage(): void {
  document.title = "Sign in – Loxley";
  const input = h("input", {
    type: "password",
    id: "token",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    "aria-describedby": "signin-help",
  });
  const wrong = h("p", { class: "wrong", role: "alert" });
  const form = h(
    "form",
    {
      class: "signin",
      submit: (event) => {
        event.preventDefault();
        void enter(input.value.trim(), wrong);
      },
    },
    h("h1", {}, "Sign in"),
    h("label", { for: "token" }, "Token"),
    input,
    h("button", { type: "submit" }, "Sign in"),
    wrong,
    h(
      "p",
      { id: "signin-help" },
      "Easiest: ",
      h("code", {}, "loxley dashboard"),
      " opens this page already signed in, with a link that works once. Otherwise paste the ",
      h("code", {}, "token"),
      " of an access file; one of role read is enough to look: ",
      h("code", {}, "loxley server token create screen --role read"),
      ". It is exchanged for a secret that lives in this tab for half a day.",
    ),
  );
  main.replaceChildren(form);
  input.focus();
}

async function enter(key: string, wrong?: HTMLElement): Promise<void> {
  try {
    session = await api.signIn(key);
  } catch (error) {
    const message =
      error instanceof api.Refusal && error.status === 401
        ? "Nobody is known by this. A link works once and for a minute: ask for a new one with `loxley dashboard`."
        : String(error instanceof Error ? error.message : error);
    if (wrong !== undefined) text(wrong, message);
    else say(message);
    session = null;
  }
  header();
  if (session !== null) show();
}

async function begin(): Promise<void> {
  const ticket = /^#ticket=([\w-]+)$/.exec(location.hash)?.[1];
  if (ticket !== undefined) {
    // Out of the address bar, and of what the browser remembers.
    history.replaceState(null, "", "/");
    api.forget();
    await enter(ticket);
  } else if (api.secret() !== null) {
    while (session === null && api.secret() !== null) {
      try {
        session = await api.get<api.Session>("/v1/session");
      } catch (error) {
        if (error instanceof api.Refusal) break;
        await new Promise((resolve) => setTimeout(resolve, 1000));
      }
    }
  }
  header();
  show();
}

api.listen(
  () => {
    if (session === null) return;
    session = null;
    header();
    show();
    say("The session is over: sign in again.");
  },
  (reached) => {
    text(connection, reached ? "" : "The server cannot be reached; trying again");
    document.body.classList.toggle("away", !reached);
  },
);
window.addEventListener("hashchange", show);
document.addEventListener("keydown", (event) => {
  const target = event.target as HTMLElement;
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName)) return;
  const view = Object.entries(VIEWS).find(([, view]) => view.key === event.key);
  if (view !== undefined && session !== null) location.hash = view[0];
  if (event.key === "/") {
    const search = document.querySelector<HTMLInputElement>("input[type=search]");
    if (search !== null) {
      event.preventDefault();
      search.focus();
    }
  }
});
void begin();
