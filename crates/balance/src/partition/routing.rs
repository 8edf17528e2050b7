//! P4: keys that stay with their worker, and workers that no hot key can overload.
//!
//! Every worker gets a score for every key, from a hash of both; the key belongs to the worker with
//! the highest score (rendezvous hashing). Nobody's score changes when a worker joins or leaves, so
//! only the keys move that must: those of the worker that left, or those that the newcomer wins.
//! There is no ring and no table, and workers may have unequal weights.
//!
//! Hashing alone does not protect a worker from a hot key. So each worker is *full* at
//! (1 + slack) times its fair share of the load that is out now, and what would go to a full worker
//! goes to the best-scored one with room (Mirrokni, Thorup and Zadimoghaddam, with rendezvous order
//! in place of the ring). A hot key thus spreads over as many workers as it takes, always the same
//! ones in the same order, and comes back when the heat is over.
//!
//! Finding the worker looks at all of them once, a few nanoseconds each; with many thousands of
//! workers and keys, remember the answers. The hash is the same on every machine and in every
//! version, and is not meant to withstand keys chosen by an enemy.

use alloc::vec::Vec;
use core::fmt;

use crate::rng::{hash_bytes, mix};

/// The hash of a key, for [`Router`]: the same everywhere and forever.
#[must_use]
pub fn key_hash(key: &[u8]) -> u64 {
    hash_bytes(key)
}

/// Routes keys to workers.
///
/// ```
/// use loxley_balance::partition::routing::{Router, key_hash};
///
/// let mut router = Router::new(0.25)?; // nobody gets over 25 % more than the fair share
/// for worker in [10, 11, 12, 13] {
///     router.join(worker, 1.0)?;
/// }
/// let hot = key_hash(b"everybody wants this");
/// let home = router.home(hot);
/// assert_eq!(router.place(hot, 1), home);
/// for _ in 1..100 {
///     router.place(hot, 1);
/// }
/// assert!(router.loads().all(|(_, load)| load <= 32)); // ⌈1.25 × 100 / 4⌉
/// # Ok::<(), loxley_balance::partition::routing::RouterError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Router {
    slack: f64,
    members: Vec<Member>,
    total_weight: f64,
    total_load: u64,
    /// All weights are the same: hashes can be compared as they are.
    is_uniform: bool,
}

#[derive(Clone, Debug)]
struct Member {
    id: u64,
    /// The mixed id, so that neighbouring ids have nothing in common.
    salt: u64,
    weight: f64,
    load: u64,
}

impl Router {
    /// A router without workers. `slack` is how far above its fair share a worker may be loaded:
    /// small keeps the load even, large keeps more keys at home.
    ///
    /// # Errors
    /// When `slack` is not a finite number above zero.
    pub fn new(slack: f64) -> Result<Self, RouterError> {
        if !(slack.is_finite() && slack > 0.0) {
            return Err(RouterError::Slack(slack));
        }
        Ok(Self {
            slack,
            members: Vec::new(),
            total_weight: 0.0,
            total_load: 0,
            is_uniform: true,
        })
    }

    /// Adds a worker without load. A worker of weight 2 gets twice as many keys as one of weight 1.
    ///
    /// # Errors
    /// When the id is taken or the weight is not a finite number above zero.
    pub fn join(&mut self, id: u64, weight: f64) -> Result<(), RouterError> {
        if !(weight.is_finite() && weight > 0.0) {
            return Err(RouterError::Weight { id, weight });
        }
        if self.position(id).is_some() {
            return Err(RouterError::AlreadyJoined(id));
        }
        self.members.push(Member {
            id,
            salt: mix(id ^ SALT),
            weight,
            load: 0,
        });
        self.weights_changed();
        Ok(())
    }

    /// Removes a worker; gives back the load it had, or nothing if there was no such worker.
    pub fn leave(&mut self, id: u64) -> Option<u64> {
        let member = self.members.remove(self.position(id)?);
        self.total_load -= member.load;
        self.weights_changed();
        Some(member.load)
    }

    /// The worker a key belongs to, whatever the loads; nothing without workers.
    #[must_use]
    pub fn home(&self, key: u64) -> Option<u64> {
        self.best(key, |_| true).map(|index| self.members[index].id)
    }

    /// Gives a key's work of size `cost` to its worker, or to the next one in its order that is not
    /// full, and counts it there until [`release`](Self::release). Nothing without workers.
    ///
    /// After it no worker has more than (1 + slack) × its fair share + the largest cost; with costs
    /// of one, no more than (1 + slack) × its fair share rounded up.
    pub fn place(&mut self, key: u64, cost: u64) -> Option<u64> {
        let total = self.total_load.saturating_add(cost);
        // A full worker is at or above this much per unit of weight. Those below always exist: not
        // everyone can be at more than the average.
        let full = (1.0 + self.slack) * total as f64 / self.total_weight;
        let has_room = |member: &Member| cost == 0 || (member.load as f64) < full * member.weight;
        let index = self.best(key, has_room)?;
        self.total_load = total;
        let member = &mut self.members[index];
        member.load = member.load.saturating_add(cost);
        Some(member.id)
    }

