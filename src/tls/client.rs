//! What a handshake shows of a client.

use std::fmt::Write as _;

use rustls::{CertificateError, ProtocolVersion, ServerConnection};
use sha2::{Digest as _, Sha256};

use super::x509;
use crate::net::tls_info::{ClientCertificate, TlsInfo};

/// What is known of a client after its handshake; also of a resumed session.
pub fn info(connection: &ServerConnection) -> TlsInfo {
    let version = match connection.protocol_version() {
        Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
        _ => "TLSv1.3",
    };
    let cipher = connection.negotiated_cipher_suite();
    TlsInfo {
        version,
        cipher: cipher.and_then(|cipher| cipher.suite().as_str()).unwrap_or_default(),
        server_name: connection.server_name().map(Into::into),
        client: connection.peer_certificates().and_then(|chain| certificate(chain.first()?)),
    }
}

/// Checks the certificate of the client, if it has one: [`info`] can show it, and it has not
/// expired at the Unix time `now`, in seconds. TLS verifies it in a full handshake only, and a
/// session may be resumed later.
///
/// # Errors
/// What is wrong with the certificate.
pub(super) fn check(connection: &ServerConnection, now: u64) -> Result<(), CertificateError> {
    let first = connection.peer_certificates().and_then(|chain| chain.first());
    first.map_or(Ok(()), |der| check_certificate(der, now))
}

pub(super) fn check_certificate(der: &[u8], now: u64) -> Result<(), CertificateError> {
    let end = x509::end(der).ok_or(CertificateError::BadEncoding)?;
    if end < now { Err(CertificateError::Expired) } else { Ok(()) }
}

/// Reads a client certificate; `None` if it is not valid DER.
fn certificate(der: &[u8]) -> Option<ClientCertificate> {
    let (subject, serial) = x509::subject(der)?;
    Some(ClientCertificate {
        subject: subject.into(),
        serial: hex(&serial).into(),
        fingerprint: hex(&Sha256::digest(der)).into(),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
