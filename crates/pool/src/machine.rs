//! The machine below: where its processors are, and tying a thread to one.

use std::path::Path;

use loxley_balance::{Place, Topology};

/// The places of `workers` workers: one per usable processor, beginning again when there are more
/// workers than processors. Flat where the operating system says nothing.
pub(crate) fn topology(workers: usize) -> Topology {
    let processors = usable_processors();
    if processors.is_empty() {
        return Topology::flat(workers);
    }
    let system = Path::new("/sys/devices/system/cpu");
    let place = |worker: usize| place(system, processors[worker % processors.len()]);
    Topology::new((0..workers).map(place).collect())
}

/// The processor for a worker.
pub(crate) fn processor(worker: usize) -> Option<usize> {
    let processors = usable_processors();
    (!processors.is_empty()).then(|| processors[worker % processors.len()])
}

/// Where a processor is: its NUMA node, its last-level cache, its core. A package that is divided
/// into several nodes counts as several sockets; where there are no nodes the package counts.
fn place(system: &Path, processor: usize) -> Place {
    let folder = system.join(format!("cpu{processor}"));
    let number = |path: &str| -> Option<u32> {
        let text = std::fs::read_to_string(folder.join(path)).ok()?;
        text.trim().parse().ok()
    };
    let package = || number("topology/physical_package_id");
    let socket = node(&folder).or_else(package).unwrap_or(0);
    // The largest index is the last level. Caches without an id are taken to span the package.
    let group = (0..8)
        .rev()
        .find_map(|index| number(&format!("cache/index{index}/id")));
    let core = number("topology/core_id").unwrap_or(processor as u32);
    Place {
        machine: 0,
        socket,
        group: group.unwrap_or(0),
        core,
    }
}

/// About how many [`ticks`] a nanosecond has: from one to five on the processors there are.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) const TICKS_PER_NS: u64 = 2;
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) const TICKS_PER_NS: u64 = 1;

/// A clock for decisions that may be wrong by half: reading the time stamp counter takes a third of what
/// the system's clock takes, and a short loop reads it as often as it does anything.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(crate) fn ticks() -> u64 {
    // SAFETY: every processor of this architecture has the counter.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) fn ticks() -> u64 {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let start = START.get_or_init(std::time::Instant::now);
    start.elapsed().as_nanos() as u64
}

/// The NUMA node: the operating system links it into the processor's folder.
fn node(folder: &Path) -> Option<u32> {
    let entries = std::fs::read_dir(folder).ok()?;
    entries.flatten().find_map(|entry| {
        let name = entry.file_name();
        name.to_str()?.strip_prefix("node")?.parse().ok()
    })
}

#[cfg(target_os = "linux")]
fn usable_processors() -> Vec<usize> {
    // SAFETY: the set is plain bits, for which all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours and has the size that we say.
    let status = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    if status != 0 {
        return Vec::new();
    }
    let is_usable = |&processor: &usize| {
        // SAFETY: the number is below the size of the set.
        unsafe { libc::CPU_ISSET(processor, &set) }
    };
    (0..libc::CPU_SETSIZE as usize).filter(is_usable).collect()
}

/// Ties the calling thread to a processor. Does nothing where that is refused: it is a wish.
#[cfg(target_os = "linux")]
pub(crate) fn pin(processor: usize) {
    // SAFETY: the set is plain bits, for which all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the number came from `usable_processors` and is below the size of the set.
    unsafe { libc::CPU_SET(processor, &mut set) };
    // SAFETY: the set is ours and has the size that we say; 0 is the calling thread.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
}

#[cfg(not(target_os = "linux"))]
fn usable_processors() -> Vec<usize> {
    Vec::new()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn pin(_processor: usize) {}

#[cfg(all(test, target_os = "linux", not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use loxley_balance::Distance;

    #[test]
    fn a_pinned_thread_may_use_one_processor_only() {
        let before = usable_processors();
        let last = *before.last().unwrap();
        let seen = std::thread::spawn(move || {
            pin(last);
            usable_processors()
        });
        assert_eq!(seen.join().unwrap(), [last]);
        assert_eq!(usable_processors(), before, "only that thread");
        assert_eq!(topology(3).len(), 3);
    }

    /// Two packages of two nodes each, a core with two threads per node.
    #[test]
    fn nodes_caches_and_cores_are_read_from_the_system() {
        let system = tempfile::tempdir().unwrap();
        for processor in 0..8_usize {
            let folder = system.path().join(format!("cpu{processor}"));
            std::fs::create_dir_all(folder.join(format!("node{}", processor / 2))).unwrap();
            for (file, value) in [
                ("topology/physical_package_id", processor / 4),
                ("topology/core_id", processor / 2 % 2),
                ("cache/index0/id", processor),
                ("cache/index3/id", processor / 4),
            ] {
                let file = folder.join(file);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, format!("{value}\n")).unwrap();
            }
        }
        let places: Vec<Place> = (0..8).map(|n| place(system.path(), n)).collect();
        let topology = Topology::new(places);
        assert_eq!(topology.distance(0, 1), Distance::SameCore);
        assert_eq!(
            topology.distance(0, 2),
            Distance::SameMachine,
            "another node"
        );
        assert_eq!(topology.distance(0, 4), Distance::SameMachine);
        std::fs::remove_dir(system.path().join("cpu3/node1")).unwrap();
        assert_eq!(place(system.path(), 3).socket, 0, "the package");
        let unknown = place(system.path(), 99);
        assert_eq!((unknown.socket, unknown.group, unknown.core), (0, 0, 99));
    }
}
