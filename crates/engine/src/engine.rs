//! The engine: a state, the group of facts that is open, and what follows from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use loxley_api::{
    AgentInfo, ApiError, Explanation, Figures, FleetInfo, ForecastInfo, Health, JobInfo,
    JobRequest, Needs, TaskInfo, TaskRequest, TuningInfo, UserInfo,
};
use loxley_cluster::budgets;
use loxley_cluster::moves::{Item, Kind, Letter, MoveLimits, Moves, Receipt};
use loxley_cluster::rebalancer::{Rebalancer, Room};
use loxley_cluster::shard::ShardId;
use loxley_journal::{Group, Journal};
use loxley_model::{AgentId, JobId, JobState, Lease, Outcome, Span, TaskId, Time, WorkKey};
use loxley_policy::{Config, Scheduler, Vitals};

use crate::api_view::RunningTask;
use crate::effects::{Effects, Finish, Records, hold};
use crate::fact::{AgentRecord, Fact, GroupWriter};
use crate::fleet::Agent;
use crate::moving::{GuestFinish, WaitingKind};
use crate::recover::{self, RecoverError};
use crate::run_figures::Counted;
use crate::snapshot::StateCopy;
use crate::state::State;

pub use crate::state::Applied;

/// A state that facts are told, and the facts that are not written yet.
#[derive(Debug)]
pub struct Engine {
    pub(crate) state: State,
    group: GroupWriter,
    effects: Effects,
    records: Records,
    snapshots: SnapshotRule,
    /// What agents said of leases that they do not hold.
    stale_answers: u64,
    /// When it was looked last at what is lent between shards. Whoever takes over looks at once.
    last_review: Time,
}

/// A group and what follows from it.
#[derive(Debug)]
pub struct Flushed {
    /// What is to be written; none when nothing was told, or nothing is kept.
    pub group: Option<Group>,
    /// What is to be carried out, once it is written.
    pub effects: Effects,
}

/// What the tasks of one part of a job have in common: one task, or one array.
#[derive(Clone, Copy, Debug)]
pub struct PartView<'a> {
    /// Its first task: what [`Assignment::part`](crate::Assignment::part) says.
    pub first: TaskId,
    /// The job.
    pub job: JobId,
    /// What was asked for.
    pub request: &'a TaskRequest,
    /// How long an agent may keep the end of a short task back.
    pub hold: Span,
}

impl Engine {
    /// Brings back what a journal tells of.
    ///
    /// # Errors
    /// When it cannot be read, or its decisions cannot be reproduced.
    pub fn open(journal: &mut dyn Journal, epoch_unix_ns: u64) -> Result<Self, RecoverError> {
        let recovered = recover::bring_back(journal)?;
        let mut state = recovered.state;
        state.epoch_unix_ns = epoch_unix_ns;
        Ok(Self::with(
            state,
            Records::Everything,
            recovered.replayed.facts,
        ))
    }

    /// An engine that writes nothing down: what is over is forgotten.
    #[must_use]
    pub fn without_journal() -> Self {
        Self::with(State::new(Time::ZERO), Records::Nothing, 0)
    }

    pub(crate) fn with(state: State, records: Records, facts: u64) -> Self {
        Self {
            state,
            group: GroupWriter::new(),
            effects: Effects::new(records),
            records,
            snapshots: SnapshotRule { facts, bytes: 0 },
            stale_answers: 0,
            last_review: Time::ZERO,
        }
    }

    /// What a start means: agents are away until they say otherwise, and this configuration counts, unless the
    /// last start was given the same: then what was changed since stays. So it does where both had nothing but the
    /// defaults of their versions: earlier ones began with [`Config::default`].
    pub fn begin(&mut self, now: Time, config: &Config) {
        let _ = self.record_and_apply(now, Fact::Restarted, None);
        let given = self.state.given_config.as_deref();
        let is_default = given.is_some_and(|given| *given == Config::default());
        if given != Some(config) && !(is_default && *config == Config::served()) {
            let config = Box::new(config.clone());
            let _ = self.record_and_apply(now, Fact::ConfigGiven(config), None);
        }
    }

    /// Has numbers begin after this one, in a journal that is new; one that is not has its numbers already.
    ///
    /// # Errors
    /// When it has others: then it is another journal than somebody thinks.
    pub fn number_from(&mut self, now: Time, base: u64) -> Result<(), RecoverError> {
        let found = self.state.jobs.base();
        if found == base {
            return Ok(());
        }
        let told = self.record_and_apply(now, Fact::NumberedFrom(base), None);
        told.map(drop)
            .map_err(|_| RecoverError::Numbers { found, base })
    }

