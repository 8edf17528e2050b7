//! Positions in the scheduler's own tables. Like ids, each table's positions have a type of their own.

macro_rules! refs {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(u32);

        impl $name {
            pub(crate) fn new(index: usize) -> Self {
                Self(u32::try_from(index).expect("a table holds fewer than 2^32 entries"))
            }

            pub(crate) fn index(self) -> usize {
                self.0 as usize
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
    LotRef;
    /// Tasks with equal `TaskKind`.
    KindRef;
    /// A job that is not over.
    JobRef;
}
