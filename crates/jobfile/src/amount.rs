//! Amounts as people write them: durations, sizes, priorities.

use std::time::Duration;

use loxley_model::Priority;

/// What a duration looks like, for messages.
pub const DURATION: &str = "a duration like 10s, 250ms, 1.5m, 2h or 1d";
/// What a size looks like, for messages.
pub const SIZE: &str = "a size like 512M, 8G or 1.5G";
/// What a priority looks like, for messages.
pub const PRIORITY: &str = "1 (lowest) to 5 (highest), or low, normal, high, urgent";

/// `10s`, `1.5m`, `250ms`, `2h`, `1d`; a bare number means seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not {DURATION}");
    let (number, unit) = split(text);
    let unit = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * unit).map_err(|_| wrong())
}

/// `512M`, `8G`, `1.5GiB`; a bare number means bytes. Units count in 1024s.
pub fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not {SIZE}");
    let (number, unit) = split(text);
    let shift = match unit.trim_end_matches("iB").trim_end_matches('B') {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        _ => return Err(wrong()),
    };
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    let size = number * f64::from(1u32 << (shift % 30)) * f64::from(1u32 << (shift / 30 * 30));
    (size >= 0.0 && size < u64::MAX as f64)
        .then_some(size as u64)
        .ok_or_else(wrong)
}

/// `1` to `5`, or `low` (2), `normal` (3), `high` (4), `urgent` (5).
pub fn priority(text: &str) -> Result<Priority, String> {
    let level = match text {
        "low" => Some(2),
        "normal" => Some(3),
        "high" => Some(4),
        "urgent" => Some(5),
        number => number.parse().ok(),
    };
    level
        .and_then(|level: u8| Priority::new(level).ok())
        .ok_or_else(|| format!("`{text}` is not a priority: {PRIORITY}"))
}

/// The number of a text, and its unit.
fn split(text: &str) -> (&str, &str) {
    let digits = text
        .find(|letter: char| letter.is_ascii_alphabetic())
        .unwrap_or(text.len());
    text.split_at(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        for wrong in ["", "s", "-1s", "1x", "1e400", "inf", "NaN"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(bytes("100"), Ok(100));
        assert_eq!(bytes("1.5K"), Ok(1536));
        assert_eq!(bytes("8G"), Ok(8 << 30));
        assert_eq!(bytes("2TiB"), Ok(2 << 40));
        for wrong in ["", "G", "-1", "1X", "1e30"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn priorities_are_numbers_or_words() {
        assert_eq!(priority("urgent"), Ok(Priority::HIGHEST));
        assert_eq!(priority("1"), Ok(Priority::LOWEST));
        for wrong in ["", "0", "6", "highest", "-1"] {
            assert!(priority(wrong).is_err(), "{wrong}");
        }
    }
}
