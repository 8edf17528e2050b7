//! What is due: the arrivals of each kind of work, forecast from those that came before [S19].
//!
//! Time is counted in steps. For each admission class of task there is a series of arrivals, and a model of it that can be
//! said in one sentence: a *level* that follows what comes, a *trend* that dies away, and, once one is found, a *season*:
//! so many more or fewer at this point of each period (additive Holt-Winters).
//!
//! A season is found by asking, for every possible period, how far what came in the last steps was from what came one such
//! period earlier. A period whose error is less than half of that of *as now* (what comes next is what came last) is a
//! season. Where a multiple of it does as well, the shortest is taken.
//!
//! Every forecast is judged when its time has come, beside *as now*. Only a series with a season whose error stays below
//! the share that the configuration asks for is believed; one whose error is that of *as now* or more is believed no
//! more, and looks for another season.
//!
//! What must stay true: all of this is facts. Numbers are whole (arrivals in 65,536ths), so a snapshot goes on to the
//! bit. What is done about a forecast is in [`kept_room`](crate::kept_room).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use loxley_model::{Span, Time};

use crate::kept_room::KeptRoom;
use crate::refs::AdmissionClassRef;

/// The rules of forecasts.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ForecastRules {
    /// Whether there are any.
    pub enabled: bool,
    /// Arrivals are counted in steps of this length.
    pub step: Span,
    /// So far ahead one looks; 100 steps at most.
    pub horizon: Span,
    /// Seasons are looked for up to this length; 10,000 steps at most.
    pub season_max: Span,
    /// A forecast is believed while its error is below this share of that of *as now*.
    pub error_max: f64,
    /// At most this share of the slots that can do a kind of work is kept for it.
    pub share_max: f64,
}

impl Default for ForecastRules {
    fn default() -> Self {
        Self {
            enabled: false,
            step: Span::from_secs(60),
            horizon: Span::from_secs(600),
            season_max: Span::from_secs(24 * 3600),
            error_max: 0.8,
            share_max: 0.5,
        }
    }
}

/// One arrival.
const ONE: i64 = 1 << 16;
/// So many kinds of work are followed: the first that come. One of which nothing came for as long as the longest season
/// makes room for another.
const SERIES_MAX: usize = 64;
const AHEAD_MAX: u64 = 100;
const PERIOD_MAX: u64 = 10_000;
/// Multiples of a season are traced back to it up to this one.
const MULTIPLES_MAX: usize = 8;
/// Where there is no season, errors are those of about so many steps.
const MEMORY_MIN: usize = 64;
/// A step brings work if it is so many times the level.
const BURST: i64 = 2;

/// How many steps one looks ahead, and back for a season.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    ahead: usize,
    period_max: usize,
}

impl ForecastRules {
    fn reach(&self) -> Reach {
        let steps = |span: Span| span.0 / self.step.0.max(1);
        let ahead = steps(self.horizon).clamp(1, AHEAD_MAX);
        Reach {
            ahead: ahead as usize,
            period_max: steps(self.season_max).clamp(2 * ahead, PERIOD_MAX) as usize,
        }
    }

    fn step_at(&self, now: Time) -> u64 {
        now.0 / self.step.0.max(1)
    }

    /// When a step begins.
    fn begin_of(&self, step: u64) -> Time {
        Time(step.saturating_mul(self.step.0.max(1)))
    }
}

/// What is known of arrivals, and what is done about it.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Forecasts {
    /// The number of the step that is being counted.
    step: u64,
    series: BTreeMap<AdmissionClassRef, Series>,
    pub(crate) room: KeptRoom,
}

/// Work that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Burst {
    pub(crate) begins: Time,
    pub(crate) ends: Time,
    /// How many tasks.
    pub(crate) tasks: u32,
}

impl Forecasts {
    /// Begins to count now.
    pub(crate) fn begin(&mut self, now: Time, rules: &ForecastRules) {
        *self = Self {
            step: rules.step_at(now),
            ..Self::default()
        };
    }

