//! Amounts as people write them on the command line: time limits, numbers of slots.

use std::num::NonZero;
use std::str::FromStr;
use std::time::Duration;

use loxley_jobfile::amount::{bytes, duration};

/// How long a task may run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TimeLimit {
    /// So long.
    Fixed(Duration),
    /// So many times the median of the tasks that ended.
    OfMedian(f64),
}

impl FromStr for TimeLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_suffix('%') {
            Some(percent) => percent
                .parse()
                .ok()
                .filter(|percent: &f64| percent.is_finite() && *percent > 0.0)
                .map(|percent| Self::OfMedian(percent / 100.0))
                .ok_or_else(|| format!("`{text}` is not a share like 200%")),
            None => duration(text).map(Self::Fixed),
        }
    }
}

/// How large the blocks are that an input is cut into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockSize {
    Bytes(u64),
    /// A file is cut into so many for each slot: `-2`.
    ForEachSlot(NonZero<u32>),
}

impl FromStr for BlockSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix('-') {
            Some(blocks) => blocks
                .parse()
                .map(Self::ForEachSlot)
                .map_err(|_| format!("`{text}` is not a number of blocks for each slot like -2")),
            None => bytes(text).map(Self::Bytes),
        }
    }
}

/// How many tasks run at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Slots {
    /// So many.
    Count(NonZero<u32>),
    /// A share of the cores.
    Percent(f64),
    /// So many more, or fewer, than there are cores.
    Relative(i64),
    /// All of them, as far as a machine bears it: `0`.
    All,
}

/// What `0` comes to: as many as GNU parallel runs at once with the usual limit of open files.
const ALL: u32 = 252;

/// More would not be slots but a mistake: each has a thread.
const SLOTS_MAX: u32 = 4096;

impl FromStr for Slots {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a number of tasks like 8, 50%, +1 or -1");
        if let Some(percent) = text.strip_suffix('%') {
            let percent = percent.parse().ok().filter(|percent| *percent > 0.0);
            return percent.map(Self::Percent).ok_or_else(wrong);
        }
        if text.starts_with(['+', '-']) {
            return text.parse().map(Self::Relative).map_err(|_| wrong());
        }
        if text == "0" {
            return Ok(Self::All);
        }
        text.parse().map(Self::Count).map_err(|_| wrong())
    }
}

impl Slots {
    /// The number, on a machine with so many cores.
    pub(super) fn on(self, cores: usize) -> u32 {
        let count = match self {
            Self::Count(count) => f64::from(count.get()),
            Self::Percent(percent) => (cores as f64 * percent / 100.0).round(),
            Self::Relative(more) => cores as f64 + more as f64,
            Self::All => f64::from(ALL),
        };
        // The cast saturates, and so does the clamp.
        (count as u32).clamp(1, SLOTS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!("200%".parse(), Ok(TimeLimit::OfMedian(2.0)));
        for wrong in ["", "x", "-1s", "1y", "1e400", "nan", "inf"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        for wrong in ["0%", "-5%", "nan%", "inf%"] {
            assert!(wrong.parse::<TimeLimit>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn blocks_have_a_size_or_a_number() {
        assert_eq!("2k".parse(), Ok(BlockSize::Bytes(2048)));
        let four = NonZero::new(4).expect("four is not zero");
        assert_eq!("-4".parse(), Ok(BlockSize::ForEachSlot(four)));
        for wrong in ["-0", "--1", "-", "x"] {
            assert!(wrong.parse::<BlockSize>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn slots_follow_the_cores() {
        let slots = |text: &str| text.parse::<Slots>().unwrap().on(8);
        assert_eq!(slots("3"), 3);
        assert_eq!(slots("50%"), 4);
        assert_eq!(slots("+2"), 10);
        assert_eq!(slots("-2"), 6);
        assert_eq!(slots("-20"), 1);
        assert_eq!(slots("1%"), 1);
        assert_eq!(slots("1000000"), SLOTS_MAX);
        assert_eq!(slots("0"), ALL);
        for wrong in ["", "x", "0%", "1.5", "+x"] {
            assert!(wrong.parse::<Slots>().is_err(), "{wrong}");
        }
    }
}
