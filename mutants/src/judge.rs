//! The test programs, and what they say of a mutant.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// What a build came to.
pub(crate) enum Built {
    Programs(Vec<PathBuf>),
    /// Files and lines that do not compile.
    Errors(Vec<(String, RangeInclusive<usize>)>),
}

/// A test program, or a part of one.
pub(crate) struct Judge {
    pub(crate) name: String,
    program: PathBuf,
    folder: PathBuf,
    /// The storms it looks at, if it looks at storms.
    storms: Option<&'static str>,
    /// How long it may take: what takes longer has run into a loop without an end.
    limit: Duration,
}

pub(crate) enum Verdict {
    /// By which program.
    Found(String),
    Alive,
}

/// Storms of a whole run, a few first: most of what they find, they find at once. A quick run does without.
const STORMS: &[&str] = &["0..8", "8..40", "40..120"];

/// Test programs that take too long for a quick run.
const LONG: &[&str] = &["any_sequence"];

/// One that takes too long to be run for every mutant that nothing else finds.
const TOO_LONG: &str = "snapshot-";

/// What is built with the mutants in it.
const DECIDERS: &[&str] = &[
    "-p",
    "loxley-policy",
    "-p",
    "loxley-driver",
    "--lib",
    "--tests",
];
const SIMULATOR: &[&str] = &["-p", "loxley-sim", "--test", "seeds"];

pub(crate) fn build(root: &Path, tree: &Path, quick: bool) -> Result<Built> {
    let mut programs = Vec::new();
    for what in [DECIDERS, SIMULATOR] {
        if quick && what == SIMULATOR {
            continue;
        }
        match build_some(root, tree, what, quick)? {
            Built::Programs(some) => programs.extend(some),
            errors => return Ok(errors),
        }
    }
    let is_left_out = |program: &PathBuf| {
        let path = program.to_string_lossy();
        path.contains(TOO_LONG) || (quick && LONG.iter().any(|name| path.contains(name)))
    };
    programs.retain(|program| !is_left_out(program));
    Ok(Built::Programs(programs))
}

fn build_some(root: &Path, tree: &Path, what: &[&str], quick: bool) -> Result<Built> {
    let mut command = Command::new("cargo");
    command.args(["test", "--no-run", "--message-format=json", "--quiet"]);
    command.args(what);
    if quick {
        // Built once and run for a few seconds: not worth its optimization.
        for package in ["balance", "policy"] {
            let level = format!("profile.dev.package.loxley-{package}.opt-level=0");
            command.args(["--config", &level]);
        }
    }
    let output = command
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", root.join("target"))
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    let (mut programs, mut errors) = (Vec::new(), Vec::new());
    for line in String::from_utf8(output.stdout)?.lines() {
        let message: Value = serde_json::from_str(line)?;
        let told = &message["message"];
        if message["profile"]["test"] == true
            && let Some(program) = message["executable"].as_str()
        {
            programs.push(PathBuf::from(program));
        } else if told["level"] == "error" {
            // Where it is, and where what is there comes from.
            let spans = told["spans"].as_array().into_iter().flatten();
            errors.extend(spans.flat_map(places));
            if errors.is_empty() {
                eprintln!("{}", told["rendered"].as_str().unwrap_or_default());
            }
        }
    }
    if output.status.success() {
        return Ok(Built::Programs(programs));
    }
    ensure!(!errors.is_empty(), "the build failed");
    Ok(Built::Errors(errors))
}

fn places(span: &Value) -> Vec<(String, RangeInclusive<usize>)> {
    let mut places = Vec::new();
    let mut span = span;
    while let Some(file) = span["file_name"].as_str() {
        let line = |name: &str| span[name].as_u64().unwrap_or(0) as usize;
        places.push((file.to_owned(), line("line_start")..=line("line_end")));
        span = &span["expansion"]["span"];
    }
    places
}

/// Runs all programs with no mutant on: they must pass, and say how long they take. Whoever takes least comes first.
pub(crate) fn baseline(programs: Vec<PathBuf>, tree: &Path) -> Result<Vec<Judge>> {
    let mut judges: Vec<Judge> = programs
        .iter()
        .flat_map(|program| judges_of(program, tree))
        .collect();
    for judge in &mut judges {
        let start = Instant::now();
        ensure!(passes(judge, 0)?, "{} fails with no mutant", judge.name);
        let took = start.elapsed();
        println!("{:6.1} s {}", took.as_secs_f64(), judge.name);
        judge.limit = took * 8 + Duration::from_secs(5);
    }
    judges.sort_by_key(|judge| judge.limit);
    Ok(judges)
}

fn judges_of(program: &Path, tree: &Path) -> Vec<Judge> {
    let file = program.file_stem().unwrap_or_default().to_string_lossy();
    let name = file.rsplit_once('-').map_or(&*file, |(name, _)| name);
    let package = match name {
        "loxley_driver" => "driver",
        "seeds" => "sim",
        _ => "policy",
    };
    let judge = |name: String, storms| Judge {
        folder: tree.join("crates").join(package),
        limit: Duration::from_secs(600),
        program: program.to_owned(),
        name,
        storms,
    };
    match name {
        "seeds" => STORMS
            .iter()
            .map(|&range| judge(format!("storms {range}"), Some(range)))
            .collect(),
        _ => vec![judge(name.to_owned(), None)],
    }
}

pub(crate) fn try_one(judges: &[Judge], number: usize) -> Result<Verdict> {
    for judge in judges {
        if !passes(judge, number)? {
            return Ok(Verdict::Found(judge.name.clone()));
        }
    }
    Ok(Verdict::Alive)
}

fn passes(judge: &Judge, number: usize) -> Result<bool> {
    let mut command = Command::new(&judge.program);
    if let Some(range) = judge.storms {
        command.arg("every_task_ends_once_in_every_storm");
        command.env("LOXLEY_STORMS", range);
    }
    let mut child = command
        .current_dir(&judge.folder)
        .env("LOXLEY_MUTANT", number.to_string())
        .env("PROPTEST_RNG_SEED", "20")
        .env("PROPTEST_MAX_SHRINK_ITERS", "0")
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {}", judge.program.display()))?;
    // Counted in looks, not read from a clock: a run that is stopped for a while and goes on has found nothing by that.
    let (look, mut waited) = (Duration::from_millis(5), Duration::ZERO);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if waited > judge.limit {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        std::thread::sleep(look);
        waited += look;
    }
}
