//! Which groups of agents seem to finish a task first, by what the indexes tell.
//!
//! [`Matching::EarliestFinish`](crate::Matching::EarliestFinish) asks this for every task. The best key of a group says
//! how long the best placed of its agents has to do, so a group is one addition and one comparison; only for a few of
//! them, agents are looked into.

use loxley_model::Span;
use smallvec::SmallVec;

use crate::fleet::{Fleet, GroupRef};
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
pub(crate) type Promising = SmallVec<[PromisingGroup; GROUPS_MAX]>;

impl Fleet {
    /// The groups of these cohorts whose agents seem to finish first a task that costs so much, as many as are wanted,
    /// for whoever has just asked for the best keys.
    pub(crate) fn promising(
        &self,
        cost: Span,
        capable: &[(CohortRef, i64)],
        wanted: usize,
    ) -> Promising {
        let wanted = wanted.clamp(1, GROUPS_MAX);
        let mut found = Promising::new();
        let best = self.known_best_keys();
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
                floor = floor_of(&found, wanted, shortest);
                // The greatest shares come first: nobody further on is better.
                if ceiling <= floor {
                    break;
                }
            }
            if keys[cohort.index()] <= floor {
                continue;
            }
            for (at, group) in self.heads(*cohort) {
                if group.key == ABSENT {
                    continue;
                }
                let run = Span((cost_here * group.slowness) as u64);
                let estimate = finish(group.key, run);
                if found.len() == wanted && found[wanted - 1].estimate <= estimate {
                    continue;
                }
                let entry = PromisingGroup {
                    estimate,
                    run,
                    at,
                    skill_match: *skill_match,
                    is_uneven: group.is_uneven(),
                };
                insert(&mut found, entry, wanted);
                floor = floor_of(&found, wanted, shortest);
            }
        }
        found
    }
}

/// The greatest key with which nobody who runs a task for `shortest` or longer is earlier than the groups that were found.
fn floor_of(found: &Promising, wanted: usize, shortest: Span) -> i64 {
    match found.last() {
        Some(latest) if found.len() == wanted => {
            let slack = latest.estimate.0.saturating_sub(shortest.0);
            i64::try_from(slack).map_or(ABSENT, |slack| -slack)
        }
        _ => ABSENT,
    }
}

/// When somebody with this key, which is how long it has to do, would have finished what runs so long.
fn finish(key: i64, run: Span) -> Span {
    Span(key.unsigned_abs()).saturating_add(run)
}

fn insert(found: &mut Promising, entry: PromisingGroup, wanted: usize) {
    let at = found
        .iter()
        .rposition(|other| other.estimate <= entry.estimate);
    let at = at.map_or(0, |before| before + 1);
    if at == wanted {
        return;
    }
    found.truncate(wanted - 1);
    found.insert(at, entry);
}
