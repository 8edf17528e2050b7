//! What a stranger does, from a clean clone in an empty home directory: the first build, the first task, the commands of
//! README, the manual pages. The quick part of it is in the unit tests (`crates/cli/tests/console.rs`).

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::{Suite, finish};

/// What the program may have, stripped.
const PROGRAM_BYTES_MAX: u64 = 25_000_000;
/// How long it may take to the first task, on two cores that do nothing else.
const FIRST_TASK_SECONDS: f64 = 180.0;

pub(crate) fn test(suite: &Suite) -> Result<()> {
    if !suite.long {
        eprintln!("   only in a long run: it builds everything from nothing");
        return Ok(());
    }
    let place = suite.root.join("target/stranger");
    if place.exists() {
        fs::remove_dir_all(&place)?;
    }
    let (clone, home) = (place.join("loxley"), place.join("home"));
    fs::create_dir_all(&home)?;
    let mut git = suite.command("git");
    git.args(["clone", "--quiet", "--no-hardlinks", "."])
        .arg(&clone);
    finish(git)?;
    // The tools of the machine are those that a stranger has as well; packages may be there, too.
    let tools = |name: &str, folder: &str| {
        let default = std::env::var_os("HOME").map(|home| Path::new(&home).join(folder));
        std::env::var_os(name)
            .or(default.map(Into::into))
            .unwrap_or_default()
    };
    let at_home = |program: &str| {
        let mut command = Command::new(program);
        command
            .current_dir(&clone)
            .env("CARGO_HOME", tools("CARGO_HOME", ".cargo"))
            .env("RUSTUP_HOME", tools("RUSTUP_HOME", ".rustup"))
            .env("HOME", &home)
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("LOXLEY_TEST_LONG");
        command
    };
    let mut fetch = at_home("cargo");
    fetch.args(["fetch", "--quiet", "--locked"]);
    finish(fetch)?;
    let begun = Instant::now();
    let mut quickstart = at_home("cargo");
    quickstart.args([
        "run",
        "--release",
        "--locked",
        "--timings",
        "--",
        "run",
        "examples/quickstart.yaml",
    ]);
    finish(quickstart)?;
    // The quickstart itself takes some ten seconds of it.
    let first_task = begun.elapsed().as_secs_f64();
    let program = clone.join("target/release/loxley");
    let size = fs::metadata(&program)?.len();
    eprintln!(
        "   from a clean clone to the end of the quickstart: {first_task:.0} s; the program: {size} bytes"
    );
    let report = fs::read_to_string(clone.join("quickstart-report.html")).context("no report")?;
    if !report.contains("count 13") {
        bail!("the report of the quickstart does not tell of its tasks");
    }
    if size > PROGRAM_BYTES_MAX {
        bail!("the program has {size} bytes, at most {PROGRAM_BYTES_MAX} are wanted");
    }
    manual(&at_home, &program, &place)?;
    if first_task > FIRST_TASK_SECONDS {
        eprintln!(
            "   slower than {FIRST_TASK_SECONDS} s; other work on this machine counts too, so this is no failure"
        );
    }
    Ok(())
}

/// The pages can be read by `man`.
fn manual(at_home: &impl Fn(&str) -> Command, program: &Path, place: &Path) -> Result<()> {
    let pages = place.join("man");
    let mut man = at_home(program.to_str().context("the path is no text")?);
    man.arg("man").arg(&pages);
    finish(man)?;
    for entry in fs::read_dir(&pages)? {
        let page = entry?.path();
        let Ok(output) = at_home("man")
            .arg("--warnings")
            .arg("-l")
            .arg(&page)
            .output()
        else {
            eprintln!("   no man here: the pages are not rendered");
            return Ok(());
        };
        if !output.status.success() || output.stdout.is_empty() {
            bail!(
                "{} cannot be rendered: {}",
                page.display(),
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
    Ok(())
}
