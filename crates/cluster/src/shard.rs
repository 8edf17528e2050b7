//! Which shard something belongs to: the upper bits of its number.
//!
//! ```text
//!   bit 63      51 50        40 39                                      0
//!       [ nothing ][   shard   ][ number within the shard, never reused ]
//! ```
//!
//! Numbers go through JSON, where many readers keep 53 bits, and a journal keeps 51 of a task's; so the shard is below that.
//! With one shard, which is shard 0, numbers are what they always were.

use core::fmt;

use loxley_model::TaskId;

/// How many bits a number has within its shard.
const LOCAL_BITS: u32 = 40;

/// One part of the work: a journal of its own, one holder at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ShardId(pub u16);

impl ShardId {
    /// How many shards there may be.
    pub const COUNT_MAX: u16 = 2048;

    /// The shard that gave this number.
    ///
    /// # Panics
    /// When no shard can have given it. Numbers from outside are checked with [`Self::try_of`].
    #[must_use]
    pub fn of(task: TaskId) -> Self {
        Self::try_of(task.0).expect("a number that a shard gave")
    }

    /// The shard that gave this number; none when no shard can have given it.
    #[must_use]
    pub fn try_of(number: u64) -> Option<Self> {
        let shard = number >> LOCAL_BITS;
        let is_shard = shard < u64::from(Self::COUNT_MAX);
        is_shard.then_some(Self(shard as u16))
    }

    /// A number of this shard as everybody else knows it.
    ///
    /// # Panics
    /// When the shard has given away all its numbers.
    #[must_use]
    pub fn number(self, local: u64) -> u64 {
        assert!(local >> LOCAL_BITS == 0, "a shard has 2^40 numbers");
        u64::from(self.0) << LOCAL_BITS | local
    }

    /// Where a new job goes: those of one user and key always to the same shard, so that one that is sent again is
    /// recognised there.
    #[must_use]
    pub fn of_key(user: &str, key: &str, count: u16) -> Self {
        // FNV-1a, and a finisher for its weak upper bits: the same on every machine and in every version.
        let mut hash = 0xCBF2_9CE4_8422_2325_u64;
        let bytes = user.bytes().chain([0]).chain(key.bytes());
        for byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
        hash = (hash ^ hash >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self((((hash >> 32) * u64::from(count)) >> 32) as u16)
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// How far it is from one zone to another: how many levels up until both are inside. `eu/paris/rack7` and
/// `eu/paris/rack8` are 1 apart, `eu/paris` and `us` are 2. Where nothing is said, nothing is near.
#[must_use]
pub fn zone_distance(one: &str, other: &str) -> u32 {
    let levels = |zone: &str| zone.split('/').filter(|level| !level.is_empty()).count();
    let (mine, theirs) = (one.split('/'), other.split('/'));
    let shared = mine
        .zip(theirs)
        .take_while(|(a, b)| a == b && !a.is_empty())
        .count();
    let up = levels(one).max(levels(other)) - shared;
    // A zone that nobody named is as far from everything as can be, from another such as well.
    match levels(one) == 0 || levels(other) == 0 {
        true => u32::MAX,
        false => up as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_carries_its_shard_and_fits_into_a_double_and_a_journal() {
        let last = ShardId(ShardId::COUNT_MAX - 1);
        let number = last.number((1 << LOCAL_BITS) - 1);
        assert_eq!(ShardId::try_of(number), Some(last));
        assert_eq!(number, (1 << 51) - 1);
        assert_eq!((number as f64) as u64, number);
        assert_eq!(ShardId(0).number(17), 17);
        assert_eq!(ShardId::try_of(number + 1), None);
        assert_eq!(ShardId::try_of(u64::MAX), None);
    }

    #[test]
    fn keys_are_spread_evenly_and_stay_where_they_are() {
        let mut counts = [0_u32; 10];
        for key in 0..10_000_u32 {
            let key = std::format!("night-{key}");
            counts[usize::from(ShardId::of_key("mia", &key, 10).0)] += 1;
        }
        assert!(
            counts.iter().all(|count| (850..1150).contains(count)),
            "{counts:?}"
        );
        // Written down: another answer in a later version would accept a job a second time.
        let places = ["a", "b", "c", "d"].map(|key| ShardId::of_key("mia", key, 1000).0);
        assert_eq!(places, PLACES);
        assert_ne!(
            ShardId::of_key("ab", "c", 2048),
            ShardId::of_key("a", "bc", 2048)
        );
    }

    const PLACES: [u16; 4] = [497, 161, 499, 828];

    #[test]
    fn zones_are_as_far_apart_as_their_nearest_common_level() {
        for (one, other, distance) in [
            ("eu/paris/rack7", "eu/paris/rack7", 0),
            ("eu/paris/rack7", "eu/paris/rack8", 1),
            ("eu/paris/rack7", "eu/rome/rack7", 2),
            ("eu/paris", "us", 2),
            ("eu", "us", 1),
            ("eu", "eu/paris", 1),
            ("", "eu", u32::MAX),
            ("", "", u32::MAX),
        ] {
            assert_eq!(zone_distance(one, other), distance, "{one} {other}");
            assert_eq!(zone_distance(other, one), distance, "{other} {one}");
        }
    }
}
