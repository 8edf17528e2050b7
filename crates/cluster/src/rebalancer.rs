//! Whom a shard that runs dry asks for tasks, and how many the other one gives.
//!
//! Every shard says now and then how much waits there ([`Load`]); that is a hint, may be old, and is written to no
//! journal. Three rules make of it something that settles:
//!
//! - whoever asks has less than [`low`](RebalancePace::low) to do, whoever gives has at least [`high`](RebalancePace::high),
//!   which is more, or has nobody at all who could do it;
//! - what is given makes both equal at most ([`share`]), reckoned by the giver with what it knows of itself at that moment.
//!   So a move never turns the difference round, and the same two do not move it back;
//! - a task is moved once: a guest is never given on ([`Moves`]).
//!
//! The nearest shard with too much is asked [D6], one of several that are equally near by lot, the more it has the likelier:
//! else all that run dry would go to the same one.
//!
//! [D6]: crate::shard::zone_distance

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use loxley_model::{Span, Time};

use crate::moves::{Kind, Moves, Wish};
use crate::shard::{ShardId, zone_distance};

/// When tasks are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RebalancePace {
    /// A shard whose slots have less to do than this asks for more. Longer than a question and its answer take, or slots
    /// stand idle meanwhile.
    pub low: Span,
    /// A shard whose slots have at least this much to do is asked.
    pub high: Span,
    /// How much a shard asks for: until its slots have so much to do.
    pub fill: Span,
    /// The shortest time between two questions of a shard.
    pub ask_every: Span,
    /// How long a question keeps a shard from asking others. Then its addressee is taken for slow.
    pub patience: Span,
    /// How long a shard that declined, or was slow, is not asked.
    pub rest: Span,
    /// A load that was told longer ago counts for nothing.
    pub stale: Span,
}

impl Default for RebalancePace {
    fn default() -> Self {
        Self {
            low: Span::from_secs(2),
            high: Span::from_secs(4),
            fill: Span::from_secs(30),
            ask_every: Span(250_000_000),
            patience: Span::from_secs(3),
            rest: Span::from_secs(2),
            stale: Span::from_secs(10),
        }
    }
}

/// What waits in a shard, of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct KindLoad {
    /// Which kind.
    pub kind: Kind,
    /// How many tasks of its own wait that it could give away.
    pub waiting: u32,
    /// How long all that waits for the same slots is expected to take, one after the other.
    pub work: Span,
    /// How many slots could run it.
    pub slots: u32,
}

impl KindLoad {
    /// How long it takes until the slots have done it all; for ever when there are none.
    #[must_use]
    pub fn drain(&self) -> Span {
        drain(self.work, self.slots)
    }
}

/// How a shard is, as it says to others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Where most of its agents are.
    pub zone: String,
    /// What waits there.
    pub kinds: Vec<KindLoad>,
}

/// What a shard has for a kind of task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Room {
    /// How many slots could run it.
    pub slots: u32,
    /// How much work waits for those slots already.
    pub work: Span,
}

/// How much work a shard gives to one that asks: as much as makes them equal, and all it has when it can run none of it.
#[must_use]
pub fn share(own: &KindLoad, wish: &Wish) -> Span {
    let (mine, theirs) = (u128::from(own.slots), u128::from(wish.slots));
    if mine == 0 {
        return own.work;
    }
    let (own_work, work) = (u128::from(own.work.0), u128::from(wish.work.0));
    let more = (own_work * theirs).saturating_sub(work * mine);
    let share = more / (mine + theirs);
    Span(u64::try_from(share).unwrap_or(u64::MAX).min(own.work.0))
}

fn drain(work: Span, slots: u32) -> Span {
    match (work.0, slots) {
        (0, _) => Span(0),
        (_, 0) => Span(u64::MAX),
        (work, slots) => Span(work / u64::from(slots)),
    }
}

/// Decides whom one shard asks.
#[derive(Clone, Debug)]
pub struct Rebalancer {
    me: ShardId,
    zone: String,
    pace: RebalancePace,
    board: BTreeMap<ShardId, (Time, Load)>,
    /// Who was asked last, when, and whether that is still what it waits for.
    last: Option<(ShardId, Time)>,
    rests: BTreeMap<ShardId, Time>,
    chance: u64,
}

impl Rebalancer {
    /// A shard that knows of nobody.
    #[must_use]
    pub fn new(me: ShardId, zone: String, pace: RebalancePace) -> Self {
        let chance = u64::from(me.0) << 32 | 0x5EED;
        Self {
            me,
            zone,
            pace,
            board: BTreeMap::new(),
            last: None,
            rests: BTreeMap::new(),
            chance,
        }
    }

