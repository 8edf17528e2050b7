//! Peers that say nothing, say it slowly, do not listen, or come in crowds: they are cut off, and whoever
//! keeps to the rules does not notice.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the message")]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use loxley_api::{Access, client_config};
use loxley_client::Client;
use loxley_server::{ConnectionLimits, ServerOptions};
use rustls::pki_types::ServerName;
use support::{PATIENCE, TestServer, array, function, quick_config};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const HANDSHAKE: Duration = Duration::from_millis(700);
const STALL: Duration = Duration::from_secs(1);

async fn server(scratch: &tempfile::TempDir, connections_max: usize) -> TestServer {
    TestServer::start_with(ServerOptions {
        config: quick_config(),
        limits: ConnectionLimits {
            connections_max,
            handshake_time: HANDSHAKE,
            stall_time: STALL,
            send_buffer_bytes: 32 << 10,
        },
        ..ServerOptions::new(scratch.path().to_owned())
    })
    .await
}

/// A connection that takes in little before the other side has to wait.
async fn tcp(access: &Access) -> TcpStream {
    let address = access.url.trim_start_matches("https://").parse().unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    // Much smaller, and the system would let a little through now and then.
    socket.set_recv_buffer_size(64 << 10).unwrap();
    socket.connect(address).await.unwrap()
}

async fn tls(access: &Access, protocol: &str) -> TlsStream<TcpStream> {
    let mut config = client_config(access.certificate_sha256);
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let name = ServerName::try_from("loxley").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, tcp(access).await).await.unwrap()
}

/// What comes until the other side hangs up, and how long that takes.
async fn until_hung_up(stream: &mut (impl AsyncReadExt + Unpin)) -> (usize, Duration) {
    let begun = Instant::now();
    let mut all = Vec::new();
    // However the connection ends: an end of file, or a reset.
    let reading = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut all));
    let _ = reading.await.expect("the server hangs up");
    (all.len(), begun.elapsed())
}

fn head(access: &Access, path: &str) -> String {
    let token = access.token.reveal();
    format!("GET {path} HTTP/1.1\r\nHost: loxley\r\nAuthorization: Bearer {token}\r\n\r\n")
}

/// The median of some round trips of a client that keeps to the rules.
async fn round_trip(client: &Client) -> Duration {
    let mut times = Vec::new();
    for _ in 0..15 {
        let begun = Instant::now();
        client.server().await.unwrap();
        times.push(begun.elapsed());
    }
    times.sort();
    times[times.len() / 2]
}

