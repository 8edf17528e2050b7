//! Memory that is fetched for many tasks at once instead of for one after the other.
//!
//! With a million tasks and ten thousand agents, what an answer of an agent is about is rarely in the
//! processor's caches, and the way to it is a chain: task, agent, queue, the task that comes next. Whoever
//! has many answers at hand names their tasks before they are handled one by one. All chains are then
//! walked side by side, and the processor waits for the longest instead of for the sum.

use alloc::vec::Vec;

use loxley_model::TaskId;

use crate::Scheduler;
use crate::refs::TaskRef;

/// With no more agents than this, what is in their hands was used a moment ago, and the tasks that come
/// next are fetched several at a time ([`Queue::look_ahead`](crate::queue::Queue::look_ahead)). With more, those
/// would be gone from the cache again when their turn has come.
pub(crate) const FEW_AGENTS: usize = 256;

impl Scheduler {
    /// Has what is needed to hear that these tasks started or ended fetched from memory. Decides nothing
    /// and changes nothing: it is right, and only slower, never to call this, or to go on otherwise.
    pub fn warm_caches(&self, tasks: impl Iterator<Item = TaskId>) {
        if self.derived.fleet.len() <= FEW_AGENTS {
            return;
        }
        let tasks: Vec<TaskRef> = tasks.filter_map(|id| self.facts.ids.live(id)).collect();
        // Step by step down the chains: within a step nothing waits for anything else.
        for task in &tasks {
            self.facts.tasks.touch(*task);
        }
        let agents = || tasks.iter().map(|task| self.facts.tasks[*task].agent);
        for (task, agent) in tasks.iter().zip(agents()) {
            self.facts.agents.touch(agent);
            self.derived.fleet.touch(agent);
            self.facts.jobs.touch(self.facts.tasks[*task].job);
        }
        let queues = || agents().filter_map(|agent| self.derived.fleet.queue(agent));
        for queue in queues() {
            queue.touch();
        }
        for next in queues().filter_map(|queue| queue.likely_next()) {
            self.facts.tasks.touch(next);
        }
    }
}
