//! What only a journal with several possible writers has to keep, tried with a real PostgreSQL.
#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "a failure in a test is the message")]

mod postgres_server;
mod sample;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use loxley_journal::postgres::{
    Address, Announcement, Claim, Lease, Link, PostgresHistory, PostgresJournal, Replication,
    SHARD, schema,
};
use loxley_journal::{
    AppendError, DatabaseError, Group, History, JobQuery, Journal, LetterRow, Limit, OpenError,
    Options, Place, Position, ReadHistory, Rows, Snapshot, SqliteJournal, TaskFilter, TaskQuery,
    TransferError, Transferred, failpoint, transfer,
};
use loxley_model::{JobId, TaskId};
use postgres_server::{OWNER, Postgres};

const HOLDER: u64 = 7;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(future)
}

fn address(url: &str) -> Address {
    Address::parse(url, None).unwrap()
}

/// Takes the shard with a lease that is over at once, so that the next one can.
fn take(address: &Address, holder: u64) -> Claim {
    block_on(async {
        let link = Link::open(address).await.unwrap();
        let epoch = link.shard(SHARD).await.unwrap().epoch;
        let taken = link.take(SHARD, epoch, holder, "", Duration::ZERO).await;
        taken.unwrap().unwrap()
    })
}

fn open(address: &Address) -> PostgresJournal {
    let claim = take(address, HOLDER);
    PostgresJournal::open(address, claim, Lease::forever()).unwrap()
}

fn facts(number: u8) -> Group {
    Group {
        facts: vec![number; 50],
        fact_count: 1,
        rows: Rows::default(),
    }
}

#[test]
fn a_holder_whose_shard_was_taken_writes_nothing_more() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let address = address(&server.url("fence"));
    let mut old = open(&address);
    old.append(Position(0), &sample::full(1)).unwrap();
    // The same process number: the epoch alone tells them apart.
    let mut new = open(&address);
    let error = old.append(Position(1), &sample::full(2)).unwrap_err();
    assert!(matches!(error, AppendError::Fenced { .. }), "{error}");
    // Not even its rows of history.
    assert_eq!(
        server.sql("SELECT count(*) FROM fence.job WHERE job = 2"),
        "0"
    );
    let snapshot = Snapshot {
        position: Position(1),
        state: vec![1; 10],
    };
    assert!(old.save_snapshot(&snapshot).is_err());
    new.append(Position(1), &sample::full(3)).unwrap();
    let error = old.append(Position(1), &sample::full(2)).unwrap_err();
    assert!(matches!(error, AppendError::NotWritten(_)), "{error}");
    // One that was open before, and did not hear of it, is fenced from a snapshot, too.
    let mut other = open(&address);
    let error = new.save_snapshot(&snapshot).unwrap_err();
    assert!(matches!(error, AppendError::Fenced { .. }), "{error}");
    assert_eq!(other.next_position(), Position(2));
    let groups = other.read(Position(0), Limit::default()).unwrap();
    assert_eq!(groups[1].facts, sample::full(3).facts);
    leases_are_taken_by_one_and_only_when_they_are_over(&server);
    the_number_of_shards_is_settled_once(&server);
    shards_are_written_by_different_holders(&server);
    damage_is_told(&server);
}

