//! Shards at a scale that no machine here has: work that comes to a few of them, and a zone that fails. The moves are the
//! real ones ([`Moves`](crate::moves::Moves), [`Rebalancer`]); a shard's scheduling is a queue before slots, time is
//! virtual, and so nothing here depends on how fast the machine is that runs it.
//!
//! What is written takes 50 ms to be seen; every shard reads what others wrote four times a second, and how they are once
//! a second.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::format;
use std::println;
use std::string::String;
use std::vec;
use std::vec::Vec;

use loxley_balance::Rng;
use loxley_model::{Lease, Span, TaskId, Time};

use crate::moves::{Input, Item, Kind, Letter, MoveLimits, Receipt};
use crate::rebalancer::{RebalancePace, Rebalancer};
use crate::shard::ShardId;
use crate::shard_model::{Effects, Fact, Place, ShardModel};

const SECOND: u64 = 1_000_000_000;
const STEP: u64 = SECOND / 20;
const VISIBLE_AFTER: u64 = SECOND / 20;
const READ_EVERY: u64 = SECOND / 4;
const TELL_EVERY: u64 = SECOND;
const ARRIVALS_UNTIL: u64 = 600 * SECOND;
/// A zone fails: its agents are gone, and its shards are served elsewhere after a while.
const FAILS_AT: u64 = 200 * SECOND;
const SERVED_AGAIN_AT: u64 = FAILS_AT + 10 * SECOND;
const BACK_AT: u64 = 400 * SECOND;
const FAILED_ZONE: usize = 1;
const KIND: Kind = Kind(1);

#[derive(Clone, Copy, Debug)]
struct Setting {
    shards: usize,
    agents: u32,
    zones: usize,
    /// How much of what the fleet could do comes.
    load: f64,
    /// Every so manieth shard is hot: those together get half of the work.
    hot_every: usize,
    moves: bool,
}

#[derive(Debug, Default)]
struct Figures {
    tasks: u64,
    moved: u64,
    homes: u64,
    moves_per_sec_max: u64,
    letters: u64,
    letters_per_sec_max: u64,
    /// Slots that stood idle while something waited somewhere, as a part of all, before the zone failed.
    idle_before: f64,
    /// The same while it was away.
    idle_while_away: f64,
    wait_p50: f64,
    wait_p99: f64,
    wait_max: f64,
    /// From the failure until everything that had waited or run there was started again, or ended.
    recovered_after: f64,
    /// When the last task ended.
    done_at: f64,
}

struct Shard {
    model: ShardModel,
    rebalancer: Rebalancer,
    zone: usize,
    zone_name: String,
    is_hot: bool,
    runs: BinaryHeap<Reverse<(u64, TaskId, Lease)>>,
    inbox: VecDeque<(u64, Letter)>,
    read: VecDeque<(u64, ShardId, u64)>,
    key: u64,
}

struct World {
    setting: Setting,
    rng: Rng,
    now: u64,
    shards: Vec<Shard>,
    submitted: BTreeMap<TaskId, u64>,
    /// Of the tasks that were hit by the failure, those that were not started since.
    hit: BTreeSet<TaskId>,
    waits_ms: Vec<u32>,
    live: u64,
    per_second: (u64, u64),
    idle: [(f64, f64); 2],
    figures: Figures,
}

fn simulate(seed: u64, setting: Setting) -> Figures {
    let shards = (0..setting.shards).map(|number| {
        let me = ShardId(number as u16);
        let zone = number * setting.zones / setting.shards;
        // Two zones are one region.
        let zone_name = format!("region{}/zone{zone}", zone / 2);
        Shard {
            model: ShardModel::new(me, MoveLimits::default()),
            rebalancer: Rebalancer::new(me, zone_name.clone(), RebalancePace::default()),
            zone,
            zone_name,
            is_hot: number % setting.hot_every == 0,
            runs: BinaryHeap::new(),
            inbox: VecDeque::new(),
            read: VecDeque::new(),
            key: 0,
        }
    });
    let mut world = World {
        setting,
        rng: Rng::new(seed),
        now: 0,
        shards: shards.collect(),
        submitted: BTreeMap::new(),
        hit: BTreeSet::new(),
        waits_ms: vec![],
        live: 0,
        per_second: (0, 0),
        idle: [(0.0, 0.0); 2],
        figures: Figures::default(),
    };
    while world.now < ARRIVALS_UNTIL || world.live > 0 {
        assert!(
            world.now < 100 * ARRIVALS_UNTIL,
            "{} tasks do not come to an end",
            world.live
        );
        world.step();
    }
    world.finish()
}

