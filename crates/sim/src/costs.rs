//! What the scheduler is told of how long tasks take.

use std::fmt;
use std::str::FromStr;

use loxley_balance::Rng;
use serde::Deserialize;

use crate::time::Nanos;

/// How true declared costs are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub enum Costs {
    /// What a task declares is what it takes at speed 1.
    #[default]
    Exact,
    /// No task declares anything.
    None,
    /// Each declared cost is wrong by a factor of its own, between 1/f and f, long and short alike.
    WrongBy(f64),
}

impl Costs {
    /// The source of chance that wrong costs are drawn from.
    pub(crate) const LABEL: &'static str = "wrong costs";

    /// What is told of a task that takes so long. Drawn for every task in turn, so that which tasks declare a
    /// cost changes nothing for the others.
    pub(crate) fn told(self, work: Nanos, rng: &mut Rng) -> Option<Nanos> {
        match self {
            Self::Exact => Some(work),
            Self::None => None,
            Self::WrongBy(factor) => {
                let exponent = 2.0 * rng.unit_f64() - 1.0;
                Some((work as f64 * libm::pow(factor, exponent)) as Nanos)
            }
        }
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact => f.write_str("exact"),
            Self::None => f.write_str("none"),
            Self::WrongBy(factor) => write!(f, "x{factor}"),
        }
    }
}

impl FromStr for Costs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let factor = || text.strip_prefix('x')?.parse().ok();
        match text {
            "exact" => Ok(Self::Exact),
            "none" => Ok(Self::None),
            _ => match factor() {
                Some(factor) if (1.0..=1e6).contains(&factor) => Ok(Self::WrongBy(factor)),
                _ => Err(format!(
                    "`{text}`: expected `exact`, `none`, or `x5` (each wrong by a factor of up to 5)"
                )),
            },
        }
    }
}

impl TryFrom<String> for Costs {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_written_alike() {
        for word in ["exact", "none", "x5", "x2.5"] {
            assert_eq!(word.parse::<Costs>().unwrap().to_string(), word);
        }
        for word in ["x", "x0.5", "five", "5"] {
            assert!(word.parse::<Costs>().is_err(), "{word}");
        }
    }

    #[test]
    fn wrong_costs_stay_within_their_factor_on_both_sides() {
        let mut rng = Rng::new(1);
        let (mut longer, mut shorter) = (0, 0);
        for _ in 0..1_000 {
            let cost = Costs::WrongBy(5.0).told(1_000_000, &mut rng).unwrap();
            assert!((200_000..=5_000_000).contains(&cost), "{cost}");
            longer += u32::from(cost > 1_000_000);
            shorter += u32::from(cost < 1_000_000);
        }
        assert!(longer > 400 && shorter > 400, "{longer} and {shorter}");
    }
}
