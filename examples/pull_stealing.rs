//! Pull stealing: an idle agent takes work from the busiest one, the newest task first.
//!
//! No thread runs here: every step is a call, so that each can be seen.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use loxley::{Agent, Scheduler, Task, Why};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let scheduler = Scheduler::builder().build();
    scheduler.register_agent(Agent::new("ann").skill("python"))?;
    scheduler.register_agent(Agent::new("bob").skill("python"))?;
    scheduler.register_agent(Agent::new("cleo").skill("cobol"))?;
    for number in 1..=8 {
        let task = Task::new(format!("page-{number}")).skill("python");
        scheduler.submit_to("ann", task, ())?;
    }
    println!("all eight tasks were given to ann");

    let stolen = scheduler
        .request_work("bob")?
        .ok_or("ann has eight tasks waiting, bob none")?;
    println!("bob got {}: {}", stolen.task, stolen.why);
    assert_eq!(stolen.task.to_string(), "`page-8`");
    assert_eq!(stolen.why, Why::Stolen { from: "ann".into() });
    scheduler.complete(&stolen)?;

    // A thief must be capable: cleo finds nothing, however long ann's queue is.
    assert!(scheduler.request_work("cleo")?.is_none());
    println!("cleo got nothing: she has none of the skills");

    // Ann herself works from the other end of her queue.
    let own = scheduler.try_next_task("ann")?.ok_or("seven are left")?;
    assert_eq!(own.task.to_string(), "`page-1`");
    println!("ann works on {}", own.task);
    scheduler.complete(&own)?;

    let metrics = scheduler.metrics();
    println!(
        "{} of {} steals found something; {} task moved",
        metrics.successful_steals, metrics.total_steals, metrics.tasks_migrated
    );
    assert_eq!((metrics.successful_steals, metrics.failed_steals), (1, 1));
    assert_eq!(metrics.counts.finished, 2);
    Ok(())
}
