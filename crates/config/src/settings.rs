//! What a server keeps to beside how it balances load: who may look at whose jobs.

use crate::reader::{Fields, Reader};

/// The settings of a server. They stand beside `load_balancing` in its file; runs and simulations have no use for
/// them, and check them all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerSettings {
    /// Whose jobs a token of role `submit` may look at, cancel and retry.
    pub jobs: JobAccess,
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

impl ServerSettings {
    /// Takes the settings out of the top level of a file.
    pub(crate) fn take(&mut self, top: &mut Fields<'_>, reader: &mut Reader<'_>) {
        let access = top.take("access");
        let Some(mut fields) = access.and_then(|node| reader.mapping("access", node)) else {
            return;
        };
        if let Some(node) = fields.take("jobs")
            && let Some(chosen) = reader.choice("jobs", node, &WORDS)
        {
            self.jobs = JOBS[chosen].1;
        }
        fields.finish(reader);
    }

    /// The settings as a part of a file; `explained`, each with its sentence.
    pub(crate) fn render(&self, explained: bool) -> String {
        let jobs = JOBS.iter().find(|(_, jobs)| *jobs == self.jobs);
        let jobs = jobs.map_or(WORDS[0], |(word, _)| word);
        let [about, of_jobs] = match explained {
            true => [
                "\n# Servers only: who may look at what.\n",
                "  # Whose jobs a token of role `submit` may look at, cancel and retry: its own user's (own), or\n  \
                 # everybody's (shared).\n",
            ],
            false => ["", ""],
        };
        format!("{about}access:\n{of_jobs}  jobs: {jobs}\n")
    }
}
