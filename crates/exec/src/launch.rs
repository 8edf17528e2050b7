//! Starting a process as cheaply as the system allows.
//!
//! `std` copies and sorts the whole environment for each process whose environment differs from ours, and
//! every task's does. That costs as much as everything else a slot does around a start. Here what all
//! processes share is packed once, and a start hands over pointers.
//!
//! `posix_spawn` cannot change the directory by what the library offers. So a thread that has to start
//! something elsewhere gets a working directory of its own, which no other thread notices, goes there for
//! the moment of the start, and returns. Where the system refuses that (containers often do), `std` starts
//! the process, at its price.
//!
//! What must stay true: both ways give a process the same input, outputs, environment and directory, a group
//! of its own, no blocked signals, and no ignored ones but those that we were told to ignore. Nothing of ours
//! runs between fork and exec.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeWriter};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::sched::CloneFlags;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags};
use nix::sys::signal::{SigSet, Signal};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, WaitOptions};

use crate::belongings::MARK;

/// Starts processes that have most of their surroundings in common.
#[derive(Debug)]
pub(crate) struct Launcher {
    /// Our own environment, as it was when this was made.
    inherited: Vec<Variable>,
    /// The input of a process that has none of its own.
    nothing: File,
    /// The signals that it does not ignore.
    reset: SigSet,
}

/// What one process has of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start<'a> {
    /// The path of the program.
    pub(crate) program: &'a OsStr,
    /// What it is told, without the program itself.
    pub(crate) arguments: &'a [&'a OsStr],
    /// Added to our environment; of two with the same name the later counts.
    pub(crate) environment: &'a [(OsString, OsString)],
    /// By which it and its children are found. See `belongings.rs`.
    pub(crate) mark: Option<&'a OsStr>,
    /// Where it runs, when that is not where we are.
    pub(crate) directory: Option<&'a Path>,
    /// What it reads; nothing when none is given.
    pub(crate) input: Option<&'a File>,
    /// Where its output and its errors go, when not where ours go.
    pub(crate) outputs: Option<&'a [PipeWriter; 2]>,
}

/// A variable as a process gets it, `NAME=value`.
#[derive(Debug)]
struct Variable {
    packed: CString,
    name_length: usize,
}

impl Variable {
    fn new(name: &OsStr, value: &OsStr) -> io::Result<Self> {
        let mut packed = Vec::with_capacity(name.len() + value.len() + 2);
        packed.extend_from_slice(name.as_bytes());
        packed.push(b'=');
        packed.extend_from_slice(value.as_bytes());
        Ok(Self {
            packed: CString::new(packed)?,
            name_length: name.len(),
        })
    }

    fn name(&self) -> &[u8] {
        &self.packed.as_bytes()[..self.name_length]
    }

    fn parts(&self) -> (&OsStr, &OsStr) {
        let value = &self.packed.as_bytes()[self.name_length + 1..];
        (OsStr::from_bytes(self.name()), OsStr::from_bytes(value))
    }
}

thread_local! {
    /// The directory to return to, for a thread whose working directory is its own.
    static HOME: Option<OwnedFd> = directory_of_our_own();
}

fn directory_of_our_own() -> Option<OwnedFd> {
    nix::sched::unshare(CloneFlags::CLONE_FS).ok()?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(".", flags, Mode::empty()).ok()
}

impl Launcher {
    pub(crate) fn new() -> io::Result<Self> {
        let inherited = std::env::vars_os()
            .map(|(name, value)| Variable::new(&name, &value))
            .collect::<io::Result<_>>()?;
        Ok(Self {
            inherited,
            nothing: File::open("/dev/null")?,
            reset: reset_signals(),
        })
    }

    /// Starts a process. Whoever asks has to wait for it.
    pub(crate) fn start(&self, start: &Start<'_>) -> io::Result<Pid> {
        let Some(directory) = start.directory else {
            return self.start_here(start);
        };
        HOME.with(|home| match home {
            Some(home) => self.start_there(start, directory, home),
            None => self.start_by_std(start),
        })
    }

    fn start_there(&self, start: &Start<'_>, directory: &Path, home: &OwnedFd) -> io::Result<Pid> {
        rustix::process::chdir(directory).map_err(|error| {
            let error = io::Error::from(error);
            let said = format!("cannot enter {}: {error}", directory.display());
            io::Error::new(error.kind(), said)
        })?;
        let started = self.start_here(start);
        // Refused only when somebody closed our own directory to us meanwhile. Then relative names would mean
        // something else from now on, so nothing may seem to have worked.
        rustix::process::fchdir(home).inspect_err(|_| {
            if let Ok(process) = started {
                abandon(process);
            }
        })?;
        started
    }

