//! Several variants of one scenario, each run with several seeds, compared.
//!
//! Runs are independent and may be spread over threads; results come back in the order of variants
//! and seeds whatever the threads did. Variants run with the same seeds face the same workload, so
//! they are compared in pairs.

use std::sync::Mutex;

use crate::estimate::Estimate;
use crate::scenario::{Change, Scenario, ScenarioError, World};
use crate::statistics::RunStatistics;

/// One column of a comparison.
#[derive(Debug, Clone)]
pub struct Variant {
    /// What sets it apart.
    pub label: String,
    /// What is run.
    pub world: World,
}

/// What every variant came to, with every seed.
#[derive(Debug, Clone)]
pub struct Results {
    /// The label of each variant.
    pub labels: Vec<String>,
    /// For each variant, one entry per seed.
    pub runs: Vec<Vec<RunStatistics>>,
}

/// Every combination of a policy and a value of the sweep, all with the same further changes.
pub fn variants(
    scenario: &Scenario,
    policies: &[String],
    sweep: Option<&str>,
    changes: &[Change],
) -> Result<Vec<Variant>, ScenarioError> {
    let mut policy_variants = vec![(String::new(), Vec::new())];
    if !policies.is_empty() {
        policy_variants = policies
            .iter()
            .map(|policy| Ok((policy.clone(), Change::policy(policy)?)))
            .collect::<Result<_, ScenarioError>>()?;
    }
    let sweep_variants = sweep.map_or_else(|| Ok(vec![None]), sweep_values)?;
    let mut variants = Vec::new();
    for (policy, policy_changes) in &policy_variants {
        for step in &sweep_variants {
            let mut all = changes.to_vec();
            all.extend(policy_changes.iter().cloned());
            all.extend(step.iter().cloned());
            let labels = [
                policy.clone(),
                step.as_ref().map(ToString::to_string).unwrap_or_default(),
            ];
            let parts: Vec<String> = labels.into_iter().filter(|part| !part.is_empty()).collect();
            variants.push(Variant {
                label: if parts.is_empty() {
                    "as written".to_owned()
                } else {
                    parts.join(" ")
                },
                world: scenario.build(&all)?,
            });
        }
    }
    Ok(variants)
}

/// `path=a,b,c` as one change per value.
fn sweep_values(text: &str) -> Result<Vec<Option<Change>>, ScenarioError> {
    let Some((path, values)) = text.split_once('=') else {
        return Err(ScenarioError::Change {
            change: text.to_owned(),
            problem: "expected path=value,value,...".to_owned(),
        });
    };
    values
        .split(',')
        .map(|value| Change::parse(&format!("{path}={}", value.trim())).map(Some))
        .collect()
}

/// Someone who calls a body with every number below a count, on as many threads as it likes.
pub type Spread<'a> = &'a dyn Fn(usize, &(dyn Fn(usize) + Sync));

/// The spread that uses no other thread.
pub fn one_by_one(count: usize, body: &(dyn Fn(usize) + Sync)) {
    (0..count).for_each(body);
}

/// Runs every variant with every seed, spread over threads by `spread`; `done` is told after each.
pub fn run(
    variants: &[Variant],
    seeds: &[u64],
    spread: Spread<'_>,
    done: &(dyn Fn() + Sync),
) -> Results {
    let jobs: Vec<(usize, u64)> = (0..variants.len())
        .flat_map(|variant| seeds.iter().map(move |&seed| (variant, seed)))
        .collect();
    let finished: Vec<Mutex<Option<RunStatistics>>> =
        jobs.iter().map(|_| Mutex::new(None)).collect();
    spread(jobs.len(), &|index| {
        let (variant, seed) = jobs[index];
        let statistics = variants[variant].world.run(seed, &mut ());
        *finished[index]
            .lock()
            .expect("no run panics while it stores its result") = Some(statistics);
        done();
    });
    let mut all = finished.into_iter().map(|slot| {
        slot.into_inner()
            .expect("no run panics while it stores its result")
            .expect("every run was made")
    });
    Results {
        labels: variants
            .iter()
            .map(|variant| variant.label.clone())
            .collect(),
        runs: variants
            .iter()
            .map(|_| all.by_ref().take(seeds.len()).collect())
            .collect(),
    }
}

