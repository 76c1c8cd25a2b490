//! TLS to the servers of one upstream: its configuration, which follows the files that it names,
//! and failed handshakes in plain words.
//!
//! A configuration is made once and shared by all connections, because it holds the sessions that
//! later connections resume.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, ClientConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tracing::{info, warn};

use crate::base::blocking::{BlockingCalls, NoResult};
use crate::net::io_text;
use crate::net::tls::{self, SettingNames, TlsError};
use crate::policy::settings::UpstreamTls;

/// Longest wait for the files.
const READ_DEADLINE: Duration = Duration::from_secs(10);

/// Versions of HTTP that a handshake offers by ALPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
    /// HTTP/2, else HTTP/1.1.
    Both,
}

/// TLS to the servers of one upstream.
#[derive(Debug)]
pub(crate) struct TlsClient {
    /// Name of the upstream.
    upstream: Arc<str>,
    settings: UpstreamTls,
    /// One configuration for each [`Offer`], with the same authorities, certificate and sessions;
    /// `None` until the files could be read.
    configs: ArcSwapOption<[Arc<ClientConfig>; 3]>,
    /// How many times the files have been replaced.
    generation: AtomicU64,
    /// State of the files at the last attempt to read them; `None` before the first.
    files: Mutex<Option<Vec<FileState>>>,
    /// Read the files.
    calls: BlockingCalls,
    /// Whether the last call had no result in time.
    is_late: AtomicBool,
}

/// What shows that a file was replaced: when it was modified, its length, and its number on Unix.
type FileState = Option<(SystemTime, u64, u64)>;

impl TlsClient {
    /// Creates a client without a configuration: [`refresh`](Self::refresh) makes it.
    pub(crate) fn new(upstream: Arc<str>, settings: UpstreamTls) -> Self {
        Self {
            upstream,
            settings,
            configs: ArcSwapOption::empty(),
            generation: AtomicU64::new(0),
            files: Mutex::default(),
            calls: BlockingCalls::default(),
            is_late: AtomicBool::new(false),
        }
    }

    /// As [`refresh`](Self::refresh), on a thread of its own: a network mount whose server is
    /// unreachable blocks it forever.
    pub(crate) async fn refresh_in_time(self: &Arc<Self>) {
        let read = self.refresh_within(READ_DEADLINE).await;
        let was_late = self.is_late.swap(read.is_err(), Ordering::Relaxed);
        let upstream = &*self.upstream;
        match read {
            Ok(()) if was_late => info!(upstream, "the TLS files of an upstream can be read again"),
            Err(error) if !was_late => {
                warn!(upstream, cause = %error, "the TLS files of an upstream cannot be read");
            }
            Ok(()) | Err(_) => {}
        }
    }

    async fn refresh_within(self: &Arc<Self>, deadline: Duration) -> Result<(), NoResult> {
        let own = Arc::clone(self);
        self.calls.run(deadline, move || own.refresh()).await
    }

    /// Reads the files if one has changed since the last attempt, and at the first call. If they
    /// cannot be used, logs it and keeps the previous configuration; without one, connections fail.
    /// Blocks while it reads.
    pub(crate) fn refresh(&self) {
        let states = self.file_states();
        if self.files.lock().as_ref() == Some(&states) {
            return;
        }
        let config = self.config();
        let previous = self.files.lock().replace(states);
        match config {
            Ok(config) => {
                self.configs.store(Some(Arc::new(offers(&config))));
                if previous.is_some() {
                    self.generation.fetch_add(1, Ordering::Release);
                    info!(upstream = &*self.upstream, "the TLS files of an upstream were replaced");
                }
            }
            Err(error) => {
                let (upstream, cause) = (&*self.upstream, error.to_string());
                warn!(upstream, cause, "the TLS files of an upstream cannot be used");
            }
        }
    }

    /// Performs the handshake with a server, which must present a valid certificate for
    /// `server_name` of the settings, else for its host.
    ///
    /// # Errors
    /// If the handshake fails. The text of the error says why.
    pub(crate) async fn connect(
        &self,
        stream: TcpStream,
        host: Option<&str>,
        offer: Offer,
    ) -> io::Result<TlsStream<TcpStream>> {
        let Some(name) = self.settings.server_name.as_deref().or(host) else {
            return Err(io::Error::other("the server has no name to verify"));
        };
        let server_name: ServerName<'static> = tls::server_name(name)?;
        let configs = self.configs.load_full();
        let config = configs.as_ref().and_then(|configs| configs.get(offer as usize));
        let Some(config) = config else {
            return Err(io::Error::other("the TLS files of the upstream cannot be used"));
        };
        let connector = TlsConnector::from(Arc::clone(config));
        let connected = connector.connect(server_name, stream).await;
        connected.map_err(|error| io::Error::other(in_words(name, &error)))
    }

    /// How many times the files have been replaced: connections of an earlier generation, which
    /// other authorities may have verified, must not be used for further requests.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether the name for which a server must have a certificate depends on its host.
    pub(super) fn verifies_hosts(&self) -> bool {
        self.settings.server_name.is_none()
    }

