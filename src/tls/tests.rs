//! Handshakes between a listener and clients that use rustls.

use std::sync::Arc;
use std::time::Duration;

use prometheus::{IntCounterVec, Opts};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, HandshakeKind, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::certificate::Certificate;
use super::client;
use super::files::TlsFiles;
use super::fixture::{Authority, address, listener};
use super::handshakes::Handshakes;
use super::listeners::TlsListeners;
use crate::net::socket::Socket;
use crate::net::tls_info::TlsInfo;
use crate::policy::listener::{CertificateFiles, ClientAuth, ClientAuthMode, Listener};

const NOW: u64 = 1_790_000_000;

/// A listener with TLS, without HTTP.
struct Server {
    tls: Arc<TlsListeners>,
    handshakes: Handshakes,
    results: IntCounterVec,
    socket: TcpListener,
}

impl Server {
    async fn of(listener: Listener) -> Self {
        let opts = Opts::new("tollgate_tls_handshakes_total", "Handshakes");
        let results = IntCounterVec::new(opts, &["listener", "result"]).unwrap();
        let handshakes = Handshakes::start(1, results.clone()).unwrap();
        let tls = Arc::new(TlsListeners::default());
        let server = Self {
            tls,
            handshakes,
            results,
            socket: TcpListener::bind("127.0.0.1:0").await.unwrap(),
        };
        server.put(&listener);
        server
    }

    fn put(&self, listener: &Listener) {
        let listeners = std::slice::from_ref(listener);
        let (files, problems) = TlsFiles::load(listeners, NOW);
        assert!(problems.is_empty(), "{problems:?}");
        self.tls.apply(listeners, files).unwrap();
    }

    /// Accepts one connection, sends one byte, and returns what is known of the client.
    async fn accept(&self, deadline: Duration) -> Result<TlsInfo, String> {
        let (stream, peer) = self.socket.accept().await.unwrap();
        let tls = self.tls.of(0, &address()).unwrap();
        let deadline = Instant::now() + deadline;
        let handshake = self.handshakes.perform(Socket::tcp(stream, peer), tls, deadline);
        let mut stream = handshake.await.map_err(|error| error.to_string())?;
        stream.write_all(b"x").await.map_err(|error| error.to_string())?;
        stream.flush().await.map_err(|error| error.to_string())?;
        Ok(client::info(stream.get_ref().1))
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.socket.local_addr().unwrap()).await.unwrap()
    }

    /// One handshake: the view of the server, and that of the client.
    async fn handshake(
        &self,
        config: &Arc<ClientConfig>,
        name: &str,
    ) -> (Result<TlsInfo, String>, Option<Seen>) {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let seen = async {
            let connector = TlsConnector::from(Arc::clone(config));
            let mut stream = connector.connect(name, self.connect().await).await.ok()?;
            // Session tickets come with the first data.
            stream.read_u8().await.ok()?;
            let session = stream.get_ref().1;
            Some(Seen {
                leaf: session.peer_certificates()?.first()?.to_vec(),
                kind: session.handshake_kind()?,
                alpn: session.alpn_protocol().map(<[u8]>::to_vec),
            })
        };
        tokio::join!(self.accept(Duration::from_secs(5)), seen)
    }

    fn count(&self, result: &str) -> u64 {
        self.results.with_label_values(&["127.0.0.1:8443", result]).get()
    }
}

/// What a client sees.
struct Seen {
    leaf: Vec<u8>,
    kind: HandshakeKind,
    alpn: Option<Vec<u8>>,
}

fn roots(authority: &Authority) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(authority.issuer.der().clone()).unwrap();
    roots
}

fn client_of(authority: &Authority) -> ClientConfig {
    ClientConfig::builder_with_provider(super::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots(authority))
        .with_no_client_auth()
}

fn client_with(authority: &Authority, files: &CertificateFiles) -> ClientConfig {
    let chain = CertificateDer::pem_file_iter(&files.cert).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
    ClientConfig::builder_with_provider(super::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots(authority))
        .with_client_auth_cert(chain, key)
        .unwrap()
}

