//! While users wait who have less than their share of the slots, nobody starts a task beyond its own [S16].
//!
//! Only where every moment adds up, as for [`Urgency`](super::Urgency), and speeds do not count. What has moved as often
//! as it may, or is protected, is taken by others only as a last resort: nobody has to wait for that.

use std::collections::HashMap;
use std::sync::Arc;

use loxley_model::{Priority, UserId};
use loxley_policy::Matching;

use crate::checkers::floor::Floor;
use crate::checkers::urgency::are_long;
use crate::checkers::{Books, Violation, idle};
use crate::fleet::{Fault, FleetSetup, FleetTasks};
use crate::observer::{Happening, Observer};
use crate::time::Nanos;

/// The books: what each user has.
#[derive(Debug)]
pub struct Shares {
    books: Books,
    floor: Floor,
    users: HashMap<UserId, User>,
    /// Weights that are still to be set, the last first.
    weights: Vec<(Nanos, UserId, u32)>,
    moves: HashMap<u64, u32>,
    moves_max: u32,
    protected_from: Priority,
}

#[derive(Debug, Clone)]
struct User {
    weight: u64,
    /// Tasks that are not over.
    live: u64,
    running: u64,
}

impl Default for User {
    fn default() -> Self {
        Self {
            weight: 1,
            live: 0,
            running: 0,
        }
    }
}

impl Shares {
    /// Books for this fleet, if the claim holds of it.
    #[must_use]
    pub fn new(setup: &FleetSetup, tasks: &Arc<FleetTasks>) -> Option<Self> {
        let rules = &setup.config;
        let holds = idle::is_exact(setup)
            && idle::nothing_keeps_back(setup, tasks)
            && rules.quotas.user_shares
            && rules.capabilities.matching_strategy != Matching::EarliestFinish
            && are_long(setup, tasks);
        holds.then(|| Self {
            books: Books::new("nobody has more than its share while others wait for theirs"),
            floor: Floor::new(setup, tasks),
            users: HashMap::new(),
            weights: setup
                .faults
                .iter()
                .rev()
                .filter_map(|(at, fault)| match *fault {
                    Fault::Weight(user, weight) => Some((*at, user, weight)),
                    _ => None,
                })
                .collect(),
            moves: HashMap::new(),
            moves_max: rules.guards.max_moves,
            protected_from: match rules.priority.preserve_high_priority {
                true => rules.priority.high_priority_threshold,
                false => Priority::HIGHEST,
            },
        })
    }

    /// What was found.
    pub fn verdict(&self) -> Result<(), Violation> {
        self.books.verdict()
    }

    fn user_of(&self, task: u64) -> UserId {
        self.floor.tasks.user(task as usize)
    }

    fn user(&mut self, task: u64) -> &mut User {
        let user = self.user_of(task);
        self.users.entry(user).or_default()
    }

    /// A user's share of the slots, rounded up.
    fn share(&self, user: &User) -> u64 {
        let up = self.floor.agents.iter().filter(|agent| agent.up);
        let slots: u64 = up.map(|agent| u64::from(agent.slots)).sum();
        let live = self.users.values().filter(|user| user.live > 0);
        let all: u64 = live.map(|user| user.weight).sum();
        (slots * user.weight).div_ceil(all.max(user.weight)).max(1)
    }

    fn starts(&mut self, now: Nanos, worker: u32, task: u64) {
        let own = self.user_of(task);
        let Some(this) = self.users.get(&own) else {
            return;
        };
        let share = self.share(this);
        if this.running < share || !self.floor.is_first_start(task) {
            return;
        }
        let mut before = self.floor.startable().filter(|(other, since)| {
            let user = &self.users[&self.user_of(*other)];
            let moved = self.moves.get(other).copied().unwrap_or(0);
            let priority = self.floor.tasks.spec(*other as usize).priority;
            *since < now
                && self.user_of(*other) != own
                && user.running < self.share(user)
                && moved < self.moves_max
                && priority < self.protected_from
                && self.floor.fits(worker as usize, *other)
        });
        let before = before.next();
        let running = this.running;
        self.books.require(before.is_none(), now, || {
            let (other, _) = before.unwrap_or_default();
            format!(
                "task {task} starts on agent {worker} although {own:?} has {running} of {share}, \
                 while {other} of another user waits"
            )
        });
    }
}

impl Observer for Shares {
    fn see(&mut self, now: Nanos, happening: &Happening) {
        while let Some(&(at, user, weight)) = self.weights.last().filter(|(at, ..)| *at < now) {
            debug_assert!(at < now, "they are set in order");
            self.users.entry(user).or_default().weight = u64::from(weight);
            self.weights.pop();
        }
        // Weights that change in this very moment may have changed just before or after.
        let is_settled = self.weights.last().is_none_or(|(at, ..)| *at > now);
        match *happening {
            Happening::Submitted { task } => self.user(task).live += 1,
            Happening::Moved { task, .. } => *self.moves.entry(task).or_default() += 1,
            Happening::Started { worker, task } => {
                if is_settled {
                    self.starts(now, worker, task);
                }
                self.user(task).running += 1;
            }
            Happening::Finished { task, .. } | Happening::Stopped { task, .. } => {
                self.user(task).running -= 1;
            }
            Happening::Ended { task, .. } => {
                let user = self.user(task);
                user.live = user.live.saturating_sub(1);
            }
            _ => {}
        }
        self.floor.see(now, happening);
    }
}
