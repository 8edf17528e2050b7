//! Who may have how much at once: groups with a limit, users with a share.
//!
//! [`Limits`] are facts: what was set. [`Loads`] follow from the tasks: how much of it is in use.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use loxley_model::{GroupId, UserId};

use crate::refs::{AgentRef, UserRef};
use crate::view::UserStatus;

/// What was set for groups and users.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Limits {
    groups: BTreeMap<GroupId, Group>,
    users: Vec<User>,
}

/// A group of tasks of which only so many may run at once.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Group {
    /// None: no limit was ever set.
    limit: Option<u32>,
    /// Agents with room that were turned away because the group was full.
    turned_away: BTreeSet<AgentRef>,
}

/// Somebody who submits tasks.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct User {
    id: UserId,
    weight: u32,
}

impl Limits {
    pub(crate) fn limit(&self, group: GroupId) -> Option<u32> {
        self.groups.get(&group)?.limit
    }

    pub(crate) fn set_limit(&mut self, group: GroupId, limit: u32) {
        self.groups.entry(group).or_default().limit = Some(limit);
    }

    /// An agent with room had to leave a task of a full group where it is.
    pub(crate) fn turn_away(&mut self, group: GroupId, agent: AgentRef) {
        if let Some(group) = self.groups.get_mut(&group) {
            group.turned_away.insert(agent);
        }
    }

    /// The next agent that was turned away: it is told that there is room.
    pub(crate) fn call_back(&mut self, group: GroupId) -> Option<AgentRef> {
        self.groups.get_mut(&group)?.turned_away.pop_first()
    }

    pub(crate) fn forget_agent(&mut self, agent: AgentRef) {
        for group in self.groups.values_mut() {
            group.turned_away.remove(&agent);
        }
    }

    /// Who somebody is to those outside.
    pub(crate) fn user_id(&self, user: UserRef) -> UserId {
        self.users[user.index()].id
    }

    pub(crate) fn user_count(&self) -> usize {
        self.users.len()
    }

    fn weight(&self, user: UserRef) -> u64 {
        u64::from(self.users[user.index()].weight)
    }

    /// Who this is, and the weight that was set.
    pub(crate) fn user(&self, user: UserRef) -> (UserId, u32) {
        let this = &self.users[user.index()];
        (this.id, this.weight)
    }

    /// Every agent that somebody was turned away as.
    pub(crate) fn agents(&self) -> impl Iterator<Item = AgentRef> {
        self.groups
            .values()
            .flat_map(|group| group.turned_away.iter().copied())
    }
}

/// How much of the limits is in use.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Loads {
    groups: BTreeMap<GroupId, GroupLoad>,
    users: Vec<UserLoad>,
    user_of: BTreeMap<UserId, UserRef>,
    /// The weights of all users with tasks that are not over.
    active_weight: u64,
    /// Tasks of all users on the queues of agents.
    queued: u64,
}

/// What a group has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct GroupLoad {
    /// Leases.
    running: u32,
    /// Tasks on the queues of agents.
    queued: u64,
}

/// What a user has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct UserLoad {
    /// Tasks that are not over.
    live: u64,
    /// Tasks on the queues of agents.
    queued: u64,
    /// Leases.
    running: u32,
}

impl Loads {
    /// Nothing is in use yet.
    pub(crate) fn of(limits: &Limits) -> Self {
        let places = (0..limits.users.len()).map(UserRef::new);
        let ids = limits.users.iter().map(|user| user.id);
        Self {
            users: alloc::vec![UserLoad::default(); limits.users.len()],
            user_of: ids.zip(places).collect(),
            ..Self::default()
        }
    }

    /// The place of a user, who may be new.
    pub(crate) fn user(&mut self, limits: &mut Limits, id: UserId) -> UserRef {
        // Mostly there is one.
        if limits.users.first().is_some_and(|first| first.id == id) {
            return UserRef::new(0);
        }
        let next = UserRef::new(self.users.len());
        let place = *self.user_of.entry(id).or_insert(next);
        if place == next {
            self.users.push(UserLoad::default());
            limits.users.push(User { id, weight: 1 });
        }
        place
    }

