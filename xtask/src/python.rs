//! The Python package: built into an environment of its own, then tested there.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{Suite, finish};

/// What the tests need from the package index. The package itself needs `cloudpickle` alone.
const REQUIREMENTS: &[&str] = &[
    "maturin>=1.9,<2",
    "pytest>=8",
    "pytest-timeout>=2.3",
    "mypy>=1.11",
    "cloudpickle>=2.2",
    "numpy",
];

pub(crate) fn test(suite: &Suite) -> Result<()> {
    if !has_python(suite) {
        eprintln!("   no Python 3.9 or newer: the tests of the Python package are skipped");
        return Ok(());
    }
    let environment = suite.root.join("target/python-venv");
    make_environment(suite, &environment)?;
    let folder = suite.root.join("crates/python");
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(environment.join("bin").join(program));
        command
            .args(arguments)
            .current_dir(&folder)
            .env("VIRTUAL_ENV", &environment)
            .env("LOXLEY_PROGRAM", suite.root.join("target/debug/loxley"));
        if suite.long {
            command.env("LOXLEY_TEST_LONG", "1");
        }
        finish(command)
    };
    // The tests of the client talk to a real server.
    let mut command = suite.command("cargo");
    command.args(["build", "--quiet", "-p", "loxley-cli"]);
    finish(command)?;
    run("maturin", &["develop", "--quiet"])?;
    run(
        "mypy",
        &["--config-file", "pyproject.toml", "python/loxley"],
    )?;
    run("pytest", &["--timeout", "120"])
}

fn has_python(suite: &Suite) -> bool {
    let mut command = suite.command("python3");
    let question = "import sys, venv; sys.exit(sys.version_info < (3, 9))";
    command.args(["-c", question]);
    command.status().is_ok_and(|status| status.success())
}

/// Makes the environment, or brings one that is there up to date.
fn make_environment(suite: &Suite, environment: &PathBuf) -> Result<()> {
    let stamp = environment.join("requirements.txt");
    let wanted = REQUIREMENTS.join("\n");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    let mut command = suite.command("python3");
    command.args(["-m", "venv", "--clear"]).arg(environment);
    finish(command)?;
    let mut command = Command::new(environment.join("bin/python"));
    command
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ])
        .args(["--timeout", "30", "--retries", "2"])
        .args(REQUIREMENTS);
    finish(command)?;
    std::fs::write(&stamp, wanted).with_context(|| stamp.display().to_string())
}
