//! What to run, and within which limits.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
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
    /// What it reads; nothing when none is given.
    pub input: Option<Input>,
    /// Where its output goes.
    pub streams: Streams,
    /// What it may use.
    pub limits: Limits,
    /// After how long a [`Sink`](crate::Sink) hears that it still runs.
    pub notice: Option<Duration>,
    /// How often it hears so again after that; never when none is given.
    pub notice_every: Option<Duration>,
}

/// What a command reads as its standard input: a file, which each process that gets it reads from the beginning.
#[derive(Clone, Debug)]
pub struct Input(Arc<File>);

impl Input {
    /// What is in this file. It may have no name any more.
    #[must_use]
    pub fn new(file: File) -> Self {
        Self(Arc::new(file))
    }

    /// The same file, with a place of its own to read from: attempts and copies do not take each other's bytes.
    pub(crate) fn open(&self) -> io::Result<File> {
        File::open(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// How many bytes there are to read.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

impl PartialEq for Input {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Input {}

/// Where the output of a command goes.
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
