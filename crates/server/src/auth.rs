//! Who may come in: the server's certificate and the tokens it knows.
//!
//! Both live in the server's directory, readable by its owner alone. Of a token only the SHA-256 is
//! kept, so a copy of the directory opens no door; the certificate is our own work, and clients know it
//! by its fingerprint.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use loxley_api::{
    Access, AccessError, ApiError, ErrorCode, Fingerprint, Link, Permission, Role, Session,
    SessionInfo, Token, TokenHash, TokenInfo, TokenRequest,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::browser_sessions::{self, BrowserSessions};

/// Who asks.
#[derive(Clone, Debug)]
pub struct Caller {
    /// What it may do.
    pub role: Role,
    /// What its token is called.
    pub name: Arc<str>,
    /// For whom its jobs count.
    pub user: Arc<str>,
    /// Ended when the token is taken back.
    revoked: CancellationToken,
    /// The token behind it, and until when its browser is signed in, if it is one.
    origin: Option<Origin>,
}

#[derive(Clone, Copy, Debug)]
struct Origin {
    token: TokenHash,
    session_expires_unix_ms: Option<u64>,
}

impl Caller {
    /// Somebody whose token is never taken back.
    #[must_use]
    pub fn new(role: Role, name: &str, user: &str) -> Self {
        Self {
            role,
            name: name.into(),
            user: user.into(),
            revoked: CancellationToken::new(),
            origin: None,
        }
    }

    /// Who that is, for the one who asks.
    #[must_use]
    pub fn info(&self) -> SessionInfo {
        SessionInfo {
            name: self.name.as_ref().to_owned(),
            role: self.role,
            user: self.user.as_ref().to_owned(),
            expires_unix_ms: self
                .origin
                .and_then(|origin| origin.session_expires_unix_ms),
        }
    }

    /// Comes when the token is taken back: whatever was opened with it ends then.
    pub async fn revoked(&self) {
        self.revoked.cancelled().await;
    }

    /// The token itself; a browser that is signed in has none.
    fn own_token(&self) -> Result<TokenHash, ApiError> {
        let own = self
            .origin
            .filter(|origin| origin.session_expires_unix_ms.is_none());
        own.map(|origin| origin.token).ok_or_else(|| {
            let message = "a browser that is signed in cannot sign others in";
            let help = "make a link where the access file is: `loxley dashboard`";
            ApiError::new(ErrorCode::Forbidden, message).with_help(help)
        })
    }

    /// Refuses whoever lacks a permission.
    ///
    /// # Errors
    /// When the role does not have it.
    pub fn need(&self, permission: Permission) -> Result<(), ApiError> {
        if self.role.may(permission) {
            return Ok(());
        }
        let message = format!("a token of role `{}` does not allow this", self.role);
        Err(ApiError::new(ErrorCode::Forbidden, message))
    }

    /// For whom a job counts that names this user, or none. Shares and quotas go by users, so nobody but an
    /// admin may hand in work in the name of somebody else.
    ///
    /// # Errors
    /// When the token is for another user.
    pub fn act_for<'a>(&'a self, user: Option<&'a str>) -> Result<&'a str, ApiError> {
        match user {
            Some(user) if *user != *self.user && self.role != Role::Admin => {
                let own = &self.user;
                let message = format!("this token counts for `{own}`, not for `{user}`");
                let error = ApiError::new(ErrorCode::Forbidden, message);
                Err(error.with_help("only an admin may submit for somebody else"))
            }
            Some(user) => Ok(user),
            None => Ok(&self.user),
        }
    }
}

