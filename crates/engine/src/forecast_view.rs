//! Forecasts as clients see them.

use loxley_api::{ForecastInfo, WorkForecastInfo};
use loxley_policy::WorkForecast;

use crate::state::State;

impl State {
    /// What is expected to come, and what is done about it.
    pub(crate) fn forecast(&self) -> ForecastInfo {
        let scheduler = self.driver.scheduler();
        let rules = &scheduler.config().forecast;
        let (kept, moved) = scheduler.kept_room();
        let horizon = rules.horizon.as_secs_f64();
        let work = scheduler.forecasts().into_iter();
        ForecastInfo {
            enabled: rules.enabled,
            step_sec: rules.step.as_secs_f64(),
            horizon_sec: horizon,
            kept,
            moved,
            work: work.map(|work| self.work_forecast(work, horizon)).collect(),
        }
    }

    fn work_forecast(&self, work: WorkForecast, horizon: f64) -> WorkForecastInfo {
        let names = &self.names;
        let takes = work.service.map(|takes| takes.as_secs_f64());
        let kept = work.kept_for_it.iter();
        WorkForecastInfo {
            skills: work
                .skills
                .iter()
                .map(|skill| names.skill_name(skill).to_string())
                .collect(),
            user: names.user_name(work.user).to_string(),
            group: work.group.map(|group| names.group_name(group).to_string()),
            urgent: work.is_urgent,
            last: work.last,
            expected: work.expected,
            takes_sec: takes,
            slots_needed: takes.map(|takes| takes * f64::from(work.expected) / horizon),
            season_sec: work.season.map(|season| season.as_secs_f64()),
            error: work.error,
            error_as_now: work.error_as_now,
            acts: work.is_believed,
            due_unix_ms: work.due.map(|(due, _)| self.unix_ms(due)),
            kept_agents: kept
                .map(|agent| names.agent_name(*agent).to_string())
                .collect(),
        }
    }
}
