//! Groups and rows to write.

use loxley_journal::{AgentRow, Ended, Group, JobRow, JobState, Rows, TaskOutput, TaskRow, Usage};
use loxley_model::{AgentId, Failure, JobId, Span, TaskId, Time};

pub(crate) fn task(task: u64, job: u64, ended: Ended) -> TaskRow {
    TaskRow {
        task: TaskId(task),
        job: JobId(job),
        entry: Some(task),
        ended,
        exit_code: Some(i32::from(ended != Ended::Succeeded)),
        signal: None,
        agent: Some(AgentId(3)),
        attempt: 1,
        created: Time(10),
        started: Some(Time(20)),
        finished: Time(30),
        usage: Some(Usage {
            duration: Span(10),
            user: Span(4),
            system: Span(5),
            memory_bytes: 4096,
        }),
    }
}

pub(crate) fn job(job: u64, first: u64, count: u64, finished: Option<u64>) -> JobRow {
    JobRow {
        job: JobId(job),
        name: format!("job {job}"),
        user: "robin".to_owned(),
        first_task: TaskId(first),
        task_count: count,
        state: finished.map_or(JobState::Open, |_| JobState::Succeeded),
        created: Time(10),
        finished: finished.map(Time),
        succeeded: count,
        failed: 0,
        cancelled: 0,
        detail: b"sleep {}".to_vec(),
    }
}

/// A group with a row of every kind, for the job `number`.
pub(crate) fn full(number: u64) -> Group {
    let first = number * 10;
    let failed = Ended::Failed(Failure::TimeLimit);
    Group {
        facts: vec![number as u8; 40],
        fact_count: 3,
        rows: Rows {
            tasks: vec![
                task(first, number, Ended::Succeeded),
                task(first + 1, number, failed),
            ],
            outputs: vec![TaskOutput {
                task: TaskId(first),
                output: b"printed".to_vec(),
                result: b"returned".to_vec(),
            }],
            jobs: vec![job(number, first, 2, Some(30))],
            agents: vec![AgentRow {
                agent: AgentId(number),
                name: format!("agent {number}"),
            }],
            ..Rows::default()
        },
    }
}
