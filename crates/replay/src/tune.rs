//! The search for a better configuration [M7].
//!
//! ```text
//!   the earlier part of each journal           the later part, unseen
//!   ┌──────────┬──────────┬──────────┐         ┌──────────┐
//!   │ a quarter, all candidates      │         │          │
//!   │ a half, the better half        │ ──best──▶ gain,    │
//!   │ the whole, the best quarter    │         │ interval │
//!   └────────────────────────────────┘         └──────────┘
//! ```
//!
//! Candidates are drawn at random, a few keys of each different from what was recorded, and come through in
//! successive halving: more of the journal and more seeds for fewer candidates. What is left is stripped of keys that
//! do nothing, and then measured once on the part that the search did not see. So the reported gain is not the one
//! that the search was led by, and one measurement is one chance of a false discovery.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use loxley_balance::Rng;
use loxley_sim::estimate::Estimate;
use loxley_sim::experiment::Spread;

use crate::figures::Figure;
use crate::recording::Recording;
use crate::simulate::{Impossible, simulate};
use crate::what_if::WhatIf;

/// What is to become less: figures with weights. Each counts relative to what it is with the recorded configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Objective(pub Vec<(Figure, f64)>);

/// A text that is no objective.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{0}` is no objective: makespan, mean_wait, p99_wait, misses, cost, or a weighted sum such as \
     0.7*makespan+0.3*p99_wait"
)]
pub struct BadObjective(String);

impl Objective {
    /// `makespan`, or `0.7*makespan+0.3*p99_wait`.
    ///
    /// # Errors
    /// When it has another form.
    pub fn parse(text: &str) -> Result<Self, BadObjective> {
        let bad = || BadObjective(text.to_owned());
        let mut terms = Vec::new();
        for term in text.split('+') {
            let (weight, name) = match term.split_once('*') {
                Some((weight, name)) => (weight.trim().parse().map_err(|_| bad())?, name),
                None => (1.0, term),
            };
            let wanted = [
                Figure::Makespan,
                Figure::MeanWait,
                Figure::P99Wait,
                Figure::Misses,
                Figure::AgentHours,
            ];
            let figure = wanted.into_iter().find(|one| one.name() == name.trim());
            let is_weight = |weight: &f64| weight.is_finite() && *weight > 0.0;
            let weight = Some(weight).filter(is_weight).ok_or_else(bad)?;
            terms.push((figure.ok_or_else(bad)?, weight));
        }
        Ok(Self(terms))
    }
}

/// A key and the values that are tried.
type Choice = (&'static str, &'static [&'static str]);

/// What the search may change: keys that decide who gets what, and when. Keys of safety (how long until an agent is
/// lost, what is urgent, shares of users) say what is wanted, not how to get it, and are left alone.
const SPACE: &[Choice] = &[
    ("strategy", &["push", "pull", "hybrid"]),
    (
        "thresholds.busy_threshold",
        &["2", "3", "5", "8", "16", "64"],
    ),
    ("thresholds.idle_threshold", &["1", "2", "3", "5"]),
    (
        "thresholds.rebalance_interval_sec",
        &["1", "5", "15", "60", "300"],
    ),
    (
        "thresholds.severe_imbalance_ratio",
        &["1.5", "2", "3", "5", "10"],
    ),
    (
        "work_stealing.max_steal_per_cycle",
        &["1", "2", "3", "8", "32", "128"],
    ),
    ("work_stealing.prefer_recent_tasks", &["true", "false"]),
    ("work_stealing.allow_task_migration", &["true", "false"]),
    ("work_stealing.min_tasks_to_steal", &["1", "2", "4", "8"]),
    ("work_stealing.steal_below_busy", &["true", "false"]),
    (
        "capabilities.matching_strategy",
        &["best_fit", "earliest_finish"],
    ),
    ("capabilities.consider_history", &["true", "false"]),
    ("performance.steal_batch_size", &["1", "2", "4", "8", "32"]),
    (
        "performance.max_concurrent_steals",
        &["1", "5", "20", "100"],
    ),
    ("guards.robbed_cooldown_ms", &["0", "10", "100", "1000"]),
    ("guards.max_moves", &["1", "3", "8", "32"]),
    ("guards.steal_backoff_ms", &["0", "1", "10", "100"]),
    ("speculation.enabled", &["true", "false"]),
    ("speculation.straggler_ratio", &["1.5", "2", "3", "5"]),
    ("prefetch.max_depth", &["0", "1", "2", "4", "16", "64"]),
    ("quotas.backfill_limit", &["0", "8", "64", "512"]),
];

/// How to search.
#[derive(Debug, Clone)]
pub struct Search {
    /// What is to become less.
    pub objective: Objective,
    /// How many configurations are drawn.
    pub candidates: usize,
    /// Where chance begins.
    pub seed: u64,
    /// How many seeds measure the gain.
    pub seeds: u32,
}

/// What was measured so far, to go on from. Candidates follow from the seed, so a place in the search is enough.
pub type Measured = BTreeMap<String, f64>;

/// What a search came to.
#[derive(Debug, Clone)]
pub struct Tuned {
    /// The keys that differ from what was recorded, with their values; empty when nothing was better.
    pub keys: Vec<(String, String)>,
    /// By which share the objective is less on the part that the search did not see, in pairs of equal seeds.
    pub gain: Estimate,
    /// By which share less it is because of each key: what is lost when it alone is as recorded.
    pub sensitivity: Vec<(String, Estimate)>,
    /// Whether the search came to its end, or was stopped before.
    pub is_complete: bool,
    /// How many runs were made, those of an earlier search not counted.
    pub runs: usize,
}

impl Tuned {
    /// A gain that is worth a change: beyond the interval, and more than this.
    pub const GAIN_MIN: f64 = 0.005;

    /// Whether the configuration is better by more than noise.
    #[must_use]
    pub fn is_better(&self) -> bool {
        let gain = &self.gain;
        !self.keys.is_empty() && gain.mean - gain.half_width > 0.0 && gain.mean >= Self::GAIN_MIN
    }
}

/// Why a search came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// Not even what was recorded can be run.
    #[error(transparent)]
    Impossible(#[from] Impossible),
    /// A journal that cannot be divided.
    #[error(
        "{0} tasks are too few: a part is searched on and a later part judges; at least {1} are needed"
    )]
    TooShort(usize, usize),
}

