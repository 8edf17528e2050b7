//! What a task needs while it runs, and what an agent has.

use alloc::collections::BTreeMap;

use crate::ResourceId;

/// Amounts of processor, memory and named resources.
///
/// On an agent, processor and memory of zero mean "as much as is asked for": an agent that says
/// nothing of its memory is not held to a limit. A named resource it does not list, it does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Resources {
    /// Processors, in thousandths.
    pub cpu_milli: u64,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Everything else, by name.
    pub named: BTreeMap<ResourceId, u64>,
}

impl Resources {
    /// Whether nothing is asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cpu_milli == 0 && self.memory_bytes == 0 && self.named.is_empty()
    }

    /// Whether `needs` can be met by these amounts while `used` of them is taken.
    #[must_use]
    pub fn have_room(&self, used: &Self, needs: &Self) -> bool {
        let fits = |total: u64, used: u64, need: u64| {
            need == 0 || total == 0 || used.saturating_add(need) <= total
        };
        fits(self.cpu_milli, used.cpu_milli, needs.cpu_milli)
            && fits(self.memory_bytes, used.memory_bytes, needs.memory_bytes)
            && needs.named.iter().all(|(name, need)| {
                let used = used.named.get(name).copied().unwrap_or(0);
                let total = self.named.get(name).copied().unwrap_or(0);
                *need == 0 || used.saturating_add(*need) <= total
            })
    }

    /// Takes `needs` into use.
    pub fn take(&mut self, needs: &Self) {
        self.cpu_milli += needs.cpu_milli;
        self.memory_bytes += needs.memory_bytes;
        for (name, need) in &needs.named {
            *self.named.entry(*name).or_default() += need;
        }
    }

    /// Gives `needs` back.
    ///
    /// # Panics
    /// When more is given back than was taken: the books are wrong.
    pub fn give_back(&mut self, needs: &Self) {
        let minus = |used: u64, need: u64| {
            used.checked_sub(need)
                .expect("gave back more than was taken")
        };
        self.cpu_milli = minus(self.cpu_milli, needs.cpu_milli);
        self.memory_bytes = minus(self.memory_bytes, needs.memory_bytes);
        for (name, need) in &needs.named {
            let used = self
                .named
                .get_mut(name)
                .expect("gave back what was never taken");
            *used = minus(*used, *need);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unlisted_resource_is_absent_but_unlisted_memory_is_unlimited() {
        let agent = Resources {
            cpu_milli: 2000,
            ..Resources::default()
        };
        let used = Resources {
            cpu_milli: 1500,
            ..Resources::default()
        };
        let memory = Resources {
            memory_bytes: 1 << 40,
            ..Resources::default()
        };
        assert!(agent.have_room(&used, &memory));
        let card = Resources {
            named: [(ResourceId(1), 1)].into(),
            ..Resources::default()
        };
        assert!(!agent.have_room(&used, &card));
        let cpu = Resources {
            cpu_milli: 501,
            ..Resources::default()
        };
        assert!(!agent.have_room(&used, &cpu));
    }
}
