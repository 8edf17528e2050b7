//! Several shards, several instances and one database in a world where everything is late, lost, cut off or stopped: tasks
//! that move between shards, their results, and cancels that follow them.
//!
//! ```text
//!   instance, for each shard:  Member ── Look, Take, Renew ──▶ ┐
//!                              Append ── Send, Look ─────────▶ ├ row, log, outbox, how far others' outboxes were read
//!     ShardModel (Moves)       reading ──────────────────────▶ ┘
//!     agents of the shard: run what was let out after an append, and report until it is written
//! ```
//!
//! Every write is to one shard alone. A copy of each shard, kept by applying what was committed, is what the checkers look
//! at, with books of their own: every task is in exactly one place, ends once, is given only by its home; nothing is given
//! between two shards while something is on its way between them; letters keep to their rate; and after the storm every
//! task ends and nothing is left under way.

use std::boxed::Box;
use std::collections::{BTreeMap, BTreeSet};
use std::format;
use std::string::String;
use std::vec;

use loxley_balance::Rng;
use loxley_model::{Lease, TaskId};

use super::*;
use crate::claim_row::ClaimRow;
use crate::moves::{Item, Kind, Letter, MoveLimits, Receipt};
use crate::rebalancer::{Load, RebalancePace, Rebalancer};
use crate::shard::ShardId;
use crate::shard_model::{Effects, Fact, Place, ShardModel};

const SECOND: u64 = 1_000_000_000;
/// How often an instance looks after a shard.
const STEP: u64 = SECOND / 4;
/// From here on nothing is asked for any more.
const LAST_SUBMISSION: u64 = 100 * SECOND;
/// From here on nothing goes wrong any more.
const CALM_FROM: u64 = 130 * SECOND;
const END: u64 = 3_000 * SECOND;
/// What takes so long ends only when it is cancelled.
const FOREVER: Span = Span(1_000 * SECOND);
const KINDS: u64 = 2;

/// Something that is built wrong, to see that the checkers see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// A letter that was read before is taken for a new one.
    ReadsTwice,
    /// That a letter was read is written down before the append that takes it in.
    AcknowledgesEarly,
    /// Letters are written beside the append, and may be missing.
    LosesLetters,
    /// Nobody is told that a task that is away was cancelled.
    CancelStaysHome,
    /// The database does not compare epochs.
    NoFence,
}

/// A shard in the database, and the checkers' copy of it.
struct Row {
    claim: ClaimRow,
    log: Vec<Group>,
    outbox: BTreeMap<(ShardId, u64), Letter>,
    /// How far the letters of others were read.
    read: BTreeMap<ShardId, u64>,
    load: Load,
    copy: ShardModel,
}

#[derive(Clone, Debug)]
struct Group {
    number: u64,
    facts: Vec<(Time, Fact)>,
}

impl Row {
    fn last(&self) -> u64 {
        self.log.last().map_or(0, |group| group.number)
    }
}

/// A group on its way.
#[derive(Clone, Debug)]
struct Draft {
    epoch: u64,
    at: usize,
    before: u64,
    group: Group,
    letters: Vec<Letter>,
}

/// What an instance reads of the others.
#[derive(Clone, Debug, Default)]
struct Mail {
    letters: Vec<Letter>,
    read: Vec<(ShardId, u64)>,
    loads: Vec<(ShardId, Load)>,
}

enum Message {
    Wake,
    Ask(Action),
    Answer(Input),
    Ended,
    /// The groups are to be read, by this epoch.
    Fetch(u64),
    Fetched {
        epoch: u64,
        log: Vec<Group>,
    },
    Write {
        attempt: u64,
        draft: Box<Draft>,
    },
    Inspect {
        attempt: u64,
        draft: Box<Draft>,
    },
    /// What came of an attempt.
    Heard {
        attempt: u64,
        heard: Heard,
    },
    /// Letters to a shard are to be read; it says how it is.
    Read {
        epoch: u64,
        load: Load,
    },
    Mail {
        epoch: u64,
        mail: Box<Mail>,
    },
}

/// What an instance knows of a shard while it serves it. Dropped with its epoch.
struct Serving {
    epoch: u64,
    until: u64,
    /// From when the journal was read on.
    known: Option<Known>,
    append: Option<(Append, Box<Draft>, Effects)>,
}

struct Known {
    model: ShardModel,
    rebalancer: Rebalancer,
    at: usize,
    last: u64,
    mail: Option<Box<Mail>>,
    reads_until: u64,
    /// A letter was missing, or spoke of what is not known: nothing may be committed any more.
    is_behind: bool,
}

