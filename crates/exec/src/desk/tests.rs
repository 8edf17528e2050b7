//! When ends are told, and when they wait for each other; what is forgotten, and what is never begun.

use std::sync::atomic::AtomicUsize;
use std::time::SystemTime;

use super::*;
use crate::output::Captured;
use crate::report::Ran;
use crate::task_command::{Keep, OutputRule, Recipe, TaskCommand, Work};
use crate::{Checkpoint, Ended, Limits, Status, Stopped};

const HOLD: Duration = Duration::from_millis(20);

fn assignment(number: u64, hold: Duration) -> Assignment {
    let recipe = Recipe {
        job: 1,
        work: Work::Function {
            name: "any".to_owned(),
            input: Bytes::new(),
        },
        environment: Vec::new(),
        directory: None,
        limits: Limits::default(),
        checkpoints: false,
        as_in_parallel: false,
        output: OutputRule {
            keep: Keep::Whole,
            directory: None,
            live: false,
            lines: None,
        },
        hold,
        priority: loxley_model::Priority::default(),
    };
    Assignment {
        task: TaskId(number),
        lease: Lease(number),
        attempt: 1,
        command: Arc::new(TaskCommand {
            recipe: Arc::new(recipe),
            items: Box::default(),
            sequence: number,
            input: None,
        }),
        checkpoint: Checkpoint::None,
    }
}

/// A desk with one slot, and how often its bell was rung.
fn empty_desk() -> (Desk, Arc<AtomicUsize>) {
    let (_slot, killer) = crate::Slot::new().expect("a slot needs a bell");
    let rung = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&rung);
    let desk = Desk::new(0, vec![killer], move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    (desk, rung)
}

/// A desk with one slot and so many tasks, whose ends may be kept back for so long.
fn desk(tasks: u64, hold: Duration) -> Desk {
    let (desk, _) = empty_desk();
    desk.assign((1..=tasks).map(|number| assignment(number, hold)));
    desk
}

fn end(task: u64, code: i32, stopped: Option<Stopped>) -> End {
    let ended = Ended {
        status: Status::Exited(code),
        stopped,
        duration: Duration::from_micros(1),
        user_time: Duration::ZERO,
        system_time: Duration::ZERO,
        memory_max: 0,
    };
    let now = Instant::now();
    End {
        task: TaskId(task),
        lease: Lease(task),
        slot: 0,
        attempt: 1,
        begun: now,
        started: SystemTime::now(),
        at: now,
        ran: Ran::Process(Ok(ended)),
        output: Captured::Nothing,
        memory_limit: None,
        given_up: false,
        is_final: false,
    }
}

fn success(task: u64) -> End {
    end(task, 0, None)
}

fn next(desk: &Desk, ended: End) {
    desk.next(0, Some(ended), true).expect("there is work");
}

fn told(desk: &Desk) -> Vec<u64> {
    let ended = desk.reports(false).ended;
    ended.iter().map(|end| end.task.0).collect()
}

/// Runs task 1, which is told at once, and goes on to task 2.
fn begin(desk: &Desk) {
    desk.next(0, None, true).expect("there is work");
    next(desk, success(1));
    assert_eq!(told(desk), [1], "nothing was told before");
}

#[test]
fn ends_of_short_tasks_wait_for_each_other_and_are_told_when_due() {
    let desk = desk(20, HOLD);
    begin(&desk);
    next(&desk, success(2));
    next(&desk, success(3));
    let due = desk.due().expect("both are kept back");
    assert_eq!(told(&desk), [] as [u64; 0]);
    std::thread::sleep(due.saturating_duration_since(Instant::now()));
    assert_eq!(told(&desk), [2, 3]);
    assert_eq!(desk.due(), None);
}

#[test]
fn the_bell_is_rung_once_until_somebody_comes() {
    let (desk, rung) = empty_desk();
    desk.assign((1..=9).map(|number| assignment(number, Duration::ZERO)));
    desk.next(0, None, true).expect("there is work");
    assert_eq!(rung.load(Ordering::Relaxed), 0, "nothing to tell");
    next(&desk, success(1));
    next(&desk, success(2));
    assert_eq!(rung.load(Ordering::Relaxed), 1);
    assert_eq!(told(&desk), [1, 2]);
    next(&desk, success(3));
    assert_eq!(rung.load(Ordering::Relaxed), 2);
}

#[test]
fn what_is_kept_back_is_told_when_the_next_task_is_not_short() {
    let (desk, rung) = empty_desk();
    desk.assign((1..=20).map(|number| assignment(number, HOLD)));
    begin(&desk);
    next(&desk, success(2));
    let before = rung.load(Ordering::Relaxed);
    desk.runs_on();
    assert_eq!(rung.load(Ordering::Relaxed), before + 1);
    assert_eq!(told(&desk), [2]);
}

