//! The Python package: built as a wheel, installed into an environment of its own, and tested there.
//!
//! The wheel brings the `loxley` program along, as one of its scripts (docs/decisions/0009).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{EVERYTHING, Suite, finish};

/// What the tests need from the package index. The package itself needs `cloudpickle` alone.
const REQUIREMENTS: &[&str] = &[
    "maturin>=1.9,<2",
    "pytest>=8",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.5",
    "wheel>=0.42",
    "mypy>=1.11",
    "pyright[nodejs]>=1.1.380",
    "cloudpickle>=3.0",
    "numpy",
    "matplotlib",
    "pandas",
];

/// What is enough to run the tests under another interpreter than the one they are written for.
const FEW_REQUIREMENTS: &[&str] = &[
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "cloudpickle>=3.0",
    "numpy",
];

/// What a wheel may have, the program in it included.
const WHEEL_BYTES_MAX: u64 = 25_000_000;

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
    // Maturin builds the extension alone, and everything below it a second time, with fewer features than the rest
    // of the workspace has. That is for releases, and for a long run.
    let wheel = if suite.long || !cfg!(target_os = "linux") {
        build_wheel(suite, &environment, Profile::Debug)?
    } else {
        pack_wheel(suite, &environment)?
    };
    environment.install(&wheel)?;
    let cpython = cpython_tests(suite);
    environment.pytest(&wheel, cpython.as_deref())?;
    if suite.long {
        for python in OTHERS.iter().filter(|python| is_usable(suite, python)) {
            eprintln!("   the same wheel with {python}");
            let other = format!("{python}-venv");
            let other = Environment::make(suite, python, &other, FEW_REQUIREMENTS)?;
            other.install(&wheel)?;
            other.pytest(&wheel, None)?;
        }
    }
    Ok(())
}

/// The manifests of `deploy/kubernetes` against the schema of Kubernetes.
pub(crate) fn manifests(suite: &Suite) -> Result<()> {
    if !is_usable(suite, "python3") {
        eprintln!("   no Python 3.9 or newer: nobody has looked at the manifests");
        return Ok(());
    }
    let environment = Environment::make(suite, "python3", "deploy-venv", &["kubernetes-validate"])?;
    for entry in std::fs::read_dir(suite.root.join("deploy/kubernetes"))? {
        let manifest = entry?.path().display().to_string();
        environment.run("kubernetes-validate", &["--strict", "--quiet", &manifest])?;
    }
    Ok(())
}

/// `cargo xtask wheel`: the wheel as it is released.
pub(crate) fn wheel(suite: &Suite) -> Result<()> {
    let environment = Environment::make(suite, "python3", "python-venv", REQUIREMENTS)?;
    let wheel = build_wheel(suite, &environment, Profile::Release)?;
    let size = std::fs::metadata(&wheel)?.len();
    eprintln!("{}: {:.1} MB", wheel.display(), size as f64 / 1e6);
    ensure!(
        size <= WHEEL_BYTES_MAX,
        "a wheel may have {WHEEL_BYTES_MAX} bytes, this one has {size}"
    );
    Ok(())
}

/// CPython's own tests for the interpreter that runs ours: a folder with its package `test`. Most
/// interpreters bring them along; Debian has them in a package of their own.
fn cpython_tests(suite: &Suite) -> Option<PathBuf> {
    let folder = suite.root.join("target/cpython-tests");
    let module = folder.join("test/test_concurrent_futures.py");
    if !module.exists() {
        let fetched = fetch_cpython_tests(suite, &folder);
        if let Err(error) = fetched {
            eprintln!("   Debian's tests of CPython are not to be had: {error}");
        }
    }
    module.exists().then_some(folder)
}

/// Unpacks Debian's package without installing it.
fn fetch_cpython_tests(suite: &Suite, folder: &Path) -> Result<()> {
    let version = "import sys; print('%d.%d' % sys.version_info[:2])";
    let output = suite.command("python3").args(["-c", version]).output()?;
    let version = String::from_utf8(output.stdout)?.trim().to_owned();
    let downloads = folder.join("download");
    std::fs::create_dir_all(&downloads)?;
    let mut download = suite.command("apt-get");
    download
        .args(["download", "-qq"])
        .arg(format!("libpython{version}-testsuite"))
        .current_dir(&downloads);
    finish(download)?;
    let package = std::fs::read_dir(&downloads)?
        .next()
        .context("apt-get left nothing behind")??;
    let mut unpack = suite.command("dpkg-deb");
    unpack.arg("-x").arg(package.path()).arg(&downloads);
    finish(unpack)?;
    let tests = downloads.join(format!("usr/lib/python{version}/test"));
    std::fs::rename(tests, folder.join("test"))?;
    // The rest of the package `test` comes with the interpreter.
    let both = "from pkgutil import extend_path\n\n__path__ = extend_path(__path__, __name__)\n";
    std::fs::write(folder.join("test/__init__.py"), both)?;
    Ok(())
}

