//! The configuration of a scheduler as a YAML file: read, checked, written.
//!
//! ```
//! let config = loxley_config::parse("load_balancing: {strategy: pull}").unwrap();
//! assert_eq!(config.strategy, loxley_policy::Strategy::Pull);
//!
//! let mistakes = loxley_config::parse("load_balancing: {stratgy: pull, seed: x}").unwrap_err();
//! assert_eq!(mistakes.iter().count(), 2, "all mistakes at once");
//! ```
//!
//! Two halves. One knows nothing of Loxley and serves every file a person writes by hand:
//! `tree` turns text into [`Node`]s that know where they stand, within [`Limits`];
//! [`Reader`] takes values out of them and collects every [`Mistake`] instead of stopping at the
//! first. The other is one table, `keys`: each key once, with its field, its bounds and its
//! sentence. The parser, [`default_yaml`], [`to_yaml`] and [`keys`] all read that table, so none of
//! them can drift from the others.
//!
//! What must stay true: no input panics, and none takes more memory than its limits allow.

mod keys;
mod mistake;
mod read;
mod reader;
mod settings;
mod tree;
mod write;

pub use keys::{KeyInfo, keys};
pub use mistake::{Kind, Mistake, Mistakes};
pub use read::{
    parse, parse_bytes, parse_bytes_over, parse_over, parse_server_bytes, take_section, text_of,
};
pub use reader::{Fields, Reader, suggestion};
pub use settings::{JobAccess, Retention, ServerSettings};
pub use tree::{Key, Limits, Node, Style, Value};
pub use write::{default_yaml, server_yaml, to_yaml};
