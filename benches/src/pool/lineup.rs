//! Who takes part in a case: Loxley, the peers that can do such work, and the floors.

use std::time::Instant;

use super::contract::{
    ForkJoin, ForkJoinWorkload, Halves, ScopeWorkload, Scoping, Sequential, SpawnWorkload, Spawner,
};
use super::loxley::Loxley;
#[cfg(feature = "peers")]
use super::peers::{Chili, Crossbeam, Forte, Rayon, Tokio};
use crate::measure::{Contender, Role};

/// Every fork-join pool of `workers` workers, and as floors sequential code and, where it makes
/// sense, a split in advance.
pub(super) fn fork_join<W: ForkJoinWorkload>(workload: &W, workers: usize) -> Vec<Contender<'_>> {
    let mut contenders = vec![
        joining("loxley", Role::Subject, Loxley::new(workers), workload),
        joining("sequential", Role::Floor, Sequential, workload),
    ];
    #[cfg(feature = "peers")]
    contenders.extend([
        joining("rayon", Role::Peer, Rayon::new(workers), workload),
        joining("chili", Role::Peer, Chili::new(workers), workload),
        joining("forte", Role::Peer, Forte::joining(workers), workload),
    ]);
    #[cfg(feature = "peers")]
    if let Some(figure) = workload.on_tokio() {
        let runtime = Tokio::new(workers);
        contenders.push(Contender::new("tokio", Role::Peer, move || {
            figure(&runtime)
        }));
    }
    if workload.is_balanced() {
        let halves = Halves::new(workers);
        contenders.push(joining("halves", Role::Floor, halves, workload));
    }
    contenders
}

fn joining<'a, P, W>(name: &'static str, role: Role, pool: P, workload: &'a W) -> Contender<'a>
where
    P: ForkJoin + 'a,
    W: ForkJoinWorkload,
{
    Contender::new(name, role, move || workload.figure(&pool))
}

/// Someone who is shown every pool that takes independent closures.
pub(super) trait Visitor {
    fn pool<P: Spawner + 'static>(&mut self, name: &'static str, role: Role, build: fn(usize) -> P);
}

/// Shows every pool that takes independent closures.
pub(super) fn visit_spawners(visitor: &mut impl Visitor) {
    visitor.pool("loxley", Role::Subject, Loxley::new);
    #[cfg(feature = "peers")]
    {
        visitor.pool("rayon", Role::Peer, Rayon::new);
        visitor.pool("forte", Role::Peer, Forte::spawning);
        visitor.pool("tokio", Role::Peer, Tokio::new);
        visitor.pool("crossbeam", Role::Peer, Crossbeam::new);
    }
}

/// Every pool of `workers` workers that takes independent closures, at the given work.
pub(super) fn spawners<W: SpawnWorkload>(workload: &W, workers: usize) -> Vec<Contender<'_>> {
    struct Spawning<'a, W> {
        workload: &'a W,
        workers: usize,
        contenders: Vec<Contender<'a>>,
    }
    impl<W: SpawnWorkload> Visitor for Spawning<'_, W> {
        fn pool<P>(&mut self, name: &'static str, role: Role, build: fn(usize) -> P)
        where
            P: Spawner + 'static,
        {
            let (workload, pool) = (self.workload, build(self.workers));
            let contender = Contender::new(name, role, move || workload.figure(&pool));
            self.contenders.push(contender);
        }
    }
    let mut spawning = Spawning {
        workload,
        workers,
        contenders: Vec::new(),
    };
    visit_spawners(&mut spawning);
    spawning.contenders
}

/// Every pool of `workers` workers that has scopes whose closures can spawn more, at the given work.
pub(super) fn scoping<W: ScopeWorkload>(workload: &W, workers: usize) -> Vec<Contender<'_>> {
    fn scoping<'a, P, W>(name: &'static str, role: Role, pool: P, workload: &'a W) -> Contender<'a>
    where
        P: Scoping + 'a,
        W: ScopeWorkload,
    {
        Contender::new(name, role, move || workload.figure(&pool))
    }
    vec![
        scoping("loxley", Role::Subject, Loxley::new(workers), workload),
        #[cfg(feature = "peers")]
        scoping("rayon", Role::Peer, Rayon::new(workers), workload),
    ]
}

/// Building a pool of `workers` workers and dropping it again, in microseconds.
pub(super) fn builders(workers: usize) -> Vec<Contender<'static>> {
    struct Building {
        workers: usize,
        contenders: Vec<Contender<'static>>,
    }
    impl Visitor for Building {
        fn pool<P>(&mut self, name: &'static str, role: Role, build: fn(usize) -> P)
        where
            P: Spawner + 'static,
        {
            let workers = self.workers;
            let contender = Contender::new(name, role, move || {
                let start = Instant::now();
                drop(build(workers));
                start.elapsed().as_secs_f64() * 1e6
            });
            self.contenders.push(contender);
        }
    }
    let mut building = Building {
        workers,
        contenders: Vec::new(),
    };
    visit_spawners(&mut building);
    building.contenders
}
