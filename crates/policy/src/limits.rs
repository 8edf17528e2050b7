//! Who may have how much at once: groups with a limit, users with a share.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use loxley_model::{GroupId, UserId};

use crate::refs::{AgentRef, UserRef};

/// A group of tasks of which only so many may run at once.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// None: no limit was ever set.
    pub(crate) limit: Option<u32>,
    pub(crate) running: u32,
    /// Tasks on the queues of agents.
    pub(crate) queued: u64,
    /// Agents with room that were turned away because the group was full.
    pub(crate) turned_away: BTreeSet<AgentRef>,
}

impl Group {
    pub(crate) fn has_room(&self) -> bool {
        self.limit.is_none_or(|limit| self.running < limit)
    }
}

/// Somebody who submits tasks.
#[derive(Debug)]
pub(crate) struct User {
    pub(crate) weight: u32,
    /// Tasks that are not over.
    pub(crate) live: u64,
    /// Tasks on the queues of agents.
    pub(crate) queued: u64,
    /// Tasks with an agent.
    pub(crate) running: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Limits {
    pub(crate) groups: BTreeMap<GroupId, Group>,
    pub(crate) users: Vec<User>,
    pub(crate) user_of: BTreeMap<UserId, UserRef>,
    /// Who was looked up last: mostly it is the same one again.
    pub(crate) latest: Option<(UserId, UserRef)>,
    /// The weights of all users with tasks that are not over.
    pub(crate) active_weight: u64,
    /// Tasks of all users on the queues of agents.
    pub(crate) queued: u64,
}

impl Limits {
    /// The place of a user, who may be new.
    pub(crate) fn user(&mut self, id: UserId) -> UserRef {
        if let Some((latest, place)) = self.latest
            && latest == id
        {
            return place;
        }
        let next = UserRef::new(self.users.len());
        let place = *self.user_of.entry(id).or_insert(next);
        if place == next {
            self.users.push(User {
                weight: 1,
                live: 0,
                queued: 0,
                running: 0,
            });
        }
        self.latest = Some((id, place));
        place
    }

    fn user_mut(&mut self, user: UserRef) -> &mut User {
        &mut self.users[user.index()]
    }

    pub(crate) fn set_weight(&mut self, user: UserId, weight: u32) {
        let user = self.user(user);
        let this = self.user_mut(user);
        let old = core::mem::replace(&mut this.weight, weight);
        if this.live > 0 {
            self.active_weight = self.active_weight - u64::from(old) + u64::from(weight);
        }
    }

    pub(crate) fn task_begins(&mut self, user: UserRef) {
        let this = self.user_mut(user);
        this.live += 1;
        if this.live == 1 {
            self.active_weight += u64::from(this.weight);
        }
    }

    pub(crate) fn task_ends(&mut self, user: UserRef) {
        let this = self.user_mut(user);
        this.live -= 1;
        if this.live == 0 {
            self.active_weight -= u64::from(this.weight);
        }
    }

    pub(crate) fn task_queued(&mut self, user: UserRef, group: Option<GroupId>) {
        self.user_mut(user).queued += 1;
        self.queued += 1;
        if let Some(group) = group {
            self.groups.entry(group).or_default().queued += 1;
        }
    }

    pub(crate) fn task_unqueued(&mut self, user: UserRef, group: Option<GroupId>) {
        self.user_mut(user).queued -= 1;
        self.queued -= 1;
        if let Some(group) = group {
            self.groups.entry(group).or_default().queued -= 1;
        }
    }

    pub(crate) fn lease_begins(&mut self, user: UserRef, group: Option<GroupId>) {
        self.user_mut(user).running += 1;
        if let Some(group) = group {
            self.groups.entry(group).or_default().running += 1;
        }
    }

    pub(crate) fn lease_ends(&mut self, user: UserRef, group: Option<GroupId>) {
        self.user_mut(user).running -= 1;
        if let Some(group) = group {
            self.groups.entry(group).or_default().running -= 1;
        }
    }

    pub(crate) fn group_has_room(&self, group: Option<GroupId>) -> bool {
        group
            .and_then(|group| self.groups.get(&group))
            .is_none_or(Group::has_room)
    }

    /// A user's share of so many slots, rounded up.
    pub(crate) fn share(&self, user: UserRef, slots: u64) -> u32 {
        let weight = u64::from(self.users[user.index()].weight);
        let share = (slots * weight).div_ceil(self.active_weight.max(weight));
        u32::try_from(share).unwrap_or(u32::MAX).max(1)
    }

    /// Whether a user may start one more task: it is below its share, or nobody else waits.
    pub(crate) fn within_share(&self, user: UserRef, slots: u64) -> bool {
        let this = &self.users[user.index()];
        this.queued == self.queued || this.running < self.share(user, slots)
    }

    /// Whether shares can make a difference.
    pub(crate) fn has_rivals(&self) -> bool {
        self.users.len() > 1
    }
}
