//! Who can do what: remembered for each class of task, and for each cohort of agents.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use loxley_model::{Priority, Time};

use crate::agents::Cohort;
use crate::derived::Derived;
use crate::facts::Facts;
use crate::fleet::Fleet;
use crate::placement::MILLION;
use crate::refs::{ClassRef, CohortRef, TaskRef};
use crate::task_classes::{CapabilityClass, TaskClasses, class_bit};
use crate::tasks::{OrderKey, Task};
use crate::tournament::ClassBits;
use crate::{Config, Matching, Scheduler};

/// Tasks in the order in which the whole fleet should start them.
type InFleetOrder = BTreeSet<(Reverse<Priority>, OrderKey, TaskRef)>;

/// What is known of each class of task.
#[derive(Debug, Default)]
pub(crate) struct Capabilities {
    classes: Vec<ClassIndex>,
    /// By cohort, the classes that its agents can do: one bit each, shared when there are many.
    appetites: Vec<ClassBits>,
    /// The generation of cohorts and the number of classes that these were worked out for.
    appetites_for: (u64, usize),
}

#[derive(Debug, Default)]
struct ClassIndex {
    /// Capable cohorts with their share of the skills in millionths, the greatest share first.
    capable: Vec<(CohortRef, i64)>,
    /// The same shares by cohort: nothing for those that cannot do it.
    shares: Vec<u32>,
    /// When that was worked out, and for which generation of cohorts.
    known: Option<(Time, u64)>,
    /// Tasks that no agent can do: the most urgent first.
    held: InFleetOrder,
}

impl Capabilities {
    pub(crate) fn of(classes: &TaskClasses) -> Self {
        let mut this = Self::default();
        this.classes
            .resize_with(classes.class_count(), Default::default);
        this
    }

    fn at(&mut self, class: ClassRef) -> &mut ClassIndex {
        if class.index() >= self.classes.len() {
            self.classes
                .resize_with(class.index() + 1, Default::default);
        }
        &mut self.classes[class.index()]
    }

    /// The cohorts that can do a class of task, with their share of the skills in millionths, the
    /// greatest share first.
    pub(crate) fn capable(
        &mut self,
        facts: &Facts,
        fleet: &Fleet,
        class: ClassRef,
    ) -> &[(CohortRef, i64)] {
        let known = self.at(class);
        if !known.is_fresh(facts, fleet) {
            known.work_out(class, facts, fleet);
        }
        &known.capable
    }

    /// The share of the required skills that the agents of a cohort have, if they can do the task.
    pub(crate) fn share(
        &self,
        facts: &Facts,
        fleet: &Fleet,
        class: ClassRef,
        cohort: CohortRef,
    ) -> Option<i64> {
        match self.classes.get(class.index()) {
            Some(known) if known.is_fresh(facts, fleet) => {
                let share = known.shares[cohort.index()];
                (share > 0).then_some(i64::from(share))
            }
            _ => capability(facts.classes.class_at(class), cohort, facts, fleet),
        }
    }