fn the_number_of_shards_is_settled_once(server: &Postgres) {
    let address = address(&server.url("settled"));
    block_on(async {
        let mut links = Vec::new();
        for _ in 0..6 {
            links.push(Link::open(&address).await.unwrap());
        }
        assert_eq!(links[0].shard_count().await.unwrap(), 1);
        // Many say different numbers at once: one of them counts, for all, and who said another is refused.
        let asked = [2, 3, 4, 5, 6, 7];
        let said = links.iter().zip(asked);
        let said = said.map(|(link, asked)| link.settle_shards(&address, Some(asked)));
        let said = futures_util::future::join_all(said).await;
        let settled = links[0].settle_shards(&address, None).await.unwrap();
        assert!(asked.contains(&settled));
        for (said, asked) in said.into_iter().zip(asked) {
            match said {
                Ok(count) => assert!(count == settled && asked == settled),
                Err(DatabaseError::OtherShards { found, .. }) => assert_eq!(found, settled),
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(links[0].shard_count().await.unwrap(), settled);
        let rows = server.sql("SELECT count(*) FROM settled.shard");
        assert_eq!(rows, settled.to_string());
    });
}

fn shards_are_written_by_different_holders(server: &Postgres) {
    let address = address(&server.url("several"));
    let claims = block_on(async {
        let link = Link::open(&address).await.unwrap();
        link.settle_shards(&address, Some(2)).await.unwrap();
        let hour = Duration::from_secs(3600);
        let mut claims = Vec::new();
        for (shard, holder) in [(0, 1), (1, 2)] {
            let claim = link
                .take(shard, 0, holder, "https://x", hour)
                .await
                .unwrap();
            claims.push(claim.unwrap());
        }
        // What is told of a shard counts only from its holder.
        link.tell_load(claims[0], "{}").await.unwrap();
        let other = Claim {
            holder: 9,
            ..claims[1]
        };
        link.tell_load(other, "{}").await.unwrap();
        let told = link.loads().await.unwrap();
        assert_eq!(
            told.iter().map(|(shard, ..)| *shard).collect::<Vec<_>>(),
            [0]
        );
        claims
    });
    let mut journals: Vec<PostgresJournal> = claims
        .iter()
        .map(|claim| PostgresJournal::open(&address, *claim, Lease::forever()).unwrap())
        .collect();
    // In turns, with the same numbers of jobs and tasks: each has its own rows.
    for at in 0..5 {
        for journal in &mut journals {
            journal.append(Position(at), &sample::full(at)).unwrap();
        }
    }
    let taken = block_on(async {
        let link = Link::connect(&address).await.unwrap();
        link.release(claims[0]).await.unwrap();
        link.take(0, 1, 3, "", Duration::ZERO).await.unwrap()
    });
    assert_eq!(taken.unwrap().epoch, 2);
    let error = journals[0]
        .append(Position(5), &sample::full(5))
        .unwrap_err();
    assert!(matches!(error, AppendError::Fenced { .. }), "{error}");
    journals[1].append(Position(5), &sample::full(5)).unwrap();
    for (shard, jobs) in [(0, 5), (1, 6)] {
        let history = PostgresHistory::open(&address, shard).unwrap();
        assert_eq!(history.jobs(&JobQuery::default()).unwrap().rows.len(), jobs);
    }
    letters_are_written_with_their_group_or_not_at_all(server, &mut journals);
    drop(journals);
    several_journals_are_copied_together(server, claims[1]);
}

/// The first journal is fenced, the second one is not.
fn letters_are_written_with_their_group_or_not_at_all(
    server: &Postgres,
    journals: &mut [PostgresJournal],
) {
    let letters = |rows: Rows| Group {
        rows,
        ..sample::full(7)
    };
    let said = |to: u16, number: u64| Rows {
        letters: vec![LetterRow {
            to,
            number,
            body: vec![number as u8; 3],
        }],
        letters_read: vec![(to, number), (to, number + 1)],
        ..Rows::default()
    };
    let error = journals[0]
        .append(Position(5), &letters(said(1, 1)))
        .unwrap_err();
    assert!(matches!(error, AppendError::NotWritten(_)), "{error}");
    assert_eq!(server.sql("SELECT count(*) FROM several.letter"), "0");
    for number in 1..4 {
        let at = journals[1].next_position();
        journals[1].append(at, &letters(said(0, number))).unwrap();
    }
    // A connection lives as long as the runtime that it was made in.
    let address = address(&server.url("several"));
    let numbers = |shards: &[i32]| -> Vec<u64> {
        let found = block_on(async {
            Link::connect(&address)
                .await
                .unwrap()
                .letters_to(shards)
                .await
        });
        found.unwrap().iter().map(|letter| letter.number).collect()
    };
    assert_eq!(numbers(&[0]), [1, 2, 3]);
    assert!(numbers(&[1]).is_empty());
    let read = block_on(async {
        Link::connect(&address)
            .await
            .unwrap()
            .letters_read(&[0])
            .await
    });
    assert_eq!(read.unwrap(), [(1, 0, 4)]);
    // What was read does not come again, and is forgotten when its sender hears of it.
    server.sql("INSERT INTO several.letter_read VALUES (1, 0, 2)");
    assert_eq!(numbers(&[0, 1]), [3]);
    let at = journals[1].next_position();
    let arrived = Rows {
        letters_arrived: vec![(0, 1), (0, 2)],
        ..Rows::default()
    };
    journals[1].append(at, &letters(arrived)).unwrap();
    let left = "SELECT string_agg(number::text, ',') FROM several.letter";
    assert_eq!(server.sql(left), "3");
}

fn several_journals_are_copied_together(server: &Postgres, held: Claim) {
    let scratch = tempfile::tempdir().unwrap();
    let from = Place::Database(address(&server.url("several")));
    let target = Place::Directory(scratch.path().join("copy"));
    // Another server holds one of them still.
    let refused = transfer(&from, &target).unwrap_err();
    assert!(refused.to_string().contains("in use"), "{refused}");
    block_on(async {
        let link = Link::connect(&address(&server.url("several"))).await;
        link.unwrap().release(held).await.unwrap();
    });
    let copied = transfer(&from, &target).unwrap();
    assert_eq!(copied.len(), 2);
    for (shard, copied) in copied.iter().enumerate() {
        let place = Place::Directory(scratch.path().join(format!("copy/shard-{shard}")));
        let again = Place::Directory(scratch.path().join(format!("again-{shard}")));
        assert_eq!(only(transfer(&place, &again)), *copied);
    }
    let other = Place::Database(address(&server.url("several_copied")));
    assert_eq!(transfer(&from, &other).unwrap(), copied);
    let same = "SELECT (SELECT string_agg(l::text, ',') FROM several.letter AS l) = \
        (SELECT string_agg(l::text, ',') FROM several_copied.letter AS l) AND \
        (SELECT count(*) FROM several_copied.letter_read) = 2 AND (SELECT shards FROM several_copied.meta) = 2";
    assert_eq!(server.sql(same), "t");
}

fn leases_are_taken_by_one_and_only_when_they_are_over(server: &Postgres) {
    let address = address(&server.url("leases"));
    block_on(async {
        let link = Link::open(&address).await.unwrap();
        let long = Duration::from_secs(3600);
        let claim = link.take(SHARD, 0, 1, "https://one", long).await.unwrap();
        let claim = claim.unwrap();
        assert_eq!(claim.epoch, 1);
        let state = link.shard(SHARD).await.unwrap();
        assert_eq!((state.epoch, state.holder), (1, Some(1)));
        assert!(state.left > Duration::from_secs(3000) && state.url == "https://one");
        assert_eq!(link.take(SHARD, 1, 2, "", long).await.unwrap(), None);
        assert!(link.renew(claim, long).await.unwrap());
        link.release(claim).await.unwrap();
        // Whoever saw an older epoch is too late; of many that saw the same, one gets it.
        assert_eq!(link.take(SHARD, 0, 2, "", long).await.unwrap(), None);
        let mut links = Vec::new();
        for _ in 0..5 {
            links.push(Link::connect(&address).await.unwrap());
        }
        let tries = links.iter().zip(10..);
        let tries = tries.map(|(link, holder)| link.take(SHARD, 1, holder, "", long));
        let taken = futures_util::future::join_all(tries).await;
        let taken = taken
            .into_iter()
            .filter(|taken| taken.as_ref().unwrap().is_some());
        assert_eq!(taken.count(), 1);
        assert!(!link.renew(claim, long).await.unwrap());
        // What the servers have in common changes only from what one has seen.
        assert!(link.share("tokens", None, b"a").await.unwrap());
        assert!(!link.share("tokens", None, b"b").await.unwrap());
        assert!(!link.share("tokens", Some(b"x"), b"b").await.unwrap());
        assert!(link.share("tokens", Some(b"a"), b"b").await.unwrap());
        assert_eq!(link.shared("tokens").await.unwrap().unwrap(), b"b");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.unwrap().as_millis() as u64;
        let announced = |id, silent| Announcement {
            id,
            name: "one",
            url: "https://one",
            version: "0.1",
            unix_ms: now - 90_000,
            silent,
        };
        let announce = async |id, silent| link.announce(&announced(id, silent)).await.unwrap();
        assert!(announce(3, long).await);
        let instances = link.instances().await.unwrap();
        let ahead = instances[0].clock_ahead_ms;
        assert!((-150_000..=-80_000).contains(&ahead), "{ahead}");
        // A name belongs to one, until that one is gone.
        assert!(!announce(4, long).await);
        assert!(announce(3, long).await);
        assert!(announce(4, Duration::ZERO).await);
        assert!(!announce(3, long).await);
        link.leave(4).await.unwrap();
        assert!(link.instances().await.unwrap().is_empty());
    });
}

fn damage_is_told(server: &Postgres) {
    let address = address(&server.url("damage"));
    let mut journal = open(&address);
    for number in 0..4 {
        journal
            .append(Position(u64::from(number)), &facts(number))
            .unwrap();
    }
    let read = |journal: &mut PostgresJournal| journal.read(Position(0), Limit::default());
    read(&mut journal).unwrap();
    server.sql("UPDATE damage.grp SET facts = facts || 'x'::bytea WHERE pos = 2");
    let error = read(&mut journal).unwrap_err().to_string();
    assert!(error.contains("position 2"), "{error}");
    server.sql("DELETE FROM damage.grp WHERE pos = 1");
    let error = read(&mut journal).unwrap_err().to_string();
    assert!(error.contains("position 1"), "{error}");
}

/// Stands between a journal and its database, and cuts the line where it is told to.
struct Cutter {
    port: u16,
    armed: Arc<Armed>,
}

#[derive(Default)]
struct Armed {
    /// Cut when a commit was seen: before it is passed on, or when its answer comes back.
    cut: Mutex<Option<Cut>>,
    cuts: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    BeforeTheDatabase,
    BeforeTheAnswer,
}

impl Cutter {
    fn new(socket: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let armed = Arc::new(Armed::default());
        let shared = Arc::clone(&armed);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = UnixStream::connect(&socket) else {
                    continue;
                };
                let armed = Arc::clone(&shared);
                std::thread::spawn(move || pass(client, server, &armed));
            }
        });
        Self { port, armed }
    }

    fn url(&self, schema: &str) -> String {
        let port = self.port;
        format!("postgres://{OWNER}@127.0.0.1:{port}/postgres?sslmode=disable&schema={schema}")
    }

    fn arm(&self, cut: Cut) {
        *self.armed.cut.lock().unwrap() = Some(cut);
    }

    fn cuts(&self) -> u64 {
        self.armed.cuts.load(Ordering::SeqCst)
    }
}

