//! Makespans of task graphs and of independent tasks.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use loxley_balance::Rng;
use loxley_sim::generate::Shape;
use loxley_sim::quality::{Makespans, Question, geometric_mean};
use loxley_sim::workload::{TaskRecord, WorkloadBuilder};
use loxley_sim::{Costs, Workload, readers};

use super::{Row, Table};
use crate::Options;

/// Workloads that make one row.
struct Set {
    name: String,
    workloads: Vec<Arc<Workload>>,
}

pub(super) fn run(options: &Options, seed: u64, table: &mut Table) -> Result<()> {
    let sets = graph_sets(options, seed)?;
    for set in sets.iter().chain(&independent_sets(options, seed)) {
        for processors in [4, 16, 64] {
            let case = format!("equal, {}", set.name);
            if options.wants(&case) {
                let rows = set.rows(seed, processors, |question| question);
                let row = common(&case, processors, &rows);
                table.row(&if set.name.starts_with("independent") {
                    beside_worst(row, 1.05, "lpt", &rows, |row| row.lpt)
                } else {
                    beside(row, 1.0, "b_level", &rows, |row| row.b_level)
                });
            }
        }
    }
    for set in sets.iter().chain(&independent_sets(options, seed)) {
        for processors in [4, 16] {
            let case = format!("half 4 x slower, {}", set.name);
            if options.wants(&case) {
                let rows = set.rows(seed, processors, |question| question.with_slow_half(4.0));
                let row = common(&case, processors, &rows);
                table.row(&beside(row, 1.03, "heft", &rows, |row| row.heft));
            }
        }
    }
    for factor in [2.0, 5.0, 10.0] {
        for set in &sets {
            let case = format!("costs wrong x{factor}, {}", set.name);
            if options.wants(&case) {
                let costs = Costs::WrongBy(factor);
                let rows = set.rows(seed, 16, |question| question.with_costs(costs));
                let row = common(&case, 16, &rows);
                table.row(&beside(row, 1.0, "b_level", &rows, |row| row.b_level));
            }
        }
    }
    Ok(())
}

impl Set {
    fn rows(
        &self,
        seed: u64,
        processors: usize,
        vary: impl Fn(Question) -> Question,
    ) -> Vec<Makespans> {
        self.workloads
            .iter()
            .map(|workload| vary(Question::new(workload, processors, seed)).makespans())
            .collect()
    }
}

/// Real graphs if there are any, and generated ones.
fn graph_sets(options: &Options, seed: u64) -> Result<Vec<Set>> {
    let mut sets = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [
        root.join("../../shared/data"),
        root.join("../../../shared/data"),
    ];
    match folders.iter().find(|folder| folder.is_dir()) {
        Some(data) => {
            sets.push(read("standard task graphs", &data.join("stg/50"))?);
            sets.push(read("workflows", &data.join("wfinstances"))?);
        }
        None => writeln!(
            io::stderr(),
            "NOT RUN: real graphs: no folder ../shared/data beside the repository"
        )?,
    }
    let count = if options.quick { 4 } else { 16 };
    for shape in Shape::GRAPHS {
        sets.push(Set {
            name: shape.name().to_owned(),
            workloads: generated(shape, count, seed),
        });
    }
    Ok(sets)
}

fn read(name: &str, folder: &Path) -> Result<Set> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        paths.push(entry?.path());
    }
    paths.sort();
    let workloads = paths.iter().map(|path| Ok(Arc::new(readers::read(path)?)));
    Ok(Set {
        name: name.to_owned(),
        workloads: workloads.collect::<Result<_>>()?,
    })
}

/// So many graphs of a shape, of thirty to three hundred tasks.
pub(super) fn generated(shape: Shape, count: usize, seed: u64) -> Vec<Arc<Workload>> {
    let mut sizes = Rng::new(seed).child(shape.name());
    (0..count as u64)
        .map(|number| {
            let size = 30 + sizes.below(270) as u32;
            Arc::new(shape.workload(size, seed.wrapping_add(number)))
        })
        .collect()
}

/// Independent tasks in several orders: as they come, the short ones first, and many short ones before one
/// that is as long as all of them together on one of the processors.
fn independent_sets(options: &Options, seed: u64) -> Vec<Set> {
    let count = if options.quick { 4 } else { 16 };
    let drawn = generated(Shape::Independent, count, seed);
    let resorted = |order: fn(&mut Vec<u64>)| {
        drawn
            .iter()
            .map(|workload| {
                let mut works = workload.works();
                order(&mut works);
                Arc::new(independent(&works))
            })
            .collect()
    };
    let long_last: fn(&mut Vec<u64>) = |works| works.push(works.iter().sum::<u64>() / 4);
    vec![
        Set {
            name: "independent".to_owned(),
            workloads: drawn.clone(),
        },
        Set {
            name: "independent, short first".to_owned(),
            workloads: resorted(|works| works.sort_unstable()),
        },
        Set {
            name: "independent, one long last".to_owned(),
            workloads: resorted(long_last),
        },
    ]
}

fn independent(works: &[u64]) -> Workload {
    let mut builder = WorkloadBuilder::default();
    for (number, &work) in works.iter().enumerate() {
        builder.add(TaskRecord::new(format!("t{number}"), work));
    }
    builder.build().expect("there are tasks and no edges")
}

/// Geometric means over the lower bound.
fn common(case: &str, processors: usize, rows: &[Makespans]) -> Row {
    let over_bound = |figure: fn(&Makespans) -> u64| {
        let ratio = |row: &Makespans| figure(row) as f64 / row.lower_bound.max(1) as f64;
        geometric_mean(&rows.iter().map(ratio).collect::<Vec<_>>())
    };
    let worst = rows
        .iter()
        .map(|row| row.ours as f64 / row.lower_bound.max(1) as f64)
        .fold(0.0, f64::max);
    Row::new(case, processors, rows.len(), "x bound")
        .loxley(over_bound(|row| row.ours))
        .with("worst", worst)
        .with("on_request", over_bound(|row| row.ours_on_request))
        .with("costs_unknown", over_bound(|row| row.ours_blind))
        .with("b_level", over_bound(|row| row.b_level))
        .with("heft", over_bound(|row| row.heft))
        .with("lpt", over_bound(|row| row.lpt))
        .with("fifo", over_bound(|row| row.fifo))
        .with("stealing", over_bound(|row| row.stealing))
}

/// The goal: at most so many times a reference, in the geometric mean.
fn beside(row: Row, most: f64, name: &str, rows: &[Makespans], of: fn(&Makespans) -> u64) -> Row {
    let ratio = geometric_mean(&ratios(rows, of));
    row.with("ratio", ratio)
        .goal(format!("<= {most} x {name}"), ratio <= most + 5e-5)
}

/// The goal: at most so many times a reference, for each of them.
fn beside_worst(
    row: Row,
    most: f64,
    name: &str,
    rows: &[Makespans],
    of: fn(&Makespans) -> u64,
) -> Row {
    let ratio = ratios(rows, of).into_iter().fold(0.0, f64::max);
    row.with("worst_ratio", ratio)
        .goal(format!("each <= {most} x {name}"), ratio <= most + 5e-5)
}

fn ratios(rows: &[Makespans], of: fn(&Makespans) -> u64) -> Vec<f64> {
    rows.iter()
        .map(|row| row.ours as f64 / of(row).max(1) as f64)
        .collect()
}