    pub(crate) fn set_weight(&mut self, limits: &mut Limits, user: UserId, weight: u32) {
        let user = self.user(limits, user);
        let old = core::mem::replace(&mut limits.users[user.index()].weight, weight);
        if self.users[user.index()].live > 0 {
            self.active_weight = self.active_weight - u64::from(old) + u64::from(weight);
        }
    }

    pub(crate) fn task_begins(&mut self, limits: &Limits, user: UserRef) {
        let this = &mut self.users[user.index()];
        this.live += 1;
        if this.live == 1 {
            self.active_weight += limits.weight(user);
        }
    }

    pub(crate) fn task_ends(&mut self, limits: &Limits, user: UserRef) {
        let this = &mut self.users[user.index()];
        this.live -= 1;
        if this.live == 0 {
            self.active_weight -= limits.weight(user);
        }
    }

    pub(crate) fn task_queued(&mut self, user: UserRef, group: Option<GroupId>) {
        self.users[user.index()].queued += 1;
        self.queued += 1;
        if let Some(group) = group {
            self.groups.entry(group).or_default().queued += 1;
        }
    }

    pub(crate) fn task_unqueued(&mut self, user: UserRef, group: Option<GroupId>) {
        self.users[user.index()].queued -= 1;
        self.queued -= 1;
        if let Some(group) = group {
            self.group_mut(group).queued -= 1;
            self.drop_if_unused(group);
        }
    }

    pub(crate) fn lease_begins(&mut self, user: UserRef, group: Option<GroupId>) {
        self.users[user.index()].running += 1;
        if let Some(group) = group {
            self.groups.entry(group).or_default().running += 1;
        }
    }

    pub(crate) fn lease_ends(&mut self, user: UserRef, group: Option<GroupId>) {
        self.users[user.index()].running -= 1;
        if let Some(group) = group {
            self.group_mut(group).running -= 1;
            self.drop_if_unused(group);
        }
    }

    fn group_mut(&mut self, group: GroupId) -> &mut GroupLoad {
        self.groups
            .get_mut(&group)
            .expect("what a group has was counted")
    }

    /// Users name groups as they please: what nobody uses is not kept.
    fn drop_if_unused(&mut self, group: GroupId) {
        if self.groups.get(&group) == Some(&GroupLoad::default()) {
            self.groups.remove(&group);
        }
    }

    /// How many of a group run.
    pub(crate) fn group_running(&self, group: GroupId) -> u32 {
        self.groups.get(&group).map_or(0, |load| load.running)
    }

    /// How many of each group run, and how many wait on queues.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (GroupId, u32, u64)> {
        let loads = self.groups.iter();
        loads.map(|(group, load)| (*group, load.running, load.queued))
    }

    /// Whether tasks of a group wait on queues.
    pub(crate) fn group_waits(&self, group: GroupId) -> bool {
        self.groups.get(&group).is_some_and(|load| load.queued > 0)
    }

    pub(crate) fn group_has_room(&self, limits: &Limits, group: GroupId) -> bool {
        let limit = limits.limit(group);
        limit.is_none_or(|limit| self.group_running(group) < limit)
    }

    /// What every user who ever submitted something, or was given a weight, has now.
    pub(crate) fn users(&self, limits: &Limits, slots: u64) -> impl Iterator<Item = UserStatus> {
        let users = limits.users.iter().zip(&self.users).enumerate();
        users.map(move |(at, (user, load))| UserStatus {
            user: user.id,
            weight: user.weight,
            live: load.live,
            queued: load.queued,
            running: load.running,
            share: match load.live {
                0 => 0,
                _ => self.share(limits, UserRef::new(at), slots),
            },
        })
    }

    pub(crate) fn user_running(&self, user: UserRef) -> u32 {
        self.users[user.index()].running
    }

    /// A user's share of so many slots, rounded up.
    pub(crate) fn share(&self, limits: &Limits, user: UserRef, slots: u64) -> u32 {
        let weight = limits.weight(user);
        let share = (slots * weight).div_ceil(self.active_weight.max(weight));
        u32::try_from(share).unwrap_or(u32::MAX).max(1)
    }

    /// Whether a user may start one more task: it is below its share, or nobody else waits.
    pub(crate) fn within_share(&self, limits: &Limits, user: UserRef, slots: u64) -> bool {
        let this = &self.users[user.index()];
        this.queued == self.queued || this.running < self.share(limits, user, slots)
    }
}
