//! How a command ends.

use std::process::ExitCode;

/// The exit codes of every subcommand that does not say otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done; also when the reader of the output went away early.
    Done = 0,
    /// A file could not be read or written, or something else went wrong on the way.
    Failed = 1,
    /// The command line was not understood.
    Usage = 2,
    /// The input has mistakes, which were reported.
    Mistakes = 3,
    /// Somebody pressed Ctrl-C.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
