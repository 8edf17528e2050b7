//! Agents shared out over shards, by need.
//!
//! An agent belongs to one shard at a time. A new one goes where it is needed most; one that has nothing to do while another
//! shard has more than it can do goes there; and where tasks wait that no agent of their shard can do, one that can is sent,
//! though it has work. Each holder decides of its own agents, once a second, by what the others last told of themselves.
//! That is a hint: whoever goes in vain goes on a moment later, and nothing is lost by that, for an agent leaves a shard
//! only when all that it had there is over and on disk.
//!
//! To and fro: an agent that came stays for some seconds, and longer when it is to leave work behind; of those with work, one
//! at a time is sent, by one shard at a time.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use loxley_api::{AgentInfo, AgentState, Needs};
use loxley_cluster::shard::{ShardId, zone_distance};
use loxley_engine::WaitingKind;
use loxley_model::AgentId;
use loxley_protocol as wire;
use serde::{Deserialize, Serialize};

use super::{Asker, Instance};
use crate::decider::{Load, News, ShardTold};

/// What was told longer ago counts for nothing.
const STALE: Duration = Duration::from_secs(5);
/// So long an agent without work stays where it came to.
const STAY_IDLE: Duration = Duration::from_secs(3);
/// So long one with work does.
const STAY_BUSY: Duration = Duration::from_secs(15);
/// So long tasks wait for an agent without work before one is taken from its work.
const HELD_FOR: Duration = Duration::from_secs(4);
/// One shard after the other may send agents that have work: each has so long.
const TURN: Duration = Duration::from_secs(3);

/// What a shard has to do, and who is there to do it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ShardLoad {
    /// Which one; not part of what is told, which stands beside its number.
    #[serde(skip)]
    pub(super) shard: u16,
    /// Agents that get work.
    pub(super) agents: u64,
    /// Their slots.
    pub(super) slots: u64,
    /// Slots in which nothing runs and before which nothing waits.
    pub(super) free_slots: u64,
    /// Tasks on queues.
    pub(super) queued: u64,
    /// Tasks that no agent of the shard can do.
    pub(super) held: u64,
    /// What some of those ask for.
    pub(super) held_kinds: Vec<Kind>,
    /// Where most of its slots are.
    pub(super) zone: String,
    /// How long a write takes.
    pub(super) commit_sec: f64,
    /// What waits there that other shards might do.
    pub(super) waiting: Vec<WaitingKind>,
    /// How many of its tasks are with other shards.
    pub(super) away: u64,
    /// How many tasks of other shards are there.
    pub(super) guests: u64,
}

/// What tasks of a kind ask for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Kind {
    skills: Vec<String>,
    needs: Needs,
}

/// What an agent can do.
struct Ability<'a> {
    skills: &'a [String],
    has: Needs,
    slots: u64,
    zone: &'a str,
}

impl<'a> Ability<'a> {
    fn of(agent: &'a AgentInfo) -> Self {
        Self {
            skills: &agent.capabilities,
            has: agent.resources.clone(),
            slots: agent.slots.into(),
            zone: agent.zone.as_deref().unwrap_or_default(),
        }
    }

    fn of_hello(hello: &'a wire::Hello) -> Self {
        Self {
            skills: &hello.skills,
            has: Needs {
                cpus: hello.cpu_milli as f64 / 1e3,
                memory_bytes: hello.memory_bytes,
                named: hello
                    .resources
                    .iter()
                    .map(|one| (one.name.clone(), one.amount))
                    .collect(),
            },
            slots: hello.slots.into(),
            zone: &hello.zone,
        }
    }

    fn can_do(&self, kind: &Kind) -> bool {
        let needs = &kind.needs;
        let has_named = |(name, amount): (&String, &u64)| {
            self.has.named.get(name).is_some_and(|has| has >= amount)
        };
        // Nothing said of processors or memory is no limit.
        let has_enough = |has: f64, need: f64| has == 0.0 || has >= need;
        kind.skills.iter().all(|skill| self.skills.contains(skill))
            && has_enough(self.has.cpus, needs.cpus)
            && has_enough(self.has.memory_bytes as f64, needs.memory_bytes as f64)
            && needs.named.iter().all(has_named)
    }

    /// Whether a shard has tasks that wait for such an agent.
    fn is_waited_for(&self, load: &ShardLoad) -> bool {
        load.held > 0 && load.held_kinds.iter().any(|kind| self.can_do(kind))
    }
}

