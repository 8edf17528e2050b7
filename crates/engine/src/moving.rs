//! Tasks that go to other shards, and those of others that are here.
//!
//! ```text
//!   at home                                            where it is a guest
//!   TasksGiven: the task is away, its job counts it     LetterReceived: a part of a job of its own, kept apart from
//!   LetterReceived: it ends as it ended there, and       ours (`Jobs::guests`); it waits, runs and is tried again as
//!     its output and result go to the history here        any other, and writes no history
//! ```
//!
//! What travels and when is decided by [`Moves`]; here is what it means to jobs, to the core and to the history. What an agent
//! says of an attempt is part of the fact that it ended, for guests: whoever takes over writes the same letter.
//!
//! Times in letters count from the moment that all shards of a cluster count from.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use loxley_api::{ApiError, ErrorCode, JobRequest, Needs, TaskRequest};
use loxley_cluster::budgets;
use loxley_cluster::moves::{Action, Input as Move, Item, Kind, MoveLimits, Moved, Moves, Wish};
use loxley_cluster::rebalancer::{KindLoad, Room, share};
use loxley_cluster::shard::ShardId;
use loxley_driver::{Held, data_key, milli};
use loxley_journal::{AgentRow, LetterRow, Usage};
use loxley_model::{
    AgentId, Failure, JobId, JobSpec, JobState, Lease, Locality, Span, TaskId, TaskSpec, Time,
};
use loxley_policy::{Ending, Input, Place, Selection, Taking};
use serde::{Deserialize, Serialize};

use crate::effects::{Effects, Finish};
use crate::jobs::{GuestTask, Part, Tally};
use crate::names;
use crate::snapshot::Guests;
use crate::state::{Applied, State};

/// A letter with tasks holds about so many bytes at most, and no task that is larger by itself.
const LETTER_BYTES_MAX: usize = 4 << 20;

/// What a shard knows of moves.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Moving {
    pub(crate) moves: Moves,
    /// How many tasks of others ever came.
    pub(crate) admitted: u64,
    /// How those ended that are here no more.
    pub(crate) over: Tally,
    /// What guests said that succeeded and wait for their other copy to end.
    won: BTreeMap<TaskId, GuestEnd>,
    /// Jobs of this shard that jobs of others come after.
    watched: BTreeMap<JobId, Vec<ShardId>>,
}

/// What shards say to each other beside tasks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Word {
    /// A job of the sender comes after this one of the recipient.
    Watch(JobId),
    /// A job of the sender is over; none: there is no such job.
    Ended(JobId, Option<JobState>),
    /// Of a group whose limit holds in all shards together.
    Budget(String, budgets::Word),
}

/// A task as it travels.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct TravellingTask {
    job: JobId,
    name: Option<String>,
    user: String,
    created: Time,
    /// What is to be done, in JSON, without what only its home has to know.
    request: Vec<u8>,
    entry: Option<String>,
    number: u64,
    cost: Option<Span>,
    deadline: Option<Time>,
}

/// How a guest ended, as its home is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct GuestEnd {
    ended: GuestEnding,
    /// Who ran the last attempt, and what that agent is called.
    agent: Option<(AgentId, String)>,
    attempt: u32,
    started: Option<Time>,
    said: Option<GuestFinish>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum GuestEnding {
    Succeeded,
    Failed(Failure),
    Cancelled,
}

/// What an agent said of an attempt of a guest beyond its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GuestFinish {
    exit_code: Option<i32>,
    signal: Option<i32>,
    duration: Span,
    user: Span,
    system: Span,
    memory_bytes: u64,
    stdout: Bytes,
    stderr: Bytes,
    stdout_dropped: u64,
    stderr_dropped: u64,
    result: Bytes,
    message: String,
}

impl From<Finish> for GuestFinish {
    fn from(finish: Finish) -> Self {
        let Finish {
            exit_code,
            signal,
            usage,
            stdout,
            stderr,
            stdout_dropped,
            stderr_dropped,
            result,
            message,
        } = finish;
        let Usage {
            duration,
            user,
            system,
            memory_bytes,
        } = usage;
        Self {
            exit_code,
            signal,
            duration,
            user,
            system,
            memory_bytes,
            stdout,
            stderr,
            stdout_dropped,
            stderr_dropped,
            result,
            message,
        }
    }
}

