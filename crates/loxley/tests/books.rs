//! Random operations, checked against books of our own: where every task is, who may answer for
//! it, and that everything ends once the world is kind again. The clock is moved by hand, so a
//! failure is the same every time.
#![expect(clippy::unwrap_used, reason = "a failure in a test is the message")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use loxley::{Agent, Assignment, ManualClock, Scheduler, Task, TaskId};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Submit {
        priority: u8,
        skill: usize,
        after: Vec<usize>,
        retries: u32,
        onto: Option<usize>,
    },
    Ask(usize),
    Steal(usize),
    Complete(usize),
    Fail(usize),
    FailForGood(usize),
    Cancel(usize),
    Join(usize),
    Remove(usize),
    Leave(usize),
    Resubmit,
    Rebalance,
    Pass(u64),
}

const AGENTS: usize = 4;
const SKILLS: [&str; 3] = ["red", "green", "blue"];

/// Everybody can do the first skill, and some of the others.
fn skills_of(agent: usize) -> &'static [&'static str] {
    match agent {
        0 => &["red"],
        1 => &["red", "green"],
        2 => &["red", "blue"],
        _ => &["red", "green", "blue"],
    }
}

fn step() -> impl Strategy<Value = Step> {
    let agent = 0..AGENTS;
    let submit = (
        1..=5_u8,
        0..SKILLS.len(),
        prop::collection::vec(0..40_usize, 0..3),
        0..3_u32,
        prop::option::weighted(0.3, 0..AGENTS),
    )
        .prop_map(|(priority, skill, after, retries, onto)| Step::Submit {
            priority,
            skill,
            after,
            retries,
            onto,
        });
    prop_oneof![
        8 => submit,
        10 => agent.clone().prop_map(Step::Ask),
        3 => agent.clone().prop_map(Step::Steal),
        8 => (0..8_usize).prop_map(Step::Complete),
        3 => (0..8_usize).prop_map(Step::Fail),
        1 => (0..8_usize).prop_map(Step::FailForGood),
        1 => (0..40_usize).prop_map(Step::Cancel),
        2 => agent.clone().prop_map(Step::Join),
        1 => agent.clone().prop_map(Step::Remove),
        1 => agent.prop_map(Step::Leave),
        1 => Just(Step::Resubmit),
        1 => Just(Step::Rebalance),
        3 => (1..2_000_u64).prop_map(Step::Pass),
    ]
}

/// How a task stands, by our own account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Live,
    Finished,
    Failed,
    Cancelled,
    Returned,
}

struct Known {
    id: TaskId,
    standing: Standing,
    priority: u8,
    skill: usize,
    after: Vec<usize>,
    retries_left: u32,
    retries: u32,
    /// How many agents were lost while they had it.
    losses: u32,
}

/// A task that was with so many lost agents is given up.
const LOSSES_MAX: u32 = 5;

struct World {
    clock: ManualClock,
    scheduler: Scheduler<usize>,
    tasks: Vec<Known>,
    present: BTreeSet<usize>,
    /// Every assignment ever made that was not answered, and whether it should still count.
    open: Vec<(usize, Assignment<usize>, bool)>,
}

impl World {
    fn new() -> Self {
        let clock = ManualClock::new();
        let scheduler = Scheduler::builder().clock(clock.clone()).build();
        Self {
            clock,
            scheduler,
            tasks: Vec::new(),
            present: BTreeSet::new(),
            open: Vec::new(),
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Submit {
                priority,
                skill,
                after,
                retries,
                onto,
            } => self.submit(*priority, *skill, after, *retries, *onto),
            Step::Ask(agent) => {
                let found = self.scheduler.try_next_task(&name(*agent));
                assert_eq!(found.is_ok(), self.present.contains(agent));
                if let Ok(Some(assignment)) = found {
                    self.assigned(*agent, assignment);
                }
            }
            Step::Steal(agent) => {
                let found = self.scheduler.request_work(&name(*agent));
                assert_eq!(found.is_ok(), self.present.contains(agent));
                if let Ok(Some(assignment)) = found {
                    let priority = self.tasks[*assignment.payload].priority;
                    assert!(priority < 4, "an urgent task was stolen");
                    self.assigned(*agent, assignment);
                }
            }
            Step::Complete(at) => self.answer(*at, Answer::Complete),
            Step::Fail(at) => self.answer(*at, Answer::Fail),
            Step::FailForGood(at) => self.answer(*at, Answer::FailForGood),
            Step::Cancel(at) => self.cancel(*at),
            Step::Join(agent) => {
                self.lose(*agent);
                let agent_spec = Agent::new(name(*agent)).skills(skills_of(*agent).to_vec());
                self.scheduler.register_agent(agent_spec).unwrap();
                self.present.insert(*agent);
            }
            Step::Remove(agent) => {
                let result = self.scheduler.remove_agent(&name(*agent));
                assert_eq!(result.is_ok(), self.present.remove(agent));
                self.void_leases(*agent);
            }
            Step::Leave(agent) => self.leave(*agent),
            Step::Resubmit => self.resubmit(),
            Step::Rebalance => {
                self.scheduler.rebalance_now();
            }
            Step::Pass(millis) => {
                self.clock.advance(Duration::from_millis(*millis));
                self.scheduler.tick();
            }
        }
        self.check();
    }