impl ShardLoad {
    /// What an engine says of itself.
    fn new(load: &Load, commit_ns: u64) -> Self {
        let mut this = Self {
            queued: load.counts.queued,
            held: load.counts.held,
            commit_sec: commit_ns as f64 / 1e9,
            waiting: load.waiting.clone(),
            away: load.moved.0,
            guests: load.moved.1,
            ..Self::default()
        };
        let kinds = load.held.iter().cloned();
        this.held_kinds = kinds
            .map(|(skills, needs)| Kind { skills, needs })
            .collect();
        let mut zones: HashMap<&str, u64> = HashMap::new();
        for agent in load.agents.iter().filter(|one| is_here(one)) {
            let slots = u64::from(agent.slots);
            this.agents += 1;
            this.slots += slots;
            let busy = agent.running.len() as u64 + agent.queue_length;
            this.free_slots += slots.saturating_sub(busy);
            *zones
                .entry(agent.zone.as_deref().unwrap_or_default())
                .or_default() += slots;
        }
        let most = zones
            .into_iter()
            .max_by_key(|(zone, slots)| (*slots, *zone));
        this.zone = most.map_or_else(String::new, |(zone, _)| zone.to_owned());
        this
    }

    /// Whether more agents of the usual kind would have something to do here.
    fn is_short(&self) -> bool {
        self.queued > 0 && self.free_slots == 0
    }
}

/// Whether it is now that this shard may send an agent that has work: about once in its turn. Clocks that are apart make two
/// send at once, which does no harm.
fn is_turn_of(shard: u16, shards: u64) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = now.map_or(0, |since| since.as_secs());
    seconds.is_multiple_of(TURN.as_secs()) && seconds / TURN.as_secs() % shards == u64::from(shard)
}

fn is_here(agent: &AgentInfo) -> bool {
    agent.state == AgentState::Alive
}

fn is_idle(agent: &AgentInfo) -> bool {
    agent.running.is_empty() && agent.queue_length == 0
}

/// The shard for an agent that belongs to none: where tasks wait for such a one; else where too much waits; else one of
/// those with the fewest slots. The nearest, where there are several.
pub(super) fn place(hello: &wire::Hello, loads: &[ShardLoad]) -> u16 {
    let ability = Ability::of_hello(hello);
    let nearest = |loads: Vec<&ShardLoad>| {
        let key = |load: &&ShardLoad| {
            (
                zone_distance(ability.zone, &load.zone),
                load.slots,
                load.shard,
            )
        };
        loads.into_iter().min_by_key(key).map(|load| load.shard)
    };
    let such = |wanted: &dyn Fn(&ShardLoad) -> bool| {
        nearest(loads.iter().filter(|load| wanted(load)).collect())
    };
    let fewest = loads.iter().map(|load| load.slots).min().unwrap_or(0);
    such(&|load| ability.is_waited_for(load))
        .or_else(|| such(&ShardLoad::is_short))
        .or_else(|| such(&|load| load.slots <= fewest + ability.slots / 2))
        .unwrap_or(0)
}

/// Who is sent from one shard to another.
#[derive(Debug, PartialEq, Eq)]
struct Sent {
    agent: AgentId,
    to: u16,
}

/// What is remembered from one round to the next.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    /// Since when an agent is with a shard, by its number, which no other shard gives, and how often it came.
    since: HashMap<(AgentId, u32), Instant>,
    /// Since when a shard has tasks that none of its agents can do.
    held_since: HashMap<u16, Instant>,
}

