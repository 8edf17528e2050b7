//! What is on the screen, and what keys do to it. No terminal, no network.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use loxley_api::{AgentInfo, EventKind, JobInfo, TaskInfo, TaskState};
use loxley_model::JobId;
use ratatui::crossterm::event::{KeyCode, KeyModifiers};

use super::look::{Look, News, Order};
use crate::fleet::table::printable;

/// A list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    Agents,
    Jobs,
    Tasks,
    Moves,
}

impl View {
    pub(super) const ALL: [Self; 4] = [Self::Agents, Self::Jobs, Self::Tasks, Self::Moves];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Agents => "Agents",
            Self::Jobs => "Jobs",
            Self::Tasks => "Tasks",
            Self::Moves => "Moves",
        }
    }

    pub(super) fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Agents => &[
                "agent", "state", "busy", "queued", "speed", "done", "failed", "skills",
            ],
            Self::Jobs => &[
                "job", "name", "user", "state", "done", "total", "failed", "held", "took",
            ],
            Self::Tasks => &[
                "task", "job", "state", "agent", "try", "moves", "took", "does",
            ],
            Self::Moves => &["when", "task", "to", "from", "why"],
        }
    }

    fn place(self) -> usize {
        Self::ALL.iter().position(|view| *view == self).unwrap_or(0)
    }
}

/// A cell: what is shown, and what it is sorted by.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    number: Option<f64>,
}

impl Cell {
    fn text(text: impl AsRef<str>) -> Self {
        Self {
            text: printable(text.as_ref()).into_owned(),
            number: None,
        }
    }

    fn number(number: f64) -> Self {
        Self {
            text: format!("{number}"),
            number: Some(number),
        }
    }

    fn measured(text: String, number: f64) -> Self {
        Self {
            text,
            number: Some(number),
        }
    }

    fn compare(&self, other: &Self) -> Ordering {
        match (self.number, other.number) {
            (Some(one), Some(other)) => one.total_cmp(&other),
            _ => self.text.cmp(&other.text),
        }
    }
}

/// A row, and what it is about.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) cells: Vec<Cell>,
    subject: Subject,
    /// Whether it is an agent that is not here any more: those come last, however the list is sorted.
    is_gone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Agent(u64),
    Job(JobId),
    Task(loxley_model::TaskId),
    Move(u64),
}

/// What comes of a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Nothing,
    Quit,
    Ask(Order),
}

/// The screen.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) colour: bool,
    pub(super) look: Option<Look>,
    pub(super) away: Option<String>,
    pub(super) view: View,
    /// The job whose tasks are shown.
    job: Option<JobId>,
    chosen: Option<Subject>,
    /// By which column, and whether the other way round, in each view.
    sort: [(usize, bool); 4],
    pub(super) filter: String,
    pub(super) typing: bool,
    /// What waits for a yes.
    pub(super) question: Option<(String, Order)>,
    /// Something to be read, with its title.
    pub(super) told: Option<(String, Vec<String>)>,
    /// A line about what was done last.
    pub(super) message: String,
}

impl Model {
    pub(super) fn new(colour: bool) -> Self {
        Self {
            colour,
            look: None,
            away: None,
            view: View::Agents,
            job: None,
            chosen: None,
            sort: [(0, false), (0, true), (0, false), (0, true)],
            filter: String::new(),
            typing: false,
            question: None,
            told: None,
            message: String::new(),
        }
    }

    pub(super) fn seen(&mut self, look: Look) {
        self.look = Some(look);
        self.away = None;
    }

    pub(super) fn hear(&mut self, news: News) {
        match news {
            News::Seen(look) => self.seen(*look),
            News::Failed(why) => self.away = Some(why),
            News::Told(what, lines) if lines.is_empty() => self.message = what,
            News::Told(title, lines) => self.told = Some((title, lines)),
        }
    }

    /// Whose tasks are to be looked at.
    pub(super) fn focus(&self) -> Option<JobId> {
        self.job.filter(|_| self.view == View::Tasks)
    }

    pub(super) fn sorted_by(&self) -> (usize, bool) {
        self.sort[self.view.place()]
    }

    /// How many rows there are.
    pub(super) fn rows(&self) -> usize {
        self.list().len()
    }

