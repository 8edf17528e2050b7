//! Job files through `loxley run` and through a real server with agents, predicted by `loxley sim FILE` with its defaults.
//!
//! Commands sleep for as long as they say, so that how long a task takes is known and only what the scheduler and the
//! machine make of it is predicted. What is measured is the whole time of `loxley run` and of `loxley submit --wait`, from
//! the start of the program to its end. Nothing is measured beforehand and nothing is fitted.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use loxley_balance::Rng;
use serde::Serialize;
use serde_json::Value;

use crate::Options;
use crate::measure::quantile;

/// The setting's name, for `--filter`.
pub(super) const SETTING: &str = "job files";

/// One job file, taken one way.
#[derive(Serialize)]
struct Prediction {
    setting: &'static str,
    file: &'static str,
    /// `run` or `server`.
    by: &'static str,
    measured_s: f64,
    predicted_s: f64,
    /// Predicted over measured, less one.
    error: f64,
}

#[derive(Serialize)]
struct Summary {
    setting: &'static str,
    predictions: usize,
    median_error: f64,
    worst_error: f64,
    goal: f64,
}

pub(super) fn run(options: &Options, loxley: &Path) -> Result<()> {
    let rounds = options.rounds.unwrap_or(if options.quick { 1 } else { 3 });
    let mut all = Vec::new();
    for (number, file) in files().into_iter().enumerate() {
        if options.quick && number % 3 != 0 {
            continue;
        }
        let directory = tempfile::tempdir()?;
        let place = Place {
            loxley: loxley.to_owned(),
            directory: directory.path().to_owned(),
        };
        let predicted_s = place.simulate(&file)?;
        let server = place.serve(&file)?;
        let (mut ran, mut served) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            ran.push(place.time(&["run", "--no-report", "job.yaml"])?);
            served.push(place.time(&["submit", "--wait", "-q", "job.yaml"])?);
        }
        drop(server);
        for (by, measured) in [("run", ran), ("server", served)] {
            let measured_s = quantile(&measured, 0.5);
            all.push(Prediction {
                setting: SETTING,
                file: file.name,
                by,
                measured_s,
                predicted_s,
                error: predicted_s / measured_s - 1.0,
            });
        }
        for prediction in &all[all.len() - 2..] {
            prediction.print(options);
        }
    }
    let errors: Vec<f64> = all.iter().map(|one| one.error.abs()).collect();
    let summary = Summary {
        setting: SETTING,
        predictions: errors.len(),
        median_error: quantile(&errors, 0.5),
        worst_error: quantile(&errors, 1.0),
        goal: 0.017,
    };
    summary.print(options);
    Ok(())
}

impl Prediction {
    fn print(&self, options: &Options) {
        if options.json {
            let text = serde_json::to_string(self).expect("numbers and names are always JSON");
            return println!("{text}");
        }
        println!(
            "{:<10} {:<24} {:<7} measured {:7.3} s   predicted {:7.3} s   {:+6.1} %",
            self.setting,
            self.file,
            self.by,
            self.measured_s,
            self.predicted_s,
            100.0 * self.error
        );
    }
}

impl Summary {
    fn print(&self, options: &Options) {
        if options.json {
            let text = serde_json::to_string(self).expect("numbers are always JSON");
            return println!("{text}");
        }
        println!(
            "{} predictions of job files: error median {:.2} % (goal {:.1} %), worst {:.1} %",
            self.predictions,
            100.0 * self.median_error,
            100.0 * self.goal,
            100.0 * self.worst_error
        );
    }
}

/// An agent, as a job file and `loxley agent start` describe it.
struct Agent {
    name: &'static str,
    slots: u32,
    skills: &'static str,
    memory: &'static str,
}

impl Agent {
    const fn new(name: &'static str, slots: u32) -> Self {
        Self {
            name,
            slots,
            skills: "",
            memory: "",
        }
    }
}

struct File {
    name: &'static str,
    agents: Vec<Agent>,
    /// What stands in the file beside its agents.
    text: String,
    /// How long tasks take of which the file does not say it.
    takes: Vec<String>,
}

/// Eight files of one to four seconds each.
fn files() -> Vec<File> {
    let four = || -> Vec<Agent> {
        let names = ["a", "b", "c", "d"];
        names.map(|name| Agent::new(name, 1)).into()
    };
    let file = |name, agents, text: &str| File {
        name,
        agents,
        text: text.to_owned(),
        takes: Vec::new(),
    };
    let tail = heavy_tail(60);
    let mut declared = String::from("tasks:\n");
    let mut silent = declared.clone();
    let mut takes = Vec::new();
    for (number, cost) in tail.iter().enumerate() {
        let _ = writeln!(
            declared,
            "  - {{name: t{number}, command: sleep {cost:.3}, cost: {cost:.3}s}}"
        );
        let _ = writeln!(silent, "  - {{name: t{number}, command: sleep {cost:.3}}}");
        takes.push(format!("t{number}={cost:.3}s"));
    }
    let special = Agent {
        skills: "x",
        ..Agent::new("a", 1)
    };
    let roomy = |name| Agent {
        memory: "1G",
        ..Agent::new(name, 4)
    };
    vec![
        file("equal", vec![Agent::new("a", 2), Agent::new("b", 2)], EQUAL),
        file("heavy tail", four(), &declared),
        File {
            takes,
            ..file("heavy tail, costs unknown", four(), &silent)
        },
        file("fork and join", four(), FORK_JOIN),
        file("layers", four(), &layers()),
        file(
            "two kinds of agents",
            vec![special, Agent::new("b", 3)],
            KINDS,
        ),
        file("limited group", vec![Agent::new("a", 4)], LIMITED),
        file("memory", vec![roomy("a"), roomy("b")], MEMORY),
    ]
}