struct Instance {
    stands_still_until: u64,
    cut_off_until: u64,
    shards: Vec<Seat>,
}

/// An instance, as far as one shard is concerned.
struct Seat {
    member: Member,
    serving: Option<Serving>,
    attempt: u64,
}

/// What the agents of a shard do.
#[derive(Default)]
struct Agents {
    known: BTreeSet<Lease>,
    /// What runs, and until when.
    runs: BTreeMap<(TaskId, Lease), u64>,
    slots: Vec<u32>,
}

/// What happened, to see that the storm was one.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    tasks: u64,
    given: u64,
    results: u64,
    homes: u64,
    declined: u64,
    cancels: u64,
    repeated: u64,
    ahead: u64,
    epochs: u64,
    fenced: u64,
    found: u64,
    two_believe: u64,
}

struct World {
    rng: Rng,
    flaw: Flaw,
    limits: MoveLimits,
    now: u64,
    sequence: u64,
    queue: BTreeMap<(u64, u64), (usize, usize, Message)>,
    rows: Vec<Row>,
    instances: Vec<Instance>,
    agents: Vec<Agents>,
    /// What users ask for, until it is written; from when on.
    requests: Vec<Vec<(u64, u64, Fact)>>,
    /// Every task that was accepted, and how often its end was.
    ends: BTreeMap<TaskId, u32>,
    /// How often a task was given away, and came home.
    trips: BTreeMap<TaskId, (u32, u32)>,
    /// When each shard wrote letters, by the time of the facts.
    letters: Vec<Vec<u64>>,
    seen: Seen,
}

fn storm(seed: u64, flaw: Flaw) -> Result<Seen, String> {
    let mut rng = Rng::new(seed);
    let count = 2 + rng.index(3);
    let shards = 2 + rng.index(3);
    let limits = MoveLimits {
        letters_per_sec: 1 + rng.below(20) as u32,
        tasks_per_sec: 1 + rng.below(200) as u32,
        tasks_at_once: 1 + rng.below(30) as u32,
        rest: Span::from_secs(10),
    };
    let seat = || Seat {
        member: Member::new(Time(0), Pace::default()),
        serving: None,
        attempt: 0,
    };
    let instances = (0..count).map(|_| Instance {
        stands_still_until: 0,
        cut_off_until: 0,
        shards: (0..shards).map(|_| seat()).collect(),
    });
    let rows = (0..shards).map(|shard| Row {
        claim: ClaimRow::default(),
        log: vec![],
        outbox: BTreeMap::new(),
        read: BTreeMap::new(),
        load: Load::default(),
        copy: ShardModel::new(ShardId(shard as u16), limits),
    });
    let mut world = World {
        flaw,
        limits,
        now: 0,
        sequence: 0,
        queue: BTreeMap::new(),
        rows: rows.collect(),
        instances: instances.collect(),
        agents: vec![],
        requests: (0..shards).map(|_| vec![]).collect(),
        ends: BTreeMap::new(),
        trips: BTreeMap::new(),
        letters: (0..shards).map(|_| vec![]).collect(),
        seen: Seen::default(),
        rng,
    };
    world.set_up();
    let mut next_check = 0;
    while let Some(((now, _), (who, shard, message))) = world.queue.pop_first() {
        if now > END {
            break;
        }
        world.now = now;
        world.happen(who, shard, message)?;
        if now >= next_check {
            world.check_places()?;
            next_check = now + 5 * SECOND;
            if now > CALM_FROM && world.is_over() {
                break;
            }
        }
    }
    world.check_end()?;
    Ok(world.seen)
}

impl World {
    fn set_up(&mut self) {
        let shards = self.rows.len();
        for _ in 0..shards {
            let mut agents = Agents::default();
            for _ in 0..KINDS {
                agents.slots.push(self.some_slots());
            }
            self.agents.push(agents);
        }
        for who in 0..self.instances.len() {
            for shard in 0..shards {
                self.later(0, who, shard, Message::Wake);
            }
        }
        // Most of the work comes to the first shard.
        for number in 0..40 + self.rng.below(60) {
            let shard = match self.rng.below(3) {
                0 => self.rng.index(shards),
                _ => 0,
            };
            let cost = match self.rng.below(12) {
                0 => FOREVER,
                _ => Span(SECOND / 5 + self.rng.below(15 * SECOND)),
            };
            let at = self.rng.below(LAST_SUBMISSION);
            let fact = Fact::Submitted {
                key: number,
                count: 1 + self.rng.below(12) as u32,
                kind: Kind(self.rng.below(KINDS)),
                cost,
            };
            self.requests[shard].push((at, number, fact));
        }
    }