/// Why the door could not be made.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// A file could not be read or written.
    #[error("{path}", path = path.display())]
    Io {
        /// Which one.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file holds something else than it should.
    #[error("{path} is damaged: {what}", path = path.display())]
    Damaged {
        /// Which one.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// No certificate could be made.
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// TLS does not take the certificate.
    #[error("cannot use the certificate")]
    Tls(#[from] rustls::Error),
    /// The access file could not be written.
    #[error("cannot write the access file")]
    Access(#[from] AccessError),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Known {
    name: String,
    role: Role,
    /// The name, where none is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    hash: TokenHash,
    created_unix_ms: u64,
    #[serde(skip)]
    revoked: CancellationToken,
}

impl Known {
    fn caller(&self, role: Role, origin: Origin) -> Caller {
        Caller {
            role,
            name: self.name.as_str().into(),
            user: self.user().into(),
            revoked: self.revoked.clone(),
            origin: Some(origin),
        }
    }

    fn user(&self) -> &str {
        self.user.as_deref().unwrap_or(&self.name)
    }
}

/// The door of a server.
#[derive(Debug)]
pub struct Gate {
    directory: PathBuf,
    fingerprint: Fingerprint,
    tls: Arc<ServerConfig>,
    tokens: RwLock<Vec<Known>>,
    browsers: BrowserSessions,
    /// What tells the tokens that this instance makes for its own directory from those of others; empty where it is the
    /// only one.
    instance: String,
    /// What instances show each other when they pass a request on; none where there is only one.
    peers: Option<Token>,
}

/// What makes a server the one that clients know.
#[cfg(feature = "postgres")]
#[derive(Serialize, Deserialize)]
pub(crate) struct Identity {
    certificate: String,
    key: String,
}

const TOKENS: &str = "tokens.json";
const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "key.pem";
/// How many tokens there may be.
const TOKENS_MAX: usize = 10_000;

impl Gate {
    /// Reads the certificate and the tokens in `directory`; makes them where there are none.
    ///
    /// # Errors
    /// When a file cannot be read, written or understood.
    ///
    /// `names` are what clients may call the server by, beside `localhost`: a new certificate has them, and one
    /// that is there and lacks one is told of.
    pub fn open(directory: &Path, names: &[String]) -> Result<Self, GateError> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(directory).map_err(at(directory))?;
        let (certificate, key) = certificate_in(directory, names)?;
        let fingerprint = Fingerprint::of(&certificate);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self {
            tokens: RwLock::new(read_tokens(&directory.join(TOKENS))?),
            browsers: BrowserSessions::open(directory)?,
            directory: directory.to_owned(),
            fingerprint,
            tls: Arc::new(tls),
            instance: String::new(),
            peers: None,
        })
    }

    /// The same, for one of several instances.
    #[cfg(feature = "postgres")]
    pub(crate) fn of_instance(self, name: &str) -> Result<Self, GateError> {
        // All instances have one key, and nobody else has it.
        let identity = Self::identity(&self.directory)?;
        let secret = format!("loxley: between instances\n{}", identity.key);
        let secret = Fingerprint::of(secret.as_bytes()).to_string();
        Ok(Self {
            instance: format!("-{name}"),
            peers: Some(Token::from_text(&secret)),
            ..self
        })
    }

    /// What this instance shows others when it passes a request on.
    #[cfg(feature = "postgres")]
    pub(crate) fn peer_token(&self) -> &str {
        self.peers.as_ref().map_or("", Token::reveal)
    }

    /// For whom another instance passes a request on.
    pub(crate) fn passed_on(&self, token: &str, caller: Option<&[u8]>) -> Option<Caller> {
        let peers = self.peers.as_ref()?;
        // By their hashes, which takes a time that says nothing of the token.
        if peers.hash() != Token::from_text(token).hash() {
            return None;
        }
        let SessionInfo {
            name, role, user, ..
        } = serde_json::from_slice(caller?).ok()?;
        Some(Caller::new(role, &name, &user))
    }

    /// Certificate and key, for another instance of the server: whoever has them is the server.
    #[cfg(feature = "postgres")]
    pub(crate) fn identity(directory: &Path) -> Result<Identity, GateError> {
        let read = |name: &str| {
            let path = directory.join(name);
            fs::read_to_string(&path).map_err(at(&path))
        };
        Ok(Identity {
            certificate: read(CERTIFICATE)?,
            key: read(KEY)?,
        })
    }

    /// Puts certificate and key of another instance into a directory.
    #[cfg(feature = "postgres")]
    pub(crate) fn adopt(directory: &Path, identity: &Identity) -> Result<(), GateError> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(directory).map_err(at(directory))?;
        write_secret(&directory.join(KEY), identity.key.as_bytes())?;
        write_secret(
            &directory.join(CERTIFICATE),
            identity.certificate.as_bytes(),
        )
    }

    /// The tokens, for other instances: hashes, no secrets.
    #[cfg(feature = "postgres")]
    pub(crate) fn tokens_json(&self) -> Vec<u8> {
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        serde_json::to_vec_pretty(&*tokens).expect("tokens are JSON")
    }

    /// Knows these tokens from now on, and no others.
    #[cfg(feature = "postgres")]
    pub(crate) fn load_tokens(&self, json: &[u8]) -> Result<(), GateError> {
        let damaged = |error: serde_json::Error| GateError::Damaged {
            path: self.directory.join(TOKENS),
            what: format!("what other instances know: {error}"),
        };
        let mut fresh: Vec<Known> = serde_json::from_slice(json).map_err(damaged)?;
        let mut tokens = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
        for known in tokens.iter() {
            match fresh.iter_mut().find(|fresh| fresh.hash == known.hash) {
                Some(fresh) => fresh.revoked = known.revoked.clone(),
                None => known.revoked.cancel(),
            }
        }
        write_tokens(&self.directory, &fresh)?;
        *tokens = fresh;
        Ok(())
    }

    /// Whether a server was here before: it made tokens.
    pub(crate) fn exists(directory: &Path) -> bool {
        directory.join(TOKENS).exists()
    }

    /// What clients know the server by.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    pub(crate) fn tls(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.tls)
    }

    /// Who holds this token, or this secret of a browser that is signed in; none when nobody does.
    #[must_use]
    pub fn caller(&self, secret: &str) -> Option<Caller> {
        let hash = Token::from_text(secret).hash();
        if let Some(known) = self.known(hash) {
            let origin = Origin {
                token: hash,
                session_expires_unix_ms: None,
            };
            return Some(known.caller(known.role, origin));
        }
        let session = self.browsers.session(hash)?;
        let origin = Origin {
            token: session.token,
            session_expires_unix_ms: Some(session.expires_unix_ms),
        };
        Some(self.known(session.token)?.caller(session.role, origin))
    }

    fn known(&self, hash: TokenHash) -> Option<Known> {
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        tokens.iter().find(|known| known.hash == hash).cloned()
    }

    /// What signs one browser in, once and soon, with what the caller may do or less.
    ///
    /// # Errors
    /// When the caller is a browser itself: nobody stays signed in by passing links on to themselves.
    pub fn link(&self, caller: &Caller, read_only: bool) -> Result<Link, ApiError> {
        let token = caller.own_token()?;
        let role = if read_only { Role::Read } else { caller.role };
        let ticket = self.browsers.issue(token, role);
        Ok(Link {
            path: format!("/#ticket={}", ticket.reveal()),
            lifetime_sec: browser_sessions::TICKET_TIME.as_secs(),
        })
    }

    /// Who follows a link; the link is used up.
    #[must_use]
    pub fn redeem(&self, ticket: &str) -> Option<Caller> {
        let ticket = self.browsers.redeem(Token::from_text(ticket).hash())?;
        let origin = Origin {
            token: ticket.token,
            session_expires_unix_ms: None,
        };
        Some(self.known(ticket.token)?.caller(ticket.role, origin))
    }

    /// Signs a browser in, with what the caller may do, for half a day.
    ///
    /// # Errors
    /// When the caller is a browser itself, or the session cannot be written down.
    pub fn sign_in(&self, caller: &Caller) -> Result<Session, ApiError> {
        let token = caller.own_token()?;
        let opened = self.browsers.open_session(token, caller.role);
        let (secret, expires) =
            opened.map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string()))?;
        Ok(Session {
            secret,
            info: SessionInfo {
                expires_unix_ms: Some(expires),
                ..caller.info()
            },
        })
    }

    /// Signs a browser out. Nothing happens when it was not in.
    ///
    /// # Errors
    /// When that cannot be written down.
    pub fn sign_out(&self, secret: &str) -> Result<(), ApiError> {
        let closed = self.browsers.close(Token::from_text(secret).hash());
        closed.map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string()))
    }

    /// Writes `access.json` for the owner of the directory. A token that is there and works stays.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write_access(&self, url: &str, others: &[String]) -> Result<Access, GateError> {
        let name = format!("admin{}", self.instance);
        let path = self.directory.join(Access::FILE);
        let earlier = Access::read(&path).ok().filter(|access| {
            let caller = self.caller(access.token.reveal());
            caller.is_some_and(|caller| caller.role == Role::Admin)
        });
        let token = match earlier {
            Some(access) => access.token,
            None => self.replace(&TokenRequest::new(&name, Role::Admin))?,
        };
        let access = Access {
            url: url.to_owned(),
            others: others.to_vec(),
            certificate_sha256: self.fingerprint,
            token,
            role: Role::Admin,
            name,
        };
        access.write(&path)?;
        Ok(access)
    }

    /// Writes `agent.json`, for agents on this machine: what they run gets to see no token that can do more than
    /// they. One that is there stays as it is, but for the address; also when its token was taken back.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write_agent_access(&self, url: &str, others: &[String]) -> Result<(), GateError> {
        let name = format!("local-agents{}", self.instance);
        let path = self.directory.join(Access::AGENT_FILE);
        let token = match Access::read(&path) {
            Ok(access) => access.token,
            Err(AccessError::Missing(_)) => self.replace(&TokenRequest::new(&name, Role::Agent))?,
            Err(error) => return Err(error.into()),
        };
        let access = Access {
            url: url.to_owned(),
            others: others.to_vec(),
            certificate_sha256: self.fingerprint,
            token,
            role: Role::Agent,
            name,
        };
        Ok(access.write(&path)?)
    }

    /// Makes a token. Its secret is told this once.
    ///
    /// # Errors
    /// When the name is taken or makes no sense, or the file cannot be written.
    pub fn create(&self, request: &TokenRequest) -> Result<Token, ApiError> {
        request.check()?;
        let tokens = self.list();
        if tokens.iter().any(|token| token.name == request.name) {
            let message = format!("there is a token `{}`", request.name);
            return Err(ApiError::new(ErrorCode::Conflict, message));
        }
        if tokens.len() >= TOKENS_MAX {
            let message = format!("there are {TOKENS_MAX} tokens");
            return Err(ApiError::new(ErrorCode::TooLarge, message));
        }
        let made = self.replace(request);
        made.map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string()))
    }

    /// Takes a token back.
    ///
    /// # Errors
    /// When there is none of this name, or the file cannot be written.
    pub fn revoke(&self, name: &str) -> Result<(), ApiError> {
        let mut tokens = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
        let before = tokens.len();
        let kept: Vec<Known> = tokens
            .iter()
            .filter(|known| known.name != name)
            .cloned()
            .collect();
        if kept.len() == before {
            return Err(ApiError::not_found("token", name));
        }
        write_tokens(&self.directory, &kept)
            .map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string()))?;
        end_all(&tokens, name);
        *tokens = kept;
        Ok(())
    }

    /// All tokens, without their secrets.
    #[must_use]
    pub fn list(&self) -> Vec<TokenInfo> {
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let infos = tokens.iter().map(|known| TokenInfo {
            name: known.name.clone(),
            role: known.role,
            user: known.user().to_owned(),
            created_unix_ms: known.created_unix_ms,
        });
        infos.collect()
    }

    /// A new token under a name, in place of the one that had it.
    fn replace(&self, request: &TokenRequest) -> Result<Token, GateError> {
        let token = Token::random();
        let mut tokens = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed: Vec<Known> = tokens
            .iter()
            .filter(|known| known.name != request.name)
            .cloned()
            .collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        changed.push(Known {
            name: request.name.clone(),
            role: request.role,
            user: request.user.clone(),
            hash: token.hash(),
            created_unix_ms: now.map_or(0, |since| since.as_millis() as u64),
            revoked: CancellationToken::new(),
        });
        write_tokens(&self.directory, &changed)?;
        end_all(&tokens, &request.name);
        *tokens = changed;
        Ok(token)
    }
}

