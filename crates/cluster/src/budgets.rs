//! Limits of groups that hold in all shards together: one shard owns the limit, and lends places to the others.
//!
//! ```text
//!   a shard with tasks of a group                    the owner
//!     Want(how many could run) ─────────────────────▶ shares the limit out by what each wants
//!     may start so many more   ◀──── Lent(places) ─── counts them as used from now on
//!     starts fewer from now on ◀──── Called(places) ─ another shard, or the owner, has more use for them
//!     Returned(places) ─────────────────────────────▶ counts them as free again
//! ```
//!
//! A *place* is the right to have one task of the group under lease. What must stay true: **what runs at the owner and the
//! places that are lent never exceed the limit.** A place counts as lent from the moment it is given until the owner has
//! heard that it is back, so the leases of all shards together never exceed it either, whoever dies meanwhile: a shard is
//! its journal, and whoever takes it over holds the same places and the same leases. While nobody holds a shard, its places
//! are not used, which is the price of that. A limit that is lowered is exceeded only by what ran already.
//!
//! Where the owner knows of no limit, shards are told that they are free; when a limit is set later they are asked to say
//! how many they run ([`Word::Cap`]), and until they have, the owner starts nothing.
//!
//! [`Budgets`] is a plain value, `handle(now, input, &mut actions)`; inputs follow from the facts of the shard's journal, and
//! words travel in letters ([`moves`](crate::moves)): each is read once, and in the order in which it was said.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use loxley_model::{Span, Time};

use crate::shard::ShardId;

/// Who owns the limits of all groups.
pub const OWNER: ShardId = ShardId(0);

/// How often shards look at what they have and want.
pub const REVIEW_EVERY: Span = Span::from_millis(250);

/// How long a shard has its turn where there are fewer places than shards that want one.
const TURN: Span = Span::from_secs(2);

/// Up to here every change of what is wanted is said; above, those of more than an eighth.
const WANT_EXACT: u32 = 16;

/// What a shard has of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Under lease.
    pub running: u32,
    /// On the queues of agents.
    pub waiting: u32,
}

impl Use {
    fn wanted(self) -> u32 {
        self.running.saturating_add(self.waiting)
    }
}

/// Whether it is worth a word that so many are wanted now.
fn is_news(wanted: u32, told: u32) -> bool {
    let is_few = wanted.min(told) <= WANT_EXACT;
    wanted != told && (is_few || wanted.abs_diff(told) > told / 8)
}

/// What shards say to each other of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Word {
    /// To the owner: so many could run here.
    Want(u32),
    /// To the owner: a job came with this limit. From the owner: this is the limit of all shards together.
    Limit(u32),
    /// To the owner: so many places are back.
    Returned(u32),
    /// To the owner: so many run here, and no more will before more are lent.
    Capped(u32),
    /// From the owner: so many more may run.
    Lent(u32),
    /// From the owner: give so many back.
    Called(u32),
    /// From the owner: there is no limit.
    Free,
    /// From the owner: there is a limit now.
    Cap,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// A job of this shard names a group.
    Named(&'a str),
    /// A job of this shard came with a limit.
    LimitSet {
        /// Of which group.
        group: &'a str,
        /// How many may run.
        limit: u32,
    },
    /// Another shard said something.
    Heard {
        /// Who.
        from: ShardId,
        /// Of which group.
        group: &'a str,
        /// What.
        word: Word,
        /// The limit that counts here, for an owner that nobody has asked before.
        limit: Option<u32>,
    },
    /// It is time to look at what this shard has of each group.
    Reviewed(&'a BTreeMap<String, Use>),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Say this to another shard, with the next letter.
    Say {
        /// To whom.
        to: ShardId,
        /// Of which group.
        group: String,
        /// What.
        word: Word,
    },
    /// From now on so many of a group may run in this shard.
    Limit {
        /// Which group.
        group: String,
        /// How many.
        count: u32,
    },
}

/// What a shard that is not the owner has of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Borrowed {
    /// Places.
    holds: u32,
    /// How many of them are to go back as soon as nothing runs on them.
    owes: u32,
    /// What was said last to be wanted.
    told: u32,
    /// The owner knows of no limit.
    is_free: bool,
    /// The owner asked how many run here.
    is_asked: bool,
    /// The limit of all shards together, as the owner said last. Nothing is decided by it.
    whole: Option<u32>,
}

