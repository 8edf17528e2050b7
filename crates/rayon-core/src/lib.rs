//! rayon's programs on Loxley's pool.
//!
//! A package with the name, version and interface of `rayon-core`, written on `loxley-pool`:
//!
//! ```toml
//! [patch.crates-io]
//! rayon-core = { git = "https://…/loxley" } # or path = "…/loxley/crates/rayon-core"
//! ```
//!
//! Then `rayon`, unchanged, and everything that uses it, runs on this pool. What each function does is
//! described in rayon's own documentation, and rayon's own tests pass (`cargo xtask test rayon`). What
//! one gains and what differs: `docs/guide/from-rayon.md`.
#![expect(unsafe_code, reason = "a scope is handed to its units as rayon's type")]
#![expect(
    unnameable_types,
    reason = "how threads are started is rayon's secret, too"
)]

#[cfg(feature = "web_spin_lock")]
compile_error!(
    "Loxley's pool does not run in browsers: build for the web without the patch of rayon-core"
);

mod broadcast;
mod builder;
mod configuration;
mod join;
mod registry;
mod scope;
mod spawn;
mod thread_pool;

pub use broadcast::{BroadcastContext, broadcast, spawn_broadcast};
pub use builder::{ThreadPoolBuildError, ThreadPoolBuilder};
#[expect(deprecated, reason = "rayon still has it")]
pub use configuration::{Configuration, initialize};
pub use join::{FnContext, join, join_context};
pub use registry::ThreadBuilder;
pub use scope::{Scope, ScopeFifo, in_place_scope, in_place_scope_fifo, scope, scope_fifo};
pub use spawn::{spawn, spawn_fifo};
pub use thread_pool::{
    ThreadPool, Yield, current_thread_has_pending_tasks, current_thread_index, yield_local,
    yield_now,
};

/// The most threads that a pool can have. What is asked for beyond is not started.
#[must_use]
pub fn max_num_threads() -> usize {
    0xffff
}

/// How many threads the current pool has: the one that the calling thread is in, else the global one,
/// which is started if need be.
#[must_use]
pub fn current_num_threads() -> usize {
    loxley_pool::raw::current_threads().unwrap_or_else(|| registry::global().num_threads())
}
