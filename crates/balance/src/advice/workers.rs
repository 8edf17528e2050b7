//! Advice where something is known of the workers: their speeds, their memory, and where data lies.
//!
//! | what is known | advice |
//! |---|---|
//! | workers differ in speed | capability-based: a slow one takes nothing that the fast ones would be done with sooner |
//! | memory cannot hold what the slots could run | memory-aware: what does not fit now is passed over |
//! | bringing data takes a considerable time | locality-aware: whoever has the data goes first |
//!
//! Each that applies is tried on the very work and the very workers, alone and all together, beside *whoever is free
//! takes the next*. What comes out best is advised, the simplest of those that come out alike; so the advice cannot
//! contradict its figures.

use alloc::collections::{BTreeSet, BinaryHeap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;

use super::{AdviceError, NOTICEABLE};
use crate::partition;

/// An item of work, as far as workers may differ in it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Item {
    /// How long it takes at speed 1.
    pub cost: f64,
    /// The memory it needs while it runs.
    pub memory: u64,
    /// The data it works on.
    pub data: Option<Data>,
}

/// Data that an item works on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Data {
    /// Which.
    pub key: u64,
    /// How long it takes to bring it to a machine that lacks it.
    pub transfer: f64,
}

/// A machine with workers that share its memory and its data.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// How many items it runs at once.
    pub workers: usize,
    /// How fast it is.
    pub speed: f64,
    /// How much memory it has; nothing where that is no limit.
    pub memory: Option<u64>,
    /// The data that is there from the start.
    pub holds: Vec<u64>,
}

/// What a way of handing out takes into account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Awareness {
    /// What does not fit now is passed over.
    pub memory: bool,
    /// Slow machines leave alone what fast ones would be done with sooner.
    pub capability: bool,
    /// Whoever has the data goes first.
    pub locality: bool,
}

impl Awareness {
    /// Whoever is free takes the next.
    pub const NONE: Self = Self {
        memory: false,
        capability: false,
        locality: false,
    };

    fn count(self) -> u32 {
        u32::from(self.memory) + u32::from(self.capability) + u32::from(self.locality)
    }

    /// Short names without spaces, for files and options.
    #[must_use]
    pub fn ids(self) -> Vec<&'static str> {
        let all = [
            (self.memory, "memory_aware"),
            (self.capability, "capability_based"),
            (self.locality, "locality_aware"),
        ];
        all.into_iter()
            .filter_map(|(is_there, id)| is_there.then_some(id))
            .collect()
    }
}

impl fmt::Display for Awareness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE {
            return f.pad("whoever is free");
        }
        let words: Vec<String> = self.ids().iter().map(|id| id.replace('_', "-")).collect();
        f.pad(&words.join(", "))
    }
}

/// What one way came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkersTrial {
    /// Which one.
    pub aware_of: Awareness,
    /// When the last item was done.
    pub makespan: f64,
    /// The time that bringing data took, of all workers together.
    pub transfers: f64,
}

/// What fits workers that differ, and everything that speaks for it.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkersAdvice {
    /// What to take into account.
    pub aware_of: Awareness,
    /// What of the work or of the workers makes a difference, a sentence each.
    pub reasons: Vec<String>,
    /// What each way came to; the first is *whoever is free takes the next*.
    pub trials: Vec<WorkersTrial>,
    /// No way can be done sooner: all work over all speed, or the longest item on the fastest machine.
    pub bound: f64,
}

