//! What tasks have in common: kinds, capability classes and admission classes.
//!
//! - A *kind* is what the user said: all tasks with an equal [`TaskKind`].
//! - A *capability class*, or class, is what it takes to be capable: skills, needs, and whether every
//!   skill counts.
//! - An *admission class* is everything that can keep a task from being started: its class, its group's
//!   limit, its user's share, its size. Either all queued tasks of an admission class may start on an
//!   agent now, or none.
//!
//! [`TaskClasses`] are facts: their numbers break ties. [`ClassIndex`] finds them again.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use loxley_model::{GroupId, Resources, SkillSet, Span, TaskKind};

use crate::kind_outcomes::KindOutcomes;
use crate::refs::{AdmissionClassRef, ClassRef, KindRef, UserRef};
use crate::tournament::ClassBits;

#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Kind {
    pub(crate) spec: Arc<TaskKind>,
    pub(crate) durations: Durations,
    /// Which agents do worse, or better, at it than at everything.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) outcomes: KindOutcomes,
}

/// What tells admission classes of one kind apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AdmissionTraits {
    pub(crate) strict: bool,
    pub(crate) large: bool,
    pub(crate) user: UserRef,
}

#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct CapabilityClass {
    pub(crate) skills: SkillSet,
    pub(crate) needs: Resources,
    /// Every skill counts, not just one.
    pub(crate) strict: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct AdmissionClass {
    /// What it takes to be capable.
    pub(crate) capability: ClassRef,
    pub(crate) group: Option<GroupId>,
    pub(crate) user: UserRef,
    pub(crate) large: bool,
    /// Whether its class needs anything, as every start asks: most do not.
    pub(crate) needy: bool,
}

/// Kinds and classes of both sorts in the order in which they were first met.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct TaskClasses {
    kinds: Vec<Kind>,
    /// Where to look next for a kind whose place may be had.
    next_place: usize,
    capability: Vec<CapabilityClass>,
    admission: Vec<AdmissionClass>,
}

impl TaskClasses {
    pub(crate) fn kind_at(&self, kind: KindRef) -> &Kind {
        &self.kinds[kind.index()]
    }

    pub(crate) fn kind_at_mut(&mut self, kind: KindRef) -> &mut Kind {
        &mut self.kinds[kind.index()]
    }

    pub(crate) fn admission_class(&self, class: AdmissionClassRef) -> &AdmissionClass {
        &self.admission[class.index()]
    }

    pub(crate) fn class_at(&self, class: ClassRef) -> &CapabilityClass {
        &self.capability[class.index()]
    }

    pub(crate) fn class_of_admission(&self, class: AdmissionClassRef) -> &CapabilityClass {
        self.class_at(self.admission_class(class).capability)
    }

    pub(crate) fn class_count(&self) -> usize {
        self.capability.len()
    }

    pub(crate) fn kind_count(&self) -> usize {
        self.kinds.len()
    }

    pub(crate) fn admission_classes(&self) -> &[AdmissionClass] {
        &self.admission
    }
}

/// Finds kinds and classes again.
#[derive(Debug, Default)]
pub(crate) struct ClassIndex {
    kind_of: BTreeMap<Arc<TaskKind>, KindRef>,
    /// Kinds that were met lately, by address: most tasks come with an `Arc` seen before.
    recent: Vec<Option<(Arc<TaskKind>, KindRef)>>,
    class_of: BTreeMap<(SkillSet, Resources, bool), ClassRef>,
    admission_class_of: BTreeMap<AdmissionClass, AdmissionClassRef>,
    /// The admission classes of each kind that were asked for, by what tells them apart. Few.
    by_kind: Vec<Vec<(AdmissionTraits, AdmissionClassRef)>>,
    /// How many tasks of each kind are not over.
    live: Vec<u32>,
    /// Whether agents with equal skills can differ in what they may start: some
    /// admission class has needs or is large.
    has_demanding: bool,
}

