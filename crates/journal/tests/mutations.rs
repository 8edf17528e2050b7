//! Files that somebody has been at: random edits, the same claims as for a single flipped bit.
//!
//! The quick form of a fuzz target, with a structure that a byte-wise fuzzer would need long to find: it
//! edits journals that were whole. `LOXLEY_TEST_LONG=1` tries many more.
#![expect(clippy::unwrap_used, reason = "a failure in a test is the message")]

mod damaged;
mod sample;

use damaged::{Content, FILES, Image, closed, crashed, crashed_with_room, meet};
use proptest::prelude::*;
use proptest::sample::Index;

#[derive(Clone, Debug)]
enum Edit {
    Set {
        at: Index,
        to: u8,
    },
    Zero {
        at: Index,
        length: usize,
    },
    Cut {
        to: Index,
    },
    Insert {
        at: Index,
        bytes: Vec<u8>,
    },
    /// Copies a piece over another place of the same file.
    Copy {
        from: Index,
        to: Index,
        length: usize,
    },
}

fn edit() -> impl Strategy<Value = Edit> {
    let length = prop_oneof![1..64_usize, Just(512), Just(536)];
    prop_oneof![
        6 => (any::<Index>(), any::<u8>()).prop_map(|(at, to)| Edit::Set { at, to }),
        2 => (any::<Index>(), length.clone()).prop_map(|(at, length)| Edit::Zero { at, length }),
        1 => any::<Index>().prop_map(|to| Edit::Cut { to }),
        1 => (any::<Index>(), prop::collection::vec(any::<u8>(), 1..600))
            .prop_map(|(at, bytes)| Edit::Insert { at, bytes }),
        2 => (any::<Index>(), any::<Index>(), length)
            .prop_map(|(from, to, length)| Edit::Copy { from, to, length }),
    ]
}

fn apply(file: &mut Vec<u8>, edit: &Edit) {
    let place = |index: &Index| index.index(file.len() + 1);
    match edit {
        Edit::Set { at, to } => {
            let at = place(at);
            if let Some(byte) = file.get_mut(at) {
                *byte = *to;
            }
        }
        Edit::Zero { at, length } => {
            let at = place(at);
            let end = (at + length).min(file.len());
            file[at..end].fill(0);
        }
        Edit::Cut { to } => {
            let to = place(to);
            file.truncate(to);
        }
        Edit::Insert { at, bytes } => {
            let at = place(at);
            file.splice(at..at, bytes.iter().copied());
        }
        Edit::Copy { from, to, length } => {
            let (from, to) = (place(from), place(to));
            let length = (*length).min(file.len() - from).min(file.len() - to);
            file.copy_within(from..from + length, to);
        }
    }
}

thread_local! {
    /// Made once: whole journals, and what they hold.
    static JOURNALS: [(Image, Content); 3] =
        [closed(), crashed(), crashed_with_room(&closed().0)];
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if std::env::var_os("LOXLEY_TEST_LONG").is_some() { 20_000 } else { 300 },
        ..ProptestConfig::default()
    })]

    #[test]
    fn edited_files_are_told_or_hold_what_was_written(
        which in 0..3_usize,
        edits in prop::collection::vec((0..FILES.len(), edit()), 1..5),
    ) {
        JOURNALS.with(|journals| {
            let (whole, written) = &journals[which];
            let mut image = whole.clone();
            for (file, edit) in &edits {
                if let Some(bytes) = &mut image[*file] {
                    apply(bytes, edit);
                }
            }
            meet(&image, written, &format!("{edits:?}"));
        });
    }
}
