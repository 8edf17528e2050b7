//! Taking measurements in turns.
//!
//! A case has several subjects: Loxley, its peers, and floors (what no scheduler can beat). One
//! round runs each of them once, and every round starts with another one, so that a disturbance
//! of the machine falls on all of them alike. What counts afterwards is the ratio *within* a
//! round; [`ratio`] is the median of those.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// What a measured thing is to the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Loxley itself.
    Subject,
    /// Something a user could take instead.
    Peer,
    /// A bound: sequential code, an ideal split, a bare system call.
    Floor,
}

/// One thing to measure: a name and a closure that runs it once and returns the figure, in the
/// unit of the case.
pub(crate) struct Contender<'a> {
    name: &'static str,
    role: Role,
    run: Box<dyn FnMut() -> f64 + 'a>,
}

impl<'a> Contender<'a> {
    pub(crate) fn new(name: &'static str, role: Role, run: impl FnMut() -> f64 + 'a) -> Self {
        Self {
            name,
            role,
            run: Box::new(run),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }
}

/// The figures of one contender, one per round, in the order of the rounds.
#[derive(Clone, Debug)]
pub(crate) struct Samples {
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    pub(crate) values: Vec<f64>,
    /// Processor time of the whole process over time, one per round; empty where it was not taken. Some
    /// peers are fast because they never stop looking for work.
    pub(crate) processors: Vec<f64>,
}

impl Samples {
    pub(crate) fn new(name: &'static str, role: Role, values: Vec<f64>) -> Self {
        Self {
            name,
            role,
            values,
            processors: Vec::new(),
        }
    }

    /// A figure that was taken once.
    #[cfg(feature = "system")]
    pub(crate) fn single(name: &'static str, role: Role, value: f64) -> Self {
        Self::new(name, role, vec![value])
    }

    pub(crate) fn median(&self) -> f64 {
        quantile(&self.values, 0.5)
    }

    pub(crate) fn min(&self) -> f64 {
        quantile(&self.values, 0.0)
    }

    /// Half of the samples lie within this share of the median (interquartile range ÷ median).
    pub(crate) fn spread(&self) -> f64 {
        spread(&self.values)
    }
}

/// How long to measure a case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// At least so many rounds.
    pub(crate) rounds: usize,
    /// More of them, up to ten times as many, until this time is used up.
    pub(crate) time: Duration,
}

/// Runs every contender once to warm up, then in turns.
pub(crate) fn interleaved(effort: Effort, contenders: &mut [Contender<'_>]) -> Vec<Samples> {
    let mut samples: Vec<Samples> = contenders
        .iter_mut()
        .map(|contender| {
            (contender.run)();
            Samples::new(contender.name, contender.role, Vec::new())
        })
        .collect();
    let count = contenders.len();
    let start = Instant::now();
    for round in 0..effort.rounds * 10 {
        if round >= effort.rounds && start.elapsed() >= effort.time {
            break;
        }
        for turn in 0..count {
            let index = (round + turn) % count;
            let (began, used) = (Instant::now(), processor_time());
            let value = (contenders[index].run)();
            let used = processor_time() - used;
            samples[index].values.push(value);
            samples[index]
                .processors
                .push(used.as_secs_f64() / began.elapsed().as_secs_f64());
        }
    }
    samples
}

/// User and system time of all threads of this process so far.
pub(crate) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// The ratio of two contenders, taken round by round: its median and its spread.
pub(crate) fn ratio(left: &Samples, right: &Samples) -> (f64, f64) {
    let ratios: Vec<f64> = left
        .values
        .iter()
        .zip(&right.values)
        .map(|(left, right)| left / right)
        .collect();
    (quantile(&ratios, 0.5), spread(&ratios))
}

/// The value below which the given share of `values` lies, between neighbours by linear
/// interpolation; NaN of nothing.
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let position = share * last as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * position.fract()
}

fn spread(values: &[f64]) -> f64 {
    let median = quantile(values, 0.5);
    if median == 0.0 {
        return 0.0;
    }
    (quantile(values, 0.75) - quantile(values, 0.25)) / median
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_lies_between_the_middle_two() {
        assert_eq!(quantile(&[4.0, 1.0, 2.0, 3.0], 0.5), 2.5);
        assert_eq!(quantile(&[7.0], 0.99), 7.0);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn every_round_runs_everyone_once_and_starts_with_another() {
        let order = std::cell::RefCell::new(String::new());
        let contender = |name: &'static str| {
            let order = &order;
            Contender::new(name, Role::Peer, move || {
                order.borrow_mut().push_str(name);
                1.0
            })
        };
        let effort = Effort {
            rounds: 2,
            time: Duration::ZERO,
        };
        let samples = interleaved(
            effort,
            &mut [contender("a"), contender("b"), contender("c")],
        );
        assert_eq!(*order.borrow(), "abcabcbca");
        assert!(samples.iter().all(|samples| samples.values.len() == 2));
    }

    #[test]
    fn a_drift_of_the_machine_leaves_the_ratio_alone() {
        let samples = |values: &[f64]| Samples::new("", Role::Peer, values.to_vec());
        let (ratio, spread) = ratio(&samples(&[1.0, 2.0, 8.0]), &samples(&[2.0, 4.0, 16.0]));
        assert_eq!((ratio, spread), (0.5, 0.0));
    }
}
