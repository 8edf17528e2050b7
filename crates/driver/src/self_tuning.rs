//! Settings that change by themselves [M6].
//!
//! One setting is tried at a time, as in a *switchback experiment*: windows of time with the change and without it
//! alternate, in the order `- + + - + - - +` (so that load which rises, falls or swings counts for neither side), and
//! neighbours are compared. The change stays only if it is better by a share that is worth it and by more than the pairs
//! differ among themselves; it is taken back early when the first pairs show that it is much worse, and when fleet or
//! load become others than they were when it began.
//!
//! What is compared is the *cost* of a window. It is how long a task is in the system, from when it could run to its end
//! (by Little's law: the mean number of such tasks, over the rate at which they finish). Only where the fleet itself is
//! the limit (work waits all the time, and what waits gets much more or much less) is it the time for each finished task:
//! throughput is what can be better then. As many tasks finish as come wherever arrivals are the limit, whatever the
//! settings are, even if some wait all the time behind the wrong agent.
//!
//! Of each setting the published default is tried first, since whoever is far off is on a plateau where small steps show
//! nothing; then more, then less, in steps that grow while they help. A setting that does not get better rests, twice as
//! long each time: where all is well, nothing is disturbed.
//!
//! What must stay true: [`SelfTuner::look`] has no clock and no chance, and changes nothing that is decided by. What it
//! answers is a [`Step`], which the one who drives writes down and hands to [`SelfTuner::apply`]. Whoever goes through
//! the journal later only applies the steps in it, so a later version may tune otherwise and still read this one's.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use loxley_model::{Span, Time};
use loxley_policy::{Bounds, Config, Scheduler, SelfTuning};

/// A window counts once so many tasks have finished in it.
const TASKS_MIN: u64 = 20;
/// So many times its length may a window wait for them.
const PATIENCE: u64 = 10;
/// A change that costs this much more, over two pairs or more, is taken back before its trial is over.
const MUCH_WORSE: f64 = 0.25;
/// So is one that costs this much more in a single pair: three times as much.
const FAR_WORSE: f64 = 1.0;
/// The mean difference must be this many times its standard error, squared: four times, since there are many trials.
const CERTAINTY: f64 = 16.0;
/// The fleet is the limit if what waits changes by this share of what finishes.
const OUT_OF_STEP: f64 = 0.1;
/// And by this many times what chance makes of it, squared: of n tasks that come or end at random, the root of n.
const NOT_BY_CHANCE: f64 = 9.0;
/// Once a trial has begun with arrivals as the limit, by this share: a bad change makes work pile up too.
const FAR_OUT_OF_STEP: f64 = 2.0;
/// Steps grow up to this factor.
const FACTOR_MAX: f64 = 16.0;
/// The most steps that are remembered. The journal has all.
const STORY_MAX: usize = 200;
/// The rest of a setting that did not get better grows up to this many times its first.
const STRIKES_MAX: u32 = 6;

/// A setting that can be tuned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Setting {
    /// `prefetch.max_depth`
    MaxDepth,
    /// `speculation.straggler_ratio`
    StragglerRatio,
    /// `thresholds.rebalance_interval_sec`
    RebalanceInterval,
    /// `guards.steal_backoff_ms`
    StealBackoff,
    /// `thresholds.busy_threshold`
    BusyThreshold,
    /// `thresholds.idle_threshold`
    IdleThreshold,
    /// `performance.steal_batch_size`
    StealBatchSize,
    /// `work_stealing.max_steal_per_cycle`
    MaxStealPerCycle,
    /// `performance.max_concurrent_steals`
    MaxConcurrentSteals,
    /// `quotas.backfill_limit`
    BackfillLimit,
    /// `quotas.reserved_slots`
    ReservedSlots,
    /// `quotas.user_shares`, 1 or 0
    UserShares,
}

impl Setting {
    /// All of them, in the order in which they have their turn.
    pub const ALL: [Self; 12] = [
        Self::MaxDepth,
        Self::StragglerRatio,
        Self::RebalanceInterval,
        Self::StealBackoff,
        Self::BusyThreshold,
        Self::IdleThreshold,
        Self::StealBatchSize,
        Self::MaxStealPerCycle,
        Self::MaxConcurrentSteals,
        Self::BackfillLimit,
        Self::ReservedSlots,
        Self::UserShares,
    ];

