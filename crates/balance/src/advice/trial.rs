//! What each strategy comes to on a given list of costs: run, not estimated.
//!
//! The parts are workers that start together. A strategy that divides up front hands out once per
//! part (round-robin: once per item, as they come); a shared queue hands out every item; stealing
//! begins with equal chunks and hands out halves of what a random victim has left. Each handing out
//! takes the given overhead of the receiver's time.

use alloc::collections::BinaryHeap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;
use core::ops::Range;

use crate::partition::chunks::chunks;
use crate::partition::largest;
use crate::partition::largest_first::largest_first;
use crate::partition::loads::Total;
use crate::partition::ranges::ranges;
use crate::rng::Rng;
use crate::topology::Topology;
use crate::victim::{StealAmount, VictimOrder, Victims};

/// A way to get items to parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Equal contiguous chunks (P1).
    EqualChunks,
    /// One to each in turn (P2).
    RoundRobin,
    /// The largest first, to the least loaded (P3).
    LargestFirst,
    /// Contiguous ranges of equal weight (P5).
    RangesByWeight,
    /// Whoever is free takes the next from one shared queue.
    SelfScheduling,
    /// Equal chunks, then whoever is idle steals half of someone's rest.
    Stealing,
}

impl Strategy {
    /// Every strategy, the simplest first.
    pub const ALL: [Self; 6] = [
        Self::EqualChunks,
        Self::RoundRobin,
        Self::LargestFirst,
        Self::RangesByWeight,
        Self::SelfScheduling,
        Self::Stealing,
    ];

    /// A short name without spaces, for files and options.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::EqualChunks => "equal_chunks",
            Self::RoundRobin => "round_robin",
            Self::LargestFirst => "largest_first",
            Self::RangesByWeight => "ranges_by_weight",
            Self::SelfScheduling => "shared_queue",
            Self::Stealing => "work_stealing",
        }
    }

    /// Whether it needs to know what an item costs before the item runs.
    #[must_use]
    pub fn needs_costs(self) -> bool {
        matches!(self, Self::LargestFirst | Self::RangesByWeight)
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::EqualChunks => "equal chunks",
            Self::RoundRobin => "round-robin",
            Self::LargestFirst => "largest first",
            Self::RangesByWeight => "ranges by weight",
            Self::SelfScheduling => "shared queue",
            Self::Stealing => "work stealing",
        })
    }
}

/// What one strategy came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Which one.
    pub strategy: Strategy,
    /// When the slowest part was done.
    pub makespan: f64,
    /// The makespan over the fair share, total ÷ parts; 1 is perfect.
    pub imbalance: f64,
    /// How often something was handed out.
    pub handed_out: usize,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = if self.strategy.needs_costs() {
            ", costs known in advance"
        } else {
            ""
        };
        let (strategy, imbalance, times) = (self.strategy, self.imbalance, self.handed_out);
        write!(
            f,
            "{strategy:<18} {imbalance:>6.2}  handed out {times} times{known}"
        )
    }
}

/// Tries every strategy on checked costs.
pub(super) fn run_all(costs: &[f64], parts: usize, overhead: f64) -> Vec<Trial> {
    let total: f64 = costs.iter().sum();
    let fair_share = total / parts as f64;
    let trial = |strategy| {
        let (makespan, handed_out) = run(strategy, costs, parts, overhead);
        let imbalance = if fair_share > 0.0 {
            makespan / fair_share
        } else {
            1.0
        };
        Trial {
            strategy,
            makespan,
            imbalance,
            handed_out,
        }
    };
    Strategy::ALL.into_iter().map(trial).collect()
}