    /// The rows as they are shown, and which is chosen.
    pub(super) fn list(&self) -> Vec<Row> {
        let Some(look) = &self.look else {
            return Vec::new();
        };
        let mut rows: Vec<Row> = match self.view {
            View::Agents => look.agents.iter().map(agent_row).collect(),
            View::Jobs => look.jobs.iter().map(job_row).collect(),
            View::Tasks => look.tasks.iter().map(task_row).collect(),
            View::Moves => move_rows(look),
        };
        let filter = self.filter.to_lowercase();
        rows.retain(|row| {
            let mut cells = row.cells.iter();
            filter.is_empty() || cells.any(|cell| cell.text.to_lowercase().contains(&filter))
        });
        let (column, backwards) = self.sorted_by();
        rows.sort_by(|one, other| {
            let order = one.cells[column].compare(&other.cells[column]);
            let order = if backwards { order.reverse() } else { order };
            one.is_gone.cmp(&other.is_gone).then(order)
        });
        rows
    }

    pub(super) fn chosen_place(&self, rows: &[Row]) -> usize {
        let chosen = |row: &Row| Some(row.subject) == self.chosen;
        rows.iter().position(chosen).unwrap_or(0)
    }

    /// What stands behind the title of the list.
    pub(super) fn about_list(&self) -> String {
        let more = self.look.as_ref().map_or(0, |look| look.tasks_more);
        let mut about = match (self.view, self.job) {
            (View::Tasks, Some(job)) => format!("of job {} (Esc: all)", job.0),
            (View::Tasks, None) => "that agents have in hand".to_owned(),
            (View::Moves, _) => "of the last five minutes".to_owned(),
            (View::Jobs, _) => "the newest 200".to_owned(),
            (View::Agents, _) => String::new(),
        };
        if self.view == View::Tasks && more > 0 {
            about += &format!(", {more} more not shown");
        }
        about
    }

    pub(super) fn press(&mut self, key: KeyCode, modifiers: KeyModifiers) -> Next {
        if modifiers.contains(KeyModifiers::CONTROL) && key == KeyCode::Char('c') {
            return Next::Quit;
        }
        if let Some((_, order)) = self.question.take() {
            return match key {
                KeyCode::Char('y' | 'Y') => Next::Ask(order),
                _ => Next::Nothing,
            };
        }
        if self.told.take().is_some() {
            return Next::Nothing;
        }
        if self.typing {
            self.type_filter(key);
            return Next::Nothing;
        }
        self.message.clear();
        match key {
            KeyCode::Char('q') => return Next::Quit,
            KeyCode::Tab => self.show(View::ALL[(self.view.place() + 1) % View::ALL.len()]),
            KeyCode::BackTab => self.show(View::ALL[(self.view.place() + 3) % View::ALL.len()]),
            KeyCode::Char(digit @ '1'..='4') => {
                self.show(View::ALL[digit as usize - '1' as usize]);
            }
            KeyCode::Down | KeyCode::Char('j') => self.choose(1),
            KeyCode::Up | KeyCode::Char('k') => self.choose(-1),
            KeyCode::PageDown => self.choose(10),
            KeyCode::PageUp => self.choose(-10),
            KeyCode::Home => self.choose(isize::MIN / 2),
            KeyCode::End => self.choose(isize::MAX / 2),
            KeyCode::Char('s') => {
                let (column, backwards) = self.sorted_by();
                let columns = self.view.columns().len();
                self.sort[self.view.place()] = ((column + 1) % columns, backwards);
            }
            KeyCode::Char('S') => {
                let sort = &mut self.sort[self.view.place()];
                sort.1 = !sort.1;
            }
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Esc if !self.filter.is_empty() => self.filter.clear(),
            KeyCode::Esc => self.job = None,
            KeyCode::Enter => self.enter(),
            KeyCode::Char('e') => return self.explain(),
            KeyCode::Char('c') => self.ask_to_cancel(),
            KeyCode::Char('r') => self.ask_to_retry(),
            _ => {}
        }
        Next::Nothing
    }

    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => _ = self.filter.pop(),
            KeyCode::Char(letter) => self.filter.push(letter),
            _ => {}
        }
    }

    fn show(&mut self, view: View) {
        self.view = view;
        self.chosen = None;
    }

    fn choose(&mut self, by: isize) {
        let rows = self.list();
        let last = rows.len().saturating_sub(1);
        let place = self.chosen_place(&rows).saturating_add_signed(by).min(last);
        self.chosen = rows.get(place).map(|row| row.subject);
    }

    fn subject(&self) -> Option<Subject> {
        let rows = self.list();
        rows.get(self.chosen_place(&rows)).map(|row| row.subject)
    }

    fn enter(&mut self) {
        if let Some(Subject::Job(job)) = self.subject() {
            self.show(View::Tasks);
            self.job = Some(job);
        }
    }

    fn explain(&mut self) -> Next {
        match self.subject() {
            Some(Subject::Task(task)) => Next::Ask(Order::Explain(task)),
            Some(Subject::Job(job)) => Next::Ask(Order::ExplainJob(job)),
            _ => {
                self.message = "choose a task or a job to explain".to_owned();
                Next::Nothing
            }
        }
    }

    fn ask_to_cancel(&mut self) {
        self.question = match self.subject() {
            Some(Subject::Job(job)) => Some((
                format!("Cancel what is left of job {}?", job.0),
                Order::CancelJob(job),
            )),
            Some(Subject::Task(task)) => {
                let question = format!("Cancel task {}?", task.0);
                Some((question, Order::CancelTask(task)))
            }
            _ => None,
        };
    }

    fn ask_to_retry(&mut self) {
        self.question = match self.subject() {
            Some(Subject::Job(job)) => Some((
                format!("Try what failed of job {} again?", job.0),
                Order::RetryJob(job),
            )),
            Some(Subject::Task(task)) => {
                let question = format!("Try task {} again?", task.0);
                Some((question, Order::RetryTask(task)))
            }
            _ => None,
        };
    }
}