    /// Its key in the configuration.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::MaxDepth => "prefetch.max_depth",
            Self::StragglerRatio => "speculation.straggler_ratio",
            Self::RebalanceInterval => "thresholds.rebalance_interval_sec",
            Self::StealBackoff => "guards.steal_backoff_ms",
            Self::BusyThreshold => "thresholds.busy_threshold",
            Self::IdleThreshold => "thresholds.idle_threshold",
            Self::StealBatchSize => "performance.steal_batch_size",
            Self::MaxStealPerCycle => "work_stealing.max_steal_per_cycle",
            Self::MaxConcurrentSteals => "performance.max_concurrent_steals",
            Self::BackfillLimit => "quotas.backfill_limit",
            Self::ReservedSlots => "quotas.reserved_slots",
            Self::UserShares => "quotas.user_shares",
        }
    }

    /// How far it may go.
    #[must_use]
    pub fn bounds(self, rules: &SelfTuning) -> Bounds {
        match self {
            Self::MaxDepth => rules.max_depth,
            Self::StragglerRatio => rules.straggler_ratio,
            Self::RebalanceInterval => rules.rebalance_interval,
            Self::StealBackoff => rules.steal_backoff,
            Self::BusyThreshold => rules.busy_threshold,
            Self::IdleThreshold => rules.idle_threshold,
            Self::StealBatchSize => rules.steal_batch_size,
            Self::MaxStealPerCycle => rules.max_steal_per_cycle,
            Self::MaxConcurrentSteals => rules.max_concurrent_steals,
            Self::BackfillLimit => rules.backfill_limit,
            Self::ReservedSlots => rules.reserved_slots,
            Self::UserShares => Bounds {
                enabled: rules.user_shares,
                least: 0.0,
                most: 1.0,
            },
        }
    }

    /// Its value, in the unit of its key.
    #[must_use]
    pub fn value(self, config: &Config) -> f64 {
        match self {
            Self::MaxDepth => config.prefetch.max_depth.into(),
            Self::StragglerRatio => config.speculation.straggler_ratio,
            Self::RebalanceInterval => config.thresholds.rebalance_interval.as_secs_f64(),
            Self::StealBackoff => config.guards.steal_backoff.as_secs_f64() * 1e3,
            Self::BusyThreshold => config.thresholds.busy_threshold.into(),
            Self::IdleThreshold => config.thresholds.idle_threshold.into(),
            Self::StealBatchSize => config.performance.steal_batch_size.into(),
            Self::MaxStealPerCycle => config.work_stealing.max_steal_per_cycle.into(),
            Self::MaxConcurrentSteals => config.performance.max_concurrent_steals.into(),
            Self::BackfillLimit => config.quotas.backfill_limit.into(),
            Self::ReservedSlots => config.quotas.reserved_slots.into(),
            Self::UserShares => u8::from(config.quotas.user_shares).into(),
        }
    }

    fn put(self, config: &mut Config, value: f64) {
        let count = value as u32;
        match self {
            Self::MaxDepth => config.prefetch.max_depth = count,
            Self::StragglerRatio => config.speculation.straggler_ratio = value,
            Self::RebalanceInterval => {
                config.thresholds.rebalance_interval = Span((value * 1e9) as u64);
            }
            Self::StealBackoff => config.guards.steal_backoff = Span((value * 1e6) as u64),
            Self::BusyThreshold => config.thresholds.busy_threshold = count,
            Self::IdleThreshold => config.thresholds.idle_threshold = count,
            Self::StealBatchSize => config.performance.steal_batch_size = count,
            Self::MaxStealPerCycle => config.work_stealing.max_steal_per_cycle = count,
            Self::MaxConcurrentSteals => config.performance.max_concurrent_steals = count,
            Self::BackfillLimit => config.quotas.backfill_limit = count,
            Self::ReservedSlots => config.quotas.reserved_slots = count,
            Self::UserShares => config.quotas.user_shares = value != 0.0,
        }
    }

    fn is_whole(self) -> bool {
        !matches!(
            self,
            Self::StragglerRatio | Self::RebalanceInterval | Self::StealBackoff
        )
    }

    /// Whether it can make a difference as things are configured.
    fn matters(self, config: &Config) -> bool {
        match self {
            Self::StragglerRatio => config.speculation.enabled,
            Self::RebalanceInterval | Self::MaxStealPerCycle => config.strategy.pushes(),
            Self::StealBackoff | Self::StealBatchSize | Self::MaxConcurrentSteals => {
                config.strategy.pulls()
            }
            _ => true,
        }
    }

    /// What would be tried next of it at a stage; none when that is nothing new, or not allowed.
    fn candidate(self, stage: Stage, factor: f64, config: &Config) -> Option<f64> {
        let bounds = self.bounds(&config.self_tuning);
        let now = self.value(config);
        let to = match (self, stage) {
            (_, Stage::Default) => self.value(&Config::default()),
            (Self::UserShares, Stage::More) => 1.0 - now,
            (Self::UserShares, Stage::Less) => now,
            (_, Stage::More) => (now * factor).max(now + self.least_step(now)),
            (_, Stage::Less) => (now / factor).min(now - self.least_step(now)),
        };
        let to = to.clamp(bounds.least, bounds.most);
        let to = if self.is_whole() {
            (to as u32).into()
        } else {
            to
        };
        let is_new = match stage {
            Stage::Default => to != now,
            Stage::More => to > now || self == Self::UserShares,
            Stage::Less => to < now,
        };
        let allowed = bounds.enabled && self.matters(config) && to >= bounds.least && is_new;
        let mut changed = config.clone();
        self.put(&mut changed, to);
        let Config { thresholds, .. } = changed;
        (allowed && thresholds.idle_threshold <= thresholds.busy_threshold).then_some(to)
    }

    fn least_step(self, now: f64) -> f64 {
        if self.is_whole() { 1.0 } else { now * 0.25 }
    }
}

