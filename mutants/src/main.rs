//! Puts many small bugs (*mutants*) into the deciding core, all in one build and each behind a switch, turns on one after
//! the other and looks whether the tests find it.
//!
//! `loxley-mutants [--quick] [--count N] [--seed N] [--list] [--only TEXT] [--without TEXT]` in the root of the repository.
//! The judges are the tests of `policy` and `driver` and a few seeded storms of the simulator; `--without` leaves out those
//! with this in their names, to look around faster. A mutant that changes no behaviour is listed in
//! `mutants/equivalent.txt`, with the reason. Fails if fewer than 95 of 100 of the others are found.

mod judge;
mod mutate;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::judge::Verdict;
use crate::mutate::Mutant;

/// What decides, and what is left out of it: data, words and defaults.
const DECIDING: &[(&str, &[&str])] = &[
    (
        "crates/policy/src",
        &[
            "lib.rs",
            "action.rs",
            "input.rs",
            "config.rs",
            "refs.rs",
            "cache_warm.rs",
            "view.rs",
        ],
    ),
    ("crates/driver/src", &["lib.rs", "explain_text.rs"]),
];

/// So many of the mutants that change something must be found.
const FOUND_MIN: f64 = 0.95;

/// Goes behind the source of a crate: nothing moves to another line.
const SWITCH: &str = r#"
#[doc(hidden)]
pub mod mutants {
    extern crate std;
    pub fn on(number: u32) -> bool {
        static ON: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
        let read = || std::env::var("LOXLEY_MUTANT").ok().and_then(|text| text.parse().ok());
        *ON.get_or_init(|| read().unwrap_or(0)) == number
    }
}
#[doc(hidden)]
#[macro_export]
macro_rules! swap {
    ($number:literal, ($($a:tt)*), $op:tt, $other:tt, ($($b:tt)*)) => {
        if $crate::mutants::on($number) { ($($a)*) $other ($($b)*) } else { ($($a)*) $op ($($b)*) }
    };
}
"#;

struct Options {
    quick: bool,
    count: usize,
    seed: u64,
    list: bool,
    only: Option<String>,
    without: Option<String>,
}

fn main() -> Result<ExitCode> {
    let options = options()?;
    let root = std::env::current_dir()?;
    let mut mutants = match options.only {
        Some(_) => Vec::new(),
        None => read_planted(&root)?,
    };
    mutants.extend(sample(find_all(&root)?, &options));
    for (number, mutant) in (1..).zip(&mut mutants) {
        mutant.number = number;
    }
    if options.list {
        for mutant in &mutants {
            println!(
                "{:4} {}:{} {}",
                mutant.number,
                mutant.file,
                mutant.line,
                mutant.name()
            );
        }
        return Ok(ExitCode::SUCCESS);
    }
    let tree = root.join("target/mutants");
    copy_tree(&root, &tree)?;
    let mut judges = build(&root, &tree, &mut mutants, options.quick)?;
    if let Some(without) = &options.without {
        judges.retain(|judge| !judge.name.contains(without.as_str()));
    }
    println!("{} mutants, {} test programs", mutants.len(), judges.len());
    let equivalent = read_equivalent(&root.join("mutants/equivalent.txt"))?;
    let (mut found, mut alive, mut same) = (0, Vec::new(), 0);
    for mutant in &mutants {
        match judge::try_one(&judges, mutant.number)? {
            Verdict::Found(by) => {
                found += 1;
                println!("found  {:4} {} ({by})", mutant.number, mutant.name());
                if equivalent.contains_key(&mutant.name()) {
                    println!("       it is listed as equivalent, and is not");
                }
            }
            Verdict::Alive if equivalent.contains_key(&mutant.name()) => same += 1,
            Verdict::Alive => {
                println!(
                    "ALIVE  {:4} {}:{} {}",
                    mutant.number,
                    mutant.file,
                    mutant.line,
                    mutant.name()
                );
                alive.push(mutant);
            }
        }
    }
    println!(
        "\n{found} found, {} alive, {same} known to change nothing",
        alive.len()
    );
    for mutant in &alive {
        println!("alive: {}:{} {}", mutant.file, mutant.line, mutant.name());
    }
    ensure!(
        alive.iter().all(|mutant| mutant.function != "planted"),
        "a bug of mutants/planted.txt is not found"
    );
    let share = found as f64 / (found + alive.len()).max(1) as f64;
    println!("{:.1} % found", 100.0 * share);
    Ok(if share >= FOUND_MIN {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn options() -> Result<Options> {
    let mut options = Options {
        quick: false,
        count: 300,
        seed: 1,
        list: false,
        only: None,
        without: None,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || {
            words
                .next()
                .with_context(|| format!("{word} needs a value"))
        };
        match word.as_str() {
            "--quick" => (options.quick, options.count) = (true, 12),
            "--count" => options.count = value()?.parse()?,
            "--seed" => options.seed = value()?.parse()?,
            "--list" => options.list = true,
            "--only" => options.only = Some(value()?),
            "--without" => options.without = Some(value()?),
            _ => bail!("unknown option {word}"),
        }
    }
    Ok(options)
}

fn find_all(root: &Path) -> Result<Vec<Mutant>> {
    let mut all = Vec::new();
    for (folder, left_out) in DECIDING {
        let mut files: Vec<PathBuf> = std::fs::read_dir(root.join(folder))?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<_>>()?;
        files.sort();
        for path in files {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if !name.ends_with(".rs") || left_out.contains(&name.as_str()) {
                continue;
            }
            let text = std::fs::read_to_string(&path)?;
            all.extend(mutate::mutants_of(&format!("{folder}/{name}"), &text)?);
        }
    }
    Ok(all)
}

/// A seeded choice: at least three of every file, the others by chance. All that are asked for by name. The names decide,
/// not the places: a change to one file leaves what is chosen of the others as it was.
fn sample(mut all: Vec<Mutant>, options: &Options) -> Vec<Mutant> {
    let seed = options.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let key = |mutant: &Mutant| {
        let bytes = mutant.name().into_bytes();
        bytes.iter().fold(seed, |mut state, byte| {
            state ^= u64::from(*byte);
            next(&mut state)
        })
    };
    let mut keys: Vec<u64> = all.iter().map(key).collect();
    if let Some(only) = &options.only {
        all.retain(|mutant| mutant.name().contains(only.as_str()));
    } else {
        let mut by_file: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, mutant) in all.iter().enumerate() {
            by_file.entry(&mutant.file).or_default().push(index);
        }
        for mut indexes in by_file.into_values() {
            indexes.sort_by_key(|index| keys[*index]);
            if !options.quick {
                indexes.iter().take(3).for_each(|index| keys[*index] = 0);
            }
        }
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_by_key(|index| keys[*index]);
        order.truncate(options.count);
        order.sort_unstable();
        all = order.into_iter().map(|index| all[index].clone()).collect();
    }
    all
}

/// The bugs of `mutants/planted.txt`: they are in every run.
fn read_planted(root: &Path) -> Result<Vec<Mutant>> {
    let text = std::fs::read_to_string(root.join("mutants/planted.txt"))?;
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .collect();
    lines
        .chunks(4)
        .map(|bug| match bug {
            [what, file, old, new] => {
                let source = std::fs::read_to_string(root.join(file))?;
                mutate::planted(file, &source, what, old, new)
            }
            _ => bail!("four lines for each bug: {bug:?}"),
        })
        .collect()
}

/// Numbers that look random.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// A copy of what is under version control, or could be.
fn copy_tree(root: &Path, tree: &Path) -> Result<()> {
    let listed = Command::new("git")
        .args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "-z",
        ])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(listed.status.success(), "git ls-files failed");
    for name in String::from_utf8(listed.stdout)?.split_terminator('\0') {
        let is_needed = name.starts_with("crates/")
            || name.starts_with("benches/")
            || name.starts_with("xtask/")
            || !name.contains('/');
        if !is_needed || !root.join(name).is_file() {
            continue;
        }
        let to = tree.join(name);
        std::fs::create_dir_all(to.parent().context("it has a folder")?)?;
        let mut text = std::fs::read(root.join(name))?;
        if name == "Cargo.toml" {
            text = renumbered(&String::from_utf8(text)?)?.into_bytes();
        }
        if std::fs::read(&to).ok().as_deref() != Some(&text[..]) {
            std::fs::write(&to, text)?;
        }
    }
    Ok(())
}

