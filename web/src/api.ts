// The one way to the server: who is signed in, and how to ask.

export interface Session {
  name: string;
  role: "admin" | "submit" | "agent" | "read";
  user: string;
  expires_unix_ms?: number;
}
export interface TaskCounts {
  total: number;
  pending: number;
  waiting: number;
  held: number;
  queued: number;
  running: number;
  /** How many of those that run or are about to have begun. */
  started: number;
  succeeded: number;
  failed: number;
  cancelled: number;
}
export interface Agent {
  id: number;
  name: string;
  incarnation: number;
  state: string;
  capabilities: string[];
  suspended: string[];
  earned?: string[];
  slots: number;
  zone?: string;
  speed: number;
  queue_length: number;
  running: number[];
  started: number;
  total_completed: number;
  total_failed: number;
  success_rate: number;
  throttle: number;
  round_trip_sec?: number;
  vitals?: Record<string, number>;
  notes?: string[];
  heard_unix_ms?: number;
}
export interface Fleet {
  total_steals: number;
  successful_steals: number;
  success_rate: number;
  tasks_migrated: number;
  avg_task_wait_time: number;
  agent_count: number;
  total_queued: number;
  deadline_misses: number;
  retries: number;
  speculations: number;
  speculations_won: number;
  stale_answers: number;
  tasks: TaskCounts;
}
export interface Server {
  version: string;
  url: string;
  started_unix_ms: number;
  draining: boolean;
  jobs_open: number;
  journal_position: number;
  fleet: Fleet;
}
export interface Job {
  id: number;
  name?: string;
  user: string;
  state: string;
  tasks: TaskCounts;
  first_task: number;
  last_task: number;
  open?: boolean;
  after?: number[];
  created_unix_ms: number;
  ended_unix_ms?: number;
}
export interface Task {
  id: number;
  job: number;
  name?: string;
  entry?: string;
  does: string[];
  state: string;
  priority: number;
  agent?: string;
  attempts: number;
  moves: number;
  created_unix_ms: number;
  started_unix_ms?: number;
  ended_unix_ms?: number;
  deadline_unix_ms?: number;
  last?: {
    failure?: string;
    message?: string;
    exit_code?: number;
    signal?: number;
    usage?: { duration_sec: number; user_sec: number; system_sec: number; memory_max_bytes: number };
  };
}
export interface Page<T> {
  items: T[];
  next?: number;
}
export interface Figure {
  name: string;
  value?: number;
  target: number;
  is_above: boolean;
  is_share: boolean;
  verdict: string;
}
export interface Figures {
  balance: Figure[];
  window_sec: number;
  slots: number;
  idle_sec: number;
  tasks_ended: number;
  tasks_per_sec?: number;
  task_mean_sec?: number;
  assign_p50_sec?: number;
  assign_p99_sec?: number;
  tasks_stolen?: number;
  steal_rate?: number;
  steal_mean_sec?: number;
  waits?: { priority: number; tasks: number; p50_sec?: number; p99_sec?: number }[];
  users?: { user: string; tasks: number; wait_mean_sec?: number; busy_sec: number; share?: number }[];
  deadlines_met: number;
  deadlines_missed: number;
}
export interface Problem {
  severity: string;
  kind: string;
  message: string;
  remedies: string[];
}
export interface Health {
  ok: boolean;
  problems: Problem[];
}
export interface Explanation {
  task: number;
  state: string;
  place: string;
  obstacles: string[];
  remedies: string[];
}
export interface Output {
  stdout: string;
  stdout_dropped_bytes: number;
  stderr: string;
  stderr_dropped_bytes: number;
  directory?: string;
}
export interface GraphNode {
  name: string;
  first_task: number;
  is_array: boolean;
  after: number[];
  tasks: TaskCounts;
  longest_sec?: number;
  expected_sec?: number;
  is_critical: boolean;
}
export interface Graph {
  job: number;
  nodes: GraphNode[];
  tasks_counted: number;
  tasks_total: number;
  critical_sec: number;
}
export interface Mark {
  sequence: number;
  unix_ms: number;
  event: string;
  task?: number;
  job?: number;
  from?: number;
  to?: number;
  reason?: string;
  failure?: string;
  agent?: number;
  name?: string;
  state?: string;
}
export interface Instance {
  name: string;
  url: string;
  version: string;
  state: string;
  silent_sec: number;
}
export interface Cluster {
  instances: Instance[];
  shards: { shard: number; holder?: string }[];
}
export interface Marks {
  items: Mark[];
  next?: number;
  since_unix_ms: number;
  missed: number;
}

