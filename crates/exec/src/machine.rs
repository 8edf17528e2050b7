//! How the machine is. What the system does not say is absent, never invented.

use std::fs;

/// Bytes that new processes could have.
#[must_use]
pub fn memory_available() -> Option<u64> {
    memory("MemAvailable:")
}

/// Bytes of memory of the machine.
#[must_use]
pub fn memory_total() -> Option<u64> {
    memory("MemTotal:")
}

fn memory(what: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(what))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// The load average of the last minute.
#[must_use]
pub fn load() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}
