//! What the scheduler says of its decisions, word for word.
#![expect(clippy::unwrap_used, reason = "a failure in a test is the message")]

use std::time::Duration;

use loxley::{Agent, Job, ManualClock, ProblemKind, Scheduler, Task};

fn scheduler(agents: &[&str]) -> (ManualClock, Scheduler<()>) {
    let clock = ManualClock::new();
    let scheduler = Scheduler::builder().clock(clock.clone()).build();
    for agent in agents {
        scheduler
            .register_agent(Agent::new(*agent).skill("python"))
            .unwrap();
    }
    (clock, scheduler)
}

fn explain(scheduler: &Scheduler<()>, task: &str) -> String {
    scheduler.explain(task).unwrap().to_string()
}

#[test]
fn a_queued_task_says_where_it_stands_and_what_is_before_it() {
    let (_, scheduler) = scheduler(&["ann"]);
    for name in ["first", "second", "third"] {
        scheduler.submit(Task::new(name), ()).unwrap();
    }
    assert!(explain(&scheduler, "first").contains("first in line"));
    let idle = explain(&scheduler, "second");
    assert!(
        idle.contains("1 task comes before it on the queue of `ann`"),
        "{idle}"
    );
    assert!(
        idle.contains("`ann` has not asked for its next task"),
        "{idle}"
    );
    let _held = scheduler.try_next_task("ann").unwrap().unwrap();
    let busy = explain(&scheduler, "third");
    assert!(busy.contains("`ann` has no free slot"), "{busy}");
}

#[test]
fn a_running_task_says_for_how_long_and_why_there() {
    let (clock, scheduler) = scheduler(&["ann", "bob"]);
    scheduler.submit_to("ann", Task::new("x"), ()).unwrap();
    let _held = scheduler.try_next_task("bob").unwrap().unwrap();
    clock.advance(Duration::from_secs(3));
    assert_eq!(
        explain(&scheduler, "x"),
        "`x` has been running on `bob` for 3.00 s (there because it was idle and took it from `ann`)"
    );
}

#[test]
fn a_waiting_task_says_for_what() {
    let (clock, scheduler) = scheduler(&["ann"]);
    scheduler.submit(Task::new("early"), ()).unwrap();
    scheduler
        .submit(Task::new("late").after("early"), ())
        .unwrap();
    let late = explain(&scheduler, "late");
    assert!(late.starts_with("`late` waits for `early`"), "{late}");
    assert!(
        late.contains("it may start only when `early` succeeded"),
        "{late}"
    );

    let retried = Task::new("retried").retries(1).priority(5);
    scheduler.submit(retried, ()).unwrap();
    clock.advance(Duration::from_secs(1));
    let assignment = scheduler.try_next_task("ann").unwrap().unwrap();
    assert_eq!(assignment.task.to_string(), "`retried`");
    scheduler.fail(&assignment, "no").unwrap();
    let retried = explain(&scheduler, "retried");
    assert!(
        retried.starts_with("`retried` is tried again in "),
        "{retried}"
    );

    scheduler.limit_group("licence", 1).unwrap();
    for name in ["one", "two"] {
        let task = Task::new(name).group("licence").priority(5);
        scheduler.submit(task, ()).unwrap();
    }
    let _held = scheduler.try_next_task("ann").unwrap().unwrap();
    let two = explain(&scheduler, "two");
    assert!(
        two.contains("its group has 1 running and may have 1"),
        "{two}"
    );
    assert!(
        two.contains("remedy: raise the limit of its group"),
        "{two}"
    );
}

#[test]
fn a_held_task_names_the_skills_and_the_remedy() {
    let (_, scheduler) = scheduler(&["ann"]);
    let task = Task::new("paint").skills(["oil", "python"]).priority(4);
    scheduler
        .submit_batch(&Job::new().hold(), [(task, ())])
        .unwrap();
    assert_eq!(
        explain(&scheduler, "paint"),
        "`paint` is held: no agent can do it\n  \
         because no agent has the skills; the nearest, `ann`, lacks `oil`\n  \
         remedy: register an agent with `python` and `oil`"
    );
    let problems = scheduler.health();
    let held = problems
        .iter()
        .find(|problem| problem.kind == ProblemKind::UnassignableTasks)
        .unwrap();
    assert!(held.to_string().starts_with("critical: "), "{held}");
    assert!(held.to_string().contains("\n  remedy: "), "{held}");
}

#[test]
fn what_left_with_its_agent_comes_back_under_its_own_name() {
    let (_, scheduler) = scheduler(&["ann", "bob"]);
    let task = Task::new("x").skill("python").priority(2).retries(4);
    scheduler.submit_to("ann", task, ()).unwrap();
    scheduler.submit(Task::new("after").after("x"), ()).unwrap();
    let mut leftovers = scheduler.unregister_agent("ann").unwrap();
    let leftover = leftovers.remove(0);
    assert_eq!(leftover.task.to_string(), "`x`");
    assert!(scheduler.explain("x").is_none(), "it is not here any more");
    let id = scheduler.submit(leftover.description.clone(), ()).unwrap();
    assert_eq!(id, leftover.task.id);
    let again = scheduler.submit(leftover.description, ()).unwrap_err();
    assert_eq!(
        again.to_string(),
        "submission refused: `x` was submitted before"
    );
    for name in ["`x`", "`after`"] {
        let assignment = scheduler.try_next_task("bob").unwrap().unwrap();
        assert_eq!(assignment.task.to_string(), name);
        scheduler.complete(&assignment).unwrap();
    }
}
