//! How the machine is. What the system does not say is absent, never invented.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use loxley_exec::machine::{load, memory_available};
use loxley_exec::{Membership, count};
use loxley_protocol as wire;

use crate::counters::Counters;
use crate::hardware::Hardware;

/// Reads how the machine is, and compares with the last time.
#[derive(Debug)]
pub(crate) struct Pulse {
    /// `cpu.stat` of our control group and of those around it: the limit of any of them holds for us.
    stats: Vec<PathBuf>,
    processors: f64,
    last: Option<(Instant, Vec<u64>)>,
    hardware: Hardware,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self::of(cpu_stats(), processors())
    }

    fn of(stats: Vec<PathBuf>, processors: usize) -> Self {
        Self {
            stats,
            processors: processors.max(1) as f64,
            last: None,
            hardware: Hardware::new(Path::new("/")),
        }
    }

    /// What the machine says; what the conversation knows is left out.
    pub(crate) fn take(&mut self, counters: &mut Counters) -> wire::Vitals {
        wire::Vitals {
            throttle: self.throttled().max(slowed_clock().unwrap_or(0.0)),
            load: load().unwrap_or(0.0),
            memory_available_bytes: memory_available().unwrap_or(0),
            cpu_pressure: pressure("cpu"),
            memory_pressure: pressure("memory"),
            io_pressure: pressure("io"),
            context_switches_per_sec: self.hardware.context_switches_per_sec(),
            temperature_celsius: self.hardware.temperature_celsius(),
            power_watts: self.hardware.power_watts(),
            cache_misses_per_sec: counters.cache_misses_per_sec(),
            memory_bytes_per_sec: counters.memory_bytes_per_sec(),
            ..wire::Vitals::default()
        }
    }

    /// The share of the time since the last look in which our control group was kept from running. The
    /// kernel counts it for each processor.
    fn throttled(&mut self) -> f64 {
        let micros: Vec<u64> = self.stats.iter().map(throttled_micros).collect();
        let now = Instant::now();
        let Some((then, before)) = self.last.replace((now, micros.clone())) else {
            return 0.0;
        };
        let lost = micros.iter().zip(&before);
        let lost = lost.map(|(now, before)| now.saturating_sub(*before)).max();
        let elapsed = now.duration_since(then).as_micros() as f64 * self.processors;
        (lost.unwrap_or(0) as f64 / elapsed.max(1.0)).clamp(0.0, 1.0)
    }
}

/// Where the kernel counts how often and how long we were throttled, in both versions of control groups.
fn cpu_stats() -> Vec<PathBuf> {
    let groups = [None, Some("cpu")].map(Membership::of_this_process);
    let directories = groups.iter().flatten().flat_map(Membership::directories);
    let files = directories.map(|directory| directory.join("cpu.stat"));
    files.filter(|file| file.exists()).collect()
}

fn throttled_micros(path: &PathBuf) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    // Version 1 counts nanoseconds.
    count(&text, "throttled_usec").max(count(&text, "throttled_time") / 1000)
}

fn processors() -> usize {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let numbered = |line: &&str| {
        let rest = line.strip_prefix("cpu");
        rest.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    };
    text.lines().filter(numbered).count()
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
    fn an_agent_that_is_kept_from_running_says_for_which_share_of_the_time() {
        let place = tempfile::tempdir().unwrap();
        let (own, around) = (place.path().join("own"), place.path().join("around"));
        fs::write(&own, "nr_periods 9\nnr_throttled 0\nthrottled_usec 0\n").unwrap();
        fs::write(
            &around,
            "nr_periods 9\nnr_throttled 1\nthrottled_time 5000\n",
        )
        .unwrap();
        let mut pulse = Pulse::of(vec![own, around.clone()], 2);
        assert_eq!(pulse.throttled(), 0.0, "nothing to compare with");
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(pulse.throttled(), 0.0, "nothing was added");
        // Far more than can have passed.
        fs::write(&around, "nr_throttled 2\nthrottled_time 900000000000000\n").unwrap();
        assert_eq!(pulse.throttled(), 1.0);
    }

    #[test]
    fn vitals_are_within_their_bounds() {
        let mut counters = Counters::open();
        let mut pulse = Pulse::new();
        for _ in 0..2 {
            let vitals = pulse.take(&mut counters);
            assert!((0.0..=1.0).contains(&vitals.throttle) && vitals.load >= 0.0);
        }
    }
}
