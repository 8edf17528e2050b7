//! Independent tasks with deadlines: how many are missed, beside earliest deadline first and others that know
//! everything; and whether what is reported as lost is lost.

use std::collections::HashMap;
use std::sync::Arc;

use loxley_balance::Rng;
use loxley_model::Priority;
use loxley_sim::fleet::{self, FleetLoad, FleetSetup, FleetTasks, TaskGroup};
use loxley_sim::reference::list::{self, Order};
use loxley_sim::time::Nanos;
use loxley_sim::workload::{TaskRecord, WorkloadBuilder};
use loxley_sim::{Arrivals, Distribution, Happening, Observer, Workload};

use super::{Row, Table};
use crate::Options;

pub(super) fn run(options: &Options, seed: u64, table: &mut Table) {
    for (case, arrivals) in [
        ("deadlines, all at once", false),
        ("deadlines, as they come", true),
    ] {
        for processors in [4, 16] {
            if options.wants(case) {
                let count = if options.quick { 4 } else { 20 };
                let mut rng = Rng::new(seed).numbered_child(case, processors as u64);
                let mut all = Counts::default();
                for _ in 0..count {
                    all.add(&one(processors, arrivals, &mut rng));
                }
                table.row(&all.row(case, processors, count));
            }
        }
    }
}

/// Tasks, and how many of them were late.
#[derive(Default)]
struct Counts {
    tasks: usize,
    ours: usize,
    earliest: usize,
    fifo: usize,
    longest: usize,
    /// Reported as lost, and met.
    false_alarms: usize,
    /// Late, and never reported.
    unreported: usize,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.tasks += other.tasks;
        self.ours += other.ours;
        self.earliest += other.earliest;
        self.fifo += other.fifo;
        self.longest += other.longest;
        self.false_alarms += other.false_alarms;
        self.unreported += other.unreported;
    }

    fn row(&self, case: &str, processors: usize, count: usize) -> Row {
        let percent = |late: usize| 100.0 * late as f64 / self.tasks as f64;
        let truthful = self.false_alarms == 0 && self.unreported == 0;
        let few = percent(self.ours) <= percent(self.earliest) * 1.05 + 0.5;
        Row::new(case, processors, count, "% late")
            .loxley(percent(self.ours))
            .with("earliest_deadline_first", percent(self.earliest))
            .with("fifo", percent(self.fifo))
            .with("lpt", percent(self.longest))
            .with("false_alarms", self.false_alarms as f64)
            .with("unreported", self.unreported as f64)
            .goal("as EDF, no false alarm, none unreported", truthful && few)
    }
}

fn one(processors: usize, stream: bool, rng: &mut Rng) -> Counts {
    let seed = rng.next_u64();
    let count = processors as u32 * 20;
    // Twenty seconds of work for each, and deadlines in three steps: the order decides who is late.
    let groups = [6.0, 14.0, 24.0].map(|deadline| TaskGroup {
        count: count / 3,
        work: Distribution::Uniform(0.2, 1.8),
        arrivals: if stream {
            Arrivals::Poisson(processors as f64 * 0.35)
        } else {
            Arrivals::AtOnce
        },
        kind: Arc::default(),
        priorities: vec![Priority::NORMAL],
        declared: true,
        deadline: Some((deadline * 0.9e9) as Nanos),
        onto: None,
    });
    let mut setup = FleetSetup::new(
        processors,
        FleetLoad::Groups(groups.into_iter().rev().collect()),
    );
    setup.config.speculation.enabled = false;
    let tasks = setup.tasks(&Rng::new(seed));
    setup.load = FleetLoad::Given(Arc::clone(&tasks));
    let mut watch = Watch::default();
    fleet::run(&setup, seed, &mut watch);
    let (workload, deadlines) = as_workload(&tasks, &watch.submitted);
    let speeds = vec![1.0; processors];
    let late = |order| {
        let schedule = list::schedule(&workload, &speeds, order);
        let ends = schedule.times.iter().zip(&deadlines);
        ends.filter(|((_, end), deadline)| end > deadline).count()
    };
    let deadline_of = |task: &u64| deadlines[*task as usize];
    let mut counts = Counts {
        tasks: tasks.len(),
        earliest: late(Order::Smallest(&deadlines)),
        fifo: late(Order::FirstReady),
        longest: late(Order::Largest(&workload.works())),
        ..Counts::default()
    };
    for (task, &end) in &watch.ended {
        let is_late = end > deadline_of(task);
        let reported = watch.lost.contains_key(task);
        counts.ours += usize::from(is_late);
        counts.false_alarms += usize::from(reported && !is_late);
        counts.unreported += usize::from(is_late && !reported);
    }
    counts
}

fn as_workload(tasks: &FleetTasks, submitted: &HashMap<u64, Nanos>) -> (Workload, Vec<Nanos>) {
    let mut builder = WorkloadBuilder::default();
    let mut deadlines: Vec<Nanos> = Vec::new();
    // Jobs come one after the other, also in one moment: nobody knows the next one when it begins with the first.
    let mut jobs = 0;
    for (number, &work) in tasks.work().iter().enumerate() {
        let deadline = tasks.spec(number).deadline.expect("each has one").0;
        jobs += u64::from(deadlines.last().is_some_and(|last| *last != deadline));
        let mut record = TaskRecord::new(format!("t{number}"), work);
        record.release = submitted[&(number as u64)] + jobs;
        builder.add(record);
        deadlines.push(deadline);
    }
    (builder.build().expect("there are no edges"), deadlines)
}

/// Sees when tasks came, when they ended and which were said to be lost.
#[derive(Default)]
struct Watch {
    submitted: HashMap<u64, Nanos>,
    ended: HashMap<u64, Nanos>,
    lost: HashMap<u64, Nanos>,
}

impl Observer for Watch {
    fn see(&mut self, now: Nanos, happening: &Happening) {
        let (book, task) = match *happening {
            Happening::Submitted { task } => (&mut self.submitted, task),
            Happening::Ended { task, .. } => (&mut self.ended, task),
            Happening::DeadlineLost { task } => (&mut self.lost, task),
            _ => return,
        };
        book.insert(task, now);
    }
}