/// What is found is the same; which answers are at hand is nobody's business.
impl PartialEq for ClassIndex {
    fn eq(&self, other: &Self) -> bool {
        self.kind_of == other.kind_of
            && self.live == other.live
            && self.class_of == other.class_of
            && self.admission_class_of == other.admission_class_of
            && self.has_demanding == other.has_demanding
    }
}

const RECENT: usize = 256;

/// From so many kinds on, a new one takes the place of one that no task is of: every command that somebody types is a
/// kind of its own.
pub(crate) const KINDS_KEPT: usize = 4096;
/// So many are looked at for the one of which the least is known.
const PLACES_LOOKED_AT: usize = 32;

impl ClassIndex {
    pub(crate) fn of(classes: &TaskClasses) -> Self {
        let kinds = classes.kinds.iter().enumerate();
        let capability = classes.capability.iter().enumerate();
        let class_key =
            |class: &CapabilityClass| (class.skills.clone(), class.needs.clone(), class.strict);
        let all = classes.admission.iter().enumerate();
        Self {
            kind_of: kinds
                .map(|(at, kind)| (Arc::clone(&kind.spec), KindRef::new(at)))
                .collect(),
            recent: Vec::new(),
            class_of: capability
                .map(|(at, class)| (class_key(class), ClassRef::new(at)))
                .collect(),
            admission_class_of: all
                .map(|(at, class)| (*class, AdmissionClassRef::new(at)))
                .collect(),
            by_kind: alloc::vec![Vec::new(); classes.kinds.len()],
            live: alloc::vec![0; classes.kinds.len()],
            has_demanding: classes.admission.iter().any(is_demanding),
        }
    }

    /// The kind of a task.
    pub(crate) fn kind(&mut self, classes: &mut TaskClasses, spec: &Arc<TaskKind>) -> KindRef {
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
        let kind = self.kind_by_value(classes, spec);
        self.recent[at] = Some((Arc::clone(spec), kind));
        kind
    }

    fn kind_by_value(&mut self, classes: &mut TaskClasses, spec: &Arc<TaskKind>) -> KindRef {
        if let Some(kind) = self.kind_of.get(spec) {
            return *kind;
        }
        let new = Kind {
            spec: Arc::clone(spec),
            durations: Durations::default(),
            outcomes: KindOutcomes::default(),
        };
        let kind = match self.unused_place(classes) {
            Some(place) => {
                self.forget(classes, place);
                *classes.kind_at_mut(place) = new;
                place
            }
            None => {
                classes.kinds.push(new);
                self.by_kind.push(Vec::new());
                self.live.push(0);
                KindRef::new(classes.kinds.len() - 1)
            }
        };
        self.kind_of.insert(Arc::clone(spec), kind);
        kind
    }

    /// A kind that no task is of and of which little is known, where there are many kinds.
    fn unused_place(&self, classes: &mut TaskClasses) -> Option<KindRef> {
        let count = classes.kinds.len();
        if count < KINDS_KEPT {
            return None;
        }
        let first = classes.next_place % count;
        classes.next_place = (first + PLACES_LOOKED_AT) % count;
        let places = (first..first + PLACES_LOOKED_AT).map(|place| place % count);
        let unused = places.filter(|place| self.live[*place] == 0);
        let least = unused.min_by_key(|place| classes.kinds[*place].durations.count());
        least.map(KindRef::new)
    }

    /// Nobody finds a kind any more.
    fn forget(&mut self, classes: &TaskClasses, kind: KindRef) {
        self.kind_of.remove(&classes.kind_at(kind).spec);
        self.by_kind[kind.index()].clear();
        let is_it = |known: &Option<(Arc<TaskKind>, KindRef)>| {
            known.as_ref().is_some_and(|(_, known)| *known == kind)
        };
        let recent = self.recent.iter_mut();
        recent
            .filter(|known| is_it(known))
            .for_each(|known| *known = None);
    }

