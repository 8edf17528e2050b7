//! The pool runs a workload, and somebody looks at the clock.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use loxley_pool::Pool;
use loxley_sim::Workload;

use super::calibration::Calibration;
use super::workloads::{Start, Units};
use super::{Kind, Policy};

pub(super) fn pool(kind: Kind, policy: &Policy) -> Result<Arc<Pool>> {
    let topology = kind.topology();
    let pool = Pool::builder()
        .workers(topology.len())
        .topology(topology)
        .victim_order(policy.order)
        .steal_amount(policy.amount)
        .build()
        .context("cannot start a pool")?;
    Ok(Arc::new(pool))
}

/// Seconds until everything is done.
pub(super) fn run(kind: Kind, calibration: &Calibration, units: &Units, pool: &Arc<Pool>) -> f64 {
    // Whoever had just worked would still be awake; a run begins with everybody asleep.
    std::thread::sleep(Duration::from_millis(5));
    let body = Arc::new(Body {
        kind,
        spins_per_ns: calibration.spins_per_ns,
        graph: Arc::clone(&units.graph),
    });
    let roots: Vec<u32> = units.roots().collect();
    let start = Instant::now();
    match units.start {
        Start::Outside => spawn_all(pool, &body, &roots),
        Start::OnOne => {
            let (inside, body) = (Arc::clone(pool), Arc::clone(&body));
            pool.spawn_detached(move || spawn_all(&inside, &body, &roots));
        }
    }
    pool.wait_idle();
    start.elapsed().as_secs_f64()
}

struct Body {
    kind: Kind,
    spins_per_ns: f64,
    graph: Arc<Workload>,
}

fn spawn_all(pool: &Arc<Pool>, body: &Arc<Body>, tasks: &[u32]) {
    for &task in tasks {
        let (inside, body) = (Arc::clone(pool), Arc::clone(body));
        pool.spawn_detached(move || {
            let work = body.graph.tasks()[task as usize].work;
            match body.kind {
                Kind::Computing => spin((work as f64 * body.spins_per_ns) as u64),
                Kind::Waiting => std::thread::sleep(Duration::from_nanos(work)),
            }
            spawn_all(&inside, &body, body.graph.successors(task));
        });
    }
}

/// Keeps a processor busy for so many turns; each needs the one before.
pub(super) fn spin(turns: u64) {
    let mut value = turns;
    for _ in 0..turns {
        value = black_box(
            value
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1),
        );
    }
    black_box(value);
}
