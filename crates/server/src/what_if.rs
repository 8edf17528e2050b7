//! What another configuration, fleet or load would have done with the work in this server's own journal.
//!
//! It runs in virtual time with the real scheduler (`crates/replay`), on one thread, one question at a time: who looks
//! ahead must not slow down what runs. What is too much for that is said, and `loxley replay` does it elsewhere.

use loxley_api::{ApiError, ErrorCode, WhatIfFigure, WhatIfReport, WhatIfRequest, WhatIfRow};
use loxley_journal::Journal;
use loxley_replay::{
    Comparison, Figure, Impossible, Lane, ReadError, Recording, WhatIf, WhatIfError, compare,
    fleet_setup, lanes, simulate,
};

/// Of a longer journal the last so many tasks are looked at.
const TASKS_MAX: usize = 100_000;
/// So many tasks are simulated for one answer, at most: some seconds.
const SIMULATED_MAX: usize = 1_000_000;
const SEEDS: u32 = 10;
const SEEDS_MIN: u32 = 2;
const SEEDS_MAX: u32 = 50;
const COLUMNS: usize = 200;

/// Answers from a journal that begins at this moment since 1970.
pub(crate) fn answer(
    request: &WhatIfRequest,
    journal: &mut dyn Journal,
    epoch_unix_ns: u64,
) -> Result<WhatIfReport, ApiError> {
    let asked = asked(request)?;
    let mut recording = Recording::read(journal).map_err(|error| unreadable(&error))?;
    let mut notes = recording.notes().to_vec();
    let all = recording.task_count();
    if all > TASKS_MAX {
        let from = 1.0 - TASKS_MAX as f64 / all as f64;
        recording = recording.part(from, 1.0).ok_or_else(too_much)?;
        let kept = recording.task_count();
        notes.push(format!(
            "of {all} tasks the last {kept} are looked at; `loxley replay` looks at all"
        ));
    }
    let as_recorded = WhatIf::as_recorded();
    // Mistakes before anything takes its time.
    for what_if in asked.iter().chain([&as_recorded]) {
        fleet_setup(&recording, what_if).map_err(|error| mistaken(&error))?;
    }
    let happened = recording.figures();
    let again = simulate(&recording, &as_recorded, 0).map_err(|error| impossible(&error))?;
    let comparison = match &asked {
        Some(what_if) => Some(side_by_side(&recording, &as_recorded, what_if, request)?),
        None => None,
    };
    let figures = Figure::ALL.map(|figure| {
        let (was, simulated) = (happened.get(figure), again.figures.get(figure));
        let difference = comparison.as_ref().map(|all| all.difference(1, figure));
        let values = [was, simulated].into_iter();
        let values = values.chain(difference.iter().flat_map(|one| [one.before, one.after]));
        WhatIfFigure {
            name: figure.name().to_owned(),
            title: figure.title().to_owned(),
            happened: was,
            simulated,
            error: figure.error(was, simulated),
            before: difference.map(|one| one.before),
            after: difference.map(|one| one.after),
            half_width: difference.map(|one| one.change.half_width),
            more_than_noise: difference.is_some_and(|one| one.is_real()),
            shown: values.map(|value| figure.shown(value)).collect(),
        }
    });
    let verdicts = comparison.iter().flat_map(|comparison| {
        let figures = Figure::ALL.into_iter();
        figures.filter_map(|figure| comparison.verdict(1, figure))
    });
    let would = asked.as_ref().unwrap_or(&as_recorded);
    let other = simulate(&recording, would, 0).map_err(|error| impossible(&error))?;
    let spans = [&happened, &again.figures, &other.figures].map(|one| one.get(Figure::Makespan));
    let longest = spans.into_iter().fold(0.0, f64::max);
    let column = (longest * 1e9 / COLUMNS as f64).ceil().max(1.0) as u64;
    let rows = |what_if: Option<&WhatIf>| {
        let lanes = lanes(&recording, what_if, column, COLUMNS);
        let lanes = lanes.map_err(|error| impossible(&error))?;
        Ok::<_, ApiError>(lanes.iter().map(row).collect())
    };
    Ok(WhatIfReport {
        label: would.label.clone(),
        tasks: recording.task_count() as u64,
        from_unix_ms: (epoch_unix_ns + recording.begin().0) as f64 / 1e6,
        seeds: comparison
            .as_ref()
            .map_or(0, |all| all.runs[0].len() as u32),
        verdicts: verdicts.collect(),
        figures: figures.into(),
        notes,
        column_ms: column as f64 / 1e6,
        was: rows(None)?,
        would: rows(Some(would))?,
    })
}

/// What is to be different; none when nothing is.
fn asked(request: &WhatIfRequest) -> Result<Option<WhatIf>, ApiError> {
    let mut all = Vec::new();
    for text in &request.set {
        all.push(WhatIf::set(text));
    }
    all.extend(
        request
            .more_agents
            .map(|more| WhatIf::agents(&format!("+{more}"))),
    );
    all.extend(request.without.iter().map(|name| Ok(WhatIf::without(name))));
    all.extend(request.load.map(|load| WhatIf::load(&format!("x{load}"))));
    let all = all.into_iter().collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|error| mistaken(&error))?;
    Ok(all.into_iter().reduce(WhatIf::and))
}

fn side_by_side(
    recording: &Recording,
    as_recorded: &WhatIf,
    what_if: &WhatIf,
    request: &WhatIfRequest,
) -> Result<Comparison, ApiError> {
    let load = what_if.load.unwrap_or(1.0).max(1.0);
    let tasks_of_a_pair = (recording.task_count() as f64 * (1.0 + load)).max(1.0);
    let affordable = (SIMULATED_MAX as f64 / tasks_of_a_pair) as u32;
    if affordable < SEEDS_MIN {
        return Err(too_much());
    }
    let wanted = request.seeds.unwrap_or(SEEDS).clamp(SEEDS_MIN, SEEDS_MAX);
    let seeds: Vec<u64> = (1..=u64::from(wanted.min(affordable))).collect();
    let variants = [as_recorded.clone(), what_if.clone()];
    let one_after_the_other =
        |count: usize, body: &(dyn Fn(usize) + Sync)| (0..count).for_each(body);
    compare(recording, &variants, &seeds, &one_after_the_other, &|| {})
        .map_err(|error| impossible(&error))
}

fn row(lane: &Lane) -> WhatIfRow {
    let thousandths = |share: &f64| (share * 1000.0).round().min(1000.0) as u16;
    WhatIfRow {
        name: lane.name.clone(),
        slots: lane.slots,
        busy: lane.busy.iter().map(thousandths).collect(),
    }
}

fn unreadable(error: &ReadError) -> ApiError {
    match error {
        ReadError::Empty => ApiError::new(ErrorCode::Conflict, "no task has run to its end yet")
            .with_help("ask again when one has"),
        error => ApiError::new(ErrorCode::Internal, chain(error)),
    }
}

fn mistaken(error: &WhatIfError) -> ApiError {
    ApiError::invalid(chain(error))
}

fn impossible(error: &Impossible) -> ApiError {
    ApiError::invalid(chain(error))
}

fn too_much() -> ApiError {
    let message = "that is more work than a server that has other things to do runs again";
    ApiError::new(ErrorCode::TooLarge, message)
        .with_help("`loxley replay` does it on another machine: it reads the journal by the access file of an admin")
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        text = format!("{text}: {deeper}");
        cause = deeper.source();
    }
    text
}
