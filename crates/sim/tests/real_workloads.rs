//! The readers on real files, where the shared data folder is beside the repository.
#![expect(clippy::unwrap_used, reason = "a test: a failure is the message")]

mod shared_data;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use loxley_sim::checkers::DequeCheckers;
use loxley_sim::{DequeSetup, Load, deque_world, readers};

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_str().is_some_and(|name| name.ends_with(ending)))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "nothing in {}", folder.display());
    files
}

#[test]
fn the_critical_path_of_a_task_graph_is_the_one_its_file_states() {
    let Some(data) =
        shared_data::folder("the_critical_path_of_a_task_graph_is_the_one_its_file_states")
    else {
        return;
    };
    for path in files(&data.join("stg/50"), ".stg") {
        let text = std::fs::read_to_string(&path).unwrap();
        let stated: u64 = text
            .lines()
            .find_map(|line| line.strip_prefix("# CP Length           :"))
            .and_then(|value| value.trim().parse().ok())
            .unwrap();
        let workload = readers::read(&path).unwrap();
        assert_eq!(workload.len(), 52, "{}", path.display());
        assert_eq!(workload.critical_path(), stated * 1_000_000_000);
    }
}

#[test]
fn every_workflow_runs_to_its_end() {
    let Some(data) = shared_data::folder("every_workflow_runs_to_its_end") else {
        return;
    };
    for path in files(&data.join("wfinstances"), ".json") {
        let workload = Arc::new(readers::read(&path).unwrap());
        let setup = DequeSetup::new(16, Load::Graph(Arc::clone(&workload)));
        let mut checkers = DequeCheckers::new(16, Some(Arc::clone(&workload)));
        let statistics = deque_world::run(&setup, 1, &mut checkers);
        checkers.verdict(workload.len() as u64).unwrap();
        assert_eq!(statistics.critical_path, workload.critical_path());
        assert!(statistics.makespan >= statistics.lower_bound());
    }
}

#[test]
fn a_compressed_log_is_read_whole() {
    let Some(data) = shared_data::folder("a_compressed_log_is_read_whole") else {
        return;
    };
    let path = data.join("traces/NASA-iPSC-1993-3.1-cln.swf.gz");
    let workload = readers::read(&path).unwrap();
    assert_eq!(workload.len(), 18_066, "jobs that ran");
}

#[test]
fn a_file_that_is_missing_or_of_no_known_kind_is_named() {
    let missing = readers::read(Path::new("no/such.stg")).unwrap_err();
    assert!(missing.to_string().starts_with("no/such.stg: "));
    let unknown = readers::read(Path::new("work.txt")).unwrap_err();
    assert!(unknown.to_string().contains("not a workload"));
}
