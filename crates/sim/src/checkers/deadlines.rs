//! A deadline that is lost is reported, once and no later than it passes; where everything is known, none is reported
//! that is met [S12].

use std::sync::Arc;

use crate::checkers::{Books, Violation, idle};
use crate::fleet::{FleetSetup, FleetTasks};
use crate::observer::{Happening, Observer};
use crate::time::Nanos;

/// The books: what was reported.
#[derive(Debug)]
pub struct Deadlines {
    books: Books,
    tasks: Arc<FleetTasks>,
    reported: Vec<bool>,
    submitted: Vec<Nanos>,
    /// Whether how long each task takes, and that nobody is faster than he says, is known to the scheduler.
    all_is_known: bool,
}

impl Deadlines {
    /// Books for this fleet.
    #[must_use]
    pub fn new(setup: &FleetSetup, tasks: Arc<FleetTasks>) -> Self {
        let is_plain = setup.agents.iter().all(|agent| {
            agent.spec.speed <= 1.0
                && agent.true_speed == agent.spec.speed
                && agent.failure == 0.0
                && agent.straggler.0 == 0.0
        });
        Self {
            books: Books::new("deadlines are reported when they are lost, and only then"),
            reported: vec![false; tasks.len()],
            submitted: vec![Nanos::MAX; tasks.len()],
            all_is_known: is_plain && idle::is_exact(setup) && setup.clock_skew == 0,
            tasks,
        }
    }

    /// What was found.
    pub fn verdict(&self) -> Result<(), Violation> {
        self.books.verdict()
    }

    fn ended(&mut self, now: Nanos, task: u64, ok: bool, cancelled: bool) {
        let spec = self.tasks.spec(task as usize);
        let Some(deadline) = spec.deadline else {
            return;
        };
        // What is refused is over as it comes.
        let counts = !cancelled && self.submitted[task as usize] < now;
        let (reported, late) = (self.reported[task as usize], now > deadline.0);
        self.books.require(!counts || !late || reported, now, || {
            format!("task {task} ended after its deadline, and nobody said so")
        });
        let is_known = self.all_is_known && spec.cost.is_some_and(|cost| cost.0 == self.work(task));
        self.books
            .require(!(is_known && ok && reported && !late), now, || {
                format!("task {task} was reported as late and ended in time")
            });
    }

    fn work(&self, task: u64) -> Nanos {
        self.tasks.work()[task as usize]
    }
}

impl Observer for Deadlines {
    fn see(&mut self, now: Nanos, happening: &Happening) {
        match *happening {
            Happening::Submitted { task } => self.submitted[task as usize] = now,
            Happening::DeadlineLost { task } => {
                let again = std::mem::replace(&mut self.reported[task as usize], true);
                self.books
                    .require(!again, now, || format!("task {task} was reported twice"));
            }
            Happening::Ended {
                task,
                ok,
                cancelled,
                ..
            } => self.ended(now, task, ok, cancelled),
            _ => {}
        }
    }
}
