//! Control groups: a task with a memory limit gets one of its own, under that of the agent.
//!
//! ```text
//!   where the agent was started      subtree_control: +memory
//!   ├── loxley-agent-PID             the agent itself: a group with children holds no processes
//!   ├── loxley-task-PID-1            memory.max, memory.swap.max, memory.oom.group, cgroup.kill
//!   └── loxley-task-PID-2
//! ```
//!
//! A group counts the memory of all its processes together, and nobody leaves it by `setsid`. That takes
//! version 2 of control groups, its memory controller, and a place that was given to us (`Delegate=yes` of
//! systemd, or a container whose first process is the agent). Where one is missing, [`MemoryGroups::find`]
//! says which, and whoever asked falls back to a limit of address space.
//!
//! What must stay true: a task enters its group before it becomes its program, so no moment is without a
//! limit; a group goes with its task, and takes along what the task left behind.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal};

/// Where tasks can get groups of their own.
#[derive(Debug)]
pub struct MemoryGroups {
    place: PathBuf,
    made: AtomicU64,
}

static FOUND: OnceLock<(Option<Arc<MemoryGroups>>, String)> = OnceLock::new();

/// Where the groups of this process are, if it has looked for a place and found one.
pub(crate) fn own_place() -> Option<&'static Path> {
    let (groups, _) = FOUND.get()?;
    groups.as_ref().map(|groups| &*groups.place)
}

/// What limits the memory of tasks, and how that is told to people. Found once for the whole process: to
/// find it moves the process, and agents of one process share its place. So ask before anything runs.
#[must_use]
pub fn memory_groups() -> (Option<Arc<MemoryGroups>>, String) {
    let found = FOUND.get_or_init(|| match MemoryGroups::find() {
        Ok(groups) => {
            let note =
                "memory limits are limits of all processes of a task together (control groups)";
            (Some(Arc::new(groups)), note.to_owned())
        }
        Err(why) => {
            let note = "memory limits are limits of address space, of each process (ulimit -v)";
            (None, format!("{note}: {why}"))
        }
    });
    found.clone()
}

/// Why tasks get no groups of their own.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoGroups {
    #[error("control groups of version 2 are not mounted")]
    NotMounted,
    #[error("the control group of the agent has no memory controller")]
    NoMemoryController,
    #[error("the agent shares its control group with other processes")]
    Shared,
    #[error("the control group of the agent was not delegated to it ({0})")]
    NotDelegated(io::Error),
}

/// The group of one task. Dropping it kills whoever is left in it and removes it.
#[derive(Debug)]
pub(crate) struct TaskGroup {
    path: PathBuf,
}

impl MemoryGroups {
    /// Prepares the group that this process is in: from then on it has children.
    pub(crate) fn find() -> Result<Self, NoGroups> {
        let own = Membership::of_this_process(None).ok_or(NoGroups::NotMounted)?;
        Self::prepare(&own.directory())
    }

    fn prepare(place: &Path) -> Result<Self, NoGroups> {
        let controllers = fs::read_to_string(place.join("cgroup.controllers"));
        if !names(&controllers.unwrap_or_default(), "memory") {
            return Err(NoGroups::NoMemoryController);
        }
        remove_leftovers(place);
        delegate(place)?;
        let groups = Self::at(place.to_owned());
        groups.create(u64::MAX).map_err(NoGroups::NotDelegated)?;
        Ok(groups)
    }

    fn at(place: PathBuf) -> Self {
        let made = AtomicU64::new(0);
        Self { place, made }
    }

    /// A group whose processes may hold so many bytes together.
    pub(crate) fn create(&self, bytes: u64) -> io::Result<TaskGroup> {
        let group = self.create_without_limit()?;
        group.set("memory.max", &bytes.to_string())?;
        // Both came later than the limit itself: a kernel without them limits less strictly.
        let _ = group.set("memory.swap.max", "0");
        let _ = group.set("memory.oom.group", "1");
        Ok(group)
    }

    fn create_without_limit(&self) -> io::Result<TaskGroup> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let name = format!("{TASK}{}-{number}", std::process::id());
        let path = self.place.join(name);
        fs::create_dir(&path)?;
        Ok(TaskGroup { path })
    }
}

const TASK: &str = "loxley-task-";
const AGENT: &str = "loxley-agent-";
const GUARDIAN: &str = "loxley-guardian-";

