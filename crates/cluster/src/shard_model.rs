//! A shard with its queues, as simple as can be, around the real [`Moves`]: for storms and for simulations at a scale that
//! no machine here has. Agents are slots, one pool a kind; whoever waits longest starts first.
//!
//! Like an engine it is a function of its facts: [`ShardModel::apply`] on the same facts gives the same state.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::vec::Vec;

use loxley_model::{Lease, Span, TaskId, Time};

use crate::moves::{Action, Input, Kind, Letter, MoveLimits, Moved, Moves};
use crate::rebalancer::{KindLoad, Load, Room, share};
use crate::shard::ShardId;

/// What is written to the journal of a shard.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fact {
    /// So many tasks were asked for; the key tells a repeated request.
    Submitted {
        key: u64,
        count: u32,
        kind: Kind,
        cost: Span,
    },
    /// Somebody cancels one of this shard's tasks.
    Cancelled { key: u64, task: TaskId },
    /// An agent says that it is done.
    Finished { task: TaskId, lease: Lease },
    /// Agents came or went.
    Slots { kind: Kind, slots: u32 },
    /// Something between shards.
    Moves(Input),
}

/// What follows from facts.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) letters: Vec<Letter>,
    pub(crate) acknowledge: Vec<(ShardId, u64)>,
    pub(crate) forget: Vec<(ShardId, u64)>,
    /// To be let out after the append.
    pub(crate) starts: Vec<(TaskId, Lease, Span)>,
    /// Running tasks that are to be ended by their agents.
    pub(crate) kills: Vec<(TaskId, Lease)>,
    /// Own tasks that ended, and whether they were cancelled.
    pub(crate) ended: Vec<(TaskId, bool)>,
    /// Tasks that were submitted.
    pub(crate) submitted: Vec<TaskId>,
    /// Answers to questions: by whom, and how many tasks.
    pub(crate) answered: Vec<(ShardId, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Waiting,
    Running(Lease),
    Away,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) kind: Kind,
    pub(crate) cost: Span,
    pub(crate) place: Place,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Pool {
    slots: u32,
    running: BTreeSet<TaskId>,
    /// May name tasks that do not wait any more.
    waiting: VecDeque<TaskId>,
    waiting_count: u32,
    own_waiting: u32,
    work: Span,
}

/// One shard. Tasks that ended are gone from it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ShardModel {
    pub(crate) me: ShardId,
    pub(crate) moves: Moves,
    pub(crate) tasks: BTreeMap<TaskId, Task>,
    pools: BTreeMap<Kind, Pool>,
    keys: BTreeSet<u64>,
    next_task: u64,
    next_lease: u64,
}

impl ShardModel {
    pub(crate) fn new(me: ShardId, limits: MoveLimits) -> Self {
        Self {
            me,
            moves: Moves::new(me, limits),
            tasks: BTreeMap::new(),
            pools: BTreeMap::new(),
            keys: BTreeSet::new(),
            next_task: 1,
            next_lease: 1,
        }
    }

    pub(crate) fn has_key(&self, key: u64) -> bool {
        self.keys.contains(&key)
    }

    pub(crate) fn runs(&self, task: TaskId, lease: Lease) -> bool {
        let place = self.tasks.get(&task).map(|task| task.place);
        place == Some(Place::Running(lease))
    }

