//! Steps of tasks as spans.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use loxley_driver::explain_text::failure_word;
use loxley_engine::{NamedAgent, TaskStep, TaskStepKind};
use loxley_model::{Failure, JobId, JobState, Lease, TaskId, Time};
use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanContext, SpanId, Status, TraceContextExt, TraceFlags, TraceId,
    TraceState, Tracer,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{SdkTracer, Span};

/// So many open jobs and tasks are followed; what comes beyond has no span.
const OPEN_MAX: usize = 100_000;
const STATE: &str = "loxley.state";
/// The state of a span whose end nobody saw: traces were switched off, or the server ended.
const STILL_OPEN: &str = "still_open";

/// Jobs and tasks that have begun.
#[derive(Debug)]
pub(super) struct TaskSpans {
    tracer: SdkTracer,
    /// When the engine's clock began.
    epoch: SystemTime,
    jobs: HashMap<JobId, OpenJob>,
    tasks: HashMap<TaskId, OpenTask>,
}

#[derive(Debug)]
struct OpenJob {
    context: Context,
    accepted: SystemTime,
}

#[derive(Debug)]
struct OpenTask {
    /// Its own span, in which the others are.
    context: Context,
    queued: Option<Span>,
    attempts: Vec<OpenAttempt>,
}

#[derive(Debug)]
struct OpenAttempt {
    lease: Lease,
    assigned_at: SystemTime,
    /// `assigned` until it runs, then `run`.
    span: Span,
    is_running: bool,
    attributes: Vec<KeyValue>,
}

impl TaskSpans {
    pub(super) fn new(tracer: SdkTracer, epoch: SystemTime) -> Self {
        Self {
            tracer,
            epoch,
            jobs: HashMap::new(),
            tasks: HashMap::new(),
        }
    }

    pub(super) fn hear_all(&mut self, steps: &[TaskStep]) {
        for step in steps {
            self.hear(step);
        }
    }

    /// Ends whatever is open, and says of it that nobody saw its end.
    pub(super) fn give_up(&mut self, at: SystemTime) {
        for (_, mut task) in self.tasks.drain() {
            task.end_parts(at, STILL_OPEN);
            end_context(&task.context, at, STILL_OPEN, None);
        }
        for (_, job) in self.jobs.drain() {
            end_context(&job.context, at, STILL_OPEN, None);
        }
    }

    fn hear(&mut self, step: &TaskStep) {
        let at = self.epoch + Duration::from_nanos(step.at.since(Time(0)).0);
        match &step.kind {
            TaskStepKind::JobAccepted { .. } => self.job_accepted(at, &step.kind),
            TaskStepKind::Queued {
                task,
                job,
                agent,
                moved,
            } => self.queued(at, (*task, *job), agent, moved.as_ref()),
            TaskStepKind::Assigned { .. } => self.assigned(at, &step.kind),
            TaskStepKind::Started { task, lease } => self.started(at, *task, *lease),
            TaskStepKind::Yielded { task, lease } => self.stopped(at, *task, *lease, "given_back"),
            TaskStepKind::Stopped { task, lease, why } => self.stopped(at, *task, *lease, why),
            TaskStepKind::AttemptEnded {
                task,
                lease,
                ran,
                failure,
                exit_code,
            } => {
                let begun = at.checked_sub(Duration::from_nanos(ran.0)).unwrap_or(at);
                self.started(begun, *task, *lease);
                self.attempt_ended(at, (*task, *lease), *failure, *exit_code);
            }
            TaskStepKind::WillRetry { task, failure } => {
                if let Some(task) = self.tasks.get(task) {
                    let why = KeyValue::new("loxley.failure", failure_word(*failure));
                    let span = task.context.span();
                    span.add_event_with_timestamp("will_retry", at, vec![why]);
                }
            }
            TaskStepKind::TaskEnded {
                task,
                job,
                state,
                failure,
            } => {
                self.open(at, *task, *job);
                if let Some(mut open) = self.tasks.remove(task) {
                    open.end_parts(at, state.name());
                    end_context(&open.context, at, state.name(), failure.map(failure_word));
                }
            }
            TaskStepKind::JobEnded { job, state } => {
                if let Some(open) = self.jobs.remove(job) {
                    let failure = (*state == JobState::Failed).then_some("a task failed");
                    end_context(&open.context, at, state.name(), failure);
                }
            }
        }
    }