    /// Who can do what, of all classes.
    pub(crate) fn known(&mut self, facts: &Facts, fleet: &Fleet) -> Known<'_> {
        let known_for = (fleet.generation, facts.classes.class_count());
        let remembers = facts.config.performance.cache_capability_matches;
        if self.appetites_for != known_for || !remembers {
            // Mostly there are only more classes than before.
            let mut first = self.appetites_for.1;
            if self.appetites_for.0 != fleet.generation || !remembers {
                self.appetites.clear();
                self.appetites.resize(facts.agents.cohorts().len(), 0);
                first = 0;
            }
            for class in (first..known_for.1).map(ClassRef::new) {
                self.capable(facts, fleet, class);
                for (cohort, _) in &self.classes[class.index()].capable {
                    self.appetites[cohort.index()] |= 1 << class_bit(class);
                }
            }
            self.appetites_for = known_for;
        }
        Known(self)
    }

    pub(crate) fn hold(&mut self, class: ClassRef, this: &Task, task: TaskRef) {
        let (priority, key) = this.fleet_order();
        self.at(class).held.insert((priority, key, task));
    }

    pub(crate) fn unhold(&mut self, class: ClassRef, this: &Task, task: TaskRef) {
        let (priority, key) = this.fleet_order();
        let was_held = self.at(class).held.remove(&(priority, key, task));
        assert!(was_held, "a held task is on the list of its class");
    }

    /// The tasks of a class that no agent can do, the most urgent first.
    pub(crate) fn held(&self, class: ClassRef) -> impl Iterator<Item = TaskRef> {
        let known = self.classes.get(class.index());
        known
            .into_iter()
            .flat_map(|known| known.held.iter().map(|(_, _, task)| *task))
    }

    /// The classes with such tasks.
    pub(crate) fn held_classes(&self) -> Vec<ClassRef> {
        let classes = self.classes.iter().enumerate();
        let with_tasks = classes.filter(|(_, known)| !known.held.is_empty());
        with_tasks.map(|(at, _)| ClassRef::new(at)).collect()
    }

    /// Whether what is remembered is true, and the held tasks are those of `fresh`.
    pub(crate) fn verify(
        &self,
        facts: &Facts,
        fleet: &Fleet,
        fresh: &Self,
    ) -> Result<(), &'static str> {
        let none = BTreeSet::new();
        let held = |this: &Self, class: ClassRef| -> InFleetOrder {
            let known = this.classes.get(class.index());
            known.map_or(&none, |known| &known.held).clone()
        };
        let mut appetites = vec![0; self.appetites.len()];
        for class in (0..facts.classes.class_count()).map(ClassRef::new) {
            if held(self, class) != held(fresh, class) {
                return Err("held tasks");
            }
            for cohort in (0..facts.agents.cohorts().len()).map(CohortRef::new) {
                let now = capability(facts.classes.class_at(class), cohort, facts, fleet);
                if self.share(facts, fleet, class, cohort) != now {
                    return Err("who can do what");
                }
                if let Some(appetite) = appetites.get_mut(cohort.index()).filter(|_| now.is_some())
                {
                    *appetite |= 1 << class_bit(class);
                }
            }
        }
        let known_for = (fleet.generation, facts.classes.class_count());
        if self.appetites_for == known_for && self.appetites != appetites {
            return Err("appetites");
        }
        Ok(())
    }
}

/// Who can do what, where nothing is behind: only this tells it of all classes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'a>(&'a Capabilities);

impl<'a> Known<'a> {
    /// The classes of task that the agents of a cohort can do: one bit each, shared when there are many.
    pub(crate) fn appetite(self, cohort: CohortRef) -> ClassBits {
        self.0.appetites[cohort.index()]
    }

    pub(crate) fn can_do(self, class: ClassRef, cohort: CohortRef) -> bool {
        self.0.classes[class.index()].shares[cohort.index()] > 0
    }

    /// The cohorts that cannot do a class of task, but perhaps one of these classes.
    pub(crate) fn others_for(
        self,
        class: ClassRef,
        classes: ClassBits,
    ) -> impl Iterator<Item = CohortRef> + use<'a> {
        let shares = self.0.classes[class.index()].shares.iter();
        let cohorts = shares.zip(&self.0.appetites).enumerate();
        let others =
            cohorts.filter(move |(_, (share, appetite))| **share == 0 && **appetite & classes != 0);
        others.map(|(at, _)| CohortRef::new(at))
    }
}

impl ClassIndex {
    fn work_out(&mut self, class: ClassRef, facts: &Facts, fleet: &Fleet) {
        let spec = facts.classes.class_at(class);
        let cohorts = facts.agents.cohorts().len();
        self.capable.clear();
        self.shares.clear();
        self.shares.resize(cohorts, 0);
        for cohort in (0..cohorts).map(CohortRef::new) {
            if let Some(share) = capability(spec, cohort, facts, fleet) {
                self.capable.push((cohort, share));
                self.shares[cohort.index()] = share as u32;
            }
        }
        self.capable
            .sort_by_key(|(cohort, skill_match)| (-skill_match, *cohort));
        self.known = Some((facts.now, fleet.generation));
    }

