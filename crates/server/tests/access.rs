//! Who may do what with whose things: over real sockets, with tokens that are made, used and taken back.

mod support;

use std::path::Path;
use std::time::Duration;

use loxley_agent::{AgentError, AgentOptions};
use loxley_api::{
    Access, AgentState, ApiError, ErrorCode, JobFilter, JobState, Role, TokenRequest,
};
use loxley_client::{Client, ClientError, command};
use loxley_config::{JobAccess, ServerSettings};
use loxley_model::TaskId;
use loxley_protocol as wire;
use loxley_protocol::agents_client::AgentsClient;
use loxley_server::ServerOptions;
use support::{PATIENCE, TestAgent, TestServer};

/// A token of this name, for the user of this name.
async fn token(server: &TestServer, name: &str, role: Role) -> Access {
    let admin = Client::new(&server.access).expect("an address");
    let request = TokenRequest::new(name, role);
    admin.create_token(&request).await.expect("a new name")
}

fn refusal<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> ApiError {
    match answer {
        Err(ClientError::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, future).await;
    done.unwrap_or_else(|_| panic!("{what}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_taken_back_ends_what_was_opened_with_it() {
    let scratch = tempfile::tempdir().expect("there is room");
    let server = TestServer::start(scratch.path()).await;
    let admin = Client::new(&server.access).expect("an address");
    let access = token(&server, "rack1", Role::Agent).await;
    let agent = TestAgent::start(AgentOptions::new(access, "a"));
    let looks = token(&server, "looks", Role::Read).await;
    let reader = Client::new(&looks).expect("an address");
    let mut events = reader.events(None);
    soon("it connects", events.connect())
        .await
        .expect("it may look");
    let job = admin
        .submit(&command(["sleep", "600"]))
        .await
        .expect("it is accepted");
    // The answer to this one waits for the job.
    let waiting = tokio::spawn(async move { reader.wait_job(job.id).await });
    loop {
        let task = admin
            .task(TaskId(job.first_task.0))
            .await
            .expect("it is there");
        if task.state == loxley_api::TaskState::Running {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    admin.revoke_token("looks").await.expect("it is there");
    let ended = async { while events.next().await.is_ok() {} };
    soon("the events end", ended).await;
    let waited = soon("the waiting ends", waiting)
        .await
        .expect("it does not panic");
    assert_eq!(refusal(waited).code, ErrorCode::Unauthorized);
    admin.revoke_token("rack1").await.expect("it is there");
    let ended = soon("the agent hears of it", agent.ended()).await;
    assert!(matches!(ended, Err(AgentError::Refused(_))), "{ended:?}");
    // Nobody speaks for it any more: what it ran waits for somebody else.
    loop {
        let agents = admin.agents().await.expect("it may look");
        if agents[0].state == AgentState::Lost {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_its_users_and_stands_for_one_content() {
    let scratch = tempfile::tempdir().expect("there is room");
    let server = TestServer::start(scratch.path()).await;
    let [ada, bob] = ["ada", "bob"].map(|name| token(&server, name, Role::Submit));
    let ada = Client::new(&ada.await).expect("an address");
    let bob = Client::new(&bob.await).expect("an address");
    let mut job = command(["true"]);
    job.key = Some("nightly".to_owned());
    let first = ada.submit(&job).await.expect("it is accepted");
    assert_eq!(ada.submit(&job).await.expect("the same").id, first.id);
    let other = bob.submit(&job).await.expect("another user's");
    assert_ne!(other.id, first.id);
    assert_eq!(other.user, "bob");
    let mut changed = command(["false"]);
    changed.key = job.key.clone();
    let refused = refusal(ada.submit(&changed).await);
    assert_eq!(refused.code, ErrorCode::Conflict);
    let digests: Vec<&str> = refused
        .message
        .split(|letter: char| !letter.is_ascii_hexdigit())
        .filter(|word| word.len() == 32)
        .collect();
    assert_eq!(digests.len(), 2, "{}", refused.message);
    assert_ne!(digests[0], digests[1]);
    // All of that survives a restart, with and without a snapshot.
    server.stop().await;
    let server = TestServer::start(scratch.path()).await;
    let again = server.handle.submit(&job, "ada").await.expect("the same");
    assert_eq!(again.id, first.id);
    let refused = server.handle.submit(&changed, "ada").await;
    assert_eq!(
        refused.expect_err("another content").code,
        ErrorCode::Conflict
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_name_of_an_agent_belongs_to_its_token_until_an_admin_frees_it() {
    let scratch = tempfile::tempdir().expect("there is room");
    let server = TestServer::start(scratch.path()).await;
    let admin = Client::new(&server.access).expect("an address");
    let rack = token(&server, "rack1", Role::Agent).await;
    let other = token(&server, "other", Role::Agent).await;
    let first = TestAgent::start(AgentOptions::new(rack.clone(), "prod-1"));
    until_here(&admin, 1).await;
    let id = admin.agents().await.expect("it may look")[0].id;
    let refused = refusal(admin.forget_agent(id).await);
    assert_eq!(refused.code, ErrorCode::Conflict, "it is here");
    first.stopper.stop();
    first.ended().await.expect("it was told to");
    until_here(&admin, 0).await;
    // While it is away, and after a restart, nobody else answers for it.
    server.stop().await;
    let server = TestServer::start(scratch.path()).await;
    let (rack, other) = (at(&rack, &server), at(&other, &server));
    let admin = Client::new(&server.access).expect("an address");
    let thief = TestAgent::start(AgentOptions::new(other.clone(), "prod-1"));
    let ended = soon("it is refused", thief.ended()).await;
    let Err(AgentError::Refused(why)) = ended else {
        panic!("{ended:?}");
    };
    assert!(why.contains("belongs to the token `rack1`"), "{why}");
    let back = TestAgent::start(AgentOptions::new(rack, "prod-1"));
    until_here(&admin, 1).await;
    back.stopper.stop();
    back.ended().await.expect("it was told to");
    until_here(&admin, 0).await;
    // It counts as gone when it has been silent for long enough.
    let forgotten = async {
        while let Err(refused) = admin.forget_agent(id).await {
            assert_eq!(refusal(Err::<(), _>(refused)).code, ErrorCode::Conflict);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("it is gone", forgotten).await;
    let heir = TestAgent::start(AgentOptions::new(other, "prod-1"));
    until_here(&admin, 1).await;
    heir.stopper.stop();
    heir.ended().await.expect("it was told to");
    server.stop().await;
}

/// The same token, for a server that has moved to another port.
fn at(access: &Access, server: &TestServer) -> Access {
    Access {
        url: server.access.url.clone(),
        ..access.clone()
    }
}

async fn until_here(admin: &Client, count: usize) {
    let reached = async {
        loop {
            let agents = admin.agents().await.expect("it may look");
            let alive = agents
                .iter()
                .filter(|agent| agent.state == AgentState::Alive);
            if alive.count() == count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon("agents come and go", reached).await;
}

async fn start_with(directory: &Path, jobs: JobAccess) -> TestServer {
    let settings = ServerSettings {
        jobs,
        ..ServerSettings::default()
    };
    TestServer::start_with(ServerOptions {
        settings: Some(settings),
        config: support::quick_config(),
        ..ServerOptions::new(directory.to_owned())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_their_users_unless_the_server_says_that_they_are_shared() {
    for jobs in [JobAccess::Own, JobAccess::Shared] {
        let scratch = tempfile::tempdir().expect("there is room");
        let server = start_with(scratch.path(), jobs).await;
        let ada = Client::new(&token(&server, "ada", Role::Submit).await).expect("an address");
        let bob = Client::new(&token(&server, "bob", Role::Submit).await).expect("an address");
        let reader = Client::new(&token(&server, "eve", Role::Read).await).expect("an address");
        let admin = Client::new(&server.access).expect("an address");
        let job = ada
            .submit(&command(["true"]))
            .await
            .expect("it is accepted");
        let task = job.first_task;
        let shared = jobs == JobAccess::Shared;
        let may = |answer: Result<(), ClientError>, what: &str| match answer {
            Ok(()) => assert!(shared, "{what} was allowed"),
            Err(ClientError::Refused(refused)) if refused.code == ErrorCode::Forbidden => {
                assert!(!shared, "{what} was forbidden");
            }
            // The task has not failed, and is not over.
            Err(ClientError::Refused(_)) if shared => {}
            Err(other) => panic!("{what}: {other}"),
        };
        may(bob.job(job.id).await.map(drop), "info");
        may(
            bob.tasks(job.id, &Default::default()).await.map(drop),
            "tasks",
        );
        may(bob.task(task).await.map(drop), "task");
        may(bob.output(task).await.map(drop), "output");
        may(bob.result(task).await.map(drop), "result");
        may(bob.explain(task).await.map(drop), "explain");
        may(bob.ends(&[task]).await.map(drop), "ends");
        may(bob.retry_job(job.id).await.map(drop), "retry");
        let seen = bob.jobs(&JobFilter::default()).await.expect("it may look");
        assert_eq!(seen.items.len(), usize::from(shared));
        may(bob.cancel_task(task).await.map(drop), "cancel");
        // Looking is what the role is for; the owner and the admin may all of it.
        reader.output(task).await.expect("it may look");
        ada.job(job.id).await.expect("it is hers");
        let second = ada
            .submit(&command(["true"]))
            .await
            .expect("it is accepted");
        let cancelled = ada.cancel_job(second.id).await.expect("it is hers");
        assert_eq!(cancelled.state, JobState::Cancelled);
        admin.cancel_job(job.id).await.expect("it may everything");
        server.stop().await;
        // The setting stays what it was.
        let server = TestServer::start(scratch.path()).await;
        assert_eq!(server.context.settings().jobs, jobs);
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_one_version_apart_are_welcome_and_work() {
    let scratch = tempfile::tempdir().expect("there is room");
    // It sends no heartbeats: nobody is given up in the time of this test.
    let options = ServerOptions::new(scratch.path().to_owned());
    let server = TestServer::start_with(options).await;
    let admin = Client::new(&server.access).expect("an address");
    for (version, spoken) in [
        (wire::VERSION - 1, wire::VERSION - 1),
        (wire::VERSION, wire::VERSION),
        (wire::VERSION + 1, wire::VERSION),
    ] {
        let agent = FakeAgent::connect(&server.access, version).await;
        let mut agent = agent.expect("it is welcome");
        assert_eq!(agent.welcome.version, spoken);
        let job = server.handle.submit(&command(["true"]), "me").await;
        let job = job.expect("it is accepted");
        agent.finish_one().await;
        assert_eq!(server.over(job.id).await.state, JobState::Succeeded);
        drop(agent);
        until_here(&admin, 0).await;
    }
    for version in [wire::VERSION - 2, wire::VERSION + 2] {
        let refused = FakeAgent::connect(&server.access, version).await;
        let refused = refused.err().expect("two versions apart");
        assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    }
    server.stop().await;
}

/// Speaks the protocol by hand.
struct FakeAgent {
    welcome: wire::Welcome,
    said: tokio::sync::mpsc::Sender<wire::AgentFrame>,
    heard: tonic::Streaming<wire::ServerFrame>,
    first: Option<wire::ServerFrame>,
}

impl FakeAgent {
    async fn connect(access: &Access, version: u32) -> Result<Self, tonic::Status> {
        let (said, frames) = tokio::sync::mpsc::channel(8);
        let hello = wire::Hello {
            version,
            name: format!("version {version}"),
            process: 1,
            slots: 1,
            speed: 1.0,
            ..wire::Hello::default()
        };
        let first = wire::AgentFrame {
            hello: Some(hello),
            ..wire::AgentFrame::default()
        };
        said.send(first).await.expect("there is room");
        let frames = tokio_stream::wrappers::ReceiverStream::new(frames);
        let mut request = tonic::Request::new(frames);
        // In lower case, as HTTP allows.
        let token = format!("bearer {}", access.token.reveal());
        let token = token.parse().expect("a token is text");
        request.metadata_mut().insert("authorization", token);
        let mut client = AgentsClient::new(support::channel(access).await);
        let mut heard = client.session(request).await?.into_inner();
        let first = heard.message().await?.expect("a welcome");
        Ok(Self {
            welcome: first.welcome.clone().expect("a welcome"),
            said,
            heard,
            first: Some(first),
        })
    }

    async fn finish_one(&mut self) {
        loop {
            let frame = match self.first.take() {
                Some(frame) => frame,
                None => self
                    .heard
                    .message()
                    .await
                    .expect("it stands")
                    .expect("a frame"),
            };
            let Some(assign) = frame.assign.first() else {
                continue;
            };
            let finished = wire::Finished {
                task: assign.task,
                lease: assign.lease,
                ..wire::Finished::default()
            };
            let frame = wire::AgentFrame {
                number: 1,
                finished: vec![finished],
                ..wire::AgentFrame::default()
            };
            return self.said.send(frame).await.expect("it listens");
        }
    }
}
