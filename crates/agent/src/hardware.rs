//! What the hardware says of itself, where the system lets us read it: context switches, the hottest sensor, what the
//! processors draw. What cannot be read is absent, never invented; counters say nothing before the second look.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The counters as they were at the last look.
#[derive(Debug)]
pub(crate) struct Hardware {
    stat: PathBuf,
    /// Files with the temperature in thousandths of a degree.
    sensors: Vec<PathBuf>,
    /// The energy counter of each package, and where it begins again.
    packages: Vec<Package>,
    switches: Option<(Instant, u64)>,
}

#[derive(Debug)]
struct Package {
    energy: PathBuf,
    range_microjoules: u64,
    last: Option<(Instant, u64)>,
}

impl Hardware {
    /// Of the system whose files are below `root`.
    pub(crate) fn new(root: &Path) -> Self {
        let zones = entries(&root.join("sys/class/thermal"), "thermal_zone");
        let packages = entries(&root.join("sys/class/powercap"), "intel-rapl:");
        // `intel-rapl:0:1` is a part of `intel-rapl:0`.
        let is_package = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.matches(':').count() == 1
        };
        Self {
            stat: root.join("proc/stat"),
            sensors: zones.into_iter().map(|zone| zone.join("temp")).collect(),
            packages: packages
                .into_iter()
                .filter(is_package)
                .map(|package| Package {
                    energy: package.join("energy_uj"),
                    range_microjoules: number(&package.join("max_energy_range_uj")).unwrap_or(0),
                    last: None,
                })
                .collect(),
            switches: None,
        }
    }

    /// Context switches of the machine, since the last look.
    pub(crate) fn context_switches_per_sec(&mut self) -> Option<f64> {
        let text = fs::read_to_string(&self.stat).ok()?;
        let all = text.lines().find_map(|line| line.strip_prefix("ctxt "))?;
        let all: u64 = all.trim().parse().ok()?;
        let now = Instant::now();
        let (then, before) = self.switches.replace((now, all))?;
        per_second(all.checked_sub(before)?, then, now)
    }

    /// The hottest sensor.
    pub(crate) fn temperature_celsius(&self) -> Option<f64> {
        let read = |path: &PathBuf| {
            let text = fs::read_to_string(path).ok()?;
            let degrees = text.trim().parse::<f64>().ok()? / 1000.0;
            // A sensor that is switched off says something else.
            (-50.0..200.0).contains(&degrees).then_some(degrees)
        };
        self.sensors.iter().filter_map(read).reduce(f64::max)
    }

    /// What all packages draw, since the last look. Usually only root may read it.
    pub(crate) fn power_watts(&mut self) -> Option<f64> {
        let drawn: Vec<f64> = self
            .packages
            .iter_mut()
            .map(Package::watts)
            .collect::<Option<_>>()?;
        (!drawn.is_empty()).then(|| drawn.iter().sum())
    }
}

impl Package {
    fn watts(&mut self) -> Option<f64> {
        let energy = number(&self.energy)?;
        let now = Instant::now();
        let (then, before) = self.last.replace((now, energy))?;
        let used = match energy.checked_sub(before) {
            Some(used) => used,
            // It began again.
            None => (energy + self.range_microjoules).checked_sub(before)?,
        };
        Some(per_second(used, then, now)? / 1e6)
    }
}

fn per_second(count: u64, then: Instant, now: Instant) -> Option<f64> {
    let seconds = now.duration_since(then).as_secs_f64();
    (seconds > 0.0).then(|| count as f64 / seconds)
}

/// What is in a directory whose name begins so, in the order of names.
fn entries(directory: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(found) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let named = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(prefix)
    };
    let paths = found.flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = paths.filter(named).collect();
    paths.sort_unstable();
    paths
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("it is in a directory")).expect("there is room");
        fs::write(path, text).expect("there is room");
    }

    #[test]
    fn what_the_system_does_not_say_is_absent() {
        let root = tempfile::tempdir().expect("there is room");
        let mut hardware = Hardware::new(root.path());
        for _ in 0..2 {
            assert_eq!(hardware.context_switches_per_sec(), None);
            assert_eq!(hardware.temperature_celsius(), None);
            assert_eq!(hardware.power_watts(), None);
        }
    }

    #[test]
    fn counters_are_compared_with_the_last_look_and_may_begin_again() {
        let root = tempfile::tempdir().expect("there is room");
        let root = root.path();
        let rapl = |zone: &str, file: &str, text: &str| {
            write(root, &format!("sys/class/powercap/{zone}/{file}"), text);
        };
        write(root, "proc/stat", "cpu 1 2\nctxt 1000\nbtime 5\n");
        write(root, "sys/class/thermal/thermal_zone0/temp", "41000\n");
        write(root, "sys/class/thermal/thermal_zone1/temp", "63500\n");
        write(root, "sys/class/thermal/thermal_zone2/temp", "-274000\n");
        rapl("intel-rapl:0", "energy_uj", "9000000\n");
        rapl("intel-rapl:0", "max_energy_range_uj", "10000000\n");
        // A part of the package is not counted again.
        rapl("intel-rapl:0:0", "energy_uj", "1\n");
        let mut hardware = Hardware::new(root);
        assert_eq!(hardware.temperature_celsius(), Some(63.5));
        assert_eq!(
            hardware.context_switches_per_sec(),
            None,
            "nothing to compare with"
        );
        assert_eq!(hardware.power_watts(), None, "nothing to compare with");
        std::thread::sleep(std::time::Duration::from_millis(5));
        write(root, "proc/stat", "ctxt 3000\n");
        rapl("intel-rapl:0", "energy_uj", "1000000\n");
        let switches = hardware.context_switches_per_sec();
        assert!(switches.is_some_and(|rate| rate > 0.0 && rate <= 2000.0 / 0.005));
        // From 9 J over the end at 10 J to 1 J: 2 J in at least 5 ms.
        let watts = hardware.power_watts();
        assert!(watts.is_some_and(|watts| watts > 0.0 && watts <= 2.0 / 0.005));
    }
}
