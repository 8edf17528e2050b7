//! Peers that do not keep to the rules cost nobody but themselves.

mod support;

use std::time::Duration;

use loxley_api::{Access, Role, Token, TokenRequest};
use loxley_protocol as wire;
use loxley_protocol::agents_client::AgentsClient;
use support::{PATIENCE, TestServer, address, array, channel, function, tls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::{Code, Status};

/// What an HTTP request is answered with.
async fn ask(access: &Access, head: &str) -> String {
    let mut stream = tls(access, "http/1.1").await.expect("the server is there");
    let request = format!("{head}\r\nHost: loxley\r\nConnection: close\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .await
        .expect("it listens");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Opens a session with these frames and returns how it was refused.
async fn refused(access: &Access, token: &Token, frames: Vec<wire::AgentFrame>) -> Status {
    let client = AgentsClient::new(channel(access).await);
    let mut client = client.max_encoding_message_size(usize::MAX);
    let mut request = tonic::Request::new(tokio_stream::iter(frames));
    let token = format!("Bearer {}", token.reveal());
    let token = token.parse().expect("a token is text");
    request.metadata_mut().insert("authorization", token);
    let session = tokio::time::timeout(PATIENCE, client.session(request)).await;
    match session.expect("an answer comes") {
        Err(status) => status,
        Ok(answer) => {
            let mut stream = answer.into_inner();
            loop {
                match stream.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => return Status::ok("the server hung up"),
                    Err(status) => return status,
                }
            }
        }
    }
}

fn hello(change: impl FnOnce(&mut wire::Hello)) -> Vec<wire::AgentFrame> {
    let mut hello = wire::Hello {
        version: wire::VERSION,
        name: "stranger".to_owned(),
        process: 1,
        slots: 1,
        speed: 1.0,
        ..wire::Hello::default()
    };
    change(&mut hello);
    vec![wire::AgentFrame {
        hello: Some(hello),
        ..wire::AgentFrame::default()
    }]
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_there_is_nothing_to_see() {
    let scratch = tempfile::tempdir().expect("there is room");
    let server = TestServer::start(scratch.path()).await;
    let paths = [
        "/v1/server",
        "/v1/jobs",
        "/metrics",
        "/openapi.json",
        "/v1/no-such-thing",
    ];
    for path in paths {
        for header in [
            "X: y",
            "Authorization: Bearer wrong",
            "Authorization: Basic YTpi",
        ] {
            let answer = ask(&server.access, &format!("GET {path} HTTP/1.1\r\n{header}")).await;
            assert!(answer.starts_with("HTTP/1.1 401"), "{path}: {answer}");
        }
    }
    let token = server.access.token.reveal();
    let head = format!("GET /v1/no-such-thing HTTP/1.1\r\nAuthorization: Bearer {token}");
    assert!(ask(&server.access, &head).await.starts_with("HTTP/1.1 404"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_makes_no_sense_is_refused_with_a_reason() {
    let scratch = tempfile::tempdir().expect("there is room");
    let server = TestServer::start(scratch.path()).await;
    let access = &server.access;
    let cases = [
        (vec![wire::AgentFrame::default()], Code::InvalidArgument),
        (hello(|hello| hello.version = 99), Code::FailedPrecondition),
        (hello(|hello| hello.name.clear()), Code::InvalidArgument),
        (
            hello(|hello| hello.name = "a\nb".to_owned()),
            Code::InvalidArgument,
        ),
        (hello(|hello| hello.slots = 0), Code::InvalidArgument),
        (hello(|hello| hello.speed = f64::NAN), Code::InvalidArgument),
        (
            hello(|hello| hello.skills = vec![" ".to_owned()]),
            Code::InvalidArgument,
        ),
        (
            hello(|hello| hello.host = "x".repeat(wire::FRAME_MAX + 1)),
            Code::OutOfRange,
        ),
    ];
    for (frames, code) in cases {
        let status = refused(access, &access.token, frames).await;
        assert_eq!(status.code(), code, "{status:?}");
    }
    let submitter = TokenRequest::new("submitter", Role::Submit);
    let token = server.context.gate.create(&submitter).expect("a new name");
    let status = refused(access, &token, hello(|_| {})).await;
    assert_eq!(status.code(), Code::PermissionDenied);
    assert_eq!(server.handle.agents().await.expect("it answers"), []);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_says_of_other_agents_tasks_counts_for_nothing() {
    let scratch = tempfile::tempdir().expect("there is room");
    let server = TestServer::start(scratch.path()).await;
    let request = array(function("echo", b""), 50);
    let accepted = server
        .handle
        .submit(&request, "me")
        .await
        .expect("it is accepted");
    let mut frames = hello(|hello| hello.skills = vec!["none".to_owned()]);
    frames.push(wire::AgentFrame {
        finished: (0..1000)
            .map(|number| wire::Finished {
                task: accepted.first_task.0 + number % 50,
                lease: 1_000_000 + number,
                ..wire::Finished::default()
            })
            .collect(),
        number: 1,
        ..wire::AgentFrame::default()
    });
    refused(&server.access, &server.access.token, frames).await;
    let fleet = server.handle.fleet().await.expect("it answers");
    assert_eq!((fleet.tasks.succeeded, fleet.stale_answers), (0, 1000));
    let _agent = server.agent("honest", 2);
    assert_eq!(server.over(accepted.id).await.tasks.succeeded, 50);
    server.stop().await;
}

/// An agent that says what it is told to say.
struct Puppet {
    frames: tokio::sync::mpsc::Sender<wire::AgentFrame>,
    heard: tonic::Streaming<wire::ServerFrame>,
}

impl Puppet {
    async fn connect(access: &Access, hello: wire::AgentFrame) -> Self {
        let mut client = AgentsClient::new(channel(access).await);
        let (frames, outbox) = tokio::sync::mpsc::channel(16);
        frames.send(hello).await.expect("there is room");
        let stream = tokio_stream::wrappers::ReceiverStream::new(outbox);
        let mut request = tonic::Request::new(stream);
        let token = format!("Bearer {}", access.token.reveal());
        let token = token.parse().expect("a token is text");
        request.metadata_mut().insert("authorization", token);
        let session = client.session(request).await.expect("it is let in");
        let heard = session.into_inner();
        Self { frames, heard }
    }

    /// The next frame for which this holds.
    async fn hear(&mut self, wanted: impl Fn(&wire::ServerFrame) -> bool) -> wire::ServerFrame {
        let hearing = async {
            loop {
                let frame = self.heard.message().await.expect("it goes on");
                let frame = frame.expect("it goes on");
                if wanted(&frame) {
                    return frame;
                }
            }
        };
        let heard = tokio::time::timeout(PATIENCE, hearing).await;
        heard.expect("the server speaks")
    }

    /// Says that leases ended, and waits until that is on disk.
    async fn finish(&mut self, number: u64, finished: Vec<wire::Finished>) {
        let frame = wire::AgentFrame {
            number,
            finished,
            ..wire::AgentFrame::default()
        };
        self.frames.send(frame).await.expect("there is room");
        self.hear(|frame| frame.acknowledged >= number).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_given_twice_or_late_counts_once() {
    let scratch = tempfile::tempdir().expect("there is room");
    let server = TestServer::start(scratch.path()).await;
    let request = array(function("echo", b""), 1);
    let submitted = server.handle.submit(&request, "me").await;
    let job = submitted.expect("it is accepted");
    let introduction = || hello(|hello| hello.functions = vec!["echo".to_owned()]).remove(0);
    let mut agent = Puppet::connect(&server.access, introduction()).await;
    let frame = agent.hear(|frame| !frame.assign.is_empty()).await;
    let (task, lease) = (frame.assign[0].task, frame.assign[0].lease);
    let ended = |outcome: wire::Outcome| wire::Finished {
        task,
        lease,
        outcome: outcome.into(),
        ..wire::Finished::default()
    };
    let yes = || ended(wire::Outcome::Succeeded);
    // Twice in one frame, again in another, and then the contrary.
    agent.finish(1, vec![yes(), yes()]).await;
    agent.finish(2, vec![yes()]).await;
    agent.finish(3, vec![ended(wire::Outcome::Failed)]).await;
    let counts = server.over(job.id).await.tasks;
    assert_eq!((counts.succeeded, counts.failed), (1, 0));
    let fleet = server.handle.fleet().await.expect("it answers");
    assert_eq!((fleet.tasks.succeeded, fleet.stale_answers), (1, 3));
    // A process that comes later under the same name cannot answer for a lease of the first.
    drop(agent);
    let again = array(function("echo", b""), 1);
    let submitted = server.handle.submit(&again, "me").await;
    let job = submitted.expect("it is accepted");
    let mut introduction = introduction();
    if let Some(hello) = &mut introduction.hello {
        hello.process = 2;
        hello.name = "another".to_owned();
    }
    let mut later = Puppet::connect(&server.access, introduction).await;
    later
        .finish(1, vec![yes(), ended(wire::Outcome::Failed)])
        .await;
    let fleet = server.handle.fleet().await.expect("it answers");
    assert_eq!((fleet.tasks.succeeded, fleet.stale_answers), (1, 5));
    drop(later);
    let _honest = server.agent("honest", 1);
    assert_eq!(server.over(job.id).await.tasks.succeeded, 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fleet_works_on_while_strangers_keep_lines_open_or_talk_nonsense() {
    let scratch = tempfile::tempdir().expect("there is room");
    let server = TestServer::start(scratch.path()).await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        let stream = TcpStream::connect(address(&server.access)).await;
        silent.push(stream.expect("the server is there"));
    }
    for number in 0..20_u8 {
        let mut stream = TcpStream::connect(address(&server.access))
            .await
            .expect("it is there");
        let _ = stream.write_all(&[number.wrapping_mul(37); 4096]).await;
        let mut stream = tls(&server.access, "h2").await.expect("it is there");
        let _ = stream.write_all(&[number; 4096]).await;
    }
    let _agent = server.agent("a", 2);
    let request = array(function("echo", b""), 500);
    let accepted = server
        .handle
        .submit(&request, "me")
        .await
        .expect("it is accepted");
    let ended = tokio::time::timeout(Duration::from_secs(20), server.over(accepted.id)).await;
    assert_eq!(ended.expect("nobody is in the way").tasks.succeeded, 500);
    drop(silent);
    server.stop().await;
}