#[test]
fn nothing_is_kept_back_where_the_next_has_to_wait() {
    let desk = desk(20, HOLD);
    begin(&desk);
    desk.next(0, Some(success(2)), false)
        .expect("there is work");
    assert_eq!(told(&desk), [2]);
}

#[test]
fn a_failure_is_told_at_once_and_takes_the_others_along() {
    let desk = desk(20, HOLD);
    begin(&desk);
    next(&desk, success(2));
    next(&desk, end(3, 1, None));
    next(&desk, success(4));
    assert_eq!(told(&desk), [2, 3, 4]);
}

#[test]
fn ends_are_told_before_the_slots_run_dry() {
    let desk = desk(4, HOLD);
    begin(&desk);
    next(&desk, success(2));
    assert_eq!(told(&desk), [] as [u64; 0], "as many wait as have ended");
    next(&desk, success(3));
    assert_eq!(told(&desk), [2, 3], "more have ended than wait");
}

#[test]
fn ends_are_kept_back_for_as_long_as_is_allowed_and_those_of_long_tasks_for_less() {
    let desk = desk(20, HOLD);
    begin(&desk);
    assert_eq!(desk.hold(), HOLD);
    let mut long = success(1);
    let Ran::Process(Ok(ended)) = &mut long.ran else {
        panic!("a process");
    };
    ended.duration = Duration::from_secs(1);
    assert!(hold_of(&long, HOLD) < HOLD);
    assert_eq!(hold_of(&success(1), Duration::ZERO), Duration::ZERO);
}

#[test]
fn nothing_is_due_when_what_was_kept_back_is_cancelled() {
    let desk = desk(20, HOLD);
    begin(&desk);
    next(&desk, success(2));
    desk.cancel(Lease(2));
    assert_eq!(told(&desk), [] as [u64; 0]);
    assert_eq!(desk.due(), None);
}

#[test]
fn of_a_running_task_that_was_cancelled_nothing_is_told() {
    let desk = desk(2, Duration::ZERO);
    desk.next(0, None, true).expect("there is work");
    desk.cancel(Lease(1));
    desk.save(TaskId(1), Lease(1), Bytes::from_static(b"state"));
    next(&desk, end(1, 0, Some(Stopped::Killed)));
    assert!(desk.reports(true).is_empty());
    // The next one on the same slot is not affected.
    assert_eq!(desk.leases(), [Lease(2)]);
}

#[test]
fn a_task_is_given_back_before_it_began_or_when_it_was_stopped_for_it() {
    let desk = desk(9, Duration::ZERO);
    desk.next(0, None, true).expect("there is work");
    assert_eq!(desk.retract(Lease(2), false), Some(true));
    assert_eq!(desk.retract(Lease(1), false), Some(false), "it runs");
    assert_eq!(desk.retract(Lease(77), true), None, "nobody knows it");
    assert_eq!(desk.retract(Lease(1), true), None, "it is told later");
    next(&desk, end(1, 0, Some(Stopped::Killed)));
    let reports = desk.reports(false);
    assert!(reports.ended.is_empty() && reports.yielded[0].lease == Lease(1));
    // One that was through before it heard of it counts.
    assert_eq!(desk.retract(Lease(3), true), None);
    next(&desk, success(3));
    let reports = desk.reports(false);
    assert!(reports.yielded.is_empty() && reports.ended[0].lease == Lease(3));
}

/// The scheduler fills a slot in the same breath in which it tells of the failure that ends the run.
#[test]
fn what_is_assigned_after_the_desk_was_closed_is_not_begun() {
    let desk = desk(1, Duration::ZERO);
    desk.next(0, None, true).expect("there is work");
    desk.close();
    desk.assign([assignment(2, Duration::ZERO)]);
    assert!(desk.next(0, Some(success(1)), true).is_none());
    assert_eq!(told(&desk), [1]);
}

#[test]
fn what_is_more_urgent_starts_first_and_equals_in_their_order() {
    let urgent = |number| {
        let mut urgent = assignment(number, Duration::ZERO);
        let command = Arc::make_mut(&mut urgent.command);
        Arc::make_mut(&mut command.recipe).priority = loxley_model::Priority::HIGH;
        urgent
    };
    let desk = desk(2, Duration::ZERO);
    desk.assign([urgent(3), assignment(4, Duration::ZERO), urgent(5)]);
    let mut started = Vec::new();
    let mut ended = None;
    for _ in 0..5 {
        let next = desk.next(0, ended.take(), true).expect("there is work");
        started.push(next.task.0);
        ended = Some(success(next.task.0));
    }
    assert_eq!(started, [3, 5, 1, 2, 4]);
}