impl World {
    fn step(&mut self) {
        self.now += STEP;
        if self.now == FAILS_AT {
            self.note_what_is_hit();
        }
        if self.now.is_multiple_of(TELL_EVERY) && self.setting.moves {
            self.tell_loads();
        }
        for number in 0..self.shards.len() {
            let is_away = self.shards[number].zone == FAILED_ZONE
                && (FAILS_AT..SERVED_AGAIN_AT).contains(&self.now);
            if !is_away {
                self.serve(number);
            }
        }
        self.measure();
    }

    fn note_what_is_hit(&mut self) {
        for shard in &self.shards {
            if shard.zone == FAILED_ZONE {
                let tasks = shard.model.tasks.iter();
                let here = tasks.filter(|(_, task)| task.place != Place::Away);
                self.hit.extend(here.map(|(id, _)| *id));
            }
        }
    }

    fn tell_loads(&mut self) {
        let loads: Vec<_> = self
            .shards
            .iter()
            .map(|shard| (shard.model.me, shard.model.load(&shard.zone_name)))
            .collect();
        let now = Time(self.now);
        for shard in &mut self.shards {
            for (other, load) in &loads {
                shard.rebalancer.hear(now, *other, load.clone());
            }
        }
    }

    /// One group of one shard: everything that happened, and what follows from it.
    fn serve(&mut self, number: usize) {
        let now = Time(self.now);
        let mut effects = Effects::default();
        let arrivals = self.arrivals(number);
        let shard = &mut self.shards[number];
        let is_gone = shard.zone == FAILED_ZONE && (FAILS_AT..BACK_AT).contains(&self.now);
        let slots = match is_gone {
            true => 0,
            false => self.setting.agents,
        };
        let model = &mut shard.model;
        if model.slots(KIND) != slots {
            let kind = KIND;
            model.apply(now, Fact::Slots { kind, slots }, &mut effects);
        }
        for cost in arrivals {
            shard.key += 1;
            let submitted = Fact::Submitted {
                key: shard.key,
                count: 1,
                kind: KIND,
                cost,
            };
            model.apply(now, submitted, &mut effects);
        }
        while let Some(Reverse((until, task, lease))) = shard.runs.peek().copied()
            && until <= self.now
        {
            shard.runs.pop();
            if model.runs(task, lease) {
                model.apply(now, Fact::Finished { task, lease }, &mut effects);
            }
        }
        let reads = (self.now / STEP + number as u64).is_multiple_of(READ_EVERY / STEP);
        if reads && self.setting.moves {
            shard.read_mail(now, &mut effects);
        }
        if shard.model.moves.next_wake().is_some_and(|at| at <= now) {
            let flush = Fact::Moves(Input::Flush);
            shard.model.apply(now, flush, &mut effects);
        }
        self.carry_out(number, effects);
    }

    fn arrivals(&mut self, number: usize) -> Vec<Span> {
        if self.now > ARRIVALS_UNTIL {
            return vec![];
        }
        let Setting {
            shards,
            agents,
            load,
            hot_every,
            ..
        } = self.setting;
        let hot = shards.div_ceil(hot_every) as f64;
        let all = shards as f64;
        let part = match self.shards[number].is_hot {
            true => 0.5 / hot,
            false => 0.5 / (all - hot),
        };
        // From 20 to 100 seconds, a minute on average.
        let per_step = all * f64::from(agents) * load / 60.0 * part * (STEP as f64 / SECOND as f64);
        let whole = per_step as u64;
        let count = whole + u64::from(self.rng.chance(per_step - whole as f64));
        let costs = (0..count).map(|_| Span(20 * SECOND + self.rng.below(80 * SECOND)));
        costs.collect()
    }

    fn carry_out(&mut self, number: usize, effects: Effects) {
        let (now, me) = (self.now, ShardId(number as u16));
        for task in effects.submitted {
            self.figures.tasks += 1;
            self.live += 1;
            self.submitted.insert(task, now);
        }
        self.live -= effects.ended.len() as u64;
        for (task, _) in &effects.ended {
            self.hit.remove(task);
        }
        for (task, lease, cost) in effects.starts {
            let until = now + cost.0;
            self.shards[number].runs.push(Reverse((until, task, lease)));
            self.hit.remove(&task);
            if let Some(since) = self.submitted.remove(&task) {
                self.waits_ms.push(((now - since) / 1_000_000) as u32);
            }
        }
        if self.hit.is_empty() && now > FAILS_AT && self.figures.recovered_after == 0.0 {
            self.figures.recovered_after = (now - FAILS_AT) as f64 / 1e9;
        }
        for (donor, count) in effects.answered {
            let rebalancer = &mut self.shards[number].rebalancer;
            rebalancer.answered(Time(now), donor, count);
        }
        let visible = now + VISIBLE_AFTER;
        for (from, read) in effects.acknowledge {
            let there = &mut self.shards[usize::from(from.0)];
            there.read.push_back((visible, me, read));
        }
        for letter in effects.letters {
            self.per_second.1 += 1;
            for item in &letter.items {
                match item {
                    Item::Given(tasks) => self.per_second.0 += tasks.len() as u64,
                    Item::Home(_) => self.figures.homes += 1,
                    _ => {}
                }
            }
            let there = &mut self.shards[usize::from(letter.to.0)];
            there.inbox.push_back((visible, letter));
        }
    }

