//! What the counters of the processors say, where the system lets us ask (`perf_event_open`): cache misses of this agent
//! and all that it runs, and the traffic of the machine's memory. What cannot be counted is absent, never invented;
//! counters say nothing before the second look.
//!
//! Cache misses are counted in user mode, which `kernel.perf_event_paranoid` up to 2 (the kernel's default) allows
//! everybody. The memory's traffic is counted by the memory controllers, which only root, or whoever has `CAP_PERFMON`,
//! may ask, and only where the kernel names their events and their units. Virtual machines usually have neither.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use perf_event::events::{Dynamic, Event, Hardware};
use perf_event::{Builder, Counter};

/// Where the kernel says which counters there are.
const SOURCES: &str = "/sys/bus/event_source/devices";
/// What memory controllers call the bytes that are read and written, by family. Those of one family count everything.
const MEMORY_EVENTS: [[&str; 2]; 3] = [
    ["cas_count_read", "cas_count_write"],
    ["data_reads", "data_writes"],
    ["data_read", "data_write"],
];

/// The counters, as far as there are any.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    cache_misses: Option<Counted>,
    memory: Vec<Counted>,
}

impl Counters {
    /// Counts for this thread and all that it starts from now on: whoever wants a whole agent counted calls this before
    /// that starts anything.
    pub(crate) fn open() -> Self {
        Self {
            cache_misses: own(Hardware::CACHE_MISSES).ok(),
            memory: memory_controllers(Path::new(SOURCES)).unwrap_or_default(),
        }
    }

    /// Cache misses of this agent and all that it runs, since the last look.
    pub(crate) fn cache_misses_per_sec(&mut self) -> Option<f64> {
        self.cache_misses.as_mut()?.per_second()
    }

    /// What all memory controllers of the machine moved, since the last look.
    pub(crate) fn memory_bytes_per_sec(&mut self) -> Option<f64> {
        let moved = self.memory.iter_mut().map(Counted::per_second);
        let moved: Vec<f64> = moved.collect::<Option<_>>()?;
        (!moved.is_empty()).then(|| moved.iter().sum())
    }
}

/// A counter, and what it said last.
#[derive(Debug)]
struct Counted {
    counter: Counter,
    /// What one count stands for.
    scale: f64,
    last: Option<(Instant, Reading)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Reading {
    count: u64,
    enabled: Duration,
    running: Duration,
}

impl Counted {
    fn start(mut counter: Counter, scale: f64) -> io::Result<Self> {
        counter.enable()?;
        Ok(Self {
            counter,
            scale,
            last: None,
        })
    }