/// Others are not held up. The machine may be busy with other tests, so the bound is wide; a server that
/// waits for a slow peer is slower by the whole of its patience.
fn assert_unaffected(before: Duration, meanwhile: Duration) {
    let limit = before * 20 + STALL / 4;
    assert!(meanwhile < limit, "{before:?} became {meanwhile:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_says_nothing_is_cut_off() {
    let scratch = tempfile::tempdir().unwrap();
    let server = server(&scratch, 1000).await;
    let access = &server.access;
    let least = HANDSHAKE / 2;
    let most = HANDSHAKE * 10;
    // Before TLS.
    let (bytes, time) = until_hung_up(&mut tcp(access).await).await;
    assert_eq!(bytes, 0);
    assert!(least < time && time < most, "{time:?}");
    // After it, in both protocols. HTTP/2 servers speak first: settings.
    for protocol in ["http/1.1", "h2"] {
        let (bytes, time) = until_hung_up(&mut tls(access, protocol).await).await;
        assert!(
            bytes < 200 && least < time && time < most,
            "{protocol}: {time:?}"
        );
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_trickles_the_head_of_a_request_is_cut_off_and_delays_nobody() {
    let scratch = tempfile::tempdir().unwrap();
    let server = server(&scratch, 1000).await;
    let client = Client::new(&server.access).unwrap();
    let before = round_trip(&client).await;
    let mut trickling = Vec::new();
    for protocol in ["http/1.1", "h2"].repeat(20) {
        let access = server.access.clone();
        trickling.push(tokio::spawn(async move {
            let mut stream = tls(&access, protocol).await;
            let begun = Instant::now();
            let greeting = match protocol {
                "h2" => "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
                _ => head(&access, "/v1/server"),
            };
            for byte in greeting.bytes() {
                if stream.write_all(&[byte]).await.is_err() || stream.flush().await.is_err() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(60)).await;
            }
            until_hung_up(&mut stream).await;
            begun.elapsed()
        }));
    }
    assert_unaffected(before, round_trip(&client).await);
    for peer in trickling {
        let time = peer.await.unwrap();
        assert!(time < HANDSHAKE * 10, "{time:?}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_does_not_read_large_answers_is_cut_off_and_delays_nobody() {
    let scratch = tempfile::tempdir().unwrap();
    let server = server(&scratch, 1000).await;
    let client = Client::new(&server.access).unwrap();
    let before = round_trip(&client).await;
    // All of these fit into what the system keeps, but not their answers.
    const REQUESTS: usize = 80;
    let mut deaf = Vec::new();
    for _ in 0..10 {
        let mut stream = tls(&server.access, "http/1.1").await;
        let requests = head(&server.access, "/openapi.json").repeat(REQUESTS);
        deaf.push(tokio::spawn(async move {
            stream.write_all(requests.as_bytes()).await.unwrap();
            tokio::time::sleep(STALL * 5).await;
            until_hung_up(&mut stream).await.0
        }));
    }
    assert_unaffected(before, round_trip(&client).await);
    let page = until_hung_up_after(&server.access, "/openapi.json").await;
    for peer in deaf {
        let bytes = peer.await.unwrap();
        assert!(
            bytes < page * REQUESTS / 2,
            "{bytes} bytes were kept for it"
        );
    }
    server.stop().await;
}

/// How long one answer is.
async fn until_hung_up_after(access: &Access, path: &str) -> usize {
    let mut stream = tls(access, "http/1.1").await;
    let head = head(access, path).replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    until_hung_up(&mut stream).await.0
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_does_not_read_events_is_cut_off_and_delays_nobody() {
    let scratch = tempfile::tempdir().unwrap();
    let server = server(&scratch, 1000).await;
    let client = Client::new(&server.access).unwrap();
    let before = round_trip(&client).await;
    let mut deaf = Vec::new();
    for _ in 0..5 {
        let mut stream = tls(&server.access, "http/1.1").await;
        let head = head(&server.access, "/v1/events");
        stream.write_all(head.as_bytes()).await.unwrap();
        deaf.push(stream);
    }
    let _agent = server.agent("a", 4);
    // One job after the other: of what happens all at once those who listen are told only that they missed it, and
    // that would fit into the pipes.
    let work = array(function("echo", b""), 2_000);
    for _ in 0..20 {
        let job = client.submit(&work).await.unwrap();
        let ended = tokio::time::timeout(PATIENCE, client.wait_job(job.id)).await;
        assert_eq!(ended.unwrap().unwrap().tasks.succeeded, 2_000);
    }
    assert_unaffected(before, round_trip(&client).await);
    tokio::time::sleep(STALL * 5).await;
    for mut stream in deaf {
        // It was let go: what is left in the pipes is all it gets, and that is not the end of the job.
        let (bytes, time) = until_hung_up(&mut stream).await;
        assert!(
            bytes < 1_000_000 && time < STALL * 5,
            "{bytes} bytes, {time:?}"
        );
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_is_turned_away_at_the_door_until_somebody_leaves() {
    let scratch = tempfile::tempdir().unwrap();
    let server = server(&scratch, 6).await;
    let client = Client::new(&server.access).unwrap();
    client.server().await.unwrap();
    let mut crowd = Vec::new();
    for _ in 0..5 {
        crowd.push(tcp(&server.access).await);
    }
    // One of six is the client's. This one is hung up on at once, not after a silence.
    let (_, time) = until_hung_up(&mut tcp(&server.access).await).await;
    assert!(time < HANDSHAKE / 2, "{time:?}");
    // The client's own connection still works.
    client.server().await.unwrap();
    drop(crowd);
    let begun = Instant::now();
    while Client::new(&server.access).unwrap().server().await.is_err() {
        assert!(begun.elapsed() < PATIENCE, "the room is given back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.stop().await;
}
