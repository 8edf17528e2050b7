//! Looking ahead: memory is fetched for many inputs at once instead of for one after the other.
//!
//! With a million tasks and ten thousand agents, what an input is about is rarely in the processor's
//! caches, and the way to a task is a chain: agent, queue, entry, task. A driver that has a whole frame
//! of inputs at hand shows it before it handles them one by one. All chains are then walked side by
//! side, and the processor waits for the longest instead of for the sum.

use alloc::vec::Vec;
use core::hint::black_box;

use crate::refs::{AgentRef, TaskRef};
use crate::{Input, Scheduler};

impl Scheduler {
    /// Has what is needed for these inputs fetched from memory. Decides nothing and changes nothing:
    /// it is right, and only slower, never to call this, or to handle other inputs afterwards.
    pub fn foresee(&self, inputs: &[Input]) {
        let mut asking: Vec<AgentRef> = Vec::with_capacity(inputs.len());
        let mut tasks: Vec<TaskRef> = Vec::with_capacity(inputs.len());
        let mut ends = false;
        for input in inputs {
            match input {
                Input::WorkRequested { agent, .. } => asking.extend(self.agents.find(*agent)),
                Input::TaskStarted { task, .. } => tasks.extend(self.ids.live(*task)),
                Input::TaskFinished { task, .. } => {
                    ends = true;
                    tasks.extend(self.ids.live(*task));
                }
                _ => {}
            }
        }
        let under_way = tasks.len();
        // Step by step down the chains: within a step nothing waits for anything else.
        for agent in &asking {
            self.agents.touch(*agent);
        }
        for agent in &asking {
            self.agents[*agent].queue.touch();
        }
        let next = |agent: &AgentRef| self.agents[*agent].queue.likely_next();
        tasks.extend(asking.iter().filter_map(next));
        for task in &tasks {
            self.tasks.touch(*task);
        }
        for task in &tasks[..under_way] {
            self.agents.touch(self.tasks[*task].agent);
            if ends {
                self.jobs.touch(self.tasks[*task].job);
            }
        }
        black_box(&tasks);
    }
}
