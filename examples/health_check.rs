//! Health: the scheduler names what is wrong with the fleet, and what to do about it; and for one
//! task, why it does not run.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use loxley::{Agent, Job, ProblemKind, Scheduler, Task};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let scheduler = Scheduler::builder().build();
    scheduler.register_agent(Agent::new("ann").skill("python"))?;
    assert!(
        scheduler.health().is_empty(),
        "nothing to complain about yet"
    );
    println!("a fleet without work is healthy");

    for number in 0..120 {
        scheduler.submit(Task::new(format!("page-{number}")).skill("python"), ())?;
    }
    // Nobody can do this one; the job says to keep it until somebody comes.
    let painting = Task::new("painting").skills(["gpu", "oil"]).priority(4);
    scheduler.submit_batch(&Job::new().hold(), [(painting, ())])?;

    let problems = scheduler.health();
    for problem in &problems {
        println!("{problem}");
    }
    let has = |kind| problems.iter().any(|problem| problem.kind == kind);
    assert!(
        has(ProblemKind::AllAgentsBusy),
        "one agent, more than a hundred tasks"
    );
    assert!(has(ProblemKind::UnassignableTasks), "nobody paints");
    assert!(problems.iter().all(|problem| !problem.remedies.is_empty()));

    let why = scheduler.explain("painting").ok_or("it waits")?;
    println!("{why}");
    let words = why.to_string();
    assert!(
        words.contains("`gpu`") && words.contains("`oil`"),
        "it names the skills"
    );

    // The remedy works.
    scheduler.register_agent(Agent::new("bea").skills(["gpu", "oil"]))?;
    let assignment = scheduler.try_next_task("bea")?.ok_or("bea paints")?;
    println!("bea does {}", assignment.task);
    assert_eq!(assignment.task.to_string(), "`painting`");
    scheduler.complete(&assignment)?;
    let problems = scheduler.health();
    assert!(
        problems
            .iter()
            .all(|problem| problem.kind != ProblemKind::UnassignableTasks)
    );
    Ok(())
}
