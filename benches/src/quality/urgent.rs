//! Urgent tasks beside normal ones in their place: the same fleet, the same load, the same tasks, once with
//! priority 5 and once with 3.

use std::sync::Arc;

use loxley_balance::Rng;
use loxley_model::Priority;
use loxley_sim::fleet::{self, FleetLoad, FleetSetup, TaskGroup};
use loxley_sim::quality::geometric_mean;
use loxley_sim::time::{Nanos, nanos};
use loxley_sim::{Arrivals, Distribution, Happening, Observer};

use super::{Row, Table};
use crate::Options;

pub(super) fn run(options: &Options, seed: u64, table: &mut Table) {
    if options.wants("urgent, two busy agents") {
        let ratios = [true, false].map(|declared| two_busy_agents(declared).ratio(seed));
        table.row(&row("urgent, two busy agents", 2, &ratios));
    }
    for processors in [2, 4, 8] {
        if options.wants("urgent, random fleets") {
            let count = if options.quick { 50 } else { 400 };
            let mut rng = Rng::new(seed).numbered_child("urgent", processors as u64);
            let ratios: Vec<f64> = (0..count)
                .map(|_| Place::drawn(processors, &mut rng).ratio(rng.next_u64()))
                .collect();
            table.row(&row("urgent, random fleets", processors, &ratios));
        }
    }
}

fn row(case: &str, processors: usize, ratios: &[f64]) -> Row {
    let worst = ratios.iter().copied().fold(0.0, f64::max);
    let slower = ratios.iter().filter(|ratio| **ratio > 1.0001).count();
    Row::new(case, processors, ratios.len(), "x normal")
        .loxley(geometric_mean(ratios))
        .with("worst", worst)
        .with("slower_than_normal", slower as f64)
        .goal("never slower", slower == 0)
}

/// A load, and tasks that come into the middle of it.
struct Place {
    processors: usize,
    others: TaskGroup,
    first: Option<TaskGroup>,
    tagged: TaskGroup,
}

/// One agent is busy for six seconds, one for one and a half; then two tasks come.
fn two_busy_agents(declared: bool) -> Place {
    let group = |seconds: f64, at: f64, count: u32| TaskGroup {
        declared,
        ..group(count, Distribution::Fixed(seconds), Arrivals::At(at))
    };
    Place {
        processors: 2,
        first: Some(group(6.0, 0.0, 1)),
        others: group(1.5, 0.0, 1),
        tagged: group(0.1, 0.2, 2),
    }
}

fn group(count: u32, work: Distribution, arrivals: Arrivals) -> TaskGroup {
    TaskGroup {
        count,
        work,
        arrivals,
        kind: Arc::default(),
        priorities: vec![Priority::NORMAL],
        declared: true,
        deadline: None,
        onto: None,
    }
}

impl Place {
    fn drawn(processors: usize, rng: &mut Rng) -> Self {
        let sigma = 0.3 + 1.2 * rng.unit_f64();
        let work = Distribution::LogNormal { median: 1.0, sigma };
        let count = processors as u32 * (1 + rng.below(8) as u32);
        let arrivals = if rng.chance(0.5) {
            Arrivals::AtOnce
        } else {
            Arrivals::Poisson(processors as f64 * 0.8)
        };
        let declared = rng.chance(0.5);
        let at = 0.1 + 4.0 * rng.unit_f64();
        let tagged = group(1 + rng.below(2) as u32, work, Arrivals::At(at));
        Self {
            processors,
            first: None,
            others: TaskGroup {
                declared,
                ..group(count, work, arrivals)
            },
            tagged: TaskGroup { declared, ..tagged },
        }
    }

    /// How long urgent tasks take from their submission to the end of the last, over the same for normal ones.
    fn ratio(&self, seed: u64) -> f64 {
        let urgent = Priority::new(5).expect("five is a priority");
        self.response(urgent, seed) as f64 / self.response(Priority::NORMAL, seed).max(1) as f64
    }

    fn response(&self, priority: Priority, seed: u64) -> Nanos {
        let tagged = TaskGroup {
            priorities: vec![priority],
            ..self.tagged.clone()
        };
        let Arrivals::At(moment) = tagged.arrivals else {
            unreachable!("tagged tasks come at a moment");
        };
        let moment = nanos(moment);
        let groups = self.first.iter().cloned();
        let groups = groups.chain([self.others.clone(), tagged]).collect();
        let mut setup = FleetSetup::new(self.processors, FleetLoad::Groups(groups));
        setup.config.speculation.enabled = false;
        let tasks = setup.tasks(&Rng::new(seed));
        // Whoever is submitted at that very moment is a tagged one.
        let mut watch = Watch {
            moment,
            tagged: Vec::new(),
            last: 0,
        };
        setup.load = FleetLoad::Given(tasks);
        fleet::run(&setup, seed, &mut watch);
        assert_eq!(watch.tagged.len(), self.tagged.count as usize, "all came");
        watch.last - moment
    }
}

/// Sees when the tagged tasks end.
struct Watch {
    moment: Nanos,
    tagged: Vec<u64>,
    last: Nanos,
}

impl Observer for Watch {
    fn see(&mut self, now: Nanos, happening: &Happening) {
        match *happening {
            Happening::Submitted { task } if now == self.moment => self.tagged.push(task),
            Happening::Ended { task, .. } if self.tagged.contains(&task) => self.last = now,
            _ => {}
        }
    }
}