    fn is_fresh(&self, facts: &Facts, fleet: &Fleet) -> bool {
        let rules = &facts.config.performance;
        rules.cache_capability_matches
            && self.known.is_some_and(|(at, generation)| {
                generation == fleet.generation && facts.now.since(at) <= rules.cache_ttl
            })
    }
}

impl Derived {
    /// The classes of task that the agents of a cohort can do.
    pub(crate) fn appetite(&mut self, facts: &Facts, cohort: CohortRef) -> ClassBits {
        self.capabilities.known(facts, &self.fleet).appetite(cohort)
    }
}

impl Scheduler {
    /// Whether the agents of a cohort can do tasks of a class.
    pub(crate) fn is_capable(&self, class: ClassRef, cohort: CohortRef) -> bool {
        let known = &self.derived.capabilities;
        let share = known.share(&self.facts, &self.derived.fleet, class, cohort);
        share.is_some()
    }

    /// The cohorts that can do a class of task, with their share of its skills, the greatest first.
    pub(crate) fn capable(&mut self, class: ClassRef) -> &[(CohortRef, i64)] {
        let Derived {
            capabilities,
            fleet,
            ..
        } = &mut self.derived;
        capabilities.capable(&self.facts, fleet, class)
    }
}

/// The share of the required skills that the agents of a cohort have, if they may do the task at all.
fn capability(
    class: &CapabilityClass,
    cohort: CohortRef,
    facts: &Facts,
    fleet: &Fleet,
) -> Option<i64> {
    let members = facts.agents.cohort(cohort);
    if fleet.cohort(cohort).count == 0 || !fits(class, members) {
        return None;
    }
    let required = class.skills.len();
    let has = class.skills.count_in(&members.skills);
    let enough = has == required || (!class.strict && has > 0 && may_do_parts(class, facts, fleet));
    enough.then(|| match required {
        0 => MILLION,
        _ => MILLION * has as i64 / required as i64,
    })
}

/// Whether agents with some of the skills of a class may do it.
fn may_do_parts(class: &CapabilityClass, facts: &Facts, fleet: &Fleet) -> bool {
    let Config { capabilities, .. } = &facts.config;
    match capabilities.matching_strategy {
        Matching::Exact => false,
        Matching::BestFit | Matching::EarliestFinish => true,
        Matching::Fallback => {
            let mut cohorts = facts.agents.cohorts().iter().zip(fleet.cohorts());
            let has_exact = cohorts.any(|(cohort, index)| {
                index.count > 0 && fits(class, cohort) && class.skills.is_subset(&cohort.skills)
            });
            capabilities.fallback_enabled && !has_exact
        }
    }
}

fn fits(class: &CapabilityClass, cohort: &Cohort) -> bool {
    class.needs.is_empty()
        || cohort
            .resources
            .have_room(&Default::default(), &class.needs)
}

#[cfg(test)]
mod tests {
    use loxley_model::{
        AgentId, AgentSpec, JobId, JobSpec, SkillSet, Span, TaskId, TaskKind, TaskSpec,
    };

    use super::*;
    use crate::Input;

    #[test]
    fn who_can_do_a_class_is_remembered_as_long_as_the_rules_say() {
        for (cache, ttl, remembered) in [(true, 10, true), (true, 1, false), (false, 10, false)] {
            let mut config = Config::default();
            config.performance.cache_capability_matches = cache;
            config.performance.cache_ttl = Span(ttl);
            let mut scheduler = Scheduler::new(config, Time::ZERO);
            let agent = AgentSpec::new(AgentId(1), SkillSet::none());
            scheduler.handle(Time(1), Input::AgentJoined(agent.into()), &mut Vec::new());
            for now in [2, 5] {
                let job = JobSpec::new(JobId(now));
                let tasks = [TaskSpec::new(TaskId(now), TaskKind::default().into())].into();
                let input = Input::TasksSubmitted { job, tasks };
                scheduler.handle(Time(now), input, &mut Vec::new());
            }
            let known = &scheduler.derived.capabilities.classes[0].known;
            let known_at = known.map(|(at, _)| at);
            assert_eq!(known_at == Some(Time(2)), remembered);
        }
    }
}
