//! Kills and stops of a server and its agents while tasks run that keep books of their own. Whatever happens, nothing is
//! lost, nothing counts twice, and two attempts of one task never run at the same time.
//!
//! A minute here; `cargo xtask test --long chaos` takes an hour. `LOXLEY_CHAOS_SECONDS` says how long,
//! `LOXLEY_CHAOS_SEED` what happens.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the message")]

#[expect(dead_code, reason = "no test needs all of it")]
mod support;

use std::collections::BTreeMap;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use support::{Fleet, runs, signal, until};

const AGENTS: [&str; 3] = ["ada", "bob", "cid"];
const SLOTS: &str = "2";
/// Short, so that agents are lost now and then.
const LOST_AFTER: u32 = 5;
/// Tasks of one job.
const TASKS: u64 = 40;

/// Looks whether another attempt of the same task runs, here or in a session of its own; writes down what it does.
const TASK: &str = r#"
t=$LOXLEY_TASK_ID
runs() { grep -qs '^State:.[^ZX]' "/proc/$1/status"; }
for other in $(cat "pids.$t" 2>/dev/null); do
    runs "$other" && echo "task $t attempt $LOXLEY_ATTEMPT beside $other" >>overlaps
done
echo $$ >>"pids.$t"
case $t in *3) setsid sh -c 'echo $$ >>"pids.$0"; exec sleep 2' "$t" >/dev/null 2>&1 & child=$!; esac
case $t in *7) trap 'sleep 0.2; exit 1' TERM; esac
sleep "0.$((t % 7))" & wait $!
case $t in *3) kill "$child" 2>/dev/null; wait; esac
echo "$t" >>done
"#;

/// Chance that can be repeated.
struct Chance(u64);

impl Chance {
    fn below(&mut self, count: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % count
    }

    fn pause(&mut self, longest_ms: u64) {
        thread::sleep(Duration::from_millis(self.below(longest_ms)));
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn start_agent(fleet: &mut Fleet, name: &str) {
    fleet.spawn_agent(&["--name", name, "--slots", SLOTS]);
}

/// Kills the agent at this place, and starts one of the same name, as a supervisor would.
fn kill_agent(fleet: &mut Fleet, place: usize) {
    let child: &mut Child = &mut fleet.agents[place];
    child.kill().unwrap();
    child.wait().unwrap();
    start_agent(fleet, AGENTS[place]);
    let started = fleet.agents.pop().unwrap();
    fleet.agents[place] = started;
}

fn stop_for(pid: u32, span: Duration) {
    signal(pid, Signal::STOP);
    thread::sleep(span);
    signal(pid, Signal::CONT);
}

fn submit(fleet: &Fleet) {
    let array = format!("1-{TASKS}");
    fleet.ok(&["submit", "-q", "--array", &array, "--", "sh", "-c", TASK]);
}

fn disturb(fleet: &mut Fleet, chance: &mut Chance) {
    let place = chance.below(AGENTS.len() as u64) as usize;
    match chance.below(10) {
        0..5 => kill_agent(fleet, place),
        5..7 => {
            let span = Duration::from_millis(chance.below(2 * 1000 * u64::from(LOST_AFTER)));
            stop_for(fleet.agents[place].id(), span);
        }
        7 => stop_for(
            fleet.server.id(),
            Duration::from_millis(chance.below(3_000)),
        ),
        _ => {
            fleet.kill_server();
            chance.pause(1_000);
            fleet.restart_server();
        }
    }
}

#[test]
#[ignore = "takes a minute: `LOXLEY_CHAOS_SECONDS=60 cargo xtask test chaos` runs it"]
fn nothing_is_lost_and_nothing_runs_twice_at_the_same_time() {
    let seconds = number("LOXLEY_CHAOS_SECONDS").unwrap_or(60);
    let seed = number("LOXLEY_CHAOS_SEED").unwrap_or_else(|| std::process::id().into());
    println!("LOXLEY_CHAOS_SECONDS={seconds} LOXLEY_CHAOS_SEED={seed}");
    let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut fleet = Fleet::new(Some(LOST_AFTER));
    for name in AGENTS {
        fleet.agent(&["--name", name, "--slots", SLOTS]);
    }
    let begun = Instant::now();
    let (mut jobs, mut disturbances) = (0, 0);
    while begun.elapsed() < Duration::from_secs(seconds) {
        if disturbances % 4 == 0 {
            submit(&fleet);
            jobs += 1;
        }
        chance.pause(1_500);
        disturb(&mut fleet, &mut chance);
        disturbances += 1;
        assert_eq!(fleet.book("overlaps"), [] as [String; 0]);
    }
    until("everything has ended", || {
        // Without a limit of its own the list has the newest twenty.
        let all = (jobs + 1).to_string();
        let open = fleet.json(&["job", "list", "--json", "--limit", &all]);
        open.len() == jobs && open.iter().all(|job| !job["ended_unix_ms"].is_null())
    });
    check(&fleet, jobs);
    println!("{disturbances} disturbances, {jobs} jobs");
}

fn check(fleet: &Fleet, jobs: usize) {
    assert_eq!(fleet.book("overlaps"), [] as [String; 0]);
    let mut done: BTreeMap<String, u32> = BTreeMap::new();
    for line in fleet.book("done") {
        *done.entry(line).or_default() += 1;
    }
    let mut succeeded = 0;
    for job in 1..=jobs {
        let job = job.to_string();
        let tasks = fleet.json(&["task", "list", &job, "--json"]);
        assert_eq!(tasks.len() as u64, TASKS, "job {job} has all its tasks");
        for task in tasks {
            let id = task["id"].to_string();
            match task["state"].as_str().unwrap() {
                "succeeded" => {
                    succeeded += 1;
                    assert!(done.contains_key(&id), "task {id} was never done");
                }
                // One that lost five agents in a row may be what kills them.
                state => {
                    let info = &fleet.json(&["task", "info", &id, "--json"])[0];
                    let failure = info["last"]["failure"].as_str();
                    let expected = ("failed", Some("agent_lost"));
                    assert_eq!((state, failure), expected, "{info}");
                }
            }
        }
    }
    let numbers = (1..=jobs as u64 * TASKS).map(|id| fleet.book(&format!("pids.{id}")));
    let left: Vec<String> = numbers.flatten().filter(|pid| runs(pid)).collect();
    assert_eq!(left, [] as [String; 0], "all is over, and some of it runs");
    assert!(succeeded * 100 >= jobs as u64 * TASKS * 95, "most succeed");
    // Each result was taken once, or a replay would decide otherwise.
    fleet.ok(&["server", "stop"]);
    fleet.ok(&["journal", "check"]);
}
