//! What Loxley reads from strangers, as functions of bytes: frames of agents, requests of clients, files.
//!
//! A [`Target`] is such a function with some inputs that make sense. It panics when something is wrong:
//! what it reads may be refused, but must not crash, hang, or come out differently when it is read again.
//! Two drivers use the same targets:
//!
//! - `cargo xtask test fuzz` and `tests/fuzz.rs`: [`drive`], a bounded and seeded run of mutations, on every
//!   build;
//! - `cargo xtask fuzz NAME`: libFuzzer, guided by coverage, for as long as you like (the crate in `fuzz/`).
//!
//! Whatever is found becomes a test of its own in `tests/fuzz.rs`, or where the mistake was.
#![expect(
    clippy::unwrap_used,
    reason = "a target tells by a panic that something is wrong"
)]

mod drive;
mod files;
mod frames;
mod http;
mod journal;

pub use drive::{Bound, drive};

/// Something that reads bytes of strangers.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// What it is called.
    pub name: &'static str,
    /// Reads; panics when it should not have.
    pub run: fn(&[u8]),
    /// Inputs that make sense, to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target {
        name: "frames",
        run: frames::run,
        seeds: frames::seeds,
    },
    Target {
        name: "http",
        run: http::run,
        seeds: http::seeds,
    },
    Target {
        name: "job_file",
        run: files::job_file,
        seeds: files::job_file_seeds,
    },
    Target {
        name: "config",
        run: files::config,
        seeds: files::config_seeds,
    },
    Target {
        name: "workload",
        run: files::workload,
        seeds: files::workload_seeds,
    },
    Target {
        name: "journal",
        run: journal::file,
        seeds: journal::file_seeds,
    },
    Target {
        name: "group",
        run: journal::group,
        seeds: journal::group_seeds,
    },
];

/// A target by its name.
#[must_use]
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|target| target.name == name).copied()
}

/// A runtime for one input: nothing of it is left for the next one.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(future)
}