/// Names what to take into account, or nothing where the workers are as good as equal.
///
/// ```
/// use loxley_balance::advice::workers::{Item, Machine, advise_workers};
///
/// let work = [Item { cost: 10.0, ..Item::default() }; 5];
/// let machine = |speed| Machine { workers: 1, speed, memory: None, holds: Vec::new() };
/// // The slow machine would need 100 for one item; the fast one needs 50 for all.
/// let advice = advise_workers(&work, &[machine(1.0), machine(0.1)])?.unwrap();
/// assert!(advice.aware_of.capability);
/// assert_eq!((advice.trials[0].makespan, advice.trials[1].makespan), (100.0, 50.0));
/// # Ok::<(), loxley_balance::advice::AdviceError>(())
/// ```
///
/// # Errors
/// When there is no work or no machine, a cost, transfer or speed is not one, or no machine has the memory for an
/// item.
pub fn advise_workers(
    work: &[Item],
    machines: &[Machine],
) -> Result<Option<WorkersAdvice>, AdviceError> {
    check(work, machines)?;
    let (applies, reasons) = what_applies(work, machines);
    if applies == Awareness::NONE {
        return Ok(None);
    }
    let alone = [
        Awareness {
            memory: applies.memory,
            ..Awareness::NONE
        },
        Awareness {
            capability: applies.capability,
            ..Awareness::NONE
        },
        Awareness {
            locality: applies.locality,
            ..Awareness::NONE
        },
    ];
    let mut ways = alloc::vec![Awareness::NONE];
    ways.extend(alone.into_iter().filter(|way| *way != Awareness::NONE));
    if applies.count() > 1 {
        ways.push(applies);
    }
    let trials: Vec<WorkersTrial> = ways
        .into_iter()
        .map(|way| run(work, machines, way))
        .collect();
    let best = trials
        .iter()
        .map(|trial| trial.makespan)
        .fold(f64::MAX, f64::min);
    let alike = |trial: &&WorkersTrial| trial.makespan <= best * (1.0 + NOTICEABLE);
    let advised = trials
        .iter()
        .filter(alike)
        .min_by_key(|trial| trial.aware_of.count());
    Ok(Some(WorkersAdvice {
        aware_of: advised.map_or(Awareness::NONE, |trial| trial.aware_of),
        reasons,
        bound: bound(work, machines),
        trials,
    }))
}

fn check(work: &[Item], machines: &[Machine]) -> Result<(), AdviceError> {
    if work.is_empty() {
        return Err(AdviceError::NoCosts);
    }
    let costs: Vec<f64> = work.iter().map(|item| item.cost).collect();
    let workers = machines.iter().map(|machine| machine.workers).sum();
    partition::check(&costs, workers).map_err(AdviceError::Input)?;
    let transfers: Vec<f64> = work
        .iter()
        .filter_map(|item| Some(item.data?.transfer))
        .collect();
    partition::check(&transfers, workers).map_err(AdviceError::Input)?;
    if let Some(machine) = machines
        .iter()
        .find(|machine| !(machine.speed > 0.0 && machine.speed.is_finite()))
    {
        return Err(AdviceError::Speed(machine.speed));
    }
    let room = machines.iter().filter(|machine| machine.workers > 0);
    let room = room.map(|machine| machine.memory.unwrap_or(u64::MAX)).max();
    let most = work.iter().map(|item| item.memory).max();
    if most > room {
        return Err(AdviceError::Memory(most.unwrap_or(0)));
    }
    Ok(())
}

/// Machines of speeds that differ by less are alike.
const SPEEDS_ALIKE: f64 = 1.25;

/// Transfers of less than this share of the work are no matter.
const TRANSFERS_MATTER: f64 = 0.05;

fn what_applies(work: &[Item], machines: &[Machine]) -> (Awareness, Vec<String>) {
    let mut applies = Awareness::NONE;
    let mut reasons = Vec::new();
    let speeds = machines.iter().map(|machine| machine.speed);
    let (slowest, fastest) = (
        speeds.clone().fold(f64::MAX, f64::min),
        speeds.fold(0.0, f64::max),
    );
    if fastest >= slowest * SPEEDS_ALIKE {
        applies.capability = true;
        reasons.push(alloc::format!(
            "workers are unequal: the fastest is {:.1} × as fast as the slowest",
            fastest / slowest
        ));
    }
    let mean = work.iter().map(|item| item.memory as f64).sum::<f64>() / work.len() as f64;
    let largest = work.iter().map(|item| item.memory).max().unwrap_or(0);
    let is_short = |machine: &&Machine| {
        let memory = machine.memory.map_or(f64::INFINITY, |memory| memory as f64);
        machine.workers > 0 && (mean * machine.workers as f64 > memory || largest as f64 > memory)
    };
    let short = machines.iter().filter(is_short).count();
    if short > 0 {
        applies.memory = true;
        reasons.push(alloc::format!(
            "memory is a limit: on {short} of {} machines the workers cannot all run an item at once, or not every item",
            machines.len()
        ));
    }
    let transfers: f64 = work
        .iter()
        .filter_map(|item| Some(item.data?.transfer))
        .sum();
    let total: f64 = work.iter().map(|item| item.cost).sum();
    if transfers > 0.0 && transfers >= total * TRANSFERS_MATTER {
        applies.locality = true;
        reasons.push(alloc::format!(
            "transfers are costly: bringing the data of every item would take {:.0} % of the time of the work",
            if total > 0.0 { transfers / total * 100.0 } else { 100.0 }
        ));
    }
    (applies, reasons)
}

