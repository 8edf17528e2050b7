//! Members and a database in a world where everything is late, lost or stopped.

use std::collections::BTreeMap;
use std::vec;

use loxley_balance::Rng;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn seconds(seconds: f64) -> Span {
    Span((seconds * SECOND as f64) as u64)
}

fn act(member: &mut Member, now: f64, input: Input) -> Vec<Action> {
    let mut actions = Vec::new();
    member.handle(Time(seconds(now).0), input, &mut actions);
    actions
}

fn looked(question: u64) -> Input {
    Input::Looked {
        question: Question(question),
        epoch: 0,
        left: Span(0),
    }
}

/// The renewal that a member that serves asks for next.
fn renewal(lease: f64) -> Action {
    Action::Renew {
        question: Question(3),
        epoch: 1,
        lease: seconds(lease),
    }
}

/// A member that serves under epoch 1 since second 0.
fn serving() -> Member {
    let mut member = Member::new(Time(0), Pace::default());
    assert_eq!(
        act(&mut member, 0.0, Input::Tick),
        [Action::Look(Question(1))]
    );
    let taken = act(&mut member, 0.0, looked(1));
    let lease = seconds(6.0);
    let question = Question(2);
    assert_eq!(
        taken,
        [Action::Take {
            question,
            seen: 0,
            lease
        }]
    );
    let until = Time(5 * SECOND);
    let served = act(&mut member, 0.1, Input::Taken { question, epoch: 1 });
    assert_eq!(served, [Action::Serve { epoch: 1, until }]);
    member
}

#[test]
fn a_lease_counts_from_when_its_renewal_was_sent() {
    let mut member = serving();
    assert_eq!(act(&mut member, 2.0, Input::Tick), [renewal(6.0)]);
    // The answer took two seconds; they are gone.
    let until = Time(7 * SECOND);
    let extended = act(&mut member, 4.0, Input::Renewed(Question(3)));
    assert_eq!(extended[0], Action::Extend { until });
    assert_eq!(member.serves(Time(7 * SECOND - 1)), Some(1));
    assert_eq!(member.serves(Time(7 * SECOND)), None);
}

#[test]
fn whoever_wakes_up_late_stops_and_does_not_renew() {
    let mut member = serving();
    let stopped = act(&mut member, 60.0, Input::Tick);
    assert_eq!(stopped, [Action::Stop(Reason::LeaseOver)]);
    // Nor does an answer that comes late bring it back.
    let mut member = serving();
    act(&mut member, 2.0, Input::Tick);
    let stopped = act(&mut member, 5.1, Input::Renewed(Question(3)));
    assert_eq!(stopped, [Action::Stop(Reason::LeaseOver)]);
    assert_eq!(act(&mut member, 5.2, Input::Ended), []);
    assert_eq!(
        act(&mut member, 6.3, Input::Tick),
        [Action::Look(Question(4))]
    );
}

#[test]
fn a_slow_database_makes_leases_longer_up_to_a_bound() {
    let mut member = serving();
    act(&mut member, 1.0, Input::Committed(seconds(4.0)));
    assert_eq!(act(&mut member, 2.0, Input::Tick), [renewal(16.0)]);
    act(&mut member, 2.5, Input::Committed(seconds(100.0)));
    assert_eq!(member.lease(), seconds(60.0));
}

#[test]
fn whoever_hands_over_lets_go_and_leaves_it_to_others_for_a_while() {
    let mut member = serving();
    let stopped = act(&mut member, 1.0, Input::HandOver);
    assert_eq!(stopped, [Action::Stop(Reason::HandOver)]);
    assert_eq!(
        act(&mut member, 1.5, Input::Ended),
        [Action::Release { epoch: 1 }]
    );
    assert_eq!(act(&mut member, 20.0, Input::Tick), []);
    assert_eq!(
        act(&mut member, 32.0, Input::Tick),
        [Action::Look(Question(3))]
    );
}

#[test]
fn an_unanswered_take_is_not_taken_for_a_success() {
    let mut member = Member::new(Time(0), Pace::default());
    act(&mut member, 0.0, Input::Tick);
    act(&mut member, 0.0, looked(1));
    let question = Question(2);
    assert_eq!(act(&mut member, 3.0, Input::Unanswered(question)), []);
    // The answer to it comes after all.
    assert_eq!(
        act(&mut member, 3.1, Input::Taken { question, epoch: 1 }),
        []
    );
    assert_eq!(member.serves(Time(3 * SECOND)), None);
}

/// The row of the shard, with its own clock: the true one.
#[derive(Default)]
struct Row {
    epoch: u64,
    holder: usize,
    expires: u64,
}

/// Something that is under way.
#[derive(Clone, Copy)]
enum Message {
    Wake,
    Request(Action),
    Answer(Input),
    Ended,
}

/// What one run came to.
struct Outcome {
    epochs: u64,
    served: u64,
}

