//! Jobs, agents and a journal around the deciding core: what `loxley server` serves and what `loxley run` runs
//! on. No socket, no thread and no runtime: whoever owns an [`Engine`] calls it.
//!
//! ```text
//!   what happened ──▶ Fact ──▶ Engine::record_and_apply ──▶ State ──▶ Driver ──▶ the core
//!                                  │ written into the open group          │
//!                                  ▼                                      ▼
//!                        Engine::flush ──▶ Group, to be written     Effects: orders for agents, rows of
//!                                          and only then ...        history, events, jobs that are over
//! ```
//!
//! A *fact* is a thing that happened, with names spelled out. The journal is the list of facts, each with its
//! time: applied in order to a new state they bring back the state of the engine that wrote them, decision by
//! decision ([`replay`] compares a digest).
//!
//! What must stay true: nothing of the [`Effects`] is carried out before the group that they came with is
//! written, where there is a journal.

mod api_view;
mod attempts;
mod clock;
mod core_view;
mod cut;
mod digest;
mod effects;
pub mod ended_text;
mod engine;
mod exact;
mod fact;
mod fact_json;
mod first_difference;
mod fleet;
mod forecast_view;
pub mod history_view;
mod jobs;
mod keys;
mod ledger;
mod lending;
mod moving;
mod names;
mod past_work;
mod recover;
pub mod run_figures;
mod snapshot;
mod state;
mod submission;
mod task_steps;
#[cfg(test)]
mod tests;
mod tuning_view;

pub use api_view::RunningTask;
pub use attempts::{AttemptFate, AttemptFollower, EarlierAttempt, RunningAttempt};
pub use clock::Clock;
pub use core_view::{CoreView, core_view};
pub use cut::{Cut, CutError, cut};
pub use effects::{Assignment, Effects, Finish, Orders, Retraction};
pub use engine::{Applied, Engine, Flushed, PartView};
pub use exact::{DifferentDecision, Exact, FirstDifference, replay_exactly};
pub use fact::{AgentRecord, Fact, GroupError};
pub use fact_json::facts_of;
pub use ledger::JobCounts;
pub use moving::{GuestFinish, LetterError, WaitingKind, read_letter};
pub use past_work::{PastWork, past_work};
pub use recover::{Listener, RecoverError, Replayed, Retold, replay, replay_from_snapshot, retell};
pub use snapshot::{SnapshotError, StateCopy};
pub use submission::Submission;
pub use task_steps::{NamedAgent, TaskStep, TaskStepKind};
