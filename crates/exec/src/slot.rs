//! Room for one command at a time.
//!
//! Whoever calls [`Slot::run`] waits in one place, a `poll` on four things: the process itself (a
//! pidfd), its two outputs, and the slot's bell, which a [`Killer`] rings. The time limit is the
//! timeout of that `poll`. So nothing is asked twice, no thread is made for a process, and a process
//! that closed its outputs, or left them to a grandchild, is noticed all the same.
//!
//! The far ends of the two outputs stay open here as well until the process is over. Otherwise the kernel
//! would wake us when the process closes each of them, a moment before it ends: three times instead of once.
//!
//! What must stay true:
//! - the group gets signals only before its leader is reaped: until then nobody else can have the
//!   number. A leader that ended after TERM leaves no group behind: the rest has what is left of the grace to
//!   clean up, and gets KILL then. What left the group is found by its mark (`belongings.rs`) and treated alike.
//! - a command that was stopped has ended when nothing is left of it; what the rest of it prints is kept.
//! - starting goes through `posix_spawn` (which shares memory with its parent until the new program
//!   runs): no closure between fork and exec, and the program is a path. See the launcher.

use std::ffi::{OsStr, OsString};
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_pidfd::{ExitInfo, PidFd};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal};

use crate::belongings::{self, Marks, Member, Owner};
use crate::command::{Command, Input, Streams};
use crate::control_group::{MemoryGroups, TaskGroup};
use crate::ended::{Ended, Status, Stopped};
use crate::launch::{Launcher, Start, abandon};
use crate::output::{Sink, Stream};
use crate::program::ProgramCache;
use crate::report::AgentsFault;

/// Runs one command at a time.
#[derive(Debug)]
pub struct Slot {
    orders: Arc<Orders>,
    programs: ProgramCache,
    launcher: Launcher,
    buffer: Vec<u8>,
    /// What limits memory; none: a limit of address space does.
    groups: Option<Arc<MemoryGroups>>,
    marks: Marks,
}

/// Reaches into a slot from another thread.
#[derive(Clone, Debug)]
pub struct Killer {
    orders: Arc<Orders>,
}

/// How a command is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// TERM to its group, KILL after the grace.
    Gentle,
    /// KILL to its group.
    AtOnce,
}

/// Why a command did not run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no such program.
    #[error("there is no program `{program}`{}", directory.as_ref().map(|path| format!(" (to be run in {})", path.display())).unwrap_or_default())]
    NotFound {
        /// What was to be started.
        program: String,
        /// Where, when not where we are.
        directory: Option<PathBuf>,
    },
    /// The system refused.
    #[error("cannot start `{program}`")]
    Refused {
        /// What was to be started.
        program: String,
        /// What the system says.
        source: io::Error,
    },
    /// The system stopped telling us about a process that runs, or its output could not be kept.
    #[error("lost hold of `{program}`")]
    Lost {
        /// What was started. It was killed.
        program: String,
        /// What the system says.
        source: io::Error,
    },
}

impl StartError {
    /// Whether the system refused this process something that has nothing to do with the task: descriptors,
    /// processes, memory.
    pub(crate) fn agents_fault(&self) -> Option<AgentsFault> {
        let (fault, source) = match self {
            Self::NotFound { .. } => return None,
            Self::Refused { source, .. } => (AgentsFault::NotBegun, source),
            Self::Lost { source, .. } => (AgentsFault::Begun, source),
        };
        is_shortage(source).then_some(fault)
    }