fn leaf(files: &CertificateFiles) -> Vec<u8> {
    CertificateDer::from_pem_file(&files.cert).unwrap().to_vec()
}

#[tokio::test]
async fn server_name_selects_the_certificate_and_others_get_the_first() {
    let authority = Authority::new();
    let first = authority.issue("first", &["first.example", "other.example"]);
    let exact = authority.issue("exact", &["api.example.com"]);
    let wildcard = authority.issue("wildcard", &["*.example.com"]);
    let all = vec![first.clone(), wildcard.clone(), exact.clone()];
    let server = Server::of(listener(all, None)).await;
    let mut config = client_of(&authority);
    config.dangerous().set_certificate_verifier(Arc::new(any::Any));
    let config = Arc::new(config);
    for (name, expected) in [
        ("first.example", &first),
        ("api.example.com", &exact),
        ("API.Example.Com", &exact),
        ("www.example.com", &wildcard),
        ("a.b.example.com", &first),
        ("example.com", &first),
        ("unknown.test", &first),
        ("127.0.0.1", &first),
    ] {
        let (accepted, seen) = server.handshake(&config, name).await;
        let sent = accepted.unwrap().server_name;
        let is_name = name != "127.0.0.1";
        assert_eq!(sent.as_deref(), is_name.then(|| name.to_ascii_lowercase()).as_deref());
        assert_eq!(seen.unwrap().leaf, leaf(expected), "{name}");
    }
    assert_eq!(server.count("ok") + server.count("resumed"), 8);
    let tls = server.tls.of(0, &address()).unwrap();
    let schemes = [rustls::SignatureScheme::ECDSA_NISTP256_SHA256];
    let absolute = tls.certificate_for(Some("api.example.com."), &schemes).unwrap();
    assert_eq!(*absolute.cert[0], *leaf(&exact), "a dot at the end is ignored");
}

#[test]
fn client_certificate_of_a_resumed_session_must_not_have_expired() {
    let authority = Authority::new();
    let files = authority.issue_as("client", &[], |params| {
        params.not_after = rcgen::date_time_ymd(2026, 9, 1);
    });
    let end = 1_788_220_800;
    assert_eq!(client::check_certificate(&leaf(&files), end), Ok(()));
    let expired = client::check_certificate(&leaf(&files), end + 1);
    assert_eq!(expired, Err(rustls::CertificateError::Expired));
    let malformed = client::check_certificate(b"x", end);
    assert_eq!(malformed, Err(rustls::CertificateError::BadEncoding));
}

#[tokio::test]
async fn sessions_resume_across_a_replacement_of_the_certificate_with_either_version() {
    for version in [&TLS12, &TLS13] {
        let authority = Authority::new();
        let files = authority.issue("a", &["a.example"]);
        let server = Server::of(listener(vec![files.clone()], None)).await;
        let config = ClientConfig::builder_with_provider(super::provider())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots(&authority))
            .with_no_client_auth();
        let config = Arc::new(config);
        let (_, seen) = server.handshake(&config, "a.example").await;
        assert_eq!(seen.unwrap().kind, HandshakeKind::Full);
        authority.issue("a", &["a.example"]);
        server.put(&listener(vec![files.clone()], None));
        let (accepted, seen) = server.handshake(&config, "a.example").await;
        assert_eq!(seen.unwrap().kind, HandshakeKind::Resumed, "{version:?}");
        assert!(accepted.is_ok());
        assert_eq!((server.count("ok"), server.count("resumed")), (1, 1));
        // A client without a session gets the new certificate.
        let (_, seen) = server.handshake(&Arc::new(client_of(&authority)), "a.example").await;
        assert_eq!(seen.unwrap().leaf, leaf(&files));
    }
}