/// Makespan and number of hand-outs.
fn run(strategy: Strategy, costs: &[f64], parts: usize, overhead: f64) -> (f64, usize) {
    match strategy {
        Strategy::EqualChunks => {
            let chunks = chunks(costs.len(), parts).into_iter().flatten();
            contiguous(costs, chunks, overhead)
        }
        Strategy::RoundRobin => (dealt_in_turn(costs, parts, overhead), costs.len()),
        Strategy::LargestFirst => {
            let assignment = largest_first(costs, parts).expect("costs and parts were checked");
            let used = assignment
                .members()
                .iter()
                .filter(|items| !items.is_empty())
                .count();
            (assignment.makespan() + overhead, used)
        }
        Strategy::RangesByWeight => {
            let cut = ranges(costs, parts).expect("costs and parts were checked");
            contiguous(costs, cut, overhead)
        }
        Strategy::SelfScheduling => (shared_queue(costs, parts, overhead), costs.len()),
        Strategy::Stealing => Thieves::new(costs, parts, overhead).run(),
    }
}

fn contiguous(
    costs: &[f64],
    cut: impl IntoIterator<Item = Range<usize>>,
    overhead: f64,
) -> (f64, usize) {
    let mut used = 0;
    let mut makespan = 0.0_f64;
    for range in cut.into_iter().filter(|range| !range.is_empty()) {
        used += 1;
        makespan = makespan.max(costs[range].iter().sum::<f64>() + overhead);
    }
    (makespan, used)
}

fn dealt_in_turn(costs: &[f64], parts: usize, overhead: f64) -> f64 {
    let mut loads = vec![0.0; parts];
    for (item, cost) in costs.iter().enumerate() {
        loads[item % parts] += cost + overhead;
    }
    largest(&loads)
}

/// The earliest free worker takes the next item.
fn shared_queue(costs: &[f64], parts: usize, overhead: f64) -> f64 {
    let mut free: BinaryHeap<Reverse<(Total, usize)>> = (0..parts)
        .map(|worker| Reverse((Total(0.0), worker)))
        .collect();
    let mut makespan = 0.0_f64;
    for cost in costs {
        let Some(mut earliest) = free.peek_mut() else {
            break;
        };
        let done = earliest.0.0.0 + overhead + cost;
        earliest.0.0 = Total(done);
        makespan = makespan.max(done);
    }
    makespan
}

/// Workers that begin with a chunk each and rob each other when they are through.
struct Thieves<'a> {
    costs: &'a [f64],
    overhead: f64,
    topology: Topology,
    /// What each worker has not begun; the owner takes from the front, thieves from the back.
    queues: Vec<Range<usize>>,
    victims: Vec<Victims>,
    rng: Rng,
    /// How many items nobody has begun.
    waiting: usize,
    handed_out: usize,
}

impl<'a> Thieves<'a> {
    fn new(costs: &'a [f64], parts: usize, overhead: f64) -> Self {
        let topology = Topology::flat(parts);
        let victims = (0..parts)
            .map(|thief| Victims::new(VictimOrder::Random, &topology, thief))
            .collect();
        let queues: Vec<Range<usize>> = chunks(costs.len(), parts).into_iter().flatten().collect();
        let handed_out = queues.iter().filter(|queue| !queue.is_empty()).count();
        Self {
            costs,
            overhead,
            topology,
            queues,
            victims,
            // Any seed will do; the same one makes advice repeatable.
            rng: Rng::new(0),
            waiting: costs.len(),
            handed_out,
        }
    }

    fn run(mut self) -> (f64, usize) {
        let mut free: BinaryHeap<Reverse<(Total, usize)>> = (0..self.queues.len())
            .map(|worker| Reverse((Total(self.overhead), worker)))
            .collect();
        let mut makespan = 0.0_f64;
        while self.waiting > 0 {
            let Some(Reverse((Total(now), worker))) = free.pop() else {
                break;
            };
            let begins = if self.queues[worker].is_empty() {
                self.steal(worker);
                now + self.overhead
            } else {
                now
            };
            let item = self.queues[worker]
                .next()
                .expect("something waits, so a thief finds it");
            self.waiting -= 1;
            let done = begins + self.costs[item];
            makespan = makespan.max(done);
            free.push(Reverse((Total(done), worker)));
        }
        (makespan, self.handed_out)
    }