    /// Where this shard is.
    pub fn set_zone(&mut self, zone: String) {
        self.zone = zone;
    }

    /// A shard said how it is.
    pub fn hear(&mut self, now: Time, shard: ShardId, load: Load) {
        if shard != self.me {
            self.board.insert(shard, (now, load));
        }
    }

    /// A shard answered a question with so many tasks.
    pub fn answered(&mut self, now: Time, donor: ShardId, count: usize) {
        if count == 0 {
            self.rests.insert(donor, now + self.pace.rest);
        }
        self.last = self.last.filter(|(asked, _)| *asked != donor);
    }

    /// Whom to ask now, and for what: [`Input::Asked`](crate::moves::Input::Asked). `room` says what this shard has for a
    /// kind of task.
    pub fn next_ask(
        &mut self,
        now: Time,
        moves: &Moves,
        room: impl FnMut(Kind) -> Room,
    ) -> Option<(ShardId, Wish)> {
        if let Some((donor, asked)) = self.last {
            let waited = now.since(asked);
            if waited < self.pace.ask_every {
                return None;
            }
            if moves.is_asked(donor) {
                if waited < self.pace.patience {
                    return None;
                }
                self.rests.insert(donor, now + self.pace.rest);
            }
        }
        self.rests.retain(|_, until| now < *until);
        let nearest = self.nearest(now, moves, room);
        let (donor, wish) = self.draw(&nearest)?;
        self.last = Some((donor, now));
        Some((donor, wish))
    }

    /// Those with too much that are nearest, each with what it would be asked for and how much it has.
    fn nearest(
        &self,
        now: Time,
        moves: &Moves,
        mut room: impl FnMut(Kind) -> Room,
    ) -> Vec<(ShardId, Wish, u64)> {
        let mut least = u32::MAX;
        let mut nearest = Vec::new();
        let mut rooms = BTreeMap::new();
        for (shard, (told, load)) in &self.board {
            let distance = zone_distance(&self.zone, &load.zone);
            let is_silent = now.since(*told) > self.pace.stale;
            let is_out = is_silent || self.rests.contains_key(shard) || !moves.may_ask(*shard);
            if is_out || distance > least {
                continue;
            }
            let wishes = load.kinds.iter().filter_map(|theirs| {
                let own = *rooms
                    .entry(theirs.kind)
                    .or_insert_with(|| room(theirs.kind));
                self.wish(theirs, own).map(|wish| (wish, theirs.work.0))
            });
            // Of several kinds the one with the most work.
            if let Some((wish, work)) = wishes.max_by_key(|(_, work)| *work) {
                if distance < least {
                    (least, nearest) = (distance, Vec::new());
                }
                nearest.push((*shard, wish, work));
            }
        }
        nearest
    }

    /// What this shard would like to have of it.
    fn wish(&self, theirs: &KindLoad, own: Room) -> Option<Wish> {
        let has_too_much = theirs.slots == 0 || theirs.drain() >= self.pace.high;
        if own.slots == 0 || theirs.waiting == 0 || !has_too_much {
            return None;
        }
        // What nobody there can run is taken also by those that have enough to do, up to what they would ask for.
        let enough = match theirs.slots {
            0 => self.pace.fill,
            _ => self.pace.low,
        };
        if drain(own.work, own.slots) >= enough {
            return None;
        }
        let fill = self.pace.fill.0.saturating_mul(u64::from(own.slots));
        let lacks = fill.saturating_sub(own.work.0);
        let each = (theirs.work.0 / u64::from(theirs.waiting)).max(1);
        let count = lacks.div_ceil(each).clamp(1, u64::from(theirs.waiting));
        Some(Wish {
            kind: theirs.kind,
            slots: own.slots,
            work: own.work,
            count: u32::try_from(count).unwrap_or(u32::MAX),
        })
    }

    fn draw(&mut self, candidates: &[(ShardId, Wish, u64)]) -> Option<(ShardId, Wish)> {
        // Some hundredths of a millisecond are enough to tell them apart, and all shards' together fit into a word.
        let weight = |work: u64| u128::from((work >> 16).max(1));
        let all: u128 = candidates.iter().map(|(_, _, work)| weight(*work)).sum();
        if all == 0 {
            return None;
        }
        let mut at = (u128::from(self.next_random()) * all) >> 64;
        for (shard, wish, work) in candidates {
            match at.checked_sub(weight(*work)) {
                Some(rest) => at = rest,
                None => return Some((*shard, *wish)),
            }
        }
        None
    }

    /// SplitMix64: enough to draw lots, and the same everywhere.
    fn next_random(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.chance;
        word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ word >> 31
    }
}

#[cfg(test)]
mod tests;
