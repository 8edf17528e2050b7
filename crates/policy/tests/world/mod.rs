//! A small world around a scheduler: agents that do what they are told, and books of its own in which
//! every action is checked. The books never ask the scheduler whether it is right.
#![expect(dead_code, reason = "each test uses the part of the world it needs")]
#![expect(clippy::unwrap_used, reason = "a failure here is the message")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use loxley_model::*;
use loxley_policy::*;

/// What the books know of a task that is not over.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) spec: TaskSpec,
    pub(crate) job: JobSpec,
    /// Which submission it came with; within one, the longest chain decides.
    pub(crate) submission: u64,
    /// Whether it was said that it cannot make its deadline any more.
    pub(crate) is_lost: bool,
    pub(crate) queued_at: Option<AgentId>,
    pub(crate) moves: u32,
    pub(crate) leases: BTreeMap<Lease, AgentId>,
    pub(crate) waits_for: BTreeSet<TaskId>,
}

/// What the books know of an agent.
#[derive(Clone, Debug)]
pub(crate) struct Hand {
    pub(crate) spec: AgentSpec,
    /// Leases it holds, and whether it started them.
    pub(crate) leases: BTreeMap<Lease, (TaskId, bool)>,
    pub(crate) want: u32,
    pub(crate) suspected: bool,
    pub(crate) draining: bool,
    pub(crate) suspended: BTreeSet<SkillId>,
    pub(crate) earned: BTreeSet<SkillId>,
}

impl Hand {
    fn skills(&self) -> impl Iterator<Item = SkillId> {
        self.spec.skills.iter().chain(self.earned.iter().copied())
    }
}

pub(crate) struct World {
    pub(crate) scheduler: Scheduler,
    pub(crate) config: Config,
    pub(crate) now: Time,
    pub(crate) tasks: BTreeMap<TaskId, Entry>,
    pub(crate) agents: BTreeMap<AgentId, Hand>,
    pub(crate) succeeded: BTreeSet<TaskId>,
    pub(crate) over: Counts,
    pub(crate) group_limits: BTreeMap<GroupId, u32>,
    /// Retractions that were asked for and not answered.
    pub(crate) asked_back: Vec<(TaskId, Lease)>,
    /// Everything ever handled, for replay.
    pub(crate) journal: Vec<(Time, Input)>,
    pub(crate) log: Vec<Action>,
    pub(crate) last: Vec<Action>,
    pub(crate) stale: u64,
    /// Tasks that left with an agent.
    pub(crate) returned: Vec<TaskSpec>,
    /// Tasks that failed for good.
    pub(crate) dead: BTreeMap<TaskId, Entry>,
    last_lease: Lease,
    arrivals: u64,
    next_task: u64,
    pub(crate) next_job: u64,
}

