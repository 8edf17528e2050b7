//! An orchestrator has its own lists of agents and tasks. They are imported in one call, and
//! callbacks tell how far things are.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use loxley::{Job, Plan, Scheduler};
use serde_json::Value;

const LISTS: &str = r#"{
    "agents": [
        {"id": "researcher", "capabilities": ["search", "read"]},
        {"id": "writer", "capabilities": ["write"], "slots": 2},
        {"id": "reviewer", "capabilities": ["read", "review"]}
    ],
    "tasks": [
        {"id": "find sources", "skills": ["search"], "payload": {"topic": "work stealing"}},
        {"id": "read sources", "skills": ["read"], "dependencies": ["find sources"]},
        {"id": "outline", "skills": ["write"], "priority": 4, "dependencies": ["read sources"]},
        {"id": "chapter 1", "skills": ["write"], "dependencies": ["outline"]},
        {"id": "chapter 2", "skills": ["write"], "dependencies": ["outline"]},
        {"id": "review", "skills": ["review"], "priority": 5, "retries": 1,
         "dependencies": ["chapter 1", "chapter 2"], "expected_cost_sec": 0.01, "deadline_sec": 60}
    ]
}"#;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let scheduler: Scheduler<Value> = Scheduler::builder().build();
    scheduler.start();

    let progress = Arc::new(Mutex::new(Vec::new()));
    let steps = Arc::clone(&progress);
    scheduler.on_progress(move |counts| {
        println!("progress: {} of {} done", counts.finished, counts.submitted);
        if let Ok(mut steps) = steps.lock() {
            steps.push(counts.finished);
        }
    });

    let plan = Plan::from_json(LISTS)?;
    scheduler.import(&plan, &Job::new().user("orchestrator"), |task| {
        task.payload.clone()
    })?;

    thread::scope(|scope| {
        for agent in &plan.agents {
            for _ in 0..agent.slots {
                scope.spawn(|| work(&scheduler, &agent.id));
            }
        }
        assert!(
            scheduler.wait_idle(Duration::from_secs(30)),
            "six small tasks"
        );
        scheduler.stop();
    });

    assert_eq!(scheduler.counts().finished, 6);
    let steps = progress.lock().map_err(|_| "the callback panicked")?;
    assert_eq!(steps.last(), Some(&6));

    // A list with a mistake changes nothing, and the mistake is named.
    let wrong = r#"{"tasks": [
        {"id": "index", "skills": ["write"], "dependencies": ["outlien"]},
        {"id": "cover", "skills": ["paint"], "priority": 7}
    ]}"#;
    scheduler.start();
    let refusal = scheduler
        .import(&Plan::from_json(wrong)?, &Job::new(), |_| Value::Null)
        .err()
        .ok_or("nobody knows `outlien`, and 7 is no priority")?;
    println!("{refusal}");
    assert!(refusal.to_string().contains("priority 7 is not between 1"));
    assert_eq!(scheduler.counts().submitted, 6);
    Ok(())
}

/// What an agent of the orchestrator does: ask, work, answer, until the scheduler is stopped.
fn work(scheduler: &Scheduler<Value>, agent: &str) {
    while let Ok(assignment) = scheduler.next_task(agent, Duration::from_secs(5)) {
        let Some(assignment) = assignment else {
            continue;
        };
        println!(
            "{agent} does {}, because {}",
            assignment.task, assignment.why
        );
        // Somebody else has it by now if this is refused, and their result counts.
        let _ = scheduler.complete(&assignment);
    }
}