fn agent_row(agent: &AgentInfo) -> Row {
    let busy = usize::try_from(agent.started).unwrap_or(usize::MAX);
    let width = 8;
    let slots = agent.slots.max(1) as usize;
    let filled = (busy.min(slots) * width).div_ceil(slots);
    let bar = "#".repeat(filled) + &".".repeat(width - filled);
    Row {
        subject: Subject::Agent(agent.id.0),
        is_gone: !agent.state.is_here(),
        cells: vec![
            Cell::text(&agent.name),
            Cell::text(agent.state.name()),
            Cell::measured(format!("{bar} {busy}/{}", agent.slots), busy as f64),
            Cell::number(agent.queue_length as f64),
            Cell::measured(format!("{:.2}", agent.speed), agent.speed),
            Cell::number(agent.total_completed as f64),
            Cell::number(agent.total_failed as f64),
            Cell::text(agent.capabilities.join(",")),
        ],
    }
}

fn job_row(job: &JobInfo) -> Row {
    let end = job.ended_unix_ms.unwrap_or_else(now_unix_ms);
    Row {
        subject: Subject::Job(job.id),
        is_gone: false,
        cells: vec![
            Cell::number(job.id.0 as f64),
            Cell::text(job.name.as_deref().unwrap_or("-")),
            Cell::text(&job.user),
            Cell::text(job.state.name()),
            Cell::number(job.tasks.over() as f64),
            Cell::number(job.tasks.total as f64),
            Cell::number(job.tasks.failed as f64),
            Cell::number(job.tasks.held as f64),
            time(Some(job.created_unix_ms), end),
        ],
    }
}

fn task_row(task: &TaskInfo) -> Row {
    let end = task.ended_unix_ms.unwrap_or_else(now_unix_ms);
    let is_timed = task.state.is_over() || task.state == TaskState::Running;
    Row {
        subject: Subject::Task(task.id),
        is_gone: false,
        cells: vec![
            Cell::number(task.id.0 as f64),
            Cell::number(task.job.0 as f64),
            Cell::text(task.state.name()),
            Cell::text(task.agent.as_deref().unwrap_or("-")),
            Cell::number(f64::from(task.attempts)),
            Cell::number(f64::from(task.moves)),
            time(task.started_unix_ms.filter(|_| is_timed), end),
            Cell::text(task.does.join(" ")),
        ],
    }
}

fn move_rows(look: &Look) -> Vec<Row> {
    let names: BTreeMap<u64, &str> = look
        .agents
        .iter()
        .map(|agent| (agent.id.0, agent.name.as_str()))
        .collect();
    let name = |id: u64| names.get(&id).map_or("gone", |name| *name);
    let now = now_unix_ms();
    let rows = look.moves.iter().filter_map(|event| {
        let EventKind::TaskMoved {
            task,
            from,
            to,
            reason,
        } = &event.kind
        else {
            return None;
        };
        let ago = now.saturating_sub(event.unix_ms) as f64 / 1000.0;
        Some(Row {
            subject: Subject::Move(event.sequence),
            is_gone: false,
            cells: vec![
                Cell::measured(format!("{ago:.0} s ago"), event.unix_ms as f64),
                Cell::number(task.0 as f64),
                Cell::text(name(to.0)),
                Cell::text(name(from.0)),
                Cell::text(reason.replace('_', " ")),
            ],
        })
    });
    rows.collect()
}

fn time(start: Option<u64>, end: u64) -> Cell {
    let Some(start) = start else {
        return Cell::measured("-".to_owned(), -1.0);
    };
    let took = Duration::from_millis(end.saturating_sub(start));
    let seconds = took.as_secs();
    let text = match seconds {
        0..60 => format!("{:.1}s", took.as_secs_f64()),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    };
    Cell::measured(text, took.as_secs_f64())
}

fn now_unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis() as u64)
}
