//! Chores of the workspace. `cargo xtask test` is the whole test suite, the one that CI runs.
#![expect(
    clippy::print_stderr,
    reason = "a chore runner talks to the person who runs it"
)]

mod fuzz;
mod python;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

const HELP: &str = "\
cargo xtask test          everything CI checks (format, lints, tests, quick model checks)
cargo xtask test --long   the same, with the long sweeps and the exhaustive models
cargo xtask test NAME...  only the named steps
cargo xtask steps         the names of the steps
cargo xtask fuzz NAME [SECONDS]  one fuzz target with libFuzzer, guided by coverage";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["test", rest @ ..] => test(rest),
        ["fuzz", target] => fuzz::long(&Suite::new(false)?, target, "60"),
        ["fuzz", target, seconds] => fuzz::long(&Suite::new(false)?, target, seconds),
        ["steps"] => {
            for step in STEPS {
                eprintln!("{:10} {}", step.name, step.about);
            }
            Ok(())
        }
        _ => {
            eprintln!("{HELP}");
            if words.is_empty() || words == ["--help"] {
                Ok(())
            } else {
                bail!("unknown command")
            }
        }
    }
}

/// One named part of the test suite.
struct Step {
    name: &'static str,
    about: &'static str,
    run: fn(&Suite) -> Result<()>,
}

const STEPS: &[Step] = &[
    Step {
        name: "tidy",
        about: "what no lint can see: arrows between crates, unsafe",
        run: tidy::check,
    },
    Step {
        name: "fmt",
        about: "rustfmt",
        run: fmt,
    },
    Step {
        name: "clippy",
        about: "clippy, warnings denied",
        run: clippy,
    },
    Step {
        name: "browser",
        about: "Chromium for the tests of reports: installed where it is missing and may be",
        run: browser,
    },
    Step {
        name: "unit",
        about: "unit, property, integration and end-to-end tests",
        run: unit,
    },
    Step {
        name: "fuzz",
        about: "what strangers send, for some seconds each",
        run: fuzz::quick,
    },
    Step {
        name: "doc",
        about: "examples in the documentation",
        run: doc,
    },
    Step {
        name: "python",
        about: "the Python package: types, tests and examples in an environment of its own",
        run: python::test,
    },
    Step {
        name: "loom",
        about: "model checks of the pool's lock-free parts; long: of the whole pool too",
        run: loom,
    },
];

/// What a step needs to know.
struct Suite {
    root: PathBuf,
    long: bool,
}

fn test(words: &[&str]) -> Result<()> {
    let suite = Suite::new(words.contains(&"--long"))?;
    let wanted: Vec<&str> = words
        .iter()
        .copied()
        .filter(|word| *word != "--long")
        .collect();
    if let Some(unknown) = wanted
        .iter()
        .find(|word| !STEPS.iter().any(|step| step.name == **word))
    {
        bail!("no step `{unknown}`; `cargo xtask steps` lists them");
    }
    for step in STEPS
        .iter()
        .filter(|step| wanted.is_empty() || wanted.contains(&step.name))
    {
        let start = Instant::now();
        eprintln!("== {}: {}", step.name, step.about);
        (step.run)(&suite).with_context(|| format!("step `{}` failed", step.name))?;
        eprintln!(
            "== {} passed in {:.1} s",
            step.name,
            start.elapsed().as_secs_f64()
        );
    }
    Ok(())
}

fn fmt(suite: &Suite) -> Result<()> {
    suite.cargo(&["fmt", "--all", "--check"])
}

fn clippy(suite: &Suite) -> Result<()> {
    suite.cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ])
}

/// The tests that look at pages skip themselves without Chromium; here is the chance to have it.
fn browser(suite: &Suite) -> Result<()> {
    if Path::new("/usr/bin/chromium").exists() {
        return Ok(());
    }
    let may_install = Path::new("/usr/bin/apt-get").exists()
        && suite
            .command("id")
            .arg("-u")
            .output()
            .is_ok_and(|output| output.stdout == b"0\n");
    if !may_install {
        eprintln!("   no Chromium, and no right to install it: tests of pages are skipped");
        return Ok(());
    }
    for arguments in [
        &["update", "-qq"][..],
        &[
            "install",
            "-y",
            "-qq",
            "--no-install-recommends",
            "chromium",
        ],
    ] {
        let mut command = suite.command("apt-get");
        command
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive");
        if let Err(error) = finish(command) {
            eprintln!("   Chromium could not be installed ({error}): tests of pages are skipped");
            return Ok(());
        }
    }
    Ok(())
}

fn unit(suite: &Suite) -> Result<()> {
    // The quick run is the same every time; the long one looks for what nobody has seen yet.
    let mut command = suite.command("cargo");
    command.args(["test", "--workspace", "--all-targets", "--quiet"]);
    if !suite.long {
        command.env("PROPTEST_RNG_SEED", "20");
    }
    finish(command)
}

fn doc(suite: &Suite) -> Result<()> {
    suite.cargo(&["test", "--workspace", "--doc", "--quiet"])
}

/// The quick models always; in a long run the long ones too, and the whole pool under shuttle.
fn loom(suite: &Suite) -> Result<()> {
    let mut loom = suite.pool_model("loom");
    if suite.long {
        loom.args(["--", "--include-ignored"]);
    }
    finish(loom)?;
    if suite.long {
        let mut shuttle = suite.pool_model("shuttle");
        shuttle.env("LOXLEY_SHUTTLE", "5000");
        finish(shuttle)?;
    }
    Ok(())
}

impl Suite {
    /// The pool's test of this name, built with the cfg of the same name in a folder of its own.
    fn pool_model(&self, name: &str) -> Command {
        let mut command = self.command("cargo");
        command
            .args(["test", "--release", "--quiet", "-p", "loxley-pool"])
            .args(["--test", name])
            .env("RUSTFLAGS", format!("--cfg {name}"))
            .env("CARGO_TARGET_DIR", self.root.join("target").join(name));
        command
    }

    fn new(long: bool) -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("xtask has a parent folder")?;
        let root = root.to_owned();
        Ok(Self { root, long })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        if self.long {
            command.env("LOXLEY_TEST_LONG", "1");
        }
        command
    }

    fn cargo(&self, arguments: &[&str]) -> Result<()> {
        let mut command = self.command("cargo");
        command.args(arguments);
        finish(command)
    }
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