/// Carries bytes both ways until it cuts or one side ends.
fn pass(client: TcpStream, server: UnixStream, armed: &Armed) {
    let is_muted = Arc::new(AtomicBool::new(false));
    let (mut back_from, mut back_to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let muted = Arc::clone(&is_muted);
    let back = std::thread::spawn(move || {
        let mut buffer = [0; 65536];
        while let Ok(read @ 1..) = back_from.read(&mut buffer) {
            if !muted.load(Ordering::SeqCst) && back_to.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        let _ = back_to.shutdown(Shutdown::Both);
    });
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let mut buffer = vec![0; 1 << 20];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let bytes = &buffer[..read];
        let commits = bytes.windows(6).any(|window| window == b"COMMIT");
        let cut = match commits {
            true => armed.cut.lock().unwrap().take(),
            false => None,
        };
        match cut {
            None => {
                if to.write_all(bytes).is_err() {
                    break;
                }
            }
            Some(Cut::BeforeTheDatabase) => {
                armed.cuts.fetch_add(1, Ordering::SeqCst);
                break;
            }
            Some(Cut::BeforeTheAnswer) => {
                is_muted.store(true, Ordering::SeqCst);
                let _ = to.write_all(bytes);
                // The database ends its side when it has done everything that came before.
                let _ = to.shutdown(Shutdown::Write);
                armed.cuts.fetch_add(1, Ordering::SeqCst);
                break;
            }
        }
    }
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Write);
    let _ = back.join();
}

