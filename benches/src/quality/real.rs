//! Generated graphs through a real server: processes that sleep, on agents with one slot each.

use std::sync::Arc;

use anyhow::Result;
use loxley_api::{JobRequest, TaskRequest};
use loxley_sim::Workload;
use loxley_sim::generate::Shape;
use loxley_sim::quality::{Question, geometric_mean};
use loxley_sim::workload::{TaskRecord, WorkloadBuilder};

use super::{Row, Table};
use crate::Options;
use crate::server::{Fleet, command};

/// A second of a generated graph takes so long here.
const SCALE: f64 = 0.1;
const AGENTS: usize = 4;

pub(super) fn run(options: &Options, seed: u64, table: &mut Table) -> Result<()> {
    let case = "real server";
    if !options.wants(case) {
        return Ok(());
    }
    let fleet = Fleet::start(true, AGENTS as u32, 1, 1)?;
    let count = if options.quick { 1 } else { 3 };
    for shape in Shape::GRAPHS.into_iter().chain([Shape::Independent]) {
        let case = format!("{case}, {}", shape.name());
        let (mut ours, mut predicted, mut listed) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..count {
            let workload = scaled(&shape.workload(60, seed.wrapping_add(number)));
            let makespans = Question::new(&workload, AGENTS, seed).makespans();
            let took = fleet.time(&job(&workload));
            let over_bound = |seconds: f64| seconds * 1e9 / makespans.lower_bound as f64;
            ours.push(over_bound(took));
            predicted.push(over_bound(makespans.ours as f64 / 1e9));
            listed.push(over_bound(makespans.b_level as f64 / 1e9));
        }
        let row = Row::new(case, AGENTS, ours.len(), "x bound");
        table.row(
            &row.loxley(geometric_mean(&ours))
                .with("simulated", geometric_mean(&predicted))
                .with("b_level", geometric_mean(&listed)),
        );
    }
    Ok(())
}

fn scaled(workload: &Workload) -> Arc<Workload> {
    let mut builder = WorkloadBuilder::default();
    for task in workload.tasks() {
        let work = (task.work as f64 * SCALE) as u64;
        builder.add(TaskRecord::new(task.name.clone(), work));
    }
    for task in 0..workload.len() as u32 {
        for &before in workload.predecessors(task) {
            builder.edge(before, task);
        }
    }
    Arc::new(builder.build().expect("it was a workload before"))
}

fn job(workload: &Workload) -> JobRequest {
    let tasks = workload.tasks().iter().enumerate().map(|(number, task)| {
        let seconds = task.work as f64 / 1e9;
        let before = workload.predecessors(number as u32).iter();
        let names = before.map(|&before| workload.tasks()[before as usize].name.to_string());
        TaskRequest {
            name: Some(task.name.to_string()),
            depends_on: names.collect(),
            cost_sec: Some(seconds),
            ..TaskRequest::new(command(&["sleep", &format!("{seconds:.4}")]))
        }
    });
    JobRequest {
        tasks: tasks.collect(),
        ..JobRequest::default()
    }
}