#[tokio::test]
async fn client_certificate_is_required_or_optional_and_kept_by_resumed_sessions() {
    let authority = Authority::new();
    let stranger = Authority::new();
    let files = authority.issue("a", &["a.example"]);
    let name = |params: &mut rcgen::CertificateParams| {
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "Example, Inc.");
        params.distinguished_name.push(rcgen::DnType::CommonName, "billing");
        params.serial_number = Some(rcgen::SerialNumber::from(0x1234_u64));
    };
    let own = authority.issue_as("client", &[], name);
    let foreign = stranger.issue("client", &[]);
    let auth = |mode| Some(ClientAuth { ca: authority.path("ca.pem"), mode });
    let required = listener(vec![files.clone()], auth(ClientAuthMode::Required));
    let optional = listener(vec![files.clone()], auth(ClientAuthMode::Optional));

    let server = Server::of(required).await;
    let with_own = Arc::new(client_with(&authority, &own));
    for resumed in [false, true] {
        let (accepted, seen) = server.handshake(&with_own, "a.example").await;
        let client = accepted.unwrap().client.unwrap();
        assert_eq!(&*client.subject, r"CN=billing,O=Example\, Inc.");
        assert_eq!((&*client.serial, client.fingerprint.len()), ("1234", 64));
        assert_eq!(seen.unwrap().kind == HandshakeKind::Resumed, resumed);
    }
    let without = Arc::new(client_of(&authority));
    let (accepted, _) = server.handshake(&without, "a.example").await;
    assert_eq!(accepted.unwrap_err(), "client certificate: peer sent no certificates");
    let with_foreign = Arc::new(client_with(&authority, &foreign));
    let (accepted, _) = server.handshake(&with_foreign, "a.example").await;
    let refused = accepted.unwrap_err();
    assert!(refused.starts_with("client certificate: invalid peer certificate"), "{refused}");
    assert_eq!((server.count("resumed"), server.count("client_certificate")), (1, 2));

    server.put(&optional);
    let (accepted, _) = server.handshake(&without, "a.example").await;
    assert_eq!(accepted.unwrap().client, None);
    // The requirements have changed, so the session has ended.
    let (accepted, seen) = server.handshake(&with_own, "a.example").await;
    assert_eq!(seen.unwrap().kind, HandshakeKind::Full);
    assert!(accepted.unwrap().client.is_some());
    let (accepted, _) = server.handshake(&with_foreign, "a.example").await;
    assert!(accepted.is_err());
}

#[tokio::test]
async fn protocols_are_negotiated_by_the_settings_of_the_listener() {
    let authority = Authority::new();
    let mut listener = listener(vec![authority.issue("a", &["a.example"])], None);
    let server = Server::of(listener.clone()).await;
    let alpn = async |offered: &[&str]| {
        let mut config = client_of(&authority);
        config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
        let (_, seen) = server.handshake(&Arc::new(config), "a.example").await;
        let seen = seen?.alpn.map(|name| String::from_utf8(name).unwrap());
        Some(seen.unwrap_or_default())
    };
    assert_eq!(alpn(&["http/1.1", "h2"]).await.as_deref(), Some("h2"));
    assert_eq!(alpn(&["http/1.1"]).await.as_deref(), Some("http/1.1"));
    assert_eq!(alpn(&[]).await.as_deref(), Some(""));
    assert_eq!(alpn(&["ftp"]).await, None);
    // There is no challenge.
    assert_eq!(alpn(&["acme-tls/1"]).await, None);
    listener.http2 = false;
    server.put(&listener);
    assert_eq!(alpn(&["http/1.1", "h2"]).await.as_deref(), Some("http/1.1"));
    assert_eq!((server.count("protocol"), server.count("no_certificate")), (1, 1));
}