#[test]
fn a_commit_that_nobody_heard_of_is_found_out_and_not_guessed() {
    let Some(mut server) = Postgres::start() else {
        return;
    };
    let cutter = Cutter::new(server.socket());
    let address = address(&cutter.url("doubt"));
    let mut journal = open(&address);
    for (number, cut) in (0..20).zip(
        [Cut::BeforeTheDatabase, Cut::BeforeTheAnswer]
            .iter()
            .cycle(),
    ) {
        cutter.arm(*cut);
        let at = journal.next_position();
        assert_eq!(
            journal.append(at, &sample::full(number)).unwrap(),
            at.next()
        );
        assert_eq!(cutter.cuts(), number + 1, "the line was not cut");
    }
    // Each is there once, with its rows.
    assert_eq!(
        server.sql("SELECT count(*) || ' ' || max(pos) FROM doubt.grp"),
        "20 19"
    );
    assert_eq!(server.sql("SELECT count(*) FROM doubt.task"), "40");
    journal.read(Position(0), Limit::default()).unwrap();
    // Somebody else takes over while the answer is on its way: then it does not matter what became of it.
    cutter.arm(Cut::BeforeTheDatabase);
    let direct = self::address(&server.url("doubt"));
    let mut other = open(&direct);
    let error = journal.append(Position(20), &sample::full(20)).unwrap_err();
    assert!(matches!(error, AppendError::Fenced { .. }), "{error}");
    assert_eq!(cutter.cuts(), 21);
    other.append(Position(20), &sample::full(21)).unwrap();
    // The database dies under a writer, and comes back.
    server.kill();
    server.run();
    other.append(Position(21), &sample::full(22)).unwrap();
    // It is away for longer than the lease: the writer gives up, and takes nothing more.
    let claim = take(&direct, HOLDER);
    let lease = Lease::forever();
    let mut journal = PostgresJournal::open(&direct, claim, lease.clone()).unwrap();
    server.kill();
    lease.set(Lease::now() + Duration::from_millis(300));
    let error = journal.append(Position(22), &sample::full(23)).unwrap_err();
    assert!(matches!(error, AppendError::Unknown(_)), "{error}");
    assert!(!journal.may_answer());
}

