//! Screens of 80 by 24, without a terminal and without a server.

use loxley_api::{
    AgentInfo, AgentState, BalanceFigure, Event, EventKind, Figures, FleetInfo, Health, JobInfo,
    JobState, Needs, Problem, ServerInfo, Severity, TaskCounts, TaskInfo, TaskState,
};
use loxley_model::{AgentId, JobId, Priority, TaskId};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyModifiers};

use super::look::{Look, News, Order};
use super::model::{Model, Next};
use super::{draw, text_of};

fn agent(id: u64, name: &str, queued: u64) -> AgentInfo {
    AgentInfo {
        id: AgentId(id),
        name: name.to_owned(),
        incarnation: 1,
        state: AgentState::Alive,
        capabilities: vec!["python".to_owned()],
        suspended: Vec::new(),
        earned: Vec::new(),
        slots: 4,
        resources: Needs::default(),
        zone: None,
        speed: 1.0,
        kinds: Vec::new(),
        queue_length: queued,
        running: vec![TaskId(id), TaskId(id + 10)],
        started: 1,
        has_current_task: true,
        total_completed: 10,
        total_failed: 0,
        success_rate: 1.0,
        throttle: 0.0,
        round_trip_sec: None,
        vitals: std::collections::BTreeMap::new(),
        notes: Vec::new(),
        heard_unix_ms: None,
    }
}

fn task(id: u64) -> TaskInfo {
    TaskInfo {
        id: TaskId(id),
        job: JobId(3),
        name: None,
        entry: None,
        does: vec!["./work\x1b[2J".to_owned()],
        state: TaskState::Running,
        priority: Priority::NORMAL,
        agent: Some("one".to_owned()),
        attempts: 1,
        moves: 2,
        created_unix_ms: 0,
        started_unix_ms: None,
        ended_unix_ms: None,
        deadline_unix_ms: None,
        last: None,
    }
}

fn looked() -> Look {
    let tasks = TaskCounts {
        total: 12,
        running: 2,
        started: 2,
        queued: 3,
        succeeded: 7,
        ..TaskCounts::default()
    };
    Look {
        server: ServerInfo {
            version: "1.2.3".to_owned(),
            pid: 1,
            url: "https://127.0.0.1:7420".to_owned(),
            directory: "/d".to_owned(),
            started_unix_ms: 0,
            draining: false,
            jobs_open: 1,
            journal_position: 5,
            journal_bytes: 0,
            journal_unused_bytes: 0,
            disk_full: false,
            fleet: FleetInfo {
                agent_count: 2,
                tasks,
                ..FleetInfo::default()
            },
        },
        figures: Figures {
            balance: vec![BalanceFigure {
                name: "load imbalance".to_owned(),
                value: Some(1.5),
                target: 1.2,
                is_above: false,
                is_share: false,
                verdict: "missed".to_owned(),
            }],
            ..Figures::default()
        },
        health: Health {
            ok: false,
            problems: vec![Problem {
                severity: Severity::Critical,
                kind: "no_agents".to_owned(),
                message: "nobody is there".to_owned(),
                remedies: vec!["start one".to_owned()],
            }],
        },
        agents: vec![
            agent(1, "one", 1),
            agent(2, "two", 30),
            agent(3, "three", 4),
        ],
        jobs: vec![JobInfo {
            id: JobId(3),
            name: Some("night run".to_owned()),
            user: "ada".to_owned(),
            state: JobState::Open,
            tasks,
            first_task: TaskId(1),
            last_task: TaskId(12),
            open: false,
            after: Vec::new(),
            created_unix_ms: 0,
            ended_unix_ms: Some(61_000),
        }],
        tasks: vec![task(1), task(2)],
        tasks_more: 9,
        moves: vec![Event {
            sequence: 1,
            unix_ms: 0,
            kind: EventKind::TaskMoved {
                task: TaskId(1),
                from: AgentId(2),
                to: AgentId(1),
                reason: "stolen".to_owned(),
            },
        }],
    }
}

fn model() -> Model {
    let mut model = Model::new(false);
    model.seen(looked());
    model
}

fn screen(model: &Model) -> String {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("memory is a terminal");
    terminal
        .draw(|frame| draw::draw(frame, model))
        .expect("it can be drawn");
    text_of(terminal.backend())
}