impl From<GuestFinish> for Finish {
    fn from(finish: GuestFinish) -> Self {
        Self {
            exit_code: finish.exit_code,
            signal: finish.signal,
            usage: Usage {
                duration: finish.duration,
                user: finish.user,
                system: finish.system,
                memory_bytes: finish.memory_bytes,
            },
            stdout: finish.stdout,
            stderr: finish.stderr,
            stdout_dropped: finish.stdout_dropped,
            stderr_dropped: finish.stderr_dropped,
            result: finish.result,
            message: finish.message,
        }
    }
}

/// Bytes that are no letter of a shard.
#[derive(Debug, thiserror::Error)]
#[error("it was written by another version of Loxley")]
pub struct LetterError(#[from] postcard::Error);

/// What a letter says, as it was written.
///
/// # Errors
/// When these bytes are no letter.
pub fn read_letter(body: &[u8]) -> Result<Vec<Item>, LetterError> {
    Ok(postcard::from_bytes(body)?)
}

/// What waits in a shard, of one kind, and what it asks of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitingKind {
    /// How much it is.
    pub load: KindLoad,
    /// The skills it takes.
    pub skills: Vec<String>,
    /// What its tasks need.
    pub needs: Needs,
}

/// Tasks that ask for the same are of one kind, in every shard.
fn kind_of(skills: &[String], needs: &Needs) -> Kind {
    let mut skills: Vec<&str> = skills.iter().map(|skill| skill.trim()).collect();
    skills.sort_unstable();
    skills.dedup();
    let needs = (
        milli(needs.cpus),
        needs.memory_bytes,
        needs.named.iter().collect::<BTreeMap<_, _>>(),
    );
    let text = serde_json::to_string(&(skills, needs)).expect("names and numbers are JSON");
    // FNV-1a: the same on every machine and in every version.
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    Kind(text.bytes().fold(0xCBF2_9CE4_8422_2325, hash))
}

fn impossible() -> ApiError {
    ApiError::new(
        ErrorCode::Conflict,
        "the journal tells of other shards what cannot have happened",
    )
}

impl State {
    /// Which shard this is.
    pub(crate) fn shard(&self) -> ShardId {
        ShardId::try_of(self.jobs.base()).unwrap_or_default()
    }

    fn moving(&mut self) -> &mut Moving {
        let shard = self.shard();
        self.moving.get_or_insert_with(|| {
            Box::new(Moving {
                moves: Moves::new(shard, MoveLimits::default()),
                admitted: 0,
                over: Tally::default(),
                won: BTreeMap::new(),
                watched: BTreeMap::new(),
            })
        })
    }

    pub(crate) fn moves(&self) -> Option<&Moves> {
        self.moving.as_ref().map(|moving| &moving.moves)
    }

    pub(crate) fn is_guest(&self, task: TaskId) -> bool {
        self.moves().is_some_and(|moves| moves.is_guest(task))
    }

    /// Takes in what a journal tells of other shards, if it can be.
    pub(crate) fn follow(
        &mut self,
        happened: Move,
        out: &mut Effects,
    ) -> Result<Applied, ApiError> {
        if !self.is_possible(&happened) {
            return Err(impossible());
        }
        self.take_move(happened, out);
        Ok(Applied::Done)
    }

    fn is_possible(&self, happened: &Move) -> bool {
        let nothing_yet = || Moves::new(self.shard(), MoveLimits::default()).is_possible(happened);
        let can_be = self
            .moves()
            .map_or_else(nothing_yet, |moves| moves.is_possible(happened));
        let is_readable = |item: &Item| match item {
            Item::Result { body, .. } => postcard::from_bytes::<GuestEnd>(body).is_ok(),
            Item::Word(word) => postcard::from_bytes::<Word>(word).is_ok(),
            _ => true,
        };
        can_be
            && match happened {
                Move::Received(letter) => letter.items.iter().all(is_readable),
                _ => true,
            }
    }