/// Moves this process, the guardian of another one, out of the group of the one that it guards.
pub(crate) fn step_out(place: &Path, guarded: &str) {
    let own = place.join(format!("{GUARDIAN}{guarded}"));
    // Where it stays, its group cannot be killed as a whole; the mark in the environment remains.
    let _ = fs::create_dir(&own);
    let _ = fs::write(own.join("cgroup.procs"), std::process::id().to_string());
}

/// Kills everything in the groups of a process and of its tasks.
pub(crate) fn kill_all(place: &Path, guarded: &str) {
    let guards = fs::read_to_string(place.join(format!("{GUARDIAN}{guarded}/cgroup.procs")));
    let us = std::process::id().to_string();
    let we_are_out = guards.is_ok_and(|members| members.lines().any(|line| line == us));
    for group in groups_of(place, guarded) {
        let holds_us = !we_are_out && group.ends_with(format!("{AGENT}{guarded}"));
        if !holds_us {
            kill_group(&group);
        }
    }
}

/// Removes the groups of a process and of its tasks, as far as they are empty.
pub(crate) fn remove_of(place: &Path, guarded: &str) {
    for group in groups_of(place, guarded) {
        let _ = fs::remove_dir(group);
    }
}

fn groups_of(place: &Path, guarded: &str) -> Vec<PathBuf> {
    let tasks = format!("{TASK}{guarded}-");
    let agent = format!("{AGENT}{guarded}");
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with(&tasks) || name == agent
    });
    ours.map(|entry| entry.path()).collect()
}