    fn config(&self) -> Result<ClientConfig, TlsError> {
        let table = format!("upstreams.{}.tls", self.upstream);
        let names = SettingNames { table: &table, ca: "ca", chain: "cert", key: "key" };
        tls::client_config(names, &self.settings.files)
    }

    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        let files = &self.settings.files;
        let certificate = files.certificate.iter().flat_map(|files| [&files.chain, &files.key]);
        files.ca.iter().chain(certificate)
    }

    fn file_states(&self) -> Vec<FileState> {
        self.paths().map(|path| file_state(path)).collect()
    }
}

/// The configurations of all offers, in the order of [`Offer`].
fn offers(config: &ClientConfig) -> [Arc<ClientConfig>; 3] {
    let with = |protocols: &[&[u8]]| {
        let mut config = config.clone();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Arc::new(config)
    };
    [with(&[b"http/1.1"]), with(&[b"h2"]), with(&[b"h2", b"http/1.1"])]
}

#[cfg(unix)]
fn file_state(path: &Path) -> FileState {
    use std::os::unix::fs::MetadataExt;
    let about = fs::metadata(path).ok()?;
    Some((about.modified().ok()?, about.len(), about.ino()))
}

#[cfg(not(unix))]
fn file_state(path: &Path) -> FileState {
    let about = fs::metadata(path).ok()?;
    Some((about.modified().ok()?, about.len(), 0))
}

/// Why a handshake with the server of this name failed. Nothing that the server sent is part of the
/// text.
fn in_words(name: &str, error: &io::Error) -> String {
    use rustls::Error::{
        AlertReceived, InvalidCertificate, NoApplicationProtocol, PeerIncompatible,
    };
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let failed = |why: &str| format!("the TLS handshake with {name} failed: {why}");
    match cause {
        Some(InvalidCertificate(fault)) => {
            format!("certificate of {name}: {}", certificate_fault(fault))
        }
        Some(AlertReceived(alert)) => failed(refusal(*alert)),
        Some(NoApplicationProtocol) => failed("no common protocol"),
        Some(PeerIncompatible(_)) => failed("no common version or cipher suite"),
        Some(_) => failed("the server does not speak TLS correctly"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => failed("the connection was closed"),
        None => failed(&io_text::plain(error)),
    }
}

fn certificate_fault(fault: &CertificateError) -> &'static str {
    use CertificateError::{
        BadEncoding, BadSignature, Expired, ExpiredContext, InvalidPurpose, NotValidForName,
        NotValidForNameContext, NotValidYet, NotValidYetContext, Revoked, UnknownIssuer,
    };
    match fault {
        Expired | ExpiredContext { .. } => "expired",
        NotValidYet | NotValidYetContext { .. } => "not valid yet",
        NotValidForName | NotValidForNameContext { .. } => "not valid for this name",
        UnknownIssuer => "issued by an unknown authority",
        Revoked => "revoked",
        BadSignature => "not signed by the authority of this name",
        BadEncoding => "malformed",
        InvalidPurpose => "not valid for a server",
        _ => "not accepted",
    }
}

/// What an alert of the server means.
fn refusal(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::CertificateRequired => "the server requires a client certificate",
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied
        | AlertDescription::UnknownCA => "the server rejected the client certificate",
        AlertDescription::UnrecognisedName => "the server does not know the name",
        AlertDescription::NoApplicationProtocol => "no common protocol",
        AlertDescription::ProtocolVersion => "no common version",
        _ => "the server ended the handshake with an alert",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::tls::ClientTls;

    /// As on a network mount whose server is unreachable.
    #[tokio::test]
    async fn files_that_cannot_be_read_block_a_few_threads_only() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("ca.pem");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let files = ClientTls { ca: Some(pipe), certificate: None };
        let client = TlsClient::new("api".into(), UpstreamTls { files, server_name: None });
        let client = Arc::new(client);
        let mut late = 0;
        let refused = loop {
            match client.refresh_within(Duration::from_millis(1)).await.unwrap_err() {
                NoResult::Late(_) => late += 1,
                error => break error,
            }
        };
        assert!(matches!(refused, NoResult::TooMany(_)), "{refused:?}");
        assert_eq!(late, crate::base::blocking::MAX_CALLS);
    }

    #[test]
    fn failed_handshakes_in_words() {
        use rustls::Error::{AlertReceived, InvalidCertificate};
        let of_tls = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let errors = [
            of_tls(InvalidCertificate(CertificateError::Expired)),
            of_tls(InvalidCertificate(CertificateError::NotValidForName)),
            of_tls(InvalidCertificate(CertificateError::UnknownIssuer)),
            of_tls(AlertReceived(AlertDescription::CertificateRequired)),
            of_tls(AlertReceived(AlertDescription::UnknownCA)),
            of_tls(rustls::Error::DecryptError),
            io::ErrorKind::UnexpectedEof.into(),
            io::Error::from_raw_os_error(104),
        ];
        let words: Vec<String> =
            errors.iter().map(|error| in_words("api.internal", error)).collect();
        insta::assert_snapshot!(words.join("\n"), @"
        certificate of api.internal: expired
        certificate of api.internal: not valid for this name
        certificate of api.internal: issued by an unknown authority
        the TLS handshake with api.internal failed: the server requires a client certificate
        the TLS handshake with api.internal failed: the server rejected the client certificate
        the TLS handshake with api.internal failed: the server does not speak TLS correctly
        the TLS handshake with api.internal failed: the connection was closed
        the TLS handshake with api.internal failed: connection reset by peer
        ");
    }
}
