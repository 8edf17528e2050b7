// The dashboard in a real browser, on a real server with real agents.
//
//   node test/dashboard.mjs PROGRAM [DIRECTORY FOR PICTURES]
//
// Every figure is held against the API. Waits are for conditions, never for times.
import { spawn, execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import assert from "node:assert/strict";
import { chromium } from "playwright-core";

const [program, pictures] = process.argv.slice(2);
const PATIENCE = 90_000;
const HOSTILE = `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>`;
const scratch = mkdtempSync(join(tmpdir(), "loxley-dashboard-"));
const directory = join(scratch, "server");
const environment = { ...process.env, LOXLEY_DIR: directory, NO_COLOR: "1" };
const children = new Set();
const began = Date.now();

function start(...words) {
  const child = spawn(program, words, { env: environment, stdio: ["ignore", "pipe", "pipe"] });
  children.add(child);
  child.said = "";
  child.stdout.on("data", (data) => (child.said += data));
  child.stderr.on("data", (data) => (child.said += data));
  child.ended = new Promise((resolve) =>
    child.on("exit", () => {
      children.delete(child);
      resolve();
    }),
  );
  return child;
}

const loxley = (...words) => execFileSync(program, words, { env: environment, encoding: "utf8", timeout: PATIENCE });
const json = (...words) => JSON.parse(loxley(...words, "--json"));
const submit = (...words) => Number(/\d+/.exec(loxley("submit", "--json", ...words).match(/"id":\d+/)[0])[0]);

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
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

let step = "";
function now(what) {
  step = what;
  console.log(`${((Date.now() - began) / 1000).toFixed(1).padStart(6)} s  ${what}`);
}

async function serve(listen) {
  const server = start("server", "start", "--listen", listen);
  await until("the server answers", () => {
    assert.equal(server.exitCode, null, server.said);
    return existsSync(join(directory, "access.json")) && json("server", "info").pid === server.pid;
  });
  return server;
}

async function link(...words) {
  const door = start("dashboard", "--no-open", "--json", ...words);
  const url = await until("a link", () => /"url":"([^"]+)"/.exec(door.said)?.[1]);
  return { door, url, origin: new URL(url).origin };
}

/** A browser of its own, which reports what it asks for and what goes wrong in it. */
async function browse(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  const asked = [];
  const wrong = [];
  page.on("request", (request) => asked.push(request.url()));
  page.on("pageerror", (error) => wrong.push(String(error)));
  page.on("console", (message) => {
    if (message.type() === "error" && !/Failed to load resource|net::ERR/.test(message.text())) wrong.push(message.text());
  });
  return { context, page, asked, wrong };
}

/** What the API says, asked by the page itself with its own session. */
function ask(page, path, method = "GET", said = undefined) {
  return page.evaluate(
    async ([path, method, said]) => {
      const headers = { Authorization: `Bearer ${sessionStorage.getItem("loxley-session")}`, ...(said && { "Content-Type": "application/json" }) };
      const response = await fetch(path, { method, headers, body: said });
      return { status: response.status, body: await response.json().catch(() => null) };
    },
    [path, method, said === undefined ? undefined : JSON.stringify(said)],
  );
}

const figureOf = (page, name) => page.locator(`[data-figure="${name}"] dd`).first().textContent();
const picture = async (page, name) => {
  if (pictures) await page.screenshot({ path: join(pictures, `${name}.png`) });
};

async function everythingHasAName(page) {
  const nameless = await page.evaluate(() =>
    [...document.querySelectorAll("button, a, input, select, textarea, canvas, [role=meter], [role=img]")]
      .filter((one) => one.checkVisibility())
      .filter((one) => {
        const label = one.id === "" ? null : document.querySelector(`label[for="${one.id}"]`);
        return !(one.getAttribute("aria-label") || one.textContent.trim() || label);
      })
      .map((one) => one.outerHTML.slice(0, 120)),
  );
  assert.deepEqual(nameless, [], "things without a name for those who hear the page");
}

