//! What is to be different.

use loxley_config::Mistakes;
use loxley_policy::Config;

use crate::recording::{RecordedAgent, Recording};

/// What is to be different from what was recorded.
#[derive(Debug, Clone, Default)]
pub struct WhatIf {
    /// What it is called in tables.
    pub label: String,
    /// This configuration all the time, instead of the recorded ones.
    pub config: Option<Config>,
    /// Single keys, on top of every configuration: a path and a value in YAML.
    pub set: Vec<(String, String)>,
    /// So many more agents, like those that were there, in turn.
    pub more_agents: u32,
    /// Agents of these names, zones or skills are not there.
    pub without: Vec<String>,
    /// Each job comes so many times; 1 is as it was.
    pub load: Option<f64>,
}

/// Something that cannot be different.
#[derive(Debug, thiserror::Error)]
pub enum WhatIfError {
    /// A key or a value that the configuration does not have.
    #[error("`{set}`: {mistakes}")]
    Set {
        /// As it was written.
        set: String,
        /// What is wrong with it.
        mistakes: Box<Mistakes>,
    },
    /// Nothing of this name is there to be left out.
    #[error("no recorded agent has the name, zone or skill `{0}`; there are {1}")]
    NoSuchAgent(String, String),
    /// Nobody would be left.
    #[error("without {0} no agent is left")]
    NobodyLeft(String),
    /// A text that is none of the forms.
    #[error("{0}")]
    Form(String),
}

impl WhatIf {
    /// Nothing is different.
    #[must_use]
    pub fn as_recorded() -> Self {
        Self {
            label: "as recorded".to_owned(),
            ..Self::default()
        }
    }

    /// `path=value`, the path with or without `load_balancing.` before it.
    ///
    /// # Errors
    /// When it has another form.
    pub fn set(text: &str) -> Result<Self, WhatIfError> {
        let Some((path, value)) = text.split_once('=') else {
            let problem = format!("--set {text}: expected PATH=VALUE, as in strategy=pull");
            return Err(WhatIfError::Form(problem));
        };
        Ok(Self {
            label: text.to_owned(),
            set: vec![(path.trim().to_owned(), value.trim().to_owned())],
            ..Self::default()
        })
    }

    /// `+2`: so many more agents.
    ///
    /// # Errors
    /// When it has another form.
    pub fn agents(text: &str) -> Result<Self, WhatIfError> {
        let count = text.strip_prefix('+').unwrap_or(text).parse();
        let Ok(more_agents @ 1..=100_000) = count else {
            let problem = format!(
                "--agents {text}: expected how many more, as in +2; for fewer say who goes: --without NAME"
            );
            return Err(WhatIfError::Form(problem));
        };
        Ok(Self {
            label: format!("{more_agents} more agents"),
            more_agents,
            ..Self::default()
        })
    }

    /// A name, zone or skill of agents that are not there.
    #[must_use]
    pub fn without(text: &str) -> Self {
        Self {
            label: format!("without {text}"),
            without: vec![text.to_owned()],
            ..Self::default()
        }
    }

    /// `x2`: each job comes so many times.
    ///
    /// # Errors
    /// When it has another form.
    pub fn load(text: &str) -> Result<Self, WhatIfError> {
        let factor: Option<f64> = text.trim_start_matches('x').parse().ok();
        let Some(factor) = factor.filter(|factor| (0.01..=100.0).contains(factor)) else {
            let problem =
                format!("--load {text}: expected a factor between x0.01 and x100, as in x2");
            return Err(WhatIfError::Form(problem));
        };
        Ok(Self {
            label: format!("load x{factor}"),
            load: Some(factor),
            ..Self::default()
        })
    }

    /// All of this and all of the other.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.label = match self.label.is_empty() {
            true => other.label,
            false => format!("{}, {}", self.label, other.label),
        };
        self.config = other.config.or(self.config);
        self.set.extend(other.set);
        self.more_agents += other.more_agents;
        self.without.extend(other.without);
        self.load = other.load.or(self.load);
        self
    }

    /// A recorded configuration as it would be.
    ///
    /// # Errors
    /// When a key or value does not exist.
    pub fn config_over(&self, recorded: &Config) -> Result<Config, WhatIfError> {
        let mut config = self.config.as_ref().unwrap_or(recorded).clone();
        for (path, value) in &self.set {
            let mistaken = |mistakes| WhatIfError::Set {
                set: format!("{path}={value}"),
                mistakes: Box::new(mistakes),
            };
            config = loxley_config::parse_over(&yaml(path, value), config).map_err(mistaken)?;
        }
        Ok(config)
    }

    /// The recorded agents that would be there, by number, and those that would come in addition.
    pub(crate) fn fleet(&self, recording: &Recording) -> Result<Fleet, WhatIfError> {
        let matches = |agent: &RecordedAgent, word: &str| {
            let skills = recording.names.skill_names(agent.spec.skills.iter());
            *agent.name == *word
                || agent.zone.as_deref() == Some(word)
                || skills.iter().any(|skill| **skill == *word)
        };
        for word in &self.without {
            if !recording.agents.iter().any(|agent| matches(agent, word)) {
                const SHOWN: usize = 8;
                let names = recording.agents.iter().take(SHOWN);
                let mut names: Vec<&str> = names.map(|agent| &*agent.name).collect();
                if recording.agents.len() > SHOWN {
                    names.push("...");
                }
                return Err(WhatIfError::NoSuchAgent(word.clone(), names.join(", ")));
            }
        }
        let stays = |agent: &RecordedAgent| !self.without.iter().any(|word| matches(agent, word));
        let agents = recording.agents.iter().enumerate();
        let kept: Vec<usize> = agents
            .filter(|(_, agent)| stays(agent))
            .map(|(number, _)| number)
            .collect();
        if kept.is_empty() {
            return Err(WhatIfError::NobodyLeft(self.without.join(", ")));
        }
        let added = (0..self.more_agents as usize).map(|number| kept[number % kept.len()]);
        let added = added.collect();
        Ok(Fleet { kept, added })
    }
}

/// Who would be there, as numbers of recorded agents.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) kept: Vec<usize>,
    /// Whom each further one is like.
    pub(crate) added: Vec<usize>,
}

/// `a.b=c` as YAML.
fn yaml(path: &str, value: &str) -> String {
    let path = path.strip_prefix("load_balancing.").unwrap_or(path);
    let mut text = String::from("load_balancing:");
    for (depth, key) in path.split('.').enumerate() {
        text.push('\n');
        text.push_str(&"  ".repeat(depth + 1));
        text.push_str(key);
        text.push(':');
    }
    format!("{text} {value}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_set_and_an_unknown_one_is_named() {
        let set = WhatIf::set("strategy=pull").unwrap();
        let config = set.config_over(&Config::default()).unwrap();
        assert_ne!(config, Config::default());
        let long = WhatIf::set("load_balancing.strategy=pull").unwrap();
        assert_eq!(long.config_over(&Config::default()).unwrap(), config);
        let wrong = WhatIf::set("stratgy=pull").unwrap();
        let error = wrong.config_over(&Config::default()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("stratgy"), "{text}");
        assert!(text.contains("strategy"), "a suggestion: {text}");
    }

    #[test]
    fn forms_are_checked() {
        assert_eq!(WhatIf::agents("+2").unwrap().more_agents, 2);
        assert!(WhatIf::agents("-2").is_err());
        assert_eq!(WhatIf::load("x2.5").unwrap().load, Some(2.5));
        assert!(WhatIf::load("much").is_err());
        assert!(WhatIf::set("enabled").is_err());
    }
}
