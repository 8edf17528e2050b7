//! `par_iter` code as people write it, and what packages that build on rayon do, to be built with rayon's own core
//! and with ours.
//!
//! `rayon-cases one CASE` prints nanoseconds per run of a case (median of batches); `rayon-cases compare A B [ROUNDS]` runs two builds in
//! turns, every case in a process of its own, and prints the median of the ratios within a round.

use std::hint::black_box;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use indexmap::IndexMap;
use rayon::prelude::*;

/// A name, how often it runs in a round, and what it does.
type Case = (&'static str, u32, fn(&Data));

struct Data {
    numbers: Vec<u32>,
    text: Vec<String>,
    index: IndexMap<u32, u32>,
    table: HashMap<u32, u32>,
}

const CASES: &[Case] = &[
    ("map-collect", 30, |data| {
        let squares: Vec<u64> = data
            .numbers
            .par_iter()
            .map(|&n| u64::from(n).pow(2))
            .collect();
        black_box(squares);
    }),
    ("filter-sum", 50, |data| {
        let numbers = data.numbers.par_iter();
        black_box(
            numbers
                .filter(|n| *n % 3 == 0)
                .map(|&n| u64::from(n))
                .sum::<u64>(),
        );
    }),
    ("sort", 2, |data| {
        let mut numbers = data.numbers.clone();
        numbers.par_sort();
        black_box(numbers);
    }),
    ("sort-unstable", 3, |data| {
        let mut numbers = data.numbers.clone();
        numbers.par_sort_unstable();
        black_box(numbers);
    }),
    ("chunks", 50, |data| {
        let chunks = data.numbers.par_chunks(1000);
        black_box(chunks.map(|chunk| chunk.iter().max().copied()).max());
    }),
    ("nested", 20, |data| {
        let rows = data.numbers.par_chunks(10_000);
        let sums = rows.map(|row| row.par_iter().map(|&n| u64::from(n)).sum::<u64>());
        black_box(sums.max());
    }),
    ("quicksort", 2, |data| {
        let mut numbers = data.numbers.clone();
        quicksort(&mut numbers);
        black_box(numbers);
    }),
    ("words", 10, |data| {
        let words = data.text.par_iter().flat_map_iter(|line| line.split(' '));
        black_box(words.filter(|word| word.len() > 3).count());
    }),
    ("tiny-outside", 2000, |data| {
        black_box(
            data.numbers[..20]
                .par_iter()
                .map(|&n| u64::from(n))
                .sum::<u64>(),
        );
    }),
    ("tiny-inside", 1, |data| {
        rayon::scope(|_| {
            for _ in 0..20_000 {
                black_box(
                    data.numbers[..20]
                        .par_iter()
                        .map(|&n| u64::from(n))
                        .sum::<u64>(),
                );
            }
        });
    }),
    ("spawns", 1, |_| {
        rayon::scope(|scope| {
            (0..100_000_u64).for_each(|n| {
                scope.spawn(move |_| {
                    black_box(n);
                })
            })
        });
    }),
    ("fibonacci", 1, |_| {
        black_box(fibonacci(black_box(27)));
    }),
    ("indexmap-sum", 50, |data| {
        black_box(data.index.par_values().map(|&n| u64::from(n)).sum::<u64>());
    }),
    ("indexmap-sort", 2, |data| {
        let mut index = data.index.clone();
        index.par_sort_by(|_, a, _, b| a.cmp(b));
        black_box(index);
    }),
    ("hashbrown-sum", 20, |data| {
        black_box(data.table.par_iter().map(|(_, &n)| u64::from(n)).sum::<u64>());
    }),
    ("hashbrown-collect", 2, |data| {
        let pairs = data.numbers.par_iter().map(|&n| (n, n / 2));
        black_box(pairs.collect::<HashMap<u32, u32>>());
    }),
    ("jwalk", 5, |_| {
        let entries = jwalk::WalkDir::new(tree()).sort(true).into_iter();
        assert_eq!(entries.count(), 1 + FOLDERS + FOLDERS * FILES);
    }),
];

const FOLDERS: usize = 100;
const FILES: usize = 20;

/// A folder with folders with files, made once.
fn tree() -> PathBuf {
    let root = std::env::temp_dir().join("rayon-cases-tree");
    let is_there = root.join("complete").with_extension("mark");
    let root = root.join("tree");
    if !is_there.exists() {
        for folder in 0..FOLDERS {
            let folder = root.join(folder.to_string());
            std::fs::create_dir_all(&folder).expect("a place for files");
            for file in 0..FILES {
                std::fs::write(folder.join(file.to_string()), "").expect("a place for files");
            }
        }
        std::fs::write(is_there, "").expect("a place for files");
    }
    root
}

fn quicksort(numbers: &mut [u32]) {
    if numbers.len() < 100 {
        numbers.sort_unstable();
        return;
    }
    let pivot = numbers[numbers.len() / 2];
    let mut below = 0;
    let last = numbers.len() - 1;
    numbers.swap(numbers.len() / 2, last);
    for index in 0..last {
        if numbers[index] < pivot {
            numbers.swap(index, below);
            below += 1;
        }
    }
    numbers.swap(below, last);
    let (low, high) = numbers.split_at_mut(below);
    rayon::join(|| quicksort(low), || quicksort(&mut high[1..]));
}

fn fibonacci(n: u32) -> u64 {
    if n < 2 {
        return u64::from(n);
    }
    let (a, b) = rayon::join(|| fibonacci(n - 1), || fibonacci(n - 2));
    a + b
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["one", name] => println!("{}", one(name)),
        ["compare", a, b] => compare(a, b, 7),
        ["compare", a, b, rounds] => compare(a, b, rounds.parse().expect("a number of rounds")),
        _ => eprintln!("rayon-cases one CASE | compare PROGRAM PROGRAM [ROUNDS]"),
    }
}

