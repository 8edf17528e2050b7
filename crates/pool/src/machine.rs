//! The machine below: where its processors are, and tying a thread to one.

use loxley_balance::{Place, Topology};

/// The places of `workers` workers: one per usable processor, beginning again when there are more
/// workers than processors. Flat where the operating system says nothing.
pub(crate) fn topology(workers: usize) -> Topology {
    let processors = usable_processors();
    if processors.is_empty() {
        return Topology::flat(workers);
    }
    let place = |worker: usize| place(processors[worker % processors.len()]);
    Topology::new((0..workers).map(place).collect())
}

/// The processor for a worker.
pub(crate) fn processor(worker: usize) -> Option<usize> {
    let processors = usable_processors();
    (!processors.is_empty()).then(|| processors[worker % processors.len()])
}

/// Where a processor is: its package, its last-level cache, its core.
fn place(processor: usize) -> Place {
    let number = |path: &str| -> Option<u32> {
        let path = format!("/sys/devices/system/cpu/cpu{processor}/{path}");
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    let socket = number("topology/physical_package_id").unwrap_or(0);
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

#[cfg(all(test, target_os = "linux", not(loom)))]
mod tests {
    use super::*;

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
}