/// Which way a setting is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Stage {
    /// The published default.
    Default,
    /// More than now.
    More,
    /// Less than now.
    Less,
}

impl Stage {
    const ALL: [Self; 3] = [Self::Default, Self::More, Self::Less];
}

/// What kind of load a window had: only alike ones are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Load {
    /// The fleet was the limit: the cost is the time for each finished task.
    Saturated,
    /// Arrivals were: the cost is how long a task is in the system.
    Relaxed,
}

/// What a window came to.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Measure {
    /// Under what kind of load.
    pub load: Load,
    /// Seconds; less is better.
    pub cost: f64,
}

/// One step of a trial, to be written down and applied.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Step {
    /// Which setting.
    pub setting: Setting,
    /// Its value without the change.
    pub from: f64,
    /// Its value with it.
    pub to: f64,
    /// What happens.
    pub what: What,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum What {
    /// The change is tried.
    Tried {
        /// Which way it goes.
        stage: Stage,
        /// The window before it.
        before: Measure,
    },
    /// A window is over; the next one is with the change, or without.
    Switched {
        /// What the last window came to.
        last: Measure,
        /// Whether the next is with the change.
        with: bool,
    },
    /// The change stays.
    Kept {
        /// The mean cost of windows without it.
        without: f64,
        /// The mean cost of windows with it.
        with: f64,
    },
    /// The change is taken back.
    TakenBack {
        /// The mean cost of windows without it.
        without: f64,
        /// The mean cost of windows with it; none when none was over.
        with: Option<f64>,
        /// Why.
        why: Why,
    },
}

/// Why a change was taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Why {
    /// It was worse.
    Worse,
    /// It was not better by as much as counts.
    NotBetter,
    /// The load became another.
    LoadChanged,
    /// Agents came or went.
    FleetChanged,
}

impl Step {
    /// The value that is in force after it.
    #[must_use]
    pub fn value(&self) -> f64 {
        match self.what {
            What::Tried { .. } | What::Switched { with: true, .. } | What::Kept { .. } => self.to,
            What::Switched { with: false, .. } | What::TakenBack { .. } => self.from,
        }
    }

    /// Puts the value that is in force after it into a configuration.
    pub fn put(&self, config: &mut Config) {
        self.setting.put(config, self.value());
    }