    /// Takes in what happened between shards, and does what follows from it.
    pub(crate) fn take_move(&mut self, happened: Move, out: &mut Effects) {
        let mut actions = Vec::new();
        let now = self.now;
        self.moving().moves.handle(now, happened, &mut actions);
        for action in actions {
            match action {
                // Of the past, these are written already.
                Action::Send(_) | Action::Acknowledge { .. } | Action::Forget { .. }
                    if !out.keeps_history() => {}
                Action::Send(letter) => {
                    let body = postcard::to_stdvec(&letter.items).expect("memory takes a letter");
                    out.rows.letters.push(LetterRow {
                        to: letter.to.0,
                        number: letter.number,
                        body,
                    });
                }
                Action::Acknowledge { from, number } => {
                    out.rows.letters_read.push((from.0, number));
                }
                Action::Forget { to, number } => out.rows.letters_arrived.push((to.0, number)),
                // Whoever told the letter says what is given, before anything else happens.
                Action::Give { .. } => {}
                Action::Admit(moved) => self.admit(&moved, out),
                Action::CancelGuest(task) => {
                    let task = Selection::Task(task);
                    self.handle(Input::CancelRequested(task));
                    self.settle(None, out);
                }
                Action::Hear { from, word } => self.hear(from, &word, out),
                Action::Settle { task, result } => self.settle_away(task, &result, out),
                Action::TakeBack { task, .. } => {
                    self.handle(Input::TaskCameBack(task));
                    self.settle(None, out);
                }
            }
        }
    }

    pub(crate) fn say(&mut self, to: ShardId, word: Word, out: &mut Effects) {
        let word = postcard::to_stdvec(&word).expect("memory takes a word");
        self.take_move(Move::Said { to, word }, out);
    }

    fn hear(&mut self, from: ShardId, word: &[u8], out: &mut Effects) {
        match postcard::from_bytes(word).expect("a shard of this cluster wrote it") {
            Word::Watch(job) if self.jobs.is_open(job) => {
                let watched = self.moving().watched.entry(job).or_default();
                if !watched.contains(&from) {
                    watched.push(from);
                }
            }
            Word::Watch(job) => {
                let ended = self.jobs.ended(job);
                self.say(from, Word::Ended(job, ended), out);
            }
            Word::Ended(job, ended) => self.other_job_over(job, ended, out),
            Word::Budget(group, word) => self.hear_of_budget(from, &group, word, out),
        }
    }

    /// Asks other shards to say when jobs of theirs are over that this one comes after.
    pub(crate) fn watch_others(&mut self, job: JobId, out: &mut Effects) {
        let waits_for = self.jobs.get(job).map(|job| job.waits_for.clone());
        for other in waits_for.unwrap_or_default() {
            let shard = ShardId::try_of(other.0).filter(|shard| *shard != self.shard());
            if let Some(shard) = shard {
                self.say(shard, Word::Watch(other), out);
            }
        }
    }

    /// Says to other shards that a job is over which theirs come after.
    pub(crate) fn tell_watchers(&mut self, job: JobId, state: JobState, out: &mut Effects) {
        let moving = self.moving.as_mut();
        let watched = moving.and_then(|moving| moving.watched.remove(&job));
        for shard in watched.unwrap_or_default() {
            self.say(shard, Word::Ended(job, Some(state)), out);
        }
    }

    /// Tasks of this shard go to another one that asked for them.
    pub(crate) fn give_away(
        &mut self,
        to: ShardId,
        tasks: &[TaskId],
        out: &mut Effects,
    ) -> Result<Applied, ApiError> {
        let without_body = |task: &TaskId| Moved {
            task: *task,
            body: Vec::new(),
        };
        let tasks_alone = tasks.iter().map(without_body).collect();
        if !self.is_possible(&Move::Given {
            to,
            tasks: tasks_alone,
        }) {
            return Err(impossible());
        }
        let mut given = Vec::with_capacity(tasks.len());
        for task in tasks {
            if let Some(body) = self.travelling(*task) {
                self.handle(Input::TaskSentAway(*task));
                given.push(Moved { task: *task, body });
            }
        }
        self.take_move(Move::Given { to, tasks: given }, out);
        Ok(Applied::Done)
    }