impl World {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            scheduler: Scheduler::new(config.clone(), Time::ZERO),
            config,
            now: Time::ZERO,
            tasks: BTreeMap::new(),
            agents: BTreeMap::new(),
            succeeded: BTreeSet::new(),
            over: Counts::default(),
            group_limits: BTreeMap::new(),
            asked_back: Vec::new(),
            journal: Vec::new(),
            log: Vec::new(),
            last: Vec::new(),
            stale: 0,
            returned: Vec::new(),
            dead: BTreeMap::new(),
            last_lease: Lease(0),
            arrivals: 0,
            next_task: 0,
            next_job: 0,
        }
    }

    /// Handles one input and checks everything.
    pub(crate) fn handle(&mut self, input: Input) -> &[Action] {
        self.now = self.now + Span(1);
        self.journal.push((self.now, input.clone()));
        let mut actions = Vec::new();
        self.scheduler.handle(self.now, input.clone(), &mut actions);
        self.note_input(&input);
        for action in &actions {
            self.note_action(&input, action);
        }
        self.check(&input);
        self.log.extend(actions.iter().cloned());
        self.last = actions;
        &self.last
    }

    pub(crate) fn advance(&mut self, span: Span) {
        self.now = self.now + span;
        self.handle(Input::Tick);
    }

    // What tests say.

    pub(crate) fn join(&mut self, id: u64, skills: &[u32]) -> AgentId {
        self.join_spec(AgentSpec::new(
            AgentId(id),
            skills.iter().copied().map(SkillId).collect(),
        ))
    }

    pub(crate) fn join_spec(&mut self, spec: AgentSpec) -> AgentId {
        let id = spec.id;
        self.handle(Input::AgentJoined(Box::new(spec)));
        id
    }

    pub(crate) fn new_task(&mut self, skills: &[u32], priority: u8) -> TaskSpec {
        let skills = skills.iter().copied().map(SkillId).collect();
        self.new_task_of(
            TaskKind {
                skills,
                ..TaskKind::default()
            },
            priority,
        )
    }

    pub(crate) fn new_task_of(&mut self, kind: TaskKind, priority: u8) -> TaskSpec {
        self.next_task += 1;
        TaskSpec {
            priority: Priority::new(priority).unwrap(),
            ..TaskSpec::new(TaskId(self.next_task), Arc::new(kind))
        }
    }

    pub(crate) fn new_job(&mut self) -> JobSpec {
        self.next_job += 1;
        JobSpec::new(JobId(self.next_job))
    }

    pub(crate) fn submit(&mut self, tasks: Vec<TaskSpec>) -> &[Action] {
        let (job, tasks) = (self.new_job(), tasks.into());
        self.handle(Input::TasksSubmitted { job, tasks })
    }

    pub(crate) fn submit_one(&mut self, skills: &[u32], priority: u8) -> TaskId {
        let task = self.new_task(skills, priority);
        let id = task.id;
        self.submit(vec![task]);
        id
    }

    /// A task that takes no longer than a few round trips: one that agents may have in hand ahead of its time.
    pub(crate) fn submit_short(&mut self, priority: u8) -> TaskId {
        let mut task = self.new_task(&[], priority);
        task.cost = Some(Span::from_millis(1));
        let id = task.id;
        self.submit(vec![task]);
        id
    }

    /// Puts a task on this agent's queue.
    pub(crate) fn submit_onto(&mut self, agent: AgentId, task: TaskSpec) -> TaskId {
        let id = task.id;
        let job = JobSpec {
            onto: Some(agent),
            ..self.new_job()
        };
        self.handle(Input::TasksSubmitted {
            job,
            tasks: [task].into(),
        });
        id
    }

    /// Asks for one task; takes the request back if there is none.
    pub(crate) fn ask(&mut self, agent: AgentId) -> Option<(TaskId, Lease)> {
        self.handle(Input::WorkRequested { agent, want: 1 });
        let given = self.given(agent);
        if given.is_none() {
            self.handle(Input::WorkRequested { agent, want: 0 });
        }
        given
    }

    /// What the last input gave to this agent.
    pub(crate) fn given(&self, to: AgentId) -> Option<(TaskId, Lease)> {
        self.last.iter().find_map(|action| match action {
            Action::Assign {
                task, agent, lease, ..
            } if *agent == to => Some((*task, *lease)),
            _ => None,
        })
    }

    pub(crate) fn start(&mut self, (task, lease): (TaskId, Lease)) {
        self.handle(Input::TaskStarted { task, lease });
    }

    pub(crate) fn finish(&mut self, (task, lease): (TaskId, Lease)) {
        self.handle(Input::TaskFinished {
            task,
            lease,
            outcome: Outcome::Succeeded,
        });
    }

    pub(crate) fn fail(&mut self, (task, lease): (TaskId, Lease)) {
        let outcome = Outcome::Failed(Failure::Error);
        self.handle(Input::TaskFinished {
            task,
            lease,
            outcome,
        });
    }

    pub(crate) fn queue(&self, agent: AgentId) -> Vec<u64> {
        self.scheduler
            .queue_of(agent)
            .unwrap()
            .iter()
            .map(|task| task.0)
            .collect()
    }

    pub(crate) fn reports(&self) -> impl Iterator<Item = &Report> {
        self.last.iter().filter_map(|action| match action {
            Action::Report(report) => Some(report),
            _ => None,
        })
    }

    // The books.

    fn note_input(&mut self, input: &Input) {
        match input {
            Input::AgentJoined(spec) if spec.slots > 0 && spec.speed > 0.0 => {
                self.forget_agent(spec.id);
                let hand = Hand {
                    spec: (**spec).clone(),
                    leases: BTreeMap::new(),
                    want: 0,
                    suspected: false,
                    draining: false,
                    suspended: BTreeSet::new(),
                    earned: BTreeSet::new(),
                };
                self.agents.insert(spec.id, hand);
            }
            Input::AgentLeft { agent, .. } => self.forget_agent(*agent),
            Input::AgentDrained(agent) => {
                if let Some(hand) = self.agents.get_mut(agent) {
                    hand.draining = true;
                }
            }
            Input::WorkRequested { agent, want } => {
                if let Some(hand) = self.agents.get_mut(agent) {
                    hand.want = *want;
                }
            }
            Input::TaskStarted { lease, .. } => {
                for hand in self.agents.values_mut() {
                    if let Some((_, started)) = hand.leases.get_mut(lease) {
                        *started = true;
                    }
                }
            }
            Input::TaskFinished { task, lease, .. }
            | Input::TaskYielded {
                task,
                lease,
                yielded: true,
            } => self.drop_lease(*task, *lease),
            Input::GroupLimitSet { group, limit } => {
                self.group_limits.insert(*group, *limit);
            }
            Input::DeadLettersResubmitted(_) => {
                for (id, mut entry) in std::mem::take(&mut self.dead) {
                    self.arrivals += 1;
                    entry.submission = self.arrivals;
                    entry.spec.deadline = None;
                    entry.is_lost = false;
                    entry.moves = 0;
                    entry.waits_for.clear();
                    entry.queued_at = None;
                    self.over.failed -= 1;
                    self.tasks.insert(id, entry);
                }
            }
            Input::ConfigChanged(config) => self.config = (**config).clone(),
            _ => {}
        }
    }

    fn forget_agent(&mut self, agent: AgentId) {
        let Some(hand) = self.agents.remove(&agent) else {
            return;
        };
        for (lease, (task, _)) in hand.leases {
            self.drop_lease(task, lease);
        }
        for entry in self
            .tasks
            .values_mut()
            .filter(|entry| entry.queued_at == Some(agent))
        {
            entry.queued_at = None;
        }
    }

    fn drop_lease(&mut self, task: TaskId, lease: Lease) {
        if let Some(entry) = self.tasks.get_mut(&task)
            && let Some(agent) = entry.leases.remove(&lease)
            && let Some(hand) = self.agents.get_mut(&agent)
        {
            hand.leases.remove(&lease);
        }
        self.asked_back.retain(|(_, asked)| *asked != lease);
    }

    fn note_action(&mut self, input: &Input, action: &Action) {
        match action {
            Action::Assign {
                task,
                agent,
                lease,
                reason,
                ..
            } => {
                self.note_assign(*task, *agent, *lease, *reason);
            }
            Action::Retract {
                task, lease, agent, ..
            } => {
                assert_eq!(
                    self.tasks[task].leases.get(lease),
                    Some(agent),
                    "retracted what it has not"
                );
                // Who may not have heard it is asked again.
                if !self.asked_back.contains(&(*task, *lease)) {
                    self.asked_back.push((*task, *lease));
                }
            }
            // What it was asked back for is no longer the question.
            Action::Cancel {
                lease,
                awaited: true,
                ..
            } => self.asked_back.retain(|(_, asked)| asked != lease),
            Action::Cancel { task, lease, .. } => self.drop_lease(*task, *lease),
            Action::Report(report) => self.note_report(input, report),
            Action::SetTimer { .. } => {}
        }
    }

    fn note_assign(&mut self, task: TaskId, agent: AgentId, lease: Lease, reason: Reason) {
        assert!(lease > self.last_lease, "lease numbers only grow");
        self.last_lease = lease;
        let entry = self
            .tasks
            .get(&task)
            .unwrap_or_else(|| panic!("{task} assigned but not here"));
        let hand = self
            .agents
            .get(&agent)
            .unwrap_or_else(|| panic!("{agent} is not here"));
        assert!(
            !hand.suspected && !hand.draining,
            "{agent} gets nothing new"
        );
        assert!(
            entry.waits_for.is_empty(),
            "{task} started before {:?}",
            entry.waits_for
        );
        self.check_capable(entry, hand, reason);
        self.check_group(entry);
        match reason {
            Reason::Speculation(first) => {
                assert_eq!(entry.leases.len(), 1, "a copy of {task} needs one original");
                assert!(
                    entry
                        .leases
                        .values()
                        .all(|holder| *holder == first && first != agent)
                );
            }
            Reason::Stolen(from) if entry.queued_at != Some(agent) => {
                assert!(entry.leases.is_empty(), "{task} is on two agents");
                assert_ne!(from, agent, "nobody robs itself");
                self.check_stealable(entry, self.config.priority.rescue_high_priority);
            }
            _ => {
                assert!(entry.leases.is_empty(), "{task} is on two agents");
                self.check_is_first(task, agent);
            }
        }
        let entry = self.tasks.get_mut(&task).unwrap();
        if entry.queued_at.take() != Some(agent) && matches!(reason, Reason::Stolen(_)) {
            entry.moves += 1;
        }
        entry.leases.insert(lease, agent);
        let hand = self.agents.get_mut(&agent).unwrap();
        hand.leases.insert(lease, (task, false));
        hand.want = hand.want.saturating_sub(1);
        if hand.spec.dispatch == Dispatch::KeepFull {
            let most = hand.spec.slots + self.config.prefetch.max_depth;
            assert!(hand.leases.len() as u32 <= most, "{agent} is overfull");
        }
    }

    fn check_capable(&self, entry: &Entry, hand: &Hand, reason: Reason) {
        let skills = &entry.spec.kind.skills;
        let offered = hand.skills().filter(|skill| {
            !hand.suspended.contains(skill)
                // A probe tries every suspended skill of the task at once.
                || matches!(reason, Reason::Probe(_))
        });
        let offered: SkillSet = offered.collect();
        let has = skills.count_in(&offered);
        let urgent = entry.spec.priority >= self.config.priority.high_priority_threshold;
        let exact = self.config.capabilities.matching_strategy == Matching::Exact;
        let enough = if urgent || exact {
            has == skills.len()
        } else {
            has > 0 || skills.is_empty()
        };
        assert!(
            enough,
            "{} needs {skills:?}, {} has {offered:?}",
            entry.spec.id, hand.spec.id
        );
        let mut used = Resources::default();
        for (task, _) in hand.leases.values() {
            used.take(&self.tasks[task].spec.kind.needs);
        }
        assert!(
            hand.spec.resources.have_room(&used, &entry.spec.kind.needs),
            "no room"
        );
    }

    fn check_group(&self, entry: &Entry) {
        let Some(group) = entry.spec.kind.group else {
            return;
        };
        let Some(limit) = self.group_limits.get(&group) else {
            return;
        };
        assert!(
            self.group_running(group) < *limit,
            "{group} is over its limit"
        );
    }

    pub(crate) fn group_running(&self, group: GroupId) -> u32 {
        let of_group = self
            .tasks
            .values()
            .filter(|entry| entry.spec.kind.group == Some(group));
        of_group.map(|entry| entry.leases.len() as u32).sum()
    }

    fn is_protected(&self, entry: &Entry) -> bool {
        let rules = &self.config.priority;
        rules.preserve_high_priority && entry.spec.priority >= rules.high_priority_threshold
    }

    /// What is protected moves only to somebody who starts it at once, and what has moved often enough
    /// likewise.
    fn check_stealable(&self, entry: &Entry, is_rescued: bool) {
        assert!(
            is_rescued || !self.is_protected(entry),
            "{} is protected and was moved",
            entry.spec.id
        );
    }

    /// With nothing that could bar it, the first of a queue is started first.
    fn check_is_first(&self, task: TaskId, agent: AgentId) {
        let bars = |entry: &Entry| {
            entry.spec.kind.group.is_some()
                || !entry.spec.kind.needs.is_empty()
                || entry.job.user != UserId(0)
        };
        if self.tasks.values().any(bars) || self.tasks[&task].queued_at != Some(agent) {
            return;
        }
        let this = &self.tasks[&task];
        for other in self
            .tasks
            .values()
            .filter(|other| other.queued_at == Some(agent))
        {
            assert!(
                order(this) <= order(other),
                "{task} started before {}",
                other.spec.id
            );
        }
    }

    fn note_report(&mut self, input: &Input, report: &Report) {
        match report {
            Report::Accepted { tasks: count, .. } => self.note_accepted(input, *count),
            Report::Queued {
                task,
                agent,
                reason,
            } => self.note_queued(*task, *agent, *reason),
            Report::DeadlineLost { task, .. } => self.tasks.get_mut(task).unwrap().is_lost = true,
            Report::Held { task } => self.tasks.get_mut(task).unwrap().queued_at = None,
            Report::Finished { task, ending, .. } => self.note_finished(*task, *ending),
            Report::AgentLost(agent) => self.forget_agent(*agent),
            Report::AgentSuspected(agent) => self.agents.get_mut(agent).unwrap().suspected = true,
            Report::AgentRecovered(agent) => self.agents.get_mut(agent).unwrap().suspected = false,
            Report::SkillSuspended { agent, skill, .. } => {
                self.agents.get_mut(agent).unwrap().suspended.insert(*skill);
            }
            Report::SkillRestored { agent, skill } => {
                self.agents.get_mut(agent).unwrap().suspended.remove(skill);
            }
            Report::SkillEarned { agent, skill } => {
                let hand = self.agents.get_mut(agent).unwrap();
                assert!(!hand.spec.skills.contains(*skill), "it declared that");
                assert!(hand.earned.insert(*skill), "it was earned once");
            }
            Report::SkillRevoked { agent, skill } => {
                let hand = self.agents.get_mut(agent).unwrap();
                assert!(hand.earned.remove(skill), "it had been earned");
                hand.suspended.remove(skill);
            }
            Report::StaleAnswer { lease, .. } => {
                self.stale += 1;
                let known = self
                    .agents
                    .values()
                    .any(|hand| hand.leases.contains_key(lease));
                assert!(!known, "{lease} is in force and its answer was dropped");
            }
            _ => {}
        }
    }

    fn note_queued(&mut self, task: TaskId, agent: AgentId, reason: Reason) {
        let entry = self
            .tasks
            .get(&task)
            .unwrap_or_else(|| panic!("{task} queued, not here"));
        assert!(entry.leases.is_empty(), "{task} is queued and on an agent");
        let hand = &self.agents[&agent];
        assert!(
            !hand.suspected && !hand.draining,
            "{task} is queued at {agent}, which gets nothing new"
        );
        assert!(
            entry.waits_for.is_empty(),
            "{task} is queued before its dependencies"
        );
        let moved = matches!(
            reason,
            Reason::Stolen(_) | Reason::Rebalanced(_) | Reason::BehindStraggler(_)
        );
        if matches!(reason, Reason::Stolen(_) | Reason::Rebalanced(_)) {
            self.check_stealable(entry, false);
            let moves_max = self.config.guards.max_moves;
            assert!(entry.moves < moves_max, "{task} moved too often");
        }
        let entry = self.tasks.get_mut(&task).unwrap();
        entry.moves += u32::from(moved);
        entry.queued_at = Some(agent);
    }

    fn note_accepted(&mut self, input: &Input, count: usize) {
        let (job, tasks) = match input {
            Input::TasksSubmitted { job, tasks } => (job, &**tasks),
            Input::TaskQueued { job, task, .. } => (job, std::slice::from_ref(&**task)),
            _ => return,
        };
        assert_eq!(tasks.len(), count);
        self.arrivals += 1;
        for spec in tasks {
            let waits_for = spec
                .dependencies
                .iter()
                .copied()
                .filter(|id| !self.succeeded.contains(id));
            let entry = Entry {
                spec: spec.clone(),
                job: *job,
                submission: self.arrivals,
                is_lost: false,
                queued_at: None,
                moves: 0,
                leases: BTreeMap::new(),
                waits_for: waits_for.collect(),
            };
            let before = self.tasks.insert(spec.id, entry);
            assert!(before.is_none(), "{} accepted twice", spec.id);
        }
        self.over.submitted += count as u64;
    }

    fn note_finished(&mut self, task: TaskId, ending: Ending) {
        let entry = self
            .tasks
            .remove(&task)
            .unwrap_or_else(|| panic!("{task} ended twice"));
        assert!(
            entry.leases.is_empty(),
            "{task} ended and is still on an agent"
        );
        match ending {
            Ending::Succeeded { .. } | Ending::FellBack { .. } => {
                self.over.finished += 1;
                self.succeeded.insert(task);
                for other in self.tasks.values_mut() {
                    other.waits_for.remove(&task);
                }
            }
            Ending::Failed(_) => {
                self.over.failed += 1;
                self.dead.insert(task, entry);
            }
            Ending::Cancelled => self.over.cancelled += 1,
            Ending::Returned => {
                self.over.returned += 1;
                self.returned.push(entry.spec);
            }
        }
    }

    /// What must hold after every input.
    fn check(&mut self, input: &Input) {
        self.scheduler
            .verify()
            .unwrap_or_else(|wrong| panic!("after {input:?}: {wrong}"));
        let counts = self.scheduler.counts();
        assert!(counts.balance(), "after {input:?}: {counts:?}");
        assert_eq!(counts.submitted, self.over.submitted, "after {input:?}");
        assert_eq!(counts.finished, self.over.finished, "after {input:?}");
        assert_eq!(counts.failed, self.over.failed, "after {input:?}");
        assert_eq!(counts.cancelled, self.over.cancelled, "after {input:?}");
        assert_eq!(counts.returned, self.over.returned, "after {input:?}");
        assert_eq!(counts.live(), self.tasks.len() as u64, "after {input:?}");
        let running = self
            .tasks
            .values()
            .filter(|entry| !entry.leases.is_empty())
            .count();
        assert_eq!(counts.running, running as u64, "after {input:?}");
        let queued = self
            .tasks
            .values()
            .filter(|entry| entry.queued_at.is_some())
            .count();
        assert_eq!(counts.queued, queued as u64, "after {input:?}");
        self.check_nobody_idles(input);
    }

    /// No agent with an open request idles while there is work that it may have.
    fn check_nobody_idles(&self, input: &Input) {
        let rules = &self.config.work_stealing;
        // Where speeds count, a task may wait for somebody faster; `verify` says how long.
        let knows_speeds = self.config.capabilities.matching_strategy == Matching::EarliestFinish;
        let stealing = rules.steal_below_busy
            && rules.min_tasks_to_steal <= 1
            && self.config.strategy.pulls()
            && !knows_speeds;
        let plain = |entry: &Entry| entry.spec.kind.needs.is_empty();
        if !self.tasks.values().all(plain) {
            return;
        }
        let asking = |hand: &&Hand| {
            let asks = match hand.spec.dispatch {
                Dispatch::OnRequest => hand.want > 0,
                Dispatch::KeepFull => (hand.leases.len() as u32) < hand.spec.slots,
            };
            asks && !hand.suspected && !hand.draining
        };
        for hand in self.agents.values().filter(asking) {
            for entry in self.tasks.values() {
                let Some(queue) = entry.queued_at else {
                    continue;
                };
                // A slot may be kept free of long tasks.
                let kept_free = self.config.quotas.reserved_slots;
                let may_be_long = entry.spec.cost.is_some() && !hand.leases.is_empty();
                let own = queue == hand.spec.id
                    && !(may_be_long && hand.spec.slots > kept_free && kept_free > 0);
                let rescue = self.config.priority.rescue_high_priority;
                let stealable = stealing
                    && (rescue || !self.is_protected(entry))
                    && !(may_be_long && hand.spec.slots > kept_free && kept_free > 0)
                    && self.may_do(entry, hand);
                let group = entry.spec.kind.group;
                let limit = group.and_then(|group| Some((group, self.group_limits.get(&group)?)));
                let open = limit.is_none_or(|(group, limit)| self.group_running(group) < *limit);
                assert!(
                    !(open && (own || stealable)),
                    "after {input:?}: {} idles while {} waits on {queue}: {:?}; {:?}",
                    hand.spec.id,
                    entry.spec.id,
                    self.scheduler.explain(entry.spec.id),
                    self.scheduler.agent_status(hand.spec.id),
                );
            }
        }
    }

    fn may_do(&self, entry: &Entry, hand: &Hand) -> bool {
        let skills = &entry.spec.kind.skills;
        let offered: SkillSet = hand
            .skills()
            .filter(|s| !hand.suspended.contains(s))
            .collect();
        let urgent = entry.spec.priority >= self.config.priority.high_priority_threshold;
        match self.config.capabilities.matching_strategy {
            Matching::BestFit | Matching::EarliestFinish if !urgent => {
                skills.is_empty() || skills.count_in(&offered) > 0
            }
            // For `Fallback` this is only part of the truth: enough not to accuse it wrongly.
            _ => skills.is_subset(&offered),
        }
    }

    /// Handles the whole journal again: the actions must be the same.
    pub(crate) fn replay(&self, config: Config) {
        let mut scheduler = Scheduler::new(config, Time::ZERO);
        let mut log = Vec::new();
        for (now, input) in &self.journal {
            scheduler.handle(*now, input.clone(), &mut log);
        }
        assert_eq!(format!("{log:?}"), format!("{:?}", self.log));
    }

    /// Lets everything that is left run to its end on agents that can do anything.
    pub(crate) fn run_out(&mut self) {
        for limit in self.group_limits.clone().into_keys() {
            self.handle(Input::GroupLimitSet {
                group: limit,
                limit: 100,
            });
        }
        for spec in std::mem::take(&mut self.returned) {
            // What it depended on is over: it was on an agent.
            let spec = TaskSpec {
                deadline: None,
                dependencies: Box::default(),
                ..spec
            };
            self.submit(vec![spec]);
        }
        let skills: Vec<u32> = (0..8).collect();
        let helper = self.join(1_000_000, &skills);
        for _ in 0..2_000 {
            if self.tasks.is_empty() {
                return;
            }
            let held: Vec<(Lease, TaskId)> = self
                .agents
                .values()
                .flat_map(|h| h.leases.iter().map(|(l, (t, _))| (*l, *t)))
                .collect();
            for (lease, task) in held {
                if self
                    .agents
                    .values()
                    .any(|hand| hand.leases.contains_key(&lease))
                {
                    self.finish((task, lease));
                }
            }
            let asking: Vec<AgentId> = self.agents.keys().copied().collect();
            for agent in asking {
                self.handle(Input::AgentHeard {
                    agent,
                    vitals: Vitals::default(),
                });
                self.handle(Input::WorkRequested { agent, want: 1 });
            }
            self.handle(Input::WorkRequested {
                agent: helper,
                want: 1,
            });
            self.advance(Span::from_millis(500));
        }
        let left: Vec<_> = self
            .tasks
            .keys()
            .map(|id| self.scheduler.explain(*id))
            .collect();
        panic!("tasks that never end: {left:#?}");
    }
}

/// What is lost comes between what still can be in time and what has no deadline.
fn order(entry: &Entry) -> (std::cmp::Reverse<Priority>, (bool, bool, Time), u64) {
    let deadline = entry.spec.deadline.unwrap_or(Time::MAX);
    (
        std::cmp::Reverse(entry.spec.priority),
        (deadline == Time::MAX, entry.is_lost, deadline),
        entry.submission,
    )
}