#[tokio::test]
async fn challenge_is_answered_only_to_clients_that_offer_nothing_else() {
    let authority = Authority::new();
    let files = authority.issue("a", &["a.example"]);
    let answer = authority.issue("answer", &["a.example"]);
    let server = Server::of(listener(vec![files.clone()], None)).await;
    let certificate = Certificate::load(&answer, NOW).unwrap();
    let key = rustls::sign::CertifiedKey::clone(certificate.key());
    server.tls.store().begin_challenge("A.example", key);
    let client = |offered: &[&str]| {
        let mut config = client_of(&authority);
        config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    };
    let (accepted, _) = server.handshake(&client(&["acme-tls/1"]), "a.example").await;
    assert_eq!(accepted.unwrap_err(), "an ACME challenge was answered");
    let (_, seen) = server.handshake(&client(&["acme-tls/1", "h2"]), "a.example").await;
    assert_eq!(seen.unwrap().leaf, leaf(&files));
    server.tls.store().end_challenge("a.example");
    let (accepted, _) = server.handshake(&client(&["acme-tls/1"]), "a.example").await;
    assert_eq!(accepted.unwrap_err(), "there is no certificate for this server name");
}

#[tokio::test]
async fn acme_certificates_are_used_by_listeners_that_name_them() {
    let authority = Authority::new();
    let mut listener = listener(Vec::new(), None);
    if let Some(tls) = &mut listener.tls {
        tls.acme = true;
    }
    let server = Server::of(listener).await;
    let config = Arc::new(client_of(&authority));
    let (accepted, _) = server.handshake(&config, "a.example").await;
    assert_eq!(accepted.unwrap_err(), "there is no certificate for this server name");
    assert_eq!(server.count("no_certificate"), 1);
    let files = authority.issue("a", &["a.example"]);
    let certificate = Arc::new(Certificate::load(&files, NOW).unwrap());
    server.tls.store().set_acme(vec![certificate]);
    let (_, seen) = server.handshake(&config, "a.example").await;
    assert_eq!(seen.unwrap().leaf, leaf(&files));
}

#[tokio::test]
async fn stalled_and_malformed_handshakes_end_with_their_result() {
    let authority = Authority::new();
    let server = Server::of(listener(vec![authority.issue("a", &["a.example"])], None)).await;
    let send = async |bytes: &[u8], deadline: Duration, closes: bool| {
        let talk = async {
            let mut stream = server.connect().await;
            stream.write_all(bytes).await.unwrap();
            if closes {
                stream.shutdown().await.unwrap();
            }
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            answer
        };
        let (accepted, answer) = tokio::join!(server.accept(deadline), talk);
        (accepted.unwrap_err(), answer)
    };
    let (soon, late) = (Duration::from_millis(50), Duration::from_secs(5));
    let timeout = "the handshake was not complete in time";
    assert_eq!(send(b"", soon, false).await.0, timeout);
    assert_eq!(send(b"\x16\x03\x01\x02\x00\x01", soon, false).await.0, timeout);
    let (error, _) = send(b"\x16\x03\x01", late, true).await;
    assert!(error.starts_with("the client closed the connection"), "{error}");
    let (error, answer) = send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", late, false).await;
    assert_eq!(error, "a request in plain HTTP");
    insta::assert_snapshot!(String::from_utf8(answer).unwrap().replace('\r', ""), @r"
    HTTP/1.1 400 Bad Request
    Content-Type: text/plain
    Content-Length: 47
    Connection: close

    The plain HTTP request was sent to HTTPS port
    ");
    // An alert, of level fatal.
    let (_, answer) = send(&[0xff; 64], late, false).await;
    assert_eq!(answer.get(..6), Some(&[0x15, 3, 3, 0, 2, 2][..]));
    let counts = ["timeout", "closed", "protocol"].map(|result| server.count(result));
    assert_eq!(counts, [2, 1, 2]);
}

mod any {
    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use rustls::{DigitallySignedStruct, Error, SignatureScheme};

    /// Accepts every certificate.
    #[derive(Debug)]
    pub(super) struct Any;

    impl ServerCertVerifier for Any {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            crate::tls::provider().signature_verification_algorithms.supported_schemes()
        }
    }
}
