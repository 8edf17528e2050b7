//! `loxley journal report`: who ran what when, was it balanced, and what moved, and why?

mod moves;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry::Vacant;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use loxley_api::Figures;
use loxley_balance::{BalanceReport, Sketch};
use loxley_engine::run_figures::{Counted, Kinds, RanTasks};
use loxley_journal::{Ended, History, JobQuery, TaskQuery, TaskRow};
use loxley_model::{AgentId, JobId, Span, Time};
use loxley_sim::report::{self, DrawnRun, Report};
use loxley_sim::time::human;
use loxley_sim::{Happening, Observer, Recorder, Timeline};
use serde_json::json;

use self::moves::{Move, Moves};
use super::write_json;
use crate::exit::Exit;
use crate::fleet::figures::print_more;

/// Draw who ran what when, and say whether the work was balanced, what was stolen, and why.
///
/// Tells of finished tasks only, and of the last attempt of each. What moved is found by replaying the
/// facts, as far back as they are kept.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  loxley journal report\n  loxley journal report --job 7 --output job7.html\n  loxley journal report --all --json"
)]
pub(crate) struct Args {
    /// Only this job [default: the newest one that has finished tasks]
    #[arg(long, value_name = "ID", conflicts_with = "all")]
    job: Option<u64>,
    /// Everything in the history.
    #[arg(long)]
    all: bool,
    /// Write the drawing to this HTML file.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the figures as one JSON object.
    #[arg(long)]
    json: bool,
}

/// The most tasks that are looked at; of more, the last ones count.
const TASKS_MAX: usize = 2_000_000;

