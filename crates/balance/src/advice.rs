//! P8: which way of dividing work fits, and why.
//!
//! Advice has three parts that can be checked one by one. [`Evidence`] is what the sample of costs
//! shows: spread, tail, trend. [`Trial`]s are what each strategy would have come to on that very
//! sample; they are run, not estimated. The [`Reason`] is the rule that applied:
//!
//! | the items are | advice |
//! |---|---|
//! | all alike | equal chunks; round-robin if they arrive as a stream |
//! | a stream, uneven | round-robin if that comes out even, else one shared queue |
//! | long-tailed | stealing, with a time limit for the tail |
//! | large against a part's fair share | size-aware: largest first |
//! | of predictable cost | weighted: largest first, or ranges by weight if the order counts |
//! | unpredictable | one shared queue if they are few, stealing if they are many |
//!
//! Where another strategy that fits as well comes out noticeably better on the sample, that is advised instead: the
//! advice never contradicts the figures that are printed beside it. What is dealt out blindly (equal chunks,
//! round-robin) counts as coming out well by chance, where costs differ.
//!
//! If costs are known before the items run, a long tail holds no surprise and counts as large
//! items or predictable costs.
//!
//! Where workers differ (in speed, memory, or in the data they hold), [`workers`] says what handing out should take
//! into account besides.

pub mod evidence;
pub mod trial;
pub mod workers;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

pub use evidence::Evidence;
pub use trial::{Strategy, Trial};

use crate::partition::{self, PartitionError};

/// The balance to aim for: the slowest part may need this many times the fair share.
pub const TARGET: f64 = 1.2;

/// From this many items per part on, one shared queue is too busy and stealing is advised.
pub const MANY_PER_PART: usize = 64;

/// A strategy whose imbalance is lower by no more than this is no better.
const NOTICEABLE: f64 = 0.02;

/// What is known about the work besides a sample of its costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hints {
    /// Items arrive one by one and nobody knows how many there will be.
    pub streaming: bool,
    /// Neighbouring items should stay together and in order.
    pub order_matters: bool,
    /// Whether the cost of an item is known, or well estimated, before it runs. Nothing means:
    /// judge from the sample.
    pub predictable: Option<bool>,
    /// What handing out one item or one batch costs, in the unit of the sample.
    pub overhead: f64,
}

/// Names the strategy that fits a sample of item costs, in their original order, over `parts`.
///
/// ```
/// use loxley_balance::advice::{Hints, Strategy, advise};
///
/// let alike = [2.0; 100];
/// let advice = advise(&alike, 4, &Hints::default())?;
/// assert_eq!(advice.strategy, Strategy::EqualChunks);
///
/// // The cost rises with the number of the item.
/// let rising: Vec<f64> = (1..=100).map(f64::from).collect();
/// let advice = advise(&rising, 4, &Hints { order_matters: true, ..Hints::default() })?;
/// assert_eq!(advice.strategy, Strategy::RangesByWeight);
/// assert!(advice.trial(Strategy::EqualChunks).imbalance > 1.7);
/// assert!(advice.trial(Strategy::RangesByWeight).imbalance < 1.1);
/// println!("{advice}");
/// # Ok::<(), loxley_balance::advice::AdviceError>(())
/// ```
///
/// # Errors
/// When there are no costs or no parts, or a cost or the overhead is not one.
pub fn advise(costs: &[f64], parts: usize, hints: &Hints) -> Result<Advice, AdviceError> {
    partition::check(costs, parts).map_err(AdviceError::Input)?;
    if costs.is_empty() {
        return Err(AdviceError::NoCosts);
    }
    if !partition::is_weight(hints.overhead) {
        return Err(AdviceError::Overhead(hints.overhead));
    }
    let evidence = Evidence::new(costs, parts);
    let trials = trial::run_all(costs, parts, hints.overhead);
    let (by_rule, reason) = choose(&evidence, hints, &trials);
    let strategy = unless_contradicted(by_rule, reason, hints, &trials);
    let time_limit = (reason == Reason::LongTail).then(|| evidence.time_limit());
    Ok(Advice {
        strategy,
        reason,
        time_limit,
        evidence,
        trials,
    })
}

