//! What has to be looked at before an input is done with. Empty between inputs.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use loxley_model::{GroupId, Priority, ZoneId};

use crate::Scheduler;
use crate::refs::{AgentRef, TaskRef};
use crate::task_classes::class_bit;
use crate::tournament::ClassBits;

#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// One bit for each kind of step that there is something to do for, in the order of [`Kind`].
    pending: u16,
    ready: VecDeque<Ready>,
    handovers: Vec<Handover>,
    thief: Option<(AgentRef, bool)>,
    /// By the highest priority on their queues, the lowest first. One that is in here twice is looked at once.
    agents: [Vec<AgentRef>; Priority::LEVELS],
    hungry: Vec<AgentRef>,
    groups: Vec<GroupId>,
    offered: ClassBits,
    /// The zone of the agent that the first of them came to.
    offered_near: Option<ZoneId>,
    backlogs: Vec<AgentRef>,
    urgent: Vec<TaskRef>,
}

/// What to look at next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Agents can do more than before: held tasks may get a place.
    ReleaseHeld,
    /// A task may run and has no place yet.
    Place(Ready),
    /// A task was given back for somebody.
    HandOver(Handover),
    /// An agent asked for a task of somebody else's, now or never, perhaps only for its queue.
    Steal { thief: AgentRef, onto_queue: bool },
    /// An agent may have room.
    FillSlots(AgentRef),
    /// An agent has a free slot and nothing of its own to fill it.
    Feed(AgentRef),
    /// A group has a place that came free.
    OpenGroup(GroupId),
    /// Tasks of these classes came to queues: whoever is idle may take them.
    Offer(ClassBits, Option<ZoneId>),
    /// Another task may be asked back.
    AskBack,
    /// Something that kept tasks from starting is gone: whoever has room looks again.
    LookAgain,
    /// An agent has room beyond its slots.
    FillBacklog(AgentRef),
    /// An urgent task came to a queue: what is less urgent makes way.
    MakeWay(TaskRef),
}

/// The kinds of step, in the order in which they are taken.
#[derive(Clone, Copy, Debug)]
enum Kind {
    ReleaseHeld,
    Place,
    HandOver,
    Steal,
    FillSlots,
    Feed,
    OpenGroup,
    Offer,
    AskBack,
    LookAgain,
    FillBacklog,
    MakeWay,
}

impl Kind {
    const ALL: [Self; 12] = [
        Self::ReleaseHeld,
        Self::Place,
        Self::HandOver,
        Self::Steal,
        Self::FillSlots,
        Self::Feed,
        Self::OpenGroup,
        Self::Offer,
        Self::AskBack,
        Self::LookAgain,
        Self::FillBacklog,
        Self::MakeWay,
    ];
}

/// A task that may run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) task: TaskRef,
    /// Somebody who should not get it if anybody else can.
    pub(crate) avoid: Option<AgentRef>,
}

/// A task that an agent gave back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handover {
    pub(crate) task: TaskRef,
    /// Who had it.
    pub(crate) from: AgentRef,
    /// For whom it was asked back.
    pub(crate) thief: Option<AgentRef>,
}

impl Marks {
    fn set(&mut self, kind: Kind) {
        self.pending |= 1 << kind as u16;
    }

    fn clear_if(&mut self, kind: Kind, is_done: bool) {
        self.pending &= !(u16::from(is_done) << kind as u16);
    }

    pub(crate) fn are_settled(&self) -> bool {
        self.pending == 0
    }

