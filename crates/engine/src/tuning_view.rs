//! Self-tuning as clients see it.

use loxley_api::{TunedSetting, TuningInfo, TuningStep, TuningTrial};
use loxley_driver::self_tuning::Setting;

use crate::state::State;

impl State {
    /// How self-tuning stands, and its story.
    pub(crate) fn tuning(&self) -> TuningInfo {
        let config = self.driver.scheduler().config();
        let rules = &config.self_tuning;
        let setting = |setting: Setting| {
            let bounds = setting.bounds(rules);
            let given = self.given_config.as_deref();
            TunedSetting {
                key: setting.path().to_owned(),
                value: setting.value(config),
                given: given.map(|given| setting.value(given)),
                tuned: bounds.enabled,
                least: bounds.least,
                most: bounds.most,
            }
        };
        let trial = self.tuner.trial().map(|trial| TuningTrial {
            key: trial.setting.path().to_owned(),
            from: trial.from,
            to: trial.to,
            windows: u32::try_from(trial.windows()).unwrap_or(u32::MAX),
            windows_max: 2 * rules.pairs,
        });
        let story = self.tuner.story().map(|(at, step)| {
            let (without_sec, with_sec) = step.costs();
            TuningStep {
                at_unix_ms: self.unix_ms(*at),
                key: step.setting.path().to_owned(),
                from: step.from,
                to: step.to,
                what: step.word().to_owned(),
                without_sec,
                with_sec,
                because: step.because(),
            }
        });
        TuningInfo {
            enabled: rules.enabled,
            window_sec: rules.window.as_secs_f64(),
            settings: Setting::ALL.into_iter().map(setting).collect(),
            trial,
            story: story.collect(),
        }
    }
}
