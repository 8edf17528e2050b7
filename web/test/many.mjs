// A journal of many tasks in the timeline: all of it, then down to single tasks. Prints one JSON object of how long that
// took, and fails when a task is not accounted for.
//
//   node test/many.mjs PROGRAM [TASKS] [DIRECTORY FOR PICTURES]
//
// The server and its journal are real; the agents are many in one process (agents.mjs), and run nothing. The server is
// started anew before anybody looks: what is seen comes out of the journal.
import { spawn, execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, existsSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import assert from "node:assert/strict";
import { chromium } from "playwright-core";
import { agents } from "./agents.mjs";

const [program, asked = "50000", pictures] = process.argv.slice(2);
const TASKS = Number(asked);
const [AGENTS, SLOTS] = [16, 64];
const PATIENCE = 60_000 + TASKS;
/** Where the rows of the timeline begin, beside the names. */
const LABEL = 130;
const scratch = mkdtempSync(join(tmpdir(), "loxley-many-"));
const directory = join(scratch, "server");
const environment = { ...process.env, LOXLEY_DIR: directory, NO_COLOR: "1" };
const children = new Set();
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const seconds = (since) => Number(((performance.now() - since) / 1000).toFixed(2));

function start(...words) {
  const child = spawn(program, words, { env: environment, stdio: ["ignore", "pipe", "pipe"] });
  children.add(child);
  child.said = "";
  child.stdout.on("data", (data) => (child.said += data));
  child.stderr.on("data", (data) => (child.said += data));
  child.ended = new Promise((resolve) => child.on("exit", () => (children.delete(child), resolve())));
  return child;
}

const loxley = (...words) => execFileSync(program, words, { env: environment, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });

async function until(what, look) {
  const limit = Date.now() + PATIENCE;
  for (;;) {
    let last;
    try {
      const found = await look();
      if (found) return found;
    } catch (error) {
      last = error;
    }
    if (Date.now() > limit) throw new Error(`never came: ${what}`, { cause: last });
    await sleep(25);
  }
}

async function serve() {
  const server = start("server", "start", "--listen", "127.0.0.1:0");
  const info = () => existsSync(join(directory, "access.json")) && JSON.parse(loxley("server", "info", "--json"));
  await until("the server answers", () => info().pid === server.pid);
  return server;
}

const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  headless: true,
  args: ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"],
});
try {
  const result = { tasks: TASKS };
  let since = performance.now();
  let server = await serve();
  const fleet = agents(join(directory, "access.json"), AGENTS, (place) => ({
    name: `agent-${String(place + 1).padStart(2, "0")}`,
    slots: SLOTS,
    work: () => 0,
  }));
  const waits = start("submit", "--wait", "--array", `1-${TASKS}`, "--", "true");
  await waits.ended;
  assert.equal(waits.exitCode, 0, waits.said);
  result.ran_s = seconds(since);
  fleet.forEach((agent) => agent.stream.close());
  server.kill("SIGTERM");
  await server.ended;
  since = performance.now();
  server = await serve();
  result.restarted_s = seconds(since);

  const door = start("dashboard", "--no-open", "--json", "--read-only");
  const url = await until("a link", () => /"url":"([^"]+)"/.exec(door.said)?.[1]);
  const page = await (await browser.newContext({ viewport: { width: 1280, height: 900 } })).newPage();
  page.setDefaultTimeout(PATIENCE);
  await page.goto(url);
  await page.locator("nav").waitFor();
  const note = page.locator("#timeline-note");
  // All of one moment: the page goes on while it is asked.
  const shown = () =>
    note.evaluate((note) => {
      const { from, to, tasks, pending } = note.dataset;
      return { from: Number(from), to: Number(to), tasks: Number(tasks), isWhole: pending === "false", note: note.textContent };
    });
  const ask = (path) =>
    page.evaluate(async (path) => {
      const headers = { Authorization: `Bearer ${sessionStorage.getItem("loxley-session")}` };
      return (await fetch(path, { headers })).json();
    }, path);
  /** How many tasks are in a time, by the API. */
  const count = async (from, to) => {
    let [counted, cursor] = [0, ""];
    do {
      const part = await ask(`/v1/timeline?from_unix_ms=${from}&to_unix_ms=${to}${cursor}`);
      counted += part.tasks;
      cursor = part.next === undefined ? "" : `&cursor=${part.next}`;
    } while (cursor !== "");
    return counted;
  };
  const picture = async (name) => {
    if (pictures) await page.screenshot({ path: join(pictures, `${name}.png`) });
  };

  // All of it: the first answer, and the whole.
  since = performance.now();
  await page.keyboard.press("3");
  await until("an answer", async () => (await note.getAttribute("data-tasks")) !== null);
  result.opened_s = seconds(since);
  since = performance.now();
  await until("where it begins", async () => {
    await page.getByRole("button", { name: "All there is" }).click();
    return (await shown()).tasks > 0;
  });
  result.first_part_s = seconds(since);
  await until("all of them", async () => {
    const seen = await shown();
    assert.ok(seen.tasks <= TASKS, `${seen.tasks} of ${TASKS}`);
    return seen.isWhole && seen.tasks === TASKS;
  });
  result.whole_s = seconds(since);
  assert.match((await shown()).note, /too many to draw one by one/);
  await picture("many-all");

  // Down to where each is drawn by itself, around the end of one of them. What is in sight is what the server counts.
  const middle = (await ask(`/v1/tasks/${Math.ceil(TASKS / 2)}`)).ended_unix_ms;
  const box = await page.locator("canvas").boundingBox();
  result.zooms = [];
  let seen = await shown();
  while (!/each drawn by itself/.test(seen.note)) {
    assert.ok(result.zooms.length < 100, "single tasks come in sight");
    since = performance.now();
    const before = seen;
    const share = (middle - before.from) / (before.to - before.from);
    await page.mouse.move(box.x + LABEL + share * (box.width - LABEL), box.y + 40);
    await page.mouse.wheel(0, -100);
    await until("it is drawn", async () => {
      seen = await shown();
      return seen.isWhole && seen.to - seen.from < before.to - before.from;
    });
    result.zooms.push({ tasks: seen.tasks, s: seconds(since) });
    assert.equal(seen.tasks, await count(seen.from, seen.to));
  }
  assert.ok(seen.tasks > 0);
  await picture("many-single");

  // Every task is in the answer for the whole time, once.
  assert.equal(await count(0, Date.now()), TASKS);
  console.log(JSON.stringify(result));
} catch (error) {
  process.exitCode = 1;
  console.error(error);
  for (const child of children) console.error(`--- ${child.spawnargs.slice(1, 4).join(" ")}\n${child.said.slice(-2000)}`);
} finally {
  await browser.close();
  for (const child of children) child.kill("SIGKILL");
  rmSync(scratch, { recursive: true, force: true });
}
process.exit();