pub(crate) fn run(args: &Args, directory: &Path, out: &mut dyn Write) -> Result<Exit> {
    let history = History::open(directory)?;
    let job = match (args.all, args.job) {
        (true, _) => None,
        (false, Some(job)) => Some(JobId(job)),
        (false, None) => Some(newest(&history)?),
    };
    let runs = Runs::read(&history, job, Moves::read(directory)?)?;
    if runs.tasks.is_empty() {
        bail!("no task has run to its end yet");
    }
    let title = match job {
        Some(job) => name(&history, job)?,
        None => "the whole history".to_owned(),
    };
    if args.json {
        print_json(&title, &runs, out)?;
    } else {
        writeln!(
            out,
            "{title}: {} tasks on {} agents",
            runs.tasks.len(),
            runs.agents.len()
        )?;
        writeln!(out, "took {}", human(runs.wall().0))?;
        writeln!(out, "{}", runs.balance())?;
        print_more(out, &runs.figures())?;
        moves::print(&runs.moves, &runs.agents, out)?;
    }
    if let Some(path) = &args.output {
        let page = runs.page(&title);
        std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(Exit::Done)
}

/// The newest job with a finished task.
fn newest(history: &History) -> Result<JobId> {
    let mut query = JobQuery::default();
    loop {
        let page = history.jobs(&query)?;
        for row in &page.rows {
            let tasks = TaskQuery {
                job: Some(row.job),
                limit: 1,
                ..TaskQuery::default()
            };
            if !history.tasks(&tasks)?.rows.is_empty() {
                return Ok(row.job);
            }
        }
        query.before = page.next;
        if query.before.is_none() {
            bail!("no task has run to its end yet");
        }
    }
}

fn name(history: &History, job: JobId) -> Result<String> {
    let row = history
        .job(job)?
        .with_context(|| format!("there is no {job}"))?;
    Ok(if row.name.is_empty() {
        job.to_string()
    } else {
        format!("{job} ({})", row.name)
    })
}

/// Tasks that ran, and who ran them.
struct Runs {
    tasks: Vec<Run>,
    /// Name and number of slots, in the order of lanes.
    agents: Vec<(String, u32)>,
    /// What changed hands before it ran.
    moves: Vec<Move>,
    /// All of them, summed up.
    ran: RanTasks,
    counted: Counted,
}

struct Run {
    task: u64,
    lane: u32,
    created: Time,
    started: Time,
    finished: Time,
    ended: Ended,
}

impl Runs {
    fn read(history: &History, job: Option<JobId>, moved: Moves) -> Result<Self> {
        let counted = moved.counted(job);
        let mut lanes = BTreeMap::new();
        let mut tasks = Vec::new();
        let mut ran = RanTasks::default();
        let mut kinds: BTreeMap<JobId, Option<Kinds>> = BTreeMap::new();
        let mut after = None;
        loop {
            let page = history.tasks(&TaskQuery {
                job,
                after,
                limit: 10_000,
                ..TaskQuery::default()
            })?;
            for row in &page.rows {
                if let Vacant(vacant) = kinds.entry(row.job) {
                    vacant.insert(history.job(row.job)?.map(|row| Kinds::of(&row)));
                }
                let kinds = kinds[&row.job].as_ref();
                ran.add(row, kinds.and_then(|kinds| kinds.of_task(row.task)));
                tasks.extend(run_of(row, &mut lanes));
            }
            if tasks.len() > TASKS_MAX {
                tasks.drain(..tasks.len() - TASKS_MAX);
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let moves = moved.of(tasks.iter().map(|run| run.task), &mut lanes);
        let names = super::agent_names(history)?;
        let mut agents: Vec<(String, u32)> = vec![(String::new(), 1); lanes.len()];
        for (agent, lane) in &lanes {
            let name = names.get(agent).cloned();
            let slots = counted.slots.get(agent).copied();
            agents[*lane as usize] = (
                name.unwrap_or_else(|| agent.to_string()),
                slots.unwrap_or(1).max(1),
            );
        }
        untangle(&mut tasks, &agents);
        Ok(Self {
            tasks,
            agents,
            moves,
            ran,
            counted,
        })
    }

    fn balance(&self) -> BalanceReport {
        self.ran.balance(&self.counted)
    }

    fn figures(&self) -> Figures {
        self.ran.figures(&self.counted)
    }

    fn begin(&self) -> Time {
        let begin = self
            .tasks
            .iter()
            .map(|run| run.created.min(run.started))
            .min();
        begin.unwrap_or(Time::ZERO)
    }

    fn wall(&self) -> Span {
        let end = self.tasks.iter().map(|run| run.finished).max();
        end.unwrap_or(Time::ZERO).since(self.begin())
    }

    /// What changed when, in order; at one moment ends come first, so that a slot is free again.
    fn changes(&self) -> Vec<(Time, Event)> {
        let mut changes = Vec::with_capacity(3 * self.tasks.len());
        for (index, run) in (0..).zip(&self.tasks) {
            let event = |kind| Event { kind, run: index };
            changes.push((run.created.min(run.started), event(Change::Created)));
            changes.push((run.started, event(Change::Started)));
            changes.push((run.finished.max(run.started), event(Change::Finished)));
        }
        changes.sort_by_key(|(at, event)| (*at, event.kind, event.run));
        changes
    }

    fn timeline(&self, waits: &Sketch) -> Timeline {
        let begin = self.begin();
        let mut recorder = Recorder::new(self.agents.clone());
        for (at, happening) in self.happenings() {
            recorder.see(at.since(begin).0, &happening);
        }
        recorder.finish(self.wall().0, waits)
    }

    /// All that is drawn, in order. A task that moved was queued with the one it moved from first.
    fn happenings(&self) -> Vec<(Time, Happening)> {
        let mut first: BTreeMap<u64, u32> = BTreeMap::new();
        for moved in &self.moves {
            first.entry(moved.task).or_insert(moved.from);
        }
        let mut all: Vec<(Time, u8, Happening)> = Vec::new();
        for (at, event) in self.changes() {
            let run = &self.tasks[event.run as usize];
            let (worker, task) = (run.lane, run.task);
            all.push(match event.kind {
                Change::Finished => (at, 0, finished(worker, task, run.ended)),
                Change::Created => {
                    let worker = first.get(&task).copied().unwrap_or(worker);
                    (at, 1, Happening::Queued { worker, task })
                }
                Change::Started => (at, 3, Happening::Started { worker, task }),
            });
        }
        all.extend(self.moves.iter().map(|moved| {
            let happening = Happening::Moved {
                from: moved.from,
                to: moved.to,
                task: moved.task,
                stolen: moved.is_stolen(),
                given: false,
            };
            (moved.at, 2, happening)
        }));
        all.sort_by_key(|(at, order, _)| (*at, *order));
        let all = all.into_iter();
        all.map(|(at, _, happening)| (at, happening)).collect()
    }

    fn page(&self, title: &str) -> String {
        let succeeded = |run: &&Run| matches!(run.ended, Ended::Succeeded | Ended::FellBack);
        let succeeded = self.tasks.iter().filter(succeeded).count();
        let median = self.ran.durations.median().unwrap_or(0);
        let tiles = [
            ("took", human(self.wall().0)),
            ("tasks", self.tasks.len().to_string()),
            ("succeeded", succeeded.to_string()),
            ("agents", self.agents.len().to_string()),
            ("changed hands", self.moves.len().to_string()),
            ("median task", human(median)),
            ("median wait", human(self.ran.waits.median().unwrap_or(0))),
        ];
        let run = DrawnRun {
            label: title.to_owned(),
            timeline: self.timeline(&self.ran.waits),
            tiles: tiles.map(|(name, value)| (name.to_owned(), value)).into(),
            balance: self.balance(),
        };
        report::html(&Report {
            title,
            about: "A real run, as its server wrote it down.",
            look_for: "Gaps: an agent that waits while others are busy. Long bars at the end: stragglers.",
            notes: &[],
            runs: &[run],
            results: None,
            command: "loxley journal report",
        })
    }
}

/// A change at one moment.
#[derive(Clone, Copy)]
struct Event {
    kind: Change,
    run: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Finished,
    Created,
    Started,
}

fn finished(worker: u32, task: u64, ended: Ended) -> Happening {
    match ended {
        Ended::Succeeded | Ended::FellBack => Happening::Finished {
            worker,
            task,
            ok: true,
        },
        Ended::Failed(_) => Happening::Finished {
            worker,
            task,
            ok: false,
        },
        Ended::Cancelled | Ended::Returned => Happening::Stopped { worker, task },
    }
}

/// A task that an agent ran; none for one that never started.
fn run_of(row: &TaskRow, lanes: &mut BTreeMap<AgentId, u32>) -> Option<Run> {
    let (agent, started) = (row.agent?, row.started?);
    let next = lanes.len() as u32;
    Some(Run {
        task: row.task.0,
        lane: *lanes.entry(agent).or_insert(next),
        created: row.created,
        started,
        finished: row.finished,
        ended: row.ended,
    })
}

/// Puts runs where they can have been: the history says when the server heard of an end, which is a little later than the
/// end itself, or much later after a restart. How long each ran is known, and an agent never runs more than it has
/// slots; so a run that would be one too many was over before the next one in its slot began.
fn untangle(runs: &mut [Run], agents: &[(String, u32)]) {
    let mut next_start: Vec<Vec<Time>> = agents
        .iter()
        .map(|(_, slots)| vec![Time::MAX; *slots as usize])
        .collect();
    let mut latest_first: Vec<&mut Run> = runs.iter_mut().collect();
    latest_first.sort_by_key(|run| std::cmp::Reverse((run.finished, run.started)));
    for run in latest_first {
        let slots = next_start[run.lane as usize].iter_mut();
        let Some(slot) = slots.max() else { continue };
        let took = run.finished.since(run.started);
        run.finished = run.finished.min(*slot);
        // Not before it was submitted, however much ran at once.
        run.started = (run.finished - took).max(run.created).min(run.finished);
        *slot = run.started;
    }
}

fn print_json(title: &str, runs: &Runs, out: &mut dyn Write) -> Result<()> {
    let balance: BTreeMap<&str, serde_json::Value> = runs
        .balance()
        .figures()
        .into_iter()
        .map(|figure| {
            (
                figure.name,
                json!({
                    "value": figure.value,
                    "met": figure.met(),
                    "verdict": figure.verdict().word(),
                }),
            )
        })
        .collect();
    write_json(
        &json!({
            "title": title,
            "tasks": runs.tasks.len(),
            "agents": runs.agents.len(),
            "wall_seconds": runs.wall().as_secs_f64(),
            "median_duration_seconds": runs.ran.durations.median().map(|ns| ns as f64 / 1e9),
            "median_wait_seconds": runs.ran.waits.median().map(|ns| ns as f64 / 1e9),
            "balance": balance,
            "figures": runs.figures(),
            "moved": runs.moves.len(),
            "moves": moves::json(&runs.moves, &runs.agents, runs.begin()),
        }),
        out,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(task: u64, started: u64, finished: u64) -> Run {
        Run {
            task,
            lane: 0,
            created: Time::ZERO,
            started: Time(started),
            finished: Time(finished),
            ended: Ended::Succeeded,
        }
    }

    #[test]
    fn no_more_run_at_once_than_there_are_slots() {
        // After a restart the ends of four tasks were heard at once; two slots ran two after the other.
        let mut runs: Vec<Run> = (0..4).map(|task| run(task, 1100, 1200)).collect();
        runs.push(run(4, 1199, 1260));
        untangle(&mut runs, &[("a".to_owned(), 2)]);
        for at in 0..1260 {
            let running = |run: &&Run| run.started.0 <= at && at < run.finished.0;
            assert!(runs.iter().filter(running).count() <= 2, "at {at}");
        }
        let took = runs.iter().map(|run| run.finished.since(run.started).0);
        assert_eq!(took.sum::<u64>(), 4 * 100 + 61);
        assert_eq!(runs[4].finished, Time(1260));
    }

    #[test]
    fn what_fits_stays_where_it_is() {
        let mut runs = vec![run(0, 0, 100), run(1, 10, 120), run(2, 100, 150)];
        untangle(&mut runs, &[("a".to_owned(), 2)]);
        let times: Vec<(u64, u64)> = runs
            .iter()
            .map(|run| (run.started.0, run.finished.0))
            .collect();
        assert_eq!(times, [(0, 100), (10, 120), (100, 150)]);
    }
}
