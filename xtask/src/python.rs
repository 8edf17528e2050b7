//! The Python package: built as a wheel, installed into an environment of its own, and tested there.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{Suite, finish};

/// What the tests need from the package index. The package itself needs `cloudpickle` alone.
const REQUIREMENTS: &[&str] = &[
    "maturin>=1.9,<2",
    "pytest>=8",
    "pytest-timeout>=2.3",
    "mypy>=1.11",
    "cloudpickle>=2.2",
    "numpy",
    "matplotlib",
    "pandas",
];

/// What is enough to run the tests under another interpreter than the one they are written for.
const FEW_REQUIREMENTS: &[&str] = &["pytest", "pytest-timeout", "cloudpickle>=2.2", "numpy"];

/// Other interpreters on which a long run tries the same wheel, where they are installed.
const OTHERS: &[&str] = &[
    "python3.9",
    "python3.10",
    "python3.12",
    "python3.13",
    "python3.14",
];

pub(crate) fn test(suite: &Suite) -> Result<()> {
    if !is_usable(suite, "python3") {
        eprintln!("   no Python 3.9 or newer: the tests of the Python package are skipped");
        return Ok(());
    }
    let environment = Environment::make(suite, "python3", "python-venv", REQUIREMENTS)?;
    // The tests of the client talk to a real server. Asked for as a part of the workspace, it is the
    // one that other steps have built; alone, it would be built again with fewer features.
    suite.cargo(&["build", "--quiet", "--workspace", "--bin", "loxley"])?;
    let wheel = build_wheel(suite, &environment)?;
    environment.install(&wheel)?;
    let mypy = ["--config-file", "pyproject.toml"];
    environment.run("mypy", &[&mypy[..], &["python/loxley"]].concat())?;
    // As a program of somebody else sees it: only what the wheel brings along counts.
    environment.run("mypy", &[&mypy[..], &["tests/typed_program.py"]].concat())?;
    environment.run("pytest", &["--timeout", "120"])?;
    if suite.long {
        for python in OTHERS.iter().filter(|python| is_usable(suite, python)) {
            eprintln!("   the same wheel with {python}");
            let other = format!("{python}-venv");
            let other = Environment::make(suite, python, &other, FEW_REQUIREMENTS)?;
            other.install(&wheel)?;
            other.run("pytest", &["--timeout", "120"])?;
        }
    }
    Ok(())
}

/// Builds the wheel: one file for every interpreter from 3.9 on.
fn build_wheel(suite: &Suite, environment: &Environment<'_>) -> Result<PathBuf> {
    let folder = suite.root.join("target/python-wheels");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    let out = folder.display().to_string();
    environment.run("maturin", &["build", "--quiet", "--strip", "--out", &out])?;
    let wheels = std::fs::read_dir(&folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    let [wheel] = wheels.as_slice() else {
        anyhow::bail!("one wheel was to be built, not {wheels:?}");
    };
    let name = wheel.display().to_string();
    ensure!(
        name.contains("-cp39-abi3-"),
        "{name} is not for 3.9 and later"
    );
    Ok(wheel.clone())
}

fn is_usable(suite: &Suite, python: &str) -> bool {
    let question = "import sys, venv; sys.exit(sys.version_info < (3, 9))";
    let mut command = suite.command(python);
    command
        .args(["-c", question])
        .stderr(std::process::Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// An environment with what tests need.
struct Environment<'a> {
    suite: &'a Suite,
    folder: PathBuf,
}

impl<'a> Environment<'a> {
    /// Makes it, or takes one that is there and up to date.
    fn make(suite: &'a Suite, python: &str, name: &str, requirements: &[&str]) -> Result<Self> {
        let folder = suite.root.join("target").join(name);
        let made = Self { suite, folder };
        let stamp = made.folder.join("requirements.txt");
        let wanted = requirements.join("\n");
        if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
            return Ok(made);
        }
        let mut command = suite.command(python);
        command.args(["-m", "venv", "--clear"]).arg(&made.folder);
        finish(command)?;
        made.run("python", &[&PIP_INSTALL[..], requirements].concat())?;
        std::fs::write(&stamp, wanted).with_context(|| stamp.display().to_string())?;
        Ok(made)
    }

    fn install(&self, wheel: &Path) -> Result<()> {
        let wheel = wheel.display().to_string();
        let again = ["--force-reinstall", "--no-deps", &wheel];
        self.run("python", &[&PIP_INSTALL[..], &again].concat())
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(self.folder.join("bin").join(program));
        command
            .args(arguments)
            .current_dir(self.suite.root.join("crates/python"))
            .env("VIRTUAL_ENV", &self.folder)
            .env(
                "LOXLEY_PROGRAM",
                self.suite.root.join("target/debug/loxley"),
            );
        if self.suite.long {
            command.env("LOXLEY_TEST_LONG", "1");
        }
        finish(command)
    }
}

const PIP_INSTALL: [&str; 9] = [
    "-m",
    "pip",
    "install",
    "--quiet",
    "--disable-pip-version-check",
    "--timeout",
    "30",
    "--retries",
    "2",
];
