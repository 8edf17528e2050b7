//! Two shards, step by step.

use std::vec;

use super::*;

const NOW: Time = Time(1_000_000_000_000);
const A: ShardId = ShardId(0);
const B: ShardId = ShardId(1);

fn shard(me: ShardId) -> Moves {
    Moves::new(me, MoveLimits::default())
}

fn act(moves: &mut Moves, input: Input) -> Vec<Action> {
    act_at(moves, NOW, input)
}

fn act_at(moves: &mut Moves, now: Time, input: Input) -> Vec<Action> {
    let mut actions = vec![];
    moves.handle(now, input, &mut actions);
    actions
}

/// What it writes when it may.
fn letter(moves: &mut Moves) -> Letter {
    let mut actions = act(moves, Input::Flush);
    assert_eq!(actions.len(), 1, "{actions:?}");
    match actions.remove(0) {
        Action::Send(letter) => letter,
        other => panic!("{other:?}"),
    }
}

fn wish(count: u32) -> Wish {
    Wish {
        kind: Kind(1),
        slots: 4,
        work: Span(0),
        count,
    }
}

fn task(of: ShardId, number: u64) -> Moved {
    Moved {
        task: TaskId(of.number(number)),
        body: vec![number as u8],
    }
}

/// B asks, and A gives these; the letter is written, and not read.
fn give(a: &mut Moves, b: &mut Moves, tasks: Vec<Moved>) -> Letter {
    act(
        b,
        Input::Asked {
            donor: A,
            wish: wish(10),
        },
    );
    let question = letter(b);
    let actions = act(a, Input::Received(question));
    let asked = Action::Give {
        to: B,
        wish: wish(10),
    };
    let number = a.received(B);
    assert_eq!(actions, [asked, Action::Acknowledge { from: B, number }]);
    act(b, Input::Acknowledged { by: A, number });
    act(a, Input::Given { to: B, tasks });
    letter(a)
}

#[test]
fn a_task_goes_out_and_its_result_comes_back() {
    let (mut a, mut b) = (shard(A), shard(B));
    let moved = task(A, 7);
    let out = give(&mut a, &mut b, vec![moved.clone()]);
    assert_eq!(a.whereabouts(moved.task), Some(B));
    assert_eq!(b.receipt(&out), Receipt::Next);
    let admitted = act(&mut b, Input::Received(out.clone()));
    let read = Action::Acknowledge { from: A, number: 1 };
    assert_eq!(admitted, [Action::Admit(moved.clone()), read]);
    assert_eq!(b.receipt(&out), Receipt::Repeated);
    let forgotten = act(&mut a, Input::Acknowledged { by: B, number: 1 });
    assert_eq!(forgotten, [Action::Forget { to: B, number: 1 }]);
    assert_eq!(act(&mut a, Input::Acknowledged { by: B, number: 1 }), []);

    let (task, result) = (moved.task, vec![42]);
    act(
        &mut b,
        Input::GuestEnded {
            task,
            result: result.clone(),
        },
    );
    let back = letter(&mut b);
    let settled = act(&mut a, Input::Received(back));
    let read = Action::Acknowledge { from: B, number: 2 };
    assert_eq!(settled, [Action::Settle { task, result }, read]);
    act(&mut b, Input::Acknowledged { by: A, number: 2 });
    assert!(a.is_quiet() && b.is_quiet());
}

#[test]
fn a_cancel_follows_and_crosses_with_a_task_that_comes_home() {
    let (mut a, mut b) = (shard(A), shard(B));
    let (one, other) = (task(A, 1), task(A, 2));
    let out = give(&mut a, &mut b, vec![one.clone(), other.clone()]);
    act(&mut b, Input::Received(out));
    act(&mut b, Input::GuestUnwanted(one.task));
    let home = letter(&mut b);
    for task in [one.task, other.task] {
        act(&mut a, Input::Cancelled(task));
        // Once is enough.
        act(&mut a, Input::Cancelled(task));
    }
    let cancel = letter(&mut a);
    let items = [Item::Cancel(one.task), Item::Cancel(other.task)];
    assert_eq!(cancel.items, items);
    let heard = act(&mut b, Input::Received(cancel));
    let read = Action::Acknowledge { from: A, number: 2 };
    assert_eq!(heard, [Action::CancelGuest(other.task), read]);
    let back = act(&mut a, Input::Received(home));
    let taken_back = Action::TakeBack {
        task: one.task,
        is_cancelled: true,
    };
    assert_eq!(back[0], taken_back);
}

#[test]
fn nothing_is_given_while_something_is_open_between_the_two() {
    let (mut a, mut b) = (shard(A), shard(B));
    let out = give(&mut a, &mut b, vec![task(A, 1)]);
    assert!(!a.may_ask(B), "tasks are on their way to it");
    act(&mut b, Input::Received(out));
    // B asks again before A has heard that B has the first ones.
    act(
        &mut b,
        Input::Asked {
            donor: A,
            wish: wish(10),
        },
    );
    assert!(!b.may_ask(A), "one question after the other");
    let question = letter(&mut b);
    let answer = act(&mut a, Input::Received(question));
    assert_eq!(answer, [Action::Acknowledge { from: B, number: 2 }]);
    assert_eq!(letter(&mut a).items, [Item::Given(vec![])]);
}