    /// Whether this journal is one of several.
    #[must_use]
    pub fn is_one_of_several(&self) -> bool {
        self.state.moves().is_some()
    }

    /// This journal is one of several: its jobs may wait for those of others.
    pub fn join_shards(&mut self, now: Time) {
        if self.state.moves().is_none() {
            let _ = self.record_and_apply(now, Fact::LettersSent, None);
        }
    }

    /// One of each kind of tasks that no agent can do: what they ask for, and how many there are of all kinds together.
    #[must_use]
    pub fn held_kinds(&self) -> (Vec<&TaskRequest>, u64) {
        let scheduler = self.state.driver.scheduler();
        let one_of_each = scheduler.held_tasks().into_iter();
        let kinds = one_of_each.filter_map(|task| Some(self.state.jobs.spot(task)?.request));
        (kinds.collect(), scheduler.counts().held)
    }

    /// Writes a fact into the open group and applies it. `finish` is what an agent said of an attempt beyond
    /// its outcome: it goes to the history, not into a decision.
    ///
    /// # Errors
    /// When it makes no sense; then it changed nothing.
    pub fn record_and_apply(
        &mut self,
        now: Time,
        fact: Fact,
        finish: Option<Finish>,
    ) -> Result<Applied, ApiError> {
        if let Fact::ConfigChanged(config) | Fact::ConfigGiven(config) = &fact {
            let (tuning, forecast, added) = (config.self_tuning, config.forecast, config.added);
            if tuning != self.config().self_tuning {
                self.record_and_apply(now, Fact::SelfTuningSet(Box::new(tuning)), None)?;
            }
            if forecast != self.config().forecast {
                self.record_and_apply(now, Fact::ForecastSet(Box::new(forecast)), None)?;
            }
            if added != self.config().added {
                self.record_and_apply(now, Fact::AddedRulesSet(Box::new(added)), None)?;
            }
        }
        if self.records == Records::Everything {
            self.group.push(now, &fact);
            self.snapshots.facts += 1;
        }
        self.state.apply(now, fact, finish, &mut self.effects)
    }

    // Time.

    /// The time of the last fact.
    #[must_use]
    pub fn now(&self) -> Time {
        self.state.now
    }

    /// When the engine wants to be told that time has passed.
    #[must_use]
    pub fn next_timer(&self) -> Option<Time> {
        let look = self.state.tuner.next_look(self.config());
        let timer = self.state.driver.next_timer();
        let letters = self.state.moves().and_then(Moves::next_wake);
        let review = self.next_review();
        let others = look.into_iter().chain(letters).chain(review);
        timer.into_iter().chain(others).min()
    }

    /// Tells that time has passed, if anything waits for it.
    pub fn tick_if_due(&mut self, now: Time) {
        if self.state.driver.is_due(now) {
            let _ = self.record_and_apply(now, Fact::Tick, None);
        }
        if self.next_review().is_some_and(|at| at <= now) {
            self.last_review = now;
            if self.state.needs_review(now) {
                let _ = self.record_and_apply(now, Fact::BudgetsReviewed, None);
            }
        }
        let letters = self.state.moves().and_then(Moves::next_wake);
        if letters.is_some_and(|at| at <= now) {
            let _ = self.record_and_apply(now, Fact::LettersSent, None);
        }
        let look = self.state.tuner.next_look(self.config());
        if look.is_some_and(|at| at <= now) {
            let scheduler = self.state.driver.scheduler();
            if let Some(step) = self.state.tuner.look(now, scheduler) {
                let _ = self.record_and_apply(now, Fact::SettingTuned(Box::new(step)), None);
            }
        }
    }