    /// A task of a kind comes, or is over.
    pub(crate) fn count_task(&mut self, kind: KindRef, change: i32) {
        let live = &mut self.live[kind.index()];
        *live = live
            .checked_add_signed(change)
            .expect("tasks of a kind are counted");
    }

    /// The admission class of a task of `kind`.
    pub(crate) fn admission_class(
        &mut self,
        classes: &mut TaskClasses,
        kind: KindRef,
        traits: AdmissionTraits,
    ) -> AdmissionClassRef {
        let known = self.by_kind[kind.index()].iter();
        if let Some((_, class)) = known.into_iter().find(|(known, _)| *known == traits) {
            return *class;
        }
        let spec = Arc::clone(&classes.kind_at(kind).spec);
        let class = AdmissionClass {
            capability: self.class(classes, &spec, traits.strict),
            group: spec.group,
            user: traits.user,
            large: traits.large,
            needy: !spec.needs.is_empty(),
        };
        let next = AdmissionClassRef::new(classes.admission.len());
        let place = *self.admission_class_of.entry(class).or_insert(next);
        if place == next {
            self.has_demanding |= is_demanding(&class);
            classes.admission.push(class);
        }
        self.by_kind[kind.index()].push((traits, place));
        place
    }

    /// What it takes to be capable of a kind of task.
    pub(crate) fn class(
        &mut self,
        classes: &mut TaskClasses,
        spec: &TaskKind,
        strict: bool,
    ) -> ClassRef {
        let next = ClassRef::new(classes.capability.len());
        let key = (spec.skills.clone(), spec.needs.clone(), strict);
        let place = *self.class_of.entry(key).or_insert(next);
        if place == next {
            classes.capability.push(CapabilityClass {
                skills: spec.skills.clone(),
                needs: spec.needs.clone(),
                strict,
            });
        }
        place
    }

    pub(crate) fn has_demanding(&self) -> bool {
        self.has_demanding
    }
}

fn is_demanding(class: &AdmissionClass) -> bool {
    class.needy || class.large
}

/// Which bit stands for a class in a set of classes.
pub(crate) fn class_bit(class: ClassRef) -> u8 {
    (class.index() % ClassBits::BITS as usize) as u8
}

/// How long tasks of a kind took lately.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Durations {
    /// The last [`Durations::KEPT`], in the order of a ring.
    recent: Vec<Span>,
    count: u64,
    median: Option<Span>,
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

    /// Whether it can be added to.
    pub(crate) fn is_whole(&self) -> bool {
        self.recent.len() as u64 == self.count.min(Self::KEPT as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loxley_model::WorkKey;

    fn of_work(number: u64) -> Arc<TaskKind> {
        Arc::new(TaskKind {
            work: Some(WorkKey(number)),
            ..TaskKind::default()
        })
    }

    #[test]
    fn kinds_that_nobody_uses_make_room_and_those_in_use_stay() {
        let (mut classes, mut index) = (TaskClasses::default(), ClassIndex::default());
        let kept = index.kind(&mut classes, &of_work(0));
        index.count_task(kept, 1);
        let known = index.kind(&mut classes, &of_work(1));
        for _ in 0..100 {
            let durations = &mut classes.kind_at_mut(known).durations;
            durations.add(Span::from_secs(1));
        }
        for number in 2..20_000 {
            let kind = index.kind(&mut classes, &of_work(number));
            assert_eq!(classes.kind_at(kind).durations.count(), 0);
            index.count_task(kind, 1);
            index.count_task(kind, -1);
            assert!(classes.kind_count() <= KINDS_KEPT);
            assert_eq!(index.kind(&mut classes, &of_work(number)), kind);
        }
        // One is in use; of the other more is known than of any beside it.
        assert_eq!(index.kind(&mut classes, &of_work(0)), kept);
        assert_eq!(index.kind(&mut classes, &of_work(1)), known);
        assert_eq!(classes.kind_at(known).durations.count(), 100);
        let again = ClassIndex::of(&classes);
        assert_eq!(again.kind_of, index.kind_of);
    }
}