    /// What went wrong, with what the system says.
    #[must_use]
    pub fn in_words(&self) -> String {
        match std::error::Error::source(self) {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }
}

/// What killers ask for. The bell wakes the slot; the order says which run is meant.
#[derive(Debug)]
struct Orders {
    bell: OwnedFd,
    order: Mutex<Option<(u64, Urgency)>>,
}

impl Orders {
    /// The bell was heard: it may be rung again.
    fn answer_bell(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    /// The order for this run, if there is one. Orders for others are old news.
    fn for_run(&self, run: u64) -> Option<Urgency> {
        let order = *self.order.lock().unwrap_or_else(PoisonError::into_inner);
        order
            .filter(|(meant, _)| *meant == run)
            .map(|(_, urgency)| urgency)
    }
}

impl Killer {
    /// Ends the command that runs under this number; nothing happens when it is over.
    pub fn kill(&self, run: u64, urgency: Urgency) {
        let mut order = self
            .orders
            .order
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *order = Some(match *order {
            Some((earlier, before)) if earlier == run => (run, before.max(urgency)),
            _ => (run, urgency),
        });
        drop(order);
        // Fails only when the bell has been rung 2^64 times without being heard.
        let _ = rustix::io::write(&self.orders.bell, &1u64.to_ne_bytes());
    }
}

impl Slot {
    /// A free slot, and the killer that reaches it.
    pub fn new() -> io::Result<(Self, Killer)> {
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let orders = Arc::new(Orders {
            bell,
            order: Mutex::new(None),
        });
        let slot = Self {
            orders: Arc::clone(&orders),
            programs: ProgramCache::default(),
            launcher: Launcher::new()?,
            buffer: vec![0; 64 << 10],
            groups: None,
            marks: Marks::new(),
        };
        Ok((slot, Killer { orders }))
    }

    /// The same slot, but commands with a memory limit get control groups of their own.
    #[must_use]
    pub(crate) fn with_memory_groups(self, groups: Arc<MemoryGroups>) -> Self {
        let groups = Some(groups);
        Self { groups, ..self }
    }

    /// Runs a command to its end. `run` is a number that the slot never ran under before: an order
    /// to kill that comes late must not hit the next command.
    pub fn run(
        &mut self,
        run: u64,
        command: &Command,
        sink: &mut dyn Sink,
    ) -> Result<Ended, StartError> {
        let program = command.program.to_string_lossy();
        let begun = Instant::now();
        let group = self.group(command)?;
        let mark = self.marks.of_run(run);
        let started = self.start(command, &mark, group.as_ref())?;
        let lost = |source| StartError::Lost {
            program: program.clone().into_owned(),
            source,
        };
        let mut watch = Watch::new(run, mark, command, begun, started, group).map_err(lost)?;
        let mut taking = Taking {
            buffer: &mut self.buffer,
            sink,
            kept: Ok(()),
        };
        let result = watch.until_it_ends(&self.orders, &mut taking);
        if result.is_err() {
            watch.kill();
        }
        let ended = watch.reap(&self.orders, &mut taking).map_err(lost)?;
        result.and(taking.kept).map_err(lost)?;
        Ok(ended)
    }

    /// The control group of a command with a memory limit, where the system lets us make one.
    fn group(&self, command: &Command) -> Result<Option<TaskGroup>, StartError> {
        let (Some(groups), Some(bytes)) = (&self.groups, command.limits.memory) else {
            return Ok(None);
        };
        let group = groups.create(bytes).map_err(|source| StartError::Refused {
            program: command.program.to_string_lossy().into_owned(),
            source,
        });
        group.map(Some)
    }