    fn start_here(&self, start: &Start<'_>) -> io::Result<Pid> {
        let packed = |word: &OsStr| CString::new(word.as_bytes());
        let program = packed(start.program)?;
        let mut words = vec![program];
        for argument in start.arguments {
            words.push(packed(argument)?);
        }
        let own = own_variables(start)?;
        let environment = self.environment(&own);

        let mut files = PosixSpawnFileActions::init()?;
        files.add_dup2(self.input(start).as_raw_fd(), 0)?;
        if let Some([stdout, stderr]) = start.outputs {
            files.add_dup2(stdout.as_raw_fd(), 1)?;
            files.add_dup2(stderr.as_raw_fd(), 2)?;
        }
        let attributes = self.attributes()?;
        let process =
            nix::spawn::posix_spawn(&*words[0], &files, &attributes, &words, &environment)?;
        Ok(Pid::from_raw(process.as_raw()).expect("no process has number 0"))
    }

    fn input<'a>(&'a self, start: &Start<'a>) -> &'a File {
        start.input.unwrap_or(&self.nothing)
    }

    /// What a process finds: its own variables, and those of ours that it has none instead of.
    fn environment<'a>(&'a self, own: &'a [Variable]) -> Vec<&'a CStr> {
        let replaced = |variable: &&Variable| {
            let found = own.binary_search_by(|own| own.name().cmp(variable.name()));
            found.is_ok()
        };
        let inherited = self.inherited.iter();
        let all = own
            .iter()
            .chain(inherited.filter(|variable| !replaced(variable)));
        all.map(|variable| &*variable.packed).collect()
    }

    /// A group of its own, and signals as a program expects them.
    fn attributes(&self) -> nix::Result<PosixSpawnAttr> {
        let mut attributes = PosixSpawnAttr::init()?;
        attributes.set_flags(
            PosixSpawnFlags::POSIX_SPAWN_SETPGROUP
                | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF
                | PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK,
        )?;
        attributes.set_pgroup(nix::unistd::Pid::from_raw(0))?;
        attributes.set_sigdefault(&self.reset)?;
        attributes.set_sigmask(&SigSet::empty())?;
        Ok(attributes)
    }

    fn start_by_std(&self, start: &Start<'_>) -> io::Result<Pid> {
        let mut command = Command::new(start.program);
        command
            .args(start.arguments)
            .env_clear()
            .envs(self.inherited.iter().map(Variable::parts))
            .envs(start.environment.iter().map(|(name, value)| (name, value)))
            .envs(start.mark.map(|mark| (MARK, mark)))
            .stdin(self.input(start).try_clone()?)
            .process_group(0);
        if let Some(directory) = start.directory {
            command.current_dir(directory);
        }
        if let Some([stdout, stderr]) = start.outputs {
            command
                .stdout(stdout.try_clone()?)
                .stderr(stderr.try_clone()?);
        }
        Ok(Pid::from_child(&command.spawn()?))
    }
}

/// Sorted by name; of several with one name the last.
fn own_variables(start: &Start<'_>) -> io::Result<Vec<Variable>> {
    let given = start.environment.iter().rev();
    let given = given.map(|(name, value)| (name.as_os_str(), value.as_os_str()));
    let mark = start.mark.map(|mark| (OsStr::new(MARK), mark));
    let all = mark.into_iter().chain(given);
    let mut own = all
        .map(|(name, value)| Variable::new(name, value))
        .collect::<io::Result<Vec<_>>>()?;
    // The sort is stable: the last one given stays the first of its name.
    own.sort_by(|a, b| a.name().cmp(b.name()));
    own.dedup_by(|a, b| a.name() == b.name());
    Ok(own)
}

/// The signals to which a new program reacts as if nobody had ever said otherwise: all but those that we were
/// told to ignore (`nohup`), which it is to ignore as well. SIGPIPE is ignored by Rust alone.
///
/// Naming them all is also the faster way. Signals that are not named are asked about one by one between fork
/// and exec, and then set all the same (glibc 2.36): 120 calls of the system instead of 60.
fn reset_signals() -> SigSet {
    let ignored = ignored_signals().unwrap_or(u64::MAX);
    let is_ignored = |signal: Signal| ignored >> (signal as u32 - 1) & 1 != 0;
    let beyond_the_named = ignored >> 31 != 0;
    let mut signals = match beyond_the_named {
        // One without a name cannot be taken out again.
        true => Signal::iterator().collect(),
        false => SigSet::all(),
    };
    let kept = |signal: &Signal| is_ignored(*signal) && *signal != Signal::SIGPIPE;
    for signal in Signal::iterator().filter(kept) {
        signals.remove(signal);
    }
    // Nobody can change these two, so there is nothing to do about them.
    signals.remove(Signal::SIGKILL);
    signals.remove(Signal::SIGSTOP);
    signals
}

/// Whether we were told to ignore a signal, or nobody says.
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    let bit = u32::try_from(signal).unwrap_or(0).saturating_sub(1);
    ignored_signals().is_none_or(|ignored| ignored.unbounded_shr(bit) & 1 != 0)
}

/// A bit for each signal that we ignore.
fn ignored_signals() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

