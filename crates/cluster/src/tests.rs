//! One member, step by step.

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
    // It looks who serves, and does not take it back.
    let free = |question| Input::Looked {
        question: Question(question),
        epoch: 1,
        left: Span(0),
    };
    assert_eq!(
        act(&mut member, 20.0, Input::Tick),
        [Action::Look(Question(3))]
    );
    assert_eq!(act(&mut member, 20.0, free(3)), []);
    let mut other = member.clone();
    // Nobody wants it.
    act(&mut member, 31.9, Input::Tick);
    let taken = act(&mut member, 31.9, free(4));
    assert!(matches!(taken[..], [Action::Take { seen: 1, .. }]));
    // Somebody took it, and is gone.
    act(&mut other, 25.0, Input::Tick);
    let gone = Input::Looked {
        question: Question(4),
        epoch: 2,
        left: Span(0),
    };
    let taken = act(&mut other, 25.0, gone);
    assert!(matches!(taken[..], [Action::Take { seen: 2, .. }]));
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

#[test]
fn whoever_is_in_doubt_looks_before_anything_is_sent_again() {
    let mut append = Append::default();
    assert_eq!(append.next(true), Step::Send);
    assert_eq!(append.hear(Heard::Unknown), None);
    assert_eq!(append.next(true), Step::Look);
    assert_eq!(append.hear(Heard::Unanswered), None);
    assert_eq!(append.next(true), Step::Look);
    assert_eq!(append.next(false), Step::GiveUp);
    assert_eq!(append.hear(Heard::Absent), None);
    assert_eq!(append.next(true), Step::Send);
    assert_eq!(append.hear(Heard::Committed), Some(Outcome::Written));
}

/// What was sent before the line broke arrives after the look that did not find it.
#[test]
fn a_group_that_arrives_late_is_recognised_as_our_own() {
    let mut append = Append::default();
    assert_eq!(append.hear(Heard::Unknown), None);
    assert_eq!(append.hear(Heard::Absent), None);
    assert_eq!(append.next(true), Step::Send);
    assert_eq!(append.hear(Heard::Fenced), None, "by whom is not known");
    assert_eq!(append.next(true), Step::Look);
    assert_eq!(append.hear(Heard::Found), Some(Outcome::Written));

    let mut taken = Append::default();
    assert_eq!(taken.hear(Heard::Unknown), None);
    assert_eq!(taken.hear(Heard::Absent), None);
    assert_eq!(taken.hear(Heard::Fenced), None);
    let looked = taken.hear(Heard::Fenced);
    assert_eq!(looked, Some(Outcome::Fenced), "somebody else has it");
}