    fn measure(&mut self) {
        if !self.now.is_multiple_of(SECOND) {
            return;
        }
        let (moves, letters) = core::mem::take(&mut self.per_second);
        let figures = &mut self.figures;
        figures.moved += moves;
        figures.letters += letters;
        figures.moves_per_sec_max = figures.moves_per_sec_max.max(moves);
        figures.letters_per_sec_max = figures.letters_per_sec_max.max(letters);
        // The first two minutes fill the fleet.
        let period = match self.now / SECOND {
            120..200 => 0,
            210..400 => 1,
            _ => return,
        };
        let slots: u32 = self.shards.iter().map(|one| one.model.slots(KIND)).sum();
        let running: usize = self
            .shards
            .iter()
            .map(|one| one.model.running_count())
            .sum();
        let idle = slots as usize - running;
        let waiting: usize = self
            .shards
            .iter()
            .map(|one| one.model.waiting_count() as usize)
            .sum();
        self.idle[period].0 += idle.min(waiting) as f64;
        self.idle[period].1 += f64::from(slots);
    }

    fn finish(mut self) -> Figures {
        let part = |(idle, all): (f64, f64)| idle / all.max(1.0);
        let mut figures = self.figures;
        (figures.idle_before, figures.idle_while_away) = (part(self.idle[0]), part(self.idle[1]));
        self.waits_ms.sort_unstable();
        assert_eq!(
            self.waits_ms.len() as u64,
            figures.tasks,
            "all were started"
        );
        let at = |part: f64| {
            let last = self.waits_ms.len() - 1;
            f64::from(self.waits_ms[(part * last as f64) as usize]) / 1e3
        };
        (figures.wait_p50, figures.wait_p99, figures.wait_max) = (at(0.5), at(0.99), at(1.0));
        figures.done_at = self.now as f64 / 1e9;
        for shard in &self.shards {
            assert_eq!(shard.model.moves.away_count(), 0);
            assert_eq!(shard.model.moves.guest_count(), 0);
        }
        figures
    }
}

impl Shard {
    fn read_mail(&mut self, now: Time, effects: &mut Effects) {
        while let Some((visible, by, number)) = self.read.front().copied()
            && visible <= now.0
        {
            self.read.pop_front();
            let read = Input::Acknowledged { by, number };
            self.model.apply(now, Fact::Moves(read), effects);
        }
        while let Some((visible, _)) = self.inbox.front()
            && *visible <= now.0
        {
            let (_, letter) = self.inbox.pop_front().expect("it is there");
            assert_eq!(self.model.moves.receipt(&letter), Receipt::Next);
            let received = Fact::Moves(Input::Received(letter));
            self.model.apply(now, received, effects);
        }
        let model = &self.model;
        let ask = self
            .rebalancer
            .next_ask(now, &model.moves, |kind| model.room(kind));
        if let Some((donor, wish)) = ask {
            let asked = Fact::Moves(Input::Asked { donor, wish });
            self.model.apply(now, asked, effects);
        }
    }
}

fn print(setting: Setting, figures: &Figures) {
    println!("{setting:?}\n{figures:#?}");
}

#[test]
fn work_that_comes_to_a_few_shards_is_done_by_all_and_a_zone_that_fails_is_made_up_for() {
    let setting = match std::env::var_os("LOXLEY_TEST_LONG") {
        Some(_) => Setting {
            shards: 100,
            agents: 10_000,
            zones: 10,
            load: 0.8,
            hot_every: 10,
            moves: true,
        },
        None => Setting {
            shards: 20,
            agents: 50,
            zones: 5,
            load: 0.7,
            hot_every: 10,
            moves: true,
        },
    };
    let with = simulate(1, setting);
    print(setting, &with);
    assert!(with.idle_before < 0.02, "{with:?}");
    assert!(with.idle_while_away < 0.05, "{with:?}");
    assert!(with.wait_p99 < 40.0, "{with:?}");
    assert!(with.recovered_after < 60.0, "{with:?}");
    let limits = MoveLimits::default();
    let most = 2 * u64::from(limits.letters_per_sec) * setting.shards as u64;
    assert!(with.letters_per_sec_max <= most, "{with:?}");
    // And it is the moves that do it.
    let small = Setting {
        shards: 20,
        agents: 50,
        zones: 5,
        moves: false,
        ..setting
    };
    let without = simulate(1, small);
    print(small, &without);
    assert_eq!(without.moved, 0);
    assert!(without.wait_p99 > 10.0 * with.wait_p99, "{without:?}");
}