impl Sharing {
    /// Tells what the shards that this instance serves have to do, hears of the others, and sends agents.
    pub(super) async fn round(&mut self, instance: &Instance, asker: &mut Asker) {
        let mut own = Vec::new();
        for (shard, served) in instance.served() {
            let handle = &served.context.handle;
            let Ok(load) = handle.look_at_load().await else {
                continue;
            };
            let told = ShardLoad::new(&load, handle.commit_ns());
            let text = serde_json::to_string(&told).expect("a load is JSON");
            let claim = served.claim;
            asker
                .ask(async |link| link.tell_load(claim, &text).await)
                .await;
            own.push((shard.number, handle.clone(), load));
        }
        let Some(told) = asker.ask(async |link| link.loads().await).await else {
            return;
        };
        let mut loads: Vec<ShardLoad> = (0..instance.shards.len() as u16)
            .map(|shard| ShardLoad {
                shard,
                ..ShardLoad::default()
            })
            .collect();
        for (shard, ago, text) in told {
            let place = usize::try_from(shard).ok().and_then(|at| loads.get_mut(at));
            if let (Some(place), true) = (place, ago < STALE)
                && let Ok(load) = serde_json::from_str::<ShardLoad>(&text)
            {
                let shard = place.shard;
                *place = ShardLoad { shard, ..load };
            }
        }
        for (_, handle, _) in &own {
            let told = loads.iter().map(|load| ShardTold {
                shard: ShardId(load.shard),
                zone: load.zone.clone(),
                waiting: load.waiting.clone(),
            });
            let news = News {
                loads: told.collect(),
                ..News::default()
            };
            handle.tell_neighbours(news).await;
        }
        let now = Instant::now();
        self.note(
            now,
            &loads,
            own.iter().flat_map(|(_, _, load)| &load.agents),
        );
        for (shard, handle, load) in &own {
            let is_its_turn = is_turn_of(*shard, loads.len() as u64);
            let sent = self.send_from(now, *shard, &load.agents, is_its_turn, &mut loads);
            for Sent { agent, to } in sent {
                // One that does not go, because it does not know how, is not told every second.
                let again = self.since.iter_mut().find(|((id, _), _)| *id == agent);
                again.into_iter().for_each(|(_, since)| *since = now);
                tracing::info!(
                    agent = agent.0,
                    from = shard,
                    to,
                    "sends an agent to another shard"
                );
                handle.send_away(agent, to.into()).await;
            }
        }
        *instance
            .loads
            .write()
            .unwrap_or_else(PoisonError::into_inner) = loads;
    }

