//! The network between the scheduler and the agents: late, repeated, overtaken, held up.

use loxley_model::{AgentId, NameId, Outcome, Span};
use loxley_policy::{Input, Vitals};

use super::agent_model::Held;
use super::{Event, FleetWorld};
use crate::observer::Observer;

/// What travels between the scheduler and an agent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    pub(super) agent: u32,
    pub(super) session: u32,
    pub(super) body: Body,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Body {
    // To the agent.
    Assign(Held),
    Retract(Held, bool),
    Cancel(Held),
    Rejoin,
    // To the scheduler.
    /// Registers, and wants so many tasks at once.
    Join(u32),
    Heartbeat,
    Want(u32),
    Started(Held),
    Finished(Held, Outcome),
    Yielded(Held, bool),
}

impl Body {
    pub(super) fn is_for_agent(&self) -> bool {
        matches!(
            self,
            Self::Assign(_) | Self::Retract(..) | Self::Cancel(_) | Self::Rejoin
        )
    }
}

impl<O: Observer> FleetWorld<'_, O> {
    pub(super) fn send(&mut self, agent: u32, body: Body) {
        let to_agent = body.is_for_agent();
        let model = &self.agents[agent as usize];
        // The scheduler addresses the session it knows; the agent speaks in the one it is in.
        let session = if to_agent {
            model.known_session
        } else {
            model.session
        };
        let message = Message {
            agent,
            session,
            body,
        };
        if !self.agents[agent as usize].connected {
            let place = self.store(message);
            self.agents[agent as usize].waiting.push(place);
            return;
        }
        if self.instant {
            self.at_once.push_back(message);
            return;
        }
        self.transmit(message, to_agent);
        let rng = if to_agent {
            &mut self.chance.to_agent
        } else {
            &mut self.chance.to_scheduler
        };
        if rng.chance(self.network.duplicate) {
            self.transmit(message, to_agent);
        }
    }

    pub(super) fn transmit(&mut self, message: Message, to_agent: bool) {
        let rng = if to_agent {
            &mut self.chance.to_agent
        } else {
            &mut self.chance.to_scheduler
        };
        let mut arrival = self.now + self.network.draw(rng);
        let is_held_back = self.network.hold > 0.0 && matches!(message.body, Body::Finished(..));
        if is_held_back {
            arrival += crate::time::nanos(self.network.hold);
        } else if !self.network.reorder {
            let last = &mut self.agents[message.agent as usize].arrivals[usize::from(to_agent)];
            arrival = arrival.max(*last);
            *last = arrival;
        }
        let place = self.store(message);
        self.events.push(arrival, Event::Deliver(place));
    }

    pub(super) fn store(&mut self, message: Message) -> u32 {
        if let Some(place) = self.free.pop() {
            self.messages[place as usize] = message;
            return place;
        }
        self.messages.push(message);
        (self.messages.len() - 1) as u32
    }

    pub(super) fn deliver(&mut self, message: Message) {
        let Message {
            agent,
            session,
            body,
        } = message;
        if session == 0 && matches!(body, Body::Join(_)) {
            return self.start_agent(agent);
        }
        if !self.agents[agent as usize].connected {
            let place = self.store(message);
            self.agents[agent as usize].waiting.push(place);
            return;
        }
        if body.is_for_agent() {
            self.deliver_to_agent(agent, session, body);
        } else {
            self.deliver_to_scheduler(agent, session, body);
        }
    }

    /// A server keeps one session per agent: what an older one says of the agent itself is not
    /// news. What it says of a task is passed on, for the lease decides.
    fn deliver_to_scheduler(&mut self, agent: u32, session: u32, body: Body) {
        let id = AgentId::from_number(agent);
        let known = self.agents[agent as usize].known_session;
        let input = match body {
            Body::Join(want) if session > known => {
                self.agents[agent as usize].known_session = session;
                let spec = self.setup.agents[agent as usize].spec.clone();
                self.tell(Input::AgentJoined(Box::new(spec)));
                if self.setup.agents[agent as usize].round_trip.is_some() {
                    let vitals = self.vitals(agent);
                    self.tell(Input::AgentHeard { agent: id, vitals });
                }
                Input::WorkRequested { agent: id, want }
            }
            Body::Heartbeat if session == known => Input::AgentHeard {
                agent: id,
                vitals: self.vitals(agent),
            },
            Body::Want(want) if session == known => Input::WorkRequested { agent: id, want },
            Body::Started(held) => Input::TaskStarted {
                task: held.task,
                lease: held.lease,
            },
            Body::Finished(held, outcome) => Input::TaskFinished {
                task: held.task,
                lease: held.lease,
                outcome,
            },
            Body::Yielded(held, yielded) => Input::TaskYielded {
                task: held.task,
                lease: held.lease,
                yielded,
            },
            _ => return,
        };
        self.tell(input);
    }

    /// What an agent says of itself in a heartbeat.
    pub(super) fn vitals(&self, agent: u32) -> Vitals {
        let by_network = || crate::time::nanos(2.0 * self.network.delay.mean());
        let said = self.setup.agents[agent as usize].round_trip;
        Vitals {
            throttle: 0.0,
            round_trip: Span(said.unwrap_or_else(by_network)),
        }
    }
}