    fn start(
        &mut self,
        command: &Command,
        mark: &str,
        group: Option<&TaskGroup>,
    ) -> Result<Started, StartError> {
        let name = || command.program.to_string_lossy().into_owned();
        let refused = |source| StartError::Refused {
            program: name(),
            source,
        };
        let path = self
            .programs
            .find(&command.program)
            .ok_or_else(|| StartError::NotFound {
                program: name(),
                directory: command.directory.clone(),
            })?;
        // What limits the memory becomes the program once the limit holds.
        let before = match (group, command.limits.memory) {
            (Some(group), _) => inside(group),
            (None, Some(bytes)) => limited(bytes),
            (None, None) => Vec::new(),
        };
        let words: Vec<&OsStr> = before
            .iter()
            .map(OsString::as_os_str)
            .chain([path.as_os_str()])
            .chain(command.arguments.iter().map(OsString::as_os_str))
            .collect();
        let (near, far) = match command.streams {
            Streams::Captured => {
                let (near, far) = pipes().map_err(refused)?;
                (Some(near), Some(far))
            }
            Streams::Inherited => (None, None),
        };
        let mark = self.marks.value(mark);
        let input = command.input.as_ref().map(Input::open);
        let input = input.transpose().map_err(refused)?;
        let start = Start {
            program: words[0],
            arguments: &words[1..],
            environment: &command.environment,
            mark: Some(&mark),
            directory: command.directory.as_deref(),
            input: input.as_ref(),
            outputs: far.as_ref(),
        };
        Ok(Started {
            leader: self.launcher.start(&start).map_err(refused)?,
            outputs: near,
            far_ends: far,
        })
    }
}

/// Two pipes: the ends that we read, and the ends that a process writes to.
fn pipes() -> io::Result<([PipeReader; 2], [PipeWriter; 2])> {
    let ((stdout, stdout_far), (stderr, stderr_far)) = (io::pipe()?, io::pipe()?);
    Ok(([stdout, stderr], [stdout_far, stderr_far]))
}

/// A shell that limits itself and then becomes the program: there is no moment in which the program
/// runs without its limit, and no code of ours between fork and exec.
fn limited(bytes: u64) -> Vec<OsString> {
    let kibibytes = bytes.div_ceil(1024).to_string();
    let words = [
        "/bin/sh",
        "-c",
        "ulimit -v \"$0\" && exec \"$@\"",
        &kibibytes,
    ];
    words.map(OsString::from).into()
}

/// A shell that enters the group and then becomes the program, likewise.
fn inside(group: &TaskGroup) -> Vec<OsString> {
    let words = ["/bin/sh", "-c", "echo \"$$\" >\"$0\" && exec \"$@\""];
    let mut words = words.map(OsString::from).to_vec();
    words.push(group.entrance().into());
    words
}

/// A process, and both ends of its outputs unless it has ours.
struct Started {
    leader: Pid,
    outputs: Option<[PipeReader; 2]>,
    far_ends: Option<[PipeWriter; 2]>,
}

/// One process from its start to its end.
struct Watch {
    run: u64,
    mark: String,
    begun: Instant,
    grace: Duration,
    group: Pid,
    process: PidFd,
    outputs: Option<[PipeReader; 2]>,
    /// Open as long as the process runs: see above.
    _far_ends: Option<[PipeWriter; 2]>,
    stopped: Option<Stopped>,
    /// When to do something if nothing happens: send TERM, or KILL once that was sent.
    alarm: Option<Instant>,
    /// When the sink is told that the command still runs.
    notice: Option<Instant>,
    notice_every: Option<Duration>,
    /// The control group, when there is one. It goes last, when the process is reaped.
    control: Option<TaskGroup>,
}

impl Watch {
    fn new(
        run: u64,
        mark: String,
        command: &Command,
        begun: Instant,
        started: Started,
        control: Option<TaskGroup>,
    ) -> io::Result<Self> {
        let group = started.leader;
        let process = take_hold(group).inspect_err(|_| abandon(group))?;
        let limits = &command.limits;
        Ok(Self {
            run,
            mark,
            begun,
            grace: limits.grace,
            group,
            process,
            outputs: started.outputs,
            _far_ends: started.far_ends,
            stopped: None,
            alarm: limits.time.and_then(|time| begun.checked_add(time)),
            notice: command.notice.and_then(|time| begun.checked_add(time)),
            notice_every: command.notice_every,
            control,
        })
    }

    /// Waits for the end and moves output meanwhile. Whatever goes wrong here, the process is over
    /// when this returns or is killed by `reap`.
    fn until_it_ends(&mut self, orders: &Orders, taking: &mut Taking<'_>) -> io::Result<()> {
        // An order may have come while we were starting, and its bell may be answered already.
        self.obey(orders.for_run(self.run));
        loop {
            let ready = self.wait(orders)?;
            if ready.bell {
                orders.answer_bell();
                self.obey(orders.for_run(self.run));
            }
            // A little at a time: a process that never stops writing must not hide the clock.
            let pieces = if ready.ended { LAST_PIECES } else { 1 };
            if ready.stdout {
                taking.drain(self.output(Stream::Stdout), Stream::Stdout, pieces)?;
            }
            if ready.stderr {
                taking.drain(self.output(Stream::Stderr), Stream::Stderr, pieces)?;
            }
            if ready.ended {
                return Ok(());
            }
            if has_passed(self.notice) {
                let again = self.notice_every;
                self.notice = again.and_then(|time| Instant::now().checked_add(time));
                taking.sink.runs_on();
            }
            if has_passed(self.alarm) {
                self.ring();
            }
        }
    }