    /// When to look at what is lent between shards; none where nothing is.
    fn next_review(&self) -> Option<Time> {
        let lends = self.state.lends();
        lends.then(|| self.last_review + budgets::REVIEW_EVERY)
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub fn unix_ms(&self, time: Time) -> u64 {
        self.state.unix_ms(time)
    }

    /// Has what is needed to hear that these tasks started or ended fetched from memory, for all at once. For
    /// whoever has many answers of agents at hand; it changes nothing.
    pub fn warm_caches(&self, tasks: impl Iterator<Item = TaskId>) {
        self.state.driver.warm_caches(tasks);
    }

    /// Has times count from this moment since 1970, for people: whoever drives the engine knows when its clock began.
    pub fn set_epoch(&mut self, unix_ns: u64) {
        self.state.epoch_unix_ns = unix_ns;
    }

    // What agents say. What they say of leases that they do not hold is dropped here.

    /// An agent began to run a task.
    pub fn started(&mut self, now: Time, agent: AgentId, task: TaskId, lease: Lease) {
        if self.holds(agent, task, lease) {
            let _ = self.record_and_apply(now, Fact::Started { agent, task, lease }, None);
        }
    }

    /// An attempt ended, after it `ran` so long.
    #[expect(clippy::too_many_arguments, reason = "what there is to say of an end")]
    pub fn finished(
        &mut self,
        now: Time,
        agent: AgentId,
        task: TaskId,
        lease: Lease,
        outcome: Outcome,
        ran: Span,
        finish: Finish,
    ) {
        if !self.holds(agent, task, lease) {
            return;
        }
        let (fact, finish) = match self.state.is_guest(task) {
            true => {
                let finish = Box::new(GuestFinish::from(finish));
                let fact = Fact::GuestFinished {
                    agent,
                    task,
                    lease,
                    outcome,
                    ran,
                    finish,
                };
                (fact, None)
            }
            false => {
                let fact = Fact::Finished {
                    agent,
                    task,
                    lease,
                    outcome,
                    ran,
                };
                (fact, Some(finish))
            }
        };
        let _ = self.record_and_apply(now, fact, finish);
    }

    /// An agent gave a task back, or says that it cannot.
    pub fn yielded(
        &mut self,
        now: Time,
        agent: AgentId,
        task: TaskId,
        lease: Lease,
        yielded: bool,
    ) {
        if self.holds(agent, task, lease) {
            let fact = Fact::Yielded {
                agent,
                task,
                lease,
                yielded,
            };
            let _ = self.record_and_apply(now, fact, None);
        }
    }

    /// A running task saved its state.
    pub fn checkpoint_saved(
        &mut self,
        now: Time,
        agent: AgentId,
        task: TaskId,
        lease: Lease,
        state: bytes::Bytes,
    ) {
        if self.holds(agent, task, lease) {
            let fact = Fact::Checkpoint {
                agent,
                task,
                lease,
                state,
            };
            let _ = self.record_and_apply(now, fact, None);
        }
    }

    /// A sign of life.
    pub fn heard(&mut self, now: Time, agent: AgentId, vitals: Vitals) {
        let _ = self.record_and_apply(now, Fact::AgentHeard { agent, vitals }, None);
    }

    fn holds(&mut self, agent: AgentId, task: TaskId, lease: Lease) -> bool {
        let held = self.state.driver.leases().held_by(agent, lease);
        let holds = held.is_some_and(|held| held.task == task);
        self.stale_answers += u64::from(!holds);
        holds
    }

    // Tasks that go to and come from other shards.

    /// What to do with a letter of another shard.
    #[must_use]
    pub fn receipt(&self, letter: &Letter) -> Receipt {
        match self.state.moves() {
            Some(moves) => moves.receipt(letter),
            None if letter.number == 1 && !carries_answers(letter) => Receipt::Next,
            None => Receipt::Ahead,
        }
    }

    /// Takes in a letter whose [receipt](Self::receipt) is [`Receipt::Next`], and answers what it asks for.
    pub fn receive(&mut self, now: Time, letter: Letter) {
        let _ = self.record_and_apply(now, Fact::LetterReceived(Box::new(letter)), None);
        let giving = self.state.moves().and_then(Moves::giving);
        if let Some((to, wish)) = giving {
            let tasks = self.state.choose_for(&wish);
            let _ = self.record_and_apply(now, Fact::TasksGiven { to, tasks }, None);
        }
    }

    /// Another shard has read our letters up to this one. False when that one was never sent.
    pub fn letters_read(&mut self, now: Time, by: ShardId, number: u64) -> bool {
        let moves = self.state.moves();
        let known = moves.map_or(0, |moves| moves.acknowledged(by));
        if number <= known {
            return true;
        }
        let was_sent = moves.is_some_and(|moves| moves.was_sent(by, number));
        if was_sent {
            let _ = self.record_and_apply(now, Fact::LettersRead { by, number }, None);
        }
        was_sent
    }

    /// Asks the shard for tasks that has too many, if there is one, and sends guests home that nobody here can run. `loads` is
    /// what the others told of themselves.
    pub fn rebalance_shards(
        &mut self,
        now: Time,
        rebalancer: &mut Rebalancer,
        kinds: &BTreeMap<Kind, (Vec<String>, Needs)>,
    ) {
        for task in self.state.unwanted_guests() {
            let _ = self.record_and_apply(now, Fact::GuestUnwanted(task), None);
        }
        let none = Moves::new(self.shard(), MoveLimits::default());
        let moves = self.state.moves().unwrap_or(&none);
        let room = |kind: Kind| match kinds.get(&kind) {
            Some((skills, needs)) => self.state.room_for(skills, needs),
            None => Room::default(),
        };
        if let Some((donor, wish)) = rebalancer.next_ask(now, moves, room) {
            let _ = self.record_and_apply(now, Fact::TasksAsked { donor, wish }, None);
        }
    }

    /// Which shard this is.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        ShardId::try_of(self.state.jobs.base()).unwrap_or_default()
    }

