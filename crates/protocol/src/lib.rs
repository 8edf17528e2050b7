//! What the server and its agents say to each other: one gRPC stream for each agent, compiled from
//! `proto/agent.proto`, which explains the conversation.
//!
//! Only shapes live here. Who may say what when is the business of the two ends.

mod generated {
    #![expect(
        missing_docs,
        clippy::all,
        clippy::allow_attributes,
        unused_qualifications,
        reason = "written by a machine; the comments are in the .proto file"
    )]
    tonic::include_proto!("loxley.agent.v1");
}

pub use generated::{
    AgentFrame, Amount, Assign, Cancel, Checkpoint, Farewell, Finished, Hello, Outcome, Output,
    Retract, ServerFrame, Started, Template, Variable, Vitals, Welcome, Yielded, agents_client,
    agents_server,
};

/// The version of the protocol that this build speaks.
pub const VERSION: u32 = 1;

/// The largest frame, in bytes. Whoever sends more is cut off.
pub const FRAME_MAX: usize = 16 << 20;

/// The largest result of a function, and the largest checkpoint, in bytes.
pub const PAYLOAD_MAX: usize = 4 << 20;

/// How much of the end of each output is kept, in bytes.
pub const TAIL_MAX: usize = 64 << 10;

/// The longest text of one entry of an array, in bytes.
pub const ENTRY_MAX: usize = 1 << 20;
