//! Files that people write: jobs, configurations, workloads.

use loxley_model::TaskId;
use loxley_sim::readers::{csv, stg, swf, wfcommons};

/// A job file that is taken can be planned, and its graph is one.
pub(crate) fn job_file(bytes: &[u8]) {
    let Ok(file) = loxley_jobfile::parse_bytes(bytes) else {
        return;
    };
    // Planning makes a record for each task; a small file may stand for a million.
    if file.count() > 10_000 {
        return;
    }
    if !file.request.tasks.is_empty() {
        assert_eq!(
            file.request.check(),
            Ok(()),
            "a server takes what a file says"
        );
    }
    let plan = loxley_jobfile::Plan::new(&file.request, TaskId(1));
    for id in (1..=file.count()).map(TaskId) {
        let planned = plan.find(id).expect("it has a number");
        assert_eq!(plan.id(planned), id);
        assert!(
            plan.dependencies(&file.request, planned)
                .iter()
                .all(|other| *other != id)
        );
    }
}

/// A configuration that is taken is the same when it was written out and read again.
pub(crate) fn config(bytes: &[u8]) {
    let Ok(config) = loxley_config::parse_bytes(bytes) else {
        return;
    };
    let text = loxley_config::to_yaml(&config);
    let again = loxley_config::parse(&text);
    let again = again.unwrap_or_else(|mistakes| panic!("{mistakes}\nin what we wrote:\n{text}"));
    assert_eq!(again, config, "{text}");
}

/// Every format of a workload, picked by the first byte.
pub(crate) fn workload(bytes: &[u8]) {
    let Some((format, rest)) = bytes.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(rest);
    let read = match format {
        b'c' => csv::parse(&text),
        b's' => stg::parse(&text),
        b'l' => swf::parse(&text),
        _ => wfcommons::parse(&text),
    };
    if let Err(problem) = read {
        let lines = text.lines().count() as u64;
        assert!(problem.line <= lines + 1, "{problem} in {lines} lines");
    }
}

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

pub(crate) fn job_file_seeds() -> Vec<Vec<u8>> {
    let mut seeds = texts(&[
        "tasks:\n  - {name: a, command: 'echo {}', array: 1-9}\n",
        "name: nightly\nagents:\n  - {name: ada, skills: [text, gpu], slots: 2}\ntasks:\n  - {name: split, command: split -n 4 big part-}\n  - {name: count, each: [aa, ab], command: 'wc -w part-{}', skills: [text], after: [split], retries: 2, time_limit: 10s, priority: high}\n",
    ]);
    seeds.push(include_bytes!("../../../examples/quickstart.yaml").to_vec());
    seeds
}

pub(crate) fn config_seeds() -> Vec<Vec<u8>> {
    let mut seeds = texts(&[
        "",
        "{}",
        "heartbeats:\n  suspect_after: 3s\n  lost_after: 10s\n",
    ]);
    seeds.push(loxley_config::default_yaml().into_bytes());
    seeds
}

pub(crate) fn workload_seeds() -> Vec<Vec<u8>> {
    texts(&[
        "cid,cost,after\n1,2.5,\n2,1,1\n3,1,1;2\n",
        "s3\n0 0 0\n1 5 1 0\n2 4 1 0\n3 2 2 1 2\n4 0 1 3\n# comment\n",
        "l; comment\n1 0 5 100 4 -1 -1 4 200 -1 1 1 1 -1 1 -1 -1 -1\n2 9 1 50 1 -1 -1 1 60 -1 1 2 1 -1 1 -1 1 3\n",
        r#"w{"name":"x","schemaVersion":"1.5","workflow":{"specification":{"tasks":[{"name":"a","id":"a","parents":[],"children":["b"]},{"name":"b","id":"b","parents":["a"],"children":[]}]},"execution":{"makespanInSeconds":3,"executedAt":"x","tasks":[{"id":"a","runtimeInSeconds":1.5},{"id":"b","runtimeInSeconds":2}]}}}"#,
    ])
}
