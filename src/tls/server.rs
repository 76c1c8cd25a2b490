//! The TLS configuration of one listener. It never changes: a change of the listener or of a
//! certificate file makes another, which keeps the keys of sessions.

use std::sync::Arc;

use rustls::crypto::ring::Ticketer;
use rustls::server::{
    ClientHello, ProducesTickets, ResolvesServerCert, ServerSessionMemoryCache,
    StoresServerSessions, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SignatureScheme, SupportedProtocolVersion};
use thiserror::Error;

use super::files::TlsFiles;
use super::store::{ACME_ALPN, CertificateStore, ChallengeResolver, is_challenge};
use super::table::Table;
use crate::policy::listener::{ClientAuthMode, Listener, ListenerTls, TlsVersion};

/// Sessions that are kept for clients without tickets (TLS 1.2), per listener.
const SESSIONS: usize = 8192;

/// TLS of one listener.
#[derive(Debug)]
pub struct ServerTls {
    /// The address of the listener, for metrics.
    listener: Arc<str>,
    config: Arc<ServerConfig>,
    /// For clients that validate an ACME challenge.
    challenges: Arc<ServerConfig>,
    resolver: Arc<Resolver>,
    challenge_resolver: Arc<ChallengeResolver>,
    sessions: Sessions,
}

/// How a client is served.
pub(super) struct Selected {
    pub(super) config: Arc<ServerConfig>,
    pub(super) purpose: Purpose,
    /// Whether there is a certificate for it.
    pub(super) has_certificate: bool,
}

/// What a client connects for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It sends requests.
    Requests,
    /// It validates an ACME challenge: after the handshake, the connection ends.
    Challenge,
}

/// What resumes sessions. Kept when certificates change; a change of the requirements on client
/// certificates ends all sessions, because a resumed one is not verified again.
#[derive(Debug, Clone)]
struct Sessions {
    client_auth: ClientAuthId,
    tickets: Arc<dyn ProducesTickets>,
    cache: Arc<dyn StoresServerSessions>,
}

/// The requirements on client certificates: the mode and SHA-256 of the authorities.
type ClientAuthId = Option<(ClientAuthMode, [u8; 32])>;

/// Selects the certificate for a client.
#[derive(Debug)]
struct Resolver {
    files: Table,
    acme: Option<Arc<CertificateStore>>,
}