    fn per_second(&mut self) -> Option<f64> {
        let said = self.counter.read_full().ok()?;
        let reading = Reading {
            count: said.count(),
            enabled: said.time_enabled()?,
            running: said.time_running()?,
        };
        let now = Instant::now();
        let (then, before) = self.last.replace((now, reading))?;
        let seconds = now.duration_since(then).as_secs_f64();
        let counted = counted_between(before, reading)? * self.scale;
        (seconds > 0.0).then(|| counted / seconds)
    }
}

/// What was counted between two looks. More events than the processor has counters take turns: what was seen in the time
/// in which ours had one stands for the rest. Nothing, when it never had one.
fn counted_between(before: Reading, now: Reading) -> Option<f64> {
    let count = now.count.checked_sub(before.count)? as f64;
    let enabled = now.enabled.checked_sub(before.enabled)?.as_secs_f64();
    let running = now.running.checked_sub(before.running)?.as_secs_f64();
    if enabled == 0.0 {
        // Nothing ran that could have been counted.
        return Some(count);
    }
    (running > 0.0).then(|| count * (enabled / running))
}

/// Counts for this thread and all that it starts from now on, in user mode.
fn own(event: impl Event) -> io::Result<Counted> {
    let mut builder = Builder::new(event);
    let counter = builder.observe_self().any_cpu().inherit(true).build()?;
    Counted::start(counter, 1.0)
}

/// Counters for everything that the memory controllers move: of all of them or of none.
fn memory_controllers(sources: &Path) -> io::Result<Vec<Counted>> {
    for events in MEMORY_EVENTS {
        let mut counters = Vec::new();
        for device in fs::read_dir(sources)? {
            let device = device?.path();
            let name = device.file_name().unwrap_or_default().to_string_lossy();
            if !name.starts_with("uncore_imc") || !device.join("events").join(events[0]).exists() {
                continue;
            }
            for event in events {
                counters.extend(memory_counters(&device, event)?);
            }
        }
        if !counters.is_empty() {
            return Ok(counters);
        }
    }
    Ok(Vec::new())
}

fn memory_counters(device: &Path, name: &str) -> io::Result<Vec<Counted>> {
    let mut builder = Dynamic::builder(device)?;
    let builder = builder.event(name)?;
    let (scale, unit) = (builder.scale()?, builder.unit()?);
    let unit = unit.as_deref().and_then(bytes_of);
    let Some(bytes) = scale.zip(unit).map(|(scale, unit)| scale * unit) else {
        return Err(io::Error::other("nobody says what it counts"));
    };
    let event = builder.build().map_err(io::Error::other)?;
    let processors = fs::read_to_string(device.join("cpumask"))?;
    let processors = numbers(&processors).ok_or_else(|| io::Error::other("no list"))?;
    let open = |processor| {
        let mut builder = Builder::new(event);
        // A memory controller does not know who asked for what.
        builder.exclude_kernel(false).exclude_hv(false);
        let counter = builder.any_pid().one_cpu(processor).build()?;
        Counted::start(counter, bytes)
    };
    processors.into_iter().map(open).collect()
}

fn bytes_of(unit: &str) -> Option<f64> {
    match unit.trim() {
        "Bytes" | "bytes" => Some(1.0),
        "KiB" => Some(1024.0),
        "MiB" => Some(1024.0 * 1024.0),
        _ => None,
    }
}

/// `0,24` and `0-3` as the kernel writes them.
fn numbers(text: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        all.extend(first..=last);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use perf_event::events::Software;

    use super::*;

    #[test]
    fn what_an_agent_runs_is_counted_with_it() {
        // Every system has this one, unless it forbids all of them.
        let Ok(mut faults) = own(Software::PAGE_FAULTS) else {
            eprintln!("this system does not let us count: NOT CHECKED");
            return;
        };
        assert_eq!(faults.per_second(), None, "nothing to compare with");
        let (_, before) = faults.last.unwrap();
        let run = std::thread::spawn(|| Command::new("sh").args(["-c", ":"]).status());
        assert!(run.join().unwrap().unwrap().success());
        assert!(faults.per_second().unwrap() > 0.0);
        let (_, after) = faults.last.unwrap();
        // A shell alone takes more than a hundred.
        assert!(after.count > before.count + 50, "{before:?} {after:?}");
    }

    #[test]
    fn a_counter_that_had_to_take_turns_is_scaled_and_one_that_never_had_one_says_nothing() {
        let reading = |count, enabled, running| Reading {
            count,
            enabled: Duration::from_millis(enabled),
            running: Duration::from_millis(running),
        };
        let before = reading(100, 1000, 500);
        assert_eq!(
            counted_between(before, reading(150, 1100, 525)),
            Some(200.0)
        );
        assert_eq!(counted_between(before, reading(100, 1100, 500)), None);
        assert_eq!(counted_between(before, before), Some(0.0));
    }

    #[test]
    fn memory_is_counted_in_bytes_or_not_at_all() {
        assert_eq!(numbers("0,24\n"), Some(vec![0, 24]));
        assert_eq!(numbers("0-2"), Some(vec![0, 1, 2]));
        assert_eq!(numbers("none"), None);
        assert_eq!(bytes_of("MiB"), Some(1_048_576.0));
        assert_eq!(bytes_of("furlongs"), None);
        let place = tempfile::tempdir().unwrap();
        assert!(memory_controllers(place.path()).unwrap().is_empty());
        // One that does not say what it counts spoils all: half of the traffic would be invented.
        let device = place.path().join("uncore_imc_0");
        for (file, text) in [
            ("type", "24"),
            ("cpumask", "0"),
            ("format/event", "config:0-7"),
            ("events/cas_count_read", "event=0x04"),
            ("events/cas_count_write", "event=0x05"),
            ("events/cas_count_read.scale", "6.1e-5"),
        ] {
            let path = device.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let refused = memory_controllers(place.path()).unwrap_err();
        assert_eq!(refused.to_string(), "nobody says what it counts");
    }
}