async function main() {
  const browser = await chromium.launch({
    executablePath: "/usr/bin/chromium",
    headless: true,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
  try {
    now("a server, three agents, and work for them");
    let server = await serve("127.0.0.1:0");
    const listen = new URL(json("server", "info").url).host;
    const agents = [
      start("agent", "start", "--name", "quick-1", "--slots", "4", "--skills", "python"),
      start("agent", "start", "--name", "quick-2", "--slots", "2"),
      start("agent", "start", "--name", "third", "--slots", "1", "--zone", "rack1"),
    ];
    await until("the agents are there", () => {
      const list = loxley("agent", "list", "--json").trim().split("\n").map((line) => JSON.parse(line));
      return list.length === 3 && list.every((agent) => agent.state === "alive");
    });
    const quick = submit("--wait", "--name", "many quick ones", "--array", "1-300", "--", "true");
    const chainFile = join(scratch, "chain.yaml");
    writeFileSync(
      chainFile,
      `name: build and ship
tasks:
  - {name: fetch, command: sleep 0.2}
  - {name: compile, command: sleep 0.8, after: [fetch]}
  - {name: lint, command: "true", after: [fetch]}
  - {name: ship, command: exit 3, after: [compile, lint]}
`,
    );
    let chain;
    try {
      chain = submit("--wait", chainFile);
    } catch (error) {
      chain = Number(/"id":(\d+)/.exec(error.stdout)[1]);
    }
    const hostile = submit("--name", HOSTILE, "--", "sh", "-c", `echo '${HOSTILE}'; echo first; while [ ! -e ${scratch}/go ]; do sleep 0.1; done; echo second; sleep 600`);
    const long = submit("--name", "long ones", "--array", "1-4", "--", "sleep", "600");
    const held = submit("--name", "nobody can", "--skills", "gpu", "--", "true");
    await until("five tasks run", () => json("server", "info").fleet.tasks.running === 5);

    now("the link signs in, once, and everything is our own");
    const one = await link();
    const { context, page, asked, wrong } = await browse(browser);
    const response = await page.goto(one.url);
    const policy = response.headers()["content-security-policy"];
    assert.match(policy, /default-src 'none'/);
    assert.doesNotMatch(policy, /unsafe/);
    await page.locator(".agent").first().waitFor();
    assert.equal(new URL(page.url()).hash, "", "the ticket is out of the address");
    const again = await browse(browser);
    await again.page.goto(one.url);
    await again.page.locator("form.signin").waitFor();
    assert.equal((await ask(again.page, "/v1/server")).status, 401);
    await again.context.close();

    now("fleet: what it shows is what the API says");
    await page.locator(".zone", { hasText: /^zone rack1: 1 agent, \d of 1 slots busy/ }).waitFor();
    await until("the figures agree", async () => {
      const server = (await ask(page, "/v1/server")).body;
      const list = (await ask(page, "/v1/agents")).body;
      const number = async (name) => Number((await figureOf(page, name)).replaceAll(",", ""));
      assert.equal(await page.locator(".agent").count(), list.length);
      assert.equal(await number("agents"), 3);
      assert.equal(await number("slots"), 7);
      const started = list.reduce((sum, agent) => sum + agent.started, 0);
      assert.equal(await number("running"), started);
      assert.equal(await number("in hand"), server.fleet.tasks.running - started);
      assert.equal(await number("queued"), server.fleet.tasks.queued);
      assert.equal(await number("held"), 1);
      assert.equal(await number("succeeded"), server.fleet.tasks.succeeded);
      assert.equal(await number("moved"), server.fleet.tasks_migrated);
      for (const agent of list) {
        const meter = page.locator(`[role=meter][aria-label^="${agent.name}:"]`);
        assert.equal(Number(await meter.getAttribute("aria-valuenow")), agent.started);
        assert.equal(Number(await meter.getAttribute("aria-valuemax")), agent.slots);
      }
      return true;
    });
    const health = (await ask(page, "/v1/health")).body;
    await until("health is shown", async () => (await page.locator(".problem").count()) === health.problems.length);
    await everythingHasAName(page);
    await picture(page, "fleet");

    now("jobs: listed, searched, opened");
    await page.keyboard.press("2");
    await page.locator("tbody tr").nth(4).waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("build and");
    await until("one is found", async () => (await page.locator("tbody tr").count()) === 1);
    await everythingHasAName(page);
    await page.locator("#search").fill("");
    await until("all are back", async () => (await page.locator("tbody tr").count()) === 5);
    await picture(page, "jobs");
    await page.goto(`${one.origin}/#job/${quick}`);
    const figures = (await ask(page, `/v1/jobs/${quick}/figures`)).body;
    for (const figure of figures.balance) {
      const shown = await until(figure.name, () => figureOf(page, figure.name));
      const value = figure.value ?? null;
      const expected = value === null ? "–" : figure.is_share ? `${(value * 100).toFixed(1)} %` : value.toFixed(2);
      assert.equal(shown, expected, figure.name);
    }

    now("a job's graph, its critical path, and what failed");
    await page.goto(`${one.origin}/#job/${chain}`);
    await page.locator(".graph a").nth(3).waitFor();
    const critical = await page.locator('.graph a[aria-label*="on the critical path"]').evaluateAll((all) => all.map((one) => one.getAttribute("aria-label").split(":")[0]));
    assert.deepEqual(critical, ["fetch", "compile", "ship"]);
    await everythingHasAName(page);
    await picture(page, "job");
    await page.locator("tbody tr", { hasText: "failed" }).locator("a").first().click();
    await page.locator('[data-fact="exit code"] dd', { hasText: "3" }).waitFor();
    await page.locator(".explain li").first().waitFor();
    const failed = Number(new URL(page.url()).hash.split("/")[1]);
    // The remedy is a button.
    await page.locator(".explain").getByRole("button", { name: `Retry task ${failed}` }).waitFor();
    const before = (await ask(page, `/v1/tasks/${failed}`)).body;
    await page.getByRole("button", { name: "Retry", exact: true }).click();
    await until("it was tried again", async () => {
      const task = (await ask(page, `/v1/tasks/${failed}`)).body;
      return task.state === "failed" && task.ended_unix_ms > before.ended_unix_ms;
    });

    now("hostile names and output stay text, and output comes as it is printed");
    const task = (await ask(page, `/v1/jobs/${hostile}`)).body.first_task;
    await page.goto(`${one.origin}/#task/${task}`);
    await page.locator("pre.output", { hasText: "first" }).first().waitFor();
    assert.match(await page.locator("pre.output").first().textContent(), /<script>/);
    writeFileSync(join(scratch, "go"), "");
    await page.locator("pre.output", { hasText: "second" }).first().waitFor();
    await picture(page, "task");
    await page.goto(`${one.origin}/#job/${hostile}`);
    await page.locator("h1", { hasText: "<script>" }).waitFor();
    assert.equal(await page.evaluate(() => window.hacked), undefined);

    now("why a task does not run, and what would help");
    const heldTask = (await ask(page, `/v1/jobs/${held}`)).body.first_task;
    await page.goto(`${one.origin}/#task/${heldTask}`);
    await page.locator(".explain .remedies li").first().waitFor();
    const explained = (await ask(page, `/v1/tasks/${heldTask}/explain`)).body;
    const shown = await page.locator(".explain").textContent();
    // Names stand between backticks, and are set apart on the page.
    for (const obstacle of explained.obstacles) assert.ok(shown.includes(obstacle.replaceAll("`", "")), obstacle);
    await page.getByRole("button", { name: "Cancel", exact: true }).click();
    await page.getByRole("button", { name: "Cancel it" }).click();
    await page.locator(".state.cancelled").first().waitFor();

    now("timeline: all of it, down to a millisecond");
    await page.keyboard.press("3");
    const note = page.locator("#timeline-note");
    await until("tasks are in sight", async () => Number(await note.getAttribute("data-tasks")) > 0);
    await picture(page, "timeline");
    await until("what the API counts", async () => {
      await page.getByRole("button", { name: "All there is" }).click();
      const shown = Number(await note.getAttribute("data-tasks"));
      const answer = (await ask(page, `/v1/timeline?from_unix_ms=0&to_unix_ms=${Date.now()}`)).body;
      // 300 quick ones, four of the chain, and five that run.
      assert.equal(answer.tasks, 309);
      assert.equal(answer.next ?? null, null);
      // The one that failed before it was tried again is there, too.
      assert.equal(answer.attempts_pending, false);
      assert.equal(answer.earlier_attempts, 1);
      const earlier = answer.agents.flatMap((agent) => agent.spans).filter((span) => span.kind !== undefined);
      assert.deepEqual(earlier.map((span) => [span.task, span.kind]), [[failed, "retried"]]);
      assert.equal(Number(await note.getAttribute("data-earlier")), answer.earlier_attempts);
      return shown === answer.tasks;
    });
    await picture(page, "timeline-all");
    await page.locator("canvas").focus();
    for (let times = 0; times < 40; times += 1) await page.keyboard.press("+");
    await page.locator(".where", { hasText: /\(1\.0 ms\)/ }).waitFor();
    await until("what still runs is there", async () => Number(await note.getAttribute("data-tasks")) <= 309);
    await everythingHasAName(page);

    now("balance: the figures of the API, and lines");
    await page.keyboard.press("4");
    await page.locator(".chart canvas").nth(9).waitFor();
    await until("the figures agree", async () => {
      const figures = (await ask(page, "/v1/figures")).body;
      for (const figure of figures.balance) {
        const value = figure.value ?? null;
        const expected = value === null ? "–" : figure.is_share ? `${(value * 100).toFixed(1)} %` : value.toFixed(2);
        assert.equal(await figureOf(page, figure.name), expected);
      }
      return true;
    });
    await until("waits, shares, deadlines and machines agree", async () => {
      const figures = (await ask(page, "/v1/figures")).body;
      const rows = (id) => page.locator(`#${id} tr`).evaluateAll((all) => all.map((row) => [...row.children].map((cell) => cell.textContent)));
      const number = (text) => Number(text.replaceAll(",", ""));
      assert.deepEqual((await rows("priorities")).map((row) => [number(row[0]), number(row[1])]), figures.waits.map((one) => [one.priority, one.tasks]));
      assert.deepEqual(
        (await rows("users")).map((row) => [row[0], number(row[1]), row[4]]),
        figures.users.map((one) => [one.user, one.tasks, `${(one.share * 100).toFixed(1)} %`]),
      );
      assert.match(await page.locator("#deadlines").textContent(), figures.deadlines_met + figures.deadlines_missed === 0 ? /No task with a deadline/ : /met it/);
      const agents = (await ask(page, "/v1/agents")).body;
      const machines = await rows("hardware");
      assert.deepEqual(machines.map((row) => row[0]), agents.map((agent) => agent.name));
      // What no machine says is a dash, and nothing else is.
      agents.forEach((agent, place) => assert.equal(machines[place][6] === "–", agent.vitals?.context_switches_per_sec === undefined));
      agents.forEach((agent, place) => assert.equal(machines[place][8] === "–", agent.vitals?.power_watts === undefined));
      return true;
    });
    await until("samples are there", async () => (await ask(page, "/v1/figures/history")).body.unix_ms.length >= 2);
    await picture(page, "balance");

    now("what if beside what was: the figures of the API, and what makes no sense is said");
    await page.keyboard.press("5");
    await page.getByLabel("Without").fill("quick-1");
    await page.getByRole("button", { name: "Run it again" }).click();
    await page.locator(".verdicts li").first().waitFor();
    const report = (await ask(page, "/v1/what-if", "POST", { without: ["quick-1"] })).body;
    for (const figure of report.figures) {
      const cells = await page.locator(`tr[data-figure="${figure.name}"] td`).allTextContents();
      assert.deepEqual([cells[0], cells[1], cells[3], cells[4]], figure.shown, figure.name);
    }
    assert.deepEqual(await page.locator(".verdicts li").allTextContents(), report.verdicts);
    assert.equal(report.was.length, 3);
    assert.equal(report.would.length, 2);
    assert.equal(await page.locator(".timeline.still canvas").count(), 2);
    await everythingHasAName(page);
    await picture(page, "what-if");
    await page.getByLabel("Other settings").fill("stratgy=pull");
    await page.getByRole("button", { name: "Run it again" }).click();
    await page.locator(".wrong", { hasText: "stratgy" }).waitFor();

    now("a screen on the wall may look, and nothing else");
    const wall = await link("--read-only");
    const reader = await browse(browser, { viewport: { width: 390, height: 800 }, colorScheme: "dark" });
    await reader.page.goto(wall.url);
    await reader.page.locator(".agent").first().waitFor();
    assert.equal(await reader.page.getByRole("button", { name: /Drain|Stop/ }).count(), 0);
    assert.equal((await ask(reader.page, `/v1/jobs/${long}`, "DELETE")).status, 403);
    assert.equal((await ask(reader.page, "/v1/session/link", "POST")).status >= 400, true);
    assert.equal((await ask(reader.page, "/v1/what-if", "POST", {})).status, 403);
    assert.equal((await ask(reader.page, "/v1/journal/groups")).status, 403);
    await reader.page.goto(`${wall.origin}/#task/${failed}`);
    await reader.page.locator(".explain .remedies li").first().waitFor();
    assert.equal(await reader.page.getByRole("button", { name: /Retry|Cancel/ }).count(), 0);
    await reader.page.goto(`${wall.origin}/#fleet`);
    await reader.page.locator(".agent").first().waitFor();
    await picture(reader.page, "fleet-phone-dark");
    for (const view of ["fleet", "jobs", `job/${chain}`, "timeline", "balance", "whatif"]) {
      await reader.page.goto(`${wall.origin}/#${view}`);
      await reader.page.locator("h1").waitFor();
      const [wide, room] = await reader.page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(wide <= room, `${view} is ${wide} wide on a phone of ${room}`);
    }

    now("somebody who may submit sees what is theirs, and a request without the secret does nothing");
    const ada = JSON.parse(loxley("server", "token", "create", "ada", "--role", "submit")).token;
    const user = await browse(browser);
    await user.page.goto(`${one.origin}/`);
    await user.page.locator("#token").fill(ada);
    await user.page.getByRole("button", { name: "Sign in" }).click();
    await user.page.locator(".agent").first().waitFor();
    assert.equal(await user.page.getByRole("button", { name: /Drain|Stop/ }).count(), 0);
    assert.deepEqual((await ask(user.page, "/v1/jobs")).body.items, []);
    assert.equal((await ask(user.page, `/v1/jobs/${long}`, "DELETE")).status, 403);
    assert.deepEqual((await ask(user.page, "/v1/figures")).body.users ?? [], []);
    // What another site could have the browser send: everything but the secret.
    const forged = await user.page.evaluate(async (path) => (await fetch(path, { method: "DELETE", credentials: "include" })).status, `/v1/jobs/${long}`);
    assert.equal(forged, 401);
    assert.deepEqual(user.wrong, []);
    await user.context.close();

    now("a run has a dashboard, too, and it stays when asked to");
    const run = start("run", "--dashboard=stay", "-j2", "echo {}", ":::", "a", HOSTILE, "c");
    await until("it is over", () => /stays until Ctrl-C/.test(run.said));
    const visitor = await browse(browser);
    const runUrl = /dashboard: (\S+)/.exec(run.said)[1];
    await visitor.page.goto(runUrl);
    await visitor.page.locator(".agent").first().waitFor();
    await visitor.page.keyboard.press("3");
    await until("what ran is there", async () => {
      await visitor.page.getByRole("button", { name: "All there is" }).click();
      return Number(await visitor.page.locator("#timeline-note").getAttribute("data-tasks")) === 3;
    });
    await visitor.page.goto(`${new URL(runUrl).origin}/#task/2`);
    await visitor.page.locator("pre.output", { hasText: "<script>" }).first().waitFor();
    assert.equal(await visitor.page.evaluate(() => window.hacked), undefined);
    assert.deepEqual(visitor.wrong, []);
    await visitor.context.close();
    run.kill("SIGINT");
    await run.ended;

    now("a lost connection heals by itself");
    await page.goto(`${one.origin}/#fleet`);
    await page.locator(".agent").first().waitFor();
    server.kill("SIGTERM");
    await server.ended;
    await page.locator("#connection", { hasText: "cannot be reached" }).waitFor();
    server = await serve(listen);
    await until("it is back", async () => (await page.locator("#connection").textContent()) === "");
    await until("with its agents", async () => Number(await figureOf(page, "agents")) === 3);

    now("work is cancelled where the role allows it");
    await page.goto(`${one.origin}/#job/${long}`);
    await page.getByRole("button", { name: "Cancel what is left" }).click();
    await page.getByRole("button", { name: "Cancel it" }).click();
    await until("it is over", async () => (await ask(page, `/v1/jobs/${long}`)).body.state === "cancelled");

    now("out, and in again with a token");
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.locator("form.signin").waitFor();
    await picture(page, "signin");
    await page.locator("#token").fill("nonsense");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.locator(".wrong", { hasText: "Nobody is known" }).waitFor();
    const token = JSON.parse(loxley("server", "token", "create", "screen", "--role", "read")).token;
    await page.locator("#token").fill(token);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.locator("nav").waitFor();
    const stored = await page.evaluate(() => JSON.stringify([{ ...sessionStorage }, { ...localStorage }, document.cookie]));
    assert.ok(!stored.includes(token), "the token itself is not kept");
    loxley("server", "token", "revoke", "screen");
    await page.locator("form.signin").waitFor();

    now("nothing was asked of anybody else, and nothing went wrong");
    for (const url of [...asked, ...reader.asked]) {
      assert.ok([one.origin, wall.origin].includes(new URL(url).origin) || url.startsWith("data:"), url);
    }
    assert.deepEqual([...wrong, ...reader.wrong], []);
    await reader.context.close();
    await context.close();
    for (const child of [...agents, one.door, wall.door, server]) child.kill("SIGTERM");
    await Promise.all([...agents, server].map((child) => child.ended));
    const kept = readFileSync(join(directory, "sessions.json"), "utf8");
    assert.ok(!kept.includes(token));
    now("done");
  } finally {
    await browser.close();
  }
}

try {
  await main();
} catch (error) {
  console.error(`while: ${step}`);
  console.error(error);
  for (const child of children) console.error(`--- ${child.spawnargs.slice(1, 4).join(" ")}\n${child.said.slice(-2000)}`);
  process.exitCode = 1;
} finally {
  for (const child of children) child.kill("SIGKILL");
  rmSync(scratch, { recursive: true, force: true });
}
