//! One task, from its submission to its end, again and again: through the server's handle, and by the command
//! line.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result};
use loxley_api::{JobRequest, TaskRequest};

use super::{Fleet, function};
use crate::Options;
use crate::measure::{Contender, Role, Samples, interleaved, quantile};
use crate::report::{Goal, Report};
use crate::run::seconds;

/// A function that does nothing, beside what the disk alone takes: a task is durable when it is accepted, and
/// again when it has ended.
pub(super) fn native(options: &Options, report: &mut Report) -> Result<()> {
    let rounds = if options.quick { 200 } else { 2_000 };
    let fleet = Fleet::start(true, 1, 1, 1)?;
    let job = JobRequest {
        tasks: vec![TaskRequest::new(function("no-op"))],
        ..JobRequest::default()
    };
    let disk = Disk::new(&fleet)?;
    let mut times = Vec::with_capacity(rounds);
    let mut writes = Vec::with_capacity(rounds);
    for round in 0..rounds {
        times.push(fleet.time(&job) * 1e3);
        writes.push(disk.write(round as u64)? + disk.write(round as u64)?);
    }
    for (name, share, goal) in [
        ("round trip, p50", 0.5, 0.5),
        ("round trip, p99", 0.99, 2.0),
    ] {
        let samples = [
            Samples::single("loxley", Role::Subject, quantile(&times, share)),
            Samples::single("two durable writes", Role::Floor, quantile(&writes, share)),
        ];
        report.case(name, "ms", Some(Goal::AtMost(goal)), &samples);
    }
    Ok(())
}

/// A file on the disk of the journal that has its size already.
struct Disk(File);

impl Disk {
    const PIECE: usize = 4096;
    const PIECES: u64 = 1024;

    fn new(fleet: &Fleet) -> Result<Self> {
        let file = File::create(fleet.directory().join("floor"))?;
        for piece in 0..Self::PIECES {
            file.write_all_at(&[1; Self::PIECE], piece * Self::PIECE as u64)?;
        }
        file.sync_all()?;
        Ok(Self(file))
    }

    /// Milliseconds of one durable write.
    fn write(&self, number: u64) -> Result<f64> {
        let begun = Instant::now();
        let piece = [number as u8; Self::PIECE];
        self.0
            .write_all_at(&piece, number % Self::PIECES * Self::PIECE as u64)?;
        self.0.sync_data()?;
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    }
}

/// `loxley submit --wait -- true`: a process, a connection, a task that is a process.
pub(super) fn by_command_line(options: &Options, report: &mut Report) -> Result<()> {
    let fleet = Fleet::start(true, 1, 1, 1)?;
    let loxley = std::env::current_exe()?.with_file_name("loxley");
    Command::new(&loxley)
        .arg("--version")
        .output()
        .with_context(|| format!("build loxley first: {} does not run", loxley.display()))?;
    let mut contenders = vec![
        Contender::new("loxley", Role::Subject, || {
            let mut command = Command::new(&loxley);
            command.args(["submit", "--wait", "--", "true"]);
            seconds(command.env("LOXLEY_DIR", fleet.directory())) * 1e3
        }),
        Contender::new("true", Role::Floor, || {
            seconds(&mut Command::new("true")) * 1e3
        }),
    ];
    let samples = interleaved(options.effort(), &mut contenders);
    report.case("command line", "ms", Some(Goal::AtMost(12.0)), &samples);
    Ok(())
}
