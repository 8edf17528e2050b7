//! Our scheduler against list scheduling, HEFT, known optima and plain stealing on real graphs.
#![expect(clippy::unwrap_used, reason = "a test: a failure is the message")]

mod shared_data;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use loxley_sim::quality::{Makespans, Question, geometric_mean};
use loxley_sim::reference::list::{self, Order};
use loxley_sim::reference::{b_level, heft};
use loxley_sim::workload::{TaskRecord, WorkloadBuilder};
use loxley_sim::{Workload, readers};
use proptest::prelude::*;

/// What counts as equal to list scheduling, in the geometric mean: where agents are kept full, as the product does,
/// and where they ask for each task.
const TOLERANCE: f64 = 1.003;

fn graphs(folder: &Path) -> Vec<(String, Arc<Workload>)> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, Arc::new(readers::read(&path).unwrap()))
        })
        .collect()
}

fn optima(data: &Path, processors: u32) -> HashMap<String, u64> {
    let path = data.join(format!("stg/optima/Case50_{processors}_OPT.csv"));
    std::fs::read_to_string(path)
        .unwrap()
        .lines()
        .filter_map(|line| {
            let mut words = line.split(',');
            let name = words.next()?.strip_prefix("50/")?.to_owned();
            let optimum: u64 = words.nth(1)?.trim().parse().ok()?;
            Some((name, optimum * 1_000_000_000))
        })
        .collect()
}

/// Geometric means of the makespans over some yardstick.
fn means(rows: &[(Makespans, u64)]) -> [f64; 6] {
    let of = |figure: fn(&Makespans) -> u64| {
        let ratios: Vec<f64> = rows
            .iter()
            .map(|(row, yardstick)| figure(row) as f64 / *yardstick as f64)
            .collect();
        geometric_mean(&ratios)
    };
    [
        of(|row| row.b_level),
        of(|row| row.heft),
        of(|row| row.ours),
        of(|row| row.ours_on_request),
        of(|row| row.ours_blind),
        of(|row| row.stealing),
    ]
}

/// `ratios` are of ours to list scheduling: kept full, and on request.
fn assert_near_list_scheduling(ratios: &[[f64; 2]]) {
    for way in [0, 1] {
        let ratios: Vec<f64> = ratios.iter().map(|both| both[way]).collect();
        let mean = geometric_mean(&ratios);
        assert!(mean <= TOLERANCE, "{mean} times list scheduling");
    }
}

#[test]
fn on_standard_task_graphs_ours_equals_list_scheduling() {
    let Some(data) = shared_data::folder("on_standard_task_graphs_ours_equals_list_scheduling")
    else {
        return;
    };
    println!("÷ optimum     b-level    HEFT    ours    on request  blind   stealing");
    let mut ratios = Vec::new();
    for processors in [4, 8, 16] {
        let optima = optima(&data, processors);
        let rows: Vec<(Makespans, u64)> = graphs(&data.join("stg/50"))
            .iter()
            .map(|(name, workload)| {
                let row = Question::new(workload, processors as usize, 1).makespans();
                let optimum = optima[name];
                for makespan in [
                    row.b_level,
                    row.heft,
                    row.ours,
                    row.ours_on_request,
                    row.ours_blind,
                    row.stealing,
                ] {
                    assert!(makespan >= optimum, "{name}: nothing beats a known optimum");
                }
                (row, optimum)
            })
            .collect();
        let [list, heft, ours, on_request, blind, stealing] = means(&rows);
        println!(
            "P = {processors:3}       {list:.4}  {heft:.4}  {ours:.4}  {on_request:.4}      {blind:.4}  {stealing:.4}"
        );
        assert!(ours <= stealing * TOLERANCE, "{ours} against {stealing}");
        ratios.push([ours / list, on_request / list]);
    }
    assert_near_list_scheduling(&ratios);
}

