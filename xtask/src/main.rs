//! Chores of the workspace. `cargo xtask test` is the whole test suite, the one that CI runs.
#![expect(
    clippy::print_stderr,
    reason = "a chore runner talks to the person who runs it"
)]

mod book;
mod fuzz;
mod journal_fixture;
mod packages;
mod python;
mod rayon;
mod stranger;
mod tidy;
mod web;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

const HELP: &str = "\
cargo xtask test          everything CI checks (format, lints, tests, quick model checks)
cargo xtask test --long   the same, with the long sweeps and the exhaustive models
cargo xtask test NAME...  only the named steps
cargo xtask steps         the names of the steps
cargo xtask assets        manual pages and completions, for packages: target/assets
cargo xtask wheel         the Python wheel as it is released, with the program in it: target/python-wheels
cargo xtask journal-fixture  before a release with a new journal format: a journal for the tests of later versions
cargo xtask fuzz NAME [SECONDS]  one fuzz target with libFuzzer, guided by coverage
cargo xtask bench-web     how fast the dashboard is, on a quiet machine: prints JSON";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["test", rest @ ..] => test(rest),
        ["fuzz", target] => fuzz::long(&Suite::new(false)?, target, "60"),
        ["fuzz", target, seconds] => fuzz::long(&Suite::new(false)?, target, seconds),
        ["assets"] => packages::assets(&Suite::new(false)?),
        ["journal-fixture"] => journal_fixture::make(&Suite::new(false)?),
        ["wheel"] => python::wheel(&Suite::new(false)?),
        ["bench-web"] => web::bench(&Suite::new(false)?),
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
        about: "what no lint can see: arrows between crates, purity",
        run: tidy::check,
    },
    Step {
        name: "book",
        about: "the documentation: every link leads somewhere, every page is listed",
        run: book::check,
    },
    Step {
        name: "packages",
        about: "crates can be packed; long: published, and compared with the version before",
        run: packages::check,
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
        name: "others",
        about: "what tests use or compare with (Chromium, GNU parallel, PostgreSQL): installed where it may be",
        run: others,
    },
    Step {
        name: "unit",
        about: "unit, property, integration and end-to-end tests",
        run: unit,
    },
    Step {
        name: "mutants",
        about: "long: hundreds of small bugs put into the deciding core, one after the other: the tests find them",
        run: mutants,
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
        name: "web",
        about: "the dashboard: built anew and compared, then used in Chromium on a real server",
        run: web::test,
    },
    Step {
        name: "deploy",
        about: "the manifests of Kubernetes, by their schema (units and options: see `unit`)",
        run: python::manifests,
    },
    Step {
        name: "chaos",
        about: "kills and stops of a server and its agents for a minute; long: for an hour",
        run: chaos,
    },
    Step {
        name: "loom",
        about: "model checks of the pool's lock-free parts; long: of the whole pool too",
        run: loom,
    },
    Step {
        name: "rayon",
        about: "the tests of rayon and rayon-core, unchanged, on our pool",
        run: rayon::test,
    },
    Step {
        name: "rayon-users",
        about: "long: packages that use rayon on our pool, their tests and their speed",
        run: rayon::test_users,
    },
    Step {
        name: "stranger",
        about: "long: a clean clone in an empty home: first build, first task, size, manual pages",
        run: stranger::test,
    },
    Step {
        name: "memcheck",
        about: "long: valgrind over the pool's basic tests",
        run: memcheck,
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

/// All crates with all that releases have, and a first build leaves out. Every step asks for the same, so that none
/// builds the program anew.
const EVERYTHING: &[&str] = &["--workspace", "--features", "loxley-cli/full"];

fn clippy(suite: &Suite) -> Result<()> {
    const TARGETS: &[&str] = &["--all-targets", "--quiet", "--", "-D", "warnings"];
    suite.cargo(&[&["clippy", "-p", "loxley-cli"], TARGETS].concat())?;
    suite.cargo(&[&["clippy"], EVERYTHING, TARGETS].concat())
}

/// Programs that tests look at pages with or compare ours with, and the packages that bring them. Such tests skip
/// themselves loudly without; here is the chance to have them.
const OTHERS: &[(&str, &str)] = &[
    ("/usr/bin/chromium", "chromium"),
    ("/usr/bin/parallel", "parallel"),
    ("/usr/bin/tmux", "tmux"),
];

/// Debian's PostgreSQL has its programs in a folder for each version.
const POSTGRES: (&str, &str) = ("/usr/lib/postgresql", "postgresql");
/// Where Debian is told not to make a database of the machine's own with it: tests make theirs.
const POSTGRES_SETTINGS: &str = "/etc/postgresql-common/createcluster.conf";

fn has_postgres() -> bool {
    let versions = std::fs::read_dir(POSTGRES.0)
        .into_iter()
        .flatten()
        .flatten();
    let mut programs = versions.map(|version| version.path().join("bin/initdb"));
    programs.any(|program| program.exists())
        || std::env::var_os("PATH").is_some_and(|path| {
            std::env::split_paths(&path).any(|folder| folder.join("initdb").exists())
        })
}

/// What somebody else has set stays as it is.
fn prevent_a_database_of_the_machine() -> Result<()> {
    let settings = Path::new(POSTGRES_SETTINGS);
    if settings.exists() {
        return Ok(());
    }
    if let Some(folder) = settings.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let text = "# Written by `cargo xtask test others`: tests start databases of their own.\n\
                create_main_cluster = false\n";
    Ok(std::fs::write(settings, text)?)
}

fn others(suite: &Suite) -> Result<()> {
    let missing = OTHERS
        .iter()
        .filter(|(program, _)| !Path::new(program).exists());
    let mut missing: Vec<&str> = missing.map(|(_, package)| *package).collect();
    if !has_postgres() {
        missing.push(POSTGRES.1);
    }
    if missing.is_empty() {
        return Ok(());
    }
    let may_install = Path::new("/usr/bin/apt-get").exists()
        && suite
            .command("id")
            .arg("-u")
            .output()
            .is_ok_and(|output| output.stdout == b"0\n");
    if !may_install {
        eprintln!("   no {missing:?}, and no right to install it: tests that need it are skipped");
        return Ok(());
    }
    if missing.contains(&POSTGRES.1) {
        prevent_a_database_of_the_machine()?;
    }
    let install = ["install", "-y", "-qq", "--no-install-recommends"];
    for arguments in [&["update", "-qq"][..], &[&install[..], &missing].concat()] {
        let mut command = suite.command("apt-get");
        command
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("UCF_FORCE_CONFFOLD", "1");
        if let Err(error) = finish(command) {
            eprintln!(
                "   {missing:?} could not be installed ({error}): tests that need it are skipped"
            );
            return Ok(());
        }
    }
    Ok(())
}

fn unit(suite: &Suite) -> Result<()> {
    // The quick run is the same every time; the long one looks for what nobody has seen yet.
    let mut command = suite.command("cargo");
    // Whoever mends one failure wants to know of the others.
    command.arg("test").args(EVERYTHING);
    command.args(["--all-targets", "--quiet", "--no-fail-fast"]);
    if !suite.long {
        command.env("PROPTEST_RNG_SEED", "20");
    }
    finish(command)
}

/// The bugs that somebody wrote down and a few that nobody did, all in one build (mutants/src/main.rs).
fn mutants(suite: &Suite) -> Result<()> {
    if !suite.long {
        eprintln!("   only with --long");
        return Ok(());
    }
    let mut command = suite.command("cargo");
    command.args(["run", "--quiet", "--locked"]);
    command.args(["--manifest-path", "mutants/Cargo.toml"]);
    command.env("CARGO_TARGET_DIR", suite.root.join("target"));
    finish(command)
}

/// Alone on the machine: what is checked does not depend on time, but how much is found does.
///
/// A minute in a short run: it has a record of more than ten quiet runs in a row on a machine that was busy with other
/// things.
fn chaos(suite: &Suite) -> Result<()> {
    let mut command = suite.command("cargo");
    command.arg("test").args(EVERYTHING);
    command.args(["--quiet", "--test", "chaos"]);
    command.args(["--", "--ignored", "--nocapture"]);
    if suite.long && std::env::var_os("LOXLEY_CHAOS_SECONDS").is_none() {
        command.env("LOXLEY_CHAOS_SECONDS", "3600");
    }
    finish(command)
}

fn doc(suite: &Suite) -> Result<()> {
    suite.cargo(&[&["test"], EVERYTHING, &["--doc", "--quiet"]].concat())
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

/// What no lint and no model sees: reads of memory that was given back or never written, and leaks.
fn memcheck(suite: &Suite) -> Result<()> {
    if !suite.long {
        eprintln!("   only in a long run");
        return Ok(());
    }
    if suite.command("valgrind").arg("--version").output().is_err() {
        eprintln!("   no valgrind: skipped");
        return Ok(());
    }
    for (package, test) in [("loxley-pool", "basics"), ("rayon-core", "promises")] {
        let mut command = suite.command("cargo");
        command
            .args(["test", "--quiet", "-p", package, "--test", test])
            .args(["--", "--test-threads=1"])
            .env(
                "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER",
                "valgrind --quiet --error-exitcode=1 --fair-sched=yes",
            );
        finish(command)?;
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

    /// The program, as tests have built it.
    fn program(&self) -> PathBuf {
        let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let target = target.unwrap_or_else(|| "target".into());
        self.root.join(target).join("debug").join("loxley")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        if self.long {
            command.env("LOXLEY_TEST_LONG", "1");
        }
        command
    }

    fn cargo_succeeds(&self, arguments: &[&str]) -> bool {
        let mut command = self.command("cargo");
        command.args(arguments);
        command.output().is_ok_and(|output| output.status.success())
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