#[test]
fn what_a_database_lacks_is_said_in_words() {
    let Some(mut server) = Postgres::start_with(&["fsync=off"]) else {
        return;
    };
    let refusal = |url: &str| {
        let address = Address::parse(url, None).unwrap();
        block_on(Link::open(&address)).unwrap_err().to_string()
    };
    let says = |url: &str, word: &str| {
        let error = refusal(url);
        assert!(error.contains(word), "{error}");
    };
    says(&server.url("a"), "`fsync = off`");
    server.restart_with(&["full_page_writes=off"]);
    says(&server.url("a"), "`full_page_writes = off`");
    server.restart_with(&["synchronous_commit=off"]);
    says(&server.url("a"), "`synchronous_commit = off`");
    server.restart_with(&["default_transaction_read_only=on"]);
    says(&server.url("a"), "takes no writes");
    server.restart_with(&[]);
    says(&server.url_of(OWNER, "nowhere", "a"), "createdb");
    server.sql("CREATE ROLE poor LOGIN PASSWORD 'secret'; CREATE SCHEMA strange; CREATE TABLE strange.meta (a int)");
    says(
        &server.url_of("poor", "postgres", "poor"),
        "loxley journal schema",
    );
    says(&server.url("strange"), "no journal of Loxley");
    // Its administrator runs what the command prints; then it works.
    let made = format!(
        "BEGIN; {} GRANT USAGE ON SCHEMA poor TO poor; \
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA poor TO poor; COMMIT;",
        schema::sql("poor")
    );
    server.sql(&made);
    open(&address(&server.url_of("poor", "postgres", "poor")));
    // A newer version.
    block_on(Link::open(&address(&server.url("newer")))).unwrap();
    server.sql("UPDATE newer.meta SET version = 99");
    says(&server.url("newer"), "version 99");
    // Passwords.
    server.ask_for_passwords();
    let poor = server.url_of("poor", "postgres", "poor");
    says(&poor, "--journal-password-file");
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("password");
    let with_password = |password: &str| {
        std::fs::write(&file, password).unwrap();
        let alone = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&file, alone).unwrap();
        let address = Address::parse(&poor, Some(&file)).unwrap();
        block_on(Link::open(&address)).map(|_| ())
    };
    let wrong = with_password("wrong").unwrap_err();
    assert!(matches!(wrong, DatabaseError::Refused { .. }), "{wrong}");
    with_password("secret\n").unwrap();
    server.kill();
    says(&server.url("a"), "cannot reach");
    let claim = Claim {
        shard: SHARD,
        epoch: 1,
        holder: 1,
    };
    let error = PostgresJournal::open(&address(&server.url("a")), claim, Lease::forever());
    assert!(matches!(error.unwrap_err(), OpenError::Database(_)));
}

#[test]
fn several_servers_may_make_the_tables_at_once() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let address = address(&server.url("race"));
    block_on(async {
        let opened = futures_util::future::join_all((0..8).map(|_| Link::open(&address))).await;
        for link in opened {
            link.unwrap();
        }
    });
    assert_eq!(server.sql("SELECT count(*) FROM race.shard"), "1");
    a_writer_is_killed_at_every_place(&server);
}

/// Nine megabytes, or twenty.
fn large_result(number: u64) -> Vec<u8> {
    let len = if number == 16 { 20 << 20 } else { 9 << 20 };
    let byte = |at: usize| (at as u64 * 31 + number) as u8;
    (0..len).map(byte).collect()
}

/// One journal was copied.
fn only(copied: Result<Vec<Transferred>, TransferError>) -> Transferred {
    let [one] = <[Transferred; 1]>::try_from(copied.unwrap()).unwrap();
    one
}

