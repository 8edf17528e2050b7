//! Claims about dividing work, checked against brute force and against books of the tests' own.

use core::ops::Range;

use loxley_balance::partition::granularity::{Batcher, Grain, Split};
use loxley_balance::partition::largest_first::{largest_first, largest_first_by_speed};
use loxley_balance::partition::locality::{self, near_data};
use loxley_balance::partition::memory::{self, Because, MemoryError, within_memory};
use loxley_balance::partition::ranges::ranges;
use loxley_balance::partition::routing::Router;
use proptest::prelude::*;

/// Calls `visit` with every way to give `items` items to `parts` parts.
fn every_assignment(items: usize, parts: usize, mut visit: impl FnMut(&[usize])) {
    let mut part_of = vec![0; items];
    loop {
        visit(&part_of);
        let Some(item) = part_of.iter().position(|&part| part + 1 < parts) else {
            return;
        };
        part_of[..item].fill(0);
        part_of[item] += 1;
    }
}

/// The best possible makespan when `time(item, part)` is how long an item takes there.
fn best_makespan(items: usize, parts: usize, time: impl Fn(usize, usize) -> f64) -> f64 {
    let mut best = f64::INFINITY;
    every_assignment(items, parts, |part_of| {
        let mut loads = vec![0.0; parts];
        for (item, &part) in part_of.iter().enumerate() {
            loads[part] += time(item, part);
        }
        best = best.min(loads.iter().copied().fold(0.0, f64::max));
    });
    best
}

/// The best possible heaviest range, by trying every set of cuts.
fn best_contiguous(weights: &[f64], parts: usize) -> f64 {
    if parts == 1 {
        return weights.iter().sum();
    }
    (0..=weights.len())
        .map(|cut| {
            let first: f64 = weights[..cut].iter().sum();
            first.max(best_contiguous(&weights[cut..], parts - 1))
        })
        .fold(f64::INFINITY, f64::min)
}

fn whole_weights(most: usize) -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec((0_u32..60).prop_map(f64::from), 0..=most)
}

/// Pieces of a line that can be cut anywhere but never below one.
#[derive(Clone, Debug, PartialEq)]
struct Span(Range<u64>);

impl Split for Span {
    fn cost(&self) -> f64 {
        (self.0.end - self.0.start) as f64
    }

