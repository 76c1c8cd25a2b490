use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

/// A response that accepts all spans.
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

fn tracing(endpoint: &str, more: &str) -> Tracing {
    let file = format!(
        "[tracing]\nendpoint = '{endpoint}'\n{more}\n[upstreams.api]\nservers = ['demo']\n\
         [routes.all]\n"
    );
    crate::load::from_text("gateway.toml", &file).unwrap().tracing.unwrap()
}

fn trusting(address: SocketAddr, ca: &Path) -> Tracing {
    let more = format!("ca = '{}'\nheaders.x-key = 'known'", ca.display());
    tracing(&format!("https://{address}/otlp"), &more)
}

/// A collector with TLS and a self-signed certificate, which is written to `ca`. Returns the
/// received messages, each with the number of its connection.
async fn encrypted(ca: &Path) -> (SocketAddr, tokio::sync::mpsc::Receiver<String>) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let certificate = certificate.self_signed(&key).unwrap();
    std::fs::write(ca, certificate.pem()).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, received) = tokio::sync::mpsc::channel(16);
    tokio::spawn(async move {
        for connection in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let sender = sender.clone();
            tokio::spawn(async move {
                let mut text = String::new();
                let mut buffer = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                    text.push_str(&String::from_utf8_lossy(&buffer[..read]));
                    if text.ends_with("a message") {
                        sender.send(format!("{connection} {text}")).await.unwrap();
                        text.clear();
                        stream.write_all(OK).await.unwrap();
                    }
                }
            });
        }
    });
    (address, received)
}

#[tokio::test]
async fn tls_connection_is_reused() {
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    let (address, mut received) = encrypted(&ca).await;
    let tracing = trusting(address, &ca);
    let mut sender = Sender::default();
    for _ in 0..2 {
        assert_eq!(sender.send(&tracing, b"a message").await.unwrap(), Accepted::default());
        let text = received.recv().await.unwrap();
        assert!(text.starts_with("0 POST /otlp/v1/traces HTTP/1.1\r\n"), "{text}");
        let text = text.to_ascii_lowercase();
        for line in ["x-key: known", "content-type: application/x-protobuf", "content-length: 9"] {
            assert!(text.contains(&format!("\r\n{line}\r\n")), "{text}");
        }
        assert!(text.contains(&format!("\r\nhost: {address}\r\n")), "{text}");
    }
}

#[tokio::test]
async fn collector_without_a_trusted_certificate_gets_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (ca, other) = (folder.path().join("ca.pem"), folder.path().join("other.pem"));
    let (address, mut received) = encrypted(&ca).await;
    encrypted(&other).await;
    for tracing in [tracing(&format!("https://{address}"), ""), trusting(address, &other)] {
        let failure = Sender::default().send(&tracing, b"a message").await.unwrap_err();
        assert_eq!(failure.label(), "connect", "{failure}");
    }
    assert!(received.try_recv().is_err());
}

/// The label of each error, and whether it is retryable.
#[tokio::test]
async fn response_decides_label_and_retry() {
    let table: [(&[u8], &str, bool); 8] = [
        (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno", "4xx", false),
        (b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n", "4xx", true),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", "5xx", false),
        (b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n", "5xx", true),
        (b"HTTP/1.1 301 Moved\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", "other", false),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "broken", true),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nno", "broken", true),
        (b"", "broken", true),
    ];
    for (response, label, is_retryable) in table {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tracing = tracing(&format!("http://{}", listener.local_addr().unwrap()), "");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut buffer = [0; 4096];
                let mut text = Vec::new();
                while !text.ends_with(b"a message") {
                    let read = stream.read(&mut buffer).await.unwrap();
                    text.extend_from_slice(&buffer[..read]);
                }
                stream.write_all(response).await.unwrap();
            }
        });
        let failure = Sender::default().send(&tracing, b"a message").await.unwrap_err();
        let shown = String::from_utf8_lossy(response);
        assert_eq!(
            (failure.label(), failure.is_retryable()),
            (label, is_retryable),
            "{shown}: {failure}"
        );
        let waits = failure.retry_after().map(|wait| wait.as_secs());
        assert_eq!(waits, shown.contains("Retry-After").then_some(7), "{shown}");
    }
}

#[test]
fn successful_response_may_reject_spans() {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;

    let response = |rejected_spans| {
        let error_message = "too old".to_owned();
        let partial_success = Some(ExportTracePartialSuccess { rejected_spans, error_message });
        accepted(&ExportTraceServiceResponse { partial_success }.encode_to_vec())
    };
    assert_eq!(response(3), Accepted { rejected: 3, reason: "too old".to_owned() });
    assert_eq!(response(-3).rejected, 0);
    for malformed in [&b""[..], b"{}", b"\xff\xff\xff"] {
        assert_eq!(accepted(malformed), Accepted::default());
    }
}