    fn job_accepted(&mut self, at: SystemTime, step: &TaskStepKind) {
        let TaskStepKind::JobAccepted {
            job,
            name,
            user,
            tasks,
            traceparent,
        } = step
        else {
            return;
        };
        if self.jobs.len() >= OPEN_MAX {
            return;
        }
        let mut attributes = vec![
            number("loxley.job", job.0),
            number("loxley.tasks", *tasks),
            KeyValue::new("loxley.user", user.clone()),
        ];
        let name = name.clone();
        attributes.extend(name.map(|name| KeyValue::new("loxley.job.name", name)));
        let parent = traceparent.as_deref().and_then(remote_parent);
        let parent = parent.unwrap_or_default();
        let span = self.span("job", at, attributes, &parent);
        let context = Context::new().with_span(span);
        let accepted = at;
        self.jobs.insert(*job, OpenJob { context, accepted });
    }

    /// The open span of a task. It began with its job, if that is known.
    fn open(&mut self, at: SystemTime, task: TaskId, job: JobId) -> Option<&mut OpenTask> {
        if !self.tasks.contains_key(&task) && self.tasks.len() < OPEN_MAX {
            let known = self.jobs.get(&job);
            let begun = known.map_or(at, |job| job.accepted);
            let parent = known.map(|job| job.context.clone()).unwrap_or_default();
            let attributes = vec![number("loxley.task", task.0), number("loxley.job", job.0)];
            let span = self.span("task", begun, attributes, &parent);
            let open = OpenTask {
                context: Context::new().with_span(span),
                queued: None,
                attempts: Vec::new(),
            };
            self.tasks.insert(task, open);
        }
        self.tasks.get_mut(&task)
    }

    fn queued(
        &mut self,
        at: SystemTime,
        (task, job): (TaskId, JobId),
        agent: &NamedAgent,
        moved: Option<&(NamedAgent, &'static str)>,
    ) {
        let Some(open) = self.open(at, task, job) else {
            return;
        };
        open.end_queued(at);
        open.note_move(at, moved, agent);
        let mut attributes = on_agent(agent);
        if let Some((from, why)) = moved {
            attributes.push(KeyValue::new("loxley.moved_from", from.name.clone()));
            attributes.push(KeyValue::new("loxley.why", *why));
        }
        let context = open.context.clone();
        let span = self.span("queued", at, attributes, &context);
        if let Some(open) = self.tasks.get_mut(&task) {
            open.queued = Some(span);
        }
    }

    fn assigned(&mut self, at: SystemTime, step: &TaskStepKind) {
        let TaskStepKind::Assigned {
            task,
            job,
            agent,
            lease,
            attempt,
            moved,
            is_second_copy,
        } = step
        else {
            return;
        };
        let Some(open) = self.open(at, *task, *job) else {
            return;
        };
        open.end_queued(at);
        if !is_second_copy {
            // What came of them nobody will say any more.
            open.end_attempts(at, "lost");
        }
        open.note_move(at, moved.as_ref(), agent);
        let mut attributes = on_agent(agent);
        attributes.push(number("loxley.attempt", u64::from(*attempt)));
        attributes.push(number("loxley.lease", lease.0));
        attributes.push(KeyValue::new("loxley.second_copy", *is_second_copy));
        let context = open.context.clone();
        let span = self.span("assigned", at, attributes.clone(), &context);
        if let Some(open) = self.tasks.get_mut(task) {
            open.attempts.push(OpenAttempt {
                lease: *lease,
                assigned_at: at,
                span,
                is_running: false,
                attributes,
            });
        }
    }

    /// It runs since then, unless that was said before.
    fn started(&mut self, at: SystemTime, task: TaskId, lease: Lease) {
        let tracer = &self.tracer;
        let Some(open) = self.tasks.get_mut(&task) else {
            return;
        };
        let context = open.context.clone();
        let attempt = open.attempts.iter_mut().find(|open| open.lease == lease);
        let Some(attempt) = attempt.filter(|attempt| !attempt.is_running) else {
            return;
        };
        // The clock of the agent is another one: what it measured may begin before we had given it the task.
        let at = at.max(attempt.assigned_at);
        attempt.span.end_with_timestamp(at);
        let attributes = std::mem::take(&mut attempt.attributes);
        let builder = SpanBuilder::from_name("run").with_start_time(at);
        let builder = builder.with_attributes(attributes);
        attempt.span = tracer.build_with_context(builder, &context);
        attempt.is_running = true;
    }

    fn attempt_ended(
        &mut self,
        at: SystemTime,
        (task, lease): (TaskId, Lease),
        failure: Option<Failure>,
        exit_code: Option<i32>,
    ) {
        let Some(open) = self.tasks.get_mut(&task) else {
            return;
        };
        let Some(mut attempt) = open.take(lease) else {
            return;
        };
        if let Some(code) = exit_code {
            let code = KeyValue::new("process.exit.code", i64::from(code));
            attempt.span.set_attribute(code);
        }
        let state = match failure {
            None => "succeeded",
            Some(failure) => {
                attempt
                    .span
                    .set_status(Status::error(failure_word(failure)));
                "failed"
            }
        };
        attempt.end(at, state);
    }

    fn stopped(&mut self, at: SystemTime, task: TaskId, lease: Lease, why: &'static str) {
        let open = self.tasks.get_mut(&task);
        if let Some(attempt) = open.and_then(|open| open.take(lease)) {
            attempt.end(at, why);
        }
    }

    fn span(
        &self,
        name: &'static str,
        at: SystemTime,
        attributes: Vec<KeyValue>,
        parent: &Context,
    ) -> Span {
        let builder = SpanBuilder::from_name(name).with_start_time(at);
        let builder = builder.with_attributes(attributes);
        self.tracer.build_with_context(builder, parent)
    }
}

impl OpenTask {
    fn take(&mut self, lease: Lease) -> Option<OpenAttempt> {
        let place = self.attempts.iter().position(|open| open.lease == lease)?;
        Some(self.attempts.swap_remove(place))
    }