    /// Notes since when things are as they are.
    fn note<'a>(
        &mut self,
        now: Instant,
        loads: &[ShardLoad],
        agents: impl Iterator<Item = &'a AgentInfo>,
    ) {
        for load in loads {
            match load.held > 0 {
                true => {
                    self.held_since.entry(load.shard).or_insert(now);
                }
                false => {
                    self.held_since.remove(&load.shard);
                }
            }
        }
        let before = std::mem::take(&mut self.since);
        for agent in agents.filter(|one| is_here(one)) {
            let key = (agent.id, agent.incarnation);
            let since = before.get(&key).copied().unwrap_or(now);
            self.since.insert(key, since);
        }
    }

    /// Who goes from this shard to others. What they will do there is taken off what is said of those, so that not all
    /// go for the same.
    fn send_from(
        &self,
        now: Instant,
        shard: u16,
        agents: &[AgentInfo],
        is_its_turn: bool,
        loads: &mut [ShardLoad],
    ) -> Vec<Sent> {
        let mut sent = Vec::new();
        let own = loads[usize::from(shard)].clone();
        let stayed = |agent: &AgentInfo| {
            let since = self.since.get(&(agent.id, agent.incarnation));
            since.map_or(Duration::ZERO, |since| now.duration_since(*since))
        };
        let here = || agents.iter().filter(|agent| is_here(agent));
        let is_needed = |ability: &Ability<'_>| own.is_short() || ability.is_waited_for(&own);
        for agent in here().filter(|agent| is_idle(agent) && stayed(agent) >= STAY_IDLE) {
            let ability = Ability::of(agent);
            if is_needed(&ability) {
                continue;
            }
            let others = loads.iter_mut().filter(|load| load.shard != shard);
            let wanted = others.filter(|load| ability.is_waited_for(load) || load.is_short());
            let key = |load: &&mut ShardLoad| {
                let is_short = !ability.is_waited_for(load);
                (
                    is_short,
                    zone_distance(ability.zone, &load.zone),
                    load.shard,
                )
            };
            if let Some(load) = wanted.min_by_key(key) {
                load.queued = load.queued.saturating_sub(ability.slots);
                load.held = load.held.saturating_sub(ability.slots);
                let (agent, to) = (agent.id, load.shard);
                sent.push(Sent { agent, to });
            }
        }
        if !is_its_turn || !sent.is_empty() {
            return sent;
        }
        // The least busy of those that can.
        let long_held = |load: &ShardLoad| {
            let since = self.held_since.get(&load.shard);
            since.is_some_and(|since| now.duration_since(*since) >= HELD_FOR)
        };
        for load in loads
            .iter()
            .filter(|load| load.shard != shard && long_held(load))
        {
            let can = here().filter(|agent| {
                let ability = Ability::of(agent);
                stayed(agent) >= STAY_BUSY && ability.is_waited_for(load)
            });
            let busy =
                |agent: &&AgentInfo| (agent.running.len() as u64 + agent.queue_length, agent.id);
            if let Some(agent) = can.min_by_key(busy) {
                let (agent, to) = (agent.id, load.shard);
                sent.push(Sent { agent, to });
                break;
            }
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(shard: u16, slots: u64, free_slots: u64, queued: u64) -> ShardLoad {
        ShardLoad {
            shard,
            agents: u64::from(slots > 0),
            slots,
            free_slots,
            queued,
            ..ShardLoad::default()
        }
    }

    fn held(shard: u16, skill: &str) -> ShardLoad {
        ShardLoad {
            held: 3,
            held_kinds: vec![Kind {
                skills: vec![skill.to_owned()],
                needs: Needs::default(),
            }],
            ..load(shard, 0, 0, 0)
        }
    }

    fn hello(skills: &[&str], zone: &str) -> wire::Hello {
        wire::Hello {
            skills: skills.iter().map(|&skill| skill.to_owned()).collect(),
            slots: 2,
            zone: zone.to_owned(),
            ..wire::Hello::default()
        }
    }

    fn agent(id: u64, skill: &str, running: usize) -> AgentInfo {
        let agent = serde_json::json!({
            "id": id, "name": format!("agent {id}"), "incarnation": 1, "state": "alive", "capabilities": [skill],
            "suspended": [], "slots": 2, "resources": {}, "speed": 1.0, "queue_length": 0,
            "running": vec![7; running], "has_current_task": running > 0, "total_completed": 0, "total_failed": 0,
            "success_rate": 1.0, "throttle": 0.0,
        });
        serde_json::from_value(agent).expect("an agent")
    }

    #[test]
    fn a_new_agent_goes_where_it_is_needed_and_then_where_few_are_near_by() {
        let calm = [load(0, 4, 4, 0), load(1, 2, 2, 0), load(2, 2, 2, 0)];
        assert_eq!(place(&hello(&[], ""), &calm), 1);
        let mut zoned = calm.clone();
        zoned[2].zone = "eu/paris".to_owned();
        assert_eq!(place(&hello(&[], "eu/rome"), &zoned), 2);
        let short = [load(0, 4, 0, 9), load(1, 2, 2, 0)];
        assert_eq!(place(&hello(&[], ""), &short), 0);
        let waited_for = [load(0, 4, 0, 9), held(1, "gpu")];
        assert_eq!(place(&hello(&["gpu"], ""), &waited_for), 1);
        assert_eq!(place(&hello(&["cpu"], ""), &waited_for), 0);
    }

    fn sharing(agents: &[AgentInfo], loads: &[ShardLoad], ago: Duration) -> (Sharing, Instant) {
        let mut sharing = Sharing::default();
        let now = Instant::now();
        sharing.note(now, loads, agents.iter());
        (sharing, now + ago)
    }

    #[test]
    fn who_has_nothing_to_do_goes_to_who_has_too_much_but_not_more_than_that_needs() {
        let agents = [agent(1, "x", 0), agent(2, "x", 0), agent(3, "x", 1)];
        let loads = [load(0, 6, 4, 0), load(1, 2, 0, 2), load(2, 2, 2, 5)];
        let (sharing, now) = sharing(&agents, &loads, STAY_IDLE);
        let sent = sharing.send_from(now, 0, &agents, false, &mut loads.clone());
        let first = Sent {
            agent: AgentId(1),
            to: 1,
        };
        // Two tasks wait there: one agent with two slots is enough. The third shard has room itself.
        assert_eq!(sent, [first]);
        let early = now - Duration::from_secs(1);
        assert!(
            sharing
                .send_from(early, 0, &agents, false, &mut loads.clone())
                .is_empty()
        );
        // Nobody leaves a shard that needs him.
        let mut busy = loads.clone();
        busy[0] = load(0, 6, 0, 3);
        assert!(
            sharing
                .send_from(now, 0, &agents, false, &mut busy)
                .is_empty()
        );
    }

    #[test]
    fn one_that_has_work_goes_only_in_its_turn_and_only_for_what_nobody_else_can_do() {
        let agents = [agent(1, "gpu", 2), agent(2, "gpu", 1), agent(3, "cpu", 1)];
        let loads = [load(0, 6, 0, 3), held(1, "gpu")];
        let (sharing, now) = sharing(&agents, &loads, STAY_BUSY);
        let send = |now, turn| sharing.send_from(now, 0, &agents, turn, &mut loads.clone());
        let least_busy = Sent {
            agent: AgentId(2),
            to: 1,
        };
        assert_eq!(send(now, true), [least_busy]);
        assert!(send(now, false).is_empty());
        assert!(send(now - Duration::from_secs(5), true).is_empty());
        let unable = [load(0, 6, 0, 3), held(1, "tpu")];
        assert!(
            sharing
                .send_from(now, 0, &agents, true, &mut unable.clone())
                .is_empty()
        );
    }
}