/// Ends what was opened with the token of this name.
fn end_all(tokens: &[Known], name: &str) {
    let of_this_name = tokens.iter().filter(|known| known.name == name);
    of_this_name.for_each(|known| known.revoked.cancel());
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> GateError {
    let path = path.to_owned();
    move |source| GateError::Io { path, source }
}

fn read_tokens(path: &Path) -> Result<Vec<Known>, GateError> {
    match fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map_err(|error| GateError::Damaged {
            path: path.to_owned(),
            what: error.to_string(),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(at(path)(error)),
    }
}

fn write_tokens(directory: &Path, tokens: &[Known]) -> Result<(), GateError> {
    let text = serde_json::to_vec_pretty(tokens).expect("tokens are JSON");
    write_secret(&directory.join(TOKENS), &text)
}

fn certificate_in(
    directory: &Path,
    names: &[String],
) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), GateError> {
    let (certificate, key) = (directory.join(CERTIFICATE), directory.join(KEY));
    if !certificate.exists() || !key.exists() {
        let usual = ["loxley", "localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let mut all: Vec<String> = usual.into_iter().chain(names.iter().cloned()).collect();
        all.sort_unstable();
        all.dedup();
        let made = rcgen::generate_simple_self_signed(all)?;
        // The key first: a certificate without its key would be taken for a whole pair.
        write_secret(&key, made.signing_key.serialize_pem().as_bytes())?;
        write_secret(&certificate, made.cert.pem().as_bytes())?;
    }
    let made = CertificateDer::from_pem_file(&certificate);
    let lacks = |name: &&String| !made.as_ref().is_ok_and(|made| has_name(made, name));
    for name in names.iter().filter(lacks) {
        tracing::warn!(
            "the certificate was made without the name `{name}`: our own clients know it by its fingerprint, \
             others will not take it; for a new one, move {CERTIFICATE} and {KEY} away before a start, and give \
             out all access files anew"
        );
    }
    let damaged = |path: &Path| {
        let path = path.to_owned();
        move |error: rustls::pki_types::pem::Error| GateError::Damaged {
            path,
            what: error.to_string(),
        }
    };
    let chain = CertificateDer::from_pem_file(&certificate).map_err(damaged(&certificate))?;
    let secret = PrivateKeyDer::from_pem_file(&key).map_err(damaged(&key))?;
    Ok((chain, secret))
}

/// Whether a certificate is for this name or address: whether its list of them holds that entry, as DER writes it.
fn has_name(certificate: &[u8], name: &str) -> bool {
    const DNS_NAME: u8 = 0x82;
    const ADDRESS: u8 = 0x87;
    let (tag, content) = match name.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => (ADDRESS, address.octets().to_vec()),
        Ok(IpAddr::V6(address)) => (ADDRESS, address.octets().to_vec()),
        Err(_) => (DNS_NAME, name.as_bytes().to_vec()),
    };
    let Ok(length) = u8::try_from(content.len()) else {
        return false;
    };
    let entry = [&[tag, length], content.as_slice()].concat();
    certificate
        .windows(entry.len())
        .any(|window| window == entry)
}

/// Writes a file that only its owner may read, whole or not at all.
pub(crate) fn write_secret(path: &Path, text: &[u8]) -> Result<(), GateError> {
    let temporary = path.with_extension(format!("{}.new", std::process::id()));
    let written = (|| {
        // What an earlier process of our number left behind could have another mode.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file: File = options.open(&temporary)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    written.map_err(at(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(feature = "postgres")]
    fn only_another_instance_speaks_for_somebody_else() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let one = Gate::open(here.path(), &[]).unwrap();
        let caller = serde_json::to_vec(&Caller::new(Role::Submit, "ci", "mia").info()).unwrap();
        // One that is alone has no peers, whatever is said.
        assert!(one.passed_on("", Some(&caller)).is_none());
        let one = one.of_instance("a").unwrap();
        Gate::adopt(there.path(), &Gate::identity(here.path()).unwrap()).unwrap();
        let other = Gate::open(there.path(), &[])
            .unwrap()
            .of_instance("b")
            .unwrap();
        let known = other.passed_on(one.peer_token(), Some(&caller)).unwrap();
        assert_eq!((known.role, &*known.user), (Role::Submit, "mia"));
        assert!(other.passed_on(one.peer_token(), None).is_none());
        assert!(other.passed_on("guessed", Some(&caller)).is_none());
        // An instance of another cluster has another key.
        let elsewhere = tempfile::tempdir().unwrap();
        let stranger = Gate::open(elsewhere.path(), &[])
            .unwrap()
            .of_instance("c")
            .unwrap();
        assert!(
            other
                .passed_on(stranger.peer_token(), Some(&caller))
                .is_none()
        );
        assert!(one.caller(one.peer_token()).is_none());
    }

    #[test]
    fn a_token_opens_the_door_until_it_is_taken_back_and_survives_a_restart() {
        let scratch = tempfile::tempdir().unwrap();
        let gate = Gate::open(scratch.path(), &[]).unwrap();
        let request = TokenRequest::new("ci", Role::Read);
        let token = gate.create(&request).unwrap();
        assert_eq!(gate.create(&request).unwrap_err().code, ErrorCode::Conflict);
        let again = Gate::open(scratch.path(), &[]).unwrap();
        assert_eq!(again.fingerprint(), gate.fingerprint());
        let caller = again.caller(token.reveal()).unwrap();
        assert!(caller.need(Permission::Look).is_ok());
        assert_eq!(
            caller.need(Permission::Submit).unwrap_err().code,
            ErrorCode::Forbidden
        );
        assert!(again.caller("wrong").is_none());
        assert!(again.caller("").is_none());
        again.revoke("ci").unwrap();
        assert!(caller.revoked.is_cancelled());
        assert!(again.caller(token.reveal()).is_none());
        assert!(again.revoke("ci").is_err());
    }

    #[test]
    fn nobody_but_an_admin_acts_for_somebody_else() {
        let scratch = tempfile::tempdir().unwrap();
        let gate = Gate::open(scratch.path(), &[]).unwrap();
        let caller = |name: &str, role, user: Option<&str>| {
            let mut request = TokenRequest::new(name, role);
            request.user = user.map(str::to_owned);
            let token = gate.create(&request).unwrap();
            gate.caller(token.reveal()).unwrap()
        };
        let ada = caller("ada", Role::Submit, None);
        let laptop = caller("laptop", Role::Submit, Some("ada"));
        let admin = caller("chief", Role::Admin, None);
        for caller in [&ada, &laptop] {
            assert_eq!(caller.act_for(None).unwrap(), "ada");
            assert_eq!(caller.act_for(Some("ada")).unwrap(), "ada");
            let refused = caller.act_for(Some("bob")).unwrap_err();
            assert_eq!(refused.code, ErrorCode::Forbidden);
        }
        assert_eq!(admin.act_for(Some("bob")).unwrap(), "bob");
        assert_eq!(admin.act_for(None).unwrap(), "chief");
    }

    #[test]
    fn the_certificate_has_the_names_and_addresses_that_were_given() {
        let scratch = tempfile::tempdir().unwrap();
        let names = ["fleet.example.org", "192.0.2.7", "2001:db8::7"].map(str::to_owned);
        Gate::open(scratch.path(), &names).unwrap();
        let path = scratch.path().join(CERTIFICATE);
        let certificate = CertificateDer::from_pem_file(path).unwrap();
        for name in names
            .iter()
            .map(String::as_str)
            .chain(["localhost", "127.0.0.1", "::1"])
        {
            assert!(has_name(&certificate, name), "{name}");
        }
        assert!(!has_name(&certificate, "other.example.org"));
        assert!(!has_name(&certificate, "192.0.2.8"));
    }

    #[test]
    fn agents_have_a_token_of_their_own_that_stays_revoked() {
        let scratch = tempfile::tempdir().unwrap();
        let gate = Gate::open(scratch.path(), &[]).unwrap();
        let path = scratch.path().join(Access::AGENT_FILE);
        gate.write_agent_access("https://127.0.0.1:1", &[]).unwrap();
        let access = Access::read(&path).unwrap();
        assert_eq!(
            gate.caller(access.token.reveal()).unwrap().role,
            Role::Agent
        );
        gate.revoke(&access.name).unwrap();
        gate.write_agent_access("https://127.0.0.1:2", &[]).unwrap();
        let access = Access::read(&path).unwrap();
        assert_eq!(access.url, "https://127.0.0.1:2");
        assert!(gate.caller(access.token.reveal()).is_none());
    }

    #[test]
    fn the_admins_token_stays_as_long_as_it_works() {
        let scratch = tempfile::tempdir().unwrap();
        let gate = Gate::open(scratch.path(), &[]).unwrap();
        let first = gate.write_access("https://127.0.0.1:1", &[]).unwrap();
        let second = gate.write_access("https://127.0.0.1:2", &[]).unwrap();
        assert_eq!(first.token, second.token);
        gate.revoke("admin").unwrap();
        let third = gate.write_access("https://127.0.0.1:2", &[]).unwrap();
        assert_ne!(first.token, third.token);
        assert_eq!(gate.caller(third.token.reveal()).unwrap().role, Role::Admin);
    }
}
