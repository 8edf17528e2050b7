//! Chance that can be repeated: the only random source in Loxley.
//!
//! The picture is a tree. One seed at the root picks everything; every consumer of chance (a
//! worker's choice of victims, the jitter of retries, the arrival of simulated tasks) asks for a
//! *child* by name. A child depends on its parent's seed and its own label, never on how much the
//! parent or a sibling has drawn, so one more draw here changes nothing there.
//!
//! The generator is xoshiro256++ (Blackman and Vigna), seeded through splitmix64 as its authors
//! advise. It is fast and statistically sound; it is not for secrets.

/// A small deterministic generator of random numbers.
///
/// ```
/// use loxley_balance::Rng;
///
/// let root = Rng::new(42);
/// let mut arrivals = root.child("arrivals");
/// let mut again = Rng::new(42).child("arrivals");
/// assert_eq!(arrivals.next_u64(), again.next_u64());
/// assert!(arrivals.below(6) < 6);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    /// What this generator was made from; children derive from it and not from `state`.
    seed: u64,
    state: [u64; 4],
}

impl Rng {
    /// The generator that `seed` names.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut mixer = seed;
        let state = core::array::from_fn(|_| {
            mixer = mixer.wrapping_add(GOLDEN_GAMMA);
            mix(mixer)
        });
        Self { seed, state }
    }

    /// The whole generator as numbers, to be kept: [`from_words`](Self::from_words) draws on from here.
    #[must_use]
    pub fn to_words(&self) -> [u64; 5] {
        let [a, b, c, d] = self.state;
        [self.seed, a, b, c, d]
    }

    /// The generator that [`to_words`](Self::to_words) described.
    #[must_use]
    pub fn from_words([seed, a, b, c, d]: [u64; 5]) -> Self {
        Self {
            seed,
            state: [a, b, c, d],
        }
    }

    /// The generator for one named source of chance, independent of what was drawn from this one.
    #[must_use]
    pub fn child(&self, label: &str) -> Self {
        Self::new(mix(hash_bytes(label.as_bytes()) ^ mix(self.seed)))
    }

    /// The generator for one of many sources of the same name, such as `("worker", 3)`.
    #[must_use]
    pub fn numbered_child(&self, label: &str, number: u64) -> Self {
        let family = self.child(label);
        Self::new(mix(family.seed ^ mix(number.wrapping_add(GOLDEN_GAMMA))))
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let (third, fourth) = (c ^ a, d ^ b);
        self.state = [
            a ^ fourth,
            b ^ third,
            third ^ (b << 17),
            fourth.rotate_left(45),
        ];
        a.wrapping_add(d).rotate_left(23).wrapping_add(a)
    }

    /// A number in `0..bound`, each equally likely (Lemire's multiplication with rejection).
    ///
    /// # Panics
    /// If `bound` is zero: there is nothing to choose from.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a random choice needs at least one candidate");
        let mut product = u128::from(self.next_u64()) * u128::from(bound);
        if (product as u64) < bound {
            // Of the 2^64 draws the first (2^64 mod bound) low halves would favour some results.
            let threshold = bound.wrapping_neg() % bound;
            while (product as u64) < threshold {
                product = u128::from(self.next_u64()) * u128::from(bound);
            }
        }
        (product >> 64) as u64
    }

    /// An index into something of length `len`, each equally likely.
    ///
    /// # Panics
    /// If `len` is zero.
    #[inline]
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A number in `[0, 1)`, a multiple of 2⁻⁵³.
    #[inline]
    pub fn unit_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// True with the given probability: never for 0 or less (and NaN), always for 1 or more.
    #[inline]
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit_f64() < probability
    }

    /// Puts `items` in a random order, each order equally likely (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }
}

