//! Certificates of listeners: replacement while connections are open, wrong files, resumption,
//! stalled handshakes.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::support::{
    Authority, CpuWaits, DEMO, Gateway, Issued, Stopwatch, check_file, eventually, full_config,
    inconclusive, replace_file, sleep_for,
};

/// A listener with this certificate, at a port that the kernel selects.
fn file(issued: &Issued, settings: &str) -> String {
    let entry = issued.entry();
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\ncertificates = [{entry}]\n{settings}\n{DEMO}"
    )
}

/// A client that verifies the name `a.example` and resumes no session.
pub(crate) fn client(authority: &Authority) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.ca()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

/// A connection with TLS.
pub(crate) struct Secure(pub(crate) StreamOwned<ClientConnection, TcpStream>);

impl Secure {
    fn open(config: &Arc<ClientConfig>, address: SocketAddr) -> std::io::Result<Self> {
        Self::on(config, TcpStream::connect(address)?)
    }

    /// Performs the handshake.
    pub(crate) fn on(config: &Arc<ClientConfig>, socket: TcpStream) -> std::io::Result<Self> {
        socket.set_read_timeout(Some(Duration::from_secs(20)))?;
        let name = ServerName::try_from("a.example").unwrap();
        let session = ClientConnection::new(Arc::clone(config), name).unwrap();
        let mut stream = StreamOwned::new(session, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        // The last message of the handshake.
        stream.flush()?;
        Ok(Self(stream))
    }

    /// Sends a request, and returns whether the response is complete and has status 200.
    fn get(&mut self) -> std::io::Result<bool> {
        self.0.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")?;
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            self.0.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.unwrap().parse().unwrap()];
        self.0.read_exact(&mut body)?;
        Ok(head.starts_with("http/1.1 200"))
    }

    /// The certificate of the gateway.
    fn leaf(&self) -> Vec<u8> {
        self.0.conn.peer_certificates().unwrap()[0].to_vec()
    }
}

fn leaf(issued: &Issued) -> Vec<u8> {
    CertificateDer::from_pem_file(&issued.certificate).unwrap().to_vec()
}

/// Waits until a new connection gets this certificate.
fn wait_for(config: &Arc<ClientConfig>, address: SocketAddr, expected: &[u8]) {
    eventually("the new certificate", || {
        (Secure::open(config, address).unwrap().leaf() == expected).then_some(())
    });
}

#[test]
fn certificate_is_replaced_100_times_under_64_connections_without_a_failure() {
    let authority = Authority::new();
    let issued = authority.issue("a", &["a.example"]);
    let gateway = Gateway::start(&file(&issued, ""));
    let (config, address) = (client(&authority), gateway.listener(1));
    let (is_over, served, opened) =
        (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let (waits, mut slowest) = (CpuWaits::now(), Duration::ZERO);
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                let mut kept = Secure::open(&config, address).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    assert!(kept.get().unwrap());
                    assert!(Secure::open(&config, address).unwrap().get().unwrap());
                    served.fetch_add(2, Ordering::Relaxed);
                    opened.fetch_add(1, Ordering::Relaxed);
                    sleep_for(Duration::from_millis(300));
                }
                assert!(kept.get().unwrap());
            });
        }
        for _ in 0..100 {
            let issued = authority.issue("a", &["a.example"]);
            let since = Stopwatch::start();
            wait_for(&config, address, &leaf(&issued));
            slowest = slowest.max(since.elapsed());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let (served, opened) = (served.into_inner(), opened.into_inner());
    eprintln!("{served} requests, {opened} new connections, slowest replacement {slowest:?}");
    assert!(served > 1_000, "{served}");
    if let Some(why) = waits.judge(slowest, Duration::from_secs(5)) {
        inconclusive(&why);
    }
    assert_eq!(gateway.count("tollgate_config_generation", &[]), 1);
    assert_eq!(gateway.log().matches("cannot be used").count(), 0, "{}", gateway.log());
}

