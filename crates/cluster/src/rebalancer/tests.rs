use std::vec;

use super::*;
use crate::moves::{Input, MoveLimits};

const NOW: Time = Time(1_000_000_000_000);
const ME: ShardId = ShardId(0);

fn seconds(seconds: u64) -> Span {
    Span::from_secs(seconds)
}

fn load(zone: &str, waiting: u32, each: u64, slots: u32) -> Load {
    let kinds = vec![KindLoad {
        kind: Kind(1),
        waiting,
        work: seconds(each * u64::from(waiting)),
        slots,
    }];
    Load {
        zone: zone.into(),
        kinds,
    }
}

fn asks(rebalancer: &mut Rebalancer, now: Time, room: Room) -> Option<(ShardId, Wish)> {
    let moves = Moves::new(ME, MoveLimits::default());
    rebalancer.next_ask(now, &moves, |_| room)
}

fn idle() -> Room {
    Room {
        slots: 10,
        work: Span(0),
    }
}

fn new() -> Rebalancer {
    Rebalancer::new(ME, "eu/paris".into(), RebalancePace::default())
}

#[test]
fn the_nearest_with_too_much_is_asked() {
    let mut rebalancer = new();
    rebalancer.hear(NOW, ShardId(1), load("us/boston", 9_000, 1, 10));
    rebalancer.hear(NOW, ShardId(2), load("eu/rome", 200, 1, 10));
    rebalancer.hear(NOW, ShardId(3), load("eu/paris", 30, 1, 10));
    let (donor, wish) = asks(&mut rebalancer, NOW, idle()).unwrap();
    assert_eq!(
        donor,
        ShardId(2),
        "its neighbour has only three seconds' work"
    );
    assert_eq!((wish.count, wish.slots), (200, 10));
    // It answered that it has nothing: the next one is farther away.
    rebalancer.answered(NOW, ShardId(2), 0);
    let later = NOW + Span(250_000_000);
    let (donor, wish) = asks(&mut rebalancer, later, idle()).unwrap();
    assert_eq!(donor, ShardId(1));
    assert_eq!(wish.count, 300, "half a minute's work");
}

#[test]
fn whoever_has_enough_asks_nobody_and_old_news_is_not_believed() {
    let mut rebalancer = new();
    rebalancer.hear(NOW, ShardId(1), load("eu/paris", 9_000, 1, 10));
    let busy = Room {
        slots: 10,
        work: seconds(50),
    };
    assert_eq!(asks(&mut rebalancer, NOW, busy), None);
    let none = Room::default();
    assert_eq!(asks(&mut rebalancer, NOW, none), None, "nobody to run it");
    let later = NOW + seconds(11);
    assert_eq!(asks(&mut rebalancer, later, idle()), None);
    assert!(asks(&mut rebalancer, NOW, idle()).is_some());
}

#[test]
fn what_nobody_there_can_run_is_taken_also_by_those_that_have_work() {
    let mut rebalancer = new();
    rebalancer.hear(NOW, ShardId(1), load("eu/paris", 1, 1, 0));
    let busy = Room {
        slots: 10,
        work: seconds(100),
    };
    let (donor, wish) = asks(&mut rebalancer, NOW, busy).unwrap();
    assert_eq!((donor, wish.count), (ShardId(1), 1));
}

#[test]
fn one_question_at_a_time_unless_the_other_is_slow() {
    let mut rebalancer = new();
    let mut moves = Moves::new(ME, MoveLimits::default());
    for shard in 1..=2 {
        rebalancer.hear(NOW, ShardId(shard), load("eu/paris", 9_000, 1, 10));
    }
    let (first, wish) = rebalancer.next_ask(NOW, &moves, |_| idle()).unwrap();
    let mut actions = vec![];
    let asked = Input::Asked { donor: first, wish };
    moves.handle(NOW, asked, &mut actions);
    let soon = NOW + seconds(2);
    assert_eq!(rebalancer.next_ask(soon, &moves, |_| idle()), None);
    let later = NOW + seconds(3);
    let (second, _) = rebalancer.next_ask(later, &moves, |_| idle()).unwrap();
    assert_ne!(first, second);
}

#[test]
fn of_several_that_are_equally_near_each_is_asked_as_often_as_it_has_work() {
    let mut rebalancer = new();
    let mut counts = [0; 4];
    for round in 0..1_000 {
        let now = NOW + seconds(round);
        rebalancer.hear(now, ShardId(1), load("eu/rome", 1_000, 1, 10));
        rebalancer.hear(now, ShardId(2), load("eu/oslo", 3_000, 1, 10));
        let (donor, _) = asks(&mut rebalancer, now, idle()).unwrap();
        counts[usize::from(donor.0)] += 1;
    }
    assert!((200..300).contains(&counts[1]), "{counts:?}");
    assert_eq!(counts[1] + counts[2], 1_000);
}

#[test]
fn what_is_given_makes_both_equal_and_never_turns_it_round() {
    let wish = |slots, work| Wish {
        kind: Kind(1),
        slots,
        work: seconds(work),
        count: 1_000,
    };
    let own = |slots, work| KindLoad {
        kind: Kind(1),
        waiting: 100,
        work: seconds(work),
        slots,
    };
    assert_eq!(share(&own(10, 100), &wish(10, 0)), seconds(50));
    assert_eq!(share(&own(10, 100), &wish(30, 0)), seconds(75));
    assert_eq!(share(&own(10, 100), &wish(10, 100)), seconds(0));
    assert_eq!(share(&own(10, 100), &wish(10, 500)), seconds(0));
    assert_eq!(share(&own(0, 100), &wish(10, 500)), seconds(100));
    for (slots, work) in [(1, 7), (7, 900), (1_000, 3)] {
        for (theirs, waits) in [(1, 0), (9, 100), (400, 2)] {
            let (own, wish) = (own(slots, work), wish(theirs, waits));
            let given = share(&own, &wish);
            let left = (own.work.0 - given.0) / u64::from(slots);
            let there = (wish.work.0 + given.0) / u64::from(theirs);
            assert!(given == Span(0) || left + 1 >= there, "{own:?} {wish:?}");
        }
    }
}