    fn travelling(&self, task: TaskId) -> Option<Vec<u8>> {
        let spot = self.jobs.spot(task)?;
        let request = spot.request.alone();
        let guest = spot.part.guest.as_ref().and_then(|guest| guest.cost);
        let added = spot.part.added.as_ref().and_then(|added| added.cost);
        let declared = spot.request.cost_sec.and_then(Span::try_from_secs_f64);
        let task = TravellingTask {
            job: spot.job.id,
            name: spot.job.request.name.clone(),
            user: self.names.user_name(spot.job.user).as_ref().to_owned(),
            created: spot.job.created,
            request: request.to_json(),
            entry: spot.entry(),
            number: spot.number(),
            cost: guest.or(added).or(declared),
            deadline: spot.part.deadline,
        };
        Some(postcard::to_stdvec(&task).expect("memory takes a task"))
    }

    /// A task of another shard is to be run here.
    fn admit(&mut self, moved: &Moved, out: &mut Effects) {
        let task = postcard::from_bytes::<TravellingTask>(&moved.body).ok();
        let Some((job, spec)) = task.and_then(|task| self.put_guest(moved.task, task)) else {
            // Nobody here understands it, as little as a task that no agent can do.
            self.take_move(Move::GuestUnwanted(moved.task), out);
            return;
        };
        self.moving().admitted += 1;
        self.jobs.note_fed(std::slice::from_ref(&spec));
        let tasks = [spec].into();
        self.handle(Input::TasksSubmitted { job, tasks });
        self.settle(None, out);
    }

    /// Puts a guest where tasks are found by their numbers.
    fn put_guest(&mut self, id: TaskId, task: TravellingTask) -> Option<(JobSpec, TaskSpec)> {
        let request = TaskRequest::from_json(&task.request).ok()?;
        let kind = names::kind(&mut self.names, &request).ok()?;
        let user = self.names.users.intern(&task.user).ok()?;
        let spec = TaskSpec {
            priority: request.priority,
            cost: task.cost,
            deadline: task.deadline.filter(|deadline| *deadline > self.now),
            locality: request.near.as_ref().map(|near| Locality {
                key: data_key(&near.data),
                transfer: names::span(near.transfer_sec),
            }),
            ..TaskSpec::new(id, Arc::clone(&kind))
        };
        let part = Part {
            first: id,
            count: 1,
            fed: 1,
            over: 0,
            failed: false,
            kind,
            deadline: task.deadline,
            task: 0,
            added: None,
            guest: Some(Box::new(GuestTask {
                request: Arc::new(request),
                entry: task.entry,
                number: task.number,
                cost: task.cost,
            })),
        };
        let like = || JobRequest {
            name: task.name,
            ..JobRequest::default()
        };
        self.jobs
            .put_guest(task.job, user, task.created, like, part);
        let job = JobSpec {
            user,
            unplaceable: loxley_model::Unplaceable::Hold,
            ..JobSpec::new(task.job)
        };
        Some((job, spec))
    }