    fn submit(
        &mut self,
        priority: u8,
        skill: usize,
        after: &[usize],
        retries: u32,
        onto: Option<usize>,
    ) {
        let number = self.tasks.len();
        let after: Vec<usize> = after.iter().copied().filter(|at| *at < number).collect();
        let mut task = Task::new(format!("t{number}"))
            .skill(SKILLS[skill])
            .priority(priority)
            .retries(retries);
        for at in &after {
            task = task.after(self.tasks[*at].id);
        }
        let result = match onto {
            Some(agent) => self.scheduler.submit_to(&name(agent), task, number),
            None => self.scheduler.submit(task, number),
        };
        let can = |agent: &usize| skills_of(*agent).contains(&SKILLS[skill]);
        let has_agent = match onto {
            Some(agent) => self.present.contains(&agent) && can(&agent),
            None => self.present.iter().any(can),
        };
        let is_sound = after.iter().all(|at| {
            let standing = self.tasks[*at].standing;
            matches!(standing, Standing::Live | Standing::Finished)
        });
        // A suspended skill may make an agent unable, so we cannot always tell; never the reverse.
        if !has_agent || !is_sound {
            assert!(result.is_err(), "accepted what nobody can do");
        }
        if let Ok(id) = result {
            self.tasks.push(Known {
                id,
                standing: Standing::Live,
                priority,
                skill,
                after,
                retries_left: retries,
                retries,
                losses: 0,
            });
        }
    }

    fn assigned(&mut self, agent: usize, assignment: Assignment<usize>) {
        let number = *assignment.payload;
        let task = &self.tasks[number];
        assert_eq!(task.id, assignment.task.id);
        assert_eq!(
            task.standing,
            Standing::Live,
            "a task that is over was given out"
        );
        assert!(
            skills_of(agent).contains(&SKILLS[task.skill]),
            "not capable"
        );
        for at in &task.after {
            assert_eq!(
                self.tasks[*at].standing,
                Standing::Finished,
                "ran too early"
            );
        }
        let others = self
            .open
            .iter()
            .filter(|(_, other, counts)| *counts && *other.payload == number);
        assert_eq!(others.count(), 0, "on two agents at once");
        self.open.push((agent, assignment, true));
    }

    fn answer(&mut self, at: usize, answer: Answer) {
        if self.open.is_empty() {
            return;
        }
        let (_, assignment, counts) = self.open.remove(at % self.open.len());
        let result = match answer {
            Answer::Complete => self.scheduler.complete(&assignment),
            Answer::Fail => self.scheduler.fail(&assignment, "no"),
            Answer::FailForGood => self.scheduler.fail_for_good(&assignment, "never"),
        };
        assert_eq!(
            result.is_ok(),
            counts,
            "{answer:?} of {:?}",
            assignment.task
        );
        if !counts {
            assert!(assignment.signal.is_cancelled(), "nobody said so");
            return;
        }
        let number = *assignment.payload;
        match answer {
            Answer::Complete => self.tasks[number].standing = Standing::Finished,
            Answer::Fail if self.tasks[number].retries_left > 0 => {
                self.tasks[number].retries_left -= 1;
            }
            Answer::Fail | Answer::FailForGood => self.end(number, Standing::Failed),
        }
    }

    fn cancel(&mut self, at: usize) {
        let Some(task) = self.tasks.get(at) else {
            return;
        };
        let result = self.scheduler.cancel(task.id);
        assert_eq!(result.is_ok(), task.standing == Standing::Live);
        if result.is_ok() {
            self.end(at, Standing::Cancelled);
        }
    }

    /// A task ended without success: what depends on it fails, and so on.
    fn end(&mut self, number: usize, standing: Standing) {
        self.tasks[number].standing = standing;
        for (_, assignment, counts) in &mut self.open {
            *counts &= *assignment.payload != number;
        }
        let dependents: Vec<usize> = (0..self.tasks.len())
            .filter(|other| {
                let task = &self.tasks[*other];
                task.standing == Standing::Live && task.after.contains(&number)
            })
            .collect();
        for dependent in dependents {
            self.end(dependent, Standing::Failed);
        }
    }