    /// Work of size `cost` that was placed at a worker is over. Workers that have left meanwhile
    /// took their load with them; for them nothing happens.
    pub fn release(&mut self, id: u64, cost: u64) {
        if let Some(index) = self.position(id) {
            let member = &mut self.members[index];
            let released = cost.min(member.load);
            member.load -= released;
            self.total_load -= released;
        }
    }

    /// Every worker's id and load.
    pub fn loads(&self) -> impl Iterator<Item = (u64, u64)> {
        self.members.iter().map(|member| (member.id, member.load))
    }

    /// How many workers there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// True without workers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    fn position(&self, id: u64) -> Option<usize> {
        self.members.iter().position(|member| member.id == id)
    }

    /// Sums anew rather than adding and subtracting: no rounding piles up over years of churn.
    fn weights_changed(&mut self) {
        self.total_weight = self.members.iter().map(|member| member.weight).sum();
        self.is_uniform = self
            .members
            .windows(2)
            .all(|pair| pair[0].weight == pair[1].weight);
    }

    /// The member with the highest score for `key` among those allowed.
    ///
    /// Only those that would lead are asked whether they are allowed: a handful of thousands.
    fn best(&self, key: u64, allowed: impl Fn(&Member) -> bool) -> Option<usize> {
        let mut leader: Option<(usize, Score)> = None;
        for (index, member) in self.members.iter().enumerate() {
            let hash = mix(key ^ member.salt);
            let leads = match &leader {
                None => true,
                Some((_, best)) if self.is_uniform => hash > best.hash,
                Some((_, best)) => best.is_beaten_by(hash, member.weight),
            };
            if leads && allowed(member) {
                let value = if self.is_uniform {
                    0.0
                } else {
                    score(hash, member.weight)
                };
                leader = Some((index, Score { hash, value }));
            }
        }
        leader.map(|(index, _)| index)
    }
}

/// How well a member scored. Salts differ, so the hashes of two members for one key do too.
struct Score {
    hash: u64,
    value: f64,
}

impl Score {
    fn is_beaten_by(&self, hash: u64, weight: f64) -> bool {
        // −ln(u) ≥ 1 − u bounds a score from above, and spares most members the logarithm.
        let bound = weight / (1.0 - unit(hash)) * (1.0 + 1e-9);
        if bound < self.value {
            return false;
        }
        let value = score(hash, weight);
        value > self.value || (value == self.value && hash > self.hash)
    }
}

/// So that small worker ids and small keys do not meet in the same hash inputs.
const SALT: u64 = 0x6C6F_786C_6579_0001;

/// Turns an even hash into a score that wins in proportion to the weight: weight ÷ −ln(u).
/// For equal weights it rises with the hash, so both kinds of router agree.
fn score(hash: u64, weight: f64) -> f64 {
    weight / -libm::log(unit(hash))
}

/// The middle of one of 2⁵² equal cells of the unit interval: never 0 and never 1.
fn unit(hash: u64) -> f64 {
    ((hash >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
}

/// Why a router or one of its workers cannot be.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum RouterError {
    /// The slack is not a finite number above zero.
    Slack(f64),
    /// A weight is not a finite number above zero.
    Weight {
        /// The worker that was to have it.
        id: u64,
        /// What it is.
        weight: f64,
    },
    /// There already is a worker of this id.
    AlreadyJoined(u64),
}

impl fmt::Display for RouterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slack(slack) => write!(f, "slack must be finite and above zero, not {slack}"),
            Self::Weight { id, weight } => {
                write!(
                    f,
                    "worker {id} has weight {weight}; a weight is finite and above zero"
                )
            }
            Self::AlreadyJoined(id) => write!(f, "worker {id} has already joined"),
        }
    }
}

