//! The words of the HTTP API, shared by the server, its clients and its agents.
//!
//! ```text
//!  client ── JobRequest ──▶ server          every answer is a JSON object of this crate,
//!         ◀── JobInfo ─────                 every refusal an ErrorBody
//!  both read an access file: where the server is, what its certificate is, who we are to it
//! ```
//!
//! What must stay true: a request is checked once, by [`JobRequest::check`], when it comes in, and
//! nobody checks it again; unknown keys of a request are refused, unknown keys of an answer are
//! passed over, so that a newer server can be asked by an older client.
//!
//! Durations are seconds (`_sec`), moments are milliseconds since 1970 (`_unix_ms`), sizes are bytes.

mod access;
mod blob;
mod check;
mod directory;
mod error;
mod event;
mod figures;
mod forecast;
mod graph;
mod info;
mod journal;
mod json;
mod mark;
mod request;
mod result;
mod role;
mod session;
mod timeline;
#[cfg(feature = "tls")]
mod tls;
mod token;
mod trace_parent;
mod tuning;
mod user;
mod what_if;

pub use access::{Access, AccessError, HOLDER_HEADER, SHARD_HEADER};
pub use blob::Blob;
pub use check::{
    BODY_BYTES_MAX, ENTRIES_MAX, ENVIRONMENT_MAX, LIST_MAX, NAME_BYTES_MAX, SECONDS_MAX, TASKS_MAX,
    WORDS_MAX,
};
pub use directory::{DirectoryError, data_directory};
pub use error::{ApiError, ErrorBody, ErrorCode};
pub use event::{Event, EventKind, SkillChange};
pub use figures::{BalanceFigure, Figures, PriorityWait, UserShare};
pub use forecast::{ForecastInfo, WorkForecastInfo};
pub use graph::{GraphNode, JobGraph};
pub use info::{
    AgentInfo, AgentKind, AgentState, AttemptInfo, ClusterInfo, Explanation, FleetInfo, Health,
    InstanceInfo, InstanceState, JobInfo, OutputTail, Page, Problem, PruneReport, PruneRequest,
    ReplicaInfo, Replication, ServerInfo, Severity, ShardInfo, TaskCounts, TaskInfo, TaskState,
    TokenInfo, Usage,
};
pub use journal::{JournalGroup, JournalInfo};
pub use loxley_model::{DependencyFailure, JobState, Rerun, Unplaceable};
pub use mark::{MarkFilter, Marks};
pub use request::{
    CommandRequest, ConfigRequest, Entries, ExtendRequest, FallbackRequest, FunctionRequest,
    JobFilter, JobRequest, LogRequest, Near, Needs, Numbers, OutputRule, RetryRequest,
    RevokeRequest, TaskFilter, TaskRequest, TokenRequest, TracesRequest, Work,
};
pub use result::{
    EndsRequest, PIECE_BYTES_MAX, RESULT_BYTES_MAX, RESULT_INLINE_MAX, ResultName, ResultReference,
    TaskEnd,
};
pub use role::{Permission, Role};
pub use session::{Link, LinkRequest, Session, SessionInfo};
pub use timeline::{
    FigureHistory, SpanKind, Timeline, TimelineAgent, TimelineFilter, TimelineSpan,
};
#[cfg(feature = "tls")]
pub use tls::{PinnedServer, client_config};
pub use token::{Fingerprint, Token, TokenHash};
pub use trace_parent::{TRACEPARENT_HEADER, TRACEPARENT_VARIABLE, is_traceparent};
pub use tuning::{TunedSetting, TuningInfo, TuningStep, TuningTrial};
pub use user::{UserInfo, UserWeightRequest};
pub use what_if::{WhatIfFigure, WhatIfReport, WhatIfRequest, WhatIfRow};

/// The port of a server when nobody says otherwise.
pub const DEFAULT_PORT: u16 = 7420;