    /// A guest is over here. Its home hears how, with the next letter; here nothing is kept of it.
    pub(crate) fn guest_over(
        &mut self,
        task: TaskId,
        ending: Ending,
        finish: Option<Finish>,
        held: Option<Held>,
        out: &mut Effects,
    ) {
        let won = self.moving().won.remove(&task);
        let over = &mut self.moving().over;
        let ended = match ending {
            Ending::Succeeded { .. } | Ending::FellBack { .. } => {
                over.succeeded += 1;
                GuestEnding::Succeeded
            }
            Ending::Failed(failure) => {
                over.failed += 1;
                GuestEnding::Failed(failure)
            }
            Ending::Cancelled | Ending::Returned => {
                over.cancelled += 1;
                GuestEnding::Cancelled
            }
        };
        let priority = self.jobs.spot(task).map(|spot| spot.request.priority);
        if let Some(gone) = self.jobs.remove_guest(task) {
            self.ledger.job_ended(gone);
        }
        if let Some(priority) = priority {
            self.jobs.note_gone(priority);
        }
        if ending == Ending::Returned {
            // It goes home: whoever had that happen says so.
            return;
        }
        let end = won.unwrap_or_else(|| self.guest_end(ended, finish, held));
        let result = postcard::to_stdvec(&end).expect("memory takes an end");
        self.handle(Input::TaskForgotten(task));
        self.take_move(Move::GuestEnded { task, result }, out);
    }

    /// A guest succeeded, and is over only when its other copy is gone: what came of it is kept.
    pub(crate) fn keep_guest_result(
        &mut self,
        task: TaskId,
        finish: Option<Finish>,
        held: Option<Held>,
    ) {
        let end = self.guest_end(GuestEnding::Succeeded, finish, held);
        self.moving().won.insert(task, end);
    }

    fn guest_end(
        &self,
        ended: GuestEnding,
        finish: Option<Finish>,
        held: Option<Held>,
    ) -> GuestEnd {
        GuestEnd {
            ended,
            agent: held.map(|held| (held.agent, self.agent_name(held.agent))),
            attempt: held.map_or(0, |held| held.attempt),
            started: held.and_then(|held| held.started),
            said: finish.map(GuestFinish::from),
        }
    }

    /// A guest goes home: nobody here can run it.
    pub(crate) fn send_home(&mut self, task: TaskId, out: &mut Effects) {
        if !self.is_guest(task) {
            return;
        }
        self.handle(Input::TaskTaken(Taking::Task(task)));
        self.settle(None, out);
        self.take_move(Move::GuestUnwanted(task), out);
    }

    /// A task of this shard ended elsewhere.
    fn settle_away(&mut self, task: TaskId, result: &[u8], out: &mut Effects) {
        let end: GuestEnd = postcard::from_bytes(result).expect("a shard of this cluster wrote it");
        let held = end.agent.as_ref().map(|(agent, _)| Held {
            task,
            agent: *agent,
            attempt: end.attempt,
            started: end.started,
        });
        if let Some((agent, name)) = end.agent
            && out.keeps_history()
        {
            out.rows.agents.push(AgentRow { agent, name });
        }
        // No lease of this shard.
        let lease = Lease(0);
        let ending = match end.ended {
            GuestEnding::Succeeded => Ending::Succeeded {
                agent: held.map_or(AgentId(0), |held| held.agent),
                lease,
            },
            GuestEnding::Failed(failure) => Ending::Failed(failure),
            GuestEnding::Cancelled => Ending::Cancelled,
        };
        self.finishing = Some(lease);
        self.held_away = held;
        self.handle(Input::TaskEndedAway { task, ending });
        self.settle(end.said.map(Finish::from), out);
        self.finishing = None;
        self.held_away = None;
    }

    /// Tells other shards that tasks which are away are not wanted any more.
    pub(crate) fn call_back(&mut self, is_meant: impl Fn(TaskId) -> bool, out: &mut Effects) {
        let Some(moves) = self.moves() else { return };
        let away: Vec<TaskId> = moves.away().filter(|task| is_meant(*task)).collect();
        for task in away {
            self.take_move(Move::Cancelled(task), out);
        }
    }

    /// What this shard has for a kind of task.
    pub(crate) fn room_for(&self, skills: &[String], needs: &Needs) -> Room {
        let scheduler = self.driver.scheduler();
        let mut room = Room::default();
        for (id, agent) in self.fleet.iter().filter(|(_, agent)| agent.registered) {
            let record = &agent.record;
            if agent.draining || !can_do(record, skills, needs) {
                continue;
            }
            room.slots += record.slots;
            room.work = Span(room.work.0.saturating_add(scheduler.queued_work(id).0));
        }
        room
    }

