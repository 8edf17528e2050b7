//! List scheduling by bottom level (critical path first): the ready task with the longest chain of work
//! behind it comes first.

use crate::reference::Schedule;
use crate::reference::list::{self, Order};
use crate::time::Nanos;
use crate::workload::Workload;

/// Schedules `workload` on processors of these speeds by the chains that follow from `costs`, which are what
/// is believed; tasks take as long as they take.
#[must_use]
pub fn schedule(workload: &Workload, speeds: &[f64], costs: &[Nanos]) -> Schedule {
    let levels = workload.bottom_levels_of(costs);
    list::schedule(workload, speeds, Order::Largest(&levels))
}
