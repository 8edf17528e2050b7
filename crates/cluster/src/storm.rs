//! Several members and one database in a world where everything is late, lost, cut off or stopped: who serves, and what
//! is written.
//!
//! ```text
//!   instance: Member ── Look, Take, Renew ──▶ ┐
//!             Append ── Send, Look ─────────▶ ├ row (epoch, holder, expires), log     answers ──▶ instance
//!                       (late, lost, twice)   ┘ each request is done at once, when it arrives
//! ```
//!
//! The checkers keep books of their own: every group that was acknowledged stays where it was acknowledged, no group is
//! there twice, each was written under the epoch that the row had at that moment, and each epoch has one writer.

use std::collections::{BTreeMap, BTreeSet};
use std::format;
use std::string::String;
use std::vec;

use loxley_balance::Rng;

use super::*;
use crate::claim_row::ClaimRow;

const SECOND: u64 = 1_000_000_000;

/// From here on nothing goes wrong any more.
const CALM_FROM: u64 = 150 * SECOND;
const END: u64 = 230 * SECOND;

/// Something that is built wrong, to see that the checkers see.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// The database does not compare epochs.
    NoFence,
    /// An instance takes a write that nobody answered for a success.
    Guesses,
    /// An instance goes on serving after its lease.
    NeverStops,
}

/// The row of the shard and its groups, with their own clock: the true one.
#[derive(Default)]
struct Database {
    claim: ClaimRow,
    log: Vec<Written>,
}

#[derive(Clone, Copy)]
struct Written {
    epoch: u64,
    writer: usize,
    number: u64,
    chain: u64,
}

impl Database {
    fn chain(&self) -> u64 {
        self.log.last().map_or(0, |last| last.chain)
    }
}

/// A group on its way.
#[derive(Clone, Copy, Debug)]
struct Draft {
    epoch: u64,
    at: usize,
    before: u64,
    number: u64,
}

impl Draft {
    fn chain(&self) -> u64 {
        // Far from a hash, and enough for numbers that are drawn once.
        (self.before.rotate_left(7) ^ self.number).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
    }
}

/// Something that is under way.
#[derive(Clone, Copy, Debug)]
enum Message {
    Wake,
    Ask(Action),
    Answer(Input),
    Ended,
    /// The groups are to be read, by this epoch.
    Load(u64),
    Loaded {
        epoch: u64,
        next: usize,
        chain: u64,
    },
    Write {
        attempt: u64,
        draft: Draft,
    },
    Inspect {
        attempt: u64,
        draft: Draft,
    },
    /// What came of an attempt.
    Heard {
        attempt: u64,
        heard: Heard,
    },
}

/// What an instance knows while it serves. Dropped with its epoch.
#[derive(Clone, Copy)]
struct Serving {
    epoch: u64,
    until: u64,
    /// Where the journal ends, once it was read.
    end: Option<(usize, u64)>,
    append: Option<(Append, Draft)>,
}

struct Instance {
    member: Member,
    serving: Option<Serving>,
    stands_still_until: u64,
    cut_off_until: u64,
    attempt: u64,
}

/// What happened, to see that the storm was one.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    epochs: u64,
    acknowledged: u64,
    acknowledged_in_calm: u64,
    fenced: u64,
    doubts: u64,
    found: u64,
    absent: u64,
    given_up: u64,
    handovers: u64,
    two_believe: u64,
}

struct World {
    rng: Rng,
    flaw: Flaw,
    now: u64,
    sequence: u64,
    queue: BTreeMap<(u64, u64), (usize, Message)>,
    database: Database,
    instances: Vec<Instance>,
    /// Group and place, as it was acknowledged.
    acknowledged: Vec<(u64, usize)>,
    seen: Seen,
}

fn storm(seed: u64, flaw: Flaw) -> Result<Seen, String> {
    let mut rng = Rng::new(seed);
    let count = 2 + rng.below(3) as usize;
    let instances = (0..count).map(|_| Instance {
        member: Member::new(Time(0), Pace::default()),
        serving: None,
        stands_still_until: 0,
        cut_off_until: 0,
        attempt: 0,
    });
    let mut world = World {
        rng,
        flaw,
        now: 0,
        sequence: 0,
        queue: BTreeMap::new(),
        database: Database::default(),
        instances: instances.collect(),
        acknowledged: Vec::new(),
        seen: Seen::default(),
    };
    for who in 0..count {
        world.later(0, who, Message::Wake);
    }
    while let Some(((now, _), (who, message))) = world.queue.pop_first() {
        if now > END {
            break;
        }
        world.now = now;
        world.happen(who, message)?;
        world.check()?;
    }
    world.check_books()?;
    let serve = |instance: &Instance| instance.member.serves(Time(END)).is_some();
    if !world.instances.iter().any(serve) || world.seen.acknowledged_in_calm == 0 {
        return Err("nobody serves in the end".into());
    }
    Ok(world.seen)
}