#[test]
fn a_journal_goes_into_a_database_and_back_with_its_history() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let directory = |name: &str| Place::Directory(scratch.path().join(name));
    let database = |schema: &str| Place::Database(address(&server.url(schema)));
    // A journal that does not begin at the start, with two snapshots, and outputs of tasks that ended twice.
    let source = scratch.path().join("source");
    let mut journal = SqliteJournal::open(&source, &Options::default())
        .unwrap()
        .journal;
    for number in 0..30 {
        let at = journal.next_position();
        let mut group = sample::full(number);
        if (14..18).contains(&number) {
            // More together than is copied at once, and one of them alone as well.
            group.rows.outputs[0].result = large_result(number);
        }
        journal.append(at, &group).unwrap();
        if number % 10 == 9 {
            let snapshot = Snapshot {
                position: at,
                state: vec![number as u8; 300_000],
            };
            journal.save_snapshot(&snapshot).unwrap();
        }
    }
    let mut again = sample::full(3);
    again.rows.outputs.clear();
    journal.append(Position(30), &again).unwrap();
    journal.truncate(Position(12)).unwrap();
    let refused = transfer(&directory("source"), &database("fleet")).unwrap_err();
    assert!(refused.to_string().contains("in use"), "{refused}");
    drop(journal);

    let there = only(transfer(&directory("source"), &database("fleet")));
    assert_eq!((there.first, there.next), (Position(12), Position(31)));
    assert_eq!((there.jobs, there.tasks, there.agents), (30, 60, 30));
    assert_eq!((there.snapshots, there.outputs), (2, 29));
    let refused = transfer(&directory("source"), &database("fleet")).unwrap_err();
    assert!(
        matches!(refused, TransferError::Present { .. }),
        "{refused}"
    );
    let back = only(transfer(&database("fleet"), &directory("back")));
    assert_eq!(there, back);
    let copied = History::open(&scratch.path().join("back")).unwrap();
    for number in 14..18 {
        let task = sample::full(number).rows.outputs[0].task;
        let left = copied.outputs_of(&[task]).unwrap();
        assert!(left[0].result == large_result(number), "result {number}");
    }
    let refused = transfer(&database("fleet"), &directory("back")).unwrap_err();
    let is_present = matches!(refused, TransferError::Open(OpenError::Present { .. }));
    assert!(is_present, "{refused}");
    // Each goes on where it ends; a copy is another cluster.
    let cloned = only(transfer(&database("fleet"), &database("clone")));
    assert_eq!(cloned.digest, there.digest);
    let clusters = "SELECT (SELECT cluster FROM fleet.meta) = (SELECT cluster FROM clone.meta)";
    assert_eq!(server.sql(clusters), "f");
    let mut copy = open(&address(&server.url("clone")));
    copy.append(Position(31), &sample::full(31)).unwrap();
    copy.read(Position(12), Limit::default()).unwrap();
    assert_eq!(copy.snapshots().unwrap(), [Position(29), Position(19)]);
    // Whoever serves from it keeps others from copying it.
    block_on(async {
        let link = Link::open(&address(&server.url("fleet"))).await.unwrap();
        let epoch = link.shard(SHARD).await.unwrap().epoch;
        let hour = Duration::from_secs(3600);
        let taken = link.take(SHARD, epoch, 9, "https://nine", hour).await;
        taken.unwrap().unwrap();
    });
    let refused = transfer(&database("fleet"), &directory("late")).unwrap_err();
    assert!(refused.to_string().contains("https://nine"), "{refused}");
    a_copy_that_was_cut_short_is_no_journal(&server, &directory("source"));
    tables_of_an_older_version_are_brought_up_to_date(&server);
}

fn a_copy_that_was_cut_short_is_no_journal(server: &Postgres, source: &Place) {
    let url = server.url("short");
    block_on(Link::open(&address(&url))).unwrap();
    // As it is while it is filled.
    server.sql("UPDATE short.meta SET version = 0; UPDATE short.shard SET epoch = 1, next = 5");
    let error = block_on(Link::open(&address(&url))).unwrap_err();
    assert!(error.to_string().contains("not finished"), "{error}");
    let copied = only(transfer(source, &Place::Database(address(&url))));
    assert_eq!(copied.next, Position(31));
    block_on(Link::open(&address(&url))).unwrap();
}

