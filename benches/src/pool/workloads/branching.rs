//! Fork-join as it is found in textbooks and in other people's benchmarks: nobody tuned for these.

use std::hint::black_box;
use std::time::Instant;

use crate::pool::contract::{ForkJoin, ForkJoinWorkload};

fn milliseconds(body: impl FnOnce()) -> f64 {
    let start = Instant::now();
    body();
    start.elapsed().as_secs_f64() * 1e3
}

/// All ways to put so many queens on a board, a fork for each half of the free columns.
pub(crate) struct Queens(pub(crate) u32);

impl ForkJoinWorkload for Queens {
    fn figure<P: ForkJoin>(&self, pool: &P) -> f64 {
        let ways = [1, 1, 0, 0, 2, 10, 4, 40, 92, 352, 724, 2680, 14_200, 73_712];
        milliseconds(|| {
            let found = pool.run(|context| queens::<P>(context, black_box(self.0), 0, 0, 0));
            assert_eq!(found, ways[self.0 as usize]);
        })
    }
}

fn queens<P: ForkJoin>(
    context: &mut P::Context<'_>,
    n: u32,
    columns: u32,
    left: u32,
    right: u32,
) -> u64 {
    let all = (1 << n) - 1;
    if columns == all {
        return 1;
    }
    place::<P>(
        context,
        n,
        columns,
        left,
        right,
        all & !(columns | left | right),
    )
}

/// Tries the free columns of a row.
fn place<P: ForkJoin>(
    context: &mut P::Context<'_>,
    n: u32,
    columns: u32,
    left: u32,
    right: u32,
    free: u32,
) -> u64 {
    if free == 0 {
        return 0;
    }
    let queen = free & free.wrapping_neg();
    let (here, others) = P::join(
        context,
        |context| {
            let (left, right) = ((left | queen) << 1, (right | queen) >> 1);
            queens::<P>(context, n, columns | queen, left, right)
        },
        |context| place::<P>(context, n, columns, left, right, free & !queen),
    );
    here + others
}

/// The numbers below a power of ten, summed by a tree with ten children per node.
pub(crate) struct Skynet(pub(crate) u32);

impl ForkJoinWorkload for Skynet {
    fn figure<P: ForkJoin>(&self, pool: &P) -> f64 {
        let count = 10_u64.pow(self.0);
        milliseconds(|| {
            let sum = pool.run(|context| skynet::<P>(context, 0, black_box(count)));
            assert_eq!(sum, count * (count - 1) / 2);
        })
    }
}

fn skynet<P: ForkJoin>(context: &mut P::Context<'_>, start: u64, size: u64) -> u64 {
    if size == 1 {
        return start;
    }
    children::<P>(context, start, size / 10, 10)
}

fn children<P: ForkJoin>(context: &mut P::Context<'_>, start: u64, size: u64, count: u64) -> u64 {
    if count == 1 {
        return skynet::<P>(context, start, size);
    }
    let half = count / 2;
    let (left, right) = P::join(
        context,
        |context| children::<P>(context, start, size, half),
        |context| children::<P>(context, start + half * size, size, count - half),
    );
    left + right
}

/// Unbalanced tree search: each node has none or several children, as a hash of its path says.
pub(crate) struct Unbalanced {
    pub(crate) depth: u32,
}

impl ForkJoinWorkload for Unbalanced {
    fn figure<P: ForkJoin>(&self, pool: &P) -> f64 {
        let start = Instant::now();
        let nodes = pool.run(|context| search::<P>(context, black_box(42), self.depth, 0));
        start.elapsed().as_nanos() as f64 / nodes as f64
    }
}

