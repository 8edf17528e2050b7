//! Which ones: `last`, `all`, `1,3,5-8`.

use std::ops::RangeInclusive;
use std::str::FromStr;

use loxley_api::{AgentInfo, ApiError, JobFilter, JobInfo, TaskFilter, TaskInfo};
use loxley_client::{Client, ClientError};
use loxley_model::{JobId, TaskId};

type Answer<T> = Result<T, ClientError>;

/// The jobs or tasks that are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Selector {
    /// The newest.
    Last,
    /// All for which the command makes sense.
    All,
    /// These numbers.
    Numbers(Vec<RangeInclusive<u64>>),
}

/// How a selector is explained in help texts.
pub(super) const SELECTORS: &str = "Selectors: `last` the newest, `all`, or numbers: 1,3,5-8.";

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "last" => Ok(Self::Last),
            "all" => Ok(Self::All),
            text => {
                let ranges = text.split(',').map(|part| {
                    range(part).ok_or_else(|| format!("`{part}` is not last, all, 7 or 5-8"))
                });
                ranges.collect::<Result<_, _>>().map(Self::Numbers)
            }
        }
    }
}

fn range(text: &str) -> Option<RangeInclusive<u64>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = first.trim().parse().ok()?..=last.trim().parse().ok()?;
    (!range.is_empty()).then_some(range)
}

impl Selector {
    /// The jobs: each that is named must be there; of all jobs, those that `fits`.
    pub(super) async fn jobs(
        &self,
        client: &Client,
        fits: impl Fn(&JobInfo) -> bool,
    ) -> Answer<Vec<JobInfo>> {
        match self {
            Self::Last => Ok(vec![last_job(client).await?]),
            Self::All => all_jobs(client, fits).await,
            Self::Numbers(ranges) => {
                let mut jobs = Vec::new();
                for id in ranges.iter().cloned().flatten() {
                    jobs.push(client.job(JobId(id)).await?);
                }
                Ok(jobs)
            }
        }
    }

    /// The tasks: each that is named must be there; of all tasks of jobs that `job_fits`, those that
    /// `fits`.
    pub(super) async fn tasks(
        &self,
        client: &Client,
        job_fits: impl Fn(&JobInfo) -> bool,
        fits: impl Fn(&TaskInfo) -> bool,
    ) -> Answer<Vec<TaskInfo>> {
        let mut tasks = Vec::new();
        match self {
            Self::Last => {
                let job = last_job(client).await?;
                tasks.push(client.task(job.last_task).await?);
            }
            Self::All => {
                for job in all_jobs(client, job_fits).await? {
                    let found = tasks_of(client, job.id, &TaskFilter::default(), u64::MAX).await?;
                    tasks.extend(found.into_iter().filter(&fits));
                }
            }
            Self::Numbers(ranges) => {
                for id in ranges.iter().cloned().flatten() {
                    tasks.push(client.task(TaskId(id)).await?);
                }
            }
        }
        Ok(tasks)
    }
}

async fn last_job(client: &Client) -> Answer<JobInfo> {
    let filter = JobFilter {
        limit: Some(1),
        ..JobFilter::default()
    };
    let page = client.jobs(&filter).await?;
    page.items.into_iter().next().ok_or_else(|| {
        ClientError::Refused(ApiError::new(
            loxley_api::ErrorCode::NotFound,
            "there is no job yet",
        ))
    })
}

async fn all_jobs(client: &Client, fits: impl Fn(&JobInfo) -> bool) -> Answer<Vec<JobInfo>> {
    let filter = JobFilter::default();
    let mut jobs = jobs_of(client, filter, u64::MAX).await?;
    jobs.retain(fits);
    jobs.reverse();
    Ok(jobs)
}

/// Jobs, the newest first, from as many pages as it takes.
pub(super) async fn jobs_of(
    client: &Client,
    mut filter: JobFilter,
    count_max: u64,
) -> Answer<Vec<JobInfo>> {
    let mut jobs = Vec::new();
    loop {
        let left = count_max - jobs.len() as u64;
        filter.limit = Some(left.min(1000) as u32);
        let page = client.jobs(&filter).await?;
        jobs.extend(page.items);
        filter.before = page.next;
        if page.next.is_none() || jobs.len() as u64 >= count_max {
            return Ok(jobs);
        }
    }
}

/// Tasks of a job by their ids, from as many pages as it takes.
pub(super) async fn tasks_of(
    client: &Client,
    job: JobId,
    filter: &TaskFilter,
    count_max: u64,
) -> Answer<Vec<TaskInfo>> {
    let mut filter = filter.clone();
    let mut tasks = Vec::new();
    loop {
        let left = count_max - tasks.len() as u64;
        filter.limit = Some(left.min(1000) as u32);
        let page = client.tasks(job, &filter).await?;
        tasks.extend(page.items);
        filter.from = page.next;
        if page.next.is_none() || tasks.len() as u64 >= count_max {
            return Ok(tasks);
        }
    }
}

/// Agents by name or number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AgentSelector {
    /// All.
    All,
    /// Each a name, a number or a range of numbers.
    Listed(Vec<String>),
}

impl FromStr for AgentSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            "" => Err("an agent has a name or a number".to_owned()),
            text => Ok(Self::Listed(text.split(',').map(str::to_owned).collect())),
        }
    }
}

impl AgentSelector {
    pub(super) async fn agents(&self, client: &Client) -> Answer<Vec<AgentInfo>> {
        let agents = client.agents().await?;
        let Self::Listed(wanted) = self else {
            return Ok(agents);
        };
        let mut found = Vec::new();
        for text in wanted {
            let before = found.len();
            let by_name = agents.iter().filter(|agent| agent.name == *text);
            found.extend(by_name.cloned());
            if found.len() == before {
                let numbers = range(text);
                let by_number = agents.iter().filter(|agent| {
                    let numbers = numbers.as_ref();
                    numbers.is_some_and(|numbers| numbers.contains(&agent.id.0))
                });
                found.extend(by_number.cloned());
            }
            if found.len() == before {
                return Err(ClientError::Refused(ApiError::not_found("agent", text)));
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_words_or_numbers() {
        assert_eq!("last".parse(), Ok(Selector::Last));
        assert_eq!("all".parse(), Ok(Selector::All));
        assert_eq!(
            "1,3,5-8".parse(),
            Ok(Selector::Numbers(vec![1..=1, 3..=3, 5..=8]))
        );
        for wrong in ["", "first", "8-5", "1,", "-1", "1-", "1--2", "1.5"] {
            assert!(wrong.parse::<Selector>().is_err(), "{wrong}");
        }
    }
}
