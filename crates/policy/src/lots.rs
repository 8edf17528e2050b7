//! What tasks have in common: kinds, classes and lots.
//!
//! - A *kind* is what the user said: all tasks with an equal [`TaskKind`].
//! - A *class* is what it takes to be capable: skills, needs, and whether every skill counts. Which
//!   cohorts of agents are capable is worked out once for a class and remembered.
//! - A *lot* is everything that can keep a task from being started: its class, its group's limit, its
//!   user's share, its size. Either all queued tasks of a lot may start on an agent now, or none.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use loxley_model::{GroupId, Resources, SkillSet, Span, TaskKind, Time};

use crate::refs::{ClassRef, CohortRef, KindRef, LotRef, TaskRef, UserRef};
use crate::tasks::OrderKey;
use crate::tournament::ClassBits;

#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) spec: Arc<TaskKind>,
    pub(crate) durations: Durations,
    /// The lots of this kind, by what else tells them apart. Few.
    pub(crate) lots: Vec<(LotTraits, LotRef)>,
}

/// What tells lots of one kind apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LotTraits {
    pub(crate) strict: bool,
    pub(crate) large: bool,
    pub(crate) user: UserRef,
}

#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) skills: SkillSet,
    pub(crate) needs: Resources,
    /// Every skill counts, not just one.
    pub(crate) strict: bool,
    /// Capable cohorts with their share of the skills in millionths, the greatest share first.
    pub(crate) capable: Vec<(CohortRef, i64)>,
    /// When `capable` was worked out, and for which generation of cohorts.
    pub(crate) known_at: Time,
    pub(crate) known_for: u64,
    /// Tasks that no agent can do: the most urgent first.
    pub(crate) held: BTreeSet<(
        core::cmp::Reverse<loxley_model::Priority>,
        OrderKey,
        TaskRef,
    )>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lot {
    pub(crate) class: ClassRef,
    pub(crate) group: Option<GroupId>,
    pub(crate) user: UserRef,
    pub(crate) large: bool,
    /// Whether its class needs anything, as every start asks: most do not.
    pub(crate) needy: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Lots {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) kind_of: BTreeMap<Arc<TaskKind>, KindRef>,
    /// Kinds that were met lately, by address: most tasks come with an `Arc` seen before.
    pub(crate) recent: Vec<Option<(Arc<TaskKind>, KindRef)>>,
    pub(crate) classes: Vec<Class>,
    pub(crate) class_of: BTreeMap<(SkillSet, Resources, bool), ClassRef>,
    pub(crate) lots: Vec<Lot>,
    pub(crate) lot_of: BTreeMap<Lot, LotRef>,
}

const RECENT: usize = 256;

impl Lots {
    /// The kind of a task.
    pub(crate) fn kind(&mut self, spec: &Arc<TaskKind>) -> KindRef {
        if self.recent.is_empty() {
            self.recent.resize_with(RECENT, || None);
        }
        // The address only says where to look; what is decided does not depend on it.
        let at = (Arc::as_ptr(spec) as usize >> 4) % RECENT;
        if let Some((known, kind)) = &self.recent[at]
            && Arc::ptr_eq(known, spec)
        {
            return *kind;
        }
        let kind = self.kind_by_value(spec);
        self.recent[at] = Some((Arc::clone(spec), kind));
        kind
    }

    fn kind_by_value(&mut self, spec: &Arc<TaskKind>) -> KindRef {
        if let Some(kind) = self.kind_of.get(spec) {
            return *kind;
        }
        let kind = KindRef::new(self.kinds.len());
        let durations = Durations::default();
        self.kinds.push(Kind {
            spec: Arc::clone(spec),
            durations,
            lots: Vec::new(),
        });
        self.kind_of.insert(Arc::clone(spec), kind);
        kind
    }

