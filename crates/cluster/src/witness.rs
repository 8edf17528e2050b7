//! What others saw of a journal, held against what it has.
//!
//! A database that fails over to a copy which lags behind has lost commits that it had acknowledged. It does not say so: the
//! row of a shard is merely older than it was, and whoever takes the shard reads less than was written. But those who were
//! told of what was written remember how far that was: agents, above all. Each of them says so when it comes back, and the
//! holder compares.
//!
//! ```text
//!   earlier epoch   p ≤ begun_at: all that it was told of was read by this holder
//!   this epoch      p ≤ position, told by this very holder
//!   later epoch     a later holder told it: this one is fenced and does not know it yet, or the database lost that one
//! ```
//!
//! What must stay true: while nothing was lost, nobody is taken for a witness of a loss, whatever is late and whoever stands
//! still. That is why a [`Verdict::Beyond`] counts only when a write that was begun after it succeeds: a holder that is
//! fenced cannot write any more.

/// How far somebody saw the journal of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Seen {
    /// The epoch of the holder that told it.
    pub epoch: u64,
    /// The number of the process which that was.
    pub holder: u64,
    /// The place after the last group that was written by then.
    pub position: u64,
}

/// What the holder of a shard knows of its journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Under which epoch it holds the shard.
    pub epoch: u64,
    /// The number of its process.
    pub holder: u64,
    /// Where the journal ended when it took over.
    pub begun_at: u64,
    /// The place after the last group that is written.
    pub position: u64,
    /// Holders up to this epoch may have told of what is gone, and the owners of the journal go on without; 0: of nothing.
    pub lost_until: u64,
}

/// What comes of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The journal has all that was seen.
    Has,
    /// Nobody knows, and its owners go on without what it lacks: whoever saw it has to begin anew.
    Void,
    /// It does not.
    Beyond,
}

impl Written {
    /// Whether the journal has what somebody saw of it.
    #[must_use]
    pub fn compare(&self, seen: &Seen) -> Verdict {
        if self.lost_until > 0 && seen.epoch <= self.lost_until {
            return Verdict::Void;
        }
        let has = match seen.epoch.cmp(&self.epoch) {
            core::cmp::Ordering::Less => seen.position <= self.begun_at,
            // Each epoch is given to one process: another one had it in a past that is gone.
            core::cmp::Ordering::Equal => {
                seen.holder == self.holder && seen.position <= self.position
            }
            core::cmp::Ordering::Greater => false,
        };
        match has {
            true => Verdict::Has,
            false => Verdict::Beyond,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The row of a shard, as far as it counts here.
    #[derive(Clone, Copy, Default)]
    struct Row {
        epoch: u64,
        next: u64,
    }

    struct Chance(u64);

    impl Chance {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (self.0 >> 33) % bound
        }
    }

    fn take(row: &mut Row, holder: u64, lost_until: u64) -> Written {
        row.epoch += 1;
        Written {
            epoch: row.epoch,
            holder,
            begun_at: row.next,
            position: row.next,
            lost_until,
        }
    }

    fn told_by(holder: &Written) -> Seen {
        Seen {
            epoch: holder.epoch,
            holder: holder.holder,
            position: holder.position,
        }
    }

    /// Holders take over from each other and write; agents hear of some of it. Nobody is ever suspected by a current holder;
    /// then the database is put back, and whoever saw more than is left is a witness, whoever did not is none.
    #[test]
    fn a_loss_is_seen_by_those_who_saw_what_is_gone_and_by_nobody_else() {
        for seed in 1..2000 {
            let mut chance = Chance(seed);
            let mut row = Row::default();
            let mut holder = take(&mut row, 1, 0);
            let mut processes = 1;
            let mut agents: [Option<Seen>; 4] = [None; 4];
            let mut copy = row;
            for _ in 0..chance.below(60) {
                match chance.below(5) {
                    0 => {
                        processes += 1;
                        holder = take(&mut row, processes, 0);
                    }
                    1 | 2 => {
                        row.next += 1;
                        holder.position = row.next;
                    }
                    3 => copy = row,
                    _ => {
                        let agent = &mut agents[chance.below(4) as usize];
                        if let Some(seen) = agent {
                            assert_eq!(holder.compare(seen), Verdict::Has, "seed {seed}");
                        }
                        *agent = Some(told_by(&holder));
                    }
                }
            }
            // The copy takes the place of the original; the holder finds itself fenced, and somebody takes over.
            let lost = copy.next < row.next || copy.epoch < row.epoch;
            let mut row = copy;
            processes += 1;
            let holder = take(&mut row, processes, 0);
            let mut latest = None;
            for seen in agents.into_iter().flatten() {
                let saw_what_is_gone = seen.position > copy.next || seen.epoch > copy.epoch;
                let expected = match saw_what_is_gone {
                    true => Verdict::Beyond,
                    false => Verdict::Has,
                };
                assert_eq!(
                    holder.compare(&seen),
                    expected,
                    "seed {seed}: {seen:?} {holder:?}"
                );
                if saw_what_is_gone {
                    assert!(lost);
                    latest = latest.max(Some(seen.epoch));
                }
            }
            // Its owners go on without: all that were there begin anew, and later ones are compared as ever.
            let Some(latest) = latest else { continue };
            let lost_until = row.epoch.max(latest);
            row.epoch = lost_until;
            let mut holder = take(&mut row, processes + 1, lost_until);
            holder.position += 1;
            row.next = holder.position;
            let seen = told_by(&holder);
            let next = take(&mut row, processes + 2, lost_until);
            for holder in [holder, next] {
                assert_eq!(holder.compare(&seen), Verdict::Has);
                for seen in agents.into_iter().flatten() {
                    assert_eq!(holder.compare(&seen), Verdict::Void, "seed {seed}");
                }
            }
        }
    }

    #[test]
    fn a_holder_that_is_fenced_and_does_not_know_it_is_told_of_a_later_one() {
        let mut row = Row::default();
        let paused = take(&mut row, 1, 0);
        let mut later = take(&mut row, 2, 0);
        later.position += 3;
        assert_eq!(paused.compare(&told_by(&later)), Verdict::Beyond);
    }
}
