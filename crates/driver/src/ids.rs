//! Maps from numbers that we handed out ourselves: nobody can choose them to collide, so the hash may be
//! quick.

use core::hash::{BuildHasherDefault, Hasher};

use hashbrown::{HashMap, HashSet};

/// A map from an id.
pub type IdMap<Id, Value> = HashMap<Id, Value, BuildHasherDefault<IdHasher>>;

/// A set of ids.
pub type IdSet<Id> = HashSet<Id, BuildHasherDefault<IdHasher>>;

/// Mixes one number.
#[derive(Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}
