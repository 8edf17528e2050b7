//! Tasks that go from one shard to another and whose results come back, exactly once, without a transaction over both.
//!
//! ```text
//!   shard B, which runs dry                      shard A, whose job it is
//!     Asked ──────────── Ask ──────────────────────▶ Give: chooses tasks that wait, or none
//!     Admit ◀─────────── Given (tasks, or none) ───── the tasks stay counted here, as away
//!     CancelGuest ◀───── Cancel ───────────────────── when somebody cancels one meanwhile
//!     GuestEnded ─────── Result ───────────────────▶ Settle
//!     GuestUnwanted ──── Home ─────────────────────▶ TakeBack
//! ```
//!
//! Everything that one shard says to another is a [`Letter`], numbered per sender and recipient. A sender writes it with
//! the append that it follows from, into its outbox. The recipient reads outboxes, takes in the letter that comes next by
//! its number, and writes with *that* append how far it has read; the sender then deletes what was read. So a letter
//! that is read twice is recognised, one that is skipped is missed, and each append is a write to one shard alone.
//!
//! [`Moves`] is the part of a shard's facts that this needs: a plain value, `handle(now, input, &mut actions)`. Inputs are
//! written to the shard's journal; whoever takes over applies them again and knows what its predecessor knew. What an
//! action says is done together with the append of its input, or after it, never before.
//!
//! What must stay true:
//! - a task is in one place: waiting or under lease at home, in a letter that was not read yet, a guest, or ended;
//! - a guest is never given on. It ends where it is, or goes home when nobody there can run it. So nothing wanders;
//! - tasks are given only to a shard that asked, and only while nothing is open between the two in either direction:
//!   whoever has tasks on their way to a shard asks it nothing, and of two that ask each other one declines, the one with
//!   the higher number. If both did, two shards that each wait for what the other can run might do so for ever.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use loxley_model::{Span, TaskId, Time};

use crate::rate::Rate;
use crate::shard::ShardId;

/// What tasks need to be run, as all shards call it: a hash of what they ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Kind(pub u64);

/// How many rebalancing messages and moves a shard makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MoveLimits {
    /// Letters of one shard to all others, per second.
    pub letters_per_sec: u32,
    /// Tasks that one shard gives to all others, per second.
    pub tasks_per_sec: u32,
    /// Tasks in one letter.
    pub tasks_at_once: u32,
    /// How long a shard that sent a task home, because it can run none of its kind, is given no other of that kind.
    pub rest: Span,
}

impl Default for MoveLimits {
    fn default() -> Self {
        Self {
            letters_per_sec: 20,
            tasks_per_sec: 2_000,
            tasks_at_once: 1_000,
            rest: Span::from_secs(30),
        }
    }
}

/// What a shard that runs dry asks another one for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Wish {
    /// Tasks of this kind.
    pub kind: Kind,
    /// How many slots it has that can run them.
    pub slots: u32,
    /// How much work waits for those slots already.
    pub work: Span,
    /// Not more than this.
    pub count: u32,
}

/// A task on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Moved {
    /// Which one; its number says where it is at home.
    pub task: TaskId,
    /// All that is needed to run it.
    pub body: Vec<u8>,
}

/// One thing in a letter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Item {
    /// The sender would like to have tasks.
    Ask(Wish),
    /// The answer to that: tasks of the sender, or none.
    Given(Vec<Moved>),
    /// A task of the sender is not wanted any more.
    Cancel(TaskId),
    /// A task of the recipient ended.
    Result {
        /// Which one.
        task: TaskId,
        /// How.
        body: Vec<u8>,
    },
    /// A task of the recipient comes back as it went: the sender has nobody who can run it.
    Home(TaskId),
    /// Something else that the sender has to say; what it means is not known here.
    Word(Vec<u8>),
}

/// What one shard says to another.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Letter {
    /// Who says it.
    pub from: ShardId,
    /// To whom.
    pub to: ShardId,
    /// From 1, without a gap, for each pair of sender and recipient.
    pub number: u64,
    /// What is said.
    pub items: Vec<Item>,
}