fn bound(work: &[Item], machines: &[Machine]) -> f64 {
    let speed: f64 = machines
        .iter()
        .map(|machine| machine.speed * machine.workers as f64)
        .sum();
    let fastest = machines
        .iter()
        .map(|machine| machine.speed)
        .fold(0.0, f64::max);
    let total: f64 = work.iter().map(|item| item.cost).sum();
    let longest = work.iter().map(|item| item.cost).fold(0.0, f64::max);
    (total / speed).max(longest / fastest)
}

/// How far down the queue somebody looks for an item that suits better.
const LOOK_AHEAD: usize = 64;

struct Hand {
    free: usize,
    memory: u64,
    data: BTreeSet<u64>,
    /// Since when a worker has been free, as the number of an event.
    free_since: u64,
}

struct Run<'a> {
    work: &'a [Item],
    machines: &'a [Machine],
    aware_of: Awareness,
    hands: Vec<Hand>,
    /// Items that nobody took, in order.
    queue: VecDeque<usize>,
    queued_work: f64,
    now: f64,
    events: u64,
    /// Ends to come: when, on which machine, of which item.
    ends: BinaryHeap<Reverse<(Moment, usize, usize)>>,
    transfers: f64,
    /// Data that some machine has.
    claimed: BTreeSet<u64>,
}

fn run(work: &[Item], machines: &[Machine], aware_of: Awareness) -> WorkersTrial {
    let hand = |machine: &Machine| Hand {
        free: machine.workers,
        memory: machine.memory.unwrap_or(u64::MAX),
        data: machine.holds.iter().copied().collect(),
        free_since: 0,
    };
    let mut run = Run {
        work,
        machines,
        aware_of,
        hands: machines.iter().map(hand).collect(),
        queue: (0..work.len()).collect(),
        queued_work: work.iter().map(|item| item.cost).sum(),
        now: 0.0,
        events: 0,
        ends: BinaryHeap::new(),
        transfers: 0.0,
        claimed: machines
            .iter()
            .flat_map(|machine| machine.holds.iter().copied())
            .collect(),
    };
    run.hand_out();
    while let Some(Reverse((Moment(now), machine, item))) = run.ends.pop() {
        run.now = now;
        run.events += 1;
        let hand = &mut run.hands[machine];
        hand.free += 1;
        hand.free_since = run.events;
        if machines[machine].memory.is_some() {
            hand.memory += work[item].memory;
        }
        run.hand_out();
    }
    WorkersTrial {
        aware_of,
        makespan: run.now,
        transfers: run.transfers,
    }
}