/// So many tasks, at least.
const TASKS_MIN: usize = 20;
/// The search sees this share of the journal.
const SEEN: f64 = 0.7;

/// Searches. `best` is told when a better candidate is found: its keys, and its share of the recorded objective.
/// When `stop` is set, what is best so far is measured and returned.
///
/// # Errors
/// When a journal is too short, or what was recorded cannot be run.
pub fn tune(
    recordings: &[Recording],
    search: &Search,
    measured: &mut Measured,
    spread: Spread<'_>,
    stop: &AtomicBool,
    best: &(dyn Fn(usize, usize, f64) + Sync),
) -> Result<Tuned, TuneError> {
    let mut parts = Parts::default();
    for recording in recordings {
        let count = recording.task_count();
        let too_short = || TuneError::TooShort(count, TASKS_MIN);
        if count < TASKS_MIN {
            return Err(too_short());
        }
        let part = |from: f64, to: f64| recording.part(from, to).ok_or_else(too_short);
        parts.quarter.push(part(0.0, SEEN / 4.0)?);
        parts.half.push(part(0.0, SEEN / 2.0)?);
        parts.whole.push(part(0.0, SEEN)?);
        parts.unseen.push(part(SEEN, 1.0)?);
    }
    let judge = Judge {
        objective: &search.objective,
        spread,
        stop,
    };
    let mut left: Vec<usize> = (0..search.candidates).collect();
    let mut runs = 0;
    let candidates = candidates(search, &recordings[0]);
    let rungs: [(&[Recording], u64); 3] =
        [(&parts.quarter, 1), (&parts.half, 2), (&parts.whole, 4)];
    for (rung, (journals, seeds)) in rungs.into_iter().enumerate() {
        let base = judge.objectives(journals, &WhatIf::as_recorded(), 1..seeds + 1)?;
        let scores: Vec<Mutex<Option<f64>>> = left
            .iter()
            .map(|index| Mutex::new(measured.get(&place(rung, *index)).copied()))
            .collect();
        let done = Mutex::new((f64::INFINITY, 0));
        spread(left.len(), &|at| {
            let mut score = scores[at].lock().expect("nobody panics holding it");
            if score.is_none() && !stop.load(Ordering::Relaxed) {
                let candidate = &candidates[left[at]];
                let found = one_by_one(&search.objective, journals, candidate, 1..seeds + 1);
                // What cannot run the work is no candidate.
                *score = Some(found.map_or(f64::INFINITY, |found| relative(&found, &base)));
            }
            let mut done = done.lock().expect("nobody panics holding it");
            done.0 = done.0.min(score.unwrap_or(f64::INFINITY));
            done.1 += 1;
            best(rung, done.1, done.0);
        });
        let mut ranked = Vec::new();
        for (index, score) in left.iter().zip(scores) {
            if let Some(score) = score.into_inner().expect("nobody panics holding it") {
                let is_new = measured.insert(place(rung, *index), score).is_none();
                runs += usize::from(is_new) * seeds as usize;
                ranked.push((score, *index));
            }
        }
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let kept = (ranked.len() / 2).max(1);
        left = ranked.iter().take(kept).map(|(_, index)| *index).collect();
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    let is_complete = !stop.load(Ordering::Relaxed);
    let none = WhatIf::as_recorded();
    let winner = left.first().map_or(&none, |index| &candidates[*index]);
    // Stopped or not, what was found is judged.
    let judge = Judge {
        stop: &AtomicBool::new(false),
        ..judge
    };
    let keys = judge.stripped(&parts.whole, winner)?;
    judge.verdict(&parts.unseen, keys, search.seeds, is_complete, runs)
}

#[derive(Default)]
struct Parts {
    quarter: Vec<Recording>,
    half: Vec<Recording>,
    whole: Vec<Recording>,
    unseen: Vec<Recording>,
}

fn place(rung: usize, candidate: usize) -> String {
    format!("{rung}/{candidate}")
}

/// Configurations that differ from the recorded one in a few keys.
fn candidates(search: &Search, recording: &Recording) -> Vec<WhatIf> {
    let mut rng = Rng::new(search.seed).child("candidates");
    let mut all = Vec::with_capacity(search.candidates);
    for index in 0..search.candidates {
        // First each value of each key alone, as far as they go; then several keys at once.
        let singles: usize = SPACE.iter().map(|(_, values)| values.len()).sum();
        let count = if index < singles { 1 } else { 2 + rng.index(3) };
        let mut order: Vec<usize> = (0..SPACE.len()).collect();
        rng.shuffle(&mut order);
        let chosen = order.into_iter().take(count).map(|key| {
            let (path, values) = SPACE[key];
            (path.to_owned(), values[rng.index(values.len())].to_owned())
        });
        let what_if = WhatIf {
            label: format!("candidate {index}"),
            set: chosen.collect(),
            ..WhatIf::default()
        };
        all.push(what_if);
    }
    // A value that is the recorded one, or that this version does not know, changes nothing.
    for one in &mut all {
        let set = std::mem::take(&mut one.set);
        one.set = set
            .into_iter()
            .filter(|key| {
                let alone = WhatIf {
                    set: vec![key.clone()],
                    ..WhatIf::default()
                };
                let config = alone.config_over(recording.config());
                config.is_ok_and(|config| config != *recording.config())
            })
            .collect();
    }
    all
}

/// Objectives of single runs: for each journal and seed the figures with their weights.
type Objectives = Vec<Vec<(f64, f64)>>;

struct Judge<'a> {
    objective: &'a Objective,
    spread: Spread<'a>,
    stop: &'a AtomicBool,
}

