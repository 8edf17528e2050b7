//! An agent that dies is noticed, also if it was silent and heard again before [S17].

use crate::checkers::{Books, Violation};
use crate::fleet::FleetSetup;
use crate::observer::{Happening, Observer};
use crate::time::{Nanos, SECOND};

/// Messages may be under way for so long: heartbeats of the dead that come late.
const TRAVEL: Nanos = 60 * SECOND;

/// The books: who died, and until when that must be noticed.
#[derive(Debug)]
pub struct Liveness {
    books: Books,
    agents: Vec<Entry>,
    lost_after: Nanos,
}

#[derive(Debug, Clone, Default)]
struct Entry {
    sends_heartbeats: bool,
    /// The scheduler was told that it is there, and has not said since that it is gone.
    known: bool,
    /// When its death must have been noticed.
    due: Option<Nanos>,
}

impl Liveness {
    /// Books for this fleet.
    #[must_use]
    pub fn new(setup: &FleetSetup) -> Self {
        let entry = |agent: &crate::fleet::AgentSetup| Entry {
            sends_heartbeats: agent.heartbeat.is_some() && agent.spec.heartbeats,
            ..Entry::default()
        };
        Self {
            books: Books::new("an agent that dies is noticed"),
            agents: setup.agents.iter().map(entry).collect(),
            lost_after: setup.config.heartbeats.lost_after.0,
        }
    }

    /// What was found.
    pub fn verdict(&self) -> Result<(), Violation> {
        self.books.verdict()
    }
}

impl Observer for Liveness {
    fn see(&mut self, now: Nanos, happening: &Happening) {
        let died = |agent: &Entry| agent.sends_heartbeats && agent.known;
        match *happening {
            Happening::Joined { worker } => {
                let agent = &mut self.agents[worker as usize];
                agent.known = true;
                agent.due = None;
            }
            Happening::Lost { worker } => {
                let agent = &mut self.agents[worker as usize];
                agent.known = false;
                agent.due = None;
            }
            Happening::Left { worker } => self.agents[worker as usize].known = false,
            Happening::Crashed { worker } if died(&self.agents[worker as usize]) => {
                self.agents[worker as usize].due = Some(now + self.lost_after + TRAVEL);
            }
            // What it had said before arrives now.
            Happening::Reconnected { worker } => {
                let agent = &mut self.agents[worker as usize];
                agent.due = agent.due.map(|_| now + self.lost_after + TRAVEL);
            }
            _ => {}
        }
        for (number, agent) in self.agents.iter().enumerate() {
            let overdue = agent.due.is_some_and(|due| now > due);
            self.books.require(!overdue, now, || {
                format!("agent {number} is dead, and nobody has noticed")
            });
        }
    }
}