impl World {
    fn is_calm(&self) -> bool {
        self.now > CALM_FROM
    }

    fn later(&mut self, wait: u64, who: usize, message: Message) {
        self.sequence += 1;
        let key = (self.now + wait, self.sequence);
        self.queue.insert(key, (who, message));
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

    fn happen(&mut self, who: usize, message: Message) -> Result<(), String> {
        match message {
            Message::Ask(_)
            | Message::Load(_)
            | Message::Write { .. }
            | Message::Inspect { .. } => self.arrive(who, message),
            // Whoever stands still hears of it later: between any two steps.
            _ if self.now < self.instances[who].stands_still_until => {
                let wait = self.instances[who].stands_still_until - self.now;
                self.later(wait, who, message);
                Ok(())
            }
            Message::Wake => {
                self.wake(who);
                Ok(())
            }
            Message::Answer(input) => {
                self.tell(who, input);
                Ok(())
            }
            Message::Ended => {
                self.instances[who].serving = None;
                self.tell(who, Input::Ended);
                Ok(())
            }
            Message::Loaded { epoch, next, chain } => {
                if let Some(serving) = &mut self.instances[who].serving
                    && serving.epoch == epoch
                {
                    serving.end = Some((next, chain));
                }
                Ok(())
            }
            Message::Heard { attempt, heard } => self.hear(who, attempt, heard),
        }
    }

    fn wake(&mut self, who: usize) {
        self.later(SECOND / 10, who, Message::Wake);
        if !self.is_calm() {
            if self.rng.below(150) == 0 {
                self.instances[who].stands_still_until = self.now + self.rng.below(20 * SECOND);
            }
            if self.rng.below(200) == 0 {
                self.instances[who].cut_off_until = self.now + self.rng.below(20 * SECOND);
            }
        }
        let hands_over = !self.is_calm() && self.rng.below(400) == 0;
        if hands_over && self.instances[who].serving.is_some() {
            self.seen.handovers += 1;
            self.tell(who, Input::HandOver);
        } else {
            self.tell(who, Input::Tick);
        }
        self.begin_append(who);
    }

    /// Hands something to the member, and does what it says.
    fn tell(&mut self, who: usize, input: Input) {
        let mut actions = Vec::new();
        let now = Time(self.now);
        self.instances[who].member.handle(now, input, &mut actions);
        for action in actions {
            match action {
                Action::Serve { epoch, until } => {
                    self.seen.epochs += 1;
                    self.instances[who].serving = Some(Serving {
                        epoch,
                        until: until.0,
                        end: None,
                        append: None,
                    });
                    let delay = self.delay();
                    self.later(delay, who, Message::Load(epoch));
                }
                Action::Extend { until } => {
                    if let Some(serving) = &mut self.instances[who].serving {
                        serving.until = until.0;
                    }
                }
                Action::Stop(_) => {
                    // Whoever is about to write may still do so: what stops it is the database.
                    let delay = self.delay();
                    self.later(delay, who, Message::Ended);
                }
                question => {
                    let delay = self.delay();
                    self.later(delay, who, Message::Ask(question));
                }
            }
        }
    }

    fn begin_append(&mut self, who: usize) {
        let Some(serving) = &mut self.instances[who].serving else {
            return;
        };
        let Some((at, before)) = serving.end else {
            return;
        };
        if serving.append.is_some() {
            return;
        }
        self.sequence += 1;
        let draft = Draft {
            epoch: serving.epoch,
            at,
            before,
            number: self.sequence,
        };
        serving.append = Some((Append::default(), draft));
        self.next_step(who);
    }

    fn next_step(&mut self, who: usize) {
        let instance = &mut self.instances[who];
        let Some(serving) = &mut instance.serving else {
            return;
        };
        let Some((append, draft)) = serving.append else {
            return;
        };
        let holds = self.now < serving.until || self.flaw == Flaw::NeverStops;
        let step = append.next(holds);
        instance.attempt += 1;
        let attempt = instance.attempt;
        let (message, unheard) = match step {
            Step::GiveUp => {
                self.seen.given_up += 1;
                let delay = self.delay();
                self.instances[who].serving = None;
                return self.later(delay, who, Message::Ended);
            }
            Step::Send => (Message::Write { attempt, draft }, Heard::Unknown),
            Step::Look => (Message::Inspect { attempt, draft }, Heard::Unanswered),
        };
        let delay = self.delay();
        self.later(delay, who, message);
        // The connection is given up after a while, wherever request and answer are by then.
        let patience = SECOND + self.rng.below(5 * SECOND);
        let heard = unheard;
        self.later(patience, who, Message::Heard { attempt, heard });
    }

    /// Something reaches the database, also when its sender has given up on it.
    fn arrive(&mut self, who: usize, message: Message) -> Result<(), String> {
        if self.now < self.instances[who].cut_off_until {
            if let Message::Ask(action) = message
                && let Some(question) = question_of(action)
            {
                let unanswered = Message::Answer(Input::Unanswered(question));
                self.later(4 * SECOND, who, unanswered);
            }
            if let Message::Load(_) = message {
                self.later(SECOND, who, message);
            }
            return Ok(());
        }
        let is_lost = self.is_lost(who);
        let delay = self.delay();
        let answer = match message {
            Message::Ask(action) => {
                let Some((question, input)) = self.database.claim.answer(who, self.now, action)
                else {
                    return Ok(());
                };
                if is_lost {
                    let unanswered = Message::Answer(Input::Unanswered(question));
                    self.later(5 * SECOND, who, unanswered);
                    return Ok(());
                }
                Message::Answer(input)
            }
            Message::Load(epoch) => Message::Loaded {
                epoch,
                next: self.database.log.len(),
                chain: self.database.chain(),
            },
            Message::Write { attempt, draft } => {
                let heard = self.write(who, draft)?;
                Message::Heard { attempt, heard }
            }
            Message::Inspect { attempt, draft } => {
                let heard = self.inspect(who, draft);
                Message::Heard { attempt, heard }
            }
            other => unreachable!("{other:?} is no request"),
        };
        if !is_lost || matches!(answer, Message::Loaded { .. }) {
            self.later(delay, who, answer);
        }
        Ok(())
    }

    fn write(&mut self, who: usize, draft: Draft) -> Result<Heard, String> {
        let row = &self.database;
        let is_ours = row.claim.is_of(draft.epoch, who) || self.flaw == Flaw::NoFence;
        if !is_ours || row.log.len() != draft.at || row.chain() != draft.before {
            self.seen.fenced += 1;
            return Ok(Heard::Fenced);
        }
        if !row.claim.is_of(draft.epoch, who) {
            return Err(format!(
                "at {}: {who} wrote under epoch {} while {} held {}",
                self.now, draft.epoch, row.claim.holder, row.claim.epoch
            ));
        }
        self.database.log.push(Written {
            epoch: draft.epoch,
            writer: who,
            number: draft.number,
            chain: draft.chain(),
        });
        Ok(Heard::Committed)
    }

    fn inspect(&self, who: usize, draft: Draft) -> Heard {
        let row = &self.database;
        let is_ours = row.claim.is_of(draft.epoch, who);
        let (next, chain) = (row.log.len(), row.chain());
        if is_ours && next == draft.at + 1 && chain == draft.chain() {
            Heard::Found
        } else if is_ours && next == draft.at && chain == draft.before {
            Heard::Absent
        } else {
            Heard::Fenced
        }
    }

    /// An instance hears what came of an attempt; of an older one it hears nothing any more.
    fn hear(&mut self, who: usize, attempt: u64, heard: Heard) -> Result<(), String> {
        let instance = &mut self.instances[who];
        if instance.attempt != attempt {
            return Ok(());
        }
        let Some(serving) = &mut instance.serving else {
            return Ok(());
        };
        let Some((append, draft)) = &mut serving.append else {
            return Ok(());
        };
        let heard = match heard {
            Heard::Unknown if self.flaw == Flaw::Guesses => Heard::Committed,
            heard => heard,
        };
        match heard {
            Heard::Unknown => self.seen.doubts += 1,
            Heard::Found => self.seen.found += 1,
            Heard::Absent => self.seen.absent += 1,
            _ => {}
        }
        let draft = *draft;
        match append.hear(heard) {
            None => self.next_step(who),
            Some(Outcome::Written) => {
                serving.append = None;
                serving.end = Some((draft.at + 1, draft.chain()));
                self.acknowledged.push((draft.number, draft.at));
                self.seen.acknowledged += 1;
                self.seen.acknowledged_in_calm += u64::from(self.now > CALM_FROM);
                let there = self.database.log.get(draft.at);
                if there.is_none_or(|there| there.number != draft.number) {
                    return Err(format!(
                        "at {}: {who} acknowledged {draft:?}, which is not there",
                        self.now
                    ));
                }
            }
            Some(Outcome::Fenced | Outcome::Refused) => {
                instance.serving = None;
                let delay = self.delay();
                self.later(delay, who, Message::Ended);
            }
        }
        Ok(())
    }

    /// Whoever may answer from memory is the one that the database says.
    fn check(&mut self) -> Result<(), String> {
        let mut believe = 0;
        for (who, instance) in self.instances.iter().enumerate() {
            let Some(serving) = instance.serving else {
                continue;
            };
            believe += 1;
            let answers = self.now < serving.until || self.flaw == Flaw::NeverStops;
            let row = &self.database;
            if answers && !row.claim.is_of(serving.epoch, who) {
                return Err(format!(
                    "at {}: {who} answers for epoch {}, and {} has {}",
                    self.now, serving.epoch, row.claim.holder, row.claim.epoch
                ));
            }
        }
        self.seen.two_believe += u64::from(believe > 1);
        Ok(())
    }

    /// Everything that was acknowledged is where it was; nothing is there twice; one writer an epoch, in order.
    fn check_books(&self) -> Result<(), String> {
        let log = &self.database.log;
        for (number, at) in &self.acknowledged {
            if log.get(*at).is_none_or(|there| there.number != *number) {
                return Err(format!("group {number} was acknowledged and is lost"));
            }
        }
        let numbers: BTreeSet<u64> = log.iter().map(|group| group.number).collect();
        if numbers.len() != log.len() {
            return Err("a group was written twice".into());
        }
        let mut writers: BTreeMap<u64, usize> = BTreeMap::new();
        for pair in log.windows(2) {
            if pair[0].epoch > pair[1].epoch {
                return Err("an earlier epoch wrote after a later one".into());
            }
        }
        for group in log {
            if *writers.entry(group.epoch).or_insert(group.writer) != group.writer {
                return Err(format!("epoch {} has two writers", group.epoch));
            }
        }
        Ok(())
    }
}

fn question_of(action: Action) -> Option<Question> {
    match action {
        Action::Look(question) | Action::Take { question, .. } | Action::Renew { question, .. } => {
            Some(question)
        }
        _ => None,
    }
}

fn seeds() -> u64 {
    match std::env::var_os("LOXLEY_TEST_LONG") {
        Some(_) => 20_000,
        None => 300,
    }
}

#[test]
fn one_writer_an_epoch_whatever_is_late_lost_cut_off_or_stopped() {
    let mut all = vec![];
    for seed in 0..seeds() {
        match storm(seed, Flaw::None) {
            Ok(seen) => all.push(seen),
            Err(wrong) => panic!("seed {seed}: {wrong}"),
        }
    }
    // The storms did something, every kind of it.
    let sum = |figure: fn(&Seen) -> u64| all.iter().map(figure).sum::<u64>();
    let runs = all.len() as u64;
    for (what, least, count) in [
        ("epochs", 3 * runs, sum(|seen| seen.epochs)),
        ("acknowledged", 50 * runs, sum(|seen| seen.acknowledged)),
        ("fenced", runs / 10, sum(|seen| seen.fenced)),
        ("in doubt", runs, sum(|seen| seen.doubts)),
        ("found written", runs / 3, sum(|seen| seen.found)),
        ("found absent", runs / 3, sum(|seen| seen.absent)),
        ("given up", runs / 10, sum(|seen| seen.given_up)),
        ("handed over", runs / 10, sum(|seen| seen.handovers)),
        (
            "two believe that they serve",
            runs / 10,
            sum(|seen| seen.two_believe),
        ),
    ] {
        assert!(count >= least, "{what}: {count} in {runs} runs");
    }
}

#[test]
fn the_storm_finds_what_is_built_wrong() {
    for flaw in [Flaw::NoFence, Flaw::Guesses, Flaw::NeverStops] {
        let found = (0..60).any(|seed| storm(seed, flaw).is_err());
        assert!(found, "a flaw went unnoticed");
    }
}