    /// A task that may run came.
    pub(crate) fn arrived(&mut self, class: AdmissionClassRef) {
        if let Some(series) = self.series.get_mut(&class) {
            series.now = series.now.saturating_add(1);
        } else if self.series.len() < SERIES_MAX {
            let series = Series {
                now: 1,
                ..Series::default()
            };
            self.series.insert(class, series);
        }
    }

    /// A task succeeded after so long.
    pub(crate) fn served(&mut self, class: AdmissionClassRef, took: Span) {
        if let Some(series) = self.series.get_mut(&class) {
            series.service = Some(match series.service {
                None => took,
                Some(mean) if took > mean => Span(mean.0 + (took.0 - mean.0) / 8),
                Some(mean) => Span(mean.0 - (mean.0 - took.0) / 8),
            });
        }
    }

    /// When the next step begins.
    pub(crate) fn next_step(&self, rules: &ForecastRules) -> Time {
        rules.begin_of(self.step + 1)
    }

    /// Time has passed: the steps that are over are taken in.
    pub(crate) fn advance(&mut self, now: Time, rules: &ForecastRules) {
        let reach = rules.reach();
        let step = rules.step_at(now);
        // Whoever stood still for longer than anything is remembered has nothing to go on from.
        let passed = (step - self.step.min(step)).min(reach.period_max as u64 + 1);
        self.step = self.step.max(step);
        for _ in 0..passed {
            for series in self.series.values_mut() {
                series.end_step(reach, rules.error_max);
            }
            self.series.retain(|_, series| !series.is_silent());
        }
    }

    /// What of each kind of work is due within the horizon, where that is believed.
    pub(crate) fn bursts(&self, rules: &ForecastRules) -> Vec<(AdmissionClassRef, Burst)> {
        let reach = rules.reach();
        let due = self.series.iter().filter_map(|(class, series)| {
            let (first, steps, tasks) = series.burst(reach)?;
            let begins = rules.begin_of(self.step + first as u64);
            let ends = rules.begin_of(self.step + (first + steps) as u64);
            let burst = Burst {
                begins,
                ends,
                tasks,
            };
            Some((*class, burst))
        });
        due.collect()
    }

    /// How long tasks of this kind take, as it was known when the last step ended.
    pub(crate) fn service(&self, class: AdmissionClassRef) -> Option<Span> {
        self.series.get(&class)?.known_service
    }

    /// The classes that this speaks of.
    pub(crate) fn classes(&self) -> impl Iterator<Item = AdmissionClassRef> {
        self.series.keys().copied().chain(self.room.classes())
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (AdmissionClassRef, &Series)> {
        self.series.iter().map(|(class, series)| (*class, series))
    }
}

/// The arrivals of one kind of work.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Series {
    /// Those of the step that is being counted.
    now: u32,
    /// Those of each step before, the latest last.
    counts: VecDeque<u32>,
    /// Those of as many steps as one looks ahead, up to each step, the latest last.
    sums: VecDeque<u32>,
    /// How far sums are from those one period earlier, for each period from the horizon on.
    periods: Vec<PeriodError>,
    level: i64,
    trend: i64,
    /// What each step of a period has beyond the level; empty if there is no season.
    season: Vec<i64>,
    /// Which step of the period is next.
    phase: u32,
    /// What was forecast for the steps up to each of the next ones, and what *as now* said.
    open: VecDeque<(u32, u32)>,
    /// The mean error of forecasts, and of *as now*, in 256ths of an arrival times the steps remembered.
    error: u64,
    error_as_now: u64,
    /// How many forecasts were judged since the model was made.
    judged: u32,
    believed: bool,
    /// The mean time that a task takes, the later ones counting more.
    service: Option<Span>,
    known_service: Option<Span>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct PeriodError {
    sum: u64,
    count: u32,
}

impl PeriodError {
    /// Whether the mean error is below so many hundredths of another's.
    fn is_below(self, hundredths: u128, other: Self) -> bool {
        let (own, others) = (u128::from(self.sum), u128::from(other.sum));
        100 * own * u128::from(other.count) < hundredths * others * u128::from(self.count)
    }