#[test]
fn of_two_that_ask_each_other_one_declines() {
    let (mut a, mut b) = (shard(A), shard(B));
    let moved = task(A, 1);
    act(
        &mut a,
        Input::Asked {
            donor: B,
            wish: wish(1),
        },
    );
    act(
        &mut b,
        Input::Asked {
            donor: A,
            wish: wish(1),
        },
    );
    let (from_a, from_b) = (letter(&mut a), letter(&mut b));
    let asked = act(&mut a, Input::Received(from_b));
    assert!(matches!(asked[0], Action::Give { to: B, .. }));
    let tasks = vec![moved.clone()];
    act(&mut a, Input::Given { to: B, tasks });
    act(&mut b, Input::Received(from_a));
    let (from_a, from_b) = (letter(&mut a), letter(&mut b));
    assert_eq!(from_a.items, [Item::Given(vec![moved.clone()])]);
    assert_eq!(from_b.items, [Item::Given(vec![])]);
    act(&mut a, Input::Received(from_b));
    act(&mut b, Input::Received(from_a));
    for (by, moves) in [(B, &mut a), (A, &mut b)] {
        act(moves, Input::Acknowledged { by, number: 2 });
    }
    assert!(a.may_ask(B) && b.may_ask(A) && b.is_guest(moved.task));
}

#[test]
fn a_kind_that_was_sent_home_is_not_given_again_for_a_while() {
    let (mut a, mut b) = (shard(A), shard(B));
    let moved = task(A, 1);
    let out = give(&mut a, &mut b, vec![moved.clone()]);
    act(&mut b, Input::Received(out));
    act(&mut a, Input::Acknowledged { by: B, number: 1 });
    assert!(b.may_ask(A));
    act(&mut b, Input::GuestUnwanted(moved.task));
    assert!(!b.may_ask(A), "a task is on its way to it");
    let home = letter(&mut b);
    assert!(!b.may_ask(A));
    act(&mut a, Input::Received(home));
    act(&mut b, Input::Acknowledged { by: A, number: 2 });
    assert!(b.may_ask(A));
    let asks = |b: &mut Moves, kind: u64| {
        let wish = Wish {
            kind: Kind(kind),
            ..wish(1)
        };
        act(b, Input::Asked { donor: A, wish });
        letter(b)
    };
    let question = asks(&mut b, 1);
    let answer = act(&mut a.clone(), Input::Received(question.clone()));
    assert_eq!(answer.len(), 1, "it declines");
    let later = NOW + MoveLimits::default().rest;
    let answer = act_at(&mut a.clone(), later, Input::Received(question));
    assert!(matches!(answer[0], Action::Give { .. }));
    // Another kind is another matter.
    let mut b = shard(B);
    let mut question = asks(&mut b, 2);
    question.number = a.received(B) + 1;
    let answer = act(&mut a, Input::Received(question));
    assert!(matches!(answer[0], Action::Give { .. }));
}

#[test]
fn letters_and_tasks_keep_to_their_rates() {
    let limits = MoveLimits {
        letters_per_sec: 2,
        tasks_per_sec: 5,
        ..MoveLimits::default()
    };
    let mut a = Moves::new(A, limits);
    for number in 1..=4 {
        let donor = ShardId(number);
        act(
            &mut a,
            Input::Asked {
                donor,
                wish: wish(1),
            },
        );
    }
    let to = |actions: Vec<Action>| -> Vec<u16> {
        let letters = actions.into_iter().map(|action| match action {
            Action::Send(letter) => letter.to.0,
            other => panic!("{other:?}"),
        });
        letters.collect()
    };
    assert_eq!(to(act(&mut a, Input::Flush)), [1, 2]);
    assert_eq!(a.next_wake(), Some(NOW + Span(500_000_000)));
    assert!(act(&mut a, Input::Flush).is_empty());
    let later = NOW + Span::from_secs(1);
    assert_eq!(to(act_at(&mut a, later, Input::Flush)), [3, 4]);
    assert_eq!(a.next_wake(), None);

    let mut a = Moves::new(A, limits);
    let mut b = shard(B);
    act(
        &mut b,
        Input::Asked {
            donor: A,
            wish: wish(100),
        },
    );
    let actions = act(&mut a, Input::Received(letter(&mut b)));
    let asked = Action::Give {
        to: B,
        wish: wish(5),
    };
    assert_eq!(actions[0], asked, "no more than may be given in a second");
    let tasks = (1..=4).map(|number| task(A, number)).collect();
    act(&mut a, Input::Given { to: B, tasks });
    // Another one asks at the same moment: one is left.
    let mut c = shard(ShardId(2));
    let donor = A;
    let wish = wish(100);
    act(&mut c, Input::Asked { donor, wish });
    let actions = act(&mut a, Input::Received(letter(&mut c)));
    let left = Wish { count: 1, ..wish };
    let to = ShardId(2);
    assert_eq!(actions[0], Action::Give { to, wish: left });
}

#[test]
fn whoever_is_behind_notices() {
    let (mut a, b) = (shard(A), shard(B));
    let items = vec![];
    let later = Letter {
        from: B,
        to: A,
        number: 2,
        items,
    };
    assert_eq!(a.receipt(&later), Receipt::Ahead);
    // Whoever was fenced and does not know it reads what a later holder asked for, or gave.
    for item in [
        Item::Given(vec![]),
        Item::Given(vec![task(B, 1)]),
        Item::Home(TaskId(A.number(1))),
        Item::Result {
            task: TaskId(A.number(1)),
            body: vec![],
        },
    ] {
        let unknown = Letter {
            number: 1,
            items: vec![item],
            ..later.clone()
        };
        assert_eq!(a.receipt(&unknown), Receipt::Ahead);
    }
    assert!(!b.was_sent(A, 1));
    act(
        &mut a,
        Input::Asked {
            donor: B,
            wish: wish(1),
        },
    );
    assert!(!a.was_sent(B, 1), "it is not written yet");
    letter(&mut a);
    assert!(a.was_sent(B, 1));
}
