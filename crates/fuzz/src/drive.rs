//! A bounded run: seeds, then mutations of them, the same every time.

use std::time::{Duration, Instant};

use loxley_balance::Rng;

use crate::Target;

/// How far a run goes.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// So many mutations.
    Inputs(u64),
    /// For so long.
    Time(Duration),
}

/// Runs a target on its seeds and on mutations of them. Returns how many inputs it has seen.
pub fn drive(target: Target, seed: u64, bound: Bound) -> u64 {
    let seeds = (target.seeds)();
    for input in &seeds {
        (target.run)(input);
    }
    let mut rng = Rng::new(seed).child(target.name);
    let begun = Instant::now();
    let mut inputs = 0;
    loop {
        let over = match bound {
            Bound::Inputs(most) => inputs >= most,
            Bound::Time(most) => begun.elapsed() >= most,
        };
        if over {
            return inputs + seeds.len() as u64;
        }
        let input = mutate(&seeds, &mut rng);
        let watch = Watch(&input);
        (target.run)(&input);
        std::mem::forget(watch);
        inputs += 1;
    }
}

/// Shows the input when the target panics.
struct Watch<'a>(&'a [u8]);

impl Drop for Watch<'_> {
    #[expect(
        clippy::print_stderr,
        reason = "whoever reads the panic needs the input"
    )]
    fn drop(&mut self) {
        eprintln!("the input: b\"{}\"", self.0.escape_ascii());
    }
}

/// The longest input.
const LENGTH_MAX: usize = 256 << 10;

/// Bytes and words that meant something to somebody.
const WORDS: &[&[u8]] = &[
    b"",
    b"\0",
    b"\xff",
    b"-1",
    b"0",
    b"1e999",
    b"18446744073709551615",
    b"9999999999999999999999",
    b"NaN",
    b"null",
    b"[]",
    b"{}",
    b"{#}",
    b"[[[[[[[[",
    b"&a [*a,*a]",
    b"\xed\xa0\x80",
    "ö\u{202e}".as_bytes(),
    b"..",
    b"\n",
    b"\"",
    b": ",
    b"- ",
    b",",
];

fn mutate(seeds: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut input = seeds[rng.index(seeds.len())].clone();
    // Most inputs stay near one that makes sense: far away everything is refused at the door.
    for _ in 0..=rng.below(4) {
        change(&mut input, seeds, rng);
    }
    input.truncate(LENGTH_MAX);
    input
}

fn change(input: &mut Vec<u8>, seeds: &[Vec<u8>], rng: &mut Rng) {
    let at = rng.index(input.len() + 1);
    let piece = piece(input, rng);
    match rng.below(8) {
        0 => flip(input, rng),
        1 => overwrite(input, at, rng),
        2 => drop(input.drain(piece)),
        3 => {
            let copy = input[piece].to_vec();
            insert(input, at, &copy);
        }
        4 => {
            let word = WORDS[rng.index(WORDS.len())];
            input.splice(piece, word.iter().copied());
        }
        5 => {
            let word = WORDS[rng.index(WORDS.len())];
            insert(input, at, word);
        }
        6 => {
            let other = &seeds[rng.index(seeds.len())];
            let from = rng.index(other.len() + 1);
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        _ => {
            let copy = input[piece].to_vec();
            for _ in 0..rng.below(40) {
                insert(input, at, &copy);
            }
        }
    }
}

/// A short piece of the input, where it begins a word more often than not.
fn piece(input: &[u8], rng: &mut Rng) -> std::ops::Range<usize> {
    let from = rng.index(input.len() + 1);
    let length = match rng.below(3) {
        0 => 1,
        1 => rng.index(8),
        _ => {
            let rest = input[from..].iter();
            let word = rest.take_while(|byte| byte.is_ascii_alphanumeric());
            word.count()
        }
    };
    from..(from + length).min(input.len())
}

fn flip(input: &mut [u8], rng: &mut Rng) {
    if !input.is_empty() {
        let at = rng.index(input.len());
        input[at] ^= 1 << rng.below(8);
    }
}

fn overwrite(input: &mut [u8], at: usize, rng: &mut Rng) {
    let number = match rng.below(3) {
        0 => u64::MAX,
        1 => 0,
        _ => rng.next_u64(),
    };
    let length = 1 << rng.below(4);
    for (byte, new) in input[at..]
        .iter_mut()
        .zip(number.to_le_bytes())
        .take(length)
    {
        *byte = new;
    }
}

fn insert(input: &mut Vec<u8>, at: usize, piece: &[u8]) {
    if input.len() + piece.len() <= LENGTH_MAX {
        input.splice(at..at, piece.iter().copied());
    }
}
