//! Every bit of damage is told, or does no harm; nothing panics, nothing is read over.
//!
//! A small journal is written, once closed in order and once left as a crash leaves it. Then one bit
//! of every byte of every file is flipped, and every file is cut at every length. A damaged journal
//! must be refused, or give a notice, or have a finding in its check; one that does none of these
//! must still hold exactly what was written. What is read is always a beginning of what was written.
#![expect(clippy::unwrap_used, reason = "a failure in a test is the message")]

mod damaged;
mod sample;

use damaged::{
    Content, FILES, Image, Met, closed, crashed, crashed_after, crashed_with_room, meet, options,
    restore,
};
use loxley_journal::{Journal, Limit, Notice, Position, SqliteJournal, check};

fn count(met: &[Met], what: Met) -> usize {
    met.iter().filter(|met| **met == what).count()
}

fn flip_every_byte(image: &Image, written: &Content, file: usize) -> Vec<Met> {
    let length = image[file].as_ref().unwrap().len();
    flip_bytes(image, written, file, 0..length)
}

fn flip_bytes(
    image: &Image,
    written: &Content,
    file: usize,
    places: impl Iterator<Item = usize>,
) -> Vec<Met> {
    let flip = |at: usize| {
        let mut image = image.clone();
        // Every bit has its turn.
        image[file].as_mut().unwrap()[at] ^= 1 << ((at + at / 8) % 8);
        meet(
            &image,
            written,
            &format!("{} with a flip at byte {at}", FILES[file]),
        )
    };
    places.map(flip).collect()
}

fn cut_at_every_length(image: &Image, written: &Content, file: usize) -> Vec<Met> {
    let length = image[file].as_ref().unwrap().len();
    cut_to(image, written, file, 0..length)
}

fn cut_to(
    image: &Image,
    written: &Content,
    file: usize,
    lengths: impl Iterator<Item = usize>,
) -> Vec<Met> {
    let cut = |to: usize| {
        let mut image = image.clone();
        image[file].as_mut().unwrap().truncate(to);
        meet(
            &image,
            written,
            &format!("{} cut to {to} bytes", FILES[file]),
        )
    };
    lengths.map(cut).collect()
}

#[test]
fn whole_journals_are_met_without_a_word() {
    for (image, written) in [closed(), crashed()] {
        assert_eq!(meet(&image, &written, "nothing"), Met::Harmless);
    }
}

#[test]
fn a_flipped_bit_anywhere_in_the_file_is_told_or_harmless() {
    let (image, written) = closed();
    let met = flip_every_byte(&image, &written, 0);
    // Most bytes are content or structure; the rest is unused room of pages.
    let told = met.len() - count(&met, Met::Harmless);
    assert!(
        told * 3 > met.len(),
        "only {told} of {} were told",
        met.len()
    );
}

#[test]
fn a_flipped_bit_anywhere_in_the_log_is_refused() {
    let (image, written) = crashed();
    let met = flip_every_byte(&image, &written, 1);
    // Thanks to the mark, even damage to the last commit is known to have been acknowledged.
    assert_eq!(count(&met, Met::Refused), met.len());
}

#[test]
fn a_flipped_bit_anywhere_in_the_mark_is_noticed() {
    let (image, written) = crashed();
    let met = flip_every_byte(&image, &written, 2);
    assert_eq!(count(&met, Met::Noticed), met.len());
}

#[test]
fn a_file_cut_at_any_length_is_refused() {
    let (image, written) = closed();
    let met = cut_at_every_length(&image, &written, 0);
    assert_eq!(count(&met, Met::Harmless) + count(&met, Met::Noticed), 0);
}

#[test]
fn a_log_cut_at_any_length_is_refused() {
    let (image, written) = crashed();
    let met = cut_at_every_length(&image, &written, 1);
    assert_eq!(count(&met, Met::Refused), met.len());
}

/// What a power cut leaves: the mark is older than the log, which was being written.
#[test]
fn a_torn_end_of_the_log_is_dropped_with_a_notice() {
    let (before, _) = closed();
    let (mut image, written) = crashed_after(&before);
    image[2] = before[2].clone();
    let whole = image[1].clone().unwrap().len();
    let mut ends = Vec::new();
    for length in 0..whole {
        let mut torn = image.clone();
        torn[1].as_mut().unwrap().truncate(length);
        let directory = restore(&torn);
        let opened = SqliteJournal::open(directory.path(), &options()).unwrap();
        let next = opened.journal.next_position();
        ends.push(next.0);
        match opened.notices[..] {
            [Notice::TornTail { bytes, next: told }] => {
                assert!(bytes <= length as u64 && told == next);
            }
            // Cut between two commits: nothing tells that there was more.
            [] => assert_eq!(
                meet(&torn, &written_up_to(&written, next), "a cut"),
                Met::Harmless
            ),
            ref other => panic!("cut to {length}: {other:?}"),
        }
    }
    ends.dedup();
    assert_eq!(ends, [4, 5], "the longest log is not whole");
}

