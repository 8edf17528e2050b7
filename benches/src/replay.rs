//! Real runs, predicted from their journals alone: eight workloads replayed as they were, and five questions of the form
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
        &["-j", "8", "--array", "1-200", "sleep 0.05; : {}"],
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

/// A question: its name, how A and B are run for real, and what is asked of the journal of A.
type Question = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
    &'static [&'static str],
);

/// Each of A and B is run so many times.
const TURNS: usize = 3;

const WHAT_IFS: [Question; 5] = [
    (
        "twice the slots",
        &["-j", "2", "--array", "1-60", "sleep 0.1$(( {} % 9 ))"],
        &["-j", "4", "--array", "1-60", "sleep 0.1$(( {} % 9 ))"],
        &["--agents", "+2"],
    ),
    (
        "half the slots",
        &["-j", "4", "--array", "1-60", "sleep 0.1$(( {} % 9 ))"],
        &["-j", "2", "--array", "1-60", "sleep 0.1$(( {} % 9 ))"],
        &["--without", "slot 3", "--without", "slot 4", "--together"],
    ),
    (
        "one slot less",
        &["-j", "3", "--array", "1-60", "sleep 0.1$(( {} % 9 ))"],
        &["-j", "2", "--array", "1-60", "sleep 0.1$(( {} % 9 ))"],
        &["--without", "slot 3"],
    ),
    (
        "without what one can do",
        &["kinds.yaml"],
        &["one_kind.yaml"],
        &["--without", "b"],
    ),
    (
        "nobody takes from others",
        &["uneven.yaml"],
        &["uneven_alone.yaml"],
        &["--set", "strategy=push"],
    ),
];

/// The work of `kinds.yaml` for the agent with the skill alone.
const ONE_KIND: &str = "\
agents: [{name: a, skills: [x], slots: 1}]
tasks:
  - {name: picky, array: 1-20, command: sleep 0.1, skills: [x]}
  - {name: any, array: 1-80, command: 'sleep 0.$(( 5 + {} ))'}
";

/// Tasks of very different lengths that nobody knows beforehand, for two agents.
const UNEVEN: &str = "\
agents: [{name: a, slots: 1}, {name: b, slots: 1}]
tasks:
  - {name: some, array: 1-40, command: 'sleep 0.$(( {} % 2 * 2 ))1'}
";

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
    std::fs::write(bench.directory.join("one_kind.yaml"), ONE_KIND)?;
    std::fs::write(bench.directory.join("uneven.yaml"), UNEVEN)?;
    let alone = format!("{UNEVEN}load_balancing: {{strategy: push}}\n");
    std::fs::write(bench.directory.join("uneven_alone.yaml"), alone)?;
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
        let half = errors.len() / 2;
        let median = (errors[half] + errors[(errors.len() - 1) / 2]) / 2.0;
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
        println!(
            "\n{:26}{:>12}{:>12}{:>12}",
            "what if", "measured", "predicted", "± measured"
        );
        for (name, before, after, asked) in WHAT_IFS {
            if !options.wants(name) {
                continue;
            }
            let run = |which: &str, words: &[&str]| -> Result<(String, f64)> {
                let journal = self.record(&format!("{name} {which}"), words)?;
                let value = self.json(&["replay", &journal, "--json"])?;
                let makespan = value["happened"]["makespan"].as_f64();
                Ok((journal, makespan.unwrap_or(0.0)))
            };
            // In turns, so that what the machine does meanwhile counts for both.
            let mut differences = Vec::new();
            let mut journal = String::new();
            for turn in 0..TURNS {
                let (recorded, first) = run(&format!("a{turn}"), before)?;
                let (_, second) = run(&format!("b{turn}"), after)?;
                differences.push(second - first);
                journal = recorded;
            }
            let mean = differences.iter().sum::<f64>() / differences.len() as f64;
            let widest = differences.iter().map(|one| (one - mean).abs());
            let noise = widest.fold(0.0, f64::max);
            let mut words = vec!["replay", &journal, "--json"];
            words.extend(asked);
            let value = self.json(&words)?;
            let change = &value["variants"][1]["figures"]["makespan"]["change"];
            let predicted = change.as_f64().unwrap_or(f64::NAN);
            let sign = match mean.abs() <= noise {
                true => "no more than noise",
                false if mean.signum() == predicted.signum() => "sign right",
                false => "SIGN WRONG",
            };
            println!("{name:26}{mean:>+10.3} s{predicted:>+10.3} s{noise:>10.3} s  {sign}");
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
