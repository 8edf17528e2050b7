// How fast the dashboard is. Prints one JSON object.
//
//   node test/bench.mjs PROGRAM [SECONDS PER MEASUREMENT]
//
// - first_paint_ms: from the link to the first paint and to the first agent on the page, on loopback; median of five.
// - main_thread_ms: the work of the page's main thread for each frame in which it did anything, in processor time of that
//   thread, while it shows AGENTS agents with AGENTS × SLOTS running tasks, each of which takes TASK_MS on average.
// - server_cpu_per_viewer: the processor time of the server with VIEWERS pages open less without any, for each of them, as
//   a share of one core.
//
// The server is real. The agents are many in one process (agents.mjs): they connect as agents do, and run nothing.
// Times of the processor do not depend much on what else the machine does; first_paint_ms is only worth something on a
// quiet one: the load before the first measurement is in the answer.
import { spawn, execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, existsSync, readFileSync } from "node:fs";
import { cpus, loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { agents } from "./agents.mjs";

const [program, seconds = "20"] = process.argv.slice(2);
const SECONDS = Number(seconds);
const [AGENTS, SLOTS, VIEWERS, TASK_MS] = [200, 50, 4, 20_000];
const scratch = mkdtempSync(join(tmpdir(), "loxley-bench-web-"));
const directory = join(scratch, "server");
const environment = { ...process.env, LOXLEY_DIR: directory, NO_COLOR: "1" };
const children = new Set();
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function start(...words) {
  const child = spawn(program, words, { env: environment, stdio: ["ignore", "pipe", "pipe"] });
  children.add(child);
  child.said = "";
  child.stdout.on("data", (data) => (child.said += data));
  child.stderr.on("data", (data) => (child.said += data));
  return child;
}

const loxley = (...words) => execFileSync(program, words, { env: environment, encoding: "utf8" });

async function until(what, look) {
  const limit = Date.now() + 90_000;
  for (;;) {
    try {
      const found = await look();
      if (found) return found;
    } catch {}
    if (Date.now() > limit) throw new Error(`never came: ${what}`);
    await sleep(50);
  }
}

async function link() {
  const door = start("dashboard", "--no-open", "--json", "--read-only");
  return until("a link", () => /"url":"([^"]+)"/.exec(door.said)?.[1]);
}

const quantile = (values, share) => {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length === 0 ? null : Number(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))].toFixed(2));
};

/** Processor time of a process, in seconds. */
function cpuSeconds(process) {
  const fields = readFileSync(`/proc/${process.pid}/stat`, "utf8").split(") ")[1].split(" ");
  const ticks = Number(execFileSync("getconf", ["CLK_TCK"], { encoding: "utf8" }));
  return (Number(fields[11]) + Number(fields[12])) / ticks;
}

async function firstPaint(browser) {
  const paints = [];
  const agents = [];
  for (let times = 0; times < 5; times += 1) {
    const url = await link();
    const context = await browser.newContext();
    const page = await context.newPage();
    const begun = Date.now();
    await page.goto(url);
    await page.locator(".agent").first().waitFor();
    agents.push(Date.now() - begun);
    paints.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? Number.NaN));
    await context.close();
  }
  return { first_contentful_paint: quantile(paints, 0.5), first_agent: quantile(agents, 0.5) };
}

/** The processor time that tasks of the main thread took in each frame (of 1/60 s) in which there were any. */
async function mainThread(browser, view) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  await page.goto(await link());
  await page.locator("nav").waitFor();
  await page.goto(`${new URL(page.url()).origin}/#${view}`);
  await page.locator("h1").waitFor();
  await sleep(3000);
  await browser.startTracing(page, { categories: ["toplevel", "disabled-by-default-devtools.timeline", "__metadata"] });
  await sleep(SECONDS * 1000);
  const trace = JSON.parse((await browser.stopTracing()).toString());
  await context.close();
  const main = trace.traceEvents.find((event) => event.name === "thread_name" && event.args?.name === "CrRendererMain");
  const frames = new Map();
  for (const event of trace.traceEvents) {
    if (event.ph !== "X" || event.name !== "RunTask" || event.pid !== main?.pid || event.tid !== main?.tid) continue;
    const frame = Math.floor(event.ts / (1e6 / 60));
    frames.set(frame, (frames.get(frame) ?? 0) + (event.tdur ?? event.dur) / 1000);
  }
  const busy = [...frames.values()];
  return { frames: busy.length, p50: quantile(busy, 0.5), p95: quantile(busy, 0.95), max: quantile(busy, 1) };
}

/** Without viewers and with them in turns: what the server does anyway is not the same all the time. */
async function serverCpu(browser, server) {
  const measure = async () => {
    const before = cpuSeconds(server);
    await sleep(SECONDS * 1000);
    return (cpuSeconds(server) - before) / SECONDS;
  };
  let [alone, watched] = [0, 0];
  const ROUNDS = 3;
  for (let round = 0; round < ROUNDS; round += 1) {
    alone += (await measure()) / ROUNDS;
    const context = await browser.newContext();
    for (let viewer = 0; viewer < VIEWERS; viewer += 1) {
      const page = await context.newPage();
      await page.goto(await link());
      await page.locator(".agent").first().waitFor();
    }
    await sleep(2000);
    watched += (await measure()) / ROUNDS;
    await context.close();
  }
  return { alone: Number(alone.toFixed(4)), watched: Number(watched.toFixed(4)), viewers: VIEWERS, share_of_a_core: Number(((watched - alone) / VIEWERS).toFixed(4)) };
}

const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  headless: true,
  // All pages are in sight: one that is not asks nothing.
  args: ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-backgrounding-occluded-windows", "--disable-renderer-backgrounding"],
});
try {
  const load = loadavg()[0];
  const server = start("server", "start", "--listen", "127.0.0.1:0");
  await until("the server", () => existsSync(join(directory, "access.json")) && loxley("server", "info"));
  // Somewhat different lengths, so that something begins and ends all the time.
  const fleet = agents(join(directory, "access.json"), AGENTS, (place) => ({
    name: `agent-${String(place + 1).padStart(3, "0")}`,
    slots: SLOTS,
    zone: `zone-${place % 4}`,
    work: () => TASK_MS * (0.5 + Math.random()),
  }));
  loxley("submit", "--array", "1-1000000", "--", "true");
  await until("all run", () => JSON.parse(loxley("server", "info", "--json")).fleet.tasks.running >= AGENTS * SLOTS);
  const result = {
    cores: cpus().length,
    load_before: Number(load.toFixed(2)),
    is_quiet: load < cpus().length * 0.25,
    first_paint_ms: await firstPaint(browser),
    main_thread_ms: {
      agents: AGENTS,
      tasks: AGENTS * SLOTS,
      fleet: await mainThread(browser, "fleet"),
      timeline: await mainThread(browser, "timeline"),
      jobs: await mainThread(browser, "jobs"),
      balance: await mainThread(browser, "balance"),
    },
    server_cpu_per_viewer: await serverCpu(browser, server),
  };
  console.log(JSON.stringify(result, null, 2));
  fleet.forEach((agent) => agent.stream.close());
} finally {
  await browser.close();
  for (const child of children) child.kill("SIGTERM");
  await sleep(1000);
  for (const child of children) child.kill("SIGKILL");
  rmSync(scratch, { recursive: true, force: true });
}
process.exit();