    fn some_slots(&mut self) -> u32 {
        match self.rng.below(3) {
            0 => 0,
            _ => 1 + self.rng.below(6) as u32,
        }
    }

    fn is_calm(&self) -> bool {
        self.now > CALM_FROM
    }

    fn later(&mut self, wait: u64, who: usize, shard: usize, message: Message) {
        self.sequence += 1;
        let key = (self.now + wait, self.sequence);
        self.queue.insert(key, (who, shard, message));
    }

    /// How long something is on its way.
    fn delay(&mut self) -> u64 {
        match (self.is_calm(), self.rng.below(20)) {
            (true, _) => self.rng.below(SECOND / 20),
            (false, 0) => self.rng.below(12 * SECOND),
            (false, _) => self.rng.below(SECOND / 2),
        }
    }

    fn is_lost(&mut self, who: usize) -> bool {
        let is_cut_off = self.now < self.instances[who].cut_off_until;
        is_cut_off || (!self.is_calm() && self.rng.below(15) == 0)
    }

    fn serving(&mut self, who: usize, shard: usize) -> Option<&mut Serving> {
        self.instances[who].shards[shard].serving.as_mut()
    }

    fn happen(&mut self, who: usize, shard: usize, message: Message) -> Result<(), String> {
        match message {
            Message::Ask(_)
            | Message::Fetch(_)
            | Message::Write { .. }
            | Message::Inspect { .. }
            | Message::Read { .. } => return self.arrive(who, shard, message),
            // Whoever stands still hears of it later: between any two steps.
            _ if self.now < self.instances[who].stands_still_until => {
                let wait = self.instances[who].stands_still_until - self.now;
                self.later(wait, who, shard, message);
            }
            Message::Wake => self.wake(who, shard),
            Message::Answer(input) => self.tell(who, shard, input),
            Message::Ended => {
                self.instances[who].shards[shard].serving = None;
                self.tell(who, shard, Input::Ended);
            }
            Message::Fetched { epoch, log } => self.fetched(who, shard, epoch, &log),
            Message::Heard { attempt, heard } => return self.hear(who, shard, attempt, heard),
            Message::Mail { epoch, mail } => {
                if let Some(serving) = self.serving(who, shard)
                    && serving.epoch == epoch
                    && let Some(known) = &mut serving.known
                {
                    known.mail = Some(mail);
                    known.reads_until = 0;
                }
            }
        }
        Ok(())
    }

    fn wake(&mut self, who: usize, shard: usize) {
        self.later(STEP, who, shard, Message::Wake);
        if !self.is_calm() {
            let often = 60 * self.rows.len() as u64;
            if self.rng.below(often) == 0 {
                self.instances[who].stands_still_until = self.now + self.rng.below(20 * SECOND);
            }
            if self.rng.below(often) == 0 {
                self.instances[who].cut_off_until = self.now + self.rng.below(20 * SECOND);
            }
            if who == 0 && self.rng.below(60) == 0 {
                let kind = self.rng.index(KINDS as usize);
                self.agents[shard].slots[kind] = self.some_slots();
            }
        } else if who == 0 {
            // Somewhere somebody can run everything; elsewhere it may stay as it is.
            for kind in 0..KINDS as usize {
                if self.agents.iter().all(|agents| agents.slots[kind] == 0) {
                    let last = self.agents.len() - 1;
                    self.agents[last].slots[kind] = 5;
                }
            }
        }
        let hands_over = !self.is_calm() && self.rng.below(200) == 0;
        let serves = self.serving(who, shard).is_some();
        let believe = self.instances.iter();
        let believe = believe.filter(|one| one.shards[shard].serving.is_some());
        self.seen.two_believe += u64::from(believe.count() > 1);
        if hands_over && serves {
            self.tell(who, shard, Input::HandOver);
        } else {
            self.tell(who, shard, Input::Tick);
        }
        self.read(who, shard);
        self.begin_append(who, shard);
    }

    /// Hands something to the member, and does what it says.
    fn tell(&mut self, who: usize, shard: usize, input: Input) {
        let mut actions = Vec::new();
        let now = Time(self.now);
        let seat = &mut self.instances[who].shards[shard];
        seat.member.handle(now, input, &mut actions);
        for action in actions {
            let delay = self.delay();
            match action {
                Action::Serve { epoch, until } => {
                    self.seen.epochs += 1;
                    self.instances[who].shards[shard].serving = Some(Serving {
                        epoch,
                        until: until.0,
                        known: None,
                        append: None,
                    });
                    self.later(delay, who, shard, Message::Fetch(epoch));
                }
                Action::Extend { until } => {
                    if let Some(serving) = self.serving(who, shard) {
                        serving.until = until.0;
                    }
                }
                // Whoever is about to write may still do so: what stops it is the database.
                Action::Stop(_) => self.later(delay, who, shard, Message::Ended),
                question => self.later(delay, who, shard, Message::Ask(question)),
            }
        }
    }