/// Builds the wheel: one file for every interpreter from 3.9 on, with the program.
fn build_wheel(suite: &Suite, environment: &Environment<'_>, profile: Profile) -> Result<PathBuf> {
    // Where maturin looks for what else is to be installed.
    let scripts = suite.root.join("crates/python/loxley._core.data/scripts");
    std::fs::create_dir_all(&scripts)?;
    // Asked for as a part of the workspace, the program is the one that other steps have built; alone, it
    // would be built again with fewer features.
    let program = ["--quiet", "--bin", "loxley"];
    suite.cargo(&[&["build"], EVERYTHING, &program, profile.flags()].concat())?;
    strip(suite, &profile.program(suite), &scripts.join("loxley"))?;
    the_wheel_in(suite, |out| {
        let build = ["build", "--quiet", "--strip", "--out", out];
        environment.run("maturin", &[&build[..], profile.flags()].concat())
    })
}

/// Packs the same wheel out of what the workspace is built to.
fn pack_wheel(suite: &Suite, environment: &Environment<'_>) -> Result<PathBuf> {
    let both = ["--quiet", "--lib", "--bin", "loxley"];
    suite.cargo(&[&["build"], EVERYTHING, &both].concat())?;
    let content = suite.root.join("target/python-wheel-content");
    if content.exists() {
        std::fs::remove_dir_all(&content)?;
    }
    let package = content.join("loxley");
    std::fs::create_dir_all(&package)?;
    for entry in std::fs::read_dir(suite.root.join("crates/python/python/loxley"))? {
        let source = entry?.path();
        if source.is_file() {
            let name = source.file_name().context("a file has a name")?;
            std::fs::copy(&source, package.join(name))?;
        }
    }
    let extension = suite.root.join("target/debug/libloxley_python.so");
    strip(suite, &extension, &package.join("_core.abi3.so"))?;
    let into = content.display().to_string();
    let metadata = [
        "pep517",
        "write-dist-info",
        "--quiet",
        "--metadata-directory",
        &into,
    ];
    environment.run("maturin", &metadata)?;
    let data = format!("loxley-{}.data/scripts", env!("CARGO_PKG_VERSION"));
    std::fs::create_dir_all(content.join(&data))?;
    let program = Profile::Debug.program(suite);
    strip(suite, &program, &content.join(&data).join("loxley"))?;
    the_wheel_in(suite, |out| {
        environment.run("python", &["-m", "wheel", "pack", &into, "--dest-dir", out])
    })
}

/// Has a wheel made into an empty folder, and returns its path.
fn the_wheel_in(suite: &Suite, make: impl FnOnce(&str) -> Result<()>) -> Result<PathBuf> {
    let folder = suite.root.join("target/python-wheels");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    make(&folder.display().to_string())?;
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

/// Copies a program or a library without what only a debugger needs.
fn strip(suite: &Suite, from: &Path, to: &Path) -> Result<()> {
    let mut strip = suite.command("strip");
    strip.arg("-o").arg(to).arg(from);
    finish(strip)
}

/// How the wheel and the program in it are built.
#[derive(Clone, Copy)]
enum Profile {
    Debug,
    Release,
}

impl Profile {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Debug => &[],
            Self::Release => &["--release"],
        }
    }

    /// Where the program is then.
    fn program(self, suite: &Suite) -> PathBuf {
        let folder = match self {
            Self::Debug => "target/debug",
            Self::Release => "target/release",
        };
        suite.root.join(folder).join("loxley")
    }
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

    fn pytest(&self, wheel: &Path, cpython_tests: Option<&Path>) -> Result<()> {
        // Most tests wait most of the time: one more than there are processors.
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let side_by_side = (processors + 1).to_string();
        let mut command = self.command(
            "pytest",
            &[
                "--timeout",
                "300",
                "--durations",
                "15",
                "--numprocesses",
                &side_by_side,
                "--dist",
                "loadgroup",
            ],
        );
        command.env("LOXLEY_WHEEL", wheel);
        if let Some(folder) = cpython_tests {
            command.env("LOXLEY_CPYTHON_TESTS", folder);
        }
        finish(command)
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<()> {
        finish(self.command(program, arguments))
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.folder.join("bin").join(program));
        command
            .args(arguments)
            .current_dir(self.suite.root.join("crates/python"))
            .env("VIRTUAL_ENV", &self.folder)
            // The tests of the client talk to a real server.
            .env("LOXLEY_PROGRAM", Profile::Debug.program(self.suite));
        if self.suite.long {
            command.env("LOXLEY_TEST_LONG", "1");
        }
        command
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
