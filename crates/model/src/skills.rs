//! A set of skills: what a task asks for, or what an agent offers.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::SkillId;

/// A set of skills, cheap to copy and to compare: sorted, without repeats.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(from = "Vec<SkillId>")
)]
pub struct SkillSet(Arc<[SkillId]>);

impl SkillSet {
    /// No skill at all.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// How many skills there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `skill` is among them.
    #[must_use]
    pub fn contains(&self, skill: SkillId) -> bool {
        self.0.binary_search(&skill).is_ok()
    }

    /// The skills in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = SkillId> + ExactSizeIterator {
        self.0.iter().copied()
    }

    /// How many of these skills `other` has too.
    #[must_use]
    pub fn count_in(&self, other: &Self) -> usize {
        self.iter().filter(|skill| other.contains(*skill)).count()
    }

    /// Whether `other` has every one of these skills.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.count_in(other) == self.len()
    }
}

impl FromIterator<SkillId> for SkillSet {
    fn from_iter<I: IntoIterator<Item = SkillId>>(skills: I) -> Self {
        skills.into_iter().collect::<Vec<_>>().into()
    }
}

impl From<Vec<SkillId>> for SkillSet {
    fn from(mut skills: Vec<SkillId>) -> Self {
        skills.sort_unstable();
        skills.dedup();
        Self(skills.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_forgets_order_and_repeats() {
        let set: SkillSet = [SkillId(3), SkillId(1), SkillId(3)].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [SkillId(1), SkillId(3)]);
        assert!(set.contains(SkillId(3)) && !set.contains(SkillId(2)));
        let other: SkillSet = [SkillId(3)].into_iter().collect();
        assert_eq!(set.count_in(&other), 1);
        assert!(other.is_subset(&set) && !set.is_subset(&other));
    }
}