    /// Whoever takes over applies all facts, and has agents told again what they should run.
    fn fetched(&mut self, who: usize, shard: usize, epoch: u64, log: &[Group]) {
        let limits = self.limits;
        let Some(serving) = self.serving(who, shard) else {
            return;
        };
        if serving.epoch != epoch {
            return;
        }
        let me = ShardId(shard as u16);
        let mut model = ShardModel::new(me, limits);
        let mut nothing = Effects::default();
        for group in log {
            for (now, fact) in &group.facts {
                model.apply(*now, fact.clone(), &mut nothing);
            }
        }
        let running: Vec<_> = model.running().collect();
        let pace = RebalancePace {
            low: Span::from_secs(3),
            high: Span::from_secs(4),
            ..RebalancePace::default()
        };
        serving.known = Some(Known {
            model,
            rebalancer: Rebalancer::new(me, zone_of(shard), pace),
            at: log.len(),
            last: log.last().map_or(0, |group| group.number),
            mail: None,
            reads_until: 0,
            is_behind: false,
        });
        self.start(shard, running);
    }

    fn start(&mut self, shard: usize, starts: Vec<(TaskId, Lease, Span)>) {
        let now = self.now;
        let agents = &mut self.agents[shard];
        for (task, lease, cost) in starts {
            if agents.known.insert(lease) {
                let until = match cost {
                    FOREVER => u64::MAX,
                    cost => now + cost.0,
                };
                agents.runs.insert((task, lease), until);
            }
        }
    }

    fn read(&mut self, who: usize, shard: usize) {
        let (now, patience) = (self.now, 5 * SECOND);
        let Some(serving) = self.serving(who, shard) else {
            return;
        };
        let epoch = serving.epoch;
        let Some(known) = &mut serving.known else {
            return;
        };
        if now < known.reads_until || known.mail.is_some() {
            return;
        }
        known.reads_until = now + patience;
        let load = known.model.load(&zone_of(shard));
        let delay = self.delay();
        self.later(delay, who, shard, Message::Read { epoch, load });
    }

    /// Puts together what happened, applies it, and begins to write it.
    fn begin_append(&mut self, who: usize, shard: usize) {
        let Some(serving) = self.serving(who, shard) else {
            return;
        };
        if serving.append.is_some() {
            return;
        }
        let epoch = serving.epoch;
        let Some(mut known) = serving.known.take() else {
            return;
        };
        let mut effects = Effects::default();
        let facts = self.gather(shard, &mut known, &mut effects);
        let group = Group {
            number: self.next_number(),
            facts,
        };
        let draft = Draft {
            epoch,
            at: known.at,
            before: known.last,
            letters: effects.letters.clone(),
            group,
        };
        let is_empty = draft.group.facts.is_empty();
        let serving = self.serving(who, shard).expect("it serves");
        serving.known = Some(known);
        if !is_empty {
            serving.append = Some((Append::default(), Box::new(draft), effects));
            self.next_step(who, shard);
        }
    }

