//! What is known of a client connection after its TLS handshake.

/// The result of the TLS handshake of a client connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsInfo {
    /// Version of the protocol, such as `TLSv1.3`.
    pub version: &'static str,
    /// Name of the cipher suite, such as `TLS13_AES_256_GCM_SHA384`.
    pub cipher: &'static str,
    /// The server name that the client sent (SNI).
    pub server_name: Option<Box<str>>,
    /// The client's certificate, which has been verified.
    pub client: Option<ClientCertificate>,
}

/// A verified certificate of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Its subject, as text of RFC 4514.
    pub subject: Box<str>,
    /// Its serial number, in hexadecimal digits.
    pub serial: Box<str>,
    /// SHA-256 of the whole certificate, in hexadecimal digits.
    pub fingerprint: Box<str>,
}
