//! Time is a number. It comes in with every input; nothing here can ask what time it is.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A moment, in nanoseconds since an origin that the driver chose.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(transparent)
)]
pub struct Time(pub u64);

/// A length of time, in nanoseconds. Arithmetic saturates: a sum never wraps into the past.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(transparent)
)]
pub struct Span(pub u64);

impl Time {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than everything: "never".
    pub const MAX: Self = Self(u64::MAX);

    /// How long ago `earlier` was; zero when it lies ahead.
    #[must_use]
    pub fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// Seconds since the origin.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// Longer than everything.
    pub const MAX: Self = Self(u64::MAX);

    /// So many microseconds.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// So many milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// So many seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// So many seconds; none when `secs` is negative, not a number or too large to count.
    #[must_use]
    pub fn try_from_secs_f64(secs: f64) -> Option<Self> {
        let nanos = secs * 1e9;
        // `u64::MAX as f64` rounds up to 2^64, the first value that does not fit.
        (nanos >= 0.0 && nanos < u64::MAX as f64).then_some(Self(nanos as u64))
    }

    /// The length in seconds.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// `self × factor`, at least zero, saturating.
    #[must_use]
    pub fn mul_f64(self, factor: f64) -> Self {
        // Float to integer casts saturate, and turn NaN into zero.
        Self((self.0 as f64 * factor) as u64)
    }

    /// `self + other`, saturating.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// `self - other`, or zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add<Span> for Time {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub<Span> for Time {
    type Output = Self;
    fn sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.saturating_add(other)
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Self) {
        *self = self.saturating_add(other);
    }
}

impl From<core::time::Duration> for Span {
    fn from(duration: core::time::Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Span> for core::time::Duration {
    fn from(span: Span) -> Self {
        Self::from_nanos(span.0)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6} s", self.as_secs_f64())
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..1_000 => write!(f, "{} ns", self.0),
            1_000..1_000_000 => write!(f, "{:.1} µs", self.0 as f64 / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.1} ms", self.0 as f64 / 1e6),
            _ => write!(f, "{:.2} s", self.as_secs_f64()),
        }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_never_wraps() {
        assert_eq!(Time::MAX + Span::from_secs(1), Time::MAX);
        assert_eq!(Time(5) - Span(9), Time::ZERO);
        assert_eq!(Time(5).since(Time(9)), Span::ZERO);
    }

    #[test]
    fn seconds_that_are_no_length_are_refused() {
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1e12] {
            assert_eq!(Span::try_from_secs_f64(bad), None, "{bad}");
        }
        assert_eq!(Span::try_from_secs_f64(0.5), Some(Span::from_millis(500)));
    }
}
