//! How one attempt at a task ended.

/// What an agent says of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Outcome {
    /// It worked.
    Succeeded,
    /// It did not.
    Failed(Failure),
}

/// Why a task ended without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Failure {
    /// The task itself failed, and may work when tried again.
    Error,
    /// The task itself failed, and would fail again.
    Permanent,
    /// It ran longer than its time limit.
    TimeLimit,
    /// The agent that ran it was lost.
    AgentLost,
    /// No agent could do it within the time it was willing to wait.
    Unassignable,
    /// A task that it depends on did not succeed.
    Dependency,
}
