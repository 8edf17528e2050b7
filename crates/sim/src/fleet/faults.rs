//! What goes wrong and gets well again.

use loxley_model::{AgentId, NameId, TaskId};
use loxley_policy::{Input, Selection};

use super::{Event, Fault, FleetWorld, Network};
use crate::observer::{Happening, Observer};

impl<O: Observer> FleetWorld<'_, O> {
    pub(super) fn fault(&mut self, fault: &Fault) {
        match *fault {
            Fault::Crash(agent) => {
                if std::mem::take(&mut self.agents[agent as usize].up) {
                    self.stop_everything(agent);
                    self.observer
                        .see(self.now, &Happening::Crashed { worker: agent });
                }
            }
            Fault::Start(agent) => self.start_agent(agent),
            Fault::Leave(agent) => {
                if std::mem::take(&mut self.agents[agent as usize].up) {
                    self.stop_everything(agent);
                    self.observer
                        .see(self.now, &Happening::Left { worker: agent });
                    self.tell(Input::AgentLeft {
                        agent: AgentId::from_number(agent),
                        tasks: loxley_policy::Leftovers::Requeue,
                    });
                }
            }
            Fault::Cut(agent) => {
                if std::mem::take(&mut self.agents[agent as usize].connected) {
                    self.observer
                        .see(self.now, &Happening::CutOff { worker: agent });
                }
            }
            Fault::Mend(agent) => self.mend(agent),
            Fault::Slow(agent, factor) => {
                let normal = self.setup.agents[agent as usize].true_speed;
                self.change_speed(agent, normal / factor);
            }
            Fault::Cancel(task) => {
                self.tell(Input::CancelRequested(Selection::Task(TaskId(task))));
            }
            Fault::CancelJob(job) => self.cancel_job(job),
            Fault::Drain(agent) => {
                self.tell(Input::AgentDrained(AgentId::from_number(agent)));
            }
            Fault::Silent(agent) => {
                self.tell(Input::AgentSilent(AgentId::from_number(agent)));
            }
            Fault::Heard(agent) => {
                let vitals = self.vitals(agent);
                let agent = AgentId::from_number(agent);
                self.tell(Input::AgentHeard { agent, vitals });
            }
            Fault::Rebalance => self.tell(Input::RebalanceRequested),
            Fault::Weight(user, weight) => self.tell(Input::UserWeightSet { user, weight }),
            Fault::Limit(group, limit) => self.tell(Input::GroupLimitSet { group, limit }),
            Fault::Reconfigure(ref config) => {
                self.tell(Input::ConfigChanged(config.clone()));
            }
            Fault::CalmNetwork => {
                self.network = Network {
                    delay: self.setup.network.delay,
                    ..Network::default()
                };
                self.instant = self.network.is_instant();
            }
        }
    }

    fn change_speed(&mut self, agent: u32, speed: f64) {
        self.agents[agent as usize].change_speed(self.now, speed);
        for run in &self.agents[agent as usize].running {
            self.events
                .push(run.ends, Event::Finish(agent, run.held.lease));
        }
    }

    fn mend(&mut self, agent: u32) {
        let model = &mut self.agents[agent as usize];
        if model.connected {
            return;
        }
        model.connected = true;
        let waiting = std::mem::take(&mut model.waiting);
        self.observer
            .see(self.now, &Happening::Reconnected { worker: agent });
        for place in waiting {
            let message = self.messages[place as usize];
            self.free.push(place);
            if self.instant {
                self.at_once.push_back(message);
            } else {
                self.transmit(message, message.body.is_for_agent());
            }
        }
    }
}
