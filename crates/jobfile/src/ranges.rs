//! Numbers and ranges of numbers, as people write them.

use std::str::FromStr;

use loxley_api::Entries;

/// Numbers and ranges of numbers: `1-1000`, `1-9:2`, `1,3,5-8`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges {
    ranges: Vec<(u64, u64, u64)>,
}

impl FromStr for Ranges {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range = |text: &str| {
            let wrong = || format!("`{text}` is not a number or a range like 1-1000 or 1-9:2");
            let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
            let (span, step) = match text.split_once(':') {
                Some((span, step)) => (span, number(step)?),
                None => (text, 1),
            };
            let (first, last) = match span.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(span)?, number(span)?),
            };
            if first > last || step == 0 {
                return Err(wrong());
            }
            Ok((first, last, step))
        };
        let ranges = text.split(',').map(range).collect::<Result<_, _>>()?;
        Ok(Self { ranges })
    }
}

impl Ranges {
    /// How many numbers there are; as many as can be counted if there are more.
    #[must_use]
    pub fn count(&self) -> u64 {
        let count =
            |&(first, last, step): &(u64, u64, u64)| ((last - first) / step).saturating_add(1);
        self.ranges.iter().map(count).fold(0, u64::saturating_add)
    }

    /// The numbers, in the order in which they were written.
    pub fn iter(&self) -> impl Iterator<Item = u64> + use<> {
        self.ranges
            .clone()
            .into_iter()
            .flat_map(|(first, last, step)| {
                std::iter::successors(Some(first), move |number| {
                    number.checked_add(step).filter(|next| *next <= last)
                })
            })
    }

    /// The number at this place, counted from 0.
    #[must_use]
    pub fn get(&self, mut at: u64) -> Option<u64> {
        for &(first, last, step) in &self.ranges {
            let steps = (last - first) / step;
            if at <= steps {
                return Some(first + at * step);
            }
            at -= steps + 1;
        }
        None
    }
}

/// Numbers as a range if they are one, else one by one.
impl From<&Ranges> for Entries {
    fn from(ranges: &Ranges) -> Self {
        let (count, first) = (ranges.count(), ranges.get(0).unwrap_or(0));
        let last = ranges.get(count - 1).unwrap_or(first);
        let step = ranges.get(1).and_then(|second| second.checked_sub(first));
        let range = Self::Range {
            first,
            last,
            step: step.filter(|step| *step > 0).unwrap_or(1),
        };
        // Equal numbers of entries between equal ends, evenly spaced: only one range does that, unless
        // the numbers jump back and forth.
        let is_one = range.count() == count
            && (count <= 2 || {
                let step = step.unwrap_or(1);
                ranges
                    .iter()
                    .zip(0..)
                    .all(|(number, at)| number == first + at * step)
            });
        match is_one {
            true => range,
            false => Self::Lines(ranges.iter().map(|number| number.to_string()).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_in_ranges_and_steps() {
        let ranges: Ranges = "1-9:4,20,7-8".parse().unwrap();
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [1, 5, 9, 20, 7, 8]);
        let each: Vec<u64> = (0..).map_while(|at| ranges.get(at)).collect();
        assert_eq!(each, [1, 5, 9, 20, 7, 8]);
        assert_eq!(ranges.count(), 6);
        let top = u64::MAX;
        let whole: Ranges = format!("0-{top}").parse().unwrap();
        assert_eq!((whole.count(), whole.get(top)), (top, Some(top)));
        for wrong in ["", "x", "3-1", "1-5:0", "1--2", "-1", "1-", "1e3"] {
            assert!(wrong.parse::<Ranges>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_are_a_range_if_they_can_be() {
        let of = |text: &str| Entries::from(&text.parse::<Ranges>().unwrap());
        let range = |first, last, step| Entries::Range { first, last, step };
        assert_eq!(of("1-1000"), range(1, 1000, 1));
        assert_eq!(of("1-9:4"), range(1, 9, 4));
        assert_eq!(of("7"), range(7, 7, 1));
        assert_eq!(of("1,2,3"), range(1, 3, 1));
        let lines =
            |texts: &[&str]| Entries::Lines(texts.iter().map(|t| (*t).to_owned()).collect());
        assert_eq!(of("1,3,5-6"), lines(&["1", "3", "5", "6"]));
        assert_eq!(of("5,1"), lines(&["5", "1"]));
        assert_eq!(of("1,2,9,3"), lines(&["1", "2", "9", "3"]));
    }
}