pub(super) fn hash(state: u64) -> u64 {
    let mut state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

fn search<P: ForkJoin>(context: &mut P::Context<'_>, node: u64, depth: u32, level: u32) -> u64 {
    let hashed = hash(node);
    let wide = if level < 4 { 4 } else { hashed % 4 };
    if depth == level || wide == 0 {
        return 1;
    }
    1 + descend::<P>(context, hashed, depth, level + 1, 0, wide)
}

fn descend<P: ForkJoin>(
    context: &mut P::Context<'_>,
    parent: u64,
    depth: u32,
    level: u32,
    from: u64,
    to: u64,
) -> u64 {
    if to - from == 1 {
        return search::<P>(context, parent.wrapping_add(from), depth, level);
    }
    let middle = from + (to - from) / 2;
    let (left, right) = P::join(
        context,
        |context| descend::<P>(context, parent, depth, level, from, middle),
        |context| descend::<P>(context, parent, depth, level, middle, to),
    );
    left + right
}

/// A product of square matrices, the rows halved down to blocks.
pub(crate) struct Matrices {
    size: usize,
    left: Vec<f32>,
    right: Vec<f32>,
}

impl Matrices {
    pub(crate) fn new(size: usize) -> Self {
        let values = |seed: u64| {
            let value = |index| (hash(seed + index as u64) % 1000) as f32 / 1000.0;
            (0..size * size).map(value).collect()
        };
        Self {
            size,
            left: values(1),
            right: values(2),
        }
    }
}

impl ForkJoinWorkload for Matrices {
    fn figure<P: ForkJoin>(&self, pool: &P) -> f64 {
        let mut product = vec![0.0; self.size * self.size];
        milliseconds(|| pool.run(|context| multiply::<P>(context, self, 0, &mut product)))
    }
}

fn multiply<P: ForkJoin>(
    context: &mut P::Context<'_>,
    factors: &Matrices,
    first: usize,
    rows: &mut [f32],
) {
    let size = factors.size;
    let count = rows.len() / size;
    if count > 4 {
        let (above, below) = rows.split_at_mut(count / 2 * size);
        P::join(
            context,
            |context| multiply::<P>(context, factors, first, above),
            |context| multiply::<P>(context, factors, first + count / 2, below),
        );
        return;
    }
    for (row, result) in rows.chunks_exact_mut(size).enumerate() {
        for inner in 0..size {
            let factor = factors.left[(first + row) * size + inner];
            let others = &factors.right[inner * size..][..size];
            result
                .iter_mut()
                .zip(others)
                .for_each(|(sum, other)| *sum += factor * other);
        }
    }
}

/// Merge sort down to short runs, with a copy per level.
pub(crate) struct MergeSort {
    numbers: Vec<u64>,
}

impl MergeSort {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            numbers: (0..count as u64).map(hash).collect(),
        }
    }
}

impl ForkJoinWorkload for MergeSort {
    fn figure<P: ForkJoin>(&self, pool: &P) -> f64 {
        let (mut numbers, mut scratch) = (self.numbers.clone(), self.numbers.clone());
        let time = milliseconds(|| {
            pool.run(|context| merge_sort::<P>(context, &mut numbers, &mut scratch));
        });
        assert!(numbers.is_sorted());
        time
    }
}

fn merge_sort<P: ForkJoin>(context: &mut P::Context<'_>, numbers: &mut [u64], scratch: &mut [u64]) {
    if numbers.len() <= 64 {
        numbers.sort_unstable();
        return;
    }
    let middle = numbers.len() / 2;
    let (left, right) = numbers.split_at_mut(middle);
    let (left_scratch, right_scratch) = scratch.split_at_mut(middle);
    P::join(
        context,
        |context| merge_sort::<P>(context, left, left_scratch),
        |context| merge_sort::<P>(context, right, right_scratch),
    );
    scratch.copy_from_slice(numbers);
    let (mut left, mut right) = scratch.split_at(middle);
    for number in numbers {
        let from = match (left.first(), right.first()) {
            (Some(a), Some(b)) if a <= b => &mut left,
            (Some(_), None) => &mut left,
            _ => &mut right,
        };
        *number = from[0];
        *from = &from[1..];
    }
}