    /// What waits here that other shards might do.
    #[must_use]
    pub fn waiting_kinds(&self) -> Vec<WaitingKind> {
        let kinds = self.state.waiting_kinds().into_iter();
        kinds.map(|(_, kind)| kind).collect()
    }

    /// Where a task of this shard is, if it is with another one.
    #[must_use]
    pub fn whereabouts(&self, task: TaskId) -> Option<ShardId> {
        self.state.moves()?.whereabouts(task)
    }

    /// How many tasks of this shard are with others, and how many of others are here.
    #[must_use]
    pub fn moved_counts(&self) -> (u64, u64) {
        let count = |moves: &Moves| (moves.away_count() as u64, moves.guest_count() as u64);
        self.state.moves().map_or((0, 0), count)
    }

    // What is to be written and carried out.

    /// Whether somebody listens to events; else none are made.
    pub fn want_events(&mut self, wanted: bool) {
        self.effects.wants_events = wanted;
    }

    /// Whether somebody wants to see every decision of the core ([`Effects::decisions`]).
    pub fn want_decisions(&mut self, wanted: bool) {
        self.effects.wants_decisions = wanted;
    }

    /// Whether somebody traces tasks ([`Effects::steps`]); else nothing is made for them.
    pub fn want_steps(&mut self, wanted: bool) {
        self.effects.wants_steps = wanted;
    }

    /// How many bytes the open group has.
    #[must_use]
    pub fn group_len(&self) -> usize {
        self.group.len()
    }

    /// Whether somebody has to hear of what is in the open group.
    #[must_use]
    pub fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    /// Whether nothing was told since the last flush.
    #[must_use]
    pub fn is_group_empty(&self) -> bool {
        self.group.is_empty()
    }

    /// Jobs that ended since the last flush.
    #[must_use]
    pub fn jobs_over(&self) -> &[JobInfo] {
        &self.effects.jobs_over
    }

    /// Closes the open group.
    pub fn flush(&mut self) -> Flushed {
        let next = self.effects.next();
        let mut effects = std::mem::replace(&mut self.effects, next);
        let rows = std::mem::take(&mut effects.rows);
        let digest = self.state.digest.0;
        let group = (!self.group.is_empty()).then(|| self.group.finish(digest, rows));
        Flushed { group, effects }
    }

    /// Whether a snapshot of the state is worth its while.
    #[must_use]
    pub fn is_snapshot_due(&self) -> bool {
        self.snapshots.is_due(self.state.live())
    }

    /// Whether a snapshot now would spare the next start something.
    #[must_use]
    pub fn is_snapshot_of_use(&self) -> bool {
        self.snapshots.facts > 0
    }

    /// A copy of the state after the last group, to be packed elsewhere and kept: as quick as can be, for
    /// nobody is answered meanwhile.
    ///
    /// # Panics
    /// When a group is open: it would be part of the state, and stand behind the snapshot in the journal.
    pub fn copy_state(&mut self) -> StateCopy {
        assert!(
            self.group.is_empty(),
            "a snapshot stands between two groups"
        );
        self.snapshots.facts = 0;
        self.state.copy()
    }

    /// The last snapshot had so many bytes.
    pub fn note_snapshot_size(&mut self, bytes: u64) {
        self.snapshots.bytes = bytes;
    }

    // Questions.

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> &Config {
        self.state.driver.scheduler().config()
    }

    /// The core, to be looked at.
    #[must_use]
    pub fn scheduler(&self) -> &Scheduler {
        self.state.driver.scheduler()
    }