fn one(
    objective: &Objective,
    journal: &Recording,
    what_if: &WhatIf,
    seed: u64,
) -> Result<Vec<(f64, f64)>, Impossible> {
    let figures = simulate(journal, what_if, seed)?.figures;
    let terms = objective.0.iter();
    Ok(terms
        .map(|(figure, weight)| (*weight, figures.get(*figure)))
        .collect())
}

fn one_by_one(
    objective: &Objective,
    journals: &[Recording],
    what_if: &WhatIf,
    seeds: std::ops::Range<u64>,
) -> Result<Objectives, Impossible> {
    let mut all = Vec::new();
    for journal in journals {
        for seed in seeds.clone() {
            all.push(one(objective, journal, what_if, seed)?);
        }
    }
    Ok(all)
}

impl Judge<'_> {
    /// What the runs of one configuration come to.
    fn objectives(
        &self,
        journals: &[Recording],
        what_if: &WhatIf,
        seeds: std::ops::Range<u64>,
    ) -> Result<Objectives, Impossible> {
        let jobs: Vec<(usize, u64)> = (0..journals.len())
            .flat_map(|journal| seeds.clone().map(move |seed| (journal, seed)))
            .collect();
        let done: Vec<Mutex<Option<_>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
        let objective = self.objective;
        (self.spread)(jobs.len(), &|at| {
            let (journal, seed) = jobs[at];
            let found = one(objective, &journals[journal], what_if, seed);
            *done[at].lock().expect("nobody panics holding it") = Some(found);
        });
        let done = done.into_iter().map(|one| {
            let one = one.into_inner().expect("nobody panics holding it");
            one.expect("every run was made")
        });
        done.collect()
    }

    /// The keys of a candidate without those that do nothing for it.
    fn stripped(
        &self,
        journals: &[Recording],
        winner: &WhatIf,
    ) -> Result<Vec<(String, String)>, Impossible> {
        const SEEDS: std::ops::Range<u64> = 1..9;
        let base = self.objectives(journals, &WhatIf::as_recorded(), SEEDS)?;
        let mut keys = winner.set.clone();
        let mut score = match self.objectives(journals, &with(&keys), SEEDS) {
            Ok(found) => relative(&found, &base),
            Err(_) => return Ok(Vec::new()),
        };
        let mut at = 0;
        while at < keys.len() && !self.stop.load(Ordering::Relaxed) {
            let mut fewer = keys.clone();
            fewer.remove(at);
            let found = self.objectives(journals, &with(&fewer), SEEDS)?;
            let without = relative(&found, &base);
            if without <= score + Tuned::GAIN_MIN / 2.0 {
                (keys, score) = (fewer, without);
            } else {
                at += 1;
            }
        }
        Ok(if score < 1.0 { keys } else { Vec::new() })
    }

    fn verdict(
        &self,
        unseen: &[Recording],
        keys: Vec<(String, String)>,
        seeds: u32,
        is_complete: bool,
        runs: usize,
    ) -> Result<Tuned, TuneError> {
        // Other seeds than those of the search.
        let seeds = 1_000..1_000 + u64::from(seeds.max(2));
        let base = self.objectives(unseen, &WhatIf::as_recorded(), seeds.clone())?;
        let judged = |keys: &[(String, String)]| -> Result<Vec<f64>, Impossible> {
            let found = self.objectives(unseen, &with(keys), seeds.clone())?;
            let pairs = found.iter().zip(&base);
            Ok(pairs.map(|(one, base)| 1.0 - share(one, base)).collect())
        };
        let gains = judged(&keys)?;
        let mut sensitivity = Vec::new();
        for at in 0..keys.len() {
            let mut without = keys.clone();
            let (key, _) = without.remove(at);
            let others = judged(&without)?;
            sensitivity.push((key, Estimate::of_differences(&others, &gains)));
        }
        Ok(Tuned {
            gain: Estimate::of(&gains),
            keys,
            sensitivity,
            is_complete,
            runs,
        })
    }
}

