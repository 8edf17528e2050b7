//! What a shard hears of the others: letters, how far its own were read, and how much each has to do.

use std::collections::BTreeMap;

use loxley_api::Needs;
use loxley_cluster::moves::{Item, Kind, Letter, Receipt};
use loxley_cluster::rebalancer::{Load, RebalancePace, Rebalancer};
use loxley_cluster::shard::ShardId;
use loxley_engine::WaitingKind;

use super::{Decider, Loss};

/// What was heard.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Letters to this shard, each sender's in the order of its numbers.
    pub(crate) letters: Vec<Letter>,
    /// Who has read ours up to which number.
    pub(crate) read: Vec<(ShardId, u64)>,
    /// What the shards say of themselves, this one among them; empty when nothing was said since.
    pub(crate) loads: Vec<Told>,
}

/// What a shard says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) shard: ShardId,
    pub(crate) zone: String,
    pub(crate) waiting: Vec<WaitingKind>,
}

/// What a shard knows of the others. None of it is written down: whoever takes over hears it anew.
#[derive(Debug)]
pub(super) struct Neighbours {
    rebalancer: Rebalancer,
    /// What tasks of each kind ask for.
    kinds: BTreeMap<Kind, (Vec<String>, Needs)>,
}

impl Neighbours {
    /// Of the shard whose numbers begin after this one.
    pub(super) fn of(numbers_from: u64) -> Self {
        let pace = RebalancePace::default();
        let shard = ShardId::try_of(numbers_from).unwrap_or_default();
        Self {
            rebalancer: Rebalancer::new(shard, String::new(), pace),
            kinds: BTreeMap::new(),
        }
    }

    fn hear(&mut self, now: loxley_model::Time, me: ShardId, loads: Vec<Told>) {
        if loads.is_empty() {
            return;
        }
        self.kinds.clear();
        for told in loads {
            if told.shard == me {
                self.rebalancer.set_zone(told.zone);
                continue;
            }
            let load = Load {
                zone: told.zone,
                kinds: told.waiting.iter().map(|kind| kind.load).collect(),
            };
            let asked_for = told.waiting.into_iter();
            self.kinds
                .extend(asked_for.map(|kind| (kind.load.kind, (kind.skills, kind.needs))));
            self.rebalancer.hear(now, told.shard, load);
        }
    }
}

impl Decider {
    /// Takes in what was heard of other shards, and asks one for tasks where that is of use. False when this holder must
    /// not go on.
    pub(super) fn hear_neighbours(&mut self, news: News) -> bool {
        let now = self.clock.now();
        let mut ahead = None;
        for letter in news.letters {
            match self.engine.receipt(&letter) {
                Receipt::Next => {
                    for item in &letter.items {
                        if let Item::Given(tasks) = item {
                            let rebalancer = &mut self.neighbours.rebalancer;
                            rebalancer.answered(now, letter.from, tasks.len());
                        }
                    }
                    self.engine.receive(now, letter);
                }
                Receipt::Repeated => {}
                Receipt::Ahead => ahead = Some((letter.from, letter.number)),
            }
        }
        for (by, number) in news.read {
            if !self.engine.letters_read(now, by, number) {
                ahead = Some((by, number));
            }
        }
        if let Some((shard, letter)) = ahead {
            // A later holder of this shard read it, asked for it or gave it; or the database lost that.
            let message = format!(
                "letter {letter} between this shard and shard {} tells of what the journal does not have",
                shard.0
            );
            let epoch = self.written().epoch;
            return self.suspect(Loss { message, epoch });
        }
        let me = self.engine.shard();
        self.neighbours.hear(now, me, news.loads);
        let Neighbours {
            rebalancer, kinds, ..
        } = &mut self.neighbours;
        self.engine.rebalance_shards(now, rebalancer, kinds);
        true
    }
}
