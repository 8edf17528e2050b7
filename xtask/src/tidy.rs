//! Checks that no lint can express: which crate may depend on which, what the deciding core may depend on from
//! outside, that what must be pure has no `std`, and that one file alone gives tasks to agents.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::Suite;

/// The arrows of ARCHITECTURE.md: a crate may use these of our crates and no others. Every crate has a row.
const ARROWS: &[(&str, &[&str])] = &[
    ("balance", &[]),
    ("model", &[]),
    ("policy", &["model", "balance"]),
    ("driver", &["policy", "model"]),
    ("cluster", &["model"]),
    ("config", &["policy", "model", "balance"]),
    ("pool", &["balance"]),
    ("rayon-core", &["pool"]),
    ("journal", &["cluster", "model"]),
    ("protocol", &[]),
    (
        "server",
        &[
            "api", "cluster", "config", "driver", "engine", "journal", "model", "policy",
            "protocol", "replay",
        ],
    ),
    (
        "engine",
        &[
            "api", "balance", "cluster", "driver", "journal", "model", "policy", "protocol",
            "template",
        ],
    ),
    ("template", &[]),
    ("exec", &["template", "model", "pool", "balance"]),
    ("agent", &["exec", "model", "balance", "protocol", "api"]),
    ("api", &["model", "template"]),
    ("client", &["api", "model", "balance"]),
    ("jobfile", &["api", "config", "policy", "model"]),
    ("sim", &["balance", "config", "driver", "model", "policy"]),
    (
        "replay",
        &[
            "balance", "config", "driver", "engine", "journal", "model", "policy", "sim",
        ],
    ),
    (
        "loxley",
        &[
            "balance", "config", "driver", "model", "policy", "pool", "sim",
        ],
    ),
    (
        "cli",
        &[
            "agent", "api", "balance", "client", "config", "driver", "engine", "exec", "jobfile",
            "journal", "model", "policy", "pool", "replay", "server", "sim",
        ],
    ),
    (
        "python",
        &[
            "agent", "api", "balance", "client", "config", "driver", "model", "policy", "sim",
        ],
    ),
    (
        "fuzz",
        &[
            "api", "balance", "config", "engine", "jobfile", "journal", "model", "policy",
            "protocol", "server", "sim",
        ],
    ),
];

/// What has no clock, no thread and no I/O, because it has no `std`.
const PURE: &[&str] = &["balance", "model", "policy", "driver"];

/// What the deciding core may depend on from outside: little enough to read in a day, and none of
/// it with a clock, a thread, a socket or a random source.
const POLICY_DEPENDENCIES: &[&str] = &[
    "hashbrown",
    "loxley-model",
    "loxley-balance",
    "serde",
    "smallvec",
    "thiserror",
];

pub(crate) fn check(suite: &Suite) -> Result<()> {
    let crates = suite.root.join("crates");
    let mut problems = Vec::new();
    for (name, allowed) in ARROWS {
        let manifest = crates.join(name).join("Cargo.toml");
        for dependency in dependencies(&manifest)? {
            let Some(ours) = dependency.strip_prefix("loxley-") else {
                continue;
            };
            if !allowed.contains(&ours) {
                problems.push(format!("crates/{name} must not depend on {dependency}"));
            }
        }
    }
    for entry in fs::read_dir(&crates)? {
        let entry = entry?;
        let name = entry.file_name();
        let known = ARROWS.iter().any(|(row, _)| name == *row);
        if entry.path().join("Cargo.toml").exists() && !known {
            problems.push(format!("crates/{} has no row of arrows", name.display()));
        }
    }
    for dependency in dependencies(&crates.join("policy/Cargo.toml"))? {
        if !POLICY_DEPENDENCIES.contains(&dependency.as_str()) {
            problems.push(format!("crates/policy must not depend on {dependency}"));
        }
    }
    for core in PURE {
        let source = fs::read_to_string(crates.join(core).join("src/lib.rs"))?;
        if !source.contains("#![no_std]") {
            problems.push(format!(
                "crates/{core} must be #![no_std]: it has no clock and no thread"
            ));
        }
    }
    for entry in fs::read_dir(crates.join("policy/src"))? {
        let path = entry?.path();
        let source = fs::read_to_string(&path)?;
        let code = source.lines().map(str::trim_start);
        let mut code = code.filter(|line| !line.starts_with("//"));
        let assigns = code.any(|line| line.contains("Action::Assign"));
        if assigns && path.file_name().is_none_or(|name| name != "settle.rs") {
            problems.push(format!(
                "only crates/policy/src/settle.rs may give tasks to agents, not {}",
                path.display()
            ));
        }
        for (name, length) in long_functions(&source) {
            problems.push(format!(
                "{name} in {} has {length} lines, and {FUNCTION_MAX} are the most",
                path.display()
            ));
        }
    }
    if problems.is_empty() {
        Ok(())
    } else {
        bail!("{}", problems.join("\n"))
    }
}

/// So long a function of the core may be: one that can be seen whole is easier to trust.
const FUNCTION_MAX: usize = 100;

/// The functions of a formatted source that are longer than that, by name.
fn long_functions(source: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = source.lines().collect();
    let begins = lines.iter().enumerate().filter_map(|(at, line)| {
        let code = line.trim_start();
        let (before, name) = code.split_once("fn ")?;
        let is_head = before
            .split_whitespace()
            .all(|word| word.starts_with("pub") || ["const", "unsafe", "async"].contains(&word));
        is_head.then(|| (at, name, &line[..line.len() - code.len()]))
    });
    let long = begins.filter_map(|(at, name, indent)| {
        let mut rest = lines[at..].iter();
        let end = rest.position(|line| line.strip_prefix(indent) == Some("}"))?;
        let name = name.split(['(', '<']).next().unwrap_or(name);
        (end >= FUNCTION_MAX).then_some((name, end + 1))
    });
    long.collect()
}

#[test]
fn a_long_function_is_seen() {
    let body = "        1;\n".repeat(FUNCTION_MAX);
    let source =
        format!("    pub(crate) fn long(&self) {{\n{body}    }}\n    fn short() {{\n    }}\n");
    assert_eq!(long_functions(&source), [("long", FUNCTION_MAX + 2)]);
}

/// The names under `[dependencies]` of a manifest, target-specific ones included, test-only not.
fn dependencies(manifest: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(manifest).with_context(|| manifest.display().to_string())?;
    let mut section = String::new();
    let mut names = BTreeMap::new();
    for line in text.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']').to_owned();
            continue;
        }
        let is_dependency = section == "dependencies" || section.ends_with(".dependencies");
        if is_dependency && !line.starts_with('#') && !line.is_empty() {
            let name = line.split(['.', '=', ' ']).next().unwrap_or(line);
            names.insert(name.to_owned(), ());
        }
    }
    Ok(names.into_keys().collect())
}