/// What happened. All of it is written to the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// This shard decided to ask another one for tasks; only when [`Moves::may_ask`] says so.
    Asked {
        /// Whom.
        donor: ShardId,
        /// For what.
        wish: Wish,
    },
    /// The answer to [`Action::Give`].
    Given {
        /// To whom.
        to: ShardId,
        /// What; empty when there is nothing to give.
        tasks: Vec<Moved>,
    },
    /// A letter was read whose [receipt](Moves::receipt) is [`Receipt::Next`].
    Received(Letter),
    /// A shard has written down that it has read so far; what it read [was sent](Moves::was_sent).
    Acknowledged {
        /// Which one.
        by: ShardId,
        /// Up to this letter.
        number: u64,
    },
    /// A guest ended.
    GuestEnded {
        /// Which one.
        task: TaskId,
        /// How.
        result: Vec<u8>,
    },
    /// Nobody here can run a guest that waits.
    GuestUnwanted(TaskId),
    /// A task that is away is not wanted any more.
    Cancelled(TaskId),
    /// Something else is to be said to another shard.
    Said {
        /// To whom.
        to: ShardId,
        /// What.
        word: Vec<u8>,
    },
    /// The append is about to be written: letters that are due go with it.
    Flush,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write this letter to the outbox, with the append.
    Send(Letter),
    /// Write down, with the append, that the letters of a shard were read up to this one.
    Acknowledge {
        /// Whose letters.
        from: ShardId,
        /// Up to this one.
        number: u64,
    },
    /// Delete letters to a shard from the outbox, with the append.
    Forget {
        /// To whom they went.
        to: ShardId,
        /// Up to this one.
        number: u64,
    },
    /// Choose tasks of this shard's own that wait, and say which: [`Input::Given`], before anything else happens.
    Give {
        /// For whom.
        to: ShardId,
        /// What it asked for, cut to what may be given now.
        wish: Wish,
    },
    /// A task of another shard is to be run here.
    Admit(Moved),
    /// A guest is not wanted any more: end it, and say how it ended.
    CancelGuest(TaskId),
    /// Another shard said something else.
    Hear {
        /// Who.
        from: ShardId,
        /// What.
        word: Vec<u8>,
    },
    /// A task of this shard ended elsewhere.
    Settle {
        /// Which one.
        task: TaskId,
        /// How.
        result: Vec<u8>,
    },
    /// A task of this shard is back, and waits again.
    TakeBack {
        /// Which one.
        task: TaskId,
        /// Somebody cancelled it while it was away: end it instead.
        is_cancelled: bool,
    },
}

/// What a letter that was read is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// The one that comes next: take it in.
    Next,
    /// It was taken in before: drop it.
    Repeated,
    /// This shard is behind: one before it is missing, or it answers what was never asked, or tells the end of what never
    /// went out. Somebody has acknowledged, asked or given for this shard since: a later holder, if this one was fenced and
    /// does not know yet; else the database lost what was acknowledged, and if an append succeeds after this was seen,
    /// that is it: stop, and say so.
    Ahead,
}

/// What is known of one other shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Peer {
    /// The last letter to it.
    sent: u64,
    /// The last one that it has.
    acknowledged: u64,
    /// The last one of it that was taken in.
    received: u64,
    /// The last letter to it with tasks in it.
    last_with_tasks: u64,
    /// Whether it was asked for tasks, and has not answered.
    asked: bool,
    /// What goes with the next letter.
    pending: VecDeque<Item>,
    /// Kinds of which it sent tasks home, and until when it is given no more of them.
    rests: BTreeMap<Kind, Time>,
}

impl Peer {
    /// Whether tasks are on their way to it that it may not have yet.
    fn is_open(&self) -> bool {
        self.last_with_tasks > self.acknowledged || self.pending.iter().any(carries_tasks)
    }
}

/// A letter is closed when it would become larger than this: it is written with one append, and taken in with another.
const LETTER_BYTES: usize = 4 << 20;

