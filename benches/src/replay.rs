//! Real runs, predicted from their journals alone: eight workloads replayed as they were, and three questions of the form
//! *what if*, whose answers are then measured.
//!
//! Nothing is told to the simulator but the journal. For a quiet machine: what else runs is part of the durations, but not
//! of the next run.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::Options;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The `loxley` to measure [default: the one beside this program].
    #[arg(long, value_name = "PATH")]
    loxley: Option<PathBuf>,
}

/// A workload of `loxley run`: its name, and what stands after `run --journal DIR`.
const RUNS: [(&str, &[&str]); 6] = [
    (
        "sleeps, equal",
        &["-j", "8", "--array", "1-200", "sleep 0.05"],
    ),
    (
        "sleeps, heavy tail",
        &[
            "-j",
            "4",
            "--array",
            "1-120",
            "sleep $(( {} % 17 == 0 )).0{}",
        ],
    ),
    (
        "processes, short",
        &["-j", "2", "--array", "1-2000", "true"],
    ),
    (
        "processes that compute",
        &[
            "-j",
            "2",
            "--array",
            "1-60",
            "i=0; while [ $i -lt $(( 10000 + {} * 500 )) ]; do i=$((i+1)); done",
        ],
    ),
    ("graph", &["graph.yaml"]),
    ("two kinds of agents", &["kinds.yaml"]),
];

const GRAPH: &str = "\
agents: [{name: a, slots: 2}, {name: b, slots: 2}]
tasks:
  - {name: split, command: sleep 0.1}
  - {name: map, array: 1-40, command: 'sleep 0.$(( 10 + {} ))', after: [split]}
  - {name: reduce, array: 1-8, command: sleep 0.2, after: [map]}
  - {name: end, command: sleep 0.1, after: [reduce]}
";

const KINDS: &str = "\
agents: [{name: a, skills: [x], slots: 1}, {name: b, slots: 3}]
tasks:
  - {name: picky, array: 1-20, command: sleep 0.1, skills: [x]}
  - {name: any, array: 1-80, command: 'sleep 0.$(( 5 + {} ))'}
";

pub(crate) fn run(options: &Options, arguments: &Arguments) -> Result<()> {
    let loxley = match &arguments.loxley {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("loxley"),
    };
    let directory = tempfile::tempdir()?;
    let bench = Bench {
        loxley,
        directory: directory.path().to_owned(),
    };
    std::fs::write(bench.directory.join("graph.yaml"), GRAPH)?;
    std::fs::write(bench.directory.join("kinds.yaml"), KINDS)?;
    let mut errors = Vec::new();
    println!(
        "{:26}{:>12}{:>12}{:>9}",
        "as it was", "happened", "simulated", "error"
    );
    for (name, words) in RUNS.into_iter().filter(|(name, _)| options.wants(name)) {
        let journal = bench.record(name, words)?;
        errors.extend(bench.replayed(name, &journal)?);
    }
    for (name, is_lost) in [("server, bursts", false), ("server, a lost agent", true)] {
        if options.wants(name) {
            let journal = bench.serve(name, is_lost)?;
            errors.extend(bench.replayed(name, &journal)?);
        }
    }
    errors.sort_by(f64::total_cmp);
    if let Some(worst) = errors.last() {
        let median = errors[errors.len() / 2];
        println!("\nerror of the makespan: median {median:.1} %, worst {worst:.1} %");
    }
    bench.what_if(options)
}

struct Bench {
    loxley: PathBuf,
    directory: PathBuf,
}

