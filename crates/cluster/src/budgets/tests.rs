use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use loxley_balance::Rng;
use loxley_model::{Span, Time};

use super::*;

const GROUP: &str = "disk";

/// A shard as the budgets see it: tasks that wait, and tasks that run, as many as may.
#[derive(Default)]
struct Shard {
    budgets: Budgets,
    /// As the core knows it; none: nobody ever said one.
    limit: Option<u32>,
    used: Use,
}

/// Some shards, and what they have said to each other and not yet heard.
struct World {
    now: Time,
    shards: Vec<Shard>,
    said: BTreeMap<(ShardId, ShardId), VecDeque<Word>>,
    words: u64,
}

impl World {
    fn new(count: usize) -> Self {
        Self {
            now: Time(0),
            shards: (0..count).map(|_| Shard::default()).collect(),
            said: BTreeMap::new(),
            words: 0,
        }
    }

    fn tell(&mut self, at: usize, input: Input<'_>) {
        let me = ShardId(at as u16);
        let mut actions = Vec::new();
        let shard = &mut self.shards[at];
        shard.budgets.handle(me, self.now, input, &mut actions);
        for action in actions {
            match action {
                Action::Say { to, word, .. } => {
                    assert!(me == OWNER || to == OWNER, "words go to and from the owner");
                    self.words += 1;
                    self.said.entry((me, to)).or_default().push_back(word);
                }
                Action::Limit { count, .. } => self.shards[at].limit = Some(count),
            }
        }
    }

    fn submit(&mut self, at: usize, tasks: u32, limit: Option<u32>) {
        self.tell(at, Input::Named(GROUP));
        if let Some(limit) = limit {
            let group = GROUP;
            self.tell(at, Input::LimitSet { group, limit });
        }
        self.shards[at].used.waiting += tasks;
    }

    fn start(&mut self, at: usize) {
        let shard = &mut self.shards[at];
        while shard.used.waiting > 0 && shard.limit.is_none_or(|limit| shard.used.running < limit) {
            shard.used.waiting -= 1;
            shard.used.running += 1;
        }
    }

    fn uses(&self, at: usize) -> BTreeMap<String, Use> {
        let used = self.shards[at].used;
        match used == Use::default() {
            true => BTreeMap::new(),
            false => [(GROUP.into(), used)].into(),
        }
    }

    fn review(&mut self, at: usize) {
        let uses = self.uses(at);
        let me = ShardId(at as u16);
        if self.shards[at].budgets.needs_review(me, self.now, &uses) {
            self.tell(at, Input::Reviewed(&uses));
        }
    }

    /// The oldest word of this pair is heard.
    fn hear(&mut self, from: usize, to: usize) {
        let pair = (ShardId(from as u16), ShardId(to as u16));
        let word = self.said.get_mut(&pair).and_then(VecDeque::pop_front);
        if let Some(word) = word {
            let heard = Input::Heard {
                from: pair.0,
                group: GROUP,
                word,
                limit: self.shards[to].limit,
            };
            self.tell(to, heard);
        }
    }

    /// Everybody reviews, hears everything, and starts what may start.
    fn round(&mut self) {
        self.now = self.now + REVIEW_EVERY;
        for at in 0..self.shards.len() {
            self.review(at);
            self.start(at);
        }
        for at in 1..self.shards.len() {
            while self
                .said
                .get(&(OWNER, ShardId(at as u16)))
                .is_some_and(|words| !words.is_empty())
            {
                self.hear(0, at);
            }
            while self
                .said
                .get(&(ShardId(at as u16), OWNER))
                .is_some_and(|words| !words.is_empty())
            {
                self.hear(at, 0);
            }
        }
        for at in 0..self.shards.len() {
            self.start(at);
        }
    }

    fn running(&self) -> Vec<u32> {
        self.shards.iter().map(|shard| shard.used.running).collect()
    }

    fn running_in_all(&self) -> u32 {
        self.running().iter().sum()
    }
}

#[test]
fn a_limit_is_shared_out_by_what_is_wanted() {
    let mut world = World::new(3);
    world.submit(0, 100, Some(10));
    world.start(0);
    assert_eq!(world.running(), [10, 0, 0]);
    world.submit(1, 100, None);
    world.submit(2, 2, None);
    for _ in 0..20 {
        world.round();
        assert!(world.running_in_all() <= 10);
        // One task of the owner ends each time; another begins only where it may.
        world.shards[0].used.running -= u32::from(world.shards[0].used.running > 0);
    }
    world.round();
    assert_eq!(world.running(), [4, 4, 2]);
}

#[test]
fn nothing_runs_elsewhere_before_the_owner_was_asked() {
    let mut world = World::new(2);
    world.submit(1, 5, Some(3));
    world.start(1);
    assert_eq!(world.running(), [0, 0]);
    for _ in 0..3 {
        world.round();
    }
    assert_eq!(world.running(), [0, 3]);
}