/// How much of a letter something takes, about.
fn bytes_of(item: &Item) -> usize {
    match item {
        Item::Given(tasks) => tasks.iter().map(|moved| moved.body.len()).sum(),
        Item::Result { body, .. } | Item::Word(body) => body.len(),
        Item::Ask(_) | Item::Cancel(_) | Item::Home(_) => 0,
    }
}

fn carries_tasks(item: &Item) -> bool {
    match item {
        Item::Given(tasks) => !tasks.is_empty(),
        Item::Home(_) => true,
        Item::Ask(_) | Item::Cancel(_) | Item::Result { .. } | Item::Word(_) => false,
    }
}

/// A task of this shard that is elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Away {
    at: ShardId,
    kind: Kind,
    is_cancelled: bool,
}

/// The moves of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Moves {
    me: ShardId,
    limits: MoveLimits,
    peers: BTreeMap<ShardId, Peer>,
    away: BTreeMap<TaskId, Away>,
    /// Tasks of others that are here, and whether they were cancelled.
    guests: BTreeMap<TaskId, bool>,
    /// The question of a shard that [`Action::Give`] asks about at this moment.
    giving: Option<(ShardId, Wish)>,
    letters: Rate,
    given: Rate,
    /// Who was written to last: the next in order has its turn first.
    last_written_to: ShardId,
}

impl Moves {
    /// A shard that has never heard of others.
    #[must_use]
    pub fn new(me: ShardId, limits: MoveLimits) -> Self {
        Self {
            me,
            limits,
            peers: BTreeMap::new(),
            away: BTreeMap::new(),
            guests: BTreeMap::new(),
            giving: None,
            letters: Rate::default(),
            given: Rate::default(),
            last_written_to: me,
        }
    }

    /// What to do with a letter that was read. This is asked before the letter is written to the journal.
    #[must_use]
    pub fn receipt(&self, letter: &Letter) -> Receipt {
        let received = self.received(letter.from);
        match letter.number {
            number if number <= received => Receipt::Repeated,
            number if number == received + 1 && self.follows(letter) => Receipt::Next,
            _ => Receipt::Ahead,
        }
    }

    /// Whether a letter can follow on what this shard knows.
    fn follows(&self, letter: &Letter) -> bool {
        let from = letter.from;
        let is_away = |task: &TaskId| self.whereabouts(*task) == Some(from);
        letter.items.iter().all(|item| match item {
            Item::Given(tasks) => {
                let is_here = |moved: &Moved| self.is_guest(moved.task);
                self.is_asked(from) && !tasks.iter().any(is_here)
            }
            Item::Result { task, .. } | Item::Home(task) => is_away(task),
            Item::Ask(_) | Item::Cancel(_) | Item::Word(_) => true,
        })
    }

    /// The last letter of a shard that was taken in.
    #[must_use]
    pub fn received(&self, from: ShardId) -> u64 {
        self.peers.get(&from).map_or(0, |peer| peer.received)
    }

    /// Up to which letter a shard is known to have read.
    #[must_use]
    pub fn acknowledged(&self, by: ShardId) -> u64 {
        self.peers.get(&by).map_or(0, |peer| peer.acknowledged)
    }

    /// Whether this letter was ever sent, as far as this shard knows. An acknowledgement of one that was not says the same
    /// as [`Receipt::Ahead`].
    #[must_use]
    pub fn was_sent(&self, to: ShardId, number: u64) -> bool {
        number <= self.peers.get(&to).map_or(0, |peer| peer.sent)
    }

    /// Whether a shard may be asked for tasks: it was not asked before, and has everything that was sent to it.
    #[must_use]
    pub fn may_ask(&self, donor: ShardId) -> bool {
        let peer = self.peers.get(&donor);
        donor != self.me && peer.is_none_or(|peer| !peer.asked && !peer.is_open())
    }

