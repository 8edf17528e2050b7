//! Priorities: urgent tasks run first, and an urgent task stays where it was put.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use loxley::{Agent, Scheduler, Task};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let scheduler = Scheduler::builder().build();
    scheduler.register_agent(Agent::new("ann"))?;
    for (name, priority) in [
        ("tidy", 1),
        ("build", 3),
        ("test", 3),
        ("hotfix", 5),
        ("page", 4),
    ] {
        scheduler.submit_to("ann", Task::new(name).priority(priority), ())?;
    }

    // An idle colleague may help, but not with what is urgent.
    scheduler.register_agent(Agent::new("bob"))?;
    let stolen = scheduler
        .request_work("bob")?
        .ok_or("three are not urgent")?;
    println!("bob took {}, the least urgent", stolen.task);
    assert_eq!(stolen.task.to_string(), "`tidy`");
    scheduler.complete(&stolen)?;

    let page = scheduler.explain("page").ok_or("it waits")?;
    println!("{page}");
    assert!(
        page.to_string().contains("urgent"),
        "it says that it is protected"
    );

    let mut order = Vec::new();
    while let Some(assignment) = scheduler.try_next_task("ann")? {
        order.push(assignment.task.to_string());
        scheduler.complete(&assignment)?;
    }
    println!("ann's order: {}", order.join(", "));
    assert_eq!(order, ["`hotfix`", "`page`", "`build`", "`test`"]);
    Ok(())
}
