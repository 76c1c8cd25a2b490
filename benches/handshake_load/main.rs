//! Opens TLS connections without resumption and sends one request on each, from one thread, as fast
//! as the server serves them. Usage: `handshake_load PORT CONNECTIONS SECONDS`.
//!
//! Prints what `benches/peers/load.lua` prints: microseconds, requests, refused, errors, and
//! percentiles. wrk resumes sessions, and `openssl s_time` takes more CPU than the server does, so
//! it would measure itself. This client verifies no certificate.

#![allow(clippy::disallowed_methods, reason = "a load measures time")]

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;

/// The request. The server closes the connection after the response.
const REQUEST: &[u8] =
    b"GET / HTTP/1.1\r\nHost: localhost\r\nx-api-key: hot\r\nConnection: close\r\n\r\n";

/// Source addresses used in turn: each has its own ports, and a closed connection occupies one.
const SOURCES: u32 = 64;

/// Accepts every certificate.
#[derive(Debug)]
struct Unverified;

/// The connections of one task.
#[derive(Default)]
struct Tally {
    refused: u64,
    errors: u64,
    micros: Vec<u64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<u32> =
        std::env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>()?;
    let [port, connections, seconds] = arguments[..] else {
        return Err("usage: handshake_load PORT CONNECTIONS SECONDS".into());
    };
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(port)?));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(load(server, connections, Duration::from_secs(seconds.into())))
}

async fn load(server: SocketAddr, connections: u32, time: Duration) -> Result<(), Box<dyn Error>> {
    let mut config =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Unverified))
            .with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let connector = TlsConnector::from(Arc::new(config));
    let start = Instant::now();
    let tasks: Vec<_> = (0..connections)
        .map(|task| tokio::spawn(repeat(connector.clone(), server, task, start + time)))
        .collect();
    let mut total = Tally::default();
    for task in tasks {
        let tally = task.await?;
        total.refused += tally.refused;
        total.errors += tally.errors;
        total.micros.extend(tally.micros);
    }
    let took = start.elapsed().as_micros();
    total.micros.sort_unstable();
    let (requests, percentile) = (total.micros.len(), |part: usize| {
        total.micros.get(total.micros.len() * part / 100).copied().unwrap_or(0)
    });
    let (refused, errors) = (total.refused, total.errors);
    println!("summary {took} {requests} {refused} {errors} {} {}", percentile(50), percentile(99));
    Ok(())
}

/// Opens connections one after the other until `end`.
async fn repeat(connector: TlsConnector, server: SocketAddr, task: u32, end: Instant) -> Tally {
    let mut tally = Tally::default();
    let mut turn = task;
    while Instant::now() < end {
        let began = Instant::now();
        turn = turn.wrapping_add(1);
        match request(&connector, server, turn % SOURCES).await {
            Ok(response) if response.starts_with(b"HTTP/1.1 200") => {}
            Ok(response) if response.starts_with(b"HTTP/1.1 429") => tally.refused += 1,
            _ => {
                tally.errors += 1;
                continue;
            }
        }
        tally.micros.push(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    tally
}

/// The response to one request on a new connection.
async fn request(
    connector: &TlsConnector,
    server: SocketAddr,
    source: u32,
) -> std::io::Result<Vec<u8>> {
    let socket = TcpSocket::new_v4()?;
    let source = Ipv4Addr::from(u32::from(Ipv4Addr::LOCALHOST) + 1 + source);
    socket.bind((source, 0).into())?;
    let stream = socket.connect(server).await?;
    stream.set_nodelay(true)?;
    let name = ServerName::try_from("localhost").map_err(std::io::Error::other)?;
    let mut stream = connector.connect(name, stream).await?;
    stream.write_all(REQUEST).await?;
    let mut response = Vec::with_capacity(1_024);
    stream.read_to_end(&mut response).await?;
    Ok(response)
}

impl ServerCertVerifier for Unverified {
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
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}