impl Borrowed {
    fn limit(&self) -> u32 {
        match self.is_free {
            true => u32::MAX,
            false => self.holds - self.owes,
        }
    }

    fn is_nothing(&self) -> bool {
        let whole = self.whole;
        *self
            == Self {
                whole,
                ..Self::default()
            }
    }
}

/// What another shard has of a group, as its owner knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Loan {
    /// Places, until they are heard to be back.
    count: u32,
    /// How many of them were called back and are not back yet.
    called: u32,
    wants: u32,
    terms: Terms,
    /// The limit that it was told.
    knows: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
enum Terms {
    /// It runs no more than its places.
    #[default]
    Places,
    /// It was told that there is no limit.
    Free,
    /// It was asked how many it runs.
    Asked,
}

/// A group, as its owner knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Owned {
    limit: Option<u32>,
    loans: BTreeMap<ShardId, Loan>,
    /// What counts in the owner's own shard.
    own_limit: Option<u32>,
}

impl Owned {
    fn lent(&self) -> u32 {
        let counts = self.loans.values().map(|loan| loan.count);
        counts.fold(0, u32::saturating_add)
    }

    fn is_waiting_for_answers(&self) -> bool {
        let is_unknown = |loan: &Loan| loan.terms != Terms::Places;
        self.limit.is_some() && self.loans.values().any(is_unknown)
    }
}

/// The limits of groups as one shard knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Budgets {
    owned: BTreeMap<String, Owned>,
    borrowed: BTreeMap<String, Borrowed>,
}

impl Budgets {
    /// Whether there is something to look at from time to time.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.borrowed.is_empty() && self.owned.values().all(|group| group.loans.is_empty())
    }

    /// The limit of a group in all shards together, where this shard has only a part of it.
    #[must_use]
    pub fn whole_limit(&self, group: &str) -> Option<u32> {
        let owned = self.owned.get(group).and_then(|group| group.limit);
        owned.or_else(|| self.borrowed.get(group)?.whole)
    }

    /// Whether a review would change or say anything. Others need not be written down.
    #[must_use]
    pub fn needs_review(&self, me: ShardId, now: Time, uses: &BTreeMap<String, Use>) -> bool {
        let mut actions = Vec::new();
        let mut later = self.clone();
        later.handle(me, now, Input::Reviewed(uses), &mut actions);
        !actions.is_empty() || later != *self
    }

    /// Takes in what happened to the shard `me`, and says what is to be done.
    pub fn handle(&mut self, me: ShardId, now: Time, input: Input<'_>, actions: &mut Vec<Action>) {
        let is_owner = me == OWNER;
        match input {
            Input::Named(_) if is_owner => {}
            Input::Named(group) => {
                // Nothing of it runs before the owner has said how many may.
                if !self.borrowed.contains_key(group) {
                    actions.push(limit(group, 0));
                }
            }
            Input::LimitSet { group, limit } if is_owner => self.set_limit(group, limit, actions),
            Input::LimitSet { group, limit } => {
                let word = Word::Limit(limit);
                actions.push(say(OWNER, group, word));
            }
            Input::Heard {
                from,
                group,
                word,
                limit,
            } if is_owner => self.hear_borrower(from, group, word, limit, actions),
            Input::Heard { group, word, .. } => self.hear_owner(group, word, actions),
            Input::Reviewed(uses) if is_owner => {
                let turn = now.0 / TURN.0;
                for (name, group) in &mut self.owned {
                    let used = uses.get(name).copied().unwrap_or_default();
                    group.share_out(name, used, turn, actions);
                }
                self.owned.retain(|_, group| !group.loans.is_empty());
            }
            Input::Reviewed(uses) => {
                let names: BTreeSet<&String> = self.borrowed.keys().chain(uses.keys()).collect();
                for name in names.into_iter().cloned().collect::<Vec<_>>() {
                    let used = uses.get(&name).copied().unwrap_or_default();
                    let known = self.borrowed.entry(name.clone()).or_default();
                    known.settle(&name, used, actions);
                    if known.is_nothing() {
                        self.borrowed.remove(&name);
                    }
                }
            }
        }
    }

    fn set_limit(&mut self, name: &str, count: u32, actions: &mut Vec<Action>) {
        match self.owned.get_mut(name) {
            Some(group) => {
                group.limit = Some(count);
                group.ask_the_free(name, actions);
                group.limit_own(name, group.own_places(), actions);
            }
            // Nobody else has any: it counts here as it is.
            None => actions.push(limit(name, count)),
        }
    }

    fn hear_borrower(
        &mut self,
        from: ShardId,
        name: &str,
        word: Word,
        limit: Option<u32>,
        actions: &mut Vec<Action>,
    ) {
        if let Word::Limit(count) = word {
            return self.set_limit(name, count, actions);
        }
        let group = self.owned.entry(name.into()).or_insert_with(|| Owned {
            limit,
            own_limit: limit,
            ..Owned::default()
        });
        let loan = group.loans.entry(from).or_default();
        match word {
            Word::Want(wants) => {
                loan.wants = wants;
                if wants == 0 && loan.terms == Terms::Free {
                    loan.terms = Terms::Places;
                }
            }
            Word::Returned(count) => {
                loan.count = loan.count.saturating_sub(count);
                loan.called = loan.called.saturating_sub(count).min(loan.count);
            }
            Word::Capped(holds) => {
                loan.count = holds;
                loan.called = 0;
                loan.terms = Terms::Places;
            }
            Word::Limit(_) | Word::Lent(_) | Word::Called(_) | Word::Free | Word::Cap => {}
        }
    }

    fn hear_owner(&mut self, name: &str, word: Word, actions: &mut Vec<Action>) {
        let known = self.borrowed.entry(name.into()).or_default();
        let before = known.limit();
        match word {
            Word::Lent(count) => known.holds = known.holds.saturating_add(count),
            Word::Called(count) => known.owes = known.owes.saturating_add(count).min(known.holds),
            Word::Free => known.is_free = true,
            Word::Cap => known.is_asked = true,
            Word::Limit(whole) => known.whole = Some(whole),
            Word::Want(_) | Word::Returned(_) | Word::Capped(_) => {}
        }
        if known.limit() != before {
            actions.push(limit(name, known.limit()));
        }
    }
}

