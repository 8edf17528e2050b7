//! Which groups of agents seem to finish a task first, by what the indexes tell.
//!
//! [`Matching::EarliestFinish`](crate::Matching::EarliestFinish) asks this for every task. The best key of a group says
//! how long the best placed of its agents has to do, so a group is one addition and one comparison; only for a few of
//! them, agents are looked into.

use loxley_model::Span;

use crate::fleet::{GroupRef, Ranked};
use crate::placement::MILLION;
use crate::refs::CohortRef;
use crate::tournament::ABSENT;

/// So many groups are looked into at most.
const GROUPS_MAX: usize = 6;

/// A group of agents that are about equally fast.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PromisingGroup {
    /// When the best placed of them seems to finish the task.
    pub(crate) estimate: Span,
    /// How long it would run there.
    pub(crate) run: Span,
    pub(crate) at: GroupRef,
    /// Their share of the skills that the task needs, in millionths.
    pub(crate) skill_match: i64,
    /// Whether some of them are faster or slower with some skills than with others: then how long it runs is a guess.
    pub(crate) is_uneven: bool,
}

/// The groups with the earliest estimates, in order.
#[derive(Debug)]
pub(crate) struct Promising {
    groups: [PromisingGroup; GROUPS_MAX],
    len: usize,
    wanted: usize,
}

impl Promising {
    fn new(wanted: usize) -> Self {
        let nobody = PromisingGroup {
            estimate: Span::MAX,
            run: Span::MAX,
            at: GroupRef::first_of(CohortRef::new(0)),
            skill_match: 0,
            is_uneven: false,
        };
        Self {
            groups: [nobody; GROUPS_MAX],
            len: 0,
            wanted: wanted.clamp(1, GROUPS_MAX),
        }
    }

    pub(crate) fn groups(&self) -> &[PromisingGroup] {
        &self.groups[..self.len]
    }

    /// Whether a group with this estimate is among them.
    fn admits(&self, estimate: Span) -> bool {
        self.len < self.wanted || estimate < self.groups[self.wanted - 1].estimate
    }

    /// Takes in a group that is among them. Of equal ones, the first stays the first.
    fn insert(&mut self, group: PromisingGroup) {
        let mut at = self.len.min(self.wanted - 1);
        self.len = at + 1;
        while at > 0 && self.groups[at - 1].estimate > group.estimate {
            self.groups[at] = self.groups[at - 1];
            at -= 1;
        }
        self.groups[at] = group;
    }

    /// The greatest key with which nobody who runs a task for `shortest` or longer is earlier than these.
    fn floor(&self, shortest: Span) -> i64 {
        if self.len < self.wanted {
            return ABSENT;
        }
        let latest = self.groups[self.wanted - 1].estimate;
        let slack = latest.0.saturating_sub(shortest.0);
        i64::try_from(slack).map_or(ABSENT, |slack| -slack)
    }
}

impl Ranked<'_> {
    /// The groups of these cohorts whose agents seem to finish first a task that costs so much, as many as are wanted.
    pub(crate) fn promising(
        self,
        cost: Span,
        capable: &[(CohortRef, i64)],
        wanted: usize,
    ) -> Promising {
        let mut found = Promising::new(wanted);
        let best = self.best_keys();
        let (keys, ceiling) = (best.keys(), best.best_key());
        if ceiling == ABSENT {
            return found;
        }
        let (mut share, mut cost_here) = (0, 0.0);
        let mut shortest = Span::ZERO;
        // Nobody with this key or a lower one is earlier than those that were found. Most cohorts end here.
        let mut floor = ABSENT;
        for (cohort, skill_match) in capable {
            if *skill_match != share {
                share = *skill_match;
                cost_here = cost.0 as f64 * (MILLION as f64 / share as f64);
                shortest = Span((cost_here * self.least_slowness()) as u64);
                floor = found.floor(shortest);
                // The greatest shares come first: nobody further on is better.
                if ceiling <= floor {
                    break;
                }
            }
            if keys[cohort.index()] <= floor {
                continue;
            }
            for (at, group) in self.heads(*cohort) {
                if group.key <= floor {
                    continue;
                }
                let run = Span((cost_here * group.slowness) as u64);
                // A key is how long the best placed of them has to do.
                let estimate = Span(group.key.unsigned_abs()).saturating_add(run);
                if !found.admits(estimate) {
                    continue;
                }
                found.insert(PromisingGroup {
                    estimate,
                    run,
                    at,
                    skill_match: *skill_match,
                    is_uneven: group.is_uneven(),
                });
                floor = found.floor(shortest);
            }
        }
        found
    }
}
