//! Virtual time: whole nanoseconds since the start of the run.
//!
//! People write seconds; the worlds count nanoseconds, so that the order of two events never hangs
//! on the last bit of a float.

/// Nanoseconds of virtual time.
pub type Nanos = u64;

/// One second.
pub const SECOND: Nanos = 1_000_000_000;

/// Seconds to nanoseconds, rounded; negative and not-a-number count as zero.
#[must_use]
pub fn nanos(seconds: f64) -> Nanos {
    libm::round(seconds.max(0.0) * 1e9) as Nanos
}

/// Nanoseconds to seconds.
#[must_use]
pub fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / 1e9
}

/// A duration as a person would say it: `1.25 s`, `3.4 ms`, `2 h 5 min`.
#[must_use]
pub fn human(nanos: Nanos) -> String {
    let value = seconds(nanos);
    if nanos == 0 {
        "0 s".to_owned()
    } else if value < 1e-6 {
        format!("{nanos} ns")
    } else if value < 1e-3 {
        format!("{} µs", three_digits(value * 1e6))
    } else if value < 1.0 {
        format!("{} ms", three_digits(value * 1e3))
    } else if value < 600.0 {
        format!("{} s", three_digits(value))
    } else if value < 36_000.0 {
        format!("{} min", three_digits(value / 60.0))
    } else {
        format!("{} h", three_digits(value / 3600.0))
    }
}

fn three_digits(value: f64) -> String {
    if value >= 99.95 {
        format!("{value:.0}")
    } else if value >= 9.995 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::{human, nanos, seconds};

    #[test]
    fn seconds_survive_the_round_trip() {
        assert_eq!(nanos(0.5), 500_000_000);
        assert_eq!(nanos(-1.0), 0);
        assert_eq!(nanos(f64::NAN), 0);
        assert!((seconds(nanos(53.6)) - 53.6).abs() < 1e-9);
    }

    #[test]
    fn people_read_three_digits() {
        assert_eq!(human(0), "0 s");
        assert_eq!(human(1_500), "1.50 µs");
        assert_eq!(human(12_300_000_000), "12.3 s");
        assert_eq!(human(7_200 * 1_000_000_000), "120 min");
    }
}