/// The strategy that fits, and everything that speaks for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The strategy that fits.
    pub strategy: Strategy,
    /// The rule that chose it.
    pub reason: Reason,
    /// How long one item should be allowed to run, where the tail is long.
    pub time_limit: Option<f64>,
    /// What the sample shows.
    pub evidence: Evidence,
    /// What every strategy came to on the sample, in the order of [`Strategy::ALL`].
    pub trials: Vec<Trial>,
}

impl Advice {
    /// What one strategy came to on the sample.
    #[must_use]
    pub fn trial(&self, strategy: Strategy) -> &Trial {
        &self.trials[strategy as usize]
    }
}

/// The rule that chose a strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// All items cost nearly the same.
    Uniform,
    /// Items arrive as a stream, and dealing them in turn comes out even.
    Streaming,
    /// Items arrive as a stream, and dealing them in turn does not come out even.
    UnevenStream,
    /// A few items cost many times the mean, and nobody knows which.
    LongTail,
    /// Single items are a considerable part of what one part should do.
    LargeItems,
    /// Costs differ but can be told in advance.
    PredictableVariance,
    /// Costs differ and cannot be told in advance.
    Unpredictable,
}

impl Reason {
    /// Whether the rule counts on costs that are known before the items run.
    fn knows_costs(self) -> bool {
        matches!(self, Self::LargeItems | Self::PredictableVariance)
    }
}

/// Applies the rules of the module's table, the first that fits.
fn choose(evidence: &Evidence, hints: &Hints, trials: &[Trial]) -> (Strategy, Reason) {
    let predictable = hints
        .predictable
        .unwrap_or_else(|| evidence.looks_predictable());
    let weighted = if hints.order_matters {
        Strategy::RangesByWeight
    } else {
        Strategy::LargestFirst
    };
    if evidence.is_uniform() {
        let strategy = if hints.streaming {
            Strategy::RoundRobin
        } else {
            Strategy::EqualChunks
        };
        (strategy, Reason::Uniform)
    } else if evidence.is_long_tailed() && (hints.streaming || hints.predictable != Some(true)) {
        (Strategy::Stealing, Reason::LongTail)
    } else if hints.streaming {
        if trials[Strategy::RoundRobin as usize].imbalance < TARGET {
            (Strategy::RoundRobin, Reason::Streaming)
        } else {
            (Strategy::SelfScheduling, Reason::UnevenStream)
        }
    } else if evidence.has_large_items() && hints.predictable != Some(false) {
        (weighted, Reason::LargeItems)
    } else if predictable {
        (weighted, Reason::PredictableVariance)
    } else {
        (queue_or_stealing(evidence, hints), Reason::Unpredictable)
    }
}

/// What the rules name, unless the trials say that another strategy which fits as well comes out noticeably better:
/// whoever reads the advice sees those figures beside it.
fn unless_contradicted(
    by_rule: Strategy,
    reason: Reason,
    hints: &Hints,
    trials: &[Trial],
) -> Strategy {
    let imbalance = |strategy: Strategy| trials[strategy as usize].imbalance;
    let fits = |strategy: &Strategy| match strategy {
        Strategy::Stealing => true,
        Strategy::SelfScheduling => !hints.order_matters,
        Strategy::LargestFirst => reason.knows_costs() && !hints.order_matters,
        Strategy::RangesByWeight => reason.knows_costs(),
        // What is dealt out blindly comes out well by chance, where costs differ.
        Strategy::EqualChunks | Strategy::RoundRobin => false,
    };
    if matches!(reason, Reason::Uniform | Reason::Streaming) {
        return by_rule;
    }
    let others = Strategy::ALL.into_iter().filter(fits);
    let best = others.min_by(|one, other| imbalance(*one).total_cmp(&imbalance(*other)));
    let is_better = |best: &Strategy| imbalance(*best) + NOTICEABLE < imbalance(by_rule);
    best.filter(is_better).unwrap_or(by_rule)
}