impl Run<'_> {
    /// Gives to free machines until none takes anything.
    fn hand_out(&mut self) {
        let mut order: Vec<usize> = (0..self.hands.len())
            .filter(|&one| self.hands[one].free > 0)
            .collect();
        if self.aware_of.capability {
            let speed = |one: &usize| self.machines[*one].speed;
            order.sort_by(|one, other| speed(other).total_cmp(&speed(one)));
        } else {
            order.sort_by_key(|&one| self.hands[one].free_since);
        }
        let mut taken = true;
        while taken && !self.queue.is_empty() {
            taken = false;
            for &machine in &order {
                if self.hands[machine].free == 0 {
                    continue;
                }
                if let Some(place) = self.suitable(machine) {
                    self.start(machine, place);
                    taken = true;
                }
            }
        }
        // With nothing under way somebody must take what is left, or it would never be done.
        if self.ends.is_empty() && !self.queue.is_empty() {
            let fits = |&one: &usize| self.hands[one].memory >= self.work[self.queue[0]].memory;
            let machine = order.iter().copied().find(fits);
            self.start(
                machine.expect("an item fits an idle machine: it was checked"),
                0,
            );
            self.hand_out();
        }
    }

    /// The place in the queue of the item that a free machine takes.
    fn suitable(&self, machine: usize) -> Option<usize> {
        let hand = &self.hands[machine];
        let (mut first, mut unclaimed) = (None, None);
        for (place, &index) in self.queue.iter().take(LOOK_AHEAD).enumerate() {
            let item = &self.work[index];
            if item.memory > hand.memory {
                if self.aware_of.memory {
                    continue;
                }
                break;
            }
            if self.aware_of.capability && self.is_sooner_elsewhere(machine, item) {
                continue;
            }
            if !self.aware_of.locality {
                return Some(place);
            }
            if item.data.is_none_or(|data| hand.data.contains(&data.key)) {
                return Some(place);
            }
            // What nobody has yet must be brought by somebody; what another one has is left to it.
            if unclaimed.is_none()
                && item
                    .data
                    .is_some_and(|data| !self.claimed.contains(&data.key))
            {
                unclaimed = Some(place);
            }
            first = first.or(Some(place));
        }
        unclaimed.or(first)
    }

    /// Whether faster machines would be done with everything that waits before this one is with the item.
    fn is_sooner_elsewhere(&self, machine: usize, item: &Item) -> bool {
        let speed = self.machines[machine].speed;
        let faster = self.machines.iter().filter(|other| other.speed > speed);
        let faster: f64 = faster.map(|other| other.speed * other.workers as f64).sum();
        if faster == 0.0 {
            return false;
        }
        let begun: f64 = self
            .ends
            .iter()
            .filter(|Reverse((_, other, _))| self.machines[*other].speed > speed)
            .map(|Reverse((Moment(end), other, _))| (end - self.now) * self.machines[*other].speed)
            .sum();
        (self.queued_work + begun) / faster < item.cost / speed
    }

    fn start(&mut self, machine: usize, place: usize) {
        let index = self.queue.remove(place).expect("it is there");
        let item = &self.work[index];
        self.queued_work -= item.cost;
        let hand = &mut self.hands[machine];
        hand.free -= 1;
        if self.machines[machine].memory.is_some() {
            hand.memory -= item.memory;
        }
        self.claimed.extend(item.data.map(|data| data.key));
        let brought = match item.data {
            Some(data) if hand.data.insert(data.key) => data.transfer,
            _ => 0.0,
        };
        self.transfers += brought;
        let end = self.now + brought + item.cost / self.machines[machine].speed;
        self.ends.push(Reverse((Moment(end), machine, index)));
    }
}

/// A time that can be compared; none is NaN.
#[derive(Clone, Copy, PartialEq)]
struct Moment(f64);

impl Eq for Moment {}