#[test]
fn a_group_without_a_limit_runs_everywhere_and_is_capped_when_one_comes() {
    let mut world = World::new(3);
    world.submit(1, 7, None);
    world.submit(2, 7, None);
    for _ in 0..3 {
        world.round();
    }
    assert_eq!(world.running(), [0, 7, 7]);
    world.submit(2, 7, Some(4));
    world.round();
    world.submit(0, 3, None);
    for _ in 0..10 {
        world.round();
    }
    assert_eq!(
        world.running()[0],
        0,
        "what runs elsewhere is too much already"
    );
    for shard in &mut world.shards {
        shard.used.running = 0;
    }
    world.submit(2, 7, None);
    for _ in 0..10 {
        world.round();
    }
    assert_eq!(world.running_in_all(), 4);
    assert!(world.running()[0] > 0 && world.running()[2] > 0);
}

#[test]
fn places_that_nobody_needs_there_come_back() {
    let mut world = World::new(2);
    world.submit(1, 2, Some(2));
    for _ in 0..3 {
        world.round();
    }
    assert_eq!(world.running(), [0, 2]);
    world.submit(0, 2, None);
    world.shards[1].used.running = 0;
    for _ in 0..3 {
        world.round();
    }
    assert_eq!(world.running(), [2, 0]);
    world.shards[0].used.running = 0;
    for _ in 0..3 {
        world.round();
    }
    assert!(world.shards.iter().all(|shard| shard.budgets.is_empty()));
    assert_eq!(
        world.shards[0].limit,
        Some(2),
        "the whole limit is its owner's"
    );
    let before = world.words;
    for _ in 0..40 {
        world.round();
    }
    assert_eq!(world.words, before, "nothing is left to say");
}

#[test]
fn with_fewer_places_than_shards_they_take_turns() {
    let mut world = World::new(3);
    world.submit(0, 200, Some(1));
    world.submit(1, 200, None);
    world.submit(2, 200, None);
    let mut ran = vec![0; 3];
    for _ in 0..400 {
        world.round();
        assert!(world.running_in_all() <= 1);
        for (shard, ran) in world.shards.iter_mut().zip(&mut ran) {
            *ran += shard.used.running;
            shard.used.running = 0;
        }
    }
    let (least, most) = (ran.iter().min().unwrap(), ran.iter().max().unwrap());
    assert!(*least * 2 > *most, "{ran:?}");
}

#[test]
fn who_has_what_it_wants_says_nothing_more() {
    let mut world = World::new(4);
    for at in 0..4 {
        world.submit(at, 1_000, (at == 0).then_some(8));
    }
    for _ in 0..8 {
        world.round();
        for shard in &mut world.shards {
            shard.used.running = 0;
        }
    }
    let before = world.words;
    for _ in 0..100 {
        world.round();
        for shard in &mut world.shards {
            shard.used.running = 0;
        }
    }
    let said = world.words - before;
    assert!(said <= 40, "{said} words in 100 rounds");
}

/// Words are late, in any order between pairs; limits change; tasks come and end.
fn storm(seed: u64) {
    let mut rng = Rng::new(seed);
    let mut below = |limit: u64| rng.next_u64() % limit;
    let mut world = World::new(2 + below(4) as usize);
    let count = world.shards.len() as u64;
    let changes = below(3) == 0;
    let limit = 1 + below(9) as u32;
    let begins_free = below(4) == 0;
    if !begins_free {
        world.submit(0, 1, Some(limit));
    }
    for _ in 0..2_000 {
        world.now = world.now + Span::from_millis(below(120));
        let at = below(count) as usize;
        match below(12) {
            0 => world.submit(at, below(20) as u32, None),
            1 if changes => world.submit(at, 1, Some(1 + below(9) as u32)),
            2..=4 => world.review(at),
            5..=7 => world.hear(at, 0),
            8..=9 => world.hear(0, at),
            _ => {
                let used = &mut world.shards[at].used;
                used.running -= used.running.min(below(4) as u32);
            }
        }
        world.start(at);
        if !changes && !begins_free {
            assert!(world.running_in_all() <= limit, "{:?}", world.running());
        }
    }
    // All that was said is heard, then one limit for good, and everything comes to its end.
    world.round();
    world.submit(0, 1, Some(limit));
    for round in 0.. {
        world.round();
        for shard in &mut world.shards {
            shard.used.running = 0;
        }
        if world
            .shards
            .iter()
            .all(|shard| shard.used == Use::default())
        {
            break;
        }
        assert!(round < 20_000, "not everything came to its end");
    }
    for _ in 0..10 {
        world.round();
    }
    assert!(world.shards.iter().all(|shard| shard.budgets.is_empty()));
    assert_eq!(world.shards[0].limit, Some(limit));
}

#[test]
fn whatever_is_late_no_more_run_than_may_and_all_of_them_run() {
    let seeds = match std::env::var_os("LOXLEY_TEST_LONG") {
        Some(_) => 3_000,
        None => 30,
    };
    for seed in 0..seeds {
        let done = std::panic::catch_unwind(|| storm(seed));
        assert!(done.is_ok(), "seed {seed}");
    }
}
