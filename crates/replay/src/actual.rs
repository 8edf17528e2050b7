//! What the figures of a journal say of its fleet: how fast agents were, and what a hand-over costs.

use std::collections::BTreeMap;

use loxley_model::{Outcome, WorkKey};
use loxley_sim::time::Nanos;

use crate::recording::RecordedTask;

/// Slots, stretches in which all of them had something to do, and when they ran something.
pub(crate) type BusyAgent = (u32, Vec<(Nanos, Nanos)>, Vec<(Nanos, Nanos)>);

/// What a slot needs between two tasks: the time in which agents had enough to do and did not run it, shared out
/// over the tasks that began in it.
pub(crate) fn gap(agents: impl Iterator<Item = BusyAgent>) -> Nanos {
    /// Fewer say nothing.
    const TASKS_MIN: u64 = 8;
    let (mut idle, mut begun) = (0_u64, 0_u64);
    for (slots, full, mut ran) in agents {
        let room: Nanos = full.iter().map(|(from, to)| to - from).sum();
        let mut busy = 0;
        ran.sort_unstable();
        for (start, end) in &ran {
            let first = full.partition_point(|(_, to)| to <= start);
            let stretches = full[first..].iter().take_while(|(from, _)| from < end);
            for (from, to) in stretches {
                busy += (*end).min(*to) - (*start).max(*from);
                begun += u64::from((from..to).contains(&start));
            }
        }
        idle += (Nanos::from(slots) * room).saturating_sub(busy);
    }
    if begun < TASKS_MIN { 0 } else { idle / begun }
}

/// What is known of how long messages take.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    /// From an assignment to a free slot until its start was heard, not of the first one of an agent, which may have
    /// had to be woken. Agents tell of a start after two milliseconds.
    pub(crate) starts: Vec<Nanos>,
    /// From an assignment to a free slot until its end was heard, less the run: all that a task costs besides. When a start
    /// is heard says less, since agents tell of it when they get round to it.
    pub(crate) whole: Vec<Nanos>,
    /// By how much later ends are heard than starts: from the news of a start to the news of the end, less the run.
    pub(crate) ends: Vec<Nanos>,
    /// What agents say of the way there and back.
    pub(crate) round_trips: Vec<Nanos>,
}

impl Latencies {
    /// From a decision to the agent one way, and how long news of an end is kept back in addition.
    pub(crate) fn delays(&mut self, gap: Nanos) -> (Nanos, Nanos) {
        /// Less is not worth simulating a network.
        const MIN: Nanos = 20_000;
        const TOLD_AFTER: Nanos = 2_000_000;
        let by_starts = median(&mut self.starts).map(|all| all.saturating_sub(TOLD_AFTER) / 2);
        let said = median(&mut self.round_trips).map(|all| all / 2);
        let whole = median(&mut self.whole).map(|all| all.saturating_sub(gap));
        let half = whole.map(|all| all / 2);
        let known = [by_starts, said, half].into_iter().flatten();
        let delay = known.min().unwrap_or(0);
        let hold = match whole {
            Some(all) => all - 2 * delay,
            None => median(&mut self.ends).unwrap_or(0),
        };
        let worth = |span: Nanos| if span < MIN { 0 } else { span };
        (worth(delay), worth(hold))
    }
}

fn median(values: &mut [Nanos]) -> Option<Nanos> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable(middle).1)
}

/// How fast each agent was, relative to the others, by tasks of one kind that ran here and there. One that did not
/// differ by more than noise has speed 1.
pub(crate) fn speeds(agents: usize, tasks: &[RecordedTask]) -> Vec<f64> {
    // Sums of logarithms: for each kind, for each agent.
    let mut kinds: BTreeMap<WorkKey, Vec<Sum>> = BTreeMap::new();
    for task in tasks {
        let Some(work) = task.spec.kind.work else {
            continue;
        };
        for attempt in &task.attempts {
            if attempt.outcome == Outcome::Succeeded && attempt.ran > 0 {
                let sums = kinds.entry(work);
                let sums = sums.or_insert_with(|| vec![Sum::default(); agents]);
                if let Some(sum) = sums.get_mut(attempt.agent as usize) {
                    sum.add(libm::log(attempt.ran as f64));
                }
            }
        }
    }
    (0..agents).map(|agent| speed_of(agent, &kinds)).collect()
}

fn speed_of(agent: usize, kinds: &BTreeMap<WorkKey, Vec<Sum>>) -> f64 {
    /// So many tasks of a kind here and elsewhere, at least.
    const TASKS_MIN: f64 = 5.0;
    /// Less than this is not told from 1.
    const DIFFERENCE_MIN: f64 = 0.05;
    let (mut weights, mut weighted) = (0.0, 0.0);
    for sums in kinds.values() {
        let here = &sums[agent];
        let mut all = Sum::default();
        sums.iter().for_each(|sum| all.merge(sum));
        let elsewhere = all.without(here);
        if here.count < TASKS_MIN || elsewhere.count < TASKS_MIN {
            continue;
        }
        let variance = here.variance() / here.count + elsewhere.variance() / elsewhere.count;
        let weight = 1.0 / variance.max(1e-9);
        // Against the fleet as a whole, so that all agents have one measure.
        weighted += weight * (here.mean() - all.mean());
        weights += weight;
    }
    if weights <= 0.0 {
        return 1.0;
    }
    let slower = weighted / weights;
    let noise = 3.0 / libm::sqrt(weights);
    if slower.abs() > noise.max(DIFFERENCE_MIN) {
        libm::exp(-slower)
    } else {
        1.0
    }
}

#[derive(Debug, Clone, Default)]
struct Sum {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Sum {
    fn add(&mut self, value: f64) {
        self.count += 1.0;
        self.sum += value;
        self.squares += value * value;
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
    }

    fn without(&self, other: &Self) -> Self {
        Self {
            count: self.count - other.count,
            sum: self.sum - other.sum,
            squares: self.squares - other.squares,
        }
    }

    fn mean(&self) -> f64 {
        self.sum / self.count.max(1.0)
    }

    fn variance(&self) -> f64 {
        let mean = self.mean();
        (self.squares / self.count.max(1.0) - mean * mean).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_what_a_busy_slot_does_not_run() {
        // One slot, ten tasks of 90 with 10 between them, all the while with more to do.
        let ran: Vec<(Nanos, Nanos)> = (0..10).map(|n| (n * 100, n * 100 + 90)).collect();
        assert_eq!(gap([(1, vec![(0, 1_000)], ran)].into_iter()), 10);
        assert_eq!(gap(std::iter::empty()), 0);
        let few = vec![(0, 90), (100, 190)];
        assert_eq!(gap([(1, vec![(0, 200)], few)].into_iter()), 0, "too few");
    }

    #[test]
    fn delays_are_told_from_what_agents_keep_back() {
        let ms = |count: Nanos| count * 1_000_000;
        let mut kept_back = Latencies {
            starts: vec![ms(4); 5],
            ends: vec![ms(30); 5],
            ..Latencies::default()
        };
        assert_eq!(kept_back.delays(0), (ms(1), ms(30)));
        let mut heard = Latencies {
            whole: vec![ms(13)],
            round_trips: vec![ms(2)],
            ..Latencies::default()
        };
        assert_eq!(heard.delays(ms(1)), (ms(1), ms(10)));
        assert_eq!(Latencies::default().delays(0), (0, 0));
    }
}