    /// Takes the back half of the first victim's queue that holds anything.
    fn steal(&mut self, thief: usize) {
        let queues = &self.queues;
        let victim = self.victims[thief]
            .round(&self.topology, &mut self.rng, |worker| queues[worker].len())
            .find(|&worker| !queues[worker].is_empty());
        if let Some(victim) = victim {
            let queue = &mut self.queues[victim];
            let kept_until = queue.end - StealAmount::Half.take(queue.len());
            let loot = kept_until..queue.end;
            queue.end = kept_until;
            self.queues[thief] = loot;
            self.handed_out += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn makespans(costs: &[f64], parts: usize, overhead: f64) -> Vec<f64> {
        run_all(costs, parts, overhead)
            .iter()
            .map(|trial| trial.makespan)
            .collect()
    }

    #[test]
    fn makespans_by_hand() {
        // Chunks 4 1 | 3 2, turns 4 3 | 1 2, largest first 4 1 | 3 2, ranges 4 1 | 3 2,
        // queue 4 | 1 3 then 2 to the first of both: 6, stealing leaves 4 1 | 3 2 alone.
        assert_eq!(
            makespans(&[4.0, 1.0, 3.0, 2.0], 2, 0.0),
            [5.0, 7.0, 5.0, 5.0, 6.0, 5.0]
        );
    }

    #[test]
    fn thieves_take_the_back_half() {
        // Worker 0 has begun the 4 of its 4 1 1 when worker 1 is through. It takes half of the
        // two that are left, then the other: two chunks and two steals.
        let costs = [4.0, 1.0, 1.0, 0.0, 0.0];
        assert_eq!(run(Strategy::Stealing, &costs, 2, 0.0), (4.0, 4));
    }

    #[test]
    fn overhead_is_paid_by_whoever_receives() {
        let makespans = makespans(&[1.0; 4], 2, 0.5);
        assert_eq!(makespans, [2.5, 3.0, 2.5, 2.5, 3.0, 2.5]);
    }

    #[test]
    fn handing_out_is_counted() {
        let trials = run_all(&[1.0; 3], 5, 0.0);
        let counts: Vec<usize> = trials.iter().map(|trial| trial.handed_out).collect();
        assert_eq!(counts, [3; 6]);
    }

    #[test]
    fn trials_stand_where_their_strategy_says() {
        for (index, trial) in run_all(&[1.0], 2, 0.0).iter().enumerate() {
            assert_eq!(
                (trial.strategy as usize, Strategy::ALL[index]),
                (index, trial.strategy)
            );
        }
    }

    #[test]
    fn dynamic_strategies_keep_grahams_bound_and_none_beats_the_floor() {
        let mut rng = Rng::new(9);
        for parts in [1, 2, 7, 64] {
            let costs: Vec<f64> = (0..500).map(|_| libm::pow(rng.unit_f64(), 6.0)).collect();
            let total: f64 = costs.iter().sum();
            let fair_share = total / parts as f64;
            let longest = largest(&costs);
            let bound = fair_share + longest * (1.0 - 1.0 / parts as f64) + 1e-9;
            for trial in run_all(&costs, parts, 0.0) {
                assert!(
                    trial.makespan >= fair_share.max(longest) - 1e-9,
                    "{trial:?}"
                );
                if matches!(
                    trial.strategy,
                    Strategy::SelfScheduling | Strategy::Stealing | Strategy::LargestFirst
                ) {
                    assert!(trial.makespan <= bound, "{trial:?} {bound}");
                }
            }
        }
    }

    #[test]
    fn costs_of_nothing_are_balanced() {
        assert!(
            run_all(&[0.0; 9], 4, 0.0)
                .iter()
                .all(|trial| trial.imbalance == 1.0)
        );
    }
}
