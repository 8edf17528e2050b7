//! Which decision of a group was another one when the journal was written.
//!
//! A journal keeps what the scheduler was told and a digest of what it decided, not the decisions. Two things tell
//! which of them differed. *Later facts* speak of leases: an agent that starts task 7 under lease 12 was given it. And
//! the digest can be *undone*: it is a chain of steps that each have an inverse, so a decision in the middle can be
//! tried against what must have been before and after it.
//!
//! Where one of this version's decisions replaced by the one that was made gives the very digest that was written, that
//! is certain: a number of 64 bits does not come out by chance.

use std::collections::HashMap;

use loxley_model::{AgentId, Lease, TaskId};
use loxley_policy::{Action, Report};

use crate::digest::Digest;

/// A decision that was another one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Differing {
    /// Its number among the decisions of its group that count, from 1.
    pub(crate) number: usize,
    /// What this version decides.
    pub(crate) here: Action,
    /// To whom the task went instead, and which task it was.
    pub(crate) then: (TaskId, AgentId),
    /// Whether the digest proves that this is the first that differs.
    pub(crate) is_certain: bool,
}

/// Names the first of `decided` that differs. `before` is the digest at the beginning of the group, `written` the one at
/// its end; `told` is who held which lease by later facts; `agents` are those whom a task could have gone to.
pub(crate) fn find(
    before: Digest,
    written: u64,
    decided: &[Action],
    told: &HashMap<Lease, (TaskId, AgentId)>,
    agents: &[AgentId],
) -> Option<Differing> {
    let counted: Vec<&Action> = decided
        .iter()
        .filter(|action| Digest::counts(action))
        .collect();
    if let Some(only) = only_difference(before, written, &counted, agents) {
        return Some(only);
    }
    by_later_facts(&counted, told)
}

/// The one decision that, gone to another agent, makes the digest what was written.
fn only_difference(
    before: Digest,
    written: u64,
    counted: &[&Action],
    agents: &[AgentId],
) -> Option<Differing> {
    // What must have been the digest after each decision, if all behind it were the same.
    let mut after = vec![Digest(written); counted.len() + 1];
    for (place, action) in counted.iter().enumerate().rev() {
        let mut digest = after[place + 1];
        digest.remove(action);
        after[place] = digest;
    }
    let mut digest = before;
    for (place, &action) in counted.iter().enumerate() {
        for &agent in agents {
            let Some((other, task)) = gone_to(action, agent) else {
                break;
            };
            let mut tried = digest;
            tried.add(&other);
            if other != *action && tried == after[place + 1] {
                return Some(Differing {
                    number: place + 1,
                    here: action.clone(),
                    then: (task, agent),
                    is_certain: true,
                });
            }
        }
        digest.add(action);
    }
    None
}

/// The same decision about the same task with another agent.
fn gone_to(action: &Action, to: AgentId) -> Option<(Action, TaskId)> {
    let mut other = action.clone();
    match &mut other {
        Action::Assign { agent, task, .. } | Action::Report(Report::Queued { agent, task, .. }) => {
            let task = *task;
            *agent = to;
            Some((other, task))
        }
        _ => None,
    }
}

/// The first lease that by later facts was given otherwise.
fn by_later_facts(
    counted: &[&Action],
    told: &HashMap<Lease, (TaskId, AgentId)>,
) -> Option<Differing> {
    counted.iter().enumerate().find_map(|(place, &action)| {
        let &Action::Assign {
            task, agent, lease, ..
        } = action
        else {
            return None;
        };
        let then = *told.get(&lease)?;
        (then != (task, agent)).then(|| Differing {
            number: place + 1,
            here: action.clone(),
            then,
            is_certain: false,
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use loxley_model::{AgentId, JobId, Lease, TaskId};
    use loxley_policy::{Action, Reason, Report};

    use super::{Differing, find};
    use crate::digest::Digest;

    fn assign(task: u64, agent: u64, lease: u64) -> Action {
        Action::Assign {
            task: TaskId(task),
            agent: AgentId(agent),
            lease: Lease(lease),
            attempt: 1,
            reason: Reason::Named,
        }
    }

    fn queued(task: u64, agent: u64) -> Action {
        Action::Report(Report::Queued {
            task: TaskId(task),
            agent: AgentId(agent),
            reason: Reason::Named,
        })
    }

    fn digest_of(actions: &[Action]) -> u64 {
        let mut digest = Digest::new();
        actions.iter().for_each(|action| digest.add(action));
        digest.0
    }

    fn group() -> Vec<Action> {
        let accepted = Report::Accepted {
            job: JobId(1),
            tasks: 4,
        };
        vec![
            Action::Report(accepted),
            queued(1, 1),
            assign(2, 1, 10),
            Action::SetTimer {
                at: loxley_model::Time(7),
            },
            queued(3, 2),
            assign(4, 3, 11),
        ]
    }

    const AGENTS: [AgentId; 3] = [AgentId(1), AgentId(2), AgentId(3)];

    #[test]
    fn the_only_decision_that_differs_is_named_and_certain() {
        for (place, number, other, task) in [
            (1, 2, queued(1, 3), 1),
            (2, 3, assign(2, 3, 10), 2),
            (4, 4, queued(3, 3), 3),
        ] {
            let decided = group();
            let mut made = group();
            made[place] = other;
            let found = find(
                Digest::new(),
                digest_of(&made),
                &decided,
                &HashMap::new(),
                &AGENTS,
            );
            let expected = Differing {
                number,
                here: decided[place].clone(),
                then: (TaskId(task), AgentId(3)),
                is_certain: true,
            };
            assert_eq!(found, Some(expected));
        }
    }

    #[test]
    fn of_several_the_first_that_later_facts_speak_of_is_named() {
        let mut made = group();
        made[2] = assign(4, 2, 10);
        made[5] = assign(2, 1, 11);
        let told = HashMap::from([
            (Lease(10), (TaskId(4), AgentId(2))),
            (Lease(11), (TaskId(2), AgentId(1))),
        ]);
        let found = find(Digest::new(), digest_of(&made), &group(), &told, &AGENTS).unwrap();
        assert_eq!((found.number, found.is_certain), (3, false));
        assert_eq!(found.then, (TaskId(4), AgentId(2)));
        let unheard = find(
            Digest::new(),
            digest_of(&made),
            &group(),
            &HashMap::new(),
            &AGENTS,
        );
        assert_eq!(unheard, None, "nothing is said where nothing is known");
    }

    #[test]
    fn a_digest_can_be_undone() {
        let mut digest = Digest::new();
        let actions = group();
        actions.iter().for_each(|action| digest.add(action));
        actions
            .iter()
            .rev()
            .for_each(|action| digest.remove(action));
        assert_eq!(digest, Digest::new());
    }
}
