//! When to stop early: `--halt now,fail=1`, `--halt soon,success=3`, `--halt soon,fail=10%`; and in the old words
//! of GNU parallel `never`, `0` to `2`, `-1`, `-2`, `10%`.

use std::str::FromStr;

/// When to stop, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Halt {
    /// Kill what runs; else let it finish.
    pub(super) now: bool,
    counted: Counted,
    limit: Limit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Fail,
    Success,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Limit {
    Count(u64),
    /// Of all tasks, or of those that ended where nobody knows how many there will be; counts from
    /// the third on.
    Percent(f64),
}

/// How many tasks ended so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// With success.
    pub(super) succeeded: u64,
    /// Without.
    pub(super) failed: u64,
    /// Not at all: something before it failed, or it was not needed.
    pub(super) skipped: u64,
}

impl FromStr for Halt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = match text {
            "never" | "0" => "soon,fail=18446744073709551615",
            "1" => "soon,fail=1",
            "2" => "now,fail=1",
            "-1" => "soon,success=1",
            "-2" => "now,success=1",
            text => text,
        };
        let share;
        let text = match text.strip_suffix('%') {
            Some(percent) if percent.parse::<f64>().is_ok() => {
                share = format!("soon,fail={text}");
                &share
            }
            _ => text,
        };
        let wrong =
            || format!("`{text}` is not like now,fail=1 or soon,success=3 or soon,fail=10%");
        let (when, rest) = text.split_once(',').ok_or_else(wrong)?;
        let now = match when {
            "now" => true,
            "soon" => false,
            _ => return Err(wrong()),
        };
        let (counted, limit) = rest.split_once('=').ok_or_else(wrong)?;
        let counted = match counted {
            "fail" => Counted::Fail,
            "success" => Counted::Success,
            "done" => Counted::Done,
            _ => return Err(wrong()),
        };
        let limit = match limit.strip_suffix('%') {
            Some(percent) => percent
                .parse()
                .ok()
                .filter(|percent| *percent > 0.0 && *percent <= 100.0)
                .map(Limit::Percent),
            None => limit
                .parse()
                .ok()
                .filter(|count| *count > 0)
                .map(Limit::Count),
        };
        Ok(Self {
            now,
            counted,
            limit: limit.ok_or_else(wrong)?,
        })
    }
}

impl Halt {
    /// Whether stopping early means that all is well, whatever failed before.
    pub(super) fn is_success(&self) -> bool {
        self.counted == Counted::Success
    }

    /// What the exit code says, if not how many failed: a number of tasks is told of by the one that ended it all, a
    /// share of failures by itself.
    pub(super) fn exit_code(
        &self,
        last: Option<u8>,
        tally: Tally,
        total: Option<u64>,
    ) -> Option<u8> {
        let code = match (self.limit, self.counted) {
            (_, Counted::Success) => return None,
            (Limit::Count(_), _) => last?,
            (Limit::Percent(_), Counted::Done) => return None,
            (Limit::Percent(_), Counted::Fail) => {
                let total = total.unwrap_or(tally.succeeded + tally.failed).max(1);
                tally.failed.saturating_mul(100).div_ceil(total).min(100) as u8
            }
        };
        (code != 0).then_some(code)
    }

    /// Whether it is time.
    pub(super) fn is_due(&self, tally: Tally, total: Option<u64>) -> bool {
        let ended = tally.succeeded + tally.failed;
        let count = match self.counted {
            Counted::Fail => tally.failed,
            Counted::Success => tally.succeeded,
            Counted::Done => ended,
        };
        match self.limit {
            Limit::Count(limit) => count >= limit,
            Limit::Percent(percent) => {
                ended >= 3 && count as f64 * 100.0 >= percent * total.unwrap_or(ended) as f64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(halt: &str, succeeded: u64, failed: u64, total: Option<u64>) -> bool {
        let halt: Halt = halt.parse().unwrap();
        let tally = Tally {
            succeeded,
            failed,
            skipped: 0,
        };
        halt.is_due(tally, total)
    }

    #[test]
    fn a_count_or_a_share_is_enough() {
        assert!(!due("now,fail=2", 9, 1, None));
        assert!(due("now,fail=2", 0, 2, None));
        assert!(due("soon,success=1", 1, 0, None));
        assert!(due("soon,done=3", 1, 2, None));
        assert!(!due("soon,fail=50%", 0, 1, Some(2)), "too early to tell");
        assert!(due("soon,fail=10%", 9, 1, Some(10)));
        assert!(!due("soon,fail=10%", 9, 1, Some(100)));
    }

    #[test]
    fn anything_else_is_refused() {
        for wrong in [
            "",
            "now",
            "later,fail=1",
            "now,fail",
            "now,fail=0",
            "now,fail=101%",
            "3",
        ] {
            assert!(wrong.parse::<Halt>().is_err(), "{wrong}");
        }
        assert!("now,done=1".parse::<Halt>().unwrap().now);
        assert_eq!("2".parse::<Halt>(), "now,fail=1".parse());
        assert_eq!("20%".parse::<Halt>(), "soon,fail=20%".parse());
    }
}
