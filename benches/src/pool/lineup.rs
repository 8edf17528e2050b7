//! Who takes part in a case: Loxley, the peers that can do such work, and the floors.

#[cfg(feature = "peers")]
use super::peers::{Chili, Forte, Rayon};

use super::contract::{ForkJoin, ForkJoinWorkload, Sequential};
use crate::measure::{Contender, Role};

/// Every fork-join pool of `workers` workers, and sequential code as the floor.
pub(super) fn fork_join<W: ForkJoinWorkload>(workload: &W, workers: usize) -> Vec<Contender<'_>> {
    let mut contenders = vec![on("sequential", Role::Floor, Sequential, workload)];
    peers(&mut contenders, workload, workers);
    contenders
}

#[cfg(feature = "peers")]
fn peers<'a, W: ForkJoinWorkload>(
    contenders: &mut Vec<Contender<'a>>,
    workload: &'a W,
    workers: usize,
) {
    contenders.extend([
        on("rayon", Role::Peer, Rayon::new(workers), workload),
        on("chili", Role::Peer, Chili::new(workers), workload),
        on("forte", Role::Peer, Forte::joining(workers), workload),
    ]);
}

#[cfg(not(feature = "peers"))]
fn peers<W: ForkJoinWorkload>(_: &mut Vec<Contender<'_>>, _: &W, _: usize) {}

fn on<'a, P, W>(name: &'static str, role: Role, pool: P, workload: &'a W) -> Contender<'a>
where
    P: ForkJoin + 'a,
    W: ForkJoinWorkload,
{
    Contender::new(name, role, move || workload.figure(&pool))
}
