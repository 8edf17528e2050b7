//! Deadlines: the earliest first among tasks of one priority; a task that cannot make it any more
//! is reported at once, not when it is too late.
//!
//! The clock is moved by hand, so that the example takes no time.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::time::Duration;

use loxley::{Agent, Event, ManualClock, Scheduler, SubmitProblem, Task};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let clock = ManualClock::new();
    let scheduler = Scheduler::builder().clock(clock.clone()).build();
    let events = scheduler.subscribe(100);
    scheduler.register_agent(Agent::new("ann"))?;
    clock.advance(Duration::from_secs(1));

    let secs = Duration::from_secs;
    scheduler.submit(Task::new("whenever"), ())?;
    scheduler.submit(Task::new("tonight").due_in(secs(60)).cost(secs(5)), ())?;
    scheduler.submit(Task::new("soon").due_in(secs(10)).cost(secs(4)), ())?;
    scheduler.submit(Task::new("hopeless").due_in(secs(1)).cost(secs(30)), ())?;

    let lost = |event: &Event| matches!(event, Event::DeadlineLost { task, .. } if task.to_string() == "`hopeless`");
    let told: Vec<Event> = std::iter::from_fn(|| events.try_next()).collect();
    let warning = told
        .iter()
        .find(|event| lost(event))
        .ok_or("30 s do not fit into 1 s")?;
    println!("{warning}");
    scheduler.cancel("hopeless")?;

    let late = scheduler.submit(Task::new("late").due_at(scheduler.now()), ());
    let refusal = late.err().ok_or("its deadline has passed")?;
    println!("{refusal}");
    assert!(matches!(refusal.first(), SubmitProblem::DeadlinePassed(_)));

    let mut order = Vec::new();
    while let Some(assignment) = scheduler.try_next_task("ann")? {
        clock.advance(secs(4));
        scheduler.tick();
        order.push(assignment.task.to_string());
        scheduler.complete(&assignment)?;
    }
    println!("ann's order: {}", order.join(", "));
    assert_eq!(order, ["`soon`", "`tonight`", "`whenever`"]);
    assert_eq!(
        scheduler.metrics().deadline_misses,
        0,
        "what was accepted was met"
    );
    Ok(())
}