/// Ends the group of a process that was just started and that nobody will watch.
pub(crate) fn abandon(process: Pid) {
    // It can only be gone already.
    let _ = rustix::process::kill_process_group(process, rustix::process::Signal::KILL);
    let _ = rustix::process::waitpid(Some(process), WaitOptions::empty());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, pipe};
    use std::os::unix::fs::PermissionsExt;

    type Way = fn(&Launcher, &Start<'_>) -> io::Result<Pid>;

    /// What a process says, started in each of the ways.
    fn said(
        script: &str,
        environment: &[(OsString, OsString)],
        directory: Option<&Path>,
    ) -> Vec<String> {
        let ways: [Way; 2] = [Launcher::start, Launcher::start_by_std];
        let said = |way: Way| {
            let (mut output, stdout) = pipe().expect("a pipe");
            let (_errors, stderr) = pipe().expect("a pipe");
            let outputs = [stdout, stderr];
            let start = Start {
                program: OsStr::new("/bin/sh"),
                arguments: &[OsStr::new("-c"), OsStr::new(script)],
                environment,
                mark: None,
                directory,
                input: None,
                outputs: Some(&outputs),
            };
            let launcher = Launcher::new().expect("a launcher");
            let process = way(&launcher, &start).expect("it starts");
            drop(outputs);
            let mut text = String::new();
            output.read_to_string(&mut text).expect("it says something");
            let _ = rustix::process::waitpid(Some(process), WaitOptions::empty());
            text
        };
        ways.map(said).into()
    }

    fn variables(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }

    #[test]
    fn the_environment_is_ours_but_for_what_is_given() {
        let ours = std::env::var("PATH").expect("a PATH");
        let given = variables(&[("HOME", "first"), ("COLOUR", "a=b c"), ("HOME", "last")]);
        for text in said(
            "echo $HOME,$COLOUR; echo $PATH; env | grep -c ^HOME=",
            &given,
            None,
        ) {
            assert_eq!(text, format!("last,a=b c\n{ours}\n1\n"));
        }
    }

    #[test]
    fn signals_and_group_are_those_of_a_new_program() {
        let script =
            "grep -E 'Sig(Blk|Ign)' /proc/self/status; ps -o pgid= -p $$ | tr -d ' '; echo $$";
        for text in said(script, &[], None) {
            let lines: Vec<_> = text.lines().collect();
            assert_eq!(lines[0], "SigBlk:\t0000000000000000");
            let ignored = lines[1].split_whitespace().nth(1).expect("a mask");
            let ignored = u64::from_str_radix(ignored, 16).expect("a mask");
            assert_eq!(ignored >> (Signal::SIGPIPE as u32 - 1) & 1, 0, "{text}");
            assert_eq!(lines[2], lines[3], "it leads its group");
        }
    }

    #[test]
    fn a_directory_is_left_again_and_no_other_thread_was_there() {
        let there = tempfile::tempdir().expect("a directory");
        let there = there.path().canonicalize().expect("a path");
        let here = || std::env::current_dir().expect("a directory");
        let before = here();
        let other = std::thread::scope(|scope| {
            let elsewhere = scope.spawn(|| {
                let texts = said("pwd", &[], Some(&there));
                (texts, here())
            });
            elsewhere.join().expect("no panic")
        });
        for text in &other.0 {
            assert_eq!(text.trim_end(), there.to_str().expect("text"));
        }
        assert_eq!((other.1, here()), (before.clone(), before));
    }

    #[test]
    fn what_cannot_be_packed_entered_or_run_is_an_error() {
        let directory = tempfile::tempdir().expect("a directory");
        let text = directory.path().join("text");
        std::fs::write(&text, "no program").expect("a file");
        std::fs::set_permissions(&text, PermissionsExt::from_mode(0o755)).expect("a mode");
        let launcher = Launcher::new().expect("a launcher");
        let plain = Start {
            program: OsStr::new("/bin/true"),
            arguments: &[],
            environment: &[],
            mark: None,
            directory: None,
            input: None,
            outputs: None,
        };
        let with_zero = OsStr::from_bytes(b"a\0b");
        let arguments = [with_zero];
        let environment = [("NAME".into(), with_zero.into())];
        let nowhere = directory.path().join("missing");
        let cases = [
            (
                Start {
                    arguments: &arguments,
                    ..plain
                },
                io::ErrorKind::InvalidInput,
            ),
            (
                Start {
                    environment: &environment,
                    ..plain
                },
                io::ErrorKind::InvalidInput,
            ),
            (
                Start {
                    directory: Some(&nowhere),
                    ..plain
                },
                io::ErrorKind::NotFound,
            ),
            (
                Start {
                    program: nowhere.as_os_str(),
                    ..plain
                },
                io::ErrorKind::NotFound,
            ),
            (
                Start {
                    program: directory.path().as_os_str(),
                    ..plain
                },
                io::ErrorKind::PermissionDenied,
            ),
        ];
        for (start, kind) in cases {
            for way in [Launcher::start as Way, Launcher::start_by_std] {
                assert_eq!(
                    way(&launcher, &start).expect_err("refused").kind(),
                    kind,
                    "{start:?}"
                );
            }
        }
        let start = Start {
            program: text.as_os_str(),
            ..plain
        };
        let refused = launcher.start(&start).expect_err("no format");
        assert_eq!(
            refused.raw_os_error(),
            Some(nix::errno::Errno::ENOEXEC as i32)
        );
    }
}
