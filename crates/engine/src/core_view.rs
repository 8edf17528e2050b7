//! A job as the core is told of it: for whoever runs one in virtual time.

use std::sync::Arc;

use loxley_api::{ApiError, JobRequest};
use loxley_driver::Directory;
use loxley_model::{GroupId, JobSpec, TaskSpec, Time, UserId};

use crate::jobs::Jobs;
use crate::names;

/// What the core is told of a job when it is the first that it hears of, all at once.
#[derive(Debug, Clone)]
pub struct CoreView {
    /// The job.
    pub job: JobSpec,
    /// Its tasks, numbered from 1, with their edges.
    pub tasks: Vec<TaskSpec>,
    /// The limits of groups that it brings.
    pub limits: Vec<(GroupId, u32)>,
}

/// Turns a request into what the core is told, by the way that a submission takes.
///
/// # Errors
/// When the job would be refused.
pub fn core_view(request: &JobRequest, names: &mut Directory) -> Result<CoreView, ApiError> {
    request.check()?;
    let request = Arc::new(request.clone());
    let limits = request.limits.iter().map(|(group, limit)| {
        let group = names.groups.intern(group).map_err(names::bad_name)?;
        Ok((group, *limit))
    });
    let limits = limits.collect::<Result<_, ApiError>>()?;
    let mut job = Jobs::default().draft(request, UserId(0), names, Time::ZERO, false)?;
    let spec = job.spec();
    let tasks = Jobs::all_tasks(&mut job, Time::ZERO)?;
    Ok(CoreView {
        job: spec,
        tasks,
        limits,
    })
}