    /// Whether a question to this shard is not answered yet.
    #[must_use]
    pub fn is_asked(&self, donor: ShardId) -> bool {
        self.peers.get(&donor).is_some_and(|peer| peer.asked)
    }

    /// Where a task of this shard is, if it is away.
    #[must_use]
    pub fn whereabouts(&self, task: TaskId) -> Option<ShardId> {
        self.away.get(&task).map(|away| away.at)
    }

    /// Whether this is a task of another shard that is here.
    #[must_use]
    pub fn is_guest(&self, task: TaskId) -> bool {
        self.guests.contains_key(&task)
    }

    /// The tasks of this shard that are away, by number.
    pub fn away(&self) -> impl Iterator<Item = TaskId> {
        self.away.keys().copied()
    }

    /// The tasks of others that are here, by number.
    pub fn guests(&self) -> impl Iterator<Item = TaskId> {
        self.guests.keys().copied()
    }

    /// Who asked for tasks and is to be answered now ([`Action::Give`]).
    #[must_use]
    pub fn giving(&self) -> Option<(ShardId, Wish)> {
        self.giving
    }

    /// How many tasks of this shard are away.
    #[must_use]
    pub fn away_count(&self) -> usize {
        self.away.len()
    }

    /// How many tasks of others are here.
    #[must_use]
    pub fn guest_count(&self) -> usize {
        self.guests.len()
    }