    /// What happened: `tried`, `switched`, `kept`, `taken_back`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self.what {
            What::Tried { .. } => "tried",
            What::Switched { .. } => "switched",
            What::Kept { .. } => "kept",
            What::TakenBack { .. } => "taken_back",
        }
    }

    /// The costs without and with the change, as far as they are known.
    #[must_use]
    pub fn costs(&self) -> (Option<f64>, Option<f64>) {
        match self.what {
            What::Tried { before, .. } => (Some(before.cost), None),
            What::Switched { .. } => (None, None),
            What::Kept { without, with } => (Some(without), Some(with)),
            What::TakenBack { without, with, .. } => (Some(without), with),
        }
    }

    /// Why, for people.
    #[must_use]
    pub fn because(&self) -> String {
        let seconds = |cost: f64| match cost {
            cost if cost < 1e-3 => format!("{:.1} µs", cost * 1e6),
            cost if cost < 1.0 => format!("{:.2} ms", cost * 1e3),
            cost => format!("{cost:.2} s"),
        };
        match self.what {
            What::Tried { stage, before } => {
                let which = match stage {
                    Stage::Default => "it is the published default",
                    Stage::More => "more may be better",
                    Stage::Less => "less may be better",
                };
                let cost = seconds(before.cost);
                match before.load {
                    Load::Saturated => {
                        format!(
                            "more work waits than can be done, one task ends every {cost}; {which}"
                        )
                    }
                    Load::Relaxed => format!("a task takes {cost} until its end; {which}"),
                }
            }
            What::Switched { last, with } => {
                let next = if with { "with" } else { "without" };
                format!("{} in the last window; now {next} it", seconds(last.cost))
            }
            What::Kept { without, with } => format!(
                "{} with it, {} without: {:.1} % better",
                seconds(with),
                seconds(without),
                (without - with) / without * 100.0
            ),
            What::TakenBack { without, with, why } => {
                let why = match why {
                    Why::Worse => "it was worse",
                    Why::NotBetter => "it was not better by more than chance",
                    Why::LoadChanged => "the load became another",
                    Why::FleetChanged => "agents came or went",
                };
                match with {
                    Some(with) => format!(
                        "{} with it, {} without: {why}",
                        seconds(with),
                        seconds(without)
                    ),
                    None => String::from(why),
                }
            }
        }
    }
}

/// The trial that is under way.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Trial {
    /// Which setting.
    pub setting: Setting,
    /// Its value without the change.
    pub from: f64,
    /// Its value with it.
    pub to: f64,
    stage: Stage,
    /// The windows that are over, the first without the change.
    measures: Vec<Measure>,
}

impl Trial {
    /// How many windows are over.
    #[must_use]
    pub fn windows(&self) -> usize {
        self.measures.len()
    }

    /// Under what kind of load it began.
    fn load(&self) -> Load {
        let first = self.measures.first();
        first.map_or(Load::Relaxed, |first| first.load)
    }

    /// Whether a window is one with the change.
    fn is_with(window: usize) -> bool {
        window.count_ones() % 2 == 1
    }

    fn step(&self, what: What) -> Step {
        Step {
            setting: self.setting,
            from: self.from,
            to: self.to,
            what,
        }
    }

    fn mean(&self, with: bool) -> Option<f64> {
        let costs = self.measures.iter().enumerate();
        let costs = costs.filter(|(window, _)| Self::is_with(*window) == with);
        let (mut sum, mut count) = (0.0, 0.0);
        for (_, measure) in costs {
            sum += measure.cost;
            count += 1.0;
        }
        (count > 0.0).then(|| sum / count)
    }

    fn taken_back(&self, why: Why) -> Step {
        self.step(What::TakenBack {
            without: self.mean(false).unwrap_or(0.0),
            with: self.mean(true),
            why,
        })
    }

    /// By which share each pair of neighbours differs; below 0, the change is better.
    fn differences(&self) -> impl Iterator<Item = f64> {
        self.measures
            .chunks_exact(2)
            .enumerate()
            .map(|(pair, two)| {
                let difference = (two[1].cost - two[0].cost) / ((two[1].cost + two[0].cost) / 2.0);
                match Self::is_with(2 * pair + 1) {
                    true => difference,
                    false => -difference,
                }
            })
    }

    /// What the next step is, now that another window is over.
    fn next(&self, last: Measure, rules: &SelfTuning) -> Step {
        let mut grown = self.clone();
        grown.measures.push(last);
        if self.load() != last.load {
            return grown.taken_back(Why::LoadChanged);
        }
        let pairs = grown.differences().count() as f64;
        let sum = grown.differences().sum::<f64>();
        let is_far_worse = grown.differences().any(|difference| difference > FAR_WORSE);
        if is_far_worse || (pairs >= 2.0 && sum > MUCH_WORSE * pairs) {
            return grown.taken_back(Why::Worse);
        }
        let windows = grown.measures.len();
        if windows < 2 * rules.pairs as usize {
            let with = Self::is_with(windows);
            return self.step(What::Switched { last, with });
        }
        grown.verdict(rules)
    }