#[test]
fn wrong_files_keep_the_previous_certificate_and_are_shown() {
    let authority = Authority::new();
    let issued = authority.issue("a", &["a.example"]);
    let other = authority.issue("b", &["b.example"]);
    let gateway = Gateway::start(&file(&issued, ""));
    let (config, address) = (client(&authority), gateway.listener(1));
    let before = leaf(&issued);
    let shown = || gateway.admin("/api/certificates").json()["certificates"][0].clone();
    assert!(shown()["error"].is_null());
    assert_eq!(shown()["not_after"], "2099-12-31T00:00:00Z");
    let name = [("name", "a.example")];
    assert_eq!(gateway.count("tollgate_certificate_expiry_seconds", &name), 4_102_358_400);

    let key = std::fs::read(&issued.key).unwrap();
    replace_file(&issued.key, std::fs::read(&other.key).unwrap());
    gateway.wait_for_count("tollgate_certificate_errors_total", &name, 1);
    // It is shown just after it is counted.
    let message = || shown()["error"]["message"].as_str().map(str::to_owned);
    let message = eventually("the failure", message);
    assert!(message.contains("does not belong to the first certificate of"), "{message}");
    assert_eq!(Secure::open(&config, address).unwrap().leaf(), before);
    // A reload of the same configuration does not put it in force either.
    gateway.sighup();
    eventually("the reload", || gateway.log().contains("SIGHUP").then_some(()));
    assert_eq!(Secure::open(&config, address).unwrap().leaf(), before);

    replace_file(&issued.key, key);
    eventually("the end of the failure", || shown()["error"].is_null().then_some(()));
    let issued = authority.issue("a", &["a.example"]);
    wait_for(&config, address, &leaf(&issued));
    // It is logged just after it is in force.
    let is_logged = || gateway.log().contains("certificate replaced").then_some(());
    eventually("the replacement in the log", is_logged);
    let log = gateway.log();
    let events = [
        "certificate files cannot be used; the previous ones stay in use",
        "certificate files are those in use again",
        "certificate replaced",
    ];
    for event in events {
        assert_eq!(log.matches(event).count(), 1, "{event}: {log}");
    }
    assert_eq!(gateway.count("tollgate_certificate_errors_total", &name), 1);
}

/// Kubernetes replaces a link to the folder of the files.
#[test]
fn files_behind_a_replaced_link_are_used() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let copy = |folder: &str, issued: &Issued| {
        std::fs::create_dir(path(folder)).unwrap();
        std::fs::copy(&issued.certificate, path(folder).join("tls.crt")).unwrap();
        std::fs::copy(&issued.key, path(folder).join("tls.key")).unwrap();
        std::os::unix::fs::symlink(folder, path("..new")).unwrap();
        std::fs::rename(path("..new"), path("..data")).unwrap();
    };
    copy("..1", &authority.issue("a", &["a.example"]));
    for name in ["tls.crt", "tls.key"] {
        std::os::unix::fs::symlink(format!("..data/{name}"), path(name)).unwrap();
    }
    let [certificate, key] = ["tls.crt", "tls.key"].map(|name| path(name).display().to_string());
    let gateway = Gateway::start(&file(&Issued { certificate, key }, ""));
    let (config, address) = (client(&authority), gateway.listener(1));
    for number in 2..5 {
        let issued = authority.issue("a", &["a.example"]);
        copy(&format!("..{number}"), &issued);
        wait_for(&config, address, &leaf(&issued));
    }
}

#[test]
fn stalled_handshakes_end_at_their_deadline_and_delay_no_request() {
    const STALLED: usize = 200;
    let authority = Authority::new();
    let issued = authority.issue("a", &["a.example"]);
    let limits = "[server.limits]\nhandshake_timeout = \"4s\"\n";
    let gateway = Gateway::start(&format!("{limits}{}", file(&issued, "")));
    let (config, address) = (client(&authority), gateway.listener(1));
    let mut kept = Secure::open(&config, address).unwrap();
    assert!(kept.get().unwrap());
    let mut stalled: Vec<TcpStream> =
        (0..STALLED).map(|_| TcpStream::connect(address).unwrap()).collect();
    for (index, socket) in stalled.iter_mut().enumerate() {
        // Half of them send the beginning of a message.
        if index % 2 == 0 {
            socket.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01").unwrap();
        }
    }
    for _ in 0..20 {
        assert!(kept.get().unwrap());
        assert!(Secure::open(&config, address).unwrap().get().unwrap());
    }
    let listener = "127.0.0.1:0";
    let labels = [("listener", listener), ("result", "timeout")];
    gateway.wait_for_count("tollgate_tls_handshakes_total", &labels, STALLED as u64);
    for mut socket in stalled {
        assert_eq!(socket.read(&mut [0]).unwrap_or(0), 0);
    }
    assert!(kept.get().unwrap());
}