impl Ord for Moment {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for WorkersAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "handing out {}", self.aware_of)?;
        for reason in &self.reasons {
            writeln!(f, "why         {reason}")?;
        }
        writeln!(f, "\ntime to the end on these workers")?;
        for trial in &self.trials {
            let mark = if trial.aware_of == self.aware_of {
                '*'
            } else {
                ' '
            };
            let name = alloc::format!("{}", trial.aware_of);
            write!(f, "{mark} {name:<48} {:>9}", super::Brief(trial.makespan))?;
            if trial.transfers > 0.0 {
                write!(f, ", transfers {}", super::Brief(trial.transfers))?;
            }
            writeln!(f)?;
        }
        write!(
            f,
            "* advised; no way can be below {}",
            super::Brief(self.bound)
        )
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::Rng;

    fn machine(workers: usize, speed: f64) -> Machine {
        Machine {
            workers,
            speed,
            memory: None,
            holds: Vec::new(),
        }
    }

    fn item(cost: f64) -> Item {
        Item {
            cost,
            ..Item::default()
        }
    }

    #[test]
    fn equal_workers_need_no_advice() {
        let advice = advise_workers(&[item(1.0); 9], &[machine(2, 1.0), machine(1, 1.1)]).unwrap();
        assert_eq!(advice, None);
    }

    #[test]
    fn a_slow_worker_gets_no_last_item() {
        let advice = advise_workers(&[item(1.0); 12], &[machine(3, 1.0), machine(1, 0.1)]);
        let advice = advice.unwrap().unwrap();
        assert_eq!(advice.aware_of.ids(), ["capability_based"]);
        assert_eq!(advice.trials[0].makespan, 10.0);
        assert_eq!(advice.trials[1].makespan, 4.0);
    }

    #[test]
    fn a_slow_worker_helps_while_there_is_enough_for_all() {
        let advice = advise_workers(&[item(1.0); 120], &[machine(1, 1.0), machine(1, 0.5)]);
        let advice = advice.unwrap().unwrap();
        assert!(advice.trials[1].makespan <= 82.0, "{advice}");
    }

    #[test]
    fn what_does_not_fit_is_passed_over() {
        // The second large one does not fit beside the first; the small ones behind it do.
        let large = Item {
            memory: 6,
            ..item(10.0)
        };
        let small = Item {
            memory: 1,
            ..item(10.0)
        };
        let work = [large, large, small, small, small];
        let one = Machine {
            memory: Some(8),
            ..machine(3, 1.0)
        };
        let advice = advise_workers(&work, &[one]).unwrap().unwrap();
        assert_eq!(advice.aware_of.ids(), ["memory_aware"]);
        assert_eq!(
            advice.trials[0].makespan, 30.0,
            "large; large, two small; small"
        );
        assert_eq!(
            advice.trials[1].makespan, 20.0,
            "large, two small; large, small"
        );
    }

    #[test]
    fn whoever_has_the_data_goes_first() {
        let on = |key| Item {
            data: Some(Data { key, transfer: 1.0 }),
            ..item(1.0)
        };
        let work: Vec<Item> = (0..48).map(|n| on(n / 2 % 6)).collect();
        let advice = advise_workers(&work, &[machine(1, 1.0), machine(1, 1.0)]);
        let advice = advice.unwrap().unwrap();
        assert_eq!(advice.aware_of.ids(), ["locality_aware"], "{advice}");
        assert_eq!(advice.trials[0].transfers, 12.0, "each brings everything");
        assert_eq!(advice.trials[1].transfers, 6.0, "each brings its half");
    }

    #[test]
    fn bad_input_is_named() {
        assert!(advise_workers(&[], &[machine(1, 1.0)]).is_err());
        assert!(advise_workers(&[item(1.0)], &[]).is_err());
        assert!(advise_workers(&[item(f64::NAN)], &[machine(1, 1.0)]).is_err());
        assert_eq!(
            advise_workers(&[item(1.0)], &[machine(1, 0.0)]),
            Err(AdviceError::Speed(0.0))
        );
        let large = Item {
            memory: 9,
            ..item(1.0)
        };
        let small = Machine {
            memory: Some(8),
            ..machine(1, 1.0)
        };
        assert_eq!(
            advise_workers(&[large], &[small]),
            Err(AdviceError::Memory(9))
        );
    }

    #[test]
    fn the_advice_never_contradicts_its_figures() {
        let mut rng = Rng::new(4);
        let mut advised = 0;
        for _ in 0..300 {
            let machines: Vec<Machine> = (0..1 + rng.index(4))
                .map(|_| Machine {
                    workers: 1 + rng.index(3),
                    speed: [1.0, 1.0, 0.3, 2.0][rng.index(4)],
                    memory: rng.chance(0.5).then(|| 8 + rng.below(8)),
                    holds: vec![rng.below(4)],
                })
                .collect();
            let work: Vec<Item> = (0..1 + rng.index(60))
                .map(|_| Item {
                    cost: rng.unit_f64() * 10.0,
                    memory: rng.below(9),
                    data: rng.chance(0.5).then(|| Data {
                        key: rng.below(6),
                        transfer: rng.unit_f64(),
                    }),
                })
                .collect();
            let Some(advice) = advise_workers(&work, &machines).unwrap() else {
                continue;
            };
            advised += 1;
            let chosen = advice
                .trials
                .iter()
                .find(|trial| trial.aware_of == advice.aware_of)
                .unwrap();
            for trial in &advice.trials {
                assert!(chosen.makespan <= trial.makespan * (1.0 + NOTICEABLE) + 1e-9);
                assert!(trial.makespan >= advice.bound * (1.0 - 1e-9), "{advice}");
            }
            assert!(!advice.reasons.is_empty());
        }
        assert!(advised > 100, "{advised}");
    }
}