/// Kills every process in a group, and those they start meanwhile.
fn kill_group(group: &Path) {
    if fs::write(group.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    // Before Linux 5.14: one by one. Whoever is born meanwhile is met by the next round.
    let members = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let numbers = members.lines().filter_map(|line| line.parse().ok());
    for process in numbers.filter_map(Pid::from_raw) {
        let _ = rustix::process::kill_process(process, Signal::KILL);
    }
}

/// Lets children have memory limits. If processes are in the way and we are the only one, we step aside.
fn delegate(place: &Path) -> Result<(), NoGroups> {
    let switch = place.join("cgroup.subtree_control");
    let before = fs::read_to_string(&switch).unwrap_or_default();
    if names(&before, "memory") {
        return Ok(());
    }
    match fs::write(&switch, "+memory") {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
        Err(error) => return Err(NoGroups::NotDelegated(error)),
    }
    let us = std::process::id().to_string();
    let aside = place.join(format!("{AGENT}{us}"));
    fs::create_dir(&aside).map_err(NoGroups::NotDelegated)?;
    let moved = fs::write(aside.join("cgroup.procs"), &us);
    let switched = moved.and_then(|()| fs::write(&switch, "+memory"));
    switched.map_err(|error| {
        let _ = fs::write(place.join("cgroup.procs"), &us);
        let _ = fs::remove_dir(&aside);
        match error.kind() {
            io::ErrorKind::ResourceBusy => NoGroups::Shared,
            _ => NoGroups::NotDelegated(error),
        }
    })
}

/// Removes what agents left that were killed. A group that is in use does not let itself be removed.
fn remove_leftovers(place: &Path) {
    let Ok(entries) = fs::read_dir(place) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if [TASK, AGENT, GUARDIAN]
            .iter()
            .any(|ours| name.starts_with(ours))
        {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

impl TaskGroup {
    fn set(&self, file: &str, value: &str) -> io::Result<()> {
        fs::write(self.path.join(file), value)
    }

    /// Whoever writes its own number here is in the group from then on.
    pub(crate) fn entrance(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// Kills every process in the group, and those they start meanwhile.
    pub(crate) fn kill(&self) {
        kill_group(&self.path);
    }

    /// Whether the system killed something because the group was at its limit.
    pub(crate) fn ran_out(&self) -> bool {
        let events = fs::read_to_string(self.path.join("memory.events"));
        // `oom_kill` alone also counts when a group above us, or the machine, ran out.
        events.is_ok_and(|events| count(&events, "oom") > 0 && count(&events, "oom_kill") > 0)
    }
}

impl Drop for TaskGroup {
    fn drop(&mut self) {
        /// Killed processes need a moment to be gone.
        const ROUNDS: u32 = 12;
        for round in 0..ROUNDS {
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => self.kill(),
                Err(error) => {
                    let path = self.path.display();
                    return tracing::warn!(%path, %error, "a control group stays behind");
                }
                Ok(()) => return,
            }
            thread::sleep(Duration::from_micros(200 << round));
        }
        tracing::warn!(path = %self.path.display(), "a control group stays behind: it is not empty");
    }
}

/// Whether a word stands in a list.
fn names(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|name| name == word)
}

/// A number in a file of names and numbers; 0 where the name is missing.
#[must_use]
pub fn count(text: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let found = lines.find(|(key, _)| *key == name);
    found.map_or(0, |(_, value)| value.trim().parse().unwrap_or(0))
}

/// A group that this process is in.
#[derive(Debug, PartialEq, Eq)]
pub struct Membership {
    /// Where its hierarchy can be seen.
    mount: PathBuf,
    /// The group, as a path below that.
    group: PathBuf,
}

impl Membership {
    /// In the hierarchy of a controller of version 1, or in that of version 2.
    #[must_use]
    pub fn of_this_process(controller: Option<&str>) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        Self::read(&mounts, &groups, controller)
    }

    fn read(mounts: &str, groups: &str, controller: Option<&str>) -> Option<Self> {
        let group = groups.lines().find_map(|line| {
            let (_, line) = line.split_once(':')?;
            let (controllers, path) = line.split_once(':')?;
            let wanted = match controller {
                None => controllers.is_empty(),
                Some(wanted) => controllers.split(',').any(|name| name == wanted),
            };
            wanted.then_some(path)
        })?;
        // "31 23 0:28 ROOT MOUNT rw ... - TYPE SOURCE OPTIONS"
        mounts.lines().find_map(|line| {
            let (mount, kind) = line.split_once(" - ")?;
            let mut kind = kind.split(' ');
            let wanted = match controller {
                None => kind.next()? == "cgroup2",
                Some(wanted) => {
                    kind.next()? == "cgroup" && kind.nth(1)?.split(',').any(|name| name == wanted)
                }
            };
            let mut mount = mount.split(' ').skip(3);
            let (root, mount) = (mount.next()?, mount.next()?);
            let group = Path::new(group).strip_prefix(root).ok()?;
            wanted.then(|| Self {
                mount: mount.into(),
                group: group.to_owned(),
            })
        })
    }

    fn directory(&self) -> PathBuf {
        self.mount.join(&self.group)
    }

    /// The group and all groups around it: a limit of any of them holds for us.
    #[must_use]
    pub fn directories(&self) -> Vec<PathBuf> {
        let groups = self.group.ancestors();
        groups.map(|group| self.mount.join(group)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::{Command, Ended, Killer, Slot, Status, Stopped, Tail, Urgency};

    fn limited(line: &str, bytes: u64) -> Command {
        let mut command = Command::shell(line);
        command.limits.memory = Some(bytes);
        command
    }

    fn slot(groups: MemoryGroups) -> (Slot, Killer) {
        let (slot, killer) = Slot::new().unwrap();
        (slot.with_memory_groups(Arc::new(groups)), killer)
    }

    fn run(groups: MemoryGroups, command: &Command) -> (Ended, Tail) {
        let mut tail = Tail::default();
        let ended = slot(groups).0.run(1, command, &mut tail).unwrap();
        (ended, tail)
    }

    /// A directory that looks like a group with a memory controller.
    fn imitation() -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        place
    }

    #[test]
    fn both_versions_of_control_groups_are_found_where_they_are_mounted() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
                      32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let groups = "9:name=systemd:/\n1:cpu,cpuacct:/box\n0::/user/me\n";
        let two = Membership::read(mounts, groups, None).unwrap();
        assert_eq!(
            two.directories(),
            ["user/me", "user", ""].map(|end| Path::new("/sys/fs/cgroup/unified").join(end))
        );
        let one = Membership::read(mounts, groups, Some("cpu")).unwrap();
        assert_eq!(one.directory(), Path::new("/sys/fs/cgroup/cpu/box"));
        assert_eq!(Membership::read(mounts, groups, Some("memory")), None);
        // A container may see its own group as the root of the mount.
        let mounts = "9 8 0:1 /box/7 /cg rw - cgroup2 cgroup2 rw\n";
        let inside = Membership::read(mounts, "0::/box/7/a\n", None).unwrap();
        assert_eq!(inside.directory(), Path::new("/cg/a"));
        assert_eq!(Membership::read(mounts, "0::/elsewhere\n", None), None);
    }

    #[test]
    fn a_place_without_a_memory_controller_is_refused_with_the_reason() {
        let place = tempfile::tempdir().unwrap();
        let refused = MemoryGroups::prepare(place.path()).unwrap_err();
        assert!(matches!(refused, NoGroups::NoMemoryController));
    }

    #[test]
    fn a_task_enters_its_group_before_it_runs_and_its_limit_is_set() {
        let place = imitation();
        let groups = MemoryGroups::prepare(place.path()).unwrap();
        let switch = fs::read_to_string(place.path().join("cgroup.subtree_control")).unwrap();
        assert_eq!(switch, "+memory");
        let look = format!(
            "cd {}/loxley-task-*-1; cat memory.max memory.swap.max memory.oom.group; echo; \
             test $(cat cgroup.procs) = $$ && echo inside; echo \"$A\"",
            place.path().display()
        );
        let mut command = limited(&look, 100 << 20).env("A", "a b; $(id)");
        command.arguments.push("spare $0 \"quoted\"".into());
        let (ended, mut tail) = run(groups, &command);
        let seen = String::from_utf8_lossy(tail.stdout()).into_owned();
        assert!(ended.success(), "{ended:?} {seen}");
        assert_eq!(seen, "10485760001\ninside\na b; $(id)\n");
    }

    #[test]
    fn a_task_that_ran_out_of_memory_says_so_whatever_its_exit_code() {
        for (events, stopped) in [
            ("low 0\noom 1\noom_kill 2\n", Some(Stopped::MemoryLimit)),
            // The machine ran out, not the task.
            ("low 0\noom 0\noom_kill 2\n", None),
        ] {
            let place = imitation();
            let groups = MemoryGroups::prepare(place.path()).unwrap();
            let fill = format!(
                "cd {}/loxley-task-*-1; printf '{events}' > memory.events",
                place.path().display()
            );
            let (ended, _) = run(groups, &limited(&fill, 1 << 30));
            assert_eq!((ended.status, ended.stopped), (Status::Exited(0), stopped));
            assert_eq!(ended.success(), stopped.is_none());
        }
    }

    /// Groups without a limit, in the real hierarchy: entering, killing and removing need no controller.
    fn real_groups_without_limits() -> Option<PathBuf> {
        let place = Membership::of_this_process(None)?.directory();
        let group = MemoryGroups::at(place.clone()).create_without_limit();
        group.is_ok().then_some(place)
    }

    #[test]
    fn nobody_leaves_a_group_by_starting_a_session_of_its_own() {
        let Some(place) = real_groups_without_limits() else {
            return skip("control groups of version 2 cannot be made here");
        };
        let groups = MemoryGroups::at(place);
        groups.made.store(1000, Ordering::Relaxed);
        let group = groups.create_without_limit().unwrap();
        let entrance = group.entrance();
        let mut shell = std::process::Command::new("/bin/sh");
        let line = "echo $$ > \"$0\"; setsid sleep 600 & setsid sleep 600 & exec sleep 600";
        let mut child = shell.arg("-c").arg(line).arg(&entrance).spawn().unwrap();
        let members = || fs::read_to_string(&entrance).unwrap_or_default();
        let begun = Instant::now();
        while members().lines().count() < 3 {
            assert!(begun.elapsed() < Duration::from_secs(20), "{}", members());
            thread::sleep(Duration::from_millis(5));
        }
        group.kill();
        child.wait().unwrap();
        drop(group);
        assert!(!entrance.exists(), "the group is gone, so nobody is in it");
    }

    #[test]
    fn a_real_limit_ends_a_greedy_task_and_the_group_is_removed() {
        let groups = match MemoryGroups::find() {
            Ok(groups) => groups,
            Err(why) => return skip(&why.to_string()),
        };
        let place = groups.place.clone();
        let greedy = "setsid sleep 600 & head -c 400M /dev/zero | tail | wc -c";
        let (ended, _) = run(groups, &limited(greedy, 50 << 20));
        assert_eq!(ended.stopped, Some(Stopped::MemoryLimit));
        let (mut slot, killer) = slot(MemoryGroups::at(place.clone()));
        let patient = limited("setsid sleep 600 & wait", 50 << 20);
        killer.kill(9, Urgency::AtOnce);
        let ended = slot.run(9, &patient, &mut Tail::default()).unwrap();
        assert_eq!(ended.stopped, Some(Stopped::Killed));
        let left = fs::read_dir(&place).unwrap().flatten();
        let ours = format!("{TASK}{}-", std::process::id());
        let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with(&ours));
        assert_eq!(left.count(), 0);
    }

    fn skip(why: &str) {
        eprintln!("skipped: {why}");
    }
}
