//! Tasks end with the program that runs them, also when that is killed.
//!
//! Nobody can clean up after its own SIGKILL, and `posix_spawn` knows no signal at the death of a parent. So a
//! small process stands by: it holds the reading end of a pipe whose other end we hold alone. When the pipe ends
//! without a good-bye, we are gone, and it ends everything that belongs to us.
//!
//! It also knows until when we may run what we run: an agent tells it whenever its server was heard. If that
//! moment passes and we are stopped, stuck or cut off, it ends our tasks in our stead.
//!
//! ```text
//!   agent ──"until 123456789"──▶ guardian      the lease lasts until that moment (of CLOCK_BOOTTIME, ns)
//!         ──"bye"──────────────▶               nothing is left to watch over
//!         ──(end of the pipe)──▶               kill everything
//! ```
//!
//! What must stay true: it has no mark and a group of its own, so that whoever ends us does not end it first; it
//! never ends before all that belongs to us is gone.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;
use rustix::time::ClockId;

use crate::belongings::{Owner, members, token};
use crate::control_group;

/// Nanoseconds since the machine was started, sleep included.
#[must_use]
pub fn boot_time() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanoseconds)
}

/// A program that becomes a guardian: it calls [`stand_guard`] with the arguments that follow these.
#[derive(Clone, Debug)]
pub struct GuardianProgram {
    /// The program.
    pub program: PathBuf,
    /// Its first arguments.
    pub arguments: Vec<OsString>,
}

/// The guardian of this process: how it is started, and how it is spoken to.
#[derive(Debug)]
pub struct Guardian {
    program: GuardianProgram,
    /// Something that has to stay open as long as it lives.
    keeps: Option<OwnedFd>,
    started: OnceLock<Option<Mutex<ChildStdin>>>,
}

impl Guardian {
    /// One that is not started yet.
    #[must_use]
    pub fn new(program: GuardianProgram) -> Self {
        Self {
            program,
            keeps: None,
            started: OnceLock::new(),
        }
    }

    /// Has it keep this open until everything that belongs to us is gone.
    #[must_use]
    pub fn keeping(self, open: OwnedFd) -> Self {
        let keeps = Some(open);
        Self { keeps, ..self }
    }

    /// Starts it, unless it runs. Whether it does.
    pub fn start(&self) -> bool {
        self.started
            .get_or_init(|| match self.spawn() {
                Ok(pipe) => Some(Mutex::new(pipe)),
                Err(error) => {
                    tracing::warn!(%error, "no guardian: if this process is killed, its tasks go on");
                    None
                }
            })
            .is_some()
    }

    fn spawn(&self) -> io::Result<ChildStdin> {
        let kept = self.keeps.as_ref().map(|open| open.try_clone());
        let mut command = Command::new(&self.program.program);
        command
            .args(&self.program.arguments)
            .arg(token())
            .arg(std::process::id().to_string())
            .env_clear()
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(kept.transpose()?.map_or_else(Stdio::null, Stdio::from))
            .stderr(Stdio::null());
        if let Some(place) = control_group::own_place() {
            command.arg(place);
        }
        let mut child = command.spawn()?;
        let pipe = child.stdin.take().expect("it was asked for");
        // It outlives us, or ends when we say good-bye: then we end, too.
        drop(child);
        Ok(pipe)
    }

    /// Tells it until when our tasks may run, by [`boot_time`].
    pub fn allow_until(&self, moment: Duration) {
        self.say(&format!("until {}\n", moment.as_nanos()));
    }

    /// Nothing of ours is left that has to end with us.
    pub fn dismiss(&self) {
        self.say("bye\n");
    }

    fn say(&self, words: &str) {
        if let Some(Some(pipe)) = self.started.get() {
            let mut pipe = lock(pipe);
            // If it is gone, there is nobody to tell; our tasks are none the worse for it.
            let _ = pipe.write_all(words.as_bytes());
        }
    }
}

fn lock(pipe: &Mutex<ChildStdin>) -> MutexGuard<'_, ChildStdin> {
    pipe.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a guardian does with its life. Its arguments are what [`Guardian`] gave it, its input is the pipe.
