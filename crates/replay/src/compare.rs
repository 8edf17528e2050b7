//! Variants of one recording side by side, in pairs of equal seeds.

use std::sync::Mutex;

use loxley_sim::estimate::Estimate;
use loxley_sim::experiment::Spread;

use crate::figures::{Figure, Figures};
use crate::recording::Recording;
use crate::simulate::{Impossible, simulate};
use crate::what_if::WhatIf;

/// What each variant came to with each seed.
#[derive(Debug)]
pub struct Comparison {
    /// What each variant is called; the first is what the others are compared with.
    pub labels: Vec<String>,
    /// For each variant, one entry for each seed.
    pub runs: Vec<Vec<Figures>>,
}

/// By how much a figure of one variant differs from that of the first.
#[derive(Debug, Clone, Copy)]
pub struct Difference {
    /// Which figure.
    pub figure: Figure,
    /// The mean of the first variant.
    pub before: f64,
    /// The mean of this one.
    pub after: f64,
    /// The difference, in pairs of equal seeds.
    pub change: Estimate,
}

impl Difference {
    /// Whether it is more than noise: beyond the interval, and not a matter of rounding.
    #[must_use]
    pub fn is_real(&self) -> bool {
        let scale = self.before.abs().max(self.after.abs()).max(1e-9);
        self.change.excludes_zero() && self.change.mean.abs() > 1e-6 * scale
    }
}

/// Runs every variant with every seed, spread over threads by `spread`; `done` is told after each run.
///
/// # Errors
/// The first variant that makes no sense, or whose fleet does not come to the end of the work.
pub fn compare(
    recording: &Recording,
    variants: &[WhatIf],
    seeds: &[u64],
    spread: Spread<'_>,
    done: &(dyn Fn() + Sync),
) -> Result<Comparison, Impossible> {
    let jobs: Vec<(usize, u64)> = (0..variants.len())
        .flat_map(|variant| seeds.iter().map(move |seed| (variant, *seed)))
        .collect();
    let finished: Vec<Mutex<Option<Result<Figures, Impossible>>>> =
        jobs.iter().map(|_| Mutex::new(None)).collect();
    spread(jobs.len(), &|index| {
        let (variant, seed) = jobs[index];
        let result = simulate(recording, &variants[variant], seed);
        let result = result.map(|simulated| simulated.figures);
        *finished[index].lock().expect("nobody panics holding it") = Some(result);
        done();
    });
    let mut all = finished.into_iter().map(|result| {
        let result = result.into_inner().expect("nobody panics holding it");
        result.expect("every run was made")
    });
    let mut runs = Vec::with_capacity(variants.len());
    for _ in variants {
        runs.push(all.by_ref().take(seeds.len()).collect::<Result<_, _>>()?);
    }
    Ok(Comparison {
        labels: variants.iter().map(|one| one.label.clone()).collect(),
        runs,
    })
}

impl Comparison {
    /// The mean of a figure of a variant, with its interval.
    #[must_use]
    pub fn estimate(&self, variant: usize, figure: Figure) -> Estimate {
        Estimate::of(&self.values(variant, figure))
    }

    fn values(&self, variant: usize, figure: Figure) -> Vec<f64> {
        let runs = self.runs[variant].iter();
        runs.map(|figures| figures.get(figure)).collect()
    }

    /// Whether a figure of a variant differs from that of the first by more than noise, in words; none where nothing
    /// is to be said.
    #[must_use]
    pub fn verdict(&self, variant: usize, figure: Figure) -> Option<String> {
        let difference = self.difference(variant, figure);
        let title = figure.title();
        if difference.before == 0.0 && difference.after == 0.0 {
            return None;
        }
        let change = difference.change;
        let half = figure.shown(change.half_width);
        if !difference.is_real() {
            return Some(format!("{title}: no difference beyond noise (± {half})"));
        }
        let way = if change.mean < 0.0 { "less" } else { "more" };
        let by = figure.shown(change.mean.abs());
        let share = match difference.before.abs() > 1e-9 {
            true => format!(", {:+.1} %", change.mean / difference.before * 100.0),
            false => String::new(),
        };
        Some(format!(
            "{title}: {by} {way} (± {half}{share}): more than noise"
        ))
    }

    /// A variant against the first.
    #[must_use]
    pub fn difference(&self, variant: usize, figure: Figure) -> Difference {
        let (before, after) = (self.values(0, figure), self.values(variant, figure));
        Difference {
            figure,
            before: Estimate::of(&before).mean,
            after: Estimate::of(&after).mean,
            change: Estimate::of_differences(&before, &after),
        }
    }
}