impl Bench {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.loxley);
        command.args(words).current_dir(&self.directory);
        command
    }

    fn done(&self, words: &[&str], data: Option<&Path>) -> Result<Vec<u8>> {
        let mut command = self.command(words);
        if let Some(data) = data {
            command.env("LOXLEY_DIR", data);
        }
        let output = command.output().context("build loxley first")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{words:?}: {said}");
        Ok(output.stdout)
    }

    fn place(&self, name: &str) -> String {
        name.replace([' ', ','], "-")
    }

    fn record(&self, name: &str, words: &[&str]) -> Result<String> {
        let journal = self.place(name);
        let mut all = vec!["run", "--journal", &journal];
        all.extend(words);
        self.done(&all, None)?;
        Ok(journal)
    }

    fn json(&self, words: &[&str]) -> Result<Value> {
        Ok(serde_json::from_slice(&self.done(words, None)?)?)
    }

    /// Prints how near the simulator is, and returns by how many per cent it is off.
    fn replayed(&self, name: &str, journal: &str) -> Result<Option<f64>> {
        let value = self.json(&["replay", journal, "--json"])?;
        let seconds = |of: &str| value[of]["makespan"].as_f64().unwrap_or(0.0);
        let error = value["errors"]["makespan"]
            .as_f64()
            .map(|share| share * 100.0);
        println!(
            "{name:26}{:>10.3} s{:>10.3} s{:>+8.1} %",
            seconds("happened"),
            seconds("simulated"),
            error.unwrap_or(f64::NAN)
        );
        Ok(error.map(f64::abs))
    }

    /// Three bursts of an array for two agents; one of these is killed in the midst of it.
    fn serve(&self, name: &str, is_lost: bool) -> Result<String> {
        let place = self.place(name);
        let data = self.directory.join(&place);
        std::fs::create_dir_all(&data)?;
        std::fs::write(
            data.join("server.yaml"),
            "load_balancing: {heartbeats: {suspect_after_sec: 2, lost_after_sec: 4}}\n",
        )?;
        let config = data.join("server.yaml");
        let config = config.to_string_lossy().into_owned();
        let start = |words: &[&str]| -> Result<Ended> {
            let mut command = self.command(words);
            command.env("LOXLEY_DIR", &data);
            let child = command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            Ok(Ended(child))
        };
        let _server = start(&[
            "server",
            "start",
            "--listen",
            "127.0.0.1:0",
            "--config",
            &config,
        ])?;
        self.wait_for(&data, &["agent", "list", "--json"])?;
        let _first = start(&["agent", "start", "--name", "one", "--slots", "2"])?;
        let mut second = start(&["agent", "start", "--name", "two", "--slots", "2"])?;
        for burst in 0..3 {
            let submit = ["submit", "--array", "1-40", "--", "sleep", "0.1"];
            self.done(&submit, Some(&data))?;
            std::thread::sleep(Duration::from_millis(800));
            if is_lost && burst == 1 {
                second.0.kill()?;
            }
        }
        self.done(&["submit", "--wait", "--", "true"], Some(&data))?;
        let jobs = ["job", "wait", "1", "2", "3"];
        self.done(&jobs, Some(&data))?;
        Ok(place)
    }

    fn wait_for(&self, data: &Path, words: &[&str]) -> Result<()> {
        let begun = Instant::now();
        while let Err(error) = self.done(words, Some(data)) {
            ensure!(begun.elapsed() < Duration::from_secs(60), error);
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Runs A and B for real, predicts B from the journal of A, and compares the two differences.
    fn what_if(&self, options: &Options) -> Result<()> {
        let cases: [(&str, &str, &str, &[&str]); 3] = [
            ("twice the slots", "2", "4", &["--agents", "+2"]),
            (
                "half the slots",
                "4",
                "2",
                &["--without", "slot 3", "--without", "slot 4", "--together"],
            ),
            ("one slot less", "3", "2", &["--without", "slot 3"]),
        ];
        println!("\n{:26}{:>12}{:>12}", "what if", "measured", "predicted");
        for (name, before, after, asked) in cases {
            if !options.wants(name) {
                continue;
            }
            let work = ["--array", "1-60", "sleep 0.1$(( {} % 9 ))"];
            let run = |slots: &str| -> Result<(String, f64)> {
                let words: Vec<&str> = ["-j", slots].into_iter().chain(work).collect();
                let journal = self.record(&format!("{name} {slots}"), &words)?;
                let value = self.json(&["replay", &journal, "--json"])?;
                Ok((
                    journal,
                    value["happened"]["makespan"].as_f64().unwrap_or(0.0),
                ))
            };
            let (journal, first) = run(before)?;
            let (_, second) = run(after)?;
            let mut words = vec!["replay", &journal, "--json"];
            words.extend(asked);
            let value = self.json(&words)?;
            let change = &value["variants"][1]["figures"]["makespan"]["change"];
            let predicted = change.as_f64().unwrap_or(f64::NAN);
            println!("{name:26}{:>+10.3} s{predicted:>+10.3} s", second - first);
        }
        Ok(())
    }
}

/// A process that does not outlive the measurement.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