/** A refusal, in the words of the server. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly help: string | undefined,
  ) {
    super(message);
  }
}

const KEY = "loxley-session";
/** Told when the server does not know us any more. */
export let onSignedOut: () => void = () => {};
/** Told whether the last request got through. */
export let onReached: (reached: boolean) => void = () => {};

export function listen(signedOut: () => void, reached: (reached: boolean) => void): void {
  onSignedOut = signedOut;
  onReached = reached;
}

// The secret lives in the memory of this tab: no cookie, so no other site can have it sent along.
export function secret(): string | null {
  return sessionStorage.getItem(KEY);
}

export function forget(): void {
  sessionStorage.removeItem(KEY);
}

/** Signs in with a token or the ticket of a link. */
export async function signIn(key: string): Promise<Session> {
  const answer = await call<Session & { secret: string }>("POST", "/v1/session", undefined, key);
  sessionStorage.setItem(KEY, answer.secret);
  return answer;
}

export async function signOut(): Promise<void> {
  await call("DELETE", "/v1/session").catch(() => {});
  forget();
}

export function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return call<T>("GET", path, undefined, undefined, signal);
}

export async function call<T>(
  method: string,
  path: string,
  body?: unknown,
  key: string | null = secret(),
  signal?: AbortSignal,
  limitMs = 20_000,
): Promise<T> {
  const headers: Record<string, string> = {};
  if (key !== null) headers["Authorization"] = `Bearer ${key}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const limit = AbortSignal.timeout(limitMs);
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? null : JSON.stringify(body),
      signal: signal === undefined ? limit : AbortSignal.any([signal, limit]),
      credentials: "omit",
      cache: "no-store",
      redirect: "error",
    });
  } catch (error) {
    if (signal?.aborted !== true) onReached(false);
    throw error;
  }
  onReached(true);
  if (response.ok) return response.status === 204 ? (undefined as T) : ((await response.json()) as T);
  const refusal = (await response.json().catch(() => null)) as {
    error?: { message?: string; help?: string };
  } | null;
  const message = refusal?.error?.message ?? `the server answered ${response.status}`;
  if (response.status === 401 && key === secret() && key !== null) {
    forget();
    onSignedOut();
  }
  throw new Refusal(response.status, message, refusal?.error?.help);
}

/**
 * Does something again and again, until it is stopped: pauses while nobody looks at the tab, waits longer while the
 * server cannot be reached, and goes on by itself when it can.
 */
export function repeat(everyMs: number, work: (signal: AbortSignal) => Promise<void>): () => void {
  const stop = new AbortController();
  let failures = 0;
  const wait = (ms: number) =>
    new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms);
      stop.signal.addEventListener("abort", () => {
        clearTimeout(timer);
        resolve();
      });
    });
  const visible = () =>
    new Promise<void>((resolve) => {
      if (!document.hidden) return resolve();
      document.addEventListener("visibilitychange", () => resolve(), { once: true });
    });
  void (async () => {
    while (!stop.signal.aborted) {
      await visible();
      try {
        await work(stop.signal);
        failures = 0;
      } catch (error) {
        if (stop.signal.aborted) return;
        if (!(error instanceof Refusal)) failures = Math.min(failures + 1, 4);
        else if (error.status === 401) return;
        else console.warn(error.message);
      }
      // A little chance, so that many viewers do not ask in step.
      await wait(everyMs * 2 ** failures * (0.9 + Math.random() * 0.2));
    }
  })();
  return () => stop.abort();
}