    /// A digest of all decisions so far.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.state.digest.0
    }

    /// The number of the agent with this name.
    #[must_use]
    pub fn agent_named(&self, name: &str) -> Option<AgentId> {
        self.state.names.agents.id(name)
    }

    /// An agent as it introduced itself, while the engine counts on it.
    #[must_use]
    pub fn registered(&self, agent: AgentId) -> Option<&AgentRecord> {
        let agent = self.agent(agent).filter(|agent| agent.registered);
        agent.map(|agent| &*agent.record)
    }

    /// Whose the name of an agent is: what the token is called with which it first came. None: nobody's.
    #[must_use]
    pub fn owner(&self, agent: AgentId) -> Option<&str> {
        let owner = self.agent(agent)?.record.owner.as_str();
        (!owner.is_empty()).then_some(owner)
    }

    /// When an agent was last heard.
    #[must_use]
    pub fn last_heard(&self, agent: AgentId) -> Option<Time> {
        self.agent(agent).map(|agent| agent.heard)
    }

    /// Whether an agent finishes what it has and gets nothing new, and has nothing left.
    #[must_use]
    pub fn is_drained(&self, agent: AgentId) -> bool {
        let draining = self.agent(agent).is_some_and(|agent| agent.draining);
        draining && self.state.driver.leases().is_free(agent)
    }

    /// How many tasks an agent has under a lease.
    #[must_use]
    pub fn held_by(&self, agent: AgentId) -> usize {
        self.state.driver.leases().of(agent).count()
    }

    fn agent(&self, agent: AgentId) -> Option<&Agent> {
        self.state.fleet.get(agent)
    }

    /// All agents that were ever here.
    pub fn agents(&self) -> impl Iterator<Item = AgentId> {
        self.state.fleet.iter().map(|(id, _)| id)
    }

    /// An agent.
    #[must_use]
    pub fn agent_info(&self, agent: AgentId) -> Option<AgentInfo> {
        self.state.agent_info(agent)
    }

    /// What runs now, and where.
    #[must_use]
    pub fn running(&self) -> Vec<RunningTask> {
        self.state.running()
    }

    /// A job that is not over, or that is kept because its failed tasks may be tried again.
    #[must_use]
    pub fn job_info(&self, job: JobId) -> Option<JobInfo> {
        let job = self.state.jobs.get(job)?;
        Some(self.state.job_info(job))
    }

    /// What a job in memory was made of.
    #[must_use]
    pub fn job_request(&self, job: JobId) -> Option<Arc<JobRequest>> {
        Some(Arc::clone(&self.state.jobs.get(job)?.request))
    }

    /// All jobs that are in memory.
    pub fn jobs(&self) -> impl Iterator<Item = JobInfo> {
        let jobs = self.state.jobs.iter();
        jobs.map(|job| self.state.job_info(job))
    }

    /// Which task of a job takes more entries: the array of this name, or the first one.
    ///
    /// # Errors
    /// When there is none.
    pub fn array_of(&self, job: JobId, name: Option<&str>) -> Result<u32, ApiError> {
        let known = self.state.jobs.get(job);
        let known = known.ok_or_else(|| ApiError::not_found("open job", job.0))?;
        let mut tasks = known.request.tasks.iter();
        let found = tasks.position(|task| {
            task.entries.is_some() && name.is_none_or(|name| task.name.as_deref() == Some(name))
        });
        let none = || ApiError::invalid("the job has no such array");
        found.and_then(|at| u32::try_from(at).ok()).ok_or_else(none)
    }

    /// Whether a job is known and not over.
    #[must_use]
    pub fn is_open(&self, job: JobId) -> bool {
        self.state.jobs.is_open(job)
    }

    /// How a job that is over ended.
    #[must_use]
    pub fn ended(&self, job: JobId) -> Option<JobState> {
        self.state.jobs.ended(job)
    }

    /// How many jobs are not over.
    #[must_use]
    pub fn open_jobs(&self) -> u64 {
        self.state.jobs.open_count()
    }

    /// A task that is not over.
    #[must_use]
    pub fn task_info(&self, task: TaskId) -> Option<TaskInfo> {
        self.state.task_info(task)
    }

    /// Which kind of work a task is, if its job is not over.
    #[must_use]
    pub fn work_of(&self, task: TaskId) -> Option<WorkKey> {
        self.state.jobs.spot(task)?.part.kind.work
    }

    /// Why a task that is not over is where it is.
    #[must_use]
    pub fn explain(&self, task: TaskId, now: Time) -> Option<Explanation> {
        self.state.explain(task, now)
    }

    /// What is wrong with the fleet.
    #[must_use]
    pub fn health(&self) -> Health {
        self.state.health()
    }

    /// What is expected to come, and what is done about it.
    #[must_use]
    pub fn forecast(&self) -> ForecastInfo {
        self.state.forecast()
    }

    /// Which settings were changed by themselves, and what came of it.
    #[must_use]
    pub fn tuning(&self) -> TuningInfo {
        self.state.tuning()
    }

    /// Everybody who submitted something or was given a weight, with what they have now.
    #[must_use]
    pub fn users(&self) -> Vec<UserInfo> {
        self.state.users()
    }

    /// The figures of the scheduler.
    #[must_use]
    pub fn fleet_info(&self) -> FleetInfo {
        let mut info = self.state.fleet_info();
        info.stale_answers += self.stale_answers;
        info
    }

    /// The figures of the fleet in the last minutes.
    #[must_use]
    pub fn fleet_figures(&self) -> Figures {
        self.state.fleet_figures()
    }

    /// What was counted of a job, for [`run_figures::of_job`](crate::run_figures::of_job).
    #[must_use]
    pub fn counted(&self, job: JobId) -> Counted {
        self.state.counted(Some(job))
    }

    /// What the tasks of a part have in common, by its first task.
    #[must_use]
    pub fn part(&self, first: TaskId) -> Option<PartView<'_>> {
        let spot = self.state.jobs.spot(first)?;
        Some(PartView {
            first: spot.part.first,
            job: spot.job.id,
            request: spot.request,
            hold: hold(&spot),
        })
    }
}

