//! Upgrades: a new process takes over the listening sockets while requests continue. `exchange`
//! tests faults between the two processes, `listeners` changed listeners, `handed_over` what else
//! is handed over.

mod exchange;
mod handed_over;
mod listeners;

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::{
    Authority, Connection, DEMO, Gateway, Latch, Request, Response, TIMEOUT, Upstream, eventually,
    full_config, is_running, proxy_to, timed, tollgate, within,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tollgate");

/// Connections of each protocol.
const CLIENTS: usize = 32;

fn upgrade(gateway: &Gateway) -> Response {
    // Each on a new connection: the process that answers has changed.
    gateway.send_admin(&Request::new("POST", "/api/upgrade"))
}

/// The process that serves after an upgrade.
#[track_caller]
pub(crate) fn upgraded(gateway: &Gateway) -> u32 {
    let answer = upgrade(gateway);
    assert_eq!(answer.status, 200, "{}", answer.text());
    u32::try_from(answer.json()["pid"].as_u64().unwrap()).unwrap()
}

/// The process that answers at the admin port.
pub(crate) fn serving_process(gateway: &Gateway) -> f64 {
    let metrics = gateway.metrics();
    let line =
        metrics.lines().find(|line| line.starts_with("process_start_time_seconds ")).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// A name in a temporary folder for a program that a test replaces.
struct Program {
    folder: tempfile::TempDir,
}

impl Program {
    fn new() -> Self {
        let program = Self { folder: tempfile::tempdir().unwrap() };
        program.restore();
        program
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("tollgate")
    }

    fn restore(&self) {
        let _ = std::fs::remove_file(self.path());
        std::os::unix::fs::symlink(PROGRAM, self.path()).unwrap();
    }

    fn replace(&self, script: &str) {
        let new = self.folder.path().join("new");
        std::fs::write(&new, script).unwrap();
        std::fs::set_permissions(&new, PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::rename(new, self.path()).unwrap();
    }
}

#[test]
fn row_67_new_process_takes_over_ports_and_the_old_one_ends() {
    let mut gateway = Gateway::start(DEMO);
    let before = serving_process(&gateway);
    let mut idle = gateway.connect();
    assert_eq!(idle.send(&Request::get("/")).status, 200);
    let answer = upgrade(&gateway);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = answer.json();
    assert_eq!(answer["previous_pid"], gateway.pid());
    let closed = || gateway.log().contains("replaced: no new connections");
    eventually("the previous process to drain", || closed().then_some(()));
    // A request on an idle connection is answered, and the connection then closes.
    let last = idle.send(&Request::get("/"));
    assert_eq!((last.status, last.header("connection")), (200, Some("close")));
    assert_eq!(gateway.exit().0, Some(0));
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(gateway.admin("/ready").status, 200);
    assert!(serving_process(&gateway) >= before);
    assert_eq!(u64::from(gateway.successors()[0]), answer["pid"].as_u64().unwrap());
}

#[test]
fn row_67_sigquit_upgrades() {
    let mut gateway = Gateway::start(DEMO);
    gateway.sigquit();
    assert_eq!(gateway.exit().0, Some(0), "{}", gateway.log());
    assert_eq!(gateway.get("/").status, 200);
    assert!(gateway.log().contains("SIGQUIT: upgrading"), "{}", gateway.log());
}

#[test]
fn row_67_upgrade_gives_no_client_a_second_burst() {
    let rule = "[rules.r]\nper = [\"ip\"]\nrate = \"5/d\"\nburst = 5\n";
    let gateway = Gateway::start(&format!("{DEMO}{rule}"));
    for _ in 0..5 {
        assert_eq!(gateway.get("/").status, 200);
    }
    upgraded(&gateway);
    assert_eq!(gateway.get("/").status, 429, "{}", gateway.log());
    // With another number of shards the levels are not taken over, and buckets start empty.
    gateway.save(&format!("{DEMO}{rule}[memory]\nmax_buckets = 4000000\n"));
    upgraded(&gateway);
    // Until then, a previous process can still accept a connection.
    let ended = || gateway.log().matches(" drained").count() == 2;
    eventually("the previous processes to end", || ended().then_some(()));
    let fresh = Request::get("/");
    let mut other = Connection::open_from("127.0.0.9".parse().unwrap(), gateway.address);
    assert_eq!(other.send(&fresh).status, 429, "{}", gateway.log());
}

#[test]
fn row_67_unix_socket_stays_through_an_upgrade() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.sock");
    let listener = format!("\n[[listeners]]\naddress = \"unix:{}\"\n", path.display());
    let mut gateway = Gateway::start(&format!("{listener}{DEMO}"));
    upgraded(&gateway);
    assert_eq!(gateway.exit().0, Some(0));
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let successor = gateway.successors()[0];
    let pid = nix::unistd::Pid::from_raw(successor.try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    eventually("the file to be removed", || (!path.exists()).then_some(()));
}

#[test]
fn row_67_broken_program_leaves_the_old_process_serving() {
    let program = Program::new();
    // The last upgrade succeeds, also on a busy machine.
    let config = full_config(&format!("upgrade_timeout = \"5s\"\n{DEMO}"));
    let gateway = Gateway::start_program(&program.path(), &config);
    // (script, reason)
    let cases = [
        ("#!/bin/sh\nexit 3\n", "ended before it was ready (exit status: 3)"),
        ("#!/bin/sh\nkill -SEGV $$\n", "ended before it was ready (signal: 11"),
        ("not a program", "cannot start"),
        (
            "#!/bin/sh\nwhile :; do sleep 0.2; done\n",
            "was not ready within `server.upgrade_timeout` (5s)",
        ),
        (
            "#!/bin/sh\necho xxxxxxxxxxxxxxxxx >&0\nwhile :; do sleep 0.2; done\n",
            "cannot take over, and was killed",
        ),
    ];
    for (script, reason) in cases {
        program.replace(script);
        let (answer, took) = timed(|| upgrade(&gateway));
        assert_eq!(answer.status, 503, "{script}: {}", answer.text());
        assert!(answer.text().contains(reason), "{script}: {}", answer.text());
        assert!(took < Duration::from_secs(15), "{took:?}");
        assert!(gateway.log().contains("upgrade failed"), "{}", gateway.log());
        assert_eq!(gateway.get("/").status, 200);
        assert_eq!(gateway.admin("/ready").status, 200);
        assert_eq!(gateway.successors(), [0; 0], "killed");
    }
    program.restore();
    upgraded(&gateway);
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn row_67_broken_file_leaves_the_old_process_serving() {
    let gateway = Gateway::start(DEMO);
    let admin = format!("http://{}", gateway.admin);
    gateway.save("[routes.r\nx = 1");
    let outcome = tollgate(&["upgrade", "--admin", &admin], "");
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("not upgraded, the gateway serves as before"), "{outcome:?}");
    assert!(outcome.stderr.contains("the new process cannot start"), "{outcome:?}");
    assert!(outcome.stderr.contains("gateway.toml"), "{outcome:?}");
    assert_eq!(gateway.get("/").status, 200);
    gateway.save(DEMO);
    let outcome = tollgate(&["upgrade", "--admin", &admin], "");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.stdout.starts_with("upgraded: process "), "{outcome:?}");
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn upgrade_without_a_gateway_exits_with_69() {
    let outcome = tollgate(&["upgrade", "--admin", "http://127.0.0.1:1"], "");
    assert_eq!(outcome.code, Some(69), "{outcome:?}");
}

#[test]
fn row_67_second_upgrade_is_refused_and_sigterm_ends_the_first() {
    let program = Program::new();
    let mut gateway = Gateway::start_program(&program.path(), &full_config(DEMO));
    program.replace("#!/bin/sh\nwhile :; do sleep 0.2; done\n");
    gateway.sigquit();
    eventually("the new process", || (!gateway.successors().is_empty()).then_some(()));
    let second = upgrade(&gateway);
    assert_eq!(second.status, 409, "{}", second.text());
    assert!(second.text().contains("another upgrade is in progress"), "{}", second.text());
    gateway.terminate();
    let (code, took) = gateway.exit();
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_secs(10), "{took:?}");
}

/// Clients that send requests over TLS without a pause, and count.
struct Clients {
    runtime: tokio::runtime::Runtime,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    stopped: AtomicBool,
    answered: AtomicU64,
    failures: parking_lot::Mutex<Vec<String>>,
}

impl Counts {
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn fail(&self, what: impl std::fmt::Display) {
        self.failures.lock().push(what.to_string());
    }

    fn succeed(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// Where clients connect, and by which authority.
#[derive(Clone)]
struct Endpoint {
    address: std::net::SocketAddr,
    connector: TlsConnector,
}

impl Endpoint {
    fn new(address: std::net::SocketAddr, ca: &str, protocol: &str) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(Path::new(ca)).unwrap()).unwrap();
        let config = rustls::ClientConfig::builder().with_root_certificates(roots);
        let mut config = config.with_no_client_auth();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        Self { address, connector: Arc::new(config).into() }
    }

    async fn connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        self.connector.connect(ServerName::try_from("localhost").unwrap(), stream).await
    }
}

const GET: &[u8] = b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// The head of a response, and the bytes of its body that have been read.
async fn read_head(stream: &mut TlsStream<TcpStream>) -> std::io::Result<(String, Vec<u8>)> {
    let mut read = Vec::new();
    loop {
        if let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            let body = read.split_off(end + 4);
            return Ok((String::from_utf8_lossy(&read).to_lowercase(), body));
        }
        if stream.read_buf(&mut read).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Sends a request and reads the response, whose body is `ok`. Returns whether the connection
/// stays.
async fn exchange(stream: &mut TlsStream<TcpStream>) -> std::io::Result<bool> {
    stream.write_all(GET).await?;
    stream.flush().await?;
    let (head, mut body) = read_head(stream).await?;
    while body.len() < 2 {
        if stream.read_buf(&mut body).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    if head.starts_with("http/1.1 200") && body == b"ok" {
        Ok(!head.contains("connection: close"))
    } else {
        Err(std::io::Error::other(head))
    }
}

/// A client over HTTP/1. `ends`: a refused connection ends it.
async fn http1_client(endpoint: Endpoint, counts: Arc<Counts>, ends: bool) {
    while !counts.is_stopped() {
        let mut stream = match endpoint.connect().await {
            Ok(stream) => stream,
            Err(_) if ends => return,
            Err(error) => return counts.fail(format!("HTTP/1 connect: {error}")),
        };
        while !counts.is_stopped() {
            match tokio::time::timeout(TIMEOUT, exchange(&mut stream)).await {
                Ok(Ok(stays)) => {
                    counts.succeed();
                    if !stays {
                        break;
                    }
                }
                Ok(Err(error)) => return counts.fail(format!("HTTP/1: {error}")),
                Err(_) => return counts.fail("HTTP/1: no response in time"),
            }
        }
    }
}

/// A client over HTTP/2.
async fn http2_client(endpoint: Endpoint, counts: Arc<Counts>, ends: bool) {
    while !counts.is_stopped() {
        let opened = async {
            let stream = endpoint.connect().await?;
            h2::client::handshake(stream).await.map_err(std::io::Error::other)
        };
        let (mut send, connection) = match opened.await {
            Ok(opened) => opened,
            Err(_) if ends => return,
            Err(error) => return counts.fail(format!("HTTP/2 connect: {error}")),
        };
        let driver = tokio::spawn(connection);
        while !counts.is_stopped() {
            let request = http::Request::builder().uri("https://localhost/small").body(()).unwrap();
            // After GOAWAY, nothing more is sent.
            let Ok(ready) = send.clone().ready().await else { break };
            send = ready;
            let Ok((response, _)) = send.send_request(request, true) else { break };
            match tokio::time::timeout(TIMEOUT, answered(response)).await {
                Ok(Ok(body)) if body == b"ok" => counts.succeed(),
                Ok(Ok(body)) => return counts.fail(format!("HTTP/2: {body:?}")),
                Ok(Err(error)) => return counts.fail(format!("HTTP/2: {error}")),
                Err(_) => return counts.fail("HTTP/2: no response in time"),
            }
        }
        drop(send);
        let _ = driver.await;
    }
}

async fn answered(response: h2::client::ResponseFuture) -> Result<Vec<u8>, h2::Error> {
    let mut stream = response.await?.into_body();
    let mut body = Vec::new();
    while let Some(part) = stream.data().await {
        let part: Bytes = part?;
        stream.flow_control().release_capacity(part.len())?;
        body.extend_from_slice(&part);
    }
    Ok(body)
}

impl Clients {
    fn start(gateway: &Gateway, authority: &Authority, ends: bool) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let counts = Arc::new(Counts::default());
        let endpoint = |protocol| Endpoint::new(gateway.listener(1), &authority.ca(), protocol);
        let (http1, http2) = (endpoint("http/1.1"), endpoint("h2"));
        let mut tasks = Vec::new();
        for _ in 0..CLIENTS {
            tasks.push(runtime.spawn(http1_client(http1.clone(), Arc::clone(&counts), ends)));
            tasks.push(runtime.spawn(http2_client(http2.clone(), Arc::clone(&counts), ends)));
        }
        let clients = Self { runtime, tasks, counts };
        clients.make_progress();
        clients
    }

    /// Waits until each client has sent some requests on average.
    fn make_progress(&self) {
        let answered = || self.counts.answered.load(Ordering::Relaxed);
        let wanted = answered() + 4 * CLIENTS as u64;
        let is_over = || answered() >= wanted || !self.counts.failures.lock().is_empty();
        eventually("requests", || is_over().then_some(()));
    }

    /// Stops the clients. Returns the number of responses, and the failures.
    fn stop(self) -> (u64, Vec<String>) {
        self.counts.stopped.store(true, Ordering::Relaxed);
        self.wait()
    }

    fn wait(self) -> (u64, Vec<String>) {
        let Self { runtime, tasks, counts } = self;
        runtime.block_on(async {
            for task in tasks {
                tokio::time::timeout(TIMEOUT, task).await.expect("the end in time").unwrap();
            }
        });
        let failures = counts.failures.lock().clone();
        (counts.answered.load(Ordering::Relaxed), failures)
    }
}

/// An upstream: `/small`, a WebSocket that echoes, and a download whose second half waits.
fn upstream(latch: &Latch) -> Upstream {
    let latch = latch.clone();
    Upstream::start(move |seen, stream| match seen.line() {
        line if line.contains("/ws") => {
            let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
                        Upgrade: websocket\r\n\r\n";
            stream.write_all(head.as_bytes()).unwrap();
            let mut byte = [0];
            while stream.read(&mut byte).is_ok_and(|read| read > 0) {
                let _ = stream.write_all(&byte);
            }
            false
        }
        line if line.contains("/download") => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n").unwrap();
            stream.write_all(&vec![b'x'; 1_000_000]).unwrap();
            latch.wait();
            stream.write_all(&vec![b'y'; 1_000_000]).is_ok()
        }
        _ => stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_ok(),
    })
}

/// A gateway with TLS on its second listener.
fn secure_gateway(upstream: &Upstream, authority: &Authority) -> Gateway {
    let issued = authority.issue("server", &["localhost"]);
    let listener = format!(
        "\n[[listeners]]\naddress = \"127.0.0.1:0\"\nhttp2 = true\n\
         certificates = [{{ cert = \"{}\", key = \"{}\" }}]\n",
        issued.certificate, issued.key
    );
    let routes = proxy_to(&[upstream.address]);
    Gateway::start(&format!("drain_timeout = \"60s\"\n{listener}{routes}"))
}

const UPGRADE: &[u8] =
    b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";

/// Upgrades this many times under load. No request may fail.
fn upgrade_under_load(rounds: usize) {
    let authority = Authority::new();
    let latch = Latch::default();
    let upstream = upstream(&latch);
    let gateway = secure_gateway(&upstream, &authority);
    let clients = Clients::start(&gateway, &authority, false);
    let mut serving = gateway.pid();
    for round in 0..rounds {
        let latch_is_open = round > 0;
        let mut socket = gateway.connect();
        socket.write(UPGRADE);
        assert_eq!(socket.read_response("GET").status, 101);
        let mut download = gateway.connect();
        download.write(b"GET /download HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(!download.read_bytes(10).is_empty());
        let next = upgraded(&gateway);
        clients.make_progress();
        socket.write(b"echo");
        assert_eq!(socket.read_bytes(4), b"echo", "round {round}");
        assert!(latch_is_open || is_running(serving), "it serves the WebSocket and the download");
        latch.open();
        let rest = download.read_bytes(2_000_000 + 1_000);
        assert!(rest.ends_with(b"yyyy"), "round {round}: {}", rest.len());
        drop((socket, download));
        let ended = within(2 * TIMEOUT, || (!is_running(serving)).then_some(()));
        assert!(ended.is_some(), "round {round}: process {serving} does not end");
        serving = next;
    }
    let (answered, failures) = clients.stop();
    println!("{rounds} upgrades: {answered} requests, {} failed", failures.len());
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn row_67_no_request_fails_in_three_upgrades_under_load() {
    upgrade_under_load(3);
}

#[test]
#[ignore = "takes some minutes: `make test-long`"]
fn row_67_no_request_fails_in_a_hundred_upgrades_under_load() {
    upgrade_under_load(100);
}

/// Stops a gateway under load. No request that it has accepted may fail.
fn stop_under_load() -> u64 {
    let authority = Authority::new();
    let latch = Latch::default();
    let upstream = upstream(&latch);
    let mut gateway = secure_gateway(&upstream, &authority);
    let clients = Clients::start(&gateway, &authority, true);
    let mut download = gateway.connect();
    download.write(b"GET /download HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(!download.read_bytes(10).is_empty());
    gateway.terminate();
    let (answered, failures) = clients.wait();
    assert!(failures.is_empty(), "{failures:#?}");
    latch.open();
    assert!(download.read_bytes(2_000_000 + 1_000).ends_with(b"yyyy"));
    assert_eq!(gateway.exit().0, Some(0));
    answered
}

#[test]
fn row_66_no_request_fails_when_sigterm_arrives_under_load() {
    println!("{} requests, 0 failed", stop_under_load());
}

#[test]
#[ignore = "takes some minutes: `make test-long`"]
fn row_66_no_request_fails_in_a_hundred_stops_under_load() {
    let answered: u64 = (0..100).map(|_| stop_under_load()).sum();
    println!("100 stops: {answered} requests, 0 failed");
}