    /// What to look at next; it is marked no more.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Step> {
        let kind = *Kind::ALL.get(self.pending.trailing_zeros() as usize)?;
        let step = match kind {
            Kind::ReleaseHeld => Some(Step::ReleaseHeld),
            Kind::Place => self.ready.pop_front().map(Step::Place),
            Kind::HandOver => self.handovers.pop().map(Step::HandOver),
            Kind::Steal => {
                let thief = self.thief.take();
                thief.map(|(thief, onto_queue)| Step::Steal { thief, onto_queue })
            }
            Kind::FillSlots => {
                let mut levels = self.agents.iter_mut().rev();
                levels.find_map(Vec::pop).map(Step::FillSlots)
            }
            Kind::Feed => self.hungry.pop().map(Step::Feed),
            Kind::OpenGroup => self.groups.pop().map(Step::OpenGroup),
            Kind::Offer => {
                let classes = core::mem::take(&mut self.offered);
                Some(Step::Offer(classes, self.offered_near.take()))
            }
            Kind::AskBack => Some(Step::AskBack),
            Kind::LookAgain => Some(Step::LookAgain),
            Kind::FillBacklog => self.backlogs.pop().map(Step::FillBacklog),
            Kind::MakeWay => self.urgent.pop().map(Step::MakeWay),
        };
        let is_done = match kind {
            Kind::Place => self.ready.is_empty(),
            Kind::HandOver => self.handovers.is_empty(),
            Kind::FillSlots => self.agents.iter().all(Vec::is_empty),
            Kind::Feed => self.hungry.is_empty(),
            Kind::OpenGroup => self.groups.is_empty(),
            Kind::FillBacklog => self.backlogs.is_empty(),
            Kind::MakeWay => self.urgent.is_empty(),
            _ => true,
        };
        self.clear_if(kind, is_done);
        step
    }

    pub(crate) fn hand_over(&mut self, handover: Handover) {
        self.handovers.push(handover);
        self.set(Kind::HandOver);
    }

    pub(crate) fn steal(&mut self, thief: AgentRef, onto_queue: bool) {
        self.thief = Some((thief, onto_queue));
        self.set(Kind::Steal);
    }

    /// An agent may have room. Those with the most urgent work of their own are looked at first: what they cannot start
    /// is then free for others, before these begin with something less urgent.
    fn fill_slots(&mut self, agent: AgentRef, level: usize) {
        self.agents[level].push(agent);
        self.set(Kind::FillSlots);
    }

    pub(crate) fn feed(&mut self, agent: AgentRef) {
        self.hungry.push(agent);
        self.set(Kind::Feed);
    }

    /// A lease of a group ended, or its limit changed.
    pub(crate) fn open_group(&mut self, group: GroupId) {
        if !self.groups.contains(&group) {
            self.groups.push(group);
        }
        self.set(Kind::OpenGroup);
    }

    pub(crate) fn offer(&mut self, classes: ClassBits) {
        self.offered |= classes;
        self.set(Kind::Offer);
    }

    pub(crate) fn fill_backlog(&mut self, agent: AgentRef) {
        self.backlogs.push(agent);
        self.set(Kind::FillBacklog);
    }

    pub(crate) fn release_held(&mut self) {
        self.set(Kind::ReleaseHeld);
    }

    pub(crate) fn look_again(&mut self) {
        self.set(Kind::LookAgain);
    }

    pub(crate) fn ask_back(&mut self) {
        self.set(Kind::AskBack);
    }
}

impl Scheduler {
    /// A task may run: it gets a place.
    pub(crate) fn mark_ready(&mut self, task: TaskRef, avoid: Option<AgentRef>) {
        self.marks.ready.push_back(Ready { task, avoid });
        self.marks.set(Kind::Place);
    }

    /// An agent may have something to do. Whoever changes how much room it has calls this afterwards:
    /// one without room, or one that has left, is not looked at.
    pub(crate) fn mark_agent(&mut self, agent: AgentRef) {
        let Some(this) = self.facts.agents.get(agent) else {
            return;
        };
        let hand = self.derived.fleet.look(agent);
        if hand.room(this) > 0 && !core::mem::replace(&mut hand.is_marked, true) {
            let level = hand.queue.top_level();
            self.marks.fill_slots(agent, level);
        }
    }

    /// A task came to a queue: its agent may start it, or whoever is idle.
    pub(crate) fn mark_queued(&mut self, task: TaskRef) {
        let this = &self.facts.tasks[task];
        let (agent, priority) = (this.agent, this.priority);
        let mut offered = 1 << class_bit(self.facts.admission_class_of(this).capability);
        let rules = &self.facts.config.work_stealing;
        // Where short queues are not robbed, one more task may free all that are on it.
        if rules.min_tasks_to_steal > 1 || !rules.steal_below_busy {
            offered |= self.derived.fleet.hand(agent).queue.any_classes();
        }
        self.marks.offer(offered);
        if self.marks.offered_near.is_none() {
            self.marks.offered_near = self.derived.fleet.hand(agent).zone;
        }
        if self.derived.fleet.hand(agent).unstarted > 0 && self.is_urgent(priority) {
            self.marks.urgent.push(task);
            self.marks.set(Kind::MakeWay);
        }
        // With its slots taken, it binds at most what comes first: that is as before, unless this one does.
        let hand = self.derived.fleet.hand(agent);
        let is_on_top = hand.queue.is_alone_on_top(priority);
        if is_on_top && hand.is_marked {
            // It has more urgent work than when it was marked: its turn comes sooner.
            self.marks.fill_slots(agent, priority.index());
        } else if is_on_top || self.is_idle(agent) {
            self.mark_agent(agent);
        }
    }
}