    /// What waits here that other shards might do.
    pub(crate) fn waiting_kinds(&self) -> Vec<(TaskId, WaitingKind)> {
        let is_own = |task: TaskId| !self.is_guest(task);
        let classes = self.driver.scheduler().waiting_classes(is_own);
        let kinds = classes.into_iter().filter_map(|class| {
            let request = self.jobs.spot(class.example)?.request;
            let load = KindLoad {
                kind: kind_of(&request.skills, &request.needs),
                waiting: class.count,
                work: class.work,
                slots: class.slots,
            };
            let (skills, needs) = (request.skills.clone(), request.needs.clone());
            let kind = WaitingKind {
                load,
                skills,
                needs,
            };
            Some((class.example, kind))
        });
        kinds.collect()
    }

    /// Tasks for a shard that asked for some: as many as make both equal.
    pub(crate) fn choose_for(&self, wish: &Wish) -> Vec<TaskId> {
        let kinds = self.waiting_kinds();
        let found = kinds.iter().find(|(_, kind)| kind.load.kind == wish.kind);
        let Some((example, kind)) = found else {
            return Vec::new();
        };
        let share = share(&kind.load, wish);
        let is_own = |task: TaskId| !self.is_guest(task);
        let waiting = self.driver.scheduler().waiting_like(*example, is_own);
        let (mut given, mut work, mut bytes) = (Vec::new(), Span::ZERO, 0);
        for (task, cost) in waiting {
            let is_enough = work >= share || given.len() >= wish.count as usize;
            if is_enough || bytes >= LETTER_BYTES_MAX {
                break;
            }
            let size = self.travelling(task).map_or(usize::MAX, |body| body.len());
            if size <= LETTER_BYTES_MAX {
                bytes += size;
                work = Span(work.0.saturating_add(cost.0.max(1)));
                given.push(task);
            }
        }
        given
    }

    /// Guests that nobody here can run, and that were never begun.
    pub(crate) fn unwanted_guests(&self) -> Vec<TaskId> {
        let Some(moves) = self.moves() else {
            return Vec::new();
        };
        let scheduler = self.driver.scheduler();
        let is_held = |task: &TaskId| {
            let status = scheduler.task_status(*task);
            status.is_some_and(|status| status.place == Place::Held && status.attempts == 0)
        };
        moves.guests().filter(is_held).collect()
    }

    /// The guests, to be kept in a snapshot.
    pub(crate) fn guest_facts(&self) -> Guests {
        let Some(moves) = self.moves() else {
            return Vec::new();
        };
        let body = |task: TaskId| Some((task, self.travelling(task)?));
        moves.guests().filter_map(body).collect()
    }

    /// Puts back what [`guest_facts`](Self::guest_facts) kept. None: it is not what that made.
    pub(crate) fn restore_guests(&mut self, guests: Guests) -> Option<()> {
        for (id, body) in guests {
            self.put_guest(id, postcard::from_bytes(&body).ok()?)?;
        }
        let leased: Vec<TaskId> = self
            .driver
            .leases()
            .iter()
            .map(|(_, held)| held.task)
            .filter(|task| self.is_guest(*task))
            .collect();
        for task in leased {
            self.jobs.note_lease(task, 1);
        }
        Some(())
    }
}

/// Whether an agent has everything that tasks ask for.
fn can_do(agent: &crate::fact::AgentRecord, skills: &[String], needs: &Needs) -> bool {
    let has_named = |(name, amount): (&String, &u64)| {
        let mut has = agent.resources.iter();
        has.any(|(known, has)| known == name && has >= amount)
    };
    // Nothing said of processors or memory is no limit.
    let has_enough = |has: u64, need: u64| has == 0 || has >= need;
    skills.iter().all(|skill| agent.skills.contains(skill))
        && has_enough(agent.cpu_milli, milli(needs.cpus).unwrap_or(u64::MAX))
        && has_enough(agent.memory_bytes, needs.memory_bytes)
        && needs.named.iter().all(has_named)
}

#[cfg(test)]
mod storm;