/// Why TLS cannot be set up, although all files were loaded.
#[derive(Debug, Error)]
pub enum ServerTlsError {
    /// A file of the listener is not among the loaded ones.
    #[error("{0} has not been loaded")]
    NotLoaded(String),
    /// The authorities of client certificates cannot be used.
    #[error("client certificates cannot be verified: {0}")]
    ClientAuth(#[from] rustls::server::VerifierBuilderError),
    /// The TLS library refuses.
    #[error("TLS cannot be set up: {0}")]
    Library(#[from] rustls::Error),
}

// === impl ServerTls ===

impl ServerTls {
    /// The TLS of a listener; `None` if the listener is in clear. `files` has been loaded for its
    /// policy, and `previous` is what it replaces.
    ///
    /// # Errors
    /// See [`ServerTlsError`].
    pub fn new(
        listener: &Listener,
        files: &TlsFiles,
        store: &Arc<CertificateStore>,
        previous: Option<&Self>,
    ) -> Result<Option<Self>, ServerTlsError> {
        let Some(settings) = &listener.tls else { return Ok(None) };
        let id = client_auth_id(settings, files)?;
        let kept = previous.map(|previous| &previous.sessions);
        let sessions = match kept.filter(|sessions| sessions.client_auth == id) {
            Some(sessions) => sessions.clone(),
            None => Sessions {
                client_auth: id,
                tickets: Ticketer::new()?,
                cache: ServerSessionMemoryCache::new(SESSIONS),
            },
        };
        let certificates = settings.certificates.iter().map(|named| {
            let not_loaded = || ServerTlsError::NotLoaded(named.cert.display().to_string());
            files.certificate(named).ok_or_else(not_loaded)
        });
        let certificates = certificates.collect::<Result<Vec<_>, _>>()?;
        let acme = settings.acme.then(|| Arc::clone(store));
        let resolver = Arc::new(Resolver { files: Table::of(certificates), acme });
        let config = config(settings, listener.http2, files, Arc::clone(&resolver), &sessions)?;
        let challenge_resolver = Arc::new(ChallengeResolver(Arc::clone(store)));
        Ok(Some(Self {
            listener: listener.address.to_string().into(),
            config: Arc::new(config),
            challenges: challenges(Arc::clone(&challenge_resolver))?,
            resolver,
            challenge_resolver,
            sessions,
        }))
    }

    /// The address of the listener, as metrics show it.
    pub fn listener(&self) -> &str {
        &self.listener
    }

    /// The certificate for a client that sends this server name, in lower case, and can verify
    /// these signatures. Without a matching name, the first certificate.
    pub fn certificate_for(
        &self,
        name: Option<&str>,
        schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        self.resolver.certificate_for(name, schemes)
    }

    /// Selects the configuration for a client.
    pub(super) fn select(&self, hello: &ClientHello<'_>) -> Selected {
        let (purpose, config) = if is_challenge(hello) {
            (Purpose::Challenge, &self.challenges)
        } else {
            (Purpose::Requests, &self.config)
        };
        let has_certificate = match purpose {
            Purpose::Requests => self.resolver.key_for(hello).is_some(),
            Purpose::Challenge => self.challenge_resolver.key_for(hello).is_some(),
        };
        Selected { config: Arc::clone(config), purpose, has_certificate }
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.key_for(&hello)
    }
}

impl Resolver {
    fn key_for(&self, hello: &ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.certificate_for(hello.server_name(), hello.signature_schemes())
    }

    fn certificate_for(
        &self,
        name: Option<&str>,
        schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        let acme = self.acme.as_ref().map(|store| store.in_force());
        let tables = || [Some(&self.files), acme.as_ref().map(|acme| &acme.table)].into_iter();
        let of_name = |name| {
            let exact = tables().flatten().find_map(|table| table.exact(name, schemes));
            exact.or_else(|| tables().flatten().find_map(|table| table.wildcard(name, schemes)))
        };
        // Some clients send the dot of an absolute name, which RFC 6066 excludes.
        let named = name.map(|name| name.strip_suffix('.').unwrap_or(name)).and_then(of_name);
        named.or_else(|| tables().flatten().find_map(|table| table.fallback(schemes)))
    }
}

fn client_auth_id(
    settings: &ListenerTls,
    files: &TlsFiles,
) -> Result<ClientAuthId, ServerTlsError> {
    let Some(auth) = &settings.client_auth else { return Ok(None) };
    let not_loaded = || ServerTlsError::NotLoaded(auth.ca.display().to_string());
    let authorities = files.authorities_of(&auth.ca).ok_or_else(not_loaded)?;
    Ok(Some((auth.mode, authorities.digest)))
}

fn config(
    settings: &ListenerTls,
    http2: bool,
    files: &TlsFiles,
    resolver: Arc<Resolver>,
    sessions: &Sessions,
) -> Result<ServerConfig, ServerTlsError> {
    let provider = super::provider();
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions(settings.min_version))?;
    let authorities = settings.client_auth.as_ref().and_then(|auth| {
        files.authorities_of(&auth.ca).map(|authorities| (auth.mode, &authorities.roots))
    });
    let builder = match authorities {
        None => builder.with_no_client_auth(),
        Some((mode, roots)) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), provider);
            let verifier = match mode {
                ClientAuthMode::Required => verifier,
                ClientAuthMode::Optional => verifier.allow_unauthenticated(),
            };
            builder.with_client_cert_verifier(verifier.build()?)
        }
    };
    let mut config = builder.with_cert_resolver(resolver);
    // All ciphers are safe; the order of the gateway is what scanners ask for.
    config.ignore_client_order = true;
    config.ticketer = Arc::clone(&sessions.tickets);
    config.session_storage = Arc::clone(&sessions.cache);
    // A client that offers only HTTP/1.0 is served by HTTP/1.1, as without TLS.
    let protocols: &[&[u8]] = &[b"h2", b"http/1.1", b"http/1.0"];
    let protocols = if http2 { protocols } else { &protocols[1..] };
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

/// The configuration for clients that validate a challenge.
fn challenges(resolver: Arc<ChallengeResolver>) -> Result<Arc<ServerConfig>, ServerTlsError> {
    let mut config = ServerConfig::builder_with_provider(super::provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![ACME_ALPN.to_vec()];
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn versions(oldest: TlsVersion) -> &'static [&'static SupportedProtocolVersion] {
    static FROM_1_2: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
    match oldest {
        TlsVersion::V1_2 => &FROM_1_2,
        TlsVersion::V1_3 => &FROM_1_2[..1],
    }
}
