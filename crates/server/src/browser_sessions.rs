//! Browsers that are signed in, and the links that sign them in.
//!
//! ```text
//!  loxley dashboard ─ token ─▶ POST /v1/session/link ─▶ ticket: works once, for a minute
//!  browser ─────── ticket ───▶ POST /v1/session ──────▶ secret: works for half a day
//!  browser ─ pasted token ───▶ POST /v1/session ──────▶ the same
//! ```
//!
//! A browser holds the secret in the memory of its tab and sends it as a header. It is no cookie, so no page of
//! anybody else can have a browser send it: there is no request that could be forged.
//!
//! What must stay true: a session does no more than the token behind it, and ends with it; of secrets only hashes are
//! kept; sessions survive a restart of the server, tickets do not.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use loxley_api::{Role, Token, TokenHash};
use serde::{Deserialize, Serialize};

use crate::auth::{GateError, write_secret};

/// How long a link works.
pub(crate) const TICKET_TIME: Duration = Duration::from_secs(60);
/// How long a browser stays signed in.
const SESSION_TIME: Duration = Duration::from_secs(12 * 3600);
/// So many browsers are signed in at most; the one that signed in first goes first. The same of links.
const SESSIONS_MAX: usize = 1000;
const FILE: &str = "sessions.json";

/// What somebody may do, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Admission {
    hash: TokenHash,
    /// The token behind it.
    pub(crate) token: TokenHash,
    pub(crate) role: Role,
    pub(crate) expires_unix_ms: u64,
}

#[derive(Debug)]
pub(crate) struct BrowserSessions {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    tickets: Vec<Admission>,
    sessions: Vec<Admission>,
}

impl BrowserSessions {
    pub(crate) fn open(directory: &Path) -> Result<Self, GateError> {
        let path = directory.join(FILE);
        let sessions = match std::fs::read(&path) {
            // Whoever is signed in signs in again: that is no reason not to start.
            Ok(text) => serde_json::from_slice(&text).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(GateError::Io { path, source }),
        };
        Ok(Self {
            path,
            state: Mutex::new(State {
                sessions,
                ..State::default()
            }),
        })
    }

    /// A new ticket.
    pub(crate) fn issue(&self, token: TokenHash, role: Role) -> Token {
        let (secret, admission) = admit(token, role, TICKET_TIME);
        push(&mut self.lock().tickets, admission);
        secret
    }

    /// Uses a ticket up.
    pub(crate) fn redeem(&self, hash: TokenHash) -> Option<Admission> {
        let mut state = self.lock();
        let place = state.tickets.iter().position(|one| one.hash == hash)?;
        let ticket = state.tickets.remove(place);
        (ticket.expires_unix_ms > now_unix_ms()).then_some(ticket)
    }

    /// A new session, and when it ends.
    pub(crate) fn open_session(
        &self,
        token: TokenHash,
        role: Role,
    ) -> Result<(Token, u64), GateError> {
        let (secret, admission) = admit(token, role, SESSION_TIME);
        let mut state = self.lock();
        push(&mut state.sessions, admission);
        self.write(&state.sessions)?;
        Ok((secret, admission.expires_unix_ms))
    }

    pub(crate) fn session(&self, hash: TokenHash) -> Option<Admission> {
        let state = self.lock();
        let found = state.sessions.iter().find(|one| one.hash == hash).copied();
        found.filter(|session| session.expires_unix_ms > now_unix_ms())
    }

    pub(crate) fn close(&self, hash: TokenHash) -> Result<(), GateError> {
        let mut state = self.lock();
        state.sessions.retain(|one| one.hash != hash);
        self.write(&state.sessions)
    }

    fn write(&self, sessions: &[Admission]) -> Result<(), GateError> {
        let text = serde_json::to_vec(sessions).expect("sessions are JSON");
        write_secret(&self.path, &text)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn admit(token: TokenHash, role: Role, time: Duration) -> (Token, Admission) {
    let secret = Token::random();
    let admission = Admission {
        hash: secret.hash(),
        token,
        role,
        expires_unix_ms: now_unix_ms() + time.as_millis() as u64,
    };
    (secret, admission)
}

fn push(list: &mut Vec<Admission>, admission: Admission) {
    let now = now_unix_ms();
    list.retain(|one| one.expires_unix_ms > now);
    if list.len() >= SESSIONS_MAX {
        list.remove(0);
    }
    list.push(admission);
}

fn now_unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_works_once_and_a_session_survives_a_restart() {
        let scratch = tempfile::tempdir().expect("there is room");
        let sessions = BrowserSessions::open(scratch.path()).expect("it opens");
        let token = Token::random().hash();
        let ticket = sessions.issue(token, Role::Read);
        let redeemed = sessions.redeem(ticket.hash()).expect("it is new");
        assert_eq!((redeemed.token, redeemed.role), (token, Role::Read));
        assert_eq!(sessions.redeem(ticket.hash()), None);
        let opened = sessions.open_session(token, Role::Read);
        let (secret, _) = opened.expect("it is written");
        drop(sessions);
        let sessions = BrowserSessions::open(scratch.path()).expect("it opens");
        assert_eq!(
            sessions.session(secret.hash()).expect("it is there").token,
            token
        );
        sessions.close(secret.hash()).expect("it is written");
        assert_eq!(sessions.session(secret.hash()), None);
        let sessions = BrowserSessions::open(scratch.path()).expect("it opens");
        assert_eq!(sessions.session(secret.hash()), None);
    }

    #[test]
    fn what_has_expired_is_worth_nothing() {
        let scratch = tempfile::tempdir().expect("there is room");
        let sessions = BrowserSessions::open(scratch.path()).expect("it opens");
        let (secret, expired) = admit(Token::random().hash(), Role::Admin, Duration::ZERO);
        sessions.lock().tickets.push(expired);
        sessions.lock().sessions.push(expired);
        assert_eq!(sessions.session(secret.hash()), None);
        assert_eq!(sessions.redeem(secret.hash()), None);
    }
}
