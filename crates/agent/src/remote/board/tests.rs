//! When ends are told, and when they wait for each other.

use super::*;

const HOLD: Duration = Duration::from_millis(20);

/// A board with one slot and so many tasks, whose ends may be kept back for so long.
fn board(tasks: u64, hold: Duration) -> Board {
    let (_slot, killer) = crate::Slot::new().expect("a slot needs a bell");
    let board = Board::new(vec![killer]);
    board.hear(wire::ServerFrame {
        templates: vec![wire::Template {
            id: 1,
            hold_ns: hold.as_nanos() as u64,
            ..wire::Template::default()
        }],
        assign: (1..=tasks)
            .map(|number| wire::Assign {
                task: number,
                lease: number,
                template: 1,
                ..wire::Assign::default()
            })
            .collect(),
        ..wire::ServerFrame::default()
    });
    board
}

fn ended(task: u64, outcome: wire::Outcome) -> wire::Finished {
    wire::Finished {
        task,
        lease: task,
        outcome: outcome.into(),
        duration_ns: 1000,
        ..wire::Finished::default()
    }
}

fn success(task: u64) -> wire::Finished {
    ended(task, wire::Outcome::Succeeded)
}

fn told(board: &Board) -> Option<Vec<u64>> {
    let frame = board.next_frame(false)?;
    Some(frame.finished.iter().map(|ended| ended.task).collect())
}

/// Runs task 1, which is told at once, and goes on to task 2.
fn begin(board: &Board) {
    board.next(0, None).expect("there is work");
    board.next(0, Some(success(1))).expect("there is work");
    assert_eq!(told(board), Some(vec![1]), "nothing was said before");
}

#[test]
fn ends_of_short_tasks_wait_for_each_other_and_are_told_when_due() {
    let board = board(20, HOLD);
    begin(&board);
    board.next(0, Some(success(2))).expect("there is work");
    board.next(0, Some(success(3))).expect("there is work");
    let due = board.due().expect("both are kept back");
    assert_eq!(told(&board), None);
    std::thread::sleep(due.saturating_duration_since(Instant::now()));
    assert_eq!(told(&board), Some(vec![2, 3]));
    assert_eq!(board.due(), None);
}

#[test]
fn a_failure_is_told_at_once_and_takes_the_others_along() {
    let board = board(20, HOLD);
    begin(&board);
    board.next(0, Some(success(2))).expect("there is work");
    let failed = ended(3, wire::Outcome::Failed);
    board.next(0, Some(failed)).expect("there is work");
    board.next(0, Some(success(4))).expect("there is work");
    assert_eq!(told(&board), Some(vec![2, 3, 4]));
}

#[test]
fn ends_are_told_before_the_slots_run_dry() {
    let board = board(4, HOLD);
    begin(&board);
    board.next(0, Some(success(2))).expect("there is work");
    assert_eq!(told(&board), None, "as many wait as have ended");
    board.next(0, Some(success(3))).expect("there is work");
    assert_eq!(told(&board), Some(vec![2, 3]), "more have ended than wait");
}

#[test]
fn ends_are_kept_back_for_as_long_as_the_server_says_and_those_of_long_tasks_for_less() {
    let board = board(20, HOLD);
    begin(&board);
    assert_eq!(board.hold(), HOLD);
    let long = wire::Finished {
        duration_ns: 1_000_000_000,
        ..success(1)
    };
    assert!(hold_of(&long, HOLD) < HOLD);
    assert_eq!(hold_of(&success(1), Duration::ZERO), Duration::ZERO);
}

#[test]
fn nothing_is_due_when_what_was_kept_back_is_cancelled() {
    let board = board(20, HOLD);
    begin(&board);
    board.next(0, Some(success(2))).expect("there is work");
    board.hear(wire::ServerFrame {
        cancel: vec![wire::Cancel { task: 2, lease: 2 }],
        ..wire::ServerFrame::default()
    });
    assert_eq!(told(&board), None);
    assert_eq!(board.due(), None);
}