    fn verdict(&self, rules: &SelfTuning) -> Step {
        let count = self.differences().count() as f64;
        let mean = self.differences().sum::<f64>() / count;
        let spread = self.differences().map(|one| (one - mean) * (one - mean));
        let variance = spread.sum::<f64>() / (count - 1.0).max(1.0);
        let is_certain = mean * mean * count > CERTAINTY * variance;
        match (self.mean(false), self.mean(true)) {
            (Some(without), Some(with)) if mean < -rules.min_gain && is_certain => {
                self.step(What::Kept { without, with })
            }
            _ if mean > rules.min_gain && is_certain => self.taken_back(Why::Worse),
            _ => self.taken_back(Why::NotBetter),
        }
    }
}

/// What is remembered of a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Memory {
    stage: Stage,
    factor: f64,
    /// How often all stages in a row brought nothing.
    strikes: u32,
    rests_until: Time,
}

impl Memory {
    const NEW: Self = Self {
        stage: Stage::Default,
        factor: 2.0,
        strikes: 0,
        rests_until: Time::ZERO,
    };
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// From when on it counts: what was begun before has to get through first.
    begins: Time,
    /// When it is looked at next.
    look_at: Time,
    last: Time,
    /// How things stood when it began.
    before: Option<Before>,
    /// Tasks that could run or ran, added up over time, in task-seconds.
    present: f64,
    /// How many seconds nothing waited.
    nothing_waited: f64,
}

/// How things stood when a window began.
#[derive(Clone, Copy, Debug)]
struct Before {
    /// Tasks that were over.
    finished: u64,
    /// Tasks that could run or ran.
    present: u64,
    agents: usize,
}

/// The one who tunes: between the core and who drives it.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SelfTuner {
    /// One for each setting, once there was a trial.
    memory: Vec<Memory>,
    turn: u32,
    trial: Option<Trial>,
    story: VecDeque<(Time, Step)>,
    /// Begins anew after a restart.
    #[cfg_attr(feature = "serde", serde(skip))]
    window: Option<Window>,
}

impl SelfTuner {
    /// The trial that is under way.
    #[must_use]
    pub fn trial(&self) -> Option<&Trial> {
        self.trial.as_ref()
    }

    /// What was tried, kept and taken back, the oldest first; the last of it.
    pub fn story(&self) -> impl ExactSizeIterator<Item = &(Time, Step)> {
        self.story.iter()
    }

    /// When it wants to look; none while it is switched off.
    #[must_use]
    pub fn next_look(&self, config: &Config) -> Option<Time> {
        let at = || self.window.map_or(Time::ZERO, |window| window.look_at);
        config.self_tuning.enabled.then(at)
    }

    /// Somebody gave the scheduler another configuration, or it starts again: what was measured says nothing of it.
    pub fn begin_anew(&mut self) {
        self.window = None;
    }

    /// Somebody else changed the configuration: the trial is over, and what was learned counts no more.
    pub fn forget(&mut self) {
        self.window = None;
        self.trial = None;
        self.memory.clear();
    }

    /// Takes note of how things stand, up to now. To be called before whatever happens now.
    pub fn observe(&mut self, now: Time, scheduler: &Scheduler) {
        let Some(window) = &mut self.window else {
            return;
        };
        if now <= window.begins {
            return;
        }
        let counts = scheduler.counts();
        let present = counts.queued + counts.running;
        window.before.get_or_insert_with(|| Before {
            finished: counts.finished,
            present,
            agents: scheduler.agent_count(),
        });
        let lasted = now.since(window.last.max(window.begins)).as_secs_f64();
        window.last = now;
        window.present += present as f64 * lasted;
        if counts.queued == 0 {
            window.nothing_waited += lasted;
        }
    }