/// The content after the groups before `next`.
fn written_up_to(all: &Content, next: Position) -> Content {
    let jobs = next.0;
    Content {
        groups: all.groups[..next.0 as usize].to_vec(),
        snapshot: all.snapshot.clone(),
        tasks: all
            .tasks
            .iter()
            .filter(|row| row.job.0 < jobs)
            .cloned()
            .collect(),
        outputs: all
            .outputs
            .iter()
            .filter(|row| row.0.0 < jobs * 10)
            .cloned()
            .collect(),
        jobs: all
            .jobs
            .iter()
            .filter(|row| row.job.0 < jobs)
            .cloned()
            .collect(),
        agents: all
            .agents
            .iter()
            .filter(|row| row.agent.0 < jobs)
            .cloned()
            .collect(),
    }
}

/// The bytes of a log that are not room ahead of it.
fn frames_of(log: &[u8]) -> usize {
    let frame = 24 + 512;
    let is_frame = |index: &usize| {
        let bytes = log.get(32 + index * frame..);
        bytes.is_some_and(|bytes| bytes.len() >= frame && bytes[..4] != [0; 4])
    };
    32 + (0..).take_while(is_frame).count() * frame
}

#[test]
fn damage_to_the_room_ahead_of_the_log_does_no_harm() {
    let (image, written) = crashed_with_room(&closed().0);
    let log = image[1].as_ref().unwrap();
    let frames = frames_of(log);
    assert!(
        log.len() >= frames + 700,
        "{} bytes of room",
        log.len() - frames
    );
    assert_eq!(meet(&image, &written, "nothing"), Met::Harmless);
    let room = frames..log.len();
    for met in [
        flip_bytes(&image, &written, 1, room.clone()),
        cut_to(&image, &written, 1, room),
    ] {
        assert_eq!(count(&met, Met::Harmless), met.len());
    }
    // What is no room is told as ever.
    let used = || (0..frames).step_by(23);
    for met in [
        flip_bytes(&image, &written, 1, used()),
        cut_to(&image, &written, 1, used()),
    ] {
        assert_eq!(count(&met, Met::Refused), met.len());
    }
}

/// What a power cut leaves of a log with room ahead: zeros where the last commit was to be.
#[test]
fn a_torn_end_before_room_is_dropped_with_a_notice() {
    let (before, _) = closed();
    let (mut image, _) = crashed_with_room(&before);
    image[2] = before[2].clone();
    let frames = frames_of(image[1].as_ref().unwrap());
    let mut ends = Vec::new();
    for length in (0..frames).step_by(5) {
        let mut torn = image.clone();
        torn[1].as_mut().unwrap()[length..].fill(0);
        let directory = restore(&torn);
        let opened = SqliteJournal::open(directory.path(), &options()).unwrap();
        let next = opened.journal.next_position();
        ends.push(next.0);
        match opened.notices[..] {
            [Notice::TornTail { bytes, next: told }] => {
                assert!(told == next);
                assert!(bytes < length as u64 + 24 + 512, "cut at {length}: {bytes}");
            }
            // What was zeroed was zero, or a whole commit.
            [] => {}
            ref other => panic!("cut to {length}: {other:?}"),
        }
    }
    ends.dedup();
    assert_eq!(ends[..2], [4, 5]);
}

/// Without a mark, damage to a commit that others were built upon is still seen.
#[test]
fn damage_in_the_middle_of_the_log_is_refused_without_a_mark() {
    let (mut image, written) = crashed();
    image[2] = None;
    let log = image[1].clone().unwrap();
    let frame = 24 + 512;
    let commit = |index: usize| log[32 + index * frame + 4..][..4] != [0; 4];
    let first_commit = (0..).find(|index| commit(*index)).unwrap();
    for at in (0..32 + first_commit * frame).step_by(7) {
        let mut image = image.clone();
        image[1].as_mut().unwrap()[at] ^= 16;
        let met = meet(&image, &written, &format!("log without mark, byte {at}"));
        assert!(
            met == Met::Refused || met == Met::Noticed,
            "byte {at}: {met:?}"
        );
        if at >= 32 + frame {
            assert_eq!(met, Met::Refused, "byte {at}");
        }
    }
}

#[test]
fn a_lost_file_is_refused() {
    let (image, written) = crashed();
    for file in [0, 1] {
        let mut image = image.clone();
        image[file] = None;
        assert_eq!(
            meet(&image, &written, &format!("no {}", FILES[file])),
            Met::Refused
        );
    }
    let mut image = image;
    image[2] = None;
    assert_eq!(meet(&image, &written, "no mark"), Met::Noticed);
}

#[test]
fn the_message_names_the_position() {
    let (image, _) = closed();
    // The facts of group 3 are forty bytes of 3.
    let file = image[0].as_ref().unwrap();
    let at = file.windows(40).position(|bytes| bytes == [3; 40]).unwrap();
    let mut damaged = image.clone();
    damaged[0].as_mut().unwrap()[at + 20] = 7;
    let directory = restore(&damaged);
    let findings = check(directory.path()).unwrap().findings;
    assert_eq!(
        findings[0].to_string(),
        "the journal is damaged at position 3: the CRC does not fit the facts"
    );
    let mut journal = SqliteJournal::open(directory.path(), &options())
        .unwrap()
        .journal;
    let error = journal.read(Position(0), Limit::default()).unwrap_err();
    assert!(error.to_string().contains("position 3"), "{error}");
    assert_eq!(
        journal
            .read(
                Position(0),
                Limit {
                    groups: 3,
                    bytes: 1000
                }
            )
            .unwrap()
            .len(),
        3
    );
}
