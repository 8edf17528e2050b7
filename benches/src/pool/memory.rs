//! Memory per worker.
//!
//! A pool's memory can only be told apart from that of others in a process of its own (freed
//! stacks are kept for reuse), so each figure is taken by running this program again as a probe.

use std::io::Write as _;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::contract::{SpawnWorkload, Spawner};
use super::lineup::{Visitor, visit_spawners};
use super::workloads::Countdown;
use crate::measure::{Contender, Role};

/// Enough workers to tell their share from what the pool needs once; forte has room for 32.
const WORKERS: usize = 16;

/// A probe per pool; the figure is KiB per worker.
pub(super) fn probes() -> Vec<Contender<'static>> {
    struct Probes(Vec<Contender<'static>>);
    impl Visitor for Probes {
        fn pool<P>(&mut self, name: &'static str, role: Role, _: fn(usize) -> P)
        where
            P: Spawner + 'static,
        {
            let run = move || run_probe(name).expect("the probe can be run");
            self.0.push(Contender::new(name, role, run));
        }
    }
    let mut probes = Probes(Vec::new());
    visit_spawners(&mut probes);
    probes.0
}

fn run_probe(name: &str) -> Result<f64> {
    let output = Command::new(std::env::current_exe()?)
        .args(["pool", "--probe-memory", name])
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    text.trim()
        .parse()
        .with_context(|| format!("the probe of {name} said `{text}`"))
}

/// What the probe does: builds the pool, has every worker run something, prints KiB per worker.
pub(super) fn probe(name: &str) -> Result<()> {
    struct Probe<'a> {
        wanted: &'a str,
        kibibytes: Option<Result<f64>>,
    }
    impl Visitor for Probe<'_> {
        fn pool<P>(&mut self, name: &'static str, _: Role, build: fn(usize) -> P)
        where
            P: Spawner + 'static,
        {
            if name == self.wanted {
                self.kibibytes = Some(grown_by(|| {
                    let pool = build(WORKERS);
                    EveryWorker.figure(&pool);
                    pool
                }));
            }
        }
    }
    let mut probe = Probe {
        wanted: name,
        kibibytes: None,
    };
    visit_spawners(&mut probe);
    let Some(kibibytes) = probe.kibibytes else {
        bail!("no pool is called `{name}`");
    };
    writeln!(std::io::stdout(), "{}", kibibytes? / WORKERS as f64)?;
    Ok(())
}

/// How much anonymous memory the process gains, in KiB, while what `build` returns is alive.
fn grown_by<T>(build: impl FnOnce() -> T) -> Result<f64> {
    let before = anonymous_kibibytes()?;
    let alive = build();
    let after = anonymous_kibibytes()?;
    drop(alive);
    Ok(after - before)
}

fn anonymous_kibibytes() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let figure = line.and_then(|rest| rest.split_whitespace().next());
    Ok(figure
        .context("the system does not tell RssAnon")?
        .parse()?)
}

/// A closure for each worker, all of them under way at once.
struct EveryWorker;

impl SpawnWorkload for EveryWorker {
    fn figure<P: Spawner>(&self, pool: &P) -> f64 {
        let left = Countdown::leaked();
        left.start(WORKERS);
        for index in 0..WORKERS {
            pool.spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                left.done(index);
            });
        }
        left.wait();
        0.0
    }
}