    /// Whether nothing is under way: no task away, no guest, no letter that was not read, no question.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let is_quiet =
            |peer: &Peer| peer.sent == peer.acknowledged && peer.pending.is_empty() && !peer.asked;
        self.away.is_empty() && self.guests.is_empty() && self.peers.values().all(is_quiet)
    }

    /// When the next letter is due; none when nothing is to be said.
    #[must_use]
    pub fn next_wake(&self) -> Option<Time> {
        let has_pending = self.peers.values().any(|peer| !peer.pending.is_empty());
        has_pending.then(|| self.letters.next(self.limits.letters_per_sec))
    }

    /// What waits to be written to others.
    pub fn pending(&self) -> impl Iterator<Item = (ShardId, &Item)> {
        self.peers
            .iter()
            .flat_map(|(to, peer)| peer.pending.iter().map(move |item| (*to, item)))
    }

    /// Whether this can follow on what happened before. What comes from a journal is asked first: one that is damaged, or
    /// was made by somebody, must not end the program.
    #[must_use]
    pub fn is_possible(&self, input: &Input) -> bool {
        match input {
            Input::Asked { donor, .. } => self.may_ask(*donor),
            Input::Given { to, tasks } => self.may_give(*to, tasks),
            Input::Received(letter) => self.may_receive(letter),
            Input::Acknowledged { by, number } => *by != self.me && self.was_sent(*by, *number),
            _ => true,
        }
    }

    fn may_give(&self, to: ShardId, tasks: &[Moved]) -> bool {
        let is_asked =
            |(by, wish): &(ShardId, Wish)| *by == to && tasks.len() <= wish.count as usize;
        let mut seen = BTreeSet::new();
        let mut is_free = |moved: &Moved| {
            ShardId::try_of(moved.task.0) == Some(self.me)
                && !self.away.contains_key(&moved.task)
                && seen.insert(moved.task)
        };
        self.giving.as_ref().is_some_and(is_asked) && tasks.iter().all(&mut is_free)
    }

    fn may_receive(&self, letter: &Letter) -> bool {
        let from = letter.from;
        if letter.to != self.me || from == self.me || self.receipt(letter) != Receipt::Next {
            return false;
        }
        let mut may_ask = self.giving.is_none();
        let mut may_answer = self.is_asked(from);
        let mut seen = BTreeSet::new();
        letter.items.iter().all(|item| match item {
            Item::Ask(_) => core::mem::replace(&mut may_ask, false),
            Item::Given(tasks) => {
                let mut is_new = |moved: &Moved| {
                    ShardId::try_of(moved.task.0) == Some(from)
                        && !self.guests.contains_key(&moved.task)
                        && seen.insert(moved.task)
                };
                core::mem::replace(&mut may_answer, false) && tasks.iter().all(&mut is_new)
            }
            Item::Result { task, .. } | Item::Home(task) => {
                let is_there = self.away.get(task).is_some_and(|away| away.at == from);
                is_there && seen.insert(*task)
            }
            Item::Cancel(_) | Item::Word(_) => true,
        })
    }

    /// Takes in what happened, and says what is to be done.
    ///
    /// # Panics
    /// When the input is not one that can follow on what happened before.
    pub fn handle(&mut self, now: Time, input: Input, actions: &mut Vec<Action>) {
        match input {
            Input::Asked { donor, wish } => {
                assert!(self.may_ask(donor), "it may be asked");
                let peer = self.peer(donor);
                peer.asked = true;
                peer.pending.push_back(Item::Ask(wish));
            }
            Input::Given { to, tasks } => self.give(now, to, tasks),
            Input::Received(letter) => self.receive(now, letter, actions),
            Input::Acknowledged { by, number } => {
                assert!(self.was_sent(by, number), "what was never sent is not read");
                let peer = self.peer(by);
                if number > peer.acknowledged {
                    peer.acknowledged = number;
                    actions.push(Action::Forget { to: by, number });
                }
            }
            Input::GuestEnded { task, result } => {
                let body = result;
                self.dismiss(task, Item::Result { task, body });
            }
            Input::GuestUnwanted(task) => self.dismiss(task, Item::Home(task)),
            Input::Cancelled(task) => self.cancel(task),
            Input::Said { to, word } => self.peer(to).pending.push_back(Item::Word(word)),
            Input::Flush => self.write_letters(now, actions),
        }
    }

    fn peer(&mut self, id: ShardId) -> &mut Peer {
        assert!(id != self.me, "nobody writes to itself");
        self.peers.entry(id).or_default()
    }

    fn receive(&mut self, now: Time, letter: Letter, actions: &mut Vec<Action>) {
        assert_eq!(letter.to, self.me, "it is for somebody else");
        assert_eq!(
            self.receipt(&letter),
            Receipt::Next,
            "letters have an order"
        );
        let from = letter.from;
        let number = letter.number;
        self.peer(from).received = number;
        for item in letter.items {
            match item {
                Item::Ask(wish) => self.asked(now, from, wish, actions),
                Item::Given(tasks) => {
                    let peer = self.peer(from);
                    assert!(peer.asked, "tasks are given to whoever asked");
                    peer.asked = false;
                    for moved in tasks {
                        assert_eq!(ShardId::of(moved.task), from, "guests are not given on");
                        let known = self.guests.insert(moved.task, false);
                        assert!(known.is_none(), "it is here already");
                        actions.push(Action::Admit(moved));
                    }
                }
                Item::Cancel(task) => {
                    // One that ended meanwhile, or is on its way home, hears nothing of it any more.
                    if let Some(is_cancelled) = self.guests.get_mut(&task)
                        && !core::mem::replace(is_cancelled, true)
                    {
                        actions.push(Action::CancelGuest(task));
                    }
                }
                Item::Result { task, body } => {
                    self.come_home(from, task);
                    actions.push(Action::Settle { task, result: body });
                }
                Item::Home(task) => {
                    let away = self.come_home(from, task);
                    let until = now + self.limits.rest;
                    self.peer(from).rests.insert(away.kind, until);
                    let is_cancelled = away.is_cancelled;
                    actions.push(Action::TakeBack { task, is_cancelled });
                }
                Item::Word(word) => actions.push(Action::Hear { from, word }),
            }
        }
        actions.push(Action::Acknowledge { from, number });
    }

    fn come_home(&mut self, from: ShardId, task: TaskId) -> Away {
        let away = self.away.remove(&task).expect("it was away");
        assert_eq!(away.at, from, "it was elsewhere");
        away
    }

    /// A shard asks for tasks. It gets them, or hears that there are none, with the next letter.
    fn asked(&mut self, now: Time, by: ShardId, wish: Wish, actions: &mut Vec<Action>) {
        let left = self.given.left(now, self.limits.tasks_per_sec);
        let count = wish.count.min(left).min(self.limits.tasks_at_once);
        let me = self.me;
        let peer = self.peer(by);
        peer.rests.retain(|_, until| now < *until);
        // A question of ours that is open crossed with this one: an answer to it would have come before. So the other one
        // finds the same, and one of the two declines.
        let gives_way = peer.asked && me > by;
        let declines =
            count == 0 || gives_way || peer.is_open() || peer.rests.contains_key(&wish.kind);
        if declines {
            peer.pending.push_back(Item::Given(Vec::new()));
            return;
        }
        assert!(self.giving.is_none(), "one question after the other");
        let wish = Wish { count, ..wish };
        self.giving = Some((by, wish));
        actions.push(Action::Give { to: by, wish });
    }

    fn give(&mut self, now: Time, to: ShardId, tasks: Vec<Moved>) {
        let (asked_by, wish) = self.giving.take().expect("somebody asked");
        assert_eq!(asked_by, to, "it was somebody else who asked");
        assert!(
            tasks.len() <= wish.count as usize,
            "that is more than may be given"
        );
        for moved in &tasks {
            assert_eq!(ShardId::of(moved.task), self.me, "guests are not given on");
            let away = Away {
                at: to,
                kind: wish.kind,
                is_cancelled: false,
            };
            let known = self.away.insert(moved.task, away);
            assert!(known.is_none(), "it is away already");
        }
        let count = tasks.len() as u32;
        self.given.take(now, self.limits.tasks_per_sec, count);
        self.peer(to).pending.push_back(Item::Given(tasks));
    }

    /// A guest leaves, with a word for its home.
    fn dismiss(&mut self, task: TaskId, item: Item) {
        let known = self.guests.remove(&task);
        assert!(known.is_some(), "it was no guest");
        self.peer(ShardId::of(task)).pending.push_back(item);
    }

    fn cancel(&mut self, task: TaskId) {
        let away = self.away.get_mut(&task).expect("it is away");
        if !core::mem::replace(&mut away.is_cancelled, true) {
            let at = away.at;
            self.peer(at).pending.push_back(Item::Cancel(task));
        }
    }

    /// One letter to each shard that something is to be said to, as many as may go now.
    fn write_letters(&mut self, now: Time, actions: &mut Vec<Action>) {
        let per_sec = self.limits.letters_per_sec;
        let mut left = self.letters.left(now, per_sec);
        if left == 0 {
            return;
        }
        let has_pending = |(to, peer): (&ShardId, &Peer)| (!peer.pending.is_empty()).then_some(*to);
        let mut waiting: Vec<ShardId> = self.peers.iter().filter_map(has_pending).collect();
        let first = waiting.partition_point(|to| *to <= self.last_written_to);
        waiting.rotate_left(first);
        for to in waiting {
            if left == 0 {
                return;
            }
            left -= 1;
            self.letters.take(now, per_sec, 1);
            self.last_written_to = to;
            let letter = self.write_letter(to);
            actions.push(Action::Send(letter));
        }
    }

    fn write_letter(&mut self, to: ShardId) -> Letter {
        let (from, most) = (self.me, self.limits.tasks_at_once as usize);
        let peer = self.peer(to);
        peer.sent += 1;
        let number = peer.sent;
        let (mut items, mut size, mut bytes) = (Vec::new(), 0, 0);
        while let Some(item) = peer.pending.front() {
            size += match item {
                Item::Given(tasks) => tasks.len().max(1),
                _ => 1,
            };
            bytes += bytes_of(item);
            let is_full = size > most || bytes > LETTER_BYTES;
            if is_full && !items.is_empty() {
                break;
            }
            if carries_tasks(item) {
                peer.last_with_tasks = number;
            }
            items.extend(peer.pending.pop_front());
        }
        Letter {
            from,
            to,
            number,
            items,
        }
    }
}

#[cfg(test)]
mod tests;