#[test]
fn openssl_resumes_sessions_of_either_version() {
    let authority = Authority::new();
    let issued = authority.issue("a", &["a.example"]);
    let gateway = Gateway::start(&file(&issued, ""));
    let address = gateway.listener(1).to_string();
    let session = authority.path("session.pem");
    for version in ["-tls1_2", "-tls1_3"] {
        let connect = |more: &[&str]| {
            let script = format!(
                "(printf 'GET / HTTP/1.1\\r\\nHost: a.example\\r\\nConnection: close\\r\\n\\r\\n'; sleep 1) | \
                 openssl s_client -connect {address} -servername a.example {version} -CAfile {} {} 2>&1",
                authority.ca(),
                more.join(" ")
            );
            let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let first = connect(&["-sess_out", &session]);
        assert!(first.contains("Verify return code: 0"), "{first}");
        let second = connect(&["-sess_in", &session]);
        assert!(second.contains("Reused, TLSv1"), "{version}: {second}");
    }
    let labels = [("listener", "127.0.0.1:0"), ("result", "resumed")];
    gateway.wait_for_count("tollgate_tls_handshakes_total", &labels, 2);
}

#[test]
fn plain_http_and_garbage_are_answered_and_counted() {
    let authority = Authority::new();
    let gateway = Gateway::start(&file(&authority.issue("a", &["a.example"]), ""));
    let address = gateway.listener(1);
    let answer = |bytes: &[u8]| {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        answer
    };
    let plain = answer(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(plain.starts_with(b"HTTP/1.1 400 Bad Request\r\n"), "{plain:?}");
    // A fatal alert.
    assert_eq!(answer(&[0x80; 300]).get(..6), Some(&[0x15, 3, 3, 0, 2, 2][..]));
    let labels = [("listener", "127.0.0.1:0"), ("result", "protocol")];
    gateway.wait_for_count("tollgate_tls_handshakes_total", &labels, 2);
}

#[test]
fn check_lists_certificates_and_names_the_line_of_a_wrong_file() {
    let authority = Authority::new();
    let issued = authority.issue("a", &["a.example"]);
    let other = authority.issue("b", &["b.example"]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, full_config(&file(&issued, ""))).unwrap();
    let outcome = check_file(&path);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("\ncertificate of a.example, expires 2099-12-31\n"));
    let wrong = Issued { key: other.key, ..issued };
    std::fs::write(&path, full_config(&file(&wrong, ""))).unwrap();
    let outcome = check_file(&path);
    assert_eq!(outcome.code, Some(64));
    assert!(
        outcome.stderr.contains("does not belong to the first certificate"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn idle_connection_ends_with_close_notify() {
    let authority = Authority::new();
    let issued = authority.issue("a", &["a.example"]);
    let mut gateway = Gateway::start(&format!("keepalive_timeout = \"1s\"\n{}", file(&issued, "")));
    let (config, address) = (client(&authority), gateway.listener(1));
    let open = || {
        let mut idle = Secure::open(&config, address).unwrap();
        assert!(idle.get().unwrap());
        idle
    };
    // Without it, rustls reports an unexpected end.
    let is_closed = |mut idle: Secure| matches!(idle.0.read(&mut [0]), Ok(0));
    assert!(is_closed(open()), "after keepalive_timeout");
    let (used, unused) = (open(), Secure::open(&config, address).unwrap());
    gateway.terminate();
    assert!(is_closed(used), "used, after SIGTERM");
    assert!(is_closed(unused), "unused, after SIGTERM");
    assert_eq!(gateway.exit().0, Some(0));
}
