//! What a server keeps to beside how it balances load: who may look at whose jobs, and how much of the past is kept.

use crate::reader::{Fields, Reader};

/// The settings of a server. They stand beside `load_balancing` in its file; runs and simulations have no use for
/// them, and check them all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// Whose jobs a token of role `submit` may look at, cancel and retry.
    pub jobs: JobAccess,
    /// How much of the past is kept.
    pub retention: Retention,
    /// So many megabytes (of 2^20 bytes) of the disk are kept for the day when it is full.
    pub disk_reserve_mb: u64,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            jobs: JobAccess::default(),
            retention: Retention::default(),
            disk_reserve_mb: 32,
        }
    }
}

/// How much of the past a server keeps. Jobs that are over and beyond one of the limits are forgotten, with their tasks,
/// outputs and results. 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Jobs that ended longer ago, in days, go.
    pub days: u64,
    /// All jobs but so many that ended last go.
    pub jobs: u64,
    /// The jobs that ended first go while the journal is larger, in megabytes of 2^20 bytes.
    pub size_mb: u64,
}

/// Whose jobs a token of role `submit` may look at, cancel and retry. Admins may everything, and `read` may look at
/// everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobAccess {
    /// Those of its own user.
    #[default]
    Own,
    /// Everybody's.
    Shared,
}

const JOBS: [(&str, JobAccess); 2] = [("own", JobAccess::Own), ("shared", JobAccess::Shared)];
const WORDS: [&str; 2] = [JOBS[0].0, JOBS[1].0];

/// The most days: about what the clock of a journal can count.
const DAYS_MAX: u64 = 36_500;
/// The most megabytes: what a file of the journal can hold.
const MEGABYTES_MAX: u64 = 16 << 20;

impl ServerSettings {
    /// Takes the settings out of the top level of a file.
    pub(crate) fn take(&mut self, top: &mut Fields<'_>, reader: &mut Reader<'_>) {
        let access = top.take("access");
        if let Some(mut fields) = access.and_then(|node| reader.mapping("access", node)) {
            if let Some(node) = fields.take("jobs")
                && let Some(chosen) = reader.choice("jobs", node, &WORDS)
            {
                self.jobs = JOBS[chosen].1;
            }
            fields.finish(reader);
        }
        let journal = top.take("journal");
        if let Some(mut fields) = journal.and_then(|node| reader.mapping("journal", node)) {
            for (key, most, place) in self.numbers() {
                let given = fields.take(key);
                if let Some(number) = given.and_then(|node| reader.whole(key, node, 0..=most)) {
                    *place = number;
                }
            }
            fields.finish(reader);
        }
    }

    /// The numbers under `journal`: their names, the most that is allowed, and where they are kept.
    fn numbers(&mut self) -> [(&'static str, u64, &mut u64); 4] {
        let Retention {
            days,
            jobs,
            size_mb,
        } = &mut self.retention;
        [
            ("keep_days", DAYS_MAX, days),
            ("keep_jobs", u64::from(u32::MAX), jobs),
            ("keep_size_mb", MEGABYTES_MAX, size_mb),
            ("disk_reserve_mb", 1 << 20, &mut self.disk_reserve_mb),
        ]
    }

    /// The settings as a part of a file; `explained`, each with its sentence.
    pub(crate) fn render(&self, explained: bool) -> String {
        let jobs = JOBS.iter().find(|(_, jobs)| *jobs == self.jobs);
        let jobs = jobs.map_or(WORDS[0], |(word, _)| word);
        let about = |text: &'static str| if explained { text } else { "" };
        let mut text = format!(
            "{}access:\n{}  jobs: {jobs}\n{}journal:\n",
            about("\n# Servers only: who may look at what.\n"),
            about(
                "  # Whose jobs a token of role `submit` may look at, cancel and retry: its own user's (own), or\n  \
                 # everybody's (shared).\n"
            ),
            about("\n# Servers only: what is kept of jobs that are over. 0 is no limit.\n"),
        );
        let mut this = *self;
        for (key, _, value) in this.numbers() {
            let explanation = about(match key {
                "keep_days" => "  # Forget jobs that ended longer ago.\n",
                "keep_jobs" => "  # Keep so many jobs that ended last, and forget the rest.\n",
                "keep_size_mb" => {
                    "  # While the journal is larger (in MiB), forget the jobs that ended first, and facts from before\n  \
                     # the newest snapshot.\n"
                }
                _ => {
                    "  # Room (in MiB) that is kept free for the day when the disk is full, so that the past can be\n  \
                     # forgotten then. 0 is none.\n"
                }
            });
            text += &format!("{explanation}  {key}: {value}\n");
        }
        text
    }
}