    fn leave(&mut self, agent: usize) {
        let result = self.scheduler.unregister_agent(&name(agent));
        assert_eq!(result.is_ok(), self.present.remove(&agent));
        let in_hand = self.in_hand(agent);
        self.void_leases(agent);
        let Ok(leftovers) = result else { return };
        let returned: BTreeSet<usize> = leftovers.iter().map(|task| *task.payload).collect();
        assert!(returned.is_superset(&in_hand), "what it ran comes back");
        for leftover in leftovers {
            let number = *leftover.payload;
            assert_eq!(self.tasks[number].standing, Standing::Live);
            self.tasks[number].standing = Standing::Returned;
            // Half of them come back to the scheduler.
            if number.is_multiple_of(2)
                && self.scheduler.submit(leftover.description, number).is_ok()
            {
                self.tasks[number].standing = Standing::Live;
                self.tasks[number].retries_left = self.tasks[number].retries;
                self.tasks[number].losses = 0;
                self.tasks[number].after.clear();
            }
        }
    }

    fn resubmit(&mut self) {
        let dead: BTreeMap<usize, TaskId> = self
            .scheduler
            .dead_letters()
            .into_iter()
            .map(|letter| (*letter.payload, letter.task.id))
            .collect();
        let failed: BTreeSet<usize> = (0..self.tasks.len())
            .filter(|number| self.tasks[*number].standing == Standing::Failed)
            .collect();
        assert_eq!(dead.keys().copied().collect::<BTreeSet<_>>(), failed);
        if let Some((number, id)) = dead.into_iter().next() {
            self.scheduler.resubmit(id).unwrap();
            let task = &mut self.tasks[number];
            task.standing = Standing::Live;
            task.retries_left = task.retries;
            task.losses = 0;
            // What it depended on is over, one way or the other.
            task.after.clear();
        }
    }

    /// An agent is gone, and its tasks move on, unless they were with too many of the lost.
    fn lose(&mut self, agent: usize) {
        let in_hand = self.in_hand(agent);
        self.void_leases(agent);
        for number in in_hand {
            self.tasks[number].losses += 1;
            if self.tasks[number].losses >= LOSSES_MAX {
                self.end(number, Standing::Failed);
            }
        }
    }

    fn in_hand(&self, agent: usize) -> BTreeSet<usize> {
        self.open
            .iter()
            .filter(|(holder, _, counts)| *counts && *holder == agent)
            .map(|(_, assignment, _)| *assignment.payload)
            .collect()
    }

    fn void_leases(&mut self, agent: usize) {
        for (holder, _, counts) in &mut self.open {
            *counts &= *holder != agent;
        }
    }

    fn check(&self) {
        let counts = self.scheduler.counts();
        assert!(counts.balance(), "{counts:?}");
        let count = |standing| {
            let here = self.tasks.iter().filter(|task| task.standing == standing);
            here.count() as u64
        };
        assert_eq!(counts.live(), count(Standing::Live), "{counts:?}");
        assert_eq!(counts.finished, count(Standing::Finished));
        assert_eq!(counts.failed, count(Standing::Failed));
        assert_eq!(counts.cancelled, count(Standing::Cancelled));
        let running = self.open.iter().filter(|(_, _, counts)| *counts).count() as u64;
        assert_eq!(counts.running, running);
        for task in &self.tasks {
            let is_explained = self.scheduler.explain(task.id).is_some();
            assert_eq!(is_explained, task.standing == Standing::Live);
        }
    }

    /// The world is kind: everybody is there and everything succeeds. Then everything ends.
    fn heal(&mut self) {
        for agent in 0..AGENTS {
            self.take(&Step::Join(agent));
        }
        // Whoever waits for a task that left with its agent waits in vain.
        let returned = |world: &Self| {
            let mut waits: BTreeSet<usize> = (0..world.tasks.len())
                .filter(|number| world.tasks[*number].standing == Standing::Returned)
                .collect();
            for number in 0..world.tasks.len() {
                if world.tasks[number]
                    .after
                    .iter()
                    .any(|at| waits.contains(at))
                {
                    waits.insert(number);
                }
            }
            waits
        };
        for _ in 0..10_000 {
            let in_vain = returned(self);
            let left = (0..self.tasks.len())
                .filter(|number| self.tasks[*number].standing == Standing::Live)
                .filter(|number| !in_vain.contains(number))
                .count();
            if left == 0 {
                return;
            }
            self.take(&Step::Pass(500));
            for agent in 0..AGENTS {
                self.take(&Step::Ask(agent));
            }
            while !self.open.is_empty() {
                self.take(&Step::Complete(0));
            }
        }
        panic!("a task never ends: {:?}", self.scheduler.health());
    }
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Complete,
    Fail,
    FailForGood,
}

fn name(agent: usize) -> String {
    format!("agent {agent}")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_books_agree(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        world.take(&Step::Join(0));
        world.take(&Step::Join(3));
        for step in &steps {
            world.take(step);
        }
        world.heal();
    }
}

fn cases() -> u32 {
    if std::env::var_os("LOXLEY_TEST_LONG").is_some() {
        20_000
    } else {
        300
    }
}
