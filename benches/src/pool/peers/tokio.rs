//! tokio: an asynchronous runtime used as a pool; closures become tasks without await points.

use std::pin::Pin;
use std::time::Instant;

use tokio::runtime::{Builder, Runtime};

use crate::pool::contract::Spawner;

pub(crate) struct Tokio(Runtime);

impl Tokio {
    pub(crate) fn new(workers: usize) -> Self {
        Self(
            Builder::new_multi_thread()
                .worker_threads(workers)
                .build()
                .expect("threads can be started"),
        )
    }
}

/// Fork-join as an asynchronous runtime can do it: nothing can be borrowed, every fork is a task.
/// That is so much slower that smaller problems are measured and the figures scaled up.
impl Tokio {
    /// Nanoseconds per node of a full tree of `2^levels - 1` nodes.
    pub(crate) fn tree_ns_per_node(&self, levels: u32) -> f64 {
        let start = Instant::now();
        let nodes = self.0.block_on(spawned(tree(levels)));
        start.elapsed().as_nanos() as f64 / nodes as f64
    }

    /// Milliseconds for the `wanted`-th Fibonacci number, from the time of the `measured`-th.
    pub(crate) fn fibonacci_ms(&self, wanted: u32, measured: u32) -> f64 {
        let start = Instant::now();
        self.0.block_on(spawned(fibonacci(measured)));
        let golden_ratio = 0.5_f64.mul_add(5_f64.sqrt(), 0.5);
        let more_calls = golden_ratio.powi((wanted - measured) as i32);
        start.elapsed().as_secs_f64() * 1e3 * more_calls
    }
}

type Sum = Pin<Box<dyn Future<Output = u64> + Send>>;

fn tree(levels: u32) -> Sum {
    Box::pin(async move {
        if levels == 0 {
            return 0;
        }
        let left = tokio::spawn(tree(levels - 1));
        let right = tree(levels - 1).await;
        1 + left.await.expect("the workloads do not panic") + right
    })
}

fn fibonacci(n: u32) -> Sum {
    Box::pin(async move {
        if n < 2 {
            return u64::from(n);
        }
        let left = tokio::spawn(fibonacci(n - 1));
        let right = fibonacci(n - 2).await;
        left.await.expect("the workloads do not panic") + right
    })
}

async fn spawned(sum: Sum) -> u64 {
    tokio::spawn(sum).await.expect("the workloads do not panic")
}

impl Spawner for Tokio {
    type Inside<'a> = ();

    fn spawn(&self, unit: impl FnOnce() + Send + 'static) {
        self.0.spawn(async move { unit() });
    }

    fn enter(&self, root: impl FnOnce(&()) + Send + 'static) {
        self.0.spawn(async move { root(&()) });
    }

    fn spawn_inside((): &(), unit: impl FnOnce() + Send + 'static) {
        tokio::spawn(async move { unit() });
    }
}