fn tables_of_an_older_version_are_brought_up_to_date(server: &Postgres) {
    server.sql(include_str!("postgres_server/version_1.sql"));
    server.sql(
        "CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA old TO reader; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA old TO reader",
    );
    // Tasks of two jobs in two blocks, one of which failed.
    server.sql(
        "INSERT INTO old.agent VALUES (0, 3, 'ada'); \
         INSERT INTO old.task SELECT 0, number, number / 4000, NULL, 0, 0, NULL, 3, 1, 10, 20, 30 + number, 10, NULL, \
         NULL, NULL FROM generate_series(3990, 4110) AS number; \
         UPDATE old.task SET ended = 10, exit_code = 1, attempt = 2 WHERE task = 4100",
    );
    let history = "SELECT * FROM old.task_history ORDER BY task";
    let before = server.sql(history);
    let reader = address(&server.url_of("reader", "postgres", "old"));
    let error = block_on(Link::open(&reader)).unwrap_err().to_string();
    assert!(error.contains("journal schema --from 1"), "{error}");
    let address = address(&server.url("old"));
    block_on(async {
        // Several come at once, and one of them does it.
        let opened = futures_util::future::join_all((0..5).map(|_| Link::open(&address))).await;
        opened.into_iter().for_each(|link| drop(link.unwrap()));
    });
    assert_eq!(
        server.sql("SELECT version, journal FROM old.meta"),
        "5|4711"
    );
    assert_eq!(server.sql(history), before);
    assert_eq!(before.lines().count(), 121);
    // Whoever could look at the history still can.
    let as_reader = server.try_sql("reader", "SELECT count(*) FROM old.task_history");
    assert_eq!(as_reader.unwrap(), "121");
    let read = PostgresHistory::open(&address, 0).unwrap();
    let failed = read.tasks(&TaskQuery {
        filter: TaskFilter::Unsuccessful,
        ..TaskQuery::default()
    });
    let failed = failed.unwrap().rows;
    assert_eq!(failed.len(), 1);
    assert_eq!((failed[0].task, failed[0].attempt), (TaskId(4100), 2));
    assert_eq!(read.task(TaskId(4095)).unwrap().unwrap().finished.0, 4125);
    let mut journal = open(&address);
    journal.append(Position(0), &sample::full(1)).unwrap();
    // The same tables as new ones.
    let columns = |schema: &str| {
        server.sql(&format!(
            "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns \
             WHERE table_schema = '{schema}' ORDER BY 1, 2; \
             SELECT replace(indexdef, '{schema}.', '') FROM pg_indexes WHERE schemaname = '{schema}' ORDER BY 1"
        ))
    };
    assert_eq!(columns("old"), columns("short"));
}

#[test]
fn tls_is_spoken_and_the_other_end_is_known() {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = certificate.self_signed(&key).unwrap().pem();
    let Some(mut server) = Postgres::start_with_tls(&certificate, &key.serialize_pem()) else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let roots = |name: &str, text: &str| {
        let path = scratch.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let own = roots("own.pem", &certificate);
    let other = rcgen::KeyPair::generate().unwrap();
    let stranger = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let stranger = roots("other.pem", &stranger.self_signed(&other).unwrap().pem());
    let port = server.port();
    let at = |host: &str, more: &str| {
        let url = format!("postgres://{OWNER}@{host}:{port}/postgres?schema=tls&{more}");
        address(&url)
    };
    let open = |host: &str, more: &str| block_on(Link::open(&at(host, more)));
    let is_safe = |server: &Postgres| {
        let ask = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
            WHERE application_name = 'loxley'";
        server.sql(ask) == "t"
    };
    for more in [
        "sslmode=require".to_owned(),
        "sslmode=prefer".to_owned(),
        format!("sslmode=verify-full&sslrootcert={own}"),
    ] {
        // Asked while the connection is there.
        let safe = block_on(async {
            let link = Link::open(&at("localhost", &more)).await.unwrap();
            let safe = is_safe(&server);
            drop(link);
            safe
        });
        assert!(safe, "{more}");
        server.until_nobody_is_connected();
    }
    // Another certificate, and another name than the certificate has.
    let unknown = format!("sslmode=verify-full&sslrootcert={stranger}");
    for (host, more) in [
        ("localhost", unknown.as_str()),
        (
            "127.0.0.1",
            &format!("sslmode=verify-full&sslrootcert={own}"),
        ),
    ] {
        let error = open(host, more).unwrap_err().to_string();
        assert!(error.contains("certificate"), "{error}");
    }
    server.restart_with(&["ssl=off", "listen_addresses=localhost"]);
    let error = open("localhost", "sslmode=require").unwrap_err();
    assert!(error.to_string().contains("TLS"), "{error}");
    open("localhost", "sslmode=prefer").unwrap();
}

#[test]
fn a_database_that_fails_over_keeps_what_was_acknowledged() {
    let Some(mut primary) = Postgres::start() else {
        return;
    };
    let standby = primary.standby();
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
    primary.sql("SELECT pg_reload_conf()");
    let synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    until(|| primary.sql(synchronous) == "1");
    let hosts = format!("{},{}", primary.host(), standby.host());
    let both = format!("postgres://{OWNER}@{hosts}/postgres?schema=moved");
    let both = address(&both);
    let mut journal = open(&both);
    block_on(async {
        let link = Link::open(&both).await.unwrap();
        let replication = link.replication().await.unwrap();
        assert_eq!(replication, Replication::Synchronous);
        let replicas = link.replicas().await.unwrap();
        assert_eq!(replicas[0].sync_state.as_deref(), Some("sync"));
        // A standby alone takes no writes, and is told apart.
        let error = Link::open(&address(&standby.url("moved")))
            .await
            .unwrap_err();
        assert!(matches!(error, DatabaseError::ReadOnly { .. }), "{error}");
    });
    for number in 0..5 {
        let at = journal.next_position();
        journal.append(at, &sample::full(number)).unwrap();
    }
    primary.kill();
    // The writer waits for somebody who takes writes, and goes on there.
    let writing = std::thread::spawn(move || {
        for number in 5..10 {
            let at = journal.next_position();
            journal.append(at, &sample::full(number)).unwrap();
        }
        journal
    });
    standby.sql("SELECT pg_promote(true, 120)");
    let mut journal = writing.join().unwrap();
    assert_eq!(standby.sql("SELECT count(*) FROM moved.grp"), "10");
    assert_eq!(standby.sql("SELECT count(*) FROM moved.job"), "10");
    // Read-only for a while, as one that is about to give its place away.
    standby.sql(
        "ALTER DATABASE postgres SET default_transaction_read_only = on; \
         SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'loxley'",
    );
    let writing = std::thread::spawn(move || {
        journal.append(Position(10), &sample::full(10)).unwrap();
        journal
    });
    let tried = "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'loxley'";
    until(|| standby.sql(tried) == "t" || writing.is_finished());
    standby.sql(
        "SET default_transaction_read_only = off; \
         ALTER DATABASE postgres RESET default_transaction_read_only",
    );
    let mut journal = writing.join().unwrap();
    assert_eq!(
        journal.read(Position(0), Limit::default()).unwrap().len(),
        11
    );
}

fn until(mut holds: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(120));
        std::thread::sleep(Duration::from_millis(50));
    }
}