#[test]
fn on_scientific_workflows_ours_equals_list_scheduling() {
    let Some(data) = shared_data::folder("on_scientific_workflows_ours_equals_list_scheduling")
    else {
        return;
    };
    let mut ratios = Vec::new();
    println!("÷ bound       b-level    HEFT    ours    on request  blind   stealing");
    for processors in [4, 16, 64] {
        let rows: Vec<(Makespans, u64)> = graphs(&data.join("wfinstances"))
            .iter()
            .map(|(_, workload)| {
                let row = Question::new(workload, processors as usize, 1).makespans();
                (row, row.lower_bound)
            })
            .collect();
        let [list, heft, ours, on_request, blind, stealing] = means(&rows);
        println!(
            "P = {processors:3}       {list:.4}  {heft:.4}  {ours:.4}  {on_request:.4}      {blind:.4}  {stealing:.4}"
        );
        assert!(ours <= stealing * TOLERANCE, "{ours} against {stealing}");
        ratios.push([ours / list, on_request / list]);
    }
    assert_near_list_scheduling(&ratios);
}

/// What counts as near HEFT, which knows the whole graph beforehand, in the geometric mean.
const NEAR_HEFT: f64 = 1.10;

#[test]
fn with_half_of_the_fleet_four_times_slower_ours_is_near_heft() {
    let name = "with_half_of_the_fleet_four_times_slower_ours_is_near_heft";
    let Some(data) = shared_data::folder(name) else {
        return;
    };
    println!("÷ bound                 b-level    HEFT    ours    on request  blind   stealing");
    for (folder, processors) in [
        ("stg/50", 4),
        ("stg/50", 16),
        ("wfinstances", 4),
        ("wfinstances", 16),
    ] {
        let rows: Vec<(Makespans, u64)> = graphs(&data.join(folder))
            .iter()
            .map(|(_, workload)| {
                let question = Question::new(workload, processors, 1).with_slow_half(4.0);
                let row = question.makespans();
                (row, row.lower_bound)
            })
            .collect();
        let [list, heft, ours, on_request, blind, stealing] = means(&rows);
        println!(
            "{folder:11} P = {processors:3}   {list:.4}  {heft:.4}  {ours:.4}  {on_request:.4}      {blind:.4}  {stealing:.4}"
        );
        for ours in [ours, on_request] {
            assert!(ours <= heft * NEAR_HEFT, "{ours} against {heft}");
            assert!(ours <= list * TOLERANCE, "{ours} against {list}");
        }
    }
}

proptest! {
    #[test]
    fn reference_schedules_are_schedules_and_no_plan_gets_longer_where_costs_are_true(
        works in prop::collection::vec(0_u64..100, 1..40),
        edges in prop::collection::vec((0_u32..40, 0_u32..40), 0..80),
        processors in 1_u32..6,
    ) {
        let mut builder = WorkloadBuilder::default();
        for (index, work) in works.iter().enumerate() {
            builder.add(TaskRecord::new(format!("t{index}"), *work));
        }
        for (one, other) in edges {
            let (before, after) = (one.min(other), one.max(other));
            if before != after && after < builder.len() {
                builder.edge(before, after);
            }
        }
        let workload = builder.build().unwrap();
        let costs = workload.works();
        let list = b_level::schedule(&workload, &vec![1.0; processors as usize], &costs);
        prop_assert_eq!(list.problem(&workload), None);
        let speeds: Vec<f64> = (0..processors).map(|index| 1.0 + f64::from(index)).collect();
        let planned = heft::schedule(&workload, &speeds, &costs);
        prop_assert_eq!(planned.problem(&workload), None);
        prop_assert!(planned.executed(&workload, &speeds).makespan() <= planned.makespan());
        let wrong = heft::schedule(&workload, &speeds, &vec![1; costs.len()]);
        prop_assert_eq!(wrong.executed(&workload, &speeds).problem(&workload), None);
        for order in [Order::FirstReady, Order::Largest(&costs), Order::Smallest(&costs)] {
            prop_assert_eq!(list::schedule(&workload, &speeds, order).problem(&workload), None);
        }
        let count = f64::from(processors);
        let bound = workload.total_work() as f64 / count
            + (1.0 - 1.0 / count) * workload.critical_path() as f64;
        prop_assert!(list.makespan() as f64 <= bound + 1e-6);
    }
}