impl Borrowed {
    /// Gives back what is due, and says what is wanted.
    fn settle(&mut self, name: &str, used: Use, actions: &mut Vec<Action>) {
        let before = self.limit();
        let wanted = used.wanted();
        if self.is_asked {
            *self = Self {
                holds: used.running,
                told: self.told,
                whole: self.whole,
                ..Self::default()
            };
            actions.push(say(OWNER, name, Word::Capped(self.holds)));
        }
        if self.is_free && wanted == 0 {
            // It is said even where nothing else was: the owner has to know before a limit comes.
            self.is_free = false;
            self.told = 0;
            actions.push(say(OWNER, name, Word::Want(0)));
        }
        let idle = self.holds.saturating_sub(used.running);
        let back = match wanted {
            0 => idle,
            _ => idle.min(self.owes),
        };
        if back > 0 {
            self.holds -= back;
            self.owes = self.owes.saturating_sub(back).min(self.holds);
            actions.push(say(OWNER, name, Word::Returned(back)));
        }
        if is_news(wanted, self.told) {
            self.told = wanted;
            actions.push(say(OWNER, name, Word::Want(wanted)));
        }
        if self.limit() != before {
            actions.push(limit(name, self.limit()));
        }
    }
}

impl Owned {
    /// What may run in the owner's own shard.
    fn own_places(&self) -> Option<u32> {
        let limit = self.limit?;
        Some(match self.is_waiting_for_answers() {
            true => 0,
            false => limit.saturating_sub(self.lent()),
        })
    }

    fn limit_own(&mut self, name: &str, places: Option<u32>, actions: &mut Vec<Action>) {
        if places != self.own_limit
            && let Some(count) = places
        {
            actions.push(limit(name, count));
        }
        self.own_limit = places;
    }

    /// A limit came where there was none: whoever was free says how many it runs.
    fn ask_the_free(&mut self, name: &str, actions: &mut Vec<Action>) {
        for (shard, loan) in &mut self.loans {
            if loan.terms == Terms::Free {
                loan.terms = Terms::Asked;
                actions.push(say(*shard, name, Word::Cap));
            }
        }
    }

