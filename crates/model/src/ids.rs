//! Ids are numbers of their own type, so that a task can never be taken for an agent.

use core::fmt;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($inner:ty) $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    )*};
}

ids! {
    /// A task, for ever: never used again for another one.
    TaskId(u64) "task-";
    /// A group of tasks that were submitted together.
    JobId(u64) "job-";
    /// An agent, as it named itself when it registered.
    AgentId(u64) "agent-";
    /// One assignment of one task to one agent. Numbers only grow, so old news is recognisable.
    Lease(u64) "lease-";
    /// A capability that tasks ask for and agents offer.
    SkillId(u32) "skill-";
    /// A named resource of an agent, such as a graphics card.
    ResourceId(u32) "resource-";
    /// A group of tasks of which only so many may run at once in the whole fleet.
    GroupId(u32) "group-";
    /// Who submitted a task; shares are kept per user.
    UserId(u32) "user-";
    /// A rack or zone: agents in one zone are near each other.
    ZoneId(u32) "zone-";
    /// A piece of data that tasks want to be near.
    DataKey(u64) "data-";
    /// What people would call the same work: a command, a function, or a name that was given to it.
    WorkKey(u64) "work-";
}
