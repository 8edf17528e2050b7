//! The plain way to write a scheduler: for every task, score every agent.

use std::collections::BTreeMap;
use std::time::Instant;

use loxley_balance::Rng;
use loxley_model::SkillSet;

use super::agent_skills;

struct Agent {
    skills: SkillSet,
    /// By priority, highest first, then in order of arrival.
    queue: BTreeMap<(u8, u64), u64>,
    completed: u64,
    failed: u64,
}

pub(super) struct Scheduler {
    agents: Vec<Agent>,
    skill_sets: Vec<SkillSet>,
    rng: Rng,
    next: u64,
}

impl Scheduler {
    pub(super) fn filled(skill_sets: &[SkillSet], agents: usize, queued: usize) -> Self {
        let agents = (0..agents).map(|agent| Agent {
            skills: agent_skills(agent),
            queue: BTreeMap::new(),
            completed: 0,
            failed: 0,
        });
        let skill_sets = skill_sets.to_vec();
        let mut scheduler = Self {
            agents: agents.collect(),
            skill_sets,
            rng: Rng::new(42),
            next: 0,
        };
        // Filled directly: placing this many would take minutes.
        let count = scheduler.agents.len();
        for task in 0..queued as u64 {
            let priority = 1 + scheduler.rng.below(5) as u8;
            scheduler.agents[task as usize % count]
                .queue
                .insert((5 - priority, task), task);
        }
        scheduler.next = queued as u64;
        scheduler
    }

    pub(super) fn cycles(&mut self, count: usize) -> f64 {
        let start = Instant::now();
        for _ in 0..count {
            self.submit();
            let at = self.rng.index(self.agents.len());
            let agent = &mut self.agents[at];
            if agent.queue.pop_first().is_some() {
                agent.completed += 1;
            }
        }
        start.elapsed().as_nanos() as f64 / count as f64
    }

    fn submit(&mut self) {
        self.next += 1;
        let required = &self.skill_sets[self.rng.index(self.skill_sets.len())];
        let priority = 1 + self.rng.below(5) as u8;
        let scored = self.agents.iter().enumerate().filter_map(|(at, agent)| {
            let has = required.count_in(&agent.skills);
            let enough = if priority >= 4 {
                has == required.len()
            } else {
                has > 0
            };
            let outcomes = agent.completed + agent.failed;
            let history = if outcomes == 0 {
                1.0
            } else {
                agent.completed as f64 / outcomes as f64
            };
            let skill_match = has as f64 / required.len() as f64;
            enough.then(|| {
                (
                    skill_match - agent.queue.len() as f64 / 10.0 + 0.3 * history,
                    at,
                )
            })
        });
        let best = scored.max_by(|(left, _), (right, _)| left.total_cmp(right));
        if let Some((_, at)) = best {
            self.agents[at]
                .queue
                .insert((5 - priority, self.next), self.next);
        }
    }
}