    fn end_queued(&mut self, at: SystemTime) {
        if let Some(mut queued) = self.queued.take() {
            queued.end_with_timestamp(at);
        }
    }

    fn end_attempts(&mut self, at: SystemTime, state: &'static str) {
        for attempt in self.attempts.drain(..) {
            attempt.end(at, state);
        }
    }

    fn end_parts(&mut self, at: SystemTime, state: &'static str) {
        self.end_queued(at);
        self.end_attempts(at, state);
    }

    fn note_move(
        &self,
        at: SystemTime,
        moved: Option<&(NamedAgent, &'static str)>,
        to: &NamedAgent,
    ) {
        if let Some((from, why)) = moved {
            let attributes = vec![
                KeyValue::new("loxley.moved_from", from.name.clone()),
                KeyValue::new("loxley.moved_to", to.name.clone()),
                KeyValue::new("loxley.why", *why),
            ];
            let span = self.context.span();
            span.add_event_with_timestamp("moved", at, attributes);
        }
    }
}

impl OpenAttempt {
    fn end(mut self, at: SystemTime, state: &'static str) {
        self.span.set_attribute(KeyValue::new(STATE, state));
        self.span.end_with_timestamp(at.max(self.assigned_at));
    }
}

fn end_context(context: &Context, at: SystemTime, state: &'static str, failure: Option<&str>) {
    let span = context.span();
    span.set_attribute(KeyValue::new(STATE, state));
    if let Some(failure) = failure {
        span.set_status(Status::error(failure.to_owned()));
    }
    span.end_with_timestamp(at);
}

fn on_agent(agent: &NamedAgent) -> Vec<KeyValue> {
    vec![
        KeyValue::new("loxley.agent", agent.name.clone()),
        number("loxley.agent.id", agent.id.0),
    ]
}

fn number(name: &'static str, value: u64) -> KeyValue {
    KeyValue::new(name, i64::try_from(value).unwrap_or(i64::MAX))
}

/// The span of somebody else that a `traceparent` names.
fn remote_parent(traceparent: &str) -> Option<Context> {
    let mut parts = traceparent.split('-').skip(1);
    let trace = TraceId::from_hex(parts.next()?).ok()?;
    let span = SpanId::from_hex(parts.next()?).ok()?;
    let flags = u8::from_str_radix(parts.next()?, 16).ok()?;
    let flags = TraceFlags::new(flags);
    let parent = SpanContext::new(trace, span, flags, true, TraceState::default());
    Some(Context::new().with_remote_span_context(parent))
}