    pub(crate) fn slots(&self, kind: Kind) -> u32 {
        self.pools.get(&kind).map_or(0, |pool| pool.slots)
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = (TaskId, Lease, Span)> {
        self.tasks.iter().filter_map(|(id, task)| match task.place {
            Place::Running(lease) => Some((*id, lease, task.cost)),
            _ => None,
        })
    }

    pub(crate) fn running_count(&self) -> usize {
        self.pools.values().map(|pool| pool.running.len()).sum()
    }

    pub(crate) fn waiting_count(&self) -> u32 {
        self.pools.values().map(|pool| pool.waiting_count).sum()
    }

    pub(crate) fn room(&self, kind: Kind) -> Room {
        let Some(pool) = self.pools.get(&kind) else {
            return Room::default();
        };
        Room {
            slots: pool.slots,
            work: pool.work,
        }
    }

    pub(crate) fn load(&self, zone: &str) -> Load {
        let kinds = self.pools.iter().map(|(kind, pool)| KindLoad {
            kind: *kind,
            waiting: pool.own_waiting,
            work: pool.work,
            slots: pool.slots,
        });
        Load {
            zone: zone.into(),
            kinds: kinds.filter(|kind| kind.waiting > 0).collect(),
        }
    }

    pub(crate) fn apply(&mut self, now: Time, fact: Fact, effects: &mut Effects) {
        match fact {
            Fact::Submitted {
                key,
                count,
                kind,
                cost,
            } => {
                assert!(self.keys.insert(key), "a request counts once");
                for _ in 0..count {
                    let task = TaskId(self.me.number(self.next_task));
                    self.next_task += 1;
                    effects.submitted.push(task);
                    self.admit(task, kind, cost);
                }
                self.fill(kind, effects);
            }
            Fact::Cancelled { key, task } => {
                assert!(self.keys.insert(key), "a request counts once");
                self.cancel_own(now, task, effects);
            }
            Fact::Finished { task, lease } => {
                assert!(self.runs(task, lease), "old leases are dropped before");
                self.end(now, task, false, effects);
            }
            Fact::Slots { kind, slots } => self.set_slots(now, kind, slots, effects),
            Fact::Moves(input) => self.apply_moves(now, input, effects),
        }
    }

    fn apply_moves(&mut self, now: Time, input: Input, effects: &mut Effects) {
        if let Input::Received(letter) = &input {
            for item in &letter.items {
                if let crate::moves::Item::Given(tasks) = item {
                    effects.answered.push((letter.from, tasks.len()));
                }
            }
        }
        let mut actions = Vec::new();
        self.moves.handle(now, input, &mut actions);
        for action in actions {
            match action {
                Action::Send(letter) => effects.letters.push(letter),
                Action::Acknowledge { from, number } => effects.acknowledge.push((from, number)),
                Action::Forget { to, number } => effects.forget.push((to, number)),
                Action::Give { to, wish } => {
                    let pool = self.pools.get(&wish.kind);
                    let load = pool.map_or(KindLoad::default(), |pool| KindLoad {
                        kind: wish.kind,
                        waiting: pool.own_waiting,
                        work: pool.work,
                        slots: pool.slots,
                    });
                    let tasks = self.take_out(wish.kind, share(&load, &wish), wish.count);
                    let given = Input::Given { to, tasks };
                    self.apply_moves(now, given, effects);
                }
                Action::Admit(moved) => {
                    let (kind, cost) = decode(&moved.body);
                    self.admit(moved.task, kind, cost);
                    self.fill(kind, effects);
                    self.send_home(now, kind, effects);
                }
                Action::CancelGuest(task) => self.end(now, task, true, effects),
                // These shards have nothing else to say.
                Action::Hear { .. } => {}
                Action::Settle { task, result } => {
                    self.tasks.remove(&task).expect("it is away, and counted");
                    effects.ended.push((task, result == CANCELLED));
                }
                Action::TakeBack { task, is_cancelled } => {
                    let known = self.tasks.remove(&task).expect("it is away, and counted");
                    match is_cancelled {
                        true => effects.ended.push((task, true)),
                        false => {
                            self.admit(task, known.kind, known.cost);
                            self.fill(known.kind, effects);
                        }
                    }
                }
            }
        }
    }

    fn admit(&mut self, id: TaskId, kind: Kind, cost: Span) {
        let task = Task {
            kind,
            cost,
            place: Place::Waiting,
        };
        let known = self.tasks.insert(id, task);
        assert!(known.is_none(), "a task is there once");
        self.queue(id, kind, cost);
    }

    fn queue(&mut self, id: TaskId, kind: Kind, cost: Span) {
        let is_own = ShardId::of(id) == self.me;
        let pool = self.pools.entry(kind).or_default();
        pool.waiting.push_back(id);
        pool.waiting_count += 1;
        pool.own_waiting += u32::from(is_own);
        pool.work += cost;
    }

    /// A task waits no more; its name in the queue is passed over later.
    fn unqueue(&mut self, id: TaskId, task: Task) {
        let is_own = ShardId::of(id) == self.me;
        let pool = self.pools.get_mut(&task.kind).expect("it waited there");
        pool.waiting_count -= 1;
        pool.own_waiting -= u32::from(is_own);
        pool.work = pool.work.saturating_sub(task.cost);
    }

    fn fill(&mut self, kind: Kind, effects: &mut Effects) {
        loop {
            let pool = self.pools.entry(kind).or_default();
            if pool.running.len() >= pool.slots as usize {
                return;
            }
            let Some(id) = pool.waiting.pop_front() else {
                return;
            };
            let Some(task) = self.tasks.get_mut(&id) else {
                continue;
            };
            if task.place != Place::Waiting {
                continue;
            }
            let lease = Lease(self.next_lease);
            self.next_lease += 1;
            let before = *task;
            task.place = Place::Running(lease);
            effects.starts.push((id, lease, before.cost));
            pool.running.insert(id);
            self.unqueue(id, before);
        }
    }

    fn set_slots(&mut self, now: Time, kind: Kind, slots: u32, effects: &mut Effects) {
        let pool = self.pools.entry(kind).or_default();
        pool.slots = slots;
        // Agents that went took their tasks with them.
        while pool.running.len() > slots as usize {
            let id = pool.running.pop_last().expect("it is not empty");
            let task = self.tasks.get_mut(&id).expect("it ran");
            task.place = Place::Waiting;
            let cost = task.cost;
            let is_own = ShardId::of(id) == self.me;
            pool.waiting.push_front(id);
            pool.waiting_count += 1;
            pool.own_waiting += u32::from(is_own);
            pool.work += cost;
        }
        self.fill(kind, effects);
        self.send_home(now, kind, effects);
    }

    /// Guests that nobody here can run.
    fn send_home(&mut self, now: Time, kind: Kind, effects: &mut Effects) {
        let pool = self.pools.entry(kind).or_default();
        if pool.slots > 0 || pool.waiting_count == pool.own_waiting {
            return;
        }
        let me = self.me;
        let waiting = pool.waiting.iter().copied();
        let guests: BTreeSet<TaskId> = waiting.filter(|id| ShardId::of(*id) != me).collect();
        for id in guests {
            let Some(task) = self.tasks.get(&id).copied() else {
                continue;
            };
            self.tasks.remove(&id);
            self.unqueue(id, task);
            self.apply_moves(now, Input::GuestUnwanted(id), effects);
        }
    }

    /// Own tasks that wait, those last in the queue first, of about so much work.
    fn take_out(&mut self, kind: Kind, work: Span, count: u32) -> Vec<Moved> {
        let mut taken = Vec::new();
        let mut given = Span(0);
        let mut passed_over = Vec::new();
        while given < work && taken.len() < count as usize {
            let pool = self.pools.entry(kind).or_default();
            if pool.own_waiting == 0 {
                break;
            }
            let Some(id) = pool.waiting.pop_back() else {
                break;
            };
            let Some(task) = self.tasks.get_mut(&id) else {
                continue;
            };
            if task.place != Place::Waiting {
                continue;
            }
            if ShardId::of(id) != self.me {
                passed_over.push(id);
                continue;
            }
            let before = *task;
            task.place = Place::Away;
            given += before.cost;
            let body = encode(kind, before.cost);
            taken.push(Moved { task: id, body });
            self.unqueue(id, before);
        }
        let pool = self.pools.entry(kind).or_default();
        pool.waiting.extend(passed_over.into_iter().rev());
        taken
    }

    fn cancel_own(&mut self, now: Time, id: TaskId, effects: &mut Effects) {
        match self.tasks.get(&id).map(|task| task.place) {
            None => {}
            Some(Place::Away) => self.apply_moves(now, Input::Cancelled(id), effects),
            Some(_) => self.end(now, id, true, effects),
        }
    }

    /// A task that is here ends: an own one for good, a guest with a word for its home.
    fn end(&mut self, now: Time, id: TaskId, is_cancelled: bool, effects: &mut Effects) {
        let Some(task) = self.tasks.remove(&id) else {
            return;
        };
        match task.place {
            Place::Waiting => self.unqueue(id, task),
            Place::Running(lease) => {
                let pool = self.pools.get_mut(&task.kind).expect("it ran there");
                pool.running.remove(&id);
                if is_cancelled {
                    effects.kills.push((id, lease));
                }
            }
            Place::Away => unreachable!("what is away does not end here"),
        }
        if ShardId::of(id) == self.me {
            effects.ended.push((id, is_cancelled));
        } else {
            let result = match is_cancelled {
                true => CANCELLED.into(),
                false => DONE.into(),
            };
            let ended = Input::GuestEnded { task: id, result };
            self.apply_moves(now, ended, effects);
        }
        self.fill(task.kind, effects);
    }
}

const CANCELLED: &[u8] = b"cancelled";
const DONE: &[u8] = b"done";

fn encode(kind: Kind, cost: Span) -> Vec<u8> {
    [kind.0.to_le_bytes(), cost.0.to_le_bytes()].concat()
}

fn decode(body: &[u8]) -> (Kind, Span) {
    let word = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().unwrap());
    (Kind(word(0)), Span(word(8)))
}
