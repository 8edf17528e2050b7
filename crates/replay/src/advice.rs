//! Which way of dividing the work would have fitted, from what was recorded [P8].
//!
//! A list of costs says how uneven work is. A journal says more: who the workers were and how fast, what memory tasks
//! asked for and agents had, where data lay and what bringing it costs, whether tasks came as a stream, and whether
//! anybody could have known their costs beforehand. Each is taken from the journal, unless the caller knows better.

use std::collections::HashMap;

use loxley_balance::advice::workers::{Data, Item, Machine, WorkersAdvice, advise_workers};
use loxley_balance::advice::{self, Advice, AdviceError, Hints};
use loxley_model::{NameId, Outcome};
use loxley_sim::time::{Nanos, seconds};

use crate::recording::{PastAttempt, RecordedTask, Recording};

/// What somebody knows better than the journal; nothing of it where it is left out.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Known {
    /// How many workers share the work.
    pub parts: Option<usize>,
    /// Items arrive one by one.
    pub streaming: Option<bool>,
    /// Neighbouring items stay together and in order.
    pub order_matters: bool,
    /// Whether costs are known before the items run.
    pub predictable: Option<bool>,
    /// What handing out one item costs, in seconds.
    pub overhead: Option<f64>,
}

/// What a journal says of dividing its work.
#[derive(Debug, Clone)]
pub struct JournalAdvice {
    /// Which way of dividing the items fits. Costs are in seconds, at the speed of an agent of speed 1.
    pub division: Advice,
    /// What handing out should take into account, where the agents or what tasks need of them differ.
    pub workers: Option<WorkersAdvice>,
    /// What was taken from the journal and what of it could not be used, a sentence each.
    pub notes: Vec<String>,
}

/// So many tasks are enough to judge from; of more, every so-manieth is looked at by what tries workers one by one.
const TRIED_MAX: usize = 20_000;

/// Says which way of dividing the work of a recording would have fitted.
///
/// # Errors
/// When no task's duration is known, or what the caller knows makes no sense.
pub fn advise(recording: &Recording, known: &Known) -> Result<JournalAdvice, AdviceError> {
    let mut notes = Vec::new();
    let agents = recording.agents.iter();
    let speeds = agents
        .map(|agent| (agent.spec.id.number(), agent.speed))
        .collect();
    let timed: Vec<(&RecordedTask, f64)> = recording
        .tasks
        .iter()
        .filter_map(|task| Some((task, cost_of(task, &speeds)?)))
        .collect();
    let unknown = recording.tasks.len() - timed.len();
    if unknown > 0 {
        notes.push(format!(
            "{unknown} of {} tasks never ran to an end: how long they take is not known, and they are left out",
            recording.tasks.len()
        ));
    }
    let slots = recording
        .agents
        .iter()
        .map(|agent| agent.spec.slots as usize);
    let parts = known.parts.unwrap_or_else(|| slots.sum());
    let streaming = known
        .streaming
        .unwrap_or_else(|| is_stream(recording, &mut notes));
    let predictable = known
        .predictable
        .or_else(|| is_predictable(&timed, &mut notes));
    let hints = Hints {
        streaming,
        order_matters: known.order_matters,
        predictable,
        overhead: known.overhead.unwrap_or_else(|| seconds(recording.gap)),
    };
    note_edges(recording, &mut notes);
    let costs: Vec<f64> = timed.iter().map(|(_, cost)| *cost).collect();
    let division = advice::advise(&costs, parts, &hints)?;
    // Whoever asks for another number of workers asks of workers that are not recorded.
    let workers = match known.parts {
        Some(_) => None,
        None => advise_fleet(recording, &timed, &mut notes)?,
    };
    Ok(JournalAdvice {
        division,
        workers,
        notes,
    })
}

/// How long a task takes at speed 1, in seconds: its last attempt that succeeded, else the last.
fn cost_of(task: &RecordedTask, speeds: &HashMap<u32, f64>) -> Option<f64> {
    let succeeded = |attempt: &&PastAttempt| attempt.outcome == Outcome::Succeeded;
    let attempt = task
        .attempts
        .iter()
        .rfind(succeeded)
        .or(task.attempts.last())?;
    let speed = speeds.get(&attempt.agent).copied().unwrap_or(1.0);
    Some(seconds(attempt.ran) * speed)
}

/// Tasks are a stream when they come at many moments over a considerable part of the time.
fn is_stream(recording: &Recording, notes: &mut Vec<String>) -> bool {
    let mut moments: Vec<Nanos> = recording.arrivals.iter().map(|one| one.at).collect();
    moments.dedup();
    let (Some(first), Some(last)) = (moments.first(), moments.last()) else {
        return false;
    };
    let ends = recording.actual.tasks.iter().filter_map(|task| task.ended);
    let end = ends.max().unwrap_or(0).max(1);
    let share = (last - first) as f64 / end as f64;
    let is_stream = moments.len() >= 4 && share >= 0.25;
    if is_stream {
        notes.push(format!(
            "a stream: tasks came at {} moments, over {:.0} % of the time",
            moments.len(),
            share * 100.0
        ));
    }
    is_stream
}