/// The manifest of the workspace with another version: its packages are others than ours then, and both can be built into
/// one folder, with the same dependencies.
fn renumbered(manifest: &str) -> Result<String> {
    let (before, rest) = manifest
        .split_once("\nversion = \"")
        .context("the workspace has a version")?;
    let (version, after) = rest.split_once('"').context("it is in quotes")?;
    let (minor, patch) = version.rsplit_once('.').context("it has three numbers")?;
    let patch = patch.parse::<u32>()? + 1_000;
    Ok(format!("{before}\nversion = \"{minor}.{patch}\"{after}"))
}

/// Builds the test programs with all mutants in them; leaves out those that do not compile.
fn build(
    root: &Path,
    tree: &Path,
    mutants: &mut Vec<Mutant>,
    quick: bool,
) -> Result<Vec<judge::Judge>> {
    loop {
        write_mutants(root, tree, mutants)?;
        let built = judge::build(root, tree, quick)?;
        let errors = match built {
            judge::Built::Programs(programs) => return judge::baseline(programs, tree),
            judge::Built::Errors(errors) => errors,
        };
        let before = mutants.len();
        mutants.retain(|mutant| {
            !errors
                .iter()
                .any(|(file, lines)| *file == mutant.file && lines.contains(&mutant.line))
        });
        println!("{} mutants do not compile", before - mutants.len());
        ensure!(
            mutants.len() < before,
            "it does not build, mutants or not: {errors:?}"
        );
    }
}

fn write_mutants(root: &Path, tree: &Path, mutants: &[Mutant]) -> Result<()> {
    for (folder, _) in DECIDING {
        for entry in std::fs::read_dir(root.join(folder))? {
            let path = entry?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let file = format!("{folder}/{name}");
            let text = std::fs::read_to_string(&path)?;
            let mut text = mutate::apply(&text, mutants.iter().filter(|it| it.file == file));
            if name == "lib.rs" {
                text += SWITCH;
            }
            let to = tree.join(&file);
            if std::fs::read_to_string(&to).ok().as_ref() != Some(&text) {
                std::fs::write(to, text)?;
            }
        }
    }
    Ok(())
}

/// Names of mutants that change no behaviour, with the reasons.
fn read_equivalent(path: &Path) -> Result<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (name, reason) = line
                .split_once(" — ")
                .with_context(|| format!("no reason is given in `{line}`"))?;
            Ok((name.to_owned(), reason.to_owned()))
        })
        .collect()
}