fn queue_or_stealing(evidence: &Evidence, hints: &Hints) -> Strategy {
    let many = evidence.count / evidence.parts >= MANY_PER_PART;
    if many || hints.order_matters {
        Strategy::Stealing
    } else {
        Strategy::SelfScheduling
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "strategy   {}", self.strategy)?;
        if let Some(limit) = self.time_limit {
            write!(f, ", with a time limit of {} per item", Brief(limit))?;
        }
        writeln!(f, "\nwhy        {}", self.explanation())?;
        writeln!(f, "\n{}", self.evidence)?;
        writeln!(
            f,
            "\nexpected imbalance: slowest part ÷ fair share, to be below {TARGET:.2}"
        )?;
        for trial in &self.trials {
            let mark = if trial.strategy == self.strategy {
                '*'
            } else {
                ' '
            };
            let by_chance = self.is_by_chance(trial);
            let note = if by_chance { ", by chance" } else { "" };
            writeln!(f, "{mark} {trial}{note}")?;
        }
        let floor = self.evidence.floor();
        write!(f, "* advised; no strategy can be below {floor:.2}")?;
        if floor > TARGET {
            f.write_str(" unless the largest item is split")
        } else {
            Ok(())
        }
    }
}

impl Advice {
    /// Whether a strategy that divides blindly came out better than the advised one.
    fn is_by_chance(&self, trial: &Trial) -> bool {
        let is_blind = matches!(trial.strategy, Strategy::EqualChunks | Strategy::RoundRobin);
        is_blind && trial.imbalance + NOTICEABLE < self.trial(self.strategy).imbalance
    }

    /// Why, in one sentence with the figures that decided.
    #[must_use]
    pub fn explanation(&self) -> String {
        let evidence = &self.evidence;
        match self.reason {
            Reason::Uniform => alloc::format!(
                "all items cost nearly the same: they vary by {:.1} % of the mean",
                evidence.variation * 100.0
            ),
            Reason::Streaming => alloc::format!(
                "the items are a stream, and dealing them in turn comes out even: {:.2}",
                self.trial(Strategy::RoundRobin).imbalance
            ),
            Reason::UnevenStream => alloc::format!(
                "the items are a stream, but dealing them in turn leaves one part with {:.2} × its share",
                self.trial(Strategy::RoundRobin).imbalance
            ),
            Reason::LongTail => alloc::format!(
                "long tail: the costliest 1 % of the items average {:.1} × the mean and hold {:.1} % of the cost",
                evidence.tail_ratio,
                evidence.tail_share * 100.0
            ),
            Reason::LargeItems => alloc::format!(
                "large items: the largest alone is {:.2} × what one part should do in all",
                evidence.largest_share
            ),
            Reason::PredictableVariance => alloc::format!(
                "costs vary by {:.0} % of the mean but can be told in advance",
                evidence.variation * 100.0
            ),
            Reason::Unpredictable => alloc::format!(
                "costs vary by {:.0} % of the mean and cannot be told in advance",
                evidence.variation * 100.0
            ),
        }
    }
}

/// Why no advice can be given.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum AdviceError {
    /// There are no costs to judge from.
    NoCosts,
    /// Parts or costs are not such.
    Input(PartitionError),
    /// The overhead is NaN, infinite or negative.
    Overhead(f64),
    /// The speed of a machine is not a positive number.
    Speed(f64),
    /// No machine has the memory for this item.
    Memory(u64),
}

impl fmt::Display for AdviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCosts => f.write_str("there are no costs to judge from"),
            Self::Input(_) => f.write_str("the costs cannot be divided"),
            Self::Overhead(overhead) => {
                write!(
                    f,
                    "the overhead is {overhead}; it is finite and not negative"
                )
            }
            Self::Speed(speed) => write!(f, "the speed of a machine is {speed}; it is positive"),
            Self::Memory(bytes) => write!(f, "an item needs {bytes} bytes; no machine has as much"),
        }
    }
}

impl core::error::Error for AdviceError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Input(source) => Some(source),
            _ => None,
        }
    }
}

/// A number of unknown magnitude with about four digits.
struct Brief(f64);