const URL: &str = "LOXLEY_TEST_URL";

/// Not a test of its own: the process that is killed. It writes down what was acknowledged.
#[test]
#[ignore = "run by the other tests as a process of its own"]
fn writer() {
    let directory = std::env::var_os("LOXLEY_TEST_DIRECTORY").unwrap();
    let mut told = std::fs::File::create(Path::new(&directory).join("told")).unwrap();
    let mut journal = open(&address(&std::env::var(URL).unwrap()));
    loop {
        let at = journal.next_position();
        let next = journal.append(at, &sample::full(at.0 % 50)).unwrap();
        told.write_all(&next.0.to_le_bytes()).unwrap();
        if next.0.is_multiple_of(10) {
            let snapshot = Snapshot {
                position: next,
                state: vec![next.0 as u8; 600_000],
            };
            journal.save_snapshot(&snapshot).unwrap();
            journal.truncate(Position(next.0 - 5)).unwrap();
        }
    }
}

fn a_writer_is_killed_at_every_place(server: &Postgres) {
    let places = [
        (failpoint::BEFORE_WRITE, 13),
        (failpoint::BEFORE_COMMIT, 14),
        (failpoint::AFTER_COMMIT, 15),
        (failpoint::IN_SNAPSHOT, 2),
        (failpoint::BEFORE_SNAPSHOT_COUNTS, 2),
        (failpoint::AFTER_SNAPSHOT, 2),
    ];
    for (index, (place, pass)) in places.into_iter().enumerate() {
        let scratch = tempfile::tempdir().unwrap();
        let url = server.url(&format!("killed_{index}"));
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writer", "--ignored", "--nocapture"])
            .env("LOXLEY_TEST_DIRECTORY", scratch.path())
            .env(URL, &url)
            .env(failpoint::VARIABLE, format!("{place}@{pass}"))
            .stdout(std::process::Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.signal(), Some(9), "{place}: {status}");
        let told = std::fs::read(scratch.path().join("told")).unwrap();
        let told = told.chunks_exact(8).next_back();
        let told = told.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
        let address = address(&url);
        let mut journal = open(&address);
        let next = journal.next_position().0;
        assert!(
            next == told || next == told + 1,
            "{place}: told {told}, found {next}"
        );
        let first = journal.first_position();
        let groups = journal.read(first, Limit::default()).unwrap();
        assert_eq!(groups.len() as u64, next - first.0);
        let history = PostgresHistory::open(&address, SHARD).unwrap();
        for position in 0..next {
            let job = history.job(JobId(position % 50)).unwrap();
            assert!(job.is_some(), "{place}: a group without its rows");
        }
        assert!(
            history.job(JobId(next % 50)).unwrap().is_none(),
            "{place}: rows without a group"
        );
        if let Some(snapshot) = journal.latest_snapshot().unwrap() {
            let state = vec![snapshot.position.0 as u8; 600_000];
            assert!(snapshot.state == state, "{place}: a part of a snapshot");
        }
        journal.append(Position(next), &sample::full(0)).unwrap();
    }
}