    /// The lot of a task of `kind`.
    pub(crate) fn lot(&mut self, kind: KindRef, traits: LotTraits) -> LotRef {
        let known = self.kinds[kind.index()]
            .lots
            .iter()
            .find(|(t, _)| *t == traits);
        if let Some((_, lot)) = known {
            return *lot;
        }
        let spec = Arc::clone(&self.kinds[kind.index()].spec);
        let class = self.class(&spec, traits.strict);
        let lot = Lot {
            class,
            group: spec.group,
            user: traits.user,
            large: traits.large,
            needy: !spec.needs.is_empty(),
        };
        let next = LotRef::new(self.lots.len());
        let place = *self.lot_of.entry(lot).or_insert(next);
        if place == next {
            self.lots.push(lot);
        }
        self.kinds[kind.index()].lots.push((traits, place));
        place
    }

    fn class(&mut self, spec: &TaskKind, strict: bool) -> ClassRef {
        let next = ClassRef::new(self.classes.len());
        let key = (spec.skills.clone(), spec.needs.clone(), strict);
        let place = *self.class_of.entry(key).or_insert(next);
        if place == next {
            self.classes.push(Class {
                skills: spec.skills.clone(),
                needs: spec.needs.clone(),
                strict,
                capable: Vec::new(),
                known_at: Time::ZERO,
                known_for: u64::MAX,
                held: BTreeSet::new(),
            });
        }
        place
    }

    /// A kind of task by its place.
    pub(crate) fn kind_at(&self, kind: KindRef) -> &Kind {
        &self.kinds[kind.index()]
    }

    pub(crate) fn kind_at_mut(&mut self, kind: KindRef) -> &mut Kind {
        &mut self.kinds[kind.index()]
    }

    pub(crate) fn at(&self, lot: LotRef) -> &Lot {
        &self.lots[lot.index()]
    }

    pub(crate) fn class_at(&self, class: ClassRef) -> &Class {
        &self.classes[class.index()]
    }

    pub(crate) fn class_at_mut(&mut self, class: ClassRef) -> &mut Class {
        &mut self.classes[class.index()]
    }

    pub(crate) fn class_of_lot(&self, lot: LotRef) -> &Class {
        self.class_at(self.at(lot).class)
    }

    pub(crate) fn classes(&self) -> impl Iterator<Item = (ClassRef, &Class)> {
        self.classes
            .iter()
            .enumerate()
            .map(|(index, class)| (ClassRef::new(index), class))
    }

    pub(crate) fn class_count(&self) -> usize {
        self.classes.len()
    }

    /// Forgets every lot, because what tells them apart has changed. The caller gives every task its
    /// lot anew.
    pub(crate) fn forget_lots(&mut self) {
        for kind in &mut self.kinds {
            kind.lots.clear();
        }
    }
}

/// Which bit stands for a class in a set of classes.
pub(crate) fn class_bit(class: ClassRef) -> u8 {
    (class.index() % ClassBits::BITS as usize) as u8
}

/// How long tasks of a kind took lately.
#[derive(Debug, Default)]
pub(crate) struct Durations {
    /// The last [`Durations::KEPT`], in the order of a ring.
    pub(crate) recent: Vec<Span>,
    pub(crate) count: u64,
    pub(crate) median: Option<Span>,
}

impl Durations {
    const KEPT: usize = 63;
    /// The median is worked out anew after this many; at first more often.
    const REFRESH: u64 = 32;
    const REFRESH_AT_FIRST: u64 = 8;

    pub(crate) fn add(&mut self, duration: Span) {
        if self.recent.len() < Self::KEPT {
            self.recent.push(duration);
        } else {
            self.recent[(self.count % Self::KEPT as u64) as usize] = duration;
        }
        self.count += 1;
        let every = if self.count <= Self::REFRESH_AT_FIRST {
            1
        } else if self.count <= Self::KEPT as u64 {
            Self::REFRESH_AT_FIRST
        } else {
            Self::REFRESH
        };
        if self.count.is_multiple_of(every) {
            let mut sorted = [Span::ZERO; Self::KEPT];
            let sorted = &mut sorted[..self.recent.len()];
            sorted.copy_from_slice(&self.recent);
            let (_, median, _) = sorted.select_nth_unstable(sorted.len() / 2);
            self.median = Some(*median);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn median(&self) -> Option<Span> {
        self.median
    }
}
