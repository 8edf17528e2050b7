//! What the server and its agents say to each other: one gRPC stream for each agent, compiled from
//! `proto/agent.proto`, which explains the conversation.
//!
//! Only shapes live here. Who may say what when is the business of the two ends.
//!
//! `generated.rs` is committed, so that a build needs no compiler of protocols: that one takes longer to build than
//! the rest of the crate. A test compares the two, and writes the file anew with `LOXLEY_UPDATE=1`.

#[expect(
    clippy::all,
    clippy::allow_attributes,
    unused_qualifications,
    reason = "written by a machine; the comments are in the .proto file"
)]
#[rustfmt::skip]
mod generated;

pub use generated::{
    AgentFrame, Amount, Assign, Cancel, Checkpoint, Farewell, Finished, Hello, Outcome, Output,
    Retract, Seen, ServerFrame, Started, Template, Variable, Vitals, Welcome, Yielded,
    agents_client, agents_server,
};

/// The version of the protocol that this build speaks. An agent and a server that are one version apart speak the
/// older one: so a new version only adds, and what it no longer uses is understood for one version more. Version 3:
/// the welcome says which one that is.
pub const VERSION: u32 = 3;

/// Versions before this one are not understood, however near they are.
const OLDEST: u32 = 2;

/// The version that a peer of version `theirs` and we have in common, if there is one.
#[must_use]
pub fn common_version(theirs: u32) -> Option<u32> {
    let near = theirs.abs_diff(VERSION) <= 1 && theirs >= OLDEST;
    near.then_some(theirs.min(VERSION))
}

/// The largest frame, in bytes. Whoever sends more is cut off.
pub const FRAME_MAX: usize = 16 << 20;

/// The largest result of a function, and the largest checkpoint, in bytes.
pub const PAYLOAD_MAX: usize = 4 << 20;

/// How much of the end of each output is kept at most, in bytes.
pub const TAIL_MAX: usize = 256 << 10;

/// The longest text of one entry of an array, in bytes.
pub const ENTRY_MAX: usize = 1 << 20;