const EQUAL: &str = "\
tasks:
  - {name: all, array: 1-120, command: sleep 0.1, cost: 100ms}
";

const FORK_JOIN: &str = "\
tasks:
  - {name: split, command: sleep 0.2, cost: 200ms}
  - {name: map, array: 1-30, command: sleep 0.25, cost: 250ms, after: [split]}
  - {name: reduce, array: 1-6, command: sleep 0.3, cost: 300ms, after: [map]}
  - {name: end, command: sleep 0.2, cost: 200ms, after: [reduce]}
";

const KINDS: &str = "\
tasks:
  - {name: picky, array: 1-12, command: sleep 0.2, cost: 200ms, skills: [x], priority: high}
  - {name: any, array: 1-60, command: sleep 0.12, cost: 120ms}
";

const LIMITED: &str = "\
limits: {disk: 2}
tasks:
  - {name: disk, array: 1-20, command: sleep 0.2, cost: 200ms, group: disk}
  - {name: free, array: 1-24, command: sleep 0.1, cost: 100ms}
";

const MEMORY: &str = "\
tasks:
  - {name: large, array: 1-10, command: sleep 0.3, cost: 300ms, memory: 700M}
  - {name: small, array: 1-60, command: sleep 0.1, cost: 100ms, memory: 100M}
";

/// Seconds of a heavy-tailed length, none above a second.
fn heavy_tail(count: usize) -> Vec<f64> {
    let mut rng = Rng::new(7);
    let cost = |_| (0.06 / (1.0 - rng.unit_f64()).powf(1.0 / 1.3)).min(1.0);
    (0..count).map(cost).collect()
}

/// Six layers of eight tasks, each after two of the layer before.
fn layers() -> String {
    let mut rng = Rng::new(11);
    let mut text = String::from("tasks:\n");
    for layer in 0..6 {
        for at in 0..8 {
            let cost = 0.05 + 0.4 * rng.unit_f64();
            let _ = write!(
                text,
                "  - {{name: l{layer}t{at}, command: sleep {cost:.3}, cost: {cost:.3}s"
            );
            if layer > 0 {
                let before = layer - 1;
                let (one, other) = (rng.below(8), rng.below(8));
                let _ = match one == other {
                    true => write!(text, ", after: [l{before}t{one}]"),
                    false => write!(text, ", after: [l{before}t{one}, l{before}t{other}]"),
                };
            }
            text.push_str("}\n");
        }
    }
    text
}

impl File {
    fn yaml(&self) -> String {
        let mut yaml = String::from("agents:\n");
        for agent in &self.agents {
            let _ = write!(yaml, "  - {{name: {}, slots: {}", agent.name, agent.slots);
            for (key, value) in [("skills", agent.skills), ("memory", agent.memory)] {
                let _ = match (key, value) {
                    (_, "") => Ok(()),
                    ("skills", skill) => write!(yaml, ", skills: [{skill}]"),
                    (key, value) => write!(yaml, ", {key}: {value}"),
                };
            }
            yaml.push_str("}\n");
        }
        yaml + &self.text
    }
}

/// Where the files of one job and its server are.
struct Place {
    loxley: PathBuf,
    directory: PathBuf,
}

impl Place {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.loxley);
        command
            .args(words)
            .current_dir(&self.directory)
            .env("LOXLEY_DIR", self.directory.join("server"))
            .stdin(Stdio::null());
        command
    }

    fn done(&self, words: &[&str]) -> Result<Vec<u8>> {
        let output = self.command(words).output().context("build loxley first")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{words:?}: {said}");
        Ok(output.stdout)
    }

    fn time(&self, words: &[&str]) -> Result<f64> {
        let begun = Instant::now();
        self.done(words)?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// What the simulator says of a file.
    fn simulate(&self, file: &File) -> Result<f64> {
        std::fs::write(self.directory.join("job.yaml"), file.yaml())?;
        let mut words = vec!["sim", "job.yaml", "--json"];
        for takes in &file.takes {
            words.extend(["--takes", takes]);
        }
        let said: Value = serde_json::from_slice(&self.done(&words)?)?;
        let makespan = said["variants"][0]["makespan_s"]["mean"].as_f64();
        makespan.context("it says how long it takes")
    }

    /// A server with the agents of a file.
    fn serve(&self, file: &File) -> Result<Vec<Ended>> {
        let start = |words: &[&str]| -> Result<Ended> {
            let mut command = self.command(words);
            let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            Ok(Ended(child?))
        };
        let mut all = vec![start(&["server", "start", "--listen", "127.0.0.1:0"])?];
        let begun = Instant::now();
        while self.done(&["agent", "list"]).is_err() {
            ensure!(begun.elapsed() < Duration::from_secs(60), "no server");
            std::thread::sleep(Duration::from_millis(20));
        }
        for agent in &file.agents {
            let slots = agent.slots.to_string();
            let mut words = vec!["agent", "start", "--name", agent.name, "--slots", &slots];
            for (option, value) in [("--skills", agent.skills), ("--memory", agent.memory)] {
                if !value.is_empty() {
                    words.extend([option, value]);
                }
            }
            all.push(start(&words)?);
        }
        let alive = || -> Result<usize> {
            let listed = self.done(&["agent", "list", "--json"])?;
            let listed = String::from_utf8_lossy(&listed).into_owned();
            Ok(listed.lines().count())
        };
        while alive()? < file.agents.len() {
            ensure!(
                begun.elapsed() < Duration::from_secs(60),
                "agents are missing"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(all)
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