/// Whether costs could have been known: declared well, or told by the kind of the task.
fn is_predictable(timed: &[(&RecordedTask, f64)], notes: &mut Vec<String>) -> Option<bool> {
    let declared: Vec<f64> = timed
        .iter()
        .filter_map(|(task, cost)| {
            let said = task.spec.cost?.0;
            (said > 0 && *cost > 0.0).then(|| cost / seconds(said))
        })
        .collect();
    if declared.len() * 5 >= timed.len() * 4 {
        // Costs may be in any unit: what counts is whether all are wrong by the same factor.
        let mut sorted = declared.clone();
        sorted.sort_by(f64::total_cmp);
        let median = sorted[sorted.len() / 2];
        let good = declared
            .iter()
            .filter(|ratio| (median / 1.5..=median * 1.5).contains(*ratio));
        let share = good.count() as f64 / declared.len() as f64;
        notes.push(format!(
            "declared costs: {:.0} % of them within 1.5 × of what tasks took, beside each other",
            share * 100.0
        ));
        if share >= 0.8 {
            return Some(true);
        }
    }
    let explained = explained_by_kind(timed)?;
    notes.push(format!(
        "the kind of a task tells {:.0} % of how costs vary",
        explained * 100.0
    ));
    Some(explained >= 0.75)
}

/// The share of the variance of costs that is between kinds; nothing where there are not several kinds with
/// several tasks each.
fn explained_by_kind(timed: &[(&RecordedTask, f64)]) -> Option<f64> {
    let mut kinds: HashMap<&loxley_model::TaskKind, Vec<f64>> = HashMap::new();
    for (task, cost) in timed {
        kinds.entry(&*task.spec.kind).or_default().push(*cost);
    }
    let several = kinds.values().filter(|costs| costs.len() >= 3).count();
    if several < 2 {
        return None;
    }
    let mean = |costs: &[f64]| costs.iter().sum::<f64>() / costs.len() as f64;
    let about = |costs: &[f64], centre: f64| -> f64 {
        costs
            .iter()
            .map(|cost| (cost - centre) * (cost - centre))
            .sum()
    };
    let all: Vec<f64> = timed.iter().map(|(_, cost)| *cost).collect();
    let total = about(&all, mean(&all));
    // In any order the sum would differ in its last bits.
    let mut within: Vec<f64> = kinds
        .values()
        .map(|costs| about(costs, mean(costs)))
        .collect();
    within.sort_by(f64::total_cmp);
    (total > 0.0).then(|| 1.0 - within.iter().sum::<f64>() / total)
}

fn note_edges(recording: &Recording, notes: &mut Vec<String>) {
    let tied = recording.tasks.iter();
    let tied = tied
        .filter(|task| !task.spec.dependencies.is_empty())
        .count();
    if tied > 0 {
        notes.push(format!(
            "{tied} of {} tasks wait for others: what is advised is for tasks that are ready together; \
             `loxley replay` runs the whole graph",
            recording.tasks.len()
        ));
    }
}

/// What is known of the agents.
fn advise_fleet(
    recording: &Recording,
    timed: &[(&RecordedTask, f64)],
    notes: &mut Vec<String>,
) -> Result<Option<WorkersAdvice>, AdviceError> {
    let machines: Vec<Machine> = recording
        .agents
        .iter()
        .map(|agent| Machine {
            workers: agent.spec.slots as usize,
            speed: agent.speed,
            memory: match agent.spec.resources.memory_bytes {
                0 => None,
                bytes => Some(bytes),
            },
            holds: agent.spec.holds.iter().map(|key| key.0).collect(),
        })
        .collect();
    let every = timed.len().div_ceil(TRIED_MAX);
    if every > 1 {
        notes.push(format!(
            "handing out is tried on every {every}th of {} tasks",
            timed.len()
        ));
    }
    let most = machines
        .iter()
        .map(|machine| machine.memory.unwrap_or(u64::MAX));
    let most = most.max().unwrap_or(0);
    let work: Vec<Item> = timed
        .iter()
        .step_by(every.max(1))
        .map(|(task, cost)| Item {
            cost: *cost,
            // Whoever had more has left; what ran somewhere fits somewhere.
            memory: task.spec.kind.needs.memory_bytes.min(most),
            data: task.spec.locality.map(|locality| Data {
                key: locality.key.0,
                transfer: seconds(locality.transfer.0),
            }),
        })
        .collect();
    advise_workers(&work, &machines)
}