    /// Gives each shard its part of the limit, as far as places are free, and calls back what others have more use for.
    fn share_out(&mut self, name: &str, used: Use, turn: u64, actions: &mut Vec<Action>) {
        let Some(limit) = self.limit else {
            for (shard, loan) in &mut self.loans {
                if loan.wants > 0 && loan.terms == Terms::Places {
                    loan.terms = Terms::Free;
                    actions.push(say(*shard, name, Word::Free));
                }
            }
            self.drop_what_is_over();
            return;
        };
        self.ask_the_free(name, actions);
        if self.is_waiting_for_answers() {
            self.limit_own(name, Some(0), actions);
            return;
        }
        for (shard, loan) in &mut self.loans {
            if loan.knows != Some(limit) {
                loan.knows = Some(limit);
                actions.push(say(*shard, name, Word::Limit(limit)));
            }
        }
        let own = (OWNER, used.wanted());
        let others = self.loans.iter().map(|(shard, loan)| (*shard, loan.wants));
        let wanted: Vec<(ShardId, u32)> = core::iter::once(own).chain(others).collect();
        let parts = parts_of(limit, &wanted, turn);
        let part = |shard: &ShardId| parts.get(shard).copied().unwrap_or(0);
        let mut free = limit.saturating_sub(self.lent());
        let mut spare = free.saturating_sub(part(&OWNER).max(used.running));
        for (shard, loan) in &mut self.loans {
            let lacks = part(shard).saturating_sub(loan.count - loan.called);
            let more = lacks.min(spare);
            if more > 0 {
                (spare, free) = (spare - more, free - more);
                loan.count += more;
                actions.push(say(*shard, name, Word::Lent(more)));
            }
        }
        // What is still lacking is called back from those who have more than their part.
        let lacking = |(shard, loan): (&ShardId, &Loan)| {
            u64::from(part(shard).saturating_sub(loan.count - loan.called))
        };
        let others_lack: u64 = self.loans.iter().map(lacking).sum();
        let own_lacks = u64::from(part(&OWNER).saturating_sub(free));
        let too_many = u64::from(self.lent().saturating_sub(limit));
        let on_their_way: u64 = self.loans.values().map(|loan| u64::from(loan.called)).sum();
        let mut needed = (others_lack + own_lacks)
            .max(too_many)
            .saturating_sub(on_their_way);
        for (shard, loan) in &mut self.loans {
            let excess = (loan.count - loan.called).saturating_sub(part(shard));
            let back = excess.min(u32::try_from(needed).unwrap_or(u32::MAX));
            if back > 0 {
                needed -= u64::from(back);
                loan.called += back;
                actions.push(say(*shard, name, Word::Called(back)));
            }
        }
        // Places of the owner's own that others wait for are not filled again.
        let kept = u32::try_from(others_lack).unwrap_or(u32::MAX);
        let own = free.saturating_sub(kept).max(part(&OWNER).min(free));
        self.limit_own(name, Some(own), actions);
        self.drop_what_is_over();
    }

    fn drop_what_is_over(&mut self) {
        let is_over = |loan: &Loan| {
            let knows = loan.knows;
            *loan
                == Loan {
                    knows,
                    ..Loan::default()
                }
        };
        self.loans.retain(|_, loan| !is_over(loan));
    }
}

/// Shares places out by what is wanted: nobody gets more than that, and nobody less than others while it wants more. Where
/// there are fewer places than shards that want one, they take turns.
fn parts_of(places: u32, wanted: &[(ShardId, u32)], turn: u64) -> BTreeMap<ShardId, u32> {
    let mut parts: BTreeMap<ShardId, u32> = wanted.iter().map(|(shard, _)| (*shard, 0)).collect();
    let mut left = places;
    loop {
        let mut open: Vec<(ShardId, u32)> = wanted
            .iter()
            .map(|(shard, wants)| (*shard, wants - parts[shard]))
            .filter(|(_, lacks)| *lacks > 0)
            .collect();
        let count = u32::try_from(open.len()).unwrap_or(u32::MAX);
        if left == 0 || open.is_empty() {
            return parts;
        }
        let each = left / count;
        if each == 0 {
            if places < count {
                open.rotate_left((turn % u64::from(count)) as usize);
            }
            open.truncate(left as usize);
        }
        for (shard, lacks) in open {
            let more = lacks.min(each.max(1));
            left -= more;
            *parts.entry(shard).or_default() += more;
        }
    }
}

fn say(to: ShardId, group: &str, word: Word) -> Action {
    let group = group.into();
    Action::Say { to, group, word }
}

fn limit(group: &str, count: u32) -> Action {
    let group = group.into();
    Action::Limit { group, count }
}

#[cfg(test)]
mod tests;