/// 2⁶⁴ divided by the golden ratio: the step of splitmix64.
const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// The finalizer of splitmix64: a bijection in which every input bit reaches every output bit.
#[inline]
pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// A hash of bytes that is the same on every machine and in every version (FNV-1a, then mixed).
pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    let folded = bytes
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |hash: u64, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
        });
    mix(folded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_generator_that_was_kept_draws_on() {
        let mut rng = Rng::new(7);
        rng.next_u64();
        let mut kept = Rng::from_words(rng.to_words());
        assert_eq!(kept.next_u64(), rng.next_u64());
        assert_eq!(kept.child("x"), rng.child("x"));
    }

    #[test]
    fn the_stream_is_xoshiro256_plus_plus() {
        // The first outputs of the published reference code for the state {1, 2, 3, 4}.
        let mut rng = Rng {
            seed: 0,
            state: [1, 2, 3, 4],
        };
        let drawn: Vec<u64> = (0..6).map(|_| rng.next_u64()).collect();
        let expected = [
            41_943_041,
            58_720_359,
            3_588_806_011_781_223,
            3_591_011_842_654_386,
            9_228_616_714_210_784_205,
            9_973_669_472_204_895_162,
        ];
        assert_eq!(drawn, expected);
    }

    #[test]
    fn seeding_is_splitmix64() {
        // The first outputs of the published splitmix64 for the seed 0.
        let expected = [
            0xE220_A839_7B1D_CDAF,
            0x6E78_9E6A_A1B9_65F4,
            0x06C4_5D18_8009_454F,
            0xF88B_B8A8_724C_81EC,
        ];
        assert_eq!(Rng::new(0).state, expected);
    }

    #[test]
    fn a_child_does_not_depend_on_what_its_parent_drew() {
        let fresh = Rng::new(9);
        let mut used = Rng::new(9);
        used.next_u64();
        assert_eq!(fresh.child("jitter"), used.child("jitter"));
        assert_eq!(fresh.numbered_child("w", 3), used.numbered_child("w", 3));
    }

    #[test]
    fn children_differ_from_each_other_and_from_their_parent() {
        let root = Rng::new(1);
        let mut seeds: Vec<u64> = (0..1_000)
            .map(|n| root.numbered_child("w", n).seed)
            .collect();
        seeds.extend([
            root.seed,
            root.child("w").seed,
            root.child("v").seed,
            root.child("").seed,
        ]);
        seeds.sort_unstable();
        let before = seeds.len();
        seeds.dedup();
        assert_eq!(seeds.len(), before);
    }

    #[test]
    fn below_is_uniform() {
        // Chi-square with 9 degrees of freedom; 33.7 is exceeded by one honest run in 10,000.
        let mut rng = Rng::new(5);
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            counts[rng.index(10)] += 1;
        }
        let chi: f64 = counts
            .iter()
            .map(|&n| (f64::from(n) - 1e4) * (f64::from(n) - 1e4) / 1e4)
            .sum();
        assert!(chi < 33.7, "chi-square {chi}");
    }

    #[test]
    fn below_is_uniform_where_a_plain_product_would_not_be() {
        // With a bound of 3/4 of 2^64, multiplication without rejection gives every third result
        // twice the weight of the others.
        let bound = 3 << 62;
        let mut rng = Rng::new(11);
        let thirds = (0..30_000)
            .filter(|_| rng.below(bound).is_multiple_of(3))
            .count();
        assert!((9_600..10_400).contains(&thirds), "{thirds} of 30000");
    }

    #[test]
    fn unit_numbers_stay_in_the_unit_interval_and_average_one_half() {
        let mut rng = Rng::new(3);
        let mut sum = 0.0;
        for _ in 0..100_000 {
            let number = rng.unit_f64();
            assert!((0.0..1.0).contains(&number));
            sum += number;
        }
        assert!((sum / 1e5 - 0.5).abs() < 0.005);
    }

    #[test]
    fn chance_respects_its_ends() {
        let mut rng = Rng::new(3);
        assert!((0..1_000).all(|_| !rng.chance(0.0) && rng.chance(1.0) && !rng.chance(f64::NAN)));
    }

    #[test]
    fn shuffle_reaches_every_order_equally() {
        let mut rng = Rng::new(8);
        let mut counts = [0_u32; 27];
        for _ in 0..6_000 {
            let mut items = [0_usize, 1, 2];
            rng.shuffle(&mut items);
            counts[items[0] * 9 + items[1] * 3 + items[2]] += 1;
        }
        let reached: Vec<u32> = counts.into_iter().filter(|&count| count > 0).collect();
        assert_eq!(reached.len(), 6);
        assert!(
            reached.iter().all(|count| (850..1_150).contains(count)),
            "{reached:?}"
        );
    }
}