    /// Waits for something to happen. The process is looked at before its outputs: of one that has ended, what
    /// is said about them is the last word.
    fn wait(&self, orders: &Orders) -> io::Result<Ready> {
        let next = [self.alarm, self.notice].into_iter().flatten().min();
        let timeout = next.map(|alarm| {
            let left = alarm.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        // In place of a stream that nobody captures stands the bell, unread.
        let bell = orders.bell.as_fd();
        let output = |stream| self.output(stream).map_or(bell, AsFd::as_fd);
        let (stdout, stderr) = (output(Stream::Stdout), output(Stream::Stderr));
        let mut set = [self.process.as_fd(), bell, stdout, stderr]
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match rustix::event::poll(&mut set, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let rang = |index: usize| !set[index].revents().is_empty();
        Ok(Ready {
            ended: rang(0),
            bell: rang(1),
            stdout: self.outputs.is_some() && rang(2),
            stderr: self.outputs.is_some() && rang(3),
        })
    }

    fn output(&self, stream: Stream) -> Option<&PipeReader> {
        Some(&self.outputs.as_ref()?[stream as usize])
    }

    /// The alarm went off: first TERM, later KILL.
    fn ring(&mut self) {
        if self.stopped.is_none() {
            self.stop(Stopped::TimeLimit);
        } else {
            self.kill();
        }
    }

    fn obey(&mut self, order: Option<Urgency>) {
        match order {
            Some(Urgency::Gentle) if self.stopped.is_none() => self.stop(Stopped::Killed),
            Some(Urgency::AtOnce) => {
                self.stopped.get_or_insert(Stopped::Killed);
                self.kill();
            }
            _ => {}
        }
    }

    fn stop(&mut self, why: Stopped) {
        self.stopped = Some(why);
        self.alarm = Instant::now().checked_add(self.grace);
        let outside = self.others();
        self.signal(Signal::TERM);
        // A stopped (^Z) group hears TERM only when it goes on.
        self.signal(Signal::CONT);
        for other in &outside {
            other.signal(Signal::TERM);
            other.signal(Signal::CONT);
        }
    }

    fn kill(&mut self) {
        self.alarm = None;
        self.signal(Signal::KILL);
        if let Some(control) = &self.control {
            control.kill();
        }
        for other in self.others() {
            other.signal(Signal::KILL);
        }
    }

    /// Everything that belongs to it but its leader.
    fn others(&self) -> Vec<Member> {
        let (group, mark) = (self.group, &*self.mark);
        belongings::members(Owner::Run { group, mark })
    }

    /// A shell ends at TERM at once, while what it started still cleans up: that has the rest of the grace, and
    /// then it is killed. This returns when nothing is left. Nobody tells when that is, so it is looked at, and
    /// less and less often.
    fn end_the_rest(&mut self, orders: &Orders, taking: &mut Taking<'_>) -> io::Result<()> {
        const SLOW: Duration = Duration::from_secs(10);
        let begun = Instant::now();
        let mut pause = Duration::from_millis(1);
        let mut told = false;
        loop {
            let rest = self.others();
            if rest.is_empty() {
                break;
            }
            let in_grace = self.alarm.is_some_and(|end| Instant::now() < end);
            if !in_grace || orders.for_run(self.run) == Some(Urgency::AtOnce) {
                self.kill();
            }
            if begun.elapsed() > SLOW.max(2 * self.grace) && !told {
                let (mark, count) = (&self.mark, rest.len());
                tracing::warn!(mark, count, "killed processes do not end; waiting for them");
                told = true;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
            self.take_rest(taking)?;
        }
        self.kill();
        self.take_rest(taking)
    }

    /// Takes what lies in the outputs now.
    fn take_rest(&self, taking: &mut Taking<'_>) -> io::Result<()> {
        for stream in [Stream::Stdout, Stream::Stderr] {
            if let Some(pipe) = self.output(stream)
                && rustix::io::ioctl_fionread(pipe)? > 0
            {
                taking.drain(Some(pipe), stream, LAST_PIECES)?;
            }
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        // Fails only when the whole group is already gone.
        let _ = rustix::process::kill_process_group(self.group, signal);
    }

    /// Takes the exit status. A command that had to be stopped leaves nothing behind.
    fn reap(mut self, orders: &Orders, taking: &mut Taking<'_>) -> io::Result<Ended> {
        let mut taken = Ok(());
        if self.stopped.is_some() {
            taken = self.end_the_rest(orders, taking);
        }
        let used = wait_for(&self.process)?;
        taken?;
        if self.control.as_ref().is_some_and(TaskGroup::ran_out) {
            self.stopped.get_or_insert(Stopped::MemoryLimit);
        }
        let status = used.status();
        let status = match status.signal() {
            Some(signal) => Status::Signalled(signal),
            None => Status::Exited(status.code().unwrap_or(-1)),
        };
        let time = |seconds: i64, microseconds: i64| {
            Duration::from_secs(seconds.unsigned_abs())
                + Duration::from_micros(microseconds.unsigned_abs())
        };
        let (user, system) = (used.rusage.ru_utime, used.rusage.ru_stime);
        Ok(Ended {
            status,
            stopped: self.stopped,
            duration: self.begun.elapsed(),
            user_time: time(user.tv_sec, user.tv_usec),
            system_time: time(system.tv_sec, system.tv_usec),
            memory_max: used.rusage.ru_maxrss.unsigned_abs() * 1024,
        })
    }
}

/// A descriptor of a process that was just started. When the system has none to spare, others give some back
/// soon: better to wait than to end what has begun.
fn take_hold(process: Pid) -> io::Result<PidFd> {
    let mut tries = 0..200;
    loop {
        match PidFd::from_pid(process.as_raw_pid()) {
            Err(error) if is_shortage(&error) && tries.next().is_some() => {
                std::thread::sleep(Duration::from_millis(10));
            }
            taken => return taken,
        }
    }
}

/// Whether the system is out of something that has nothing to do with the task.
fn is_shortage(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let short = [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM];
    let number = error.raw_os_error();
    short
        .iter()
        .any(|errno| Some(errno.raw_os_error()) == number)
}

/// Takes the end of a process; it may still be on its way there.
fn wait_for(process: &PidFd) -> io::Result<ExitInfo> {
    loop {
        match process.wait() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            ended => return ended,
        }
    }
}

fn has_passed(moment: Option<Instant>) -> bool {
    moment.is_some_and(|moment| moment <= Instant::now())
}

/// What happened while we waited.
struct Ready {
    ended: bool,
    bell: bool,
    stdout: bool,
    stderr: bool,
}

/// How many buffers of output are read after the end: as much as the largest pipe can hold. More
/// can only come from processes that were left behind, and nobody waits for those.
const LAST_PIECES: usize = 17;

/// Output on its way to the sink.
struct Taking<'a> {
    buffer: &'a mut [u8],
    sink: &'a mut dyn Sink,
    kept: io::Result<()>,
}

impl Taking<'_> {
    /// Reads what is there, up to so many buffers. Something is: a read that finds nothing would wait.
    fn drain(
        &mut self,
        pipe: Option<&PipeReader>,
        stream: Stream,
        pieces: usize,
    ) -> io::Result<()> {
        let Some(mut reader) = pipe else {
            return Ok(());
        };
        for _ in 0..pieces {
            match reader.read(self.buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    if self.kept.is_ok() {
                        self.kept = self.sink.take(stream, &self.buffer[..count]);
                    }
                    let is_all = count < self.buffer.len();
                    if is_all || rustix::io::ioctl_fionread(reader)? == 0 {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
