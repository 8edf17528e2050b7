//! How a command ends.

use std::process::ExitCode;

/// The exit codes. `loxley run` counts failures as GNU parallel does, so it needs the low numbers for
/// itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0: done; also when the reader of the output went away early.
    Done,
    /// 1: a file could not be read or written, or something else went wrong on the way.
    Failed,
    /// 2: the command line was not understood.
    Usage,
    /// 3: the input has mistakes, which were reported.
    Mistakes,
    /// 4: what was waited for did not succeed.
    Unsuccessful,
    /// 5: there is no such job, task or agent.
    NotFound,
    /// 6: the server cannot be reached.
    Unreachable,
    /// 7: the server refused.
    Refused,
    /// 8: the time given for waiting is over.
    TimeUp,
    /// 9: what was submitted may have been accepted, or not: nobody answered.
    Uncertain,
    /// 1 to 100: so many tasks failed; 101: more.
    TasksFailed(u8),
    /// The exit code of the command that was run.
    OfCommand(u8),
    /// 130: somebody pressed Ctrl-C before the end.
    Interrupted,
    /// 255: a run could not start or go on, also when its command line was not understood.
    RunFailed,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Mistakes => 3,
            Exit::Unsuccessful => 4,
            Exit::NotFound => 5,
            Exit::Unreachable => 6,
            Exit::Refused => 7,
            Exit::TimeUp => 8,
            Exit::Uncertain => 9,
            Exit::TasksFailed(code) | Exit::OfCommand(code) => code,
            Exit::Interrupted => 130,
            Exit::RunFailed => 255,
        })
    }
}