fn press(model: &mut Model, keys: &str) -> Next {
    let mut next = Next::Nothing;
    for key in keys.chars() {
        let key = match key {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\x1b' => KeyCode::Esc,
            key => KeyCode::Char(key),
        };
        next = model.press(key, KeyModifiers::NONE);
    }
    next
}

/// The first words of the rows of the list.
fn firsts(model: &Model) -> Vec<String> {
    let rows = model.list();
    rows.iter().map(|row| row.cells[0].text.clone()).collect()
}

#[test]
fn a_small_screen_without_colour_says_it_all() {
    let model = model();
    let screen = screen(&model);
    for words in [
        "2 agents, 12 slots: 2 running, 3 queued, 0 waiting, 0 held, 0 failed, 7 done",
        "imbalance 1.50 !",
        "CRITICAL: nobody is there: start one",
        " 1 Agents  2 Jobs  3 Tasks  4 Moves",
        "one    alive ##...... 1/4 1",
        "q quit  Tab view  s sort  / filter",
    ] {
        assert!(screen.contains(words), "{words}\n{screen}");
    }
    assert_eq!(screen.lines().count(), 24);
}

#[test]
fn keys_sort_filter_and_open() {
    let mut model = model();
    assert_eq!(firsts(&model), ["one", "three", "two"]);
    // By the fourth column, numbers as numbers; then the other way round.
    press(&mut model, "sss");
    assert_eq!(firsts(&model), ["one", "three", "two"]);
    press(&mut model, "S");
    assert_eq!(firsts(&model), ["two", "three", "one"]);
    press(&mut model, "/THR\n");
    assert_eq!(firsts(&model), ["three"]);
    assert!(screen(&model).contains("only `THR`"));
    press(&mut model, "\x1b2\n");
    assert_eq!(model.focus(), Some(JobId(3)));
    let shown = screen(&model);
    assert!(shown.contains("of job 3"), "{shown}");
    assert!(shown.contains("9 more not shown"), "{shown}");
    press(&mut model, "\x1b");
    assert_eq!(model.focus(), None);
    press(&mut model, "\t");
    assert!(screen(&model).contains("stolen"));
    assert_eq!(press(&mut model, "q"), Next::Quit);
}

#[test]
fn agents_that_are_gone_stand_last_and_their_slots_do_not_count() {
    let mut model = model();
    let mut look = looked();
    look.agents[0].state = AgentState::Lost;
    model.hear(News::Seen(Box::new(look)));
    let order = firsts(&model);
    assert_eq!(order.last().map(String::as_str), Some("one"), "{order:?}");
    press(&mut model, "S");
    assert_eq!(firsts(&model).last().map(String::as_str), Some("one"));
    assert!(screen(&model).contains(" 8 slots:"), "{}", screen(&model));
}

#[test]
fn nothing_is_cancelled_without_a_yes() {
    let mut model = model();
    press(&mut model, "3jc");
    assert!(screen(&model).contains("Cancel task 2? y/n"));
    assert_eq!(press(&mut model, "n"), Next::Nothing);
    press(&mut model, "c");
    assert_eq!(
        press(&mut model, "y"),
        Next::Ask(Order::CancelTask(TaskId(2)))
    );
    assert_eq!(press(&mut model, "e"), Next::Ask(Order::Explain(TaskId(2))));
    model.hear(News::Told("task 2".to_owned(), vec!["It runs.".to_owned()]));
    assert!(screen(&model).contains("It runs."));
    // Any key puts it away, and does nothing else.
    assert_eq!(press(&mut model, "q"), Next::Nothing);
    assert!(!screen(&model).contains("It runs."));
}

#[test]
fn what_others_wrote_moves_no_cursor_and_a_server_that_is_away_is_said() {
    let mut model = model();
    press(&mut model, "3");
    assert!(!screen(&model).contains('\x1b'));
    model.hear(News::Failed("cannot reach the server".to_owned()));
    assert!(screen(&model).contains("AWAY: cannot reach the server; trying again"));
    model.hear(News::Seen(Box::new(looked())));
    assert!(!screen(&model).contains("AWAY"));
}
