//! TLS to the database, with the library that the server has anyway.
//!
//! `prefer` and `require` keep listeners out and take any certificate, as `libpq` does; `verify-full` also knows whom
//! it talks to.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use super::address::Mode;
use crate::DatabaseError;

/// Makes connections safe from listeners.
#[derive(Clone, Debug)]
pub(super) struct Tls(Arc<ClientConfig>);

pub(super) fn connector(mode: Mode, root: Option<&str>) -> Result<Tls, DatabaseError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| DatabaseError::Address(error.to_string()))?;
    let mut config = match (mode, root) {
        (Mode::VerifyFull, Some(path)) => builder
            .with_root_certificates(roots(path)?)
            .with_no_client_auth(),
        (Mode::VerifyFull, None) => {
            return Err(DatabaseError::Address(
                "sslmode=verify-full needs sslrootcert=FILE, the certificates to trust".to_owned(),
            ));
        }
        _ => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
            .with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    Ok(Tls(Arc::new(config)))
}

fn roots(path: &str) -> Result<RootCertStore, DatabaseError> {
    let refused = |why: String| DatabaseError::RootCertificate {
        path: path.to_owned(),
        why,
    };
    let mut store = RootCertStore::empty();
    let read =
        CertificateDer::pem_file_iter(path).map_err(|error| refused(format!("{error:?}")))?;
    for certificate in read {
        let certificate = certificate.map_err(|error| refused(format!("{error:?}")))?;
        store
            .add(certificate)
            .map_err(|error| refused(error.to_string()))?;
    }
    match store.is_empty() {
        true => Err(refused("there is none in it".to_owned())),
        false => Ok(store),
    }
}

/// Takes any certificate whose owner can prove to be it.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// To one host.
pub(super) struct Connect {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl<Stream> MakeTlsConnect<Stream> for Tls
where
    Connect: TlsConnect<Stream>,
{
    type Stream = <Connect as TlsConnect<Stream>>::Stream;
    type TlsConnect = Connect;
    type Error = rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<Connect, Self::Error> {
        // The host of a socket in the file system is empty, and no TLS is spoken there.
        let host = if host.is_empty() { "localhost" } else { host };
        Ok(Connect {
            connector: TlsConnector::from(Arc::clone(&self.0)),
            name: ServerName::try_from(host.to_owned())?,
        })
    }
}

impl TlsConnect<tokio_postgres::Socket> for Connect {
    type Stream = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn connect(self, socket: tokio_postgres::Socket) -> Self::Future {
        Box::pin(async move {
            let stream = self.connector.connect(self.name, socket).await?;
            Ok(Stream(Box::new(stream)))
        })
    }
}

/// A connection that is safe from listeners.
pub(super) struct Stream(Box<tokio_rustls::client::TlsStream<tokio_postgres::Socket>>);

impl TlsStream for Stream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(context)
    }
}