/// One variant against another: by how much, and whether that is more than noise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict {
    /// Which variant has the shortest mean makespan.
    pub best: usize,
    /// The other one.
    pub other: usize,
    /// By which share of the other's makespan the best one is shorter, in pairs of equal seed.
    pub gain: Estimate,
}

impl Results {
    /// An estimate of some figure for one variant.
    pub fn estimate(&self, variant: usize, figure: impl Fn(&RunStatistics) -> f64) -> Estimate {
        let values: Vec<f64> = self.runs[variant].iter().map(figure).collect();
        Estimate::of(&values)
    }

    /// The variant with the shortest mean makespan.
    #[must_use]
    pub fn best(&self) -> usize {
        let makespan =
            |variant: usize| self.estimate(variant, RunStatistics::makespan_seconds).mean;
        (0..self.runs.len())
            .min_by(|one, other| makespan(*one).total_cmp(&makespan(*other)))
            .unwrap_or(0)
    }

    /// The best variant against each other one.
    #[must_use]
    pub fn verdicts(&self) -> Vec<Verdict> {
        let best = self.best();
        (0..self.runs.len())
            .filter(|&other| other != best)
            .map(|other| {
                let gains: Vec<f64> = self.runs[best]
                    .iter()
                    .zip(&self.runs[other])
                    .map(|(mine, theirs)| {
                        1.0 - mine.makespan_seconds() / theirs.makespan_seconds().max(1e-12)
                    })
                    .collect();
                Verdict {
                    best,
                    other,
                    gain: Estimate::of(&gains),
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{one_by_one, run, variants};
    use crate::library;
    use crate::statistics::RunStatistics;

    #[test]
    fn results_do_not_depend_on_threads() {
        let scenario = library::ready("adaptive").unwrap();
        let policies = ["random".to_owned(), "none".to_owned()];
        let variants = variants(&scenario, &policies, None, &[]).unwrap();
        let seeds: Vec<u64> = (0..20).collect();
        let makespans = |spread: super::Spread<'_>| {
            let results = run(&variants, &seeds, spread, &|| {});
            (results.runs.iter().flatten())
                .map(|run| run.makespan)
                .collect::<Vec<_>>()
        };
        let two_threads = |count: usize, body: &(dyn Fn(usize) + Sync)| {
            std::thread::scope(|scope| {
                scope.spawn(|| (0..count).filter(|index| index % 2 == 1).for_each(body));
                (0..count).filter(|index| index % 2 == 0).for_each(body);
            });
        };
        assert_eq!(makespans(&one_by_one), makespans(&two_threads));
    }

    #[test]
    fn stealing_beats_not_stealing_and_the_verdict_says_so() {
        let scenario = library::ready("adaptive").unwrap();
        let policies = ["random".to_owned(), "none".to_owned()];
        let variants = variants(&scenario, &policies, None, &[]).unwrap();
        let seeds: Vec<u64> = (0..20).collect();
        let results = run(&variants, &seeds, &one_by_one, &|| {});
        let verdict = results.verdicts()[0];
        assert_eq!((verdict.best, verdict.other), (0, 1));
        assert!(verdict.gain.excludes_zero() && verdict.gain.mean > 0.4);
        let ratio = results.estimate(0, RunStatistics::ratio_to_bound);
        assert!(ratio.mean < 1.3, "{ratio}");
    }

    #[test]
    fn a_sweep_has_one_variant_per_value() {
        let scenario = library::ready("granularity").unwrap();
        let variants = variants(&scenario, &[], scenario.sweep(), &[]).unwrap();
        let labels: Vec<&str> = variants.iter().map(|variant| &*variant.label).collect();
        assert_eq!(
            labels,
            ["granularity=0.1", "granularity=0.5", "granularity=2.0"]
        );
    }
}
