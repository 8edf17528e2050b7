//! Skills that agents earn: who keeps succeeding at tasks that need a skill which it did not declare has that skill from
//! then on, until it is taken back.
//!
//! Only tasks that need several skills can be tried by somebody who has some of them, and only where the way of matching
//! lets them be. A skill that was earned is lost and regained as a declared one is (see [`learning`](crate::learning)).

use alloc::vec::Vec;

use loxley_model::{AgentId, SkillId, SkillSet};

use crate::refs::AgentRef;
use crate::scheduler::{reject, report};
use crate::{Action, InputError, Report, Scheduler};

impl Scheduler {
    /// Whether an outcome at a task with these skills can teach that an agent has one which it did not declare.
    pub(crate) fn is_trial(&self, agent: AgentRef, skills: &SkillSet) -> bool {
        let has = &self
            .facts
            .agents
            .cohort(self.facts.agents[agent].cohort)
            .skills;
        self.facts.config.added.earning.enabled && !skills.is_subset(has)
    }

    /// An agent ended a task that needs these skills, some of which it does not have.
    pub(crate) fn note_trial(
        &mut self,
        agent: AgentRef,
        skills: &SkillSet,
        succeeded: bool,
        actions: &mut Vec<Action>,
    ) {
        let needed = self.facts.config.added.earning.successes;
        for skill in skills.iter() {
            let this = &mut self.facts.agents[agent];
            if this.has_skill(skill) || this.added.revoked.contains(skill) {
                continue;
            }
            let tried = &mut this.added.tried;
            let known = tried.iter().position(|(tried, _)| *tried == skill);
            let before = known.map_or(0, |at| tried.swap_remove(at).1);
            if !succeeded {
                continue;
            }
            if before + 1 < needed {
                tried.push((skill, before + 1));
            } else {
                self.earn(agent, skill, actions);
            }
        }
    }

    fn earn(&mut self, agent: AgentRef, skill: SkillId, actions: &mut Vec<Action>) {
        let this = &mut self.facts.agents[agent];
        let id = this.id;
        this.added.earned = this.added.earned.iter().chain([skill]).collect();
        report(Report::SkillEarned { agent: id, skill }, actions);
        self.change_cohort(agent);
        self.marks.release_held();
    }

    /// Takes a skill back that an agent earned. It does not earn it again before it registers anew.
    pub(crate) fn revoke_skill(&mut self, id: AgentId, skill: SkillId, actions: &mut Vec<Action>) {
        let Some(agent) = self.find_agent(id, actions) else {
            return;
        };
        let this = &mut self.facts.agents[agent];
        if !this.added.earned.contains(skill) {
            return reject(InputError::NotEarned(id, skill), actions);
        }
        let others = this.added.earned.iter().filter(|other| *other != skill);
        this.added.earned = others.collect();
        this.added.revoked = this.added.revoked.iter().chain([skill]).collect();
        // Whether it had lost it meanwhile, or tries it again, does not matter any more.
        this.record.skills.retain(|record| record.skill != skill);
        self.derived.probes.remove(&(skill, agent));
        report(Report::SkillRevoked { agent: id, skill }, actions);
        self.change_cohort(agent);
        self.requeue_what_it_cannot_do(agent);
    }
}
