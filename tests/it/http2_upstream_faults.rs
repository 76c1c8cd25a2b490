//! Upstreams over HTTP/2 that change, disappear or are slower or faster than their clients.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::support::{Authority, Gateway, Issued, Request};

/// One route for all paths to this server. `rest` continues the table of the upstream.
fn config(server: &str, rest: &str) -> String {
    format!(
        "[upstreams.api]\nservers = [{server:?}]\n{rest}\n[routes.all]\npath = \"/*\"\nupstream = \"api\"\n"
    )
}

/// A server over TLS that speaks one version of HTTP, `h2` or `http/1.1`, and refuses handshakes that do not
/// offer it. Each change of the version closes all connections, as a restart does.
struct TlsServer {
    address: SocketAddr,
    version: watch::Sender<&'static str>,
}

impl TlsServer {
    async fn start(issued: &Issued, version: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (version, follower) = watch::channel(version);
        let issued = issued.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mut changes = follower.clone();
                let version = *changes.borrow_and_update();
                let acceptor = acceptor(&issued, version);
                tokio::spawn(async move {
                    let serve = async {
                        let Ok(stream) = acceptor.accept(stream).await else { return };
                        if version == "h2" { http2(stream).await } else { http1(stream).await }
                    };
                    tokio::select! {
                        () = serve => {}
                        _ = changes.changed() => {}
                    }
                });
            }
        });
        Self { address, version }
    }
}

fn acceptor(issued: &Issued, version: &str) -> TlsAcceptor {
    let chain = CertificateDer::pem_file_iter(&issued.certificate).unwrap();
    let chain = chain.map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(&issued.key).unwrap();
    let builder = rustls::ServerConfig::builder().with_no_client_auth();
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![version.as_bytes().to_vec()];
    Arc::new(config).into()
}

/// Responds to requests without a body.
async fn http1(mut stream: TlsStream<TcpStream>) {
    let (mut head, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        head.extend_from_slice(&buffer[..length]);
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            let response = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n1.1";
            stream.write_all(response).await.unwrap();
        }
    }
}

async fn http2(stream: TlsStream<TcpStream>) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((_, mut respond))) = connection.accept().await {
        let mut send = respond.send_response(http::Response::new(()), false).unwrap();
        send.send_data(Bytes::from_static(b"2"), true).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_changes_its_version_of_http_loses_no_request() {
    let authority = Authority::new();
    let issued = authority.issue("api", &["api.test"]);
    let server = TlsServer::start(&issued, "http/1.1").await;
    let tls = format!("tls = {{ ca = {:?}, server_name = \"api.test\" }}", authority.ca());
    let gateway = Gateway::start(&config(&format!("https://{}", server.address), &tls));
    let mut connection = gateway.connect();
    for version in ["http/1.1", "h2", "http/1.1", "h2"] {
        server.version.send_replace(version);
        for _ in 0..3 {
            let answer = connection.send(&Request::get("/"));
            assert_eq!(answer.status, 200, "{version}: {}", gateway.log());
            assert_eq!(format!("http/{}", answer.text()).replace("http/2", "h2"), version);
        }
    }
    assert_eq!(gateway.count("tollgate_upstream_results_total", &[("result", "connect")]), 0);
}