    /// Looks at what was measured, and says what to do about it.
    pub fn look(&mut self, now: Time, scheduler: &Scheduler) -> Option<Step> {
        let config = scheduler.config();
        let rules = &config.self_tuning;
        if !rules.enabled {
            self.window = None;
            return None;
        }
        self.observe(now, scheduler);
        let Some(window) = self.window else {
            self.open(now, Span::ZERO, rules);
            return None;
        };
        if now < window.look_at {
            return None;
        }
        let before = window.before?;
        if scheduler.agent_count() != before.agents {
            self.open(now, Span::ZERO, rules);
            let trial = self.trial.as_ref();
            return trial.map(|trial| trial.taken_back(Why::FleetChanged));
        }
        let counts = scheduler.counts();
        let finished = counts.finished - before.finished;
        if finished < TASKS_MIN {
            if now < window.begins + Span(rules.window.0.saturating_mul(PATIENCE)) {
                self.look_later(now + rules.window);
                return None;
            }
            self.open(now, Span::ZERO, rules);
            let trial = self.trial.as_ref();
            return trial.map(|trial| trial.taken_back(Why::LoadChanged));
        }
        let elapsed = now.since(window.begins).as_secs_f64();
        let waited_always = window.nothing_waited * 50.0 < elapsed;
        let present = (counts.queued + counts.running) as f64;
        let drift = (present - before.present as f64).abs();
        let ended = finished as f64;
        let is_fleet_the_limit = match self.trial.as_ref().map(Trial::load) {
            Some(Load::Saturated) => true,
            Some(Load::Relaxed) => drift >= FAR_OUT_OF_STEP * ended,
            None => drift >= OUT_OF_STEP * ended && drift * drift >= NOT_BY_CHANCE * ended,
        };
        let measure = if waited_always && is_fleet_the_limit {
            Measure {
                load: Load::Saturated,
                cost: elapsed / finished as f64,
            }
        } else {
            Measure {
                load: Load::Relaxed,
                cost: window.present / finished as f64,
            }
        };
        let step = match &self.trial {
            Some(trial) => Some(trial.next(measure, rules)),
            None => self.next_trial(now, config, measure),
        };
        if step.is_none() {
            self.open(now, Span::ZERO, rules);
        }
        step
    }

    fn open(&mut self, now: Time, settling: Span, rules: &SelfTuning) {
        let begins = now + settling;
        self.window = Some(Window {
            begins,
            look_at: begins + rules.window.max(Span(1)),
            last: begins,
            before: None,
            present: 0.0,
            nothing_waited: 0.0,
        });
    }

    fn look_later(&mut self, at: Time) {
        if let Some(window) = &mut self.window {
            window.look_at = at;
        }
    }

    /// Does what a step says: returns the configuration that is in force from now on, if it changes.
    pub fn apply(&mut self, now: Time, step: &Step, config: &Config) -> Option<Config> {
        let mut changed = config.clone();
        step.put(&mut changed);
        // What runs by then was begun under the other value: it gets a quarter of a window to end.
        self.open(
            now,
            Span(config.self_tuning.window.0 / 4),
            &config.self_tuning,
        );
        match step.what {
            What::Tried { stage, before } => {
                self.trial = Some(Trial {
                    setting: step.setting,
                    from: step.from,
                    to: step.to,
                    stage,
                    measures: alloc::vec![before],
                });
            }
            What::Switched { last, .. } => {
                if let Some(trial) = &mut self.trial {
                    trial.measures.push(last);
                }
            }
            What::Kept { .. } | What::TakenBack { .. } => {
                let trial = self.trial.take();
                self.learn(now, step, trial.map(|trial| trial.stage), &changed);
            }
        }
        if !matches!(step.what, What::Switched { .. }) {
            self.story.push_back((now, *step));
            while self.story.len() > STORY_MAX {
                self.story.pop_front();
            }
        }
        (changed != *config).then_some(changed)
    }

    /// What a trial taught of its setting.
    fn learn(&mut self, now: Time, step: &Step, stage: Option<Stage>, config: &Config) {
        self.memory.resize(Setting::ALL.len(), Memory::NEW);
        let rules = &config.self_tuning;
        let number = step.setting as usize;
        let memory = &mut self.memory[number];
        let trial_takes = Span(rules.window.0.saturating_mul(2 * u64::from(rules.pairs)));
        self.turn = number as u32;
        match step.what {
            What::TakenBack {
                why: Why::LoadChanged | Why::FleetChanged,
                ..
            } => memory.rests_until = now + trial_takes,
            What::TakenBack { .. } => {
                memory.factor = 2.0;
                let tried = stage.unwrap_or(Stage::Less) as usize;
                let mut left = Stage::ALL[tried + 1..].iter().copied();
                let next = left.find(|stage| {
                    let to = step.setting.candidate(*stage, memory.factor, config);
                    to.is_some_and(|to| to != step.to)
                });
                match next {
                    Some(next) => memory.stage = next,
                    None => {
                        let rest = trial_takes.0.saturating_mul(1 << memory.strikes);
                        memory.strikes = (memory.strikes + 1).min(STRIKES_MAX);
                        memory.rests_until = now + Span(rest);
                        memory.stage = Stage::Default;
                        self.turn = (number as u32 + 1) % Setting::ALL.len() as u32;
                    }
                }
            }
            _ => {
                memory.strikes = 0;
                match stage {
                    Some(Stage::More | Stage::Less) => {
                        memory.factor = (memory.factor * 2.0).min(FACTOR_MAX);
                        memory.stage = stage.unwrap_or(Stage::More);
                    }
                    _ => memory.stage = Stage::More,
                }
            }
        }
    }