    fn is_equal_to(self, other: Self) -> bool {
        !self.is_below(100, other) && !other.is_below(100, self)
    }
}

impl Series {
    /// A step is over.
    fn end_step(&mut self, reach: Reach, error_max: f64) {
        let count = core::mem::take(&mut self.now);
        self.known_service = self.service;
        self.counts.push_back(count);
        while self.counts.len() > reach.period_max + reach.ahead {
            self.counts.pop_front();
        }
        self.follow(count);
        if self.counts.len() < reach.ahead {
            return;
        }
        let sum = self.counts.iter().rev().take(reach.ahead);
        let sum = sum.fold(0_u32, |sum, count| sum.saturating_add(*count));
        self.judge(sum, reach);
        self.compare_periods(sum, reach);
        self.choose_season(reach, error_max);
        self.open.push_back((self.expected(reach.ahead), sum));
    }

    /// Moves the model towards what came.
    fn follow(&mut self, count: u32) {
        let phase = self.phase as usize;
        let season = self.season.get(phase).copied().unwrap_or(0);
        let error = i64::from(count) * ONE - (self.level + self.trend + season);
        self.level += self.trend + error / 32;
        self.trend += error / 1024 - self.trend / 16;
        if let Some(season) = self.season.get_mut(phase) {
            *season += error / 4;
            self.phase = (self.phase + 1) % self.season.len() as u32;
        }
    }

    /// What the model says of the step that is so many ahead; the next is 0.
    fn at(&self, ahead: usize) -> i64 {
        let season = match self.season.len() {
            0 => 0,
            period => self.season[(self.phase as usize + ahead) % period],
        };
        let trend = self.trend.saturating_mul(ahead as i64 + 1);
        self.level
            .saturating_add(trend)
            .saturating_add(season)
            .max(0)
    }

    /// How many are expected in the next steps.
    fn expected(&self, steps: usize) -> u32 {
        whole((0..steps).map(|ahead| self.at(ahead)).sum())
    }

    /// The forecast for the steps that ended now is judged.
    fn judge(&mut self, sum: u32, reach: Reach) {
        if self.open.len() < reach.ahead {
            return;
        }
        let Some((ours, as_now)) = self.open.pop_front() else {
            return;
        };
        let shift = self.memory().ilog2();
        let judge = |mean: &mut u64, forecast: u32| {
            *mean -= *mean >> shift;
            *mean += u64::from(sum.abs_diff(forecast)) << 8;
        };
        judge(&mut self.error, ours);
        judge(&mut self.error_as_now, as_now);
        self.judged = self.judged.saturating_add(1);
    }

    /// Over about how many steps errors are added up.
    fn memory(&self) -> usize {
        self.season.len().max(MEMORY_MIN)
    }

    /// How far the last steps are from those one period earlier.
    fn compare_periods(&mut self, sum: u32, reach: Reach) {
        let periods = reach.period_max + 1 - reach.ahead;
        self.periods.resize(periods, PeriodError::default());
        // Older errors count less and less.
        let is_full = self.periods[0].count as usize > 4 * reach.period_max;
        let earlier = self.sums.iter().rev().skip(reach.ahead - 1);
        for (error, before) in self.periods.iter_mut().zip(earlier) {
            error.sum += u64::from(sum.abs_diff(*before));
            error.count += 1;
            if is_full {
                error.sum /= 2;
                error.count = error.count.div_ceil(2);
            }
        }
        self.sums.push_back(sum);
        while self.sums.len() > reach.period_max {
            self.sums.pop_front();
        }
    }

    /// Believes the model, or does so no more; looks for a season where there is none.
    fn choose_season(&mut self, reach: Reach, error_max: f64) {
        if self.season.is_empty() {
            if let Some(period) = self.find_period(reach) {
                self.adopt(period);
            }
            return;
        }
        if (self.judged as usize) < self.season.len() {
            return;
        }
        if self.error >= self.error_as_now {
            self.believed = false;
            self.season.clear();
            self.restart_errors();
        } else if self.error as f64 <= self.error_as_now as f64 * error_max {
            self.believed = true;
        }
    }