impl fmt::Display for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.0;
        match number.abs() {
            0.0 => f.write_str("0"),
            size if !(1e-3..1e9).contains(&size) => write!(f, "{number:.3e}"),
            size if size >= 1e3 => write!(f, "{number:.0}"),
            size if size >= 10.0 => write!(f, "{number:.1}"),
            size if size >= 1.0 => write!(f, "{number:.2}"),
            _ => write!(f, "{number:.4}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use alloc::string::ToString;

    const PLAIN: Hints = Hints {
        streaming: false,
        order_matters: false,
        predictable: None,
        overhead: 0.0,
    };

    fn advice(costs: &[f64], parts: usize, hints: Hints) -> (Strategy, Reason) {
        let advice = advise(costs, parts, &hints).unwrap();
        assert_eq!(
            advice.time_limit.is_some(),
            advice.reason == Reason::LongTail
        );
        (advice.strategy, advice.reason)
    }

    /// Between 1 and 3, in no order.
    fn scattered(count: usize) -> Vec<f64> {
        let mut rng = Rng::new(17);
        (0..count).map(|_| 1.0 + 2.0 * rng.unit_f64()).collect()
    }

    /// One in fifty costs a hundred times the others.
    fn long_tailed(count: usize) -> Vec<f64> {
        let mut rng = Rng::new(18);
        (0..count)
            .map(|_| if rng.chance(0.02) { 100.0 } else { 1.0 })
            .collect()
    }

    #[test]
    fn alike_items_are_chunked_or_dealt() {
        assert_eq!(
            advice(&[3.0; 50], 4, PLAIN),
            (Strategy::EqualChunks, Reason::Uniform)
        );
        let streaming = Hints {
            streaming: true,
            ..PLAIN
        };
        assert_eq!(
            advice(&[3.0; 50], 4, streaming),
            (Strategy::RoundRobin, Reason::Uniform)
        );
        assert_eq!(
            advice(&[0.0; 5], 4, PLAIN),
            (Strategy::EqualChunks, Reason::Uniform)
        );
    }

    #[test]
    fn streams_are_dealt_unless_that_comes_out_uneven() {
        let streaming = Hints {
            streaming: true,
            ..PLAIN
        };
        let dealt = (Strategy::RoundRobin, Reason::Streaming);
        assert_eq!(advice(&scattered(400), 4, streaming), dealt);
        // Every fourth item is heavy, and every fourth goes to the same part.
        let resonant: Vec<f64> = (0..400)
            .map(|n| if n % 4 == 0 { 9.0 } else { 1.0 })
            .collect();
        let queued = (Strategy::SelfScheduling, Reason::UnevenStream);
        assert_eq!(advice(&resonant, 4, streaming), queued);
    }

    #[test]
    fn a_long_tail_is_stolen_and_limited_unless_foreseen() {
        let costs = long_tailed(5_000);
        assert_eq!(
            advice(&costs, 4, PLAIN),
            (Strategy::Stealing, Reason::LongTail)
        );
        let foreseen = Hints {
            predictable: Some(true),
            ..PLAIN
        };
        let weighted = (Strategy::LargestFirst, Reason::PredictableVariance);
        assert_eq!(advice(&costs, 4, foreseen), weighted);
    }

    #[test]
    fn large_items_are_placed_by_size_unless_nobody_knows_it() {
        let costs = scattered(12);
        assert_eq!(
            advice(&costs, 4, PLAIN),
            (Strategy::LargestFirst, Reason::LargeItems)
        );
        let unknown = Hints {
            predictable: Some(false),
            ..PLAIN
        };
        assert_eq!(
            advice(&costs, 4, unknown),
            (Strategy::SelfScheduling, Reason::Unpredictable)
        );
    }

    #[test]
    fn a_trend_makes_costs_predictable() {
        let rising: Vec<f64> = (0..400).map(|n| 1.0 + f64::from(n)).collect();
        let weighted = (Strategy::LargestFirst, Reason::PredictableVariance);
        assert_eq!(advice(&rising, 4, PLAIN), weighted);
        let ordered = Hints {
            order_matters: true,
            ..PLAIN
        };
        let ranges = (Strategy::RangesByWeight, Reason::PredictableVariance);
        assert_eq!(advice(&rising, 4, ordered), ranges);
    }

    #[test]
    fn unpredictable_items_are_queued_when_few_and_stolen_when_many() {
        let queued = (Strategy::SelfScheduling, Reason::Unpredictable);
        assert_eq!(advice(&scattered(200), 4, PLAIN), queued);
        let stolen = (Strategy::Stealing, Reason::Unpredictable);
        assert_eq!(advice(&scattered(2_000), 4, PLAIN), stolen);
    }

    #[test]
    fn a_foreseeable_workload_is_never_advised_worse_than_the_target_allows() {
        for costs in [
            scattered(2_000),
            long_tailed(5_000),
            (0..900).map(f64::from).collect(),
        ] {
            for hints in [
                PLAIN,
                Hints {
                    predictable: Some(true),
                    ..PLAIN
                },
            ] {
                let advice = advise(&costs, 8, &hints).unwrap();
                assert!(advice.trial(advice.strategy).imbalance < TARGET, "{advice}");
            }
        }
    }

    #[test]
    fn no_advice_contradicts_the_figures_beside_it() {
        let mut rng = Rng::new(19);
        for round in 0..300 {
            let count = 2 + rng.index(400);
            let tail = rng.unit_f64() * 0.1;
            let costs: Vec<f64> = (0..count)
                .map(|_| {
                    if rng.chance(tail) {
                        50.0
                    } else {
                        rng.unit_f64()
                    }
                })
                .collect();
            let hints = Hints {
                predictable: [None, Some(true), Some(false)][round % 3],
                ..PLAIN
            };
            let advice = advise(&costs, 1 + rng.index(8), &hints).unwrap();
            let advised = advice.trial(advice.strategy).imbalance;
            let dynamic = [Strategy::SelfScheduling, Strategy::Stealing];
            let best = dynamic.map(|strategy| advice.trial(strategy).imbalance);
            assert!(
                advice.reason == Reason::Uniform || advised <= best[0].min(best[1]) + NOTICEABLE,
                "{advice}"
            );
        }
    }

    #[test]
    fn the_report_shows_choice_reason_evidence_and_alternatives() {
        let costs: Vec<f64> = (0..8).map(|n| if n < 2 { 8.0 } else { 1.0 }).collect();
        let text = advise(&costs, 2, &PLAIN).unwrap().to_string();
        let expected = "\
strategy   largest first
why        large items: the largest alone is 0.73 × what one part should do in all

evidence   8 items on 2 parts (a small sample)
cost       mean 2.75, median 1.00, 95 % below 8.00, largest 8.00
variation  110.2 % of the mean; alike up to 10 %
largest    2.91 × the mean, 0.73 × the fair share of a part; large from 0.20
tail       the costliest 1 % hold 36.4 % and average 2.9 × the mean; long from 10
order      trend -0.76, neighbours 0.59; predictable from 0.71

expected imbalance: slowest part ÷ fair share, to be below 1.20
  equal chunks         1.64  handed out 2 times
  round-robin          1.00  handed out 8 times
* largest first        1.00  handed out 2 times, costs known in advance
  ranges by weight     1.27  handed out 2 times, costs known in advance
  shared queue         1.00  handed out 8 times
  work stealing        1.27  handed out 4 times
* advised; no strategy can be below 1.00";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_cannot_be_judged_is_refused() {
        assert_eq!(advise(&[], 2, &PLAIN), Err(AdviceError::NoCosts));
        let no_parts = AdviceError::Input(PartitionError::NoParts);
        assert_eq!(advise(&[1.0], 0, &PLAIN), Err(no_parts));
        assert!(advise(&[f64::NAN], 2, &PLAIN).is_err());
        let negative = Hints {
            overhead: -1.0,
            ..PLAIN
        };
        assert_eq!(
            advise(&[1.0], 2, &negative),
            Err(AdviceError::Overhead(-1.0))
        );
    }

    #[test]
    fn numbers_are_brief() {
        let shown = [0.0, 12_345.6, 123.45, 9.876, 0.012_34, 1e-7, 2.5e12];
        let brief: Vec<String> = shown
            .iter()
            .map(|&number| Brief(number).to_string())
            .collect();
        assert_eq!(
            brief,
            [
                "0", "12346", "123.5", "9.88", "0.0123", "1.000e-7", "2.500e12"
            ]
        );
    }
}
