//! Limits of groups in a shard: what its jobs name, what its core has, and what [`Budgets`] makes of both.
//!
//! Groups have numbers within a shard, and names between shards.
//!
//! [`Budgets`]: loxley_cluster::budgets::Budgets

use std::collections::{BTreeMap, BTreeSet};

use loxley_api::JobRequest;
use loxley_cluster::budgets::{Action, Input as Budget, OWNER, Use, Word as BudgetWord};
use loxley_cluster::shard::ShardId;
use loxley_model::Time;
use loxley_policy::{Explanation, Input, Remedy};

use crate::effects::Effects;
use crate::moving::Word;
use crate::state::State;

impl State {
    /// The groups of a new job: their limits count, here or in all shards.
    pub(crate) fn limit_groups(&mut self, job: &JobRequest, out: &mut Effects) {
        if self.shard() != OWNER {
            let named = job.tasks.iter().filter_map(|task| task.group.as_ref());
            let groups: BTreeSet<&String> = named.chain(job.limits.keys()).collect();
            for group in groups {
                self.budget(Budget::Named(group), out);
            }
        }
        for (group, limit) in &job.limits {
            // Nobody can ask for less than one; a journal that somebody made must not close a group for good.
            let limit = (*limit).max(1);
            self.budget(Budget::LimitSet { group, limit }, out);
        }
    }

    pub(crate) fn hear_of_budget(
        &mut self,
        from: ShardId,
        group: &str,
        word: BudgetWord,
        out: &mut Effects,
    ) {
        let known = self.names.groups.id(group);
        let limit = known.and_then(|group| self.driver.scheduler().group_limit(group));
        let heard = Budget::Heard {
            from,
            group,
            word,
            limit,
        };
        self.budget(heard, out);
    }

    pub(crate) fn review_budgets(&mut self, out: &mut Effects) {
        let uses = self.group_uses();
        self.budget(Budget::Reviewed(&uses), out);
    }

    /// Whether something is lent, or to be borrowed.
    pub(crate) fn lends(&self) -> bool {
        let has_groups = || self.driver.scheduler().group_loads().next().is_some();
        !self.budgets.is_empty() || (self.shard() != OWNER && has_groups())
    }

    /// Whether a review would change anything.
    pub(crate) fn needs_review(&self, now: Time) -> bool {
        let uses = self.group_uses();
        self.budgets.needs_review(self.shard(), now, &uses)
    }

    fn group_uses(&self) -> BTreeMap<String, Use> {
        let loads = self.driver.scheduler().group_loads();
        let uses = loads.map(|(group, running, queued)| {
            let waiting = u32::try_from(queued).unwrap_or(u32::MAX);
            let name = self.names.group_name(group).as_ref().to_owned();
            (name, Use { running, waiting })
        });
        uses.collect()
    }

    /// Has the advice name the limit of all shards together where a task waits for a place of its group, and says so.
    pub(crate) fn advise_whole_limit(&self, explained: &mut Explanation) -> Option<String> {
        let groups = explained
            .remedies
            .iter_mut()
            .filter_map(|remedy| match remedy {
                Remedy::RaiseGroupLimit(group, limit) => Some((*group, limit)),
                _ => None,
            });
        let mut said = None;
        for (group, limit) in groups {
            if let Some(whole) = self.budgets.whole_limit(&self.names.group_name(group)) {
                let here = std::mem::replace(limit, whole);
                said = Some(format!(
                    "{whole} of its group may run in all shards together, and this shard has {here} of these places now"
                ));
            }
        }
        said
    }

    fn budget(&mut self, input: Budget<'_>, out: &mut Effects) {
        let (me, now) = (self.shard(), self.now);
        let mut actions = Vec::new();
        self.budgets.handle(me, now, input, &mut actions);
        for action in actions {
            match action {
                Action::Say { to, group, word } => self.say(to, Word::Budget(group, word), out),
                Action::Limit { group, count } => {
                    // What another shard calls a group, this one can call so.
                    if let Ok(group) = self.names.groups.intern(&group) {
                        self.handle(match count {
                            0 => Input::GroupClosed(group),
                            limit => Input::GroupLimitSet { group, limit },
                        });
                    }
                }
            }
        }
    }
}