    fn split(self) -> Result<(Self, Self), Self> {
        let middle = self.0.start + (self.0.end - self.0.start) / 2;
        if middle == self.0.start {
            Err(self)
        } else {
            Ok((Self(self.0.start..middle), Self(middle..self.0.end)))
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn largest_first_stays_within_grahams_bound(weights in whole_weights(8), parts in 1_usize..4) {
        let assignment = largest_first(&weights, parts).unwrap();
        let best = best_makespan(weights.len(), parts, |item, _| weights[item]);
        let bound = 4.0 / 3.0 - 1.0 / (3.0 * parts as f64);
        prop_assert!(assignment.makespan() <= best * bound + 1e-9);
        prop_assert!(assignment.makespan() >= best);
    }

    #[test]
    fn largest_first_by_speed_stays_within_its_bound(
        weights in whole_weights(8),
        speeds in prop::collection::vec((1_u32..9).prop_map(f64::from), 1..4),
    ) {
        let parts = speeds.len();
        let assignment = largest_first_by_speed(&weights, &speeds).unwrap();
        let best = best_makespan(weights.len(), parts, |item, part| weights[item] / speeds[part]);
        let bound = 2.0 * parts as f64 / (parts as f64 + 1.0);
        prop_assert!(assignment.makespan() <= best * bound + 1e-9, "{} {}", assignment.makespan(), best);
        let mut times = vec![0.0; parts];
        for (item, &part) in assignment.part_of().iter().enumerate() {
            times[part] += weights[item] / speeds[part];
        }
        for (time, load) in times.iter().zip(assignment.loads()) {
            prop_assert!((time - load).abs() < 1e-9);
        }
    }

    #[test]
    fn ranges_are_optimal_contiguous_and_complete(weights in whole_weights(10), parts in 1_usize..5) {
        let cut = ranges(&weights, parts).unwrap();
        prop_assert_eq!(cut.len(), parts);
        prop_assert_eq!((cut[0].start, cut[parts - 1].end), (0, weights.len()));
        prop_assert!(cut.windows(2).all(|pair| pair[0].end == pair[1].start));
        let heaviest = cut.iter().map(|range| weights[range.clone()].iter().sum()).fold(0.0, f64::max);
        prop_assert_eq!(heaviest, best_contiguous(&weights, parts));
    }

    #[test]
    fn ranges_of_any_floats_terminate_and_cover(
        weights in prop::collection::vec(prop_oneof![Just(0.0), 0.0..1.0, 1e-300..1e-290, 1e290..1e300], 0..60),
        parts in 1_usize..20,
    ) {
        let cut = ranges(&weights, parts).unwrap();
        prop_assert_eq!(cut.iter().map(ExactSizeIterator::len).sum::<usize>(), weights.len());
    }

    #[test]
    fn memory_limits_hold_or_no_packing_exists(
        pairs in prop::collection::vec((0_u32..20, 0_u64..12), 0..7),
        limits in prop::collection::vec(0_u64..25, 1..4),
    ) {
        let items: Vec<memory::Item> = pairs
            .iter()
            .map(|&(weight, memory)| memory::Item { weight: f64::from(weight), memory })
            .collect();
        let fits = |part_of: &[usize]| {
            let mut used = vec![0; limits.len()];
            for (item, &part) in part_of.iter().enumerate() {
                used[part] += items[item].memory;
            }
            used.iter().zip(&limits).all(|(used, limit)| used <= limit)
        };
        match within_memory(&items, &limits) {
            Ok(assignment) => prop_assert!(fits(assignment.part_of())),
            Err(MemoryError::DoesNotFit { items: named, because }) => {
                prop_assert!(!named.is_empty());
                prop_assert!(because != Because::NoPackingFound, "so few items are always decided");
                let mut possible = false;
                every_assignment(items.len(), limits.len(), |part_of| possible |= fits(part_of));
                prop_assert!(!possible, "{because:?}");
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn near_data_is_never_worse_than_staying_home_and_at_most_twice_the_best(
        items in prop::collection::vec((1_u32..20, 0_usize..3, 0_u32..20), 0..8),
        parts in 3_usize..4,
    ) {
        let homes: Vec<[usize; 1]> = items.iter().map(|&(_, home, _)| [home]).collect();
        let items: Vec<locality::Item<'_>> = items
            .iter()
            .zip(&homes)
            .map(|(&(weight, _, transfer), home)| locality::Item {
                weight: f64::from(weight),
                homes: home,
                transfer: f64::from(transfer),
            })
            .collect();
        let time = |item: usize, part: usize| {
            items[item].weight + if items[item].homes.contains(&part) { 0.0 } else { items[item].transfer }
        };
        let placement = near_data(&items, parts, 0.0).unwrap();
        let makespan = placement.assignment.makespan();
        let mut at_home = vec![0.0; parts];
        for item in &items {
            at_home[item.homes[0]] += item.weight;
        }
        prop_assert!(makespan <= at_home.iter().copied().fold(0.0, f64::max));
        let best = best_makespan(items.len(), parts, time);
        prop_assert!(makespan <= 2.0 * best, "{makespan} {best}");
        let mut loads = vec![0.0; parts];
        for (item, &part) in placement.assignment.part_of().iter().enumerate() {
            loads[part] += time(item, part);
        }
        prop_assert_eq!(placement.assignment.loads(), loads);
    }

    #[test]
    fn pieces_keep_the_order_and_the_grain(
        lengths in prop::collection::vec(0_u64..300, 0..40),
        smallest in 0_u32..20,
        extra in 1_u32..40,
    ) {
        let grain = Grain::new(f64::from(smallest), f64::from(smallest + extra)).unwrap();
        let mut end = 0;
        let spans: Vec<Span> = lengths
            .iter()
            .map(|length| {
                let span = Span(end..end + length);
                end = span.0.end;
                span
            })
            .collect();
        let pieces = Batcher::new(grain).pieces(spans).unwrap();
        let mut at = 0;
        for span in pieces.iter().flat_map(|piece| &piece.items) {
            prop_assert_eq!(span.0.start, at);
            at = span.0.end;
        }
        prop_assert_eq!(at, end);
        for piece in &pieces {
            prop_assert!(piece.cost <= grain.largest());
            prop_assert_eq!(piece.items.iter().map(Split::cost).sum::<f64>(), piece.cost);
        }
        for pair in pieces.windows(2) {
            prop_assert!(
                pair[0].cost >= grain.smallest() || pair[0].items.is_empty()
                    || pair[0].cost + pair[1].items[0].cost() > grain.largest()
            );
        }
    }

    #[test]
    fn bounded_routing_keeps_its_books(
        steps in prop::collection::vec((0_u64..8, 0_u64..6, any::<u8>()), 1..200),
        slack in 0.05_f64..2.0,
    ) {
        let mut router = Router::new(slack).unwrap();
        router.join(100, 1.0).unwrap();
        let mut out: Vec<(u64, u64)> = Vec::new();
        for (key, cost, kind) in steps {
            match kind % 8 {
                0 => drop(router.join(key, 1.0)),
                1 if router.len() > 1 => {
                    router.leave(key);
                    out.retain(|&(id, _)| id != key);
                }
                2 | 3 if !out.is_empty() => {
                    let (id, cost) = out.swap_remove(key as usize % out.len());
                    router.release(id, cost);
                }
                _ => out.push((router.place(key, cost).unwrap(), cost)),
            }
            for (id, load) in router.loads() {
                let own: u64 = out.iter().filter(|&&(at, _)| at == id).map(|&(_, cost)| cost).sum();
                prop_assert_eq!(load, own);
            }
        }
    }
}

/// The share of 20,000 keys that change their worker when one of `workers` joins or leaves, with
/// every key placed once and kept.
fn moved_share(workers: u64, slack: f64) -> f64 {
    let place_all = |count: u64| {
        let mut router = Router::new(slack).expect("a slack");
        for id in 0..count {
            router.join(id, 1.0).expect("a new id");
        }
        (0..20_000)
            .map(|key| router.place(key, 1).expect("there are workers"))
            .collect::<Vec<u64>>()
    };
    let (before, after) = (place_all(workers), place_all(workers + 1));
    let moved = before
        .iter()
        .zip(&after)
        .filter(|(old, new)| old != new)
        .count();
    moved as f64 / 20_000.0
}

#[test]
fn bounded_routing_moves_little_when_one_joins() {
    for workers in [5, 20, 50] {
        // What any even division has to move.
        let least = 1.0 / (workers as f64 + 1.0);
        for (slack, most) in [(0.1, 2.5), (0.25, 1.5), (1.0, 1.2)] {
            let moved = moved_share(workers, slack);
            println!(
                "{workers} workers, slack {slack}: {:.2} × the least",
                moved / least
            );
            assert!(moved >= 0.9 * least, "{workers} {slack} {moved}");
            assert!(
                moved <= most * least,
                "{workers} {slack}: {:.2} × the least",
                moved / least
            );
        }
    }
}