    /// The period after which arrivals repeat, if they do.
    fn find_period(&self, reach: Reach) -> Option<usize> {
        let as_now = *self.periods.first()?;
        let nearer = |best: (usize, PeriodError), other: (usize, PeriodError)| match other
            .1
            .is_below(100, best.1)
        {
            true => other,
            false => best,
        };
        let at = |period: usize| {
            let error = *self.periods.get(period.checked_sub(reach.ahead)?)?;
            // It was seen once and again.
            let is_seen = period >= 2 * reach.ahead && error.count as usize >= period;
            is_seen.then_some(error)
        };
        let periods = 2 * reach.ahead..=reach.period_max;
        let known = periods.map_while(|period| Some((period, at(period)?)));
        let longest = known.clone().last()?.0;
        let (best, least) = known.reduce(nearer)?;
        // Its neighbours are seen later: until then a better one may be among them.
        let is_settled = best + reach.ahead <= longest || longest == reach.period_max;
        if !is_settled || !least.is_below(50, as_now) {
            return None;
        }
        // What repeats after a while also repeats after twice as long.
        let fraction = (2..=MULTIPLES_MAX).rev().find_map(|multiple| {
            let near = best.div_ceil(multiple).saturating_sub(2);
            let tried = (near..near + 5).filter_map(|period| Some((period, at(period)?)));
            let good =
                tried.filter(|(_, error)| error.is_below(125, least) || error.is_equal_to(least));
            let best = good.reduce(nearer);
            best.map(|(period, _)| period)
        });
        Some(fraction.unwrap_or(best))
    }

    /// Takes the last period for the season.
    fn adopt(&mut self, period: usize) {
        let last = self.counts.iter().skip(self.counts.len() - period);
        let sum: i64 = last.clone().map(|count| i64::from(*count)).sum();
        self.level = sum * ONE / period as i64;
        self.trend = 0;
        self.season = last
            .map(|count| i64::from(*count) * ONE - self.level)
            .collect();
        self.phase = 0;
        self.restart_errors();
    }

    /// Another model: what was judged was not its doing.
    fn restart_errors(&mut self) {
        self.open.clear();
        (self.error, self.error_as_now, self.judged) = (0, 0, 0);
    }

    /// The next steps that bring far more than usual: the first, how many, and how many tasks they bring.
    fn burst(&self, reach: Reach) -> Option<(usize, usize, u32)> {
        if !self.believed {
            return None;
        }
        let brings = |ahead: &usize| self.at(*ahead) >= (BURST * self.level).max(ONE);
        let first = (0..reach.ahead).find(brings)?;
        let steps = (first..reach.ahead).take_while(brings).count();
        let tasks = whole((first..first + steps).map(|ahead| self.at(ahead)).sum());
        Some((first + 1, steps, tasks))
    }

    /// Whether nothing came for as long as anything is remembered.
    fn is_silent(&self) -> bool {
        self.now == 0 && self.counts.iter().all(|count| *count == 0)
    }

    /// How it stands, for people.
    pub(crate) fn standing(&self, rules: &ForecastRules) -> Standing {
        let reach = rules.reach();
        let memory = self.memory().min(self.judged.max(1) as usize) as f64;
        let mean = |sum: u64| (self.judged > 0).then(|| sum as f64 / 256.0 / memory);
        let ahead = reach.ahead.min(self.counts.len());
        Standing {
            last: self.counts.iter().rev().take(ahead).sum(),
            expected: self.expected(reach.ahead),
            season: (!self.season.is_empty())
                .then(|| Span(rules.step.0.saturating_mul(self.season.len() as u64))),
            error: mean(self.error),
            error_as_now: mean(self.error_as_now),
            is_believed: self.believed,
            service: self.service,
        }
    }
}

/// How a series stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) last: u32,
    pub(crate) expected: u32,
    pub(crate) season: Option<Span>,
    pub(crate) error: Option<f64>,
    pub(crate) error_as_now: Option<f64>,
    pub(crate) is_believed: bool,
    pub(crate) service: Option<Span>,
}