    fn next_number(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn gather(
        &mut self,
        shard: usize,
        known: &mut Known,
        effects: &mut Effects,
    ) -> Vec<(Time, Fact)> {
        let now = Time(self.now);
        let mut facts = vec![];
        let mut happened = |model: &mut ShardModel, fact: Fact| {
            model.apply(now, fact.clone(), effects);
            facts.push((now, fact));
        };
        let model = &mut known.model;
        for kind in 0..KINDS {
            let slots = self.agents[shard].slots[kind as usize];
            let kind = Kind(kind);
            if model.slots(kind) != slots {
                happened(model, Fact::Slots { kind, slots });
            }
        }
        for (at, key, fact) in &self.requests[shard] {
            if *at <= now.0 && !model.has_key(*key) {
                happened(model, fact.clone());
            }
        }
        for ((task, lease), until) in &self.agents[shard].runs {
            if *until <= now.0 && model.runs(*task, *lease) {
                let (task, lease) = (*task, *lease);
                happened(model, Fact::Finished { task, lease });
            }
        }
        if let Some(mail) = known.mail.take() {
            for (by, number) in mail.read {
                if !model.moves.was_sent(by, number) {
                    known.is_behind = true;
                } else if number > model.moves.acknowledged(by) {
                    let read = moves::Input::Acknowledged { by, number };
                    happened(model, Fact::Moves(read));
                }
            }
            for mut letter in mail.letters {
                let mut receipt = model.moves.receipt(&letter);
                if receipt == Receipt::Repeated && self.flaw == Flaw::ReadsTwice {
                    letter.number = model.moves.received(letter.from) + 1;
                    receipt = Receipt::Next;
                }
                match receipt {
                    Receipt::Next => {
                        happened(model, Fact::Moves(moves::Input::Received(letter)));
                    }
                    Receipt::Repeated => self.seen.repeated += 1,
                    Receipt::Ahead => {
                        // By its number alone it would be the next.
                        let received = model.moves.received(letter.from);
                        self.seen.ahead += u64::from(letter.number == received + 1);
                        known.is_behind = true;
                    }
                }
            }
            for (other, load) in mail.loads {
                known.rebalancer.hear(now, other, load);
            }
        }
        let next = known
            .rebalancer
            .next_ask(now, &model.moves, |kind| model.room(kind));
        if let Some((donor, wish)) = next {
            happened(model, Fact::Moves(moves::Input::Asked { donor, wish }));
        }
        if model.moves.next_wake().is_some_and(|at| at <= now) {
            happened(model, Fact::Moves(moves::Input::Flush));
        }
        for (donor, count) in effects.answered.drain(..) {
            known.rebalancer.answered(now, donor, count);
        }
        facts
    }

    fn next_step(&mut self, who: usize, shard: usize) {
        let now = self.now;
        let seat = &mut self.instances[who].shards[shard];
        let Some(serving) = &mut seat.serving else {
            return;
        };
        let Some((append, draft, _)) = &serving.append else {
            return;
        };
        let step = append.next(now < serving.until);
        let draft = draft.clone();
        seat.attempt += 1;
        let attempt = seat.attempt;
        let delay = self.delay();
        let (message, heard) = match step {
            Step::GiveUp => {
                self.instances[who].shards[shard].serving = None;
                return self.later(delay, who, shard, Message::Ended);
            }
            Step::Send => (Message::Write { attempt, draft }, Heard::Unknown),
            Step::Look => (Message::Inspect { attempt, draft }, Heard::Unanswered),
        };
        self.later(delay, who, shard, message);
        // The connection is given up after a while, wherever request and answer are by then.
        let patience = SECOND + self.rng.below(5 * SECOND);
        self.later(patience, who, shard, Message::Heard { attempt, heard });
    }

    /// Something reaches the database, also when its sender has given up on it.
    fn arrive(&mut self, who: usize, shard: usize, message: Message) -> Result<(), String> {
        if self.now < self.instances[who].cut_off_until {
            match message {
                Message::Ask(action) => {
                    if let Some(question) = question_of(action) {
                        let unanswered = Message::Answer(Input::Unanswered(question));
                        self.later(4 * SECOND, who, shard, unanswered);
                    }
                }
                Message::Fetch(epoch) => self.later(SECOND, who, shard, Message::Fetch(epoch)),
                _ => {}
            }
            return Ok(());
        }
        let is_lost = self.is_lost(who);
        let delay = self.delay();
        let answer = match message {
            Message::Ask(action) => {
                let Some((question, input)) = self.rows[shard].claim.answer(who, self.now, action)
                else {
                    return Ok(());
                };
                if is_lost {
                    let unanswered = Message::Answer(Input::Unanswered(question));
                    self.later(5 * SECOND, who, shard, unanswered);
                    return Ok(());
                }
                Message::Answer(input)
            }
            Message::Fetch(epoch) => {
                let log = self.rows[shard].log.clone();
                self.later(delay, who, shard, Message::Fetched { epoch, log });
                return Ok(());
            }
            Message::Write { attempt, draft } => {
                let heard = self.write(who, shard, &draft)?;
                Message::Heard { attempt, heard }
            }
            Message::Inspect { attempt, draft } => {
                let heard = self.inspect(who, shard, &draft);
                Message::Heard { attempt, heard }
            }
            Message::Read { epoch, load } => {
                self.rows[shard].load = load;
                let mail = Box::new(self.mail(shard));
                Message::Mail { epoch, mail }
            }
            _ => unreachable!("that is no request"),
        };
        if !is_lost {
            self.later(delay, who, shard, answer);
        }
        Ok(())
    }

    /// Everything that others say to a shard.
    fn mail(&mut self, shard: usize) -> Mail {
        let me = ShardId(shard as u16);
        let mut mail = Mail::default();
        for (other, row) in self.rows.iter().enumerate() {
            if other == shard {
                continue;
            }
            let from = ShardId(other as u16);
            let letters = row.outbox.range((me, 0)..=(me, u64::MAX));
            mail.letters
                .extend(letters.map(|(_, letter)| letter.clone()));
            if let Some(number) = row.read.get(&me) {
                mail.read.push((from, *number));
            }
            mail.loads.push((from, row.load.clone()));
        }
        if self.flaw == Flaw::AcknowledgesEarly {
            for letter in &mail.letters {
                let read = self.rows[shard].read.entry(letter.from).or_default();
                *read = letter.number.max(*read);
            }
        }
        mail
    }

    /// One transaction, on one shard.
    fn write(&mut self, who: usize, shard: usize, draft: &Draft) -> Result<Heard, String> {
        let row = &mut self.rows[shard];
        let is_ours = row.claim.is_of(draft.epoch, who);
        let continues = row.log.len() == draft.at && row.last() == draft.before;
        if !is_ours && continues && self.flaw == Flaw::NoFence {
            return Err(format!("{who} wrote under an epoch that is over"));
        }
        if !is_ours || !continues {
            self.seen.fenced += 1;
            return Ok(Heard::Fenced);
        }
        row.log.push(draft.group.clone());
        let mut effects = Effects::default();
        for (now, fact) in &draft.group.facts {
            row.copy.apply(*now, fact.clone(), &mut effects);
        }
        if effects.letters != draft.letters {
            return Err("the same facts did not lead to the same letters".into());
        }
        for (from, number) in &effects.acknowledge {
            row.read.insert(*from, *number);
        }
        for (to, number) in &effects.forget {
            row.outbox
                .retain(|(other, old), _| other != to || old > number);
        }
        let written = draft.group.facts.last().map_or(0, |(now, _)| now.0);
        self.check_letters(shard, written, &effects.letters)?;
        for mut letter in effects.letters {
            if self.flaw == Flaw::LosesLetters && self.rng.below(20) == 0 {
                continue;
            }
            if self.flaw == Flaw::CancelStaysHome {
                letter.items.retain(|item| !matches!(item, Item::Cancel(_)));
            }
            let row = &mut self.rows[shard];
            row.outbox.insert((letter.to, letter.number), letter);
        }
        self.book(shard, &effects.submitted, &effects.ended)?;
        let copy = &self.rows[shard].copy;
        self.requests[shard].retain(|(_, key, _)| !copy.has_key(*key));
        let now = self.now;
        let runs = &mut self.agents[shard].runs;
        runs.retain(|(task, lease), until| *until > now || copy.runs(*task, *lease));
        Ok(Heard::Committed)
    }

    /// Who is given what, by the checkers' own books.
    fn check_letters(
        &mut self,
        shard: usize,
        written: u64,
        letters: &[Letter],
    ) -> Result<(), String> {
        for letter in letters {
            self.letters[shard].push(written);
            let (from, to) = (letter.from, letter.to);
            let there = usize::from(to.0);
            for item in &letter.items {
                match item {
                    Item::Ask(_) | Item::Word(_) => {}
                    Item::Given(tasks) if tasks.is_empty() => self.seen.declined += 1,
                    Item::Given(tasks) => {
                        let received = self.rows[there].copy.moves.received(from);
                        let sent = |row: &Row, to: ShardId, received: u64| {
                            let open = row.outbox.range((to, received + 1)..=(to, u64::MAX));
                            open.flat_map(|(_, letter)| &letter.items)
                                .any(|item| matches!(item, Item::Given(tasks) if !tasks.is_empty()))
                        };
                        let back = self.rows[shard].copy.moves.received(to);
                        if sent(&self.rows[shard], to, received)
                            || sent(&self.rows[there], from, back)
                        {
                            return Err(format!("{from} gives to {to} while a move is open"));
                        }
                        for moved in tasks {
                            if ShardId::of(moved.task) != from {
                                return Err(format!("{from} gives {} on", moved.task));
                            }
                            self.seen.given += 1;
                            self.trips.entry(moved.task).or_default().0 += 1;
                        }
                    }
                    Item::Cancel(_) => self.seen.cancels += 1,
                    Item::Result { .. } => self.seen.results += 1,
                    Item::Home(task) => {
                        self.seen.homes += 1;
                        self.trips.entry(*task).or_default().1 += 1;
                    }
                }
            }
        }
        Ok(())
    }

    fn book(
        &mut self,
        shard: usize,
        submitted: &[TaskId],
        ended: &[(TaskId, bool)],
    ) -> Result<(), String> {
        for task in submitted {
            self.seen.tasks += 1;
            self.ends.insert(*task, 0);
            let goes_on = self.rows[shard].copy.tasks.get(task);
            let is_endless = goes_on.is_none_or(|task| task.cost == FOREVER);
            if is_endless || self.rng.below(10) == 0 {
                let at = self.now + SECOND + self.rng.below(40 * SECOND);
                let key = 1_000_000 + self.next_number();
                let task = *task;
                self.requests[shard].push((at, key, Fact::Cancelled { key, task }));
            }
        }
        for (task, _) in ended {
            let count = self.ends.get_mut(task);
            let count = count.ok_or_else(|| format!("{task} ended and was never accepted"))?;
            *count += 1;
            if *count > 1 {
                return Err(format!("{task} ended twice"));
            }
        }
        Ok(())
    }

    fn inspect(&self, who: usize, shard: usize, draft: &Draft) -> Heard {
        let row = &self.rows[shard];
        let is_ours = row.claim.is_of(draft.epoch, who);
        let (next, last) = (row.log.len(), row.last());
        if is_ours && next == draft.at + 1 && last == draft.group.number {
            Heard::Found
        } else if is_ours && next == draft.at && last == draft.before {
            Heard::Absent
        } else {
            Heard::Fenced
        }
    }

    /// An instance hears what came of an attempt; of an older one it hears nothing any more.
    fn hear(&mut self, who: usize, shard: usize, attempt: u64, heard: Heard) -> Result<(), String> {
        let seat = &mut self.instances[who].shards[shard];
        if seat.attempt != attempt {
            return Ok(());
        }
        let Some(serving) = &mut seat.serving else {
            return Ok(());
        };
        let Some((append, _, _)) = &mut serving.append else {
            return Ok(());
        };
        self.seen.found += u64::from(heard == Heard::Found);
        match append.hear(heard) {
            None => self.next_step(who, shard),
            Some(Outcome::Written) => {
                let (_, draft, effects) = serving.append.take().expect("it was there");
                let known = serving.known.as_mut().expect("it writes what it knows");
                (known.at, known.last) = (draft.at + 1, draft.group.number);
                if known.is_behind {
                    return Err(format!("{who} is behind, and yet it writes"));
                }
                self.start(shard, effects.starts);
                for (task, lease) in effects.kills {
                    self.agents[shard].runs.remove(&(task, lease));
                }
            }
            Some(Outcome::Fenced | Outcome::Refused) => {
                seat.serving = None;
                let delay = self.delay();
                self.later(delay, who, shard, Message::Ended);
            }
        }
        Ok(())
    }

    /// Every task is in one place, and what its home believes is so.
    fn check_places(&self) -> Result<(), String> {
        // How often a task is on its way to another shard or there, and on its way back.
        let mut elsewhere: BTreeMap<TaskId, Vec<String>> = BTreeMap::new();
        let mut note = |task: TaskId, what: String| elsewhere.entry(task).or_default().push(what);
        for row in &self.rows {
            let me = row.copy.me;
            let unread = row.outbox.values().filter(|letter| {
                let there = &self.rows[usize::from(letter.to.0)].copy;
                letter.number > there.moves.received(me)
            });
            let unread =
                unread.flat_map(|letter| letter.items.iter().map(|item| (letter.to, item)));
            for (to, item) in unread.chain(row.copy.moves.pending()) {
                match item {
                    Item::Given(tasks) => {
                        for moved in tasks {
                            note(moved.task, format!("on its way to {to}"));
                        }
                    }
                    Item::Result { task, .. } => note(*task, format!("as a result to {to}")),
                    Item::Home(task) => note(*task, format!("on its way home to {to}")),
                    Item::Ask(_) | Item::Cancel(_) | Item::Word(_) => {}
                }
            }
            for task in row.copy.tasks.keys() {
                if ShardId::of(*task) != me {
                    note(*task, format!("a guest of {me}"));
                }
            }
        }
        for (task, ends) in &self.ends {
            let home = &self.rows[usize::from(ShardId::of(*task).0)].copy;
            let place = home.tasks.get(task).map(|task| task.place);
            let others = elsewhere.get(task).map_or(&[][..], |places| &places[..]);
            let is_right = match place {
                Some(Place::Away) => *ends == 0 && others.len() == 1,
                Some(_) => *ends == 0 && others.is_empty(),
                None => *ends == 1 && others.is_empty(),
            };
            if !is_right {
                let now = self.now;
                return Err(format!(
                    "at {now}: {task} is {place:?} at home, ended {ends} times, {others:?}"
                ));
            }
            let (out, back) = self.trips.get(task).copied().unwrap_or_default();
            if out > back + 1 {
                return Err(format!("{task} was given away {out} times"));
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        let are_served = self.requests.iter().all(Vec::is_empty);
        let has_ended = |row: &Row| row.copy.tasks.is_empty() && row.copy.moves.is_quiet();
        are_served
            && self
                .rows
                .iter()
                .all(|row| has_ended(row) && row.outbox.is_empty())
    }

    fn check_end(&self) -> Result<(), String> {
        self.check_places()?;
        if !self.is_over() {
            let left: Vec<_> = self.rows.iter().map(|row| row.copy.tasks.len()).collect();
            let open: Vec<_> = self.rows.iter().map(|row| row.outbox.len()).collect();
            return Err(format!(
                "it does not come to an end: {left:?} tasks, {open:?} letters, {} requests",
                self.requests.iter().map(Vec::len).sum::<usize>()
            ));
        }
        for (shard, times) in self.letters.iter().enumerate() {
            // As many as a second holds, after a pause, and those of the second itself.
            let most = 2 * self.limits.letters_per_sec as usize;
            for window in times.windows(most + 1) {
                if window[most] - window[0] < SECOND {
                    return Err(format!("shard {shard} wrote too many letters"));
                }
            }
        }
        Ok(())
    }
}

fn zone_of(shard: usize) -> String {
    format!("zone{}/rack{shard}", shard / 2)
}

fn question_of(action: Action) -> Option<Question> {
    match action {
        Action::Look(question) | Action::Take { question, .. } | Action::Renew { question, .. } => {
            Some(question)
        }
        _ => None,
    }
}

/// Runs that once went wrong.
const KEPT: [u64; 2] = [
    // Two shards, each with tasks that only the other can run, asked each other in step, and both declined for ever.
    193,
    // A holder that was fenced and did not know it read the answer to what a later one had asked, and asserted that nobody
    // had asked.
    714,
];

fn seeds() -> u64 {
    match std::env::var_os("LOXLEY_TEST_LONG") {
        Some(_) => 5_000,
        None => 40,
    }
}

#[test]
fn no_task_is_lost_or_ends_twice_whatever_happens_between_shards() {
    let mut all = vec![];
    for seed in KEPT.into_iter().chain(0..seeds()) {
        match std::panic::catch_unwind(|| storm(seed, Flaw::None)) {
            Ok(Ok(seen)) => all.push(seen),
            Ok(Err(wrong)) => panic!("seed {seed}: {wrong}"),
            Err(_) => panic!("seed {seed}: an assertion failed"),
        }
    }
    // The storms did something, every kind of it.
    let sum = |figure: fn(&Seen) -> u64| all.iter().map(figure).sum::<u64>();
    let runs = all.len() as u64;
    for (what, least, count) in [
        ("tasks", 200 * runs, sum(|seen| seen.tasks)),
        ("given", 20 * runs, sum(|seen| seen.given)),
        ("results", 10 * runs, sum(|seen| seen.results)),
        ("sent home", runs, sum(|seen| seen.homes)),
        ("declined", runs, sum(|seen| seen.declined)),
        ("cancelled while away", runs, sum(|seen| seen.cancels)),
        ("read twice", runs, sum(|seen| seen.repeated)),
        ("answered another", runs / 2_000, sum(|seen| seen.ahead)),
        ("epochs", 5 * runs, sum(|seen| seen.epochs)),
        ("fenced", runs / 10, sum(|seen| seen.fenced)),
        ("found written", runs / 3, sum(|seen| seen.found)),
        (
            "two believe that they serve",
            runs,
            sum(|seen| seen.two_believe),
        ),
    ] {
        assert!(count >= least, "{what}: {count} in {runs} runs");
    }
}

#[test]
fn the_storm_finds_moves_that_are_built_wrong() {
    for flaw in [
        Flaw::ReadsTwice,
        Flaw::AcknowledgesEarly,
        Flaw::LosesLetters,
        Flaw::CancelStaysHome,
        Flaw::NoFence,
    ] {
        // The product has assertions of its own, which are as good.
        let fails =
            |seed| std::panic::catch_unwind(|| storm(seed, flaw)).map_or(true, |ran| ran.is_err());
        assert!((0..20).any(fails), "{flaw:?} went unnoticed");
    }
}
