//! What to run, and within which limits.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

/// A command, its surroundings and its limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// A path, or a name that is looked up in `PATH`.
    pub program: OsString,
    /// Its arguments, without the program itself.
    pub arguments: Vec<OsString>,
    /// Added to the environment of the agent.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it runs; the agent's own directory when none is given.
    pub directory: Option<PathBuf>,
    /// Where its output goes.
    pub streams: Streams,
    /// What it may use.
    pub limits: Limits,
    /// After how long a [`Sink`](crate::Sink) hears that it still runs.
    pub notice: Option<Duration>,
    /// How often it hears so again after that; never when none is given.
    pub notice_every: Option<Duration>,
}

/// Where the output of a command goes. Its input is always empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Streams {
    /// To the [`Sink`](crate::Sink).
    #[default]
    Captured,
    /// To wherever the agent's own output goes.
    Inherited,
}

/// What a command may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long it may run. Then its whole process group gets TERM, and KILL after the grace.
    pub time: Option<Duration>,
    /// How long a group that got TERM has to end.
    pub grace: Duration,
    /// How much memory it may use, in bytes: all its processes together where it has a control group of
    /// its own, else what each of them may map.
    pub memory: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            time: None,
            grace: Duration::from_secs(2),
            memory: None,
        }
    }
}

impl Command {
    /// A command without arguments, in the agent's own surroundings.
    #[must_use]
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            ..Self::default()
        }
    }

    /// A line for the shell.
    #[must_use]
    pub fn shell(line: impl AsRef<OsStr>) -> Self {
        Self::new("/bin/sh").arg("-c").arg(line)
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Adds a variable to the environment.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        let pair = (name.as_ref().to_owned(), value.as_ref().to_owned());
        self.environment.push(pair);
        self
    }
}
