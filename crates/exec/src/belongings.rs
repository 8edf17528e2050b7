//! Which processes belong to a task, and which to an agent.
//!
//! A command runs in a process group of its own, but whoever starts a session leaves the group, and nobody says
//! of an orphan whose it was. So every command finds a *mark* in its environment (`LOXLEY_MARK`), its children
//! inherit it, and the system shows the environment of each process (`/proc/PID/environ`). A mark names the
//! process that runs tasks, one of its slots, and a run of that slot; a task that runs `loxley` itself passes its
//! own mark on in front: `1f3c.1.7/9ab2.2.1`.
//!
//! What must stay true: a process is taken hold of before it is looked at (a pidfd), so that a signal never
//! meets another one that got its number meanwhile. What escapes: a process that clears its environment and
//! leaves its group, or that runs as somebody else. Only a control group holds those.

use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Pid, PidfdFlags, Signal};

/// The variable that holds the mark.
pub const MARK: &str = "LOXLEY_MARK";

/// What all processes of this program's tasks have in common: a number drawn at random.
#[must_use]
pub fn token() -> &'static str {
    static TOKEN: OnceLock<String> = OnceLock::new();
    TOKEN.get_or_init(|| {
        use std::hash::{BuildHasher, RandomState};
        let now = std::time::SystemTime::now();
        let number = RandomState::new().hash_one((std::process::id(), now));
        format!("{number:016x}")
    })
}

/// The marks of one slot.
#[derive(Debug)]
pub(crate) struct Marks {
    /// Of whoever runs us, if that is Loxley too.
    outer: OsString,
    /// Ours, up to the number of the run.
    own: String,
}

impl Marks {
    /// Those of a slot that no other slot of this process has.
    pub(crate) fn new() -> Self {
        static SLOTS: AtomicU64 = AtomicU64::new(1);
        let slot = SLOTS.fetch_add(1, Ordering::Relaxed);
        let mut outer = std::env::var_os(MARK).unwrap_or_default();
        if !outer.is_empty() {
            outer.push("/");
        }
        Self {
            outer,
            own: format!("{}.{slot}.", token()),
        }
    }

    /// The mark of a run.
    pub(crate) fn of_run(&self, run: u64) -> String {
        format!("{}{run}", self.own)
    }

    /// What the environment says for this mark.
    pub(crate) fn value(&self, mark: &str) -> OsString {
        let mut value = self.outer.clone();
        value.push(mark);
        value
    }
}

/// To whom a process may belong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner<'a> {
    /// The run with this mark, whose processes are in this group unless they left it. Its leader does not count.
    Run { group: Pid, mark: &'a str },
    /// All tasks of the program with this token.
    Program { token: &'a str },
}

/// A process that somebody has hold of.
#[derive(Debug)]
pub(crate) struct Member {
    handle: OwnedFd,
}

impl Member {
    pub(crate) fn signal(&self, signal: Signal) {
        // It can only be gone already.
        let _ = rustix::process::pidfd_send_signal(&self.handle, signal);
    }
}

/// All processes of an owner that have not ended.
pub(crate) fn members(owner: Owner<'_>) -> Vec<Member> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let numbers = processes.flatten().filter_map(|process| {
        let name = process.file_name();
        Pid::from_raw(name.to_str()?.parse().ok()?)
    });
    numbers.filter_map(|pid| member(owner, pid)).collect()
}

fn member(owner: Owner<'_>, pid: Pid) -> Option<Member> {
    if !belongs(owner, pid) {
        return None;
    }
    let handle = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // Now nobody else can get the number without our noticing: is it still the one we meant?
    belongs(owner, pid).then_some(Member { handle })
}

fn belongs(owner: Owner<'_>, pid: Pid) -> bool {
    let number = pid.as_raw_pid();
    match owner {
        Owner::Run { group, mark } => {
            pid != group
                && (runs_in(number, group) || bears_mark(number, &|part| part == mark.as_bytes()))
        }
        Owner::Program { token } => bears_mark(number, &|part| {
            let rest = part.strip_prefix(token.as_bytes());
            rest.is_some_and(|rest| rest.starts_with(b"."))
        }),
    }
}

/// Whether a process is in a group and has not ended.
fn runs_in(number: i32, group: Pid) -> bool {
    // "7 (name, with whatever in it) S PARENT GROUP ..."; a zombie (Z) is over.
    let Ok(stat) = fs::read_to_string(format!("/proc/{number}/stat")) else {
        return false;
    };
    let mut fields = stat.rsplit(')').next().unwrap_or("").split_whitespace();
    let state = fields.next();
    let of = fields.nth(1).and_then(|group| group.parse::<i32>().ok());
    !matches!(state, Some("Z" | "X")) && of == Some(group.as_raw_pid())
}

/// Whether the environment of a process has such a mark. That of one that has ended is empty.
fn bears_mark(number: i32, is_ours: &dyn Fn(&[u8]) -> bool) -> bool {
    let Ok(environment) = fs::read(format!("/proc/{number}/environ")) else {
        return false;
    };
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables.find_map(|variable| {
        let value = variable.strip_prefix(MARK.as_bytes())?;
        value.strip_prefix(b"=")
    });
    value.is_some_and(|value| value.split(|byte| *byte == b'/').any(is_ours))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn sleeper(mark: &str) -> Child {
        let mut command = Command::new("sleep");
        command.arg("600").env(MARK, mark).spawn().expect("sleep")
    }

    fn until_started(child: &Child) {
        // Until it is its program, it shows our environment.
        let path = format!("/proc/{}/cmdline", child.id());
        while fs::read(&path).is_ok_and(|line| !line.starts_with(b"sleep")) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_process_belongs_by_any_part_of_its_mark_and_by_nothing_like_it() {
        let token = format!("test{}", token());
        let other = format!("{token}0");
        let mut ours = [
            sleeper(&format!("{token}.1.2")),
            sleeper(&format!("abc.1.1/{token}.1.3/def.4.4")),
        ];
        let mut others = [sleeper(&format!("{other}.1.2")), sleeper(&token)];
        ours.iter().chain(&others).for_each(until_started);
        assert_eq!(members(Owner::Program { token: &token }).len(), 2);
        let group = Pid::from_raw(i32::MAX).expect("a number");
        let mark = format!("{token}.1.3");
        let of_run = members(Owner::Run { group, mark: &mark });
        assert_eq!(of_run.len(), 1);
        for member in members(Owner::Program { token: &token }) {
            member.signal(Signal::KILL);
        }
        for child in &mut ours {
            assert!(!child.wait().expect("it ended").success());
        }
        assert!(members(Owner::Program { token: &token }).is_empty());
        for child in &mut others {
            assert!(child.try_wait().expect("a state").is_none(), "not ours");
            child.kill().expect("it runs");
            child.wait().expect("it ended");
        }
    }
}
