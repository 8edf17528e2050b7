//! Positions in the scheduler's own tables. Like ids, each table's positions have a type of their own.

use core::num::NonZero;

macro_rules! refs {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub(crate) struct $name(NonZero<u32>);

        impl $name {
            pub(crate) fn new(index: usize) -> Self {
                let next = u32::try_from(index + 1).ok().and_then(NonZero::new);
                Self(next.expect("a table holds fewer than 2^32 entries"))
            }

            pub(crate) fn index(self) -> usize {
                self.0.get() as usize - 1
            }
        }
    )*};
}

refs! {
    /// A task that is not over.
    TaskRef;
    /// A registered agent.
    AgentRef;
    /// A set of agents with the same skills and resources.
    CohortRef;
    /// What it takes to be capable of a task.
    ClassRef;
    /// Tasks that are the same in everything that can keep them from being started.
    AdmissionClassRef;
    /// Tasks with equal `TaskKind`.
    KindRef;
    /// A job that is not over.
    JobRef;
    /// Somebody who submitted tasks.
    UserRef;
}