fn whole(arrivals: i64) -> u32 {
    u32::try_from((arrivals + ONE / 2) / ONE).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use loxley_balance::Rng;

    const REACH: Reach = Reach {
        ahead: 5,
        period_max: 300,
    };

    fn fed(counts: impl IntoIterator<Item = u32>) -> Series {
        let mut series = Series::default();
        for count in counts {
            series.now = count;
            series.end_step(REACH, 0.8);
        }
        series
    }

    #[test]
    fn a_daily_burst_is_found_believed_and_forecast_where_it_comes() {
        let burst = |step: u32| if step % 144 == 100 { 24 } else { 0 };
        let one_day_and_a_half = fed((0..220).map(burst));
        assert!(one_day_and_a_half.season.is_empty(), "it was seen once");
        let two_days = fed((0..310).map(burst));
        assert_eq!(two_days.season.len(), 144);
        assert!(!two_days.believed, "nothing was judged yet");
        let four_days = fed((0..4 * 144 + 97).map(burst));
        assert!(four_days.believed);
        assert_eq!(four_days.burst(REACH), Some((4, 1, 24)));
        let later = fed((0..4 * 144 + 101).map(burst));
        assert_eq!(later.burst(REACH), None);
    }

    #[test]
    fn what_comes_at_random_has_no_season() {
        let mut rng = Rng::new(5);
        for rate in [0.05, 0.5, 5.0] {
            let mut draw = || (0..10).filter(|_| rng.chance(rate / 10.0)).count() as u32;
            let series = fed((0..4_000).map(|_| draw()));
            assert!(!series.believed, "{rate}");
        }
    }

    #[test]
    fn a_season_that_ends_is_believed_no_more() {
        let mut rng = Rng::new(5);
        let regular = (0..1000).map(|step| if step % 50 == 10 { 30 } else { 0 });
        let mut series = fed(regular);
        assert!(series.believed);
        for _ in 0..400 {
            series.now = if rng.chance(0.02) { 30 } else { 0 };
            series.end_step(REACH, 0.8);
        }
        assert!(!series.believed);
    }

    #[test]
    fn the_longest_period_that_is_remembered_is_found() {
        let series = fed((0..1_000).map(|step| if step % 300 == 100 { 24 } else { 0 }));
        assert_eq!(series.season.len(), 300);
    }

    #[test]
    fn seasons_of_a_day_are_looked_for() {
        let day = Span::from_secs(60 * 60 * 24);
        assert_eq!(ForecastRules::default().season_max, day);
    }

    #[test]
    fn as_many_steps_are_taken_in_as_have_passed() {
        let rules = ForecastRules::default();
        let at = |steps: u64| Time(rules.step.0 * steps);
        let mut forecasts = Forecasts::default();
        forecasts.begin(at(3), &rules);
        let class = AdmissionClassRef::new(0);
        forecasts.arrived(class);
        forecasts.advance(at(5), &rules);
        let counts = &forecasts.series[&class].counts;
        assert!(counts.iter().eq(&[1, 0]), "{counts:?}");
        forecasts.advance(at(5), &rules);
        assert_eq!(forecasts.series[&class].counts.len(), 2);
    }

    #[test]
    fn errors_are_equal_if_their_means_are() {
        let error = |sum, count| PeriodError { sum, count };
        assert!(error(0, 3).is_equal_to(error(0, 5)));
        assert!(error(2, 3).is_equal_to(error(4, 6)));
        assert!(!error(2, 3).is_equal_to(error(3, 3)));
        assert!(!error(3, 3).is_equal_to(error(2, 3)));
    }

    #[test]
    fn the_shortest_of_the_periods_that_fit_is_taken() {
        let series = fed((0..600).map(|step| if step % 37 < 2 { 8 } else { 1 }));
        assert_eq!(series.season.len(), 37);
    }
}