fn with(keys: &[(String, String)]) -> WhatIf {
    WhatIf {
        label: "tuned".to_owned(),
        set: keys.to_vec(),
        ..WhatIf::default()
    }
}

/// The weighted mean of what each figure is of its base. Where the base has none of something, any of it is as bad
/// as twice as much.
fn share(one: &[(f64, f64)], base: &[(f64, f64)]) -> f64 {
    let weights: f64 = one.iter().map(|(weight, _)| weight).sum();
    let terms = one.iter().zip(base).map(|((weight, value), (_, base))| {
        let share = match *base > 1e-12 {
            true => value / base,
            false => 1.0 + f64::from(*value > 1e-12),
        };
        weight * share
    });
    terms.sum::<f64>() / weights
}

fn relative(found: &Objectives, base: &Objectives) -> f64 {
    let pairs = found.iter().zip(base);
    pairs.map(|(one, base)| share(one, base)).sum::<f64>() / found.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_are_read() {
        let one = Objective::parse("p99_wait").unwrap();
        assert_eq!(one.0, [(Figure::P99Wait, 1.0)]);
        let two = Objective::parse("0.7*makespan + 0.3*misses").unwrap();
        assert_eq!(two.0, [(Figure::Makespan, 0.7), (Figure::Misses, 0.3)]);
        for bad in ["", "happiness", "-1*makespan", "0*cost", "x*makespan"] {
            assert!(Objective::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_value_of_the_space_is_one_of_the_configuration() {
        for (path, values) in SPACE {
            for value in *values {
                let set = WhatIf {
                    set: vec![((*path).to_owned(), (*value).to_owned())],
                    ..WhatIf::default()
                };
                let config = set.config_over(&loxley_policy::Config::default());
                assert!(config.is_ok(), "{path}={value}: {}", config.unwrap_err());
            }
        }
    }
}
