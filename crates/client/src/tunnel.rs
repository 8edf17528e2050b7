//! A way to a server for programs that do not know its certificate: browsers.
//!
//! ```text
//!  browser ── http, this machine only ──▶ tunnel ── TLS, the certificate of the access file ──▶ server
//! ```
//!
//! The tunnel adds nothing: whoever comes through it needs a token, as everybody does.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use loxley_api::{Access, client_config};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::transport::Boxed;

/// How long a connection to the server may take to come about.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// A door on this machine that leads to a server.
#[derive(Debug)]
pub struct Tunnel {
    listener: TcpListener,
    address: SocketAddr,
    host: String,
    port: u16,
    tls: Arc<ClientConfig>,
}

impl Tunnel {
    /// Opens the door, on this port of 127.0.0.1; 0 takes any free one. Nobody comes through before [`run`](Self::run).
    ///
    /// # Errors
    /// When the port is taken, or the access file names no address.
    pub async fn open(access: &Access, port: u16) -> io::Result<Self> {
        let odd = || {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "the access file names no address",
            )
        };
        let url: Uri = access.url.parse().map_err(|_| odd())?;
        let host = url
            .host()
            .ok_or_else(odd)?
            .trim_matches(['[', ']'])
            .to_owned();
        let mut config = client_config(access.certificate_sha256);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        Ok(Self {
            address: listener.local_addr()?,
            listener,
            host,
            port: url.port_u16().unwrap_or(443),
            tls: Arc::new(config),
        })
    }

    /// Where the door is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets connections through, for as long as it is polled.
    pub fn run(self) -> Boxed<'static, ()> {
        Box::pin(Arc::new(self).let_through())
    }

    async fn let_through(self: Arc<Self>) {
        loop {
            match self.listener.accept().await {
                // The other end may be away for a while: the browser sees a connection that ends, and tries again.
                Ok((stream, _)) => _ = tokio::spawn(Arc::clone(&self).carry(stream)),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    async fn carry(self: Arc<Self>, mut stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let reach = async {
            let server = TcpStream::connect((self.host.as_str(), self.port)).await?;
            server.set_nodelay(true)?;
            // The certificate is known by its fingerprint, whatever name it bears.
            let name = ServerName::try_from("loxley").map_err(io::Error::other)?;
            let tls = TlsConnector::from(Arc::clone(&self.tls));
            tls.connect(name, server).await
        };
        if let Ok(Ok(mut server)) = tokio::time::timeout(CONNECT_TIME, reach).await {
            let _ = copy_bidirectional(&mut stream, &mut server).await;
        }
    }
}
