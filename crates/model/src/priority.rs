//! Five priorities, 5 the most urgent.

use core::fmt;

/// How urgent a task is: 1 to 5, 5 first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "u8", into = "u8")
)]
pub struct Priority(u8);

/// The number given is not a priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("priority {0} is not between 1 (lowest) and 5 (highest)")]
pub struct PriorityError(pub u8);

impl Priority {
    /// How many levels there are.
    pub const LEVELS: usize = 5;
    /// Runs when nothing else wants to.
    pub const LOWEST: Self = Self(1);
    /// What a task has when nobody said anything.
    pub const NORMAL: Self = Self(3);
    /// The first level that is protected by default.
    pub const HIGH: Self = Self(4);
    /// Before everything else.
    pub const HIGHEST: Self = Self(5);

    /// A priority from its number.
    pub const fn new(level: u8) -> Result<Self, PriorityError> {
        if level >= 1 && level <= 5 {
            Ok(Self(level))
        } else {
            Err(PriorityError(level))
        }
    }

    /// The number, 1 to 5.
    #[must_use]
    pub const fn level(self) -> u8 {
        self.0
    }

    /// Position in an array of the five levels, lowest first.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize - 1
    }

    /// All five, lowest first.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        (1..=5).map(Self)
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self::NORMAL
    }
}

impl TryFrom<u8> for Priority {
    type Error = PriorityError;
    fn try_from(level: u8) -> Result<Self, PriorityError> {
        Self::new(level)
    }
}

impl From<Priority> for u8 {
    fn from(priority: Priority) -> Self {
        priority.0
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_to_five_are_priorities() {
        assert_eq!(Priority::new(0), Err(PriorityError(0)));
        assert_eq!(Priority::new(6), Err(PriorityError(6)));
        assert_eq!(Priority::all().map(Priority::level).max(), Some(5));
    }
}
