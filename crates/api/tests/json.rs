//! What goes over the wire, as people who write scripts see it.

use loxley_api::{
    CommandRequest, Entries, ErrorBody, ErrorCode, Event, EventKind, JobRequest, TaskRequest, Work,
};
use proptest::prelude::*;

#[test]
fn a_small_job_is_a_small_object() {
    let text = r#"{"tasks":[{"run":{"command":{"words":["gzip","{}"]}},"entries":{"range":{"first":1,"last":3}}}]}"#;
    let job: JobRequest = serde_json::from_str(text).unwrap();
    let mut task = TaskRequest::new(Work::Command(CommandRequest {
        words: vec!["gzip".to_owned(), "{}".to_owned()],
        ..CommandRequest::default()
    }));
    task.entries = Some(Entries::Range {
        first: 1,
        last: 3,
        step: 1,
    });
    assert_eq!(job.tasks, [task]);
    assert_eq!(job.check(), Ok(()));
    let again: JobRequest = serde_json::from_value(serde_json::to_value(&job).unwrap()).unwrap();
    assert_eq!(again, job);
}

#[test]
fn a_key_that_is_not_known_is_refused_in_a_request() {
    for text in [
        r#"{"tasks":[],"colour":"red"}"#,
        r#"{"tasks":[{"run":{"command":{"words":["a"],"shell":true}}}]}"#,
        r#"{"tasks":[{"run":{"command":{"words":["a"]}},"needs":{"gpu":1}}]}"#,
        r#"{"tasks":[{"run":{"command":{"words":["a"]}},"priority":6}]}"#,
    ] {
        assert!(serde_json::from_str::<JobRequest>(text).is_err(), "{text}");
    }
}

#[test]
fn what_a_newer_server_says_does_not_break_an_older_client() {
    let event: Event =
        serde_json::from_str(r#"{"sequence":7,"unix_ms":1,"event":"eclipse","moon":true}"#)
            .unwrap();
    assert_eq!(event.kind, EventKind::Unknown);
    let body: ErrorBody =
        serde_json::from_str(r#"{"error":{"code":"teapot","message":"short and stout"}}"#).unwrap();
    assert_eq!(body.error.code, ErrorCode::Unknown);
}

proptest! {
    /// Whatever arrives is understood or refused; nothing panics, and what was accepted can be counted.
    #[test]
    fn no_text_breaks_the_reader(text in ".{0,200}") {
        let _ = serde_json::from_str::<JobRequest>(&text);
    }

    #[test]
    fn what_is_accepted_is_in_bounds(
        first in any::<u64>(), last in any::<u64>(), step in any::<u64>(),
        cpus in any::<f64>(), limit in any::<f64>(), word in any::<String>(), name in any::<String>(),
    ) {
        let mut task = TaskRequest::new(Work::Command(CommandRequest {
            words: vec![word],
            ..CommandRequest::default()
        }));
        task.entries = Some(Entries::Range { first, last, step });
        task.needs.cpus = cpus;
        task.time_limit_sec = Some(limit);
        task.skills = vec![name];
        let job = JobRequest { tasks: vec![task], ..JobRequest::default() };
        if job.check().is_ok() {
            let count = job.count();
            prop_assert!((1..=loxley_api::ENTRIES_MAX).contains(&count));
            prop_assert!(job.tasks[0].entries.as_ref().unwrap().text(count - 1).is_some());
            prop_assert!(cpus >= 0.0 && limit >= 0.0 && limit.is_finite());
        }
    }
}