/// How long a case runs in a process, in at least five batches.
const ENOUGH: Duration = Duration::from_millis(200);

/// The median of batches, in nanoseconds per run.
fn one(name: &str) -> f64 {
    let number = |n: u32| n.wrapping_mul(2_654_435_761).rotate_left(7);
    let data = Data {
        numbers: (0..1_000_000).map(number).collect(),
        text: (0..20_000)
            .map(|n| format!("the {n} quick brown foxes jump over {n} lazy dogs"))
            .collect(),
        index: (0..200_000).map(|n| (n, number(n))).collect(),
        table: (0..200_000).map(|n| (n, number(n))).collect(),
    };
    let case = CASES.iter().find(|case| case.0 == name);
    let (_, runs, body) = case.expect("a case of this name");
    body(&data);
    // Not one batch: which processors the threads happen to be on at first would decide the short cases.
    let begun = Instant::now();
    let mut figures = Vec::new();
    while figures.len() < 5 || begun.elapsed() < ENOUGH {
        let start = Instant::now();
        (0..*runs).for_each(|_| body(&data));
        figures.push(start.elapsed().as_nanos() as f64 / f64::from(*runs));
    }
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn compare(a: &str, b: &str, rounds: usize) {
    let run = |program: &str, case: &str| -> f64 {
        let output = Command::new(program)
            .args(["one", case])
            .output()
            .expect("it runs");
        let text = String::from_utf8(output.stdout).expect("a number");
        text.trim().parse().expect("a number")
    };
    let mut product = 1.0;
    println!(
        "{:16} {:>12} {:>12} {:>8}",
        "case", "first, us", "second, us", "ratio"
    );
    for (case, ..) in CASES {
        let mut figures: Vec<(f64, f64)> = (0..rounds)
            .map(|round| match round % 2 {
                0 => (run(a, case), run(b, case)),
                _ => {
                    let second = run(b, case);
                    (run(a, case), second)
                }
            })
            .collect();
        figures.sort_by(|left, right| (left.0 / left.1).total_cmp(&(right.0 / right.1)));
        let (first, second) = figures[rounds / 2];
        product *= first / second;
        println!(
            "{case:16} {:12.1} {:12.1} {:8.3}",
            first / 1e3,
            second / 1e3,
            first / second
        );
    }
    println!(
        "geometric mean of the ratios: {:.3}",
        product.powf(1.0 / CASES.len() as f64)
    );
}
