//! P3: largest item first, to the part that will have finished it earliest (LPT).
//!
//! On equal parts that is the least loaded part, and the slowest part needs at most 4/3 − 1/(3m)
//! times the best possible (Graham 1969). On parts of unequal speed it needs at most 2m/(m+1) times
//! the best possible (Gonzalez, Ibarra and Sahni 1977).

use alloc::vec;
use alloc::vec::Vec;

use super::loads::Loads;
use super::{Assignment, PartitionError, by_falling_weight, check};

/// Divides items over equal parts, O(n log n).
///
/// ```
/// use loxley_balance::partition::largest_first::largest_first;
///
/// let assignment = largest_first(&[2.0, 7.0, 3.0, 4.0], 2)?;
/// assert_eq!(assignment.members(), [vec![0, 1], vec![2, 3]]);
/// assert_eq!(assignment.loads(), [9.0, 7.0]);
/// # Ok::<(), loxley_balance::PartitionError>(())
/// ```
///
/// # Errors
/// When there are no parts or a weight is not a weight.
pub fn largest_first(weights: &[f64], parts: usize) -> Result<Assignment, PartitionError> {
    check(weights, parts)?;
    let mut loads = Loads::new(parts);
    let mut part_of = vec![0; weights.len()];
    for item in by_falling_weight(weights) {
        let part = loads.least();
        part_of[item] = part;
        loads.add(part, weights[item]);
    }
    Ok(Assignment::new(part_of, loads.into_vec()))
}

/// Divides items over parts of unequal speed; a part of speed 2 needs half as long for an item.
/// The loads of the result are times.
///
/// Parts of one speed are kept together, and only the least loaded of each speed is looked at:
/// O(n log n + n·k) for k different speeds.
///
/// # Errors
/// When there are no parts, or a weight or a speed is not one.
pub fn largest_first_by_speed(
    weights: &[f64],
    speeds: &[f64],
) -> Result<Assignment, PartitionError> {
    check(weights, speeds.len())?;
    let mut classes = speed_classes(speeds)?;
    let mut part_of = vec![0; weights.len()];
    for item in by_falling_weight(weights) {
        let fastest = earliest_finisher(&mut classes, weights[item]);
        part_of[item] = fastest.add(weights[item]);
    }
    let mut times = vec![0.0; speeds.len()];
    for class in classes {
        for (load, &part) in class.loads.into_vec().iter().zip(&class.parts) {
            times[part] = load / class.speed;
        }
    }
    Ok(Assignment::new(part_of, times))
}

/// All parts of one speed.
struct SpeedClass {
    speed: f64,
    parts: Vec<usize>,
    loads: Loads,
}

impl SpeedClass {
    fn finish(&mut self, weight: f64) -> f64 {
        let least = self.loads.least();
        (self.loads.of(least) + weight) / self.speed
    }

    /// Gives an item to the least loaded part and says which that is.
    fn add(&mut self, weight: f64) -> usize {
        let least = self.loads.least();
        self.loads.add(least, weight);
        self.parts[least]
    }
}

/// The fastest class first, so that ties go to the faster part.
fn speed_classes(speeds: &[f64]) -> Result<Vec<SpeedClass>, PartitionError> {
    if let Some(part) = speeds
        .iter()
        .position(|speed| !(speed.is_finite() && *speed > 0.0))
    {
        return Err(PartitionError::Speed {
            part,
            speed: speeds[part],
        });
    }
    let order = by_falling_weight(speeds);
    let classes = order.chunk_by(|&one, &other| speeds[one] == speeds[other]);
    Ok(classes
        .map(|parts| SpeedClass {
            speed: speeds[parts[0]],
            parts: parts.to_vec(),
            loads: Loads::new(parts.len()),
        })
        .collect())
}

fn earliest_finisher(classes: &mut [SpeedClass], weight: f64) -> &mut SpeedClass {
    let mut best = 0;
    let mut earliest = f64::INFINITY;
    for (index, class) in classes.iter_mut().enumerate() {
        let finish = class.finish(weight);
        if finish < earliest {
            (best, earliest) = (index, finish);
        }
    }
    &mut classes[best]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_classic_worst_case_reaches_grahams_bound_and_no_more() {
        // Two of each of 2m−1 … m+1 and three of m: the optimum is 3m, largest-first needs 4m−1.
        for parts in 2..8 {
            let mut weights: Vec<f64> = Vec::new();
            for size in parts + 1..2 * parts {
                weights.extend([size as f64; 2]);
            }
            weights.extend([parts as f64; 3]);
            let makespan = largest_first(&weights, parts).unwrap().makespan();
            assert_eq!(makespan, (4 * parts - 1) as f64);
        }
    }

    #[test]
    fn loads_are_the_sums_of_the_weights() {
        let weights: Vec<f64> = (0..100).map(|n| f64::from(n * 37 % 101)).collect();
        let assignment = largest_first(&weights, 7).unwrap();
        let mut sums = [0.0; 7];
        for (item, &part) in assignment.part_of().iter().enumerate() {
            sums[part] += weights[item];
        }
        assert_eq!(assignment.loads(), sums);
    }

    #[test]
    fn speeds_are_used_in_proportion() {
        let assignment = largest_first_by_speed(&[1.0; 60], &[1.0, 3.0, 2.0]).unwrap();
        let sizes: Vec<usize> = assignment.members().iter().map(Vec::len).collect();
        assert_eq!(sizes, [10, 30, 20]);
        assert_eq!(assignment.loads(), [10.0; 3]);
    }

    #[test]
    fn a_part_too_slow_to_help_gets_nothing() {
        let assignment = largest_first_by_speed(&[5.0, 4.0], &[1e-6, 1.0]).unwrap();
        assert_eq!(assignment.part_of(), [1, 1]);
    }

    #[test]
    fn equal_speeds_give_what_no_speeds_give() {
        let weights: Vec<f64> = (0..50).map(|n| f64::from(n * 17 % 23)).collect();
        let plain = largest_first(&weights, 6).unwrap();
        assert_eq!(largest_first_by_speed(&weights, &[1.0; 6]).unwrap(), plain);
    }

    #[test]
    fn bad_input_is_named_and_no_input_is_fine() {
        assert_eq!(largest_first(&[], 3).unwrap().loads(), [0.0; 3]);
        assert_eq!(largest_first(&[1.0], 0), Err(PartitionError::NoParts));
        assert_eq!(
            largest_first_by_speed(&[1.0], &[]),
            Err(PartitionError::NoParts)
        );
        for speed in [0.0, -1.0, f64::INFINITY] {
            let refused = largest_first_by_speed(&[1.0], &[1.0, speed]);
            assert_eq!(refused, Err(PartitionError::Speed { part: 1, speed }));
        }
        assert!(largest_first_by_speed(&[1.0], &[f64::NAN]).is_err());
    }
}