/// Whether a letter tells of what this shard must have asked for, or given.
fn carries_answers(letter: &Letter) -> bool {
    let is_answer = |item: &Item| !matches!(item, Item::Ask(_) | Item::Cancel(_) | Item::Word(_));
    letter.items.iter().any(is_answer)
}

/// When a snapshot of the state is worth its while.
#[derive(Clone, Copy, Debug)]
struct SnapshotRule {
    /// Facts since the last one: so many a start would have to replay.
    facts: u64,
    /// How large the last one was.
    bytes: u64,
}

impl SnapshotRule {
    /// So many are replayed in well under a second.
    const FACTS_MIN: u64 = 200_000;
    /// A snapshot costs about as much as this many facts for each live task.
    const FACTS_PER_TASK: u64 = 4;
    /// The same for its size.
    const BYTES_PER_FACT: u64 = 64;

    /// Both what a snapshot costs and what a replay costs stay a small part of the work that was done
    /// meanwhile.
    fn is_due(&self, live_tasks: u64) -> bool {
        let worth = (live_tasks * Self::FACTS_PER_TASK).max(self.bytes / Self::BYTES_PER_FACT);
        self.facts >= worth.max(Self::FACTS_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_due_when_it_is_worth_its_cost() {
        let rule = |facts, bytes| SnapshotRule { facts, bytes };
        assert!(!rule(199_999, 0).is_due(0));
        assert!(rule(200_000, 0).is_due(0));
        assert!(!rule(300_000, 0).is_due(100_000), "many tasks are live");
        assert!(rule(400_000, 0).is_due(100_000));
        assert!(!rule(300_000, 64 << 20).is_due(0), "the last one was large");
    }

    #[test]
    fn a_start_without_a_configuration_changes_nothing_that_was_recorded() {
        let mut engine = Engine::without_journal();
        engine.begin(Time::ZERO, &Config::default());
        let mut changed = Config::default();
        changed.thresholds.busy_threshold = 9;
        let changed_by_hand = Fact::ConfigChanged(Box::new(changed.clone()));
        let _ = engine.record_and_apply(Time::ZERO, changed_by_hand, None);
        // The next version has other defaults.
        engine.begin(Time::ZERO, &Config::served());
        assert_eq!(*engine.config(), changed);
        let given = Config {
            seed: 3,
            ..Config::served()
        };
        engine.begin(Time::ZERO, &given);
        assert_eq!(*engine.config(), given);
        engine.begin(Time::ZERO, &Config::served());
        assert_eq!(*engine.config(), Config::served());
        let mut new = Engine::without_journal();
        new.begin(Time::ZERO, &Config::served());
        assert_eq!(*new.config(), Config::served());
    }
}