/// Members whose messages are late or lost, and who stand still now and then.
fn storm(seed: u64) -> Outcome {
    let mut rng = Rng::new(seed);
    let count = 2 + rng.below(3) as usize;
    let mut members = vec![Member::new(Time(0), Pace::default()); count];
    let mut until = vec![0_u64; count];
    let mut stands_still_until = vec![0_u64; count];
    let mut row = Row::default();
    let mut queue: BTreeMap<(u64, u64), (usize, Message)> = BTreeMap::new();
    let mut sequence = 0;
    let mut outcome = Outcome {
        epochs: 0,
        served: 0,
    };
    let calm_from = 200 * SECOND;
    let end = 300 * SECOND;
    for member in 0..count {
        queue.insert((0, member as u64 + 1_000_000_000), (member, Message::Wake));
    }
    while let Some(((now, _), (who, message))) = queue.pop_first() {
        if now > end {
            break;
        }
        let is_calm = now > calm_from;
        let mut later = |at: u64, message| {
            sequence += 1;
            queue.insert((at, sequence), (who, message));
        };
        let delay = match (is_calm, rng.below(20)) {
            (true, _) => rng.below(SECOND / 20),
            (false, 0) => rng.below(12 * SECOND),
            (false, _) => rng.below(SECOND / 2),
        };
        let is_lost = !is_calm && rng.below(15) == 0;
        let input = match message {
            // A request reaches the database, also when its sender has given up on it; the answer may be lost.
            Message::Request(action) => {
                if let Some((question, answer)) = ask(&mut row, now, who, action) {
                    let unanswered = Input::Unanswered(question);
                    match is_lost {
                        true => later(now + 5 * SECOND, Message::Answer(unanswered)),
                        false => later(now + delay, Message::Answer(answer)),
                    }
                }
                continue;
            }
            _ if now < stands_still_until[who] => {
                later(stands_still_until[who], message);
                continue;
            }
            Message::Wake => {
                if !is_calm && rng.below(100) == 0 {
                    stands_still_until[who] = now + rng.below(20 * SECOND);
                }
                later(now + SECOND / 10, Message::Wake);
                match rng.below(400) {
                    0 => Input::HandOver,
                    _ => Input::Tick,
                }
            }
            Message::Answer(input) => input,
            Message::Ended => Input::Ended,
        };
        let mut actions = Vec::new();
        members[who].handle(Time(now), input, &mut actions);
        for action in actions {
            match action {
                Action::Serve { until: at, .. } => {
                    outcome.epochs += 1;
                    until[who] = at.0;
                }
                Action::Extend { until: at } => until[who] = at.0,
                Action::Stop(_) => {
                    until[who] = until[who].min(now);
                    later(now + delay, Message::Ended);
                }
                request => {
                    // Written down when it is sent; it arrives later.
                    later(now + delay, Message::Request(request));
                }
            }
        }
        // Books of their own: nobody but the holder in the database serves, and never two.
        for (other, until) in until.iter().enumerate() {
            if now < *until && members[other].serves(Time(now)).is_some() {
                outcome.served += 1;
                assert_eq!(row.holder, other, "seed {seed} at {now}: two serve");
                assert_eq!(
                    members[other].serves(Time(now)),
                    Some(row.epoch),
                    "seed {seed}"
                );
            }
        }
    }
    let serving = (0..count).filter(|who| members[*who].serves(Time(end)).is_some());
    let hands_over = until.iter().all(|until| *until + 40 * SECOND < end);
    assert!(
        serving.count() == 1 || !hands_over,
        "seed {seed}: nobody serves in the end"
    );
    outcome
}

/// What the database does and answers.
fn ask(row: &mut Row, now: u64, who: usize, action: Action) -> Option<(Question, Input)> {
    match action {
        Action::Look(question) => {
            let left = Span(row.expires.saturating_sub(now));
            let epoch = row.epoch;
            Some((
                question,
                Input::Looked {
                    question,
                    epoch,
                    left,
                },
            ))
        }
        Action::Take {
            question,
            seen,
            lease,
        } => {
            if row.epoch != seen || row.expires > now {
                return Some((question, Input::NotTaken(question)));
            }
            let epoch = seen + 1;
            *row = Row {
                epoch,
                holder: who,
                expires: now + lease.0,
            };
            Some((question, Input::Taken { question, epoch }))
        }
        Action::Renew {
            question,
            epoch,
            lease,
        } => {
            if row.epoch != epoch {
                return Some((question, Input::Fenced(question)));
            }
            row.expires = now + lease.0;
            Some((question, Input::Renewed(question)))
        }
        Action::Release { epoch } => {
            if row.epoch == epoch {
                row.expires = now;
            }
            None
        }
        other => unreachable!("{other:?} is no question"),
    }
}

#[test]
fn no_two_serve_whatever_is_late_lost_or_stopped() {
    let (mut epochs, mut served) = (0, 0);
    for seed in 0..300 {
        let outcome = storm(seed);
        epochs += outcome.epochs;
        served += outcome.served;
    }
    // The storms did something: shards changed hands, and somebody served for most of the time.
    assert!(epochs > 600, "{epochs}");
    assert!(served > 100_000, "{served}");
}