///
/// # Errors
/// When the arguments make no sense.
pub fn stand_guard(arguments: &[OsString]) -> io::Result<()> {
    let word = |index: usize| arguments.get(index).and_then(|word| word.to_str());
    let (Some(token), Some(pid)) = (word(0), word(1)) else {
        let message = "a guardian is told whom it guards";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    };
    let place = arguments.get(2).map(Path::new);
    if let Some(place) = place {
        control_group::step_out(place, pid);
    }
    let watch = Watch { token, pid, place };
    watch.until_over(&io::stdin())
}

struct Watch<'a> {
    token: &'a str,
    pid: &'a str,
    place: Option<&'a Path>,
}

impl Watch<'_> {
    fn until_over(&self, pipe: &impl AsFd) -> io::Result<()> {
        let mut words = Words::default();
        let mut until = None;
        loop {
            if !is_readable(pipe, until)? {
                // Nobody heard of them any more. If they come back, there is a new moment.
                until = None;
                self.end_everything();
                continue;
            }
            let mut buffer = [0; 512];
            // Past the buffer of the library, which `poll` does not know of.
            let count = rustix::io::read(pipe, &mut buffer)?;
            if count == 0 {
                self.end_everything();
                return Ok(());
            }
            for word in words.add(&buffer[..count]) {
                match word {
                    Word::Bye => {
                        self.leave();
                        return Ok(());
                    }
                    Word::Until(moment) => until = Some(moment),
                }
            }
        }
    }

    /// Ends all that belongs to whom we guard, until nothing is left of it.
    fn end_everything(&self) {
        let mut pause = Duration::from_millis(1);
        loop {
            if let Some(place) = self.place {
                control_group::kill_all(place, self.pid);
            }
            let left = members(Owner::Program { token: self.token });
            if left.is_empty() {
                return self.leave();
            }
            for member in left {
                member.signal(Signal::KILL);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    fn leave(&self) {
        if let Some(place) = self.place {
            control_group::remove_of(place, self.pid);
        }
    }
}

/// Waits for something to read, or for the moment. A machine that slept is noticed within a second.
fn is_readable(pipe: &impl AsFd, until: Option<Duration>) -> io::Result<bool> {
    const LOOK_EVERY: Duration = Duration::from_secs(1);
    loop {
        let left = until.map(|moment| moment.saturating_sub(boot_time()));
        if left == Some(Duration::ZERO) {
            return Ok(false);
        }
        let timeout = left.map(|left| {
            let left = left.min(LOOK_EVERY);
            Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(1),
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        let mut set = [PollFd::new(pipe, PollFlags::IN)];
        match rustix::event::poll(&mut set, timeout.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
}

/// What a guardian is told.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    Bye,
    Until(Duration),
}

/// Lines that come in pieces.
#[derive(Debug, Default)]
struct Words {
    open: Vec<u8>,
}

impl Words {
    fn add(&mut self, bytes: &[u8]) -> Vec<Word> {
        self.open.extend_from_slice(bytes);
        let Some(end) = self.open.iter().rposition(|byte| *byte == b'\n') else {
            return Vec::new();
        };
        let whole: Vec<u8> = self.open.drain(..=end).collect();
        let lines = whole.split(|byte| *byte == b'\n');
        lines.filter_map(word).collect()
    }
}

fn word(line: &[u8]) -> Option<Word> {
    let line = std::str::from_utf8(line).ok()?;
    if line == "bye" {
        return Some(Word::Bye);
    }
    let moment = line.strip_prefix("until ")?.parse().ok()?;
    Some(Word::Until(Duration::from_nanos(moment)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_understood_whatever_pieces_they_come_in() {
        let text = b"until 12\nuntil 345\nnonsense\nbye\n";
        for cut in 0..text.len() {
            let mut words = Words::default();
            let mut heard = words.add(&text[..cut]);
            heard.extend(words.add(&text[cut..]));
            let moment = |ns| Word::Until(Duration::from_nanos(ns));
            assert_eq!(heard, [moment(12), moment(345), Word::Bye]);
        }
    }
}