    /// What to try next: of some setting the default, else the next in turn.
    fn next_trial(&self, now: Time, config: &Config, before: Measure) -> Option<Step> {
        let memory = |setting: Setting| {
            let memory = self.memory.get(setting as usize);
            memory.copied().unwrap_or(Memory::NEW)
        };
        let awake = |setting: &Setting| memory(*setting).rests_until <= now;
        let tried = |setting: Setting, stage: Stage| {
            let to = setting.candidate(stage, memory(setting).factor, config)?;
            Some(Step {
                setting,
                from: setting.value(config),
                to,
                what: What::Tried { stage, before },
            })
        };
        let settings = || Setting::ALL.into_iter().filter(awake);
        let mut at_default = settings().filter(|one| memory(*one).stage == Stage::Default);
        if let Some(step) = at_default.find_map(|one| tried(one, Stage::Default)) {
            return Some(step);
        }
        let turn = self.turn as usize;
        let in_turn = settings().filter(|one| *one as usize >= turn);
        let wrapped = settings().filter(|one| (*one as usize) < turn);
        in_turn.chain(wrapped).find_map(|one| {
            let first = memory(one).stage as usize;
            let (earlier, later) = Stage::ALL.split_at(first);
            let mut stages = later.iter().chain(earlier);
            stages.find_map(|stage| tried(one, *stage))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loxley_model::{
        AgentId, AgentSpec, Dispatch, JobId, JobSpec, Outcome, SkillSet, TaskId, TaskKind, TaskSpec,
    };
    use loxley_policy::{Action, Input};

    fn relaxed(cost: f64) -> Measure {
        let load = Load::Relaxed;
        Measure { load, cost }
    }

    fn trial(costs: &[f64]) -> Trial {
        Trial {
            setting: Setting::BusyThreshold,
            from: 5.0,
            to: 10.0,
            stage: Stage::More,
            measures: costs.iter().map(|cost| relaxed(*cost)).collect(),
        }
    }

    /// Pairs of windows of which those with the change cost less by these shares.
    fn better_by(shares: [f64; 2]) -> Trial {
        let [one, two] = shares.map(|share| [1.0 + share / 2.0, 1.0 - share / 2.0]);
        trial(&[one[0], one[1], two[1], two[0]])
    }

    #[test]
    fn windows_with_and_without_a_change_alternate_so_that_no_trend_counts() {
        let with = (0..8).map(Trial::is_with);
        let sign = |with| if with { '+' } else { '-' };
        assert_eq!(with.map(sign).collect::<String>(), "-++-+--+");
    }

    #[test]
    fn neighbours_differ_by_a_share_of_their_mean() {
        let differences: Vec<f64> = trial(&[1.0, 3.0, 3.0, 1.0]).differences().collect();
        assert_eq!(differences, [1.0, 1.0]);
        let differences: Vec<f64> = better_by([0.5, 0.25]).differences().collect();
        assert_eq!(differences, [-0.5, -0.25]);
    }

    #[test]
    fn a_change_is_kept_if_it_is_better_by_more_than_the_pairs_differ() {
        let is_kept = |shares| {
            let step = better_by(shares).verdict(&SelfTuning::default());
            matches!(step.what, What::Kept { .. })
        };
        assert!(is_kept([0.25, 0.25]));
        assert!(!is_kept([0.02, 0.02]), "not worth it");
        assert!(!is_kept([0.5, 0.0]), "it may be chance");
        // Their mean is four times its standard error, and not more.
        assert!(!is_kept([0.3125, 0.1875]));
        assert!(is_kept([0.3125, 0.21875]));
    }

    #[test]
    fn a_setting_that_is_zero_can_become_more() {
        let mut config = Config::default();
        config.quotas.reserved_slots = 0;
        let more = Setting::ReservedSlots.candidate(Stage::More, 2.0, &config);
        assert_eq!(more, Some(1.0));
        assert_eq!(
            Setting::ReservedSlots.candidate(Stage::Less, 2.0, &config),
            None
        );
    }

    #[test]
    fn a_change_takes_effect_and_what_began_before_it_gets_a_quarter_of_a_window() {
        let mut config = Config::default();
        config.self_tuning.enabled = true;
        config.self_tuning.window = Span::from_secs(60);
        let step = Step {
            setting: Setting::BusyThreshold,
            from: 5.0,
            to: 10.0,
            what: What::Tried {
                stage: Stage::More,
                before: relaxed(1.0),
            },
        };
        let mut tuner = SelfTuner::default();
        let now = Time::ZERO + Span::from_secs(100);
        let changed = tuner.apply(now, &step, &config).expect("it is another");
        assert_eq!(changed.thresholds.busy_threshold, 10);
        assert_eq!(
            tuner.next_look(&config),
            Some(now + Span::from_secs(15) + Span::from_secs(60))
        );
    }

    /// One agent, and tasks one after the other of a second each, observed from the beginning.
    struct Line {
        scheduler: Scheduler,
        tuner: SelfTuner,
        now: Time,
        done: u64,
    }

    impl Line {
        fn new() -> Self {
            let mut config = Config::default();
            config.self_tuning.enabled = true;
            config.self_tuning.window = Span::from_secs(10);
            let scheduler = Scheduler::new(config, Time::ZERO);
            let (tuner, now, done) = (SelfTuner::default(), Time::ZERO, 0);
            let mut line = Self {
                scheduler,
                tuner,
                now,
                done,
            };
            let agent = AgentSpec {
                dispatch: Dispatch::KeepFull,
                ..AgentSpec::new(AgentId(1), SkillSet::none())
            };
            line.tell(Input::AgentJoined(agent.into()));
            assert_eq!(line.look(), None, "it begins to measure");
            line
        }

        fn tell(&mut self, input: Input) -> Vec<Action> {
            self.tuner.observe(self.now, &self.scheduler);
            let mut actions = Vec::new();
            self.scheduler.handle(self.now, input, &mut actions);
            actions
        }

        fn look(&mut self) -> Option<Step> {
            self.tuner.look(self.now, &self.scheduler)
        }

        fn run_one(&mut self) {
            self.done += 1;
            let task = TaskId(self.done);
            let tasks = [TaskSpec::new(task, TaskKind::default().into())].into();
            let job = JobSpec::new(JobId(self.done));
            let actions = self.tell(Input::TasksSubmitted { job, tasks });
            let lease = actions.iter().find_map(|action| match action {
                Action::Assign { lease, .. } => Some(*lease),
                _ => None,
            });
            let lease = lease.expect("the agent is idle");
            self.tell(Input::TaskStarted { task, lease });
            self.now = self.now + Span::from_secs(1);
            let outcome = Outcome::Succeeded;
            self.tell(Input::TaskFinished {
                task,
                lease,
                outcome,
            });
        }
    }

    #[test]
    fn the_cost_of_a_window_is_how_long_a_task_is_there() {
        let mut line = Line::new();
        let mut tried = None;
        for _ in 0..40 {
            line.run_one();
            tried = tried.or_else(|| line.look());
        }
        let what = tried.map(|step| step.what);
        let Some(What::Tried { before, .. }) = what else {
            panic!("nothing was tried: {what:?}");
        };
        assert_eq!(before.load, Load::Relaxed);
        assert!((0.9..=1.1).contains(&before.cost), "{before:?}");
    }

    #[test]
    fn a_window_waits_ten_times_its_length_for_enough_tasks() {
        let mut line = Line::new();
        line.tuner.trial = Some(trial(&[1.0]));
        let mut given_up = None;
        while given_up.is_none() && line.now < Time::ZERO + Span::from_secs(200) {
            line.now = line.now + Span::from_secs(10);
            given_up = line.look();
        }
        assert_eq!(line.now, Time::ZERO + Span::from_secs(100));
        let what = given_up.map(|step| step.what);
        assert!(
            matches!(
                what,
                Some(What::TakenBack {
                    why: Why::LoadChanged,
                    ..
                })
            ),
            "{what:?}"
        );
    }
}
