//! The five priorities of a unit.

/// How many priorities there are.
pub(crate) const LANES: usize = 5;

/// How urgent a unit is. Urgent units are taken before others at every point where a worker looks
/// for work; running units are never interrupted. Lower ones age: they are not starved for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// When nothing else is to be done.
    Lowest,
    /// After the normal ones.
    Low,
    /// What `spawn`, `scope` and `join` use.
    #[default]
    Normal,
    /// Before the normal ones.
    High,
    /// Before everything else.
    Highest,
}

impl Priority {
    /// All priorities, the lowest first.
    pub const ALL: [Self; LANES] = [
        Self::Lowest,
        Self::Low,
        Self::Normal,
        Self::High,
        Self::Highest,
    ];

    /// The index of the lane, the highest last.
    #[inline]
    pub(crate) fn lane(self) -> usize {
        self as usize
    }
}
