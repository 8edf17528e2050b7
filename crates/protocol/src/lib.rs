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

/// How much of the end of each output is kept at most, in bytes.
pub const TAIL_MAX: usize = 256 << 10;

/// The longest text of one entry of an array, in bytes.
pub const ENTRY_MAX: usize = 1 << 20;

/// A word of a command with the entry filled in: `{}` stands for its text, `{#}` for its number from 1.
/// The entry itself is not looked into, so an entry `{#}` stays what it is.
///
/// ```
/// use loxley_protocol::fill_in;
/// assert_eq!(fill_in("{#}-{}.log", "a{}b", 7), "7-a{}b.log");
/// assert_eq!(fill_in("{ } {x", "a", 1), "{ } {x");
/// ```
#[must_use]
pub fn fill_in(word: &str, entry: &str, number: u64) -> String {
    let mut filled = String::with_capacity(word.len() + entry.len());
    let mut rest = word;
    while let Some(at) = rest.find('{') {
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("{}") {
            filled.push_str(entry);
            rest = after;
        } else if let Some(after) = rest.strip_prefix("{#}") {
            filled.push_str(&number.to_string());
            rest = after;
        } else {
            filled.push('{');
            rest = &rest[1..];
        }
    }
    filled.push_str(rest);
    filled
}
