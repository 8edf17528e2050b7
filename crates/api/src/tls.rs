//! TLS towards the one server that an access file names.
//!
//! The server's certificate is its own work, so nobody's signature says anything about it. What
//! counts is that its SHA-256 is the one in the access file, and that the server proves to hold its
//! key: the signature over the handshake is checked as always.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, SignatureScheme,
};

use crate::Fingerprint;

/// A verifier that accepts one certificate, whatever name and date it bears.
#[derive(Debug)]
pub struct PinnedServer {
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
}

/// The certificate is another one than the access file says.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("its certificate ({found}) is not the one of the access file ({expected})")]
struct WrongCertificate {
    expected: Fingerprint,
    found: Fingerprint,
}

/// The configuration of a client that accepts the certificate with this fingerprint and no other.
///
/// Protocols (ALPN) are for the caller to name.
///
/// # Panics
/// Never: the provider we name speaks the versions we name.
#[must_use]
pub fn client_config(fingerprint: Fingerprint) -> ClientConfig {
    let provider = Arc::new(ring::default_provider());
    let verifier = PinnedServer {
        fingerprint,
        provider: Arc::clone(&provider),
    };
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring speaks TLS 1.2 and 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth()
}

impl ServerCertVerifier for PinnedServer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = Fingerprint::of(end_entity);
        if found == self.fingerprint {
            return Ok(ServerCertVerified::assertion());
        }
        let wrong = WrongCertificate {
            expected: self.fingerprint,
            found,
        };
        let wrong = CertificateError::Other(OtherError(Arc::new(wrong)));
        Err(Error::InvalidCertificate(wrong))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