impl core::error::Error for RouterError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(workers: u64, slack: f64) -> Router {
        let mut router = Router::new(slack).unwrap();
        for id in 0..workers {
            router.join(id, 1.0).unwrap();
        }
        router
    }

    fn homes(router: &Router, keys: u64) -> Vec<u64> {
        (0..keys).map(|key| router.home(key).unwrap()).collect()
    }

    #[test]
    fn keys_spread_evenly() {
        let mut counts = [0_u32; 10];
        for home in homes(&router(10, 1.0), 100_000) {
            counts[home as usize] += 1;
        }
        // Five standard deviations around 10,000.
        assert!(
            counts.iter().all(|count| (9_525..10_475).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn only_the_leavers_keys_move() {
        let mut router = router(10, 1.0);
        let before = homes(&router, 10_000);
        router.leave(4);
        let after = homes(&router, 10_000);
        let moved = before.iter().zip(&after).filter(|(old, new)| old != new);
        assert!(moved.clone().all(|(&old, _)| old == 4));
        assert_eq!(
            moved.count(),
            before.iter().filter(|&&home| home == 4).count()
        );
    }

    #[test]
    fn only_what_the_newcomer_wins_moves() {
        let mut router = router(10, 1.0);
        let before = homes(&router, 11_000);
        router.join(99, 1.0).unwrap();
        let after = homes(&router, 11_000);
        let moved = before.iter().zip(&after).filter(|(old, new)| old != new);
        assert!(moved.clone().all(|(_, &new)| new == 99));
        // One in eleven, give or take five standard deviations.
        assert!((850..1_150).contains(&moved.count()));
    }

    #[test]
    fn whoever_leaves_and_comes_back_finds_its_keys() {
        let mut router = router(5, 1.0);
        let before = homes(&router, 1_000);
        router.leave(0);
        router.join(0, 1.0).unwrap();
        assert_eq!(homes(&router, 1_000), before);
    }

    #[test]
    fn weights_draw_keys_in_proportion_and_changing_one_moves_only_its_share() {
        let mut router = Router::new(1.0).unwrap();
        for (id, weight) in [(0, 1.0), (1, 2.0), (2, 5.0)] {
            router.join(id, weight).unwrap();
        }
        let before = homes(&router, 80_000);
        let count = |homes: &[u64], id| homes.iter().filter(|&&home| home == id).count() as f64;
        for (id, share) in [(0, 10_000.0), (1, 20_000.0), (2, 50_000.0)] {
            assert!(
                (count(&before, id) - share).abs() < 700.0,
                "{}",
                count(&before, id)
            );
        }
        router.leave(1);
        router.join(1, 1.0).unwrap();
        let after = homes(&router, 80_000);
        let moved = before.iter().zip(&after).filter(|(old, new)| old != new);
        assert!(moved.clone().all(|(&old, _)| old == 1));
    }

    #[test]
    fn equal_weights_give_the_same_homes_by_either_way_of_scoring() {
        let plain = router(7, 1.0);
        let mut scored = plain.clone();
        scored.is_uniform = false;
        assert_eq!(homes(&plain, 5_000), homes(&scored, 5_000));
    }

    #[test]
    fn a_hot_key_cannot_overload_a_worker() {
        let mut router = router(8, 0.25);
        for sent in 1..=4_000_u64 {
            // Nine in ten for one key.
            let key = if sent % 10 == 0 { sent } else { 7 };
            router.place(key, 1);
            let limit = libm::ceil(1.25 * sent as f64 / 8.0) as u64;
            assert!(
                router.loads().all(|(_, load)| load <= limit),
                "after {sent}"
            );
        }
        assert_eq!(router.loads().map(|(_, load)| load).sum::<u64>(), 4_000);
    }

    #[test]
    fn unequal_costs_exceed_the_share_by_one_item_at_most() {
        let mut router = router(6, 0.1);
        let mut rng = crate::Rng::new(5);
        let mut sent = 0;
        for _ in 0..3_000 {
            let cost = 1 + rng.below(50);
            sent += cost;
            router.place(rng.below(3), cost);
            let limit = 1.1 * sent as f64 / 6.0 + 50.0;
            assert!(router.loads().all(|(_, load)| load as f64 <= limit));
        }
    }

    #[test]
    fn a_key_comes_home_when_the_heat_is_over() {
        let mut router = router(4, 0.25);
        let home = router.home(7);
        let placed: Vec<u64> = (0..40).map(|_| router.place(7, 1).unwrap()).collect();
        assert!(placed.iter().any(|&id| Some(id) != home));
        for id in placed {
            router.release(id, 1);
        }
        assert_eq!(router.place(7, 1), home);
    }

    #[test]
    fn a_leaver_takes_its_load_along() {
        let mut router = router(2, 0.25);
        router.place(1, 3);
        let loaded = router.loads().find(|&(_, load)| load == 3).unwrap().0;
        assert_eq!(router.leave(loaded), Some(3));
        router.release(loaded, 3);
        assert_eq!(router.loads().map(|(_, load)| load).sum::<u64>(), 0);
        assert_eq!(router.leave(loaded), None);
    }

    #[test]
    fn impossible_routers_and_workers_are_refused() {
        assert!(Router::new(0.0).is_err() && Router::new(f64::NAN).is_err());
        let mut router = router(1, 0.5);
        assert_eq!(router.join(0, 1.0), Err(RouterError::AlreadyJoined(0)));
        assert_eq!(
            router.join(1, 0.0),
            Err(RouterError::Weight { id: 1, weight: 0.0 })
        );
        assert!(router.join(1, f64::INFINITY).is_err());
        router.leave(0);
        assert!(router.is_empty());
        assert_eq!((router.home(3), router.place(3, 1)), (None, None));
    }
}
