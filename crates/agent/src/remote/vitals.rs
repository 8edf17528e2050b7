//! How the machine is. What the system does not say is absent, never invented.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use loxley_protocol as wire;

/// Reads how the machine is, and compares with the last time.
#[derive(Debug)]
pub(super) struct Pulse {
    /// `cpu.stat` of our control group.
    cpu_stat: Option<PathBuf>,
    last: Option<(Instant, u64)>,
}

impl Pulse {
    pub(super) fn new() -> Self {
        Self {
            cpu_stat: cpu_stat(),
            last: None,
        }
    }

    pub(super) fn take(&mut self, round_trip_ns: u64, sent_ns: u64) -> wire::Vitals {
        wire::Vitals {
            throttle: self.throttled().max(slowed_clock().unwrap_or(0.0)),
            round_trip_ns,
            load: load().unwrap_or(0.0),
            memory_available_bytes: memory_available().unwrap_or(0),
            cpu_pressure: pressure("cpu"),
            memory_pressure: pressure("memory"),
            sent_ns,
        }
    }

    /// The share of the time since the last look in which our control group was kept from running.
    fn throttled(&mut self) -> f64 {
        let Some(micros) = self.cpu_stat.as_ref().and_then(throttled_micros) else {
            return 0.0;
        };
        let now = Instant::now();
        let Some((then, before)) = self.last.replace((now, micros)) else {
            return 0.0;
        };
        let elapsed = now.duration_since(then).as_micros() as f64;
        (micros.saturating_sub(before) as f64 / elapsed.max(1.0)).clamp(0.0, 1.0)
    }
}

/// Where the kernel counts how often our control group (version 2) was throttled.
fn cpu_stat() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let path = PathBuf::from("/sys/fs/cgroup").join(own).join("cpu.stat");
    path.exists().then_some(path)
}

fn throttled_micros(path: &PathBuf) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("throttled_usec "))?;
    value.trim().parse().ok()
}

/// How far below its highest frequency the first processor is held, by heat or by power.
fn slowed_clock() -> Option<f64> {
    let read = |name: &str| {
        let path = format!("/sys/devices/system/cpu/cpu0/cpufreq/{name}");
        fs::read_to_string(path).ok()?.trim().parse::<f64>().ok()
    };
    let (allowed, possible) = (read("scaling_max_freq")?, read("cpuinfo_max_freq")?);
    (possible > 0.0).then(|| (1.0 - allowed / possible).clamp(0.0, 1.0))
}

fn load() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

fn memory_available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// The share of the last ten seconds in which somebody waited for this.
fn pressure(of: &str) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/pressure/{of}")).ok()?;
    parse_pressure(&text)
}

fn parse_pressure(text: &str) -> Option<f64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let percent = some
        .split_whitespace()
        .find_map(|part| part.strip_prefix("avg10="))?;
    Some(percent.parse::<f64>().ok()? / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_a_share() {
        let text = "some avg10=12.50 avg60=3.00 avg300=1.00 total=1\nfull avg10=1.00 avg60=0 avg300=0 total=0\n";
        assert_eq!(parse_pressure(text), Some(0.125));
        assert_eq!(parse_pressure("nonsense"), None);
    }

    #[test]
    fn vitals_are_within_their_bounds() {
        let mut pulse = Pulse::new();
        for _ in 0..2 {
            let vitals = pulse.take(7, 9);
            assert!((0.0..=1.0).contains(&vitals.throttle) && vitals.load >= 0.0);
            assert_eq!((vitals.round_trip_ns, vitals.sent_ns), (7, 9));
        }
    }
}
