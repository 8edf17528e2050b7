//! HEFT, heterogeneous earliest finish time (Topcuoglu, Hariri and Wu 2002), without communication:
//! tasks by falling upward rank, each put where it ends first, gaps between earlier tasks included.

use crate::reference::Schedule;
use crate::time::Nanos;
use crate::workload::Workload;

/// Schedules `workload` on processors of these speeds, as if tasks took as long as `costs` say. What becomes of
/// it when they do not, [`Schedule::executed`] tells.
#[must_use]
pub fn schedule(workload: &Workload, speeds: &[f64], costs: &[Nanos]) -> Schedule {
    let ranks = workload.bottom_levels_of(costs);
    let mut position = vec![0; workload.len()];
    for (index, &task) in workload.topological_order().iter().enumerate() {
        position[task as usize] = index;
    }
    let mut order: Vec<u32> = (0..workload.len() as u32).collect();
    // Equal ranks (tasks of no work) keep their topological order.
    order.sort_by_key(|&task| (u64::MAX - ranks[task as usize], position[task as usize]));
    let mut result = Schedule {
        processors: vec![0; workload.len()],
        times: vec![(0, 0); workload.len()],
    };
    let mut busy: Vec<Vec<(Nanos, Nanos)>> = vec![Vec::new(); speeds.len()];
    for task in order {
        let record = &workload.tasks()[task as usize];
        let ready = workload
            .predecessors(task)
            .iter()
            .map(|&before| result.times[before as usize].1)
            .max()
            .unwrap_or(0)
            .max(record.release);
        let best = speeds
            .iter()
            .enumerate()
            .map(|(processor, &speed)| {
                let duration = libm::ceil(costs[task as usize] as f64 / speed) as Nanos;
                let start = earliest_gap(&busy[processor], ready, duration);
                (start + duration, start, processor)
            })
            .min()
            .expect("there is a processor");
        let (end, start, processor) = best;
        result.processors[task as usize] = processor as u32;
        result.times[task as usize] = (start, end);
        let at = busy[processor].partition_point(|slot| *slot < (start, end));
        busy[processor].insert(at, (start, end));
    }
    result
}

/// The first moment from `ready` on at which `duration` fits between what is planned.
fn earliest_gap(busy: &[(Nanos, Nanos)], ready: Nanos, duration: Nanos) -> Nanos {
    let mut start = ready;
    for &(from, to) in busy {
        if start + duration <= from {
            break;
        }
        start = start.max(to);
    }
    start
}
