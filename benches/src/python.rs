//! The Python package beside its peers from the package index.
//!
//! Everything happens in an environment of its own under `target/`: the wheel is built and installed
//! there with the peers, and a script measures them in one run.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::Options;

/// What the script needs besides the wheel.
const NEEDED: &[&str] = &["maturin>=1.9,<2", "cloudpickle>=3.0", "numpy"];

/// Who is measured too, where it can be installed.
const PEERS: &[&str] = &["joblib", "distributed", "ray", "pebble", "mpire"];

/// How the Python package is measured.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Use this interpreter, which has Loxley and the peers, instead of making an environment.
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Use this `loxley` for the cases with a server, instead of building one.
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments, options: &Options) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("benches has a parent folder")?;
    let python = match &arguments.python {
        Some(python) => python.clone(),
        None => environment(root)?,
    };
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => program(root)?,
    };
    let mut command = Command::new(python);
    command
        .arg(root.join("benches/peers/python_peers.py"))
        .arg("--oracle")
        .arg(root.join("crates/python/tests"))
        .arg("--program")
        .arg(program);
    if options.json {
        command.arg("--json");
    }
    if options.quick {
        command.arg("--quick");
    }
    if !options.filter.is_empty() {
        command.arg("--filter").arg(options.filter.join(","));
    }
    if !options.only.is_empty() {
        command.arg("--only").arg(options.only.join(","));
    }
    finish(command)
}

/// The program with the server, built.
fn program(root: &Path) -> Result<PathBuf> {
    let mut command = Command::new("cargo");
    command
        .args(["build", "--release", "--quiet", "--bin", "loxley"])
        .current_dir(root);
    finish(command)?;
    Ok(root.join("target/release/loxley"))
}

/// An environment with the wheel and the peers. The wheel is built anew each time.
fn environment(root: &Path) -> Result<PathBuf> {
    let folder = root.join("target/python-bench");
    let python = folder.join("bin/python");
    if !python.exists() {
        let mut command = Command::new("python3");
        command.args(["-m", "venv"]).arg(&folder);
        finish(command)?;
        let pip = |packages: &[&str]| {
            let mut command = Command::new(&python);
            command
                .args(["-m", "pip", "install", "--quiet"])
                .args(packages);
            finish(command)
        };
        pip(NEEDED)?;
        for peer in PEERS {
            if let Err(error) = pip(&[peer]) {
                // The others can be measured without it.
                writeln!(std::io::stderr(), "without {peer}: {error}")?;
            }
        }
    }
    let mut command = Command::new(folder.join("bin/maturin"));
    command
        .args(["develop", "--release", "--quiet"])
        .current_dir(root.join("crates/python"))
        .env("VIRTUAL_ENV", &folder);
    finish(command)?;
    Ok(python)
}

fn finish(mut command: Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("could not start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}
