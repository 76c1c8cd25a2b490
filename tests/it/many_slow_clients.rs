//! Thousands of slow clients at once. Each trickles or reads a byte a second, in one phase of a
//! connection.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, interval, sleep_until};

use crate::support::{
    Authority, ClientGroup, Gateway, Load, Nginx, Request, eventually, inconclusive, proxy_to,
    sleep_for, within,
};

/// Number of slow clients in all.
const CLIENTS: usize = 5_000;

/// They come from this many addresses, each with fewer than `max_connections_per_ip`.
const ADDRESSES: usize = 8;

/// The longest that one of them can stay: the timeouts are the defaults, except that of an idle
/// connection.
const LONGEST: Duration = Duration::from_secs(45);

/// 99 % of the requests of a normal client take less.
const P99: Duration = Duration::from_millis(50);

/// What a slow client does: sends `first`, then `trickled` a byte a second, if there is any, or
/// reads one.
struct Attack {
    listener: usize,
    first: Vec<u8>,
    trickled: Vec<u8>,
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The listeners: HTTP/1.1, with TLS, HTTP/2 in clear.
fn attacks() -> Vec<Attack> {
    let text = |text: &str| text.as_bytes().to_vec();
    let settings = frame(4, 0, 0, &[]);
    let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..]].concat();
    // Method, scheme, path and authority, by HPACK's static table.
    let head = |method: u8, path: &[u8]| {
        [&[method, 0x86, 0x44, u8::try_from(path.len()).unwrap()], path, &[0x41, 1, b'a']].concat()
    };
    let get = frame(1, 5, 1, &head(0x82, b"/large"));
    let post = frame(1, 4, 1, &head(0x83, b"/upload"));
    let data: Vec<u8> = (0..200).flat_map(|_| frame(0, 0, 1, b"x")).collect();
    let attack = |listener, first: Vec<u8>, trickled: Vec<u8>| Attack { listener, first, trickled };
    vec![
        attack(0, text("GET / HTTP/1.1\r\nHost: a\r\nX-Slow: "), vec![b'x'; 200]),
        attack(
            0,
            text("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\n"),
            vec![b'x'; 200],
        ),
        attack(0, text("GET /large HTTP/1.1\r\nHost: a\r\n\r\n"), Vec::new()),
        // The head of a TLS record of 512 bytes.
        attack(1, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(), vec![b'x'; 200]),
        attack(2, text("PRI * HT"), text("TP/2.0\r\n\r\nSM\r\n\r\n")),
        // The head of the frame says 200 bytes.
        attack(2, [&preface[..], &frame(1, 4, 1, &[0; 200])[..9]].concat(), vec![0x82; 200]),
        attack(2, [preface.clone(), post].concat(), data),
        attack(2, [preface, get].concat(), Vec::new()),
    ]
}

impl Attack {
    /// Runs until the gateway has closed the connection, or the deadline. Returns whether it is
    /// closed.
    async fn run(&self, gateway: &[SocketAddr], source: IpAddr, deadline: Instant) -> bool {
        let Some(mut stream) = connect(gateway[self.listener], source).await else { return true };
        if stream.write_all(&self.first).await.is_err() {
            return true;
        }
        let mut seconds = interval(Duration::from_secs(1));
        let mut trickled = self.trickled.iter();
        let mut byte = [0];
        loop {
            tokio::select! {
                _ = seconds.tick() => {}
                () = sleep_until(deadline) => return false,
            }
            match trickled.next() {
                Some(byte) if stream.write_all(&[*byte]).await.is_err() => return true,
                _ => {}
            }
            // A client that trickles reads what is there, to see the end.
            loop {
                match stream.try_read(&mut byte) {
                    Ok(0) => return true,
                    Ok(_) if self.trickled.is_empty() => break,
                    Ok(_) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                    Err(_) => return true,
                }
            }
        }
    }
}

async fn connect(gateway: SocketAddr, source: IpAddr) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.bind(SocketAddr::new(source, 0)).unwrap();
    socket.connect(gateway).await.ok()
}

/// Responds to `/large` with 4 MB, to other paths with a word; reads bodies.
fn upstream() -> Nginx {
    let nginx = Nginx::listening("", |folder| {
        format!(
            "location = /large {{ alias {folder}/files/large; }}\n\
             location = /upload {{ proxy_pass http://unix:{folder}/none; }}\n\
             location / {{ return 200 \"hello\"; }}"
        )
    });
    std::fs::write(nginx.file("large"), vec![b'x'; 4_000_000]).unwrap();
    nginx
}

/// A gateway with the listeners of the attacks. `/other` has its own upstream.
fn gateway(authority: &Authority, nginx: &Nginx, other: &Nginx) -> Gateway {
    let tls = authority.issue("server", &["localhost"]);
    Gateway::start(&format!(
        "keepalive_timeout = \"5s\"\n\
         [[listeners]]\naddress = \"127.0.0.1:0\"\ncertificates = [{}]\n\
         [[listeners]]\naddress = \"127.0.0.1:0\"\nhttp2 = true\n{}\
         [upstreams.other]\nservers = [\"{}\"]\n\
         [routes.other]\npath = \"/other\"\nupstream = \"other\"\n",
        tls.entry(),
        proxy_to(&[nginx.address]),
        other.address,
    ))
}

/// Open file descriptors of the gateway, by its own account.
fn descriptors(gateway: &Gateway) -> usize {
    usize::try_from(gateway.count("process_open_fds", &[])).unwrap()
}

#[test]
#[ignore = "takes longer than others: `make test-long`"]
fn row_56_5000_slow_clients_are_closed_and_delay_no_other() {
    let (nginx, other) = (upstream(), upstream());
    let authority = Authority::new();
    let gateway = gateway(&authority, &nginx, &other);
    let addresses = gateway.listeners();
    // Without slow clients: judges how busy the machine is during the attack.
    let control = Gateway::start(&proxy_to(&[other.address]));
    let request = Request::get("/other");
    let clients = [&gateway, &control]
        .map(|gateway| ClientGroup::new(gateway, &request, 10, Duration::from_millis(50)));
    let load = Load::start(clients.into());
    sleep_for(Duration::from_secs(5));
    let before = descriptors(&gateway);
    let begun = load.elapsed();

    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    let deadline = Instant::now() + LONGEST;
    let attacks: Vec<_> = attacks().into_iter().map(std::sync::Arc::new).collect();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let attack = std::sync::Arc::clone(&attacks[number % attacks.len()]);
            let source = Ipv4Addr::new(
                127,
                0,
                1,
                u8::try_from(number / attacks.len() % ADDRESSES).unwrap() + 1,
            );
            let addresses = addresses.clone();
            let client = async move {
                // 500 new connections a second.
                tokio::time::sleep(Duration::from_millis(2 * number as u64)).await;
                attack.run(&addresses, source.into(), deadline).await
            };
            (number % attacks.len(), runtime.spawn(client))
        })
        .collect();
    let most = within(Duration::from_secs(15), || {
        let now = descriptors(&gateway);
        (now > CLIENTS / 2).then_some(now)
    });
    // A client that does not read does not see the end, so the gateway's side counts.
    let is_closed =
        within(LONGEST, || (descriptors(&gateway) <= before + 50).then_some(())).is_some();
    let span = begun..load.elapsed();
    let mut open = [0; 8];
    for (attack, client) in clients {
        let seen = runtime.block_on(client).unwrap();
        open[attack] += usize::from(!seen);
    }
    let reports = load.stop();
    let [report, control] = [0, 1].map(|group: usize| reports[group].during(&span));
    assert!(most.is_some(), "the slow clients did not connect");
    assert!(
        is_closed,
        "{} descriptors, {before} before; open by attack: {open:?}",
        descriptors(&gateway)
    );
    assert_eq!(report.broken(), 0);
    let [p99, quiet] = [&report, &control].map(|report| report.quantile(990));
    eprintln!(
        "p99 of {} requests: {p99:?}, {quiet:?} by a gateway without slow clients; seen open at the end: {open:?}",
        report.len()
    );
    if quiet > P99 / 2 {
        inconclusive(&format!("99 % of requests took up to {quiet:?} without slow clients"));
    } else {
        assert!(p99 < P99, "{p99:?}");
    }
}

/// slowhttptest opens 300 connections, and probes whether another client gets a response within 3
/// s.
#[test]
#[ignore = "takes longer than others: `make test-long`"]
fn row_56_slowhttptest_is_cut_off_in_its_four_modes() {
    let nginx = upstream();
    let gateway = Gateway::start(&proxy_to(&[nginx.address]));
    let before = descriptors(&gateway);
    for mode in ["-H", "-B", "-R", "-X"] {
        let mut command = Command::new("slowhttptest");
        command.args([mode, "-c", "300", "-r", "300", "-i", "1", "-l", "60", "-p", "3"]);
        command.args(["-u", &gateway.url("/large")]).stdout(Stdio::piped());
        let tool = command.spawn().expect("install it: apt-get install slowhttptest");
        if mode == "-X" {
            // The tool reads on what its kernel has received before the end.
            let count = || descriptors(&gateway);
            eventually("its connections are open", || (count() > before + 200).then_some(()));
            let is_closed = within(LONGEST, || (count() <= before + 20).then_some(()));
            assert!(is_closed.is_some(), "{} descriptors, {before} before", count());
        }
        let printed = tool.wait_with_output().unwrap().stdout;
        let printed = String::from_utf8_lossy(&printed);
        assert!(mode == "-X" || printed.contains("No open connections left"), "{mode}: {printed}");
        assert!(printed.contains("YES\u{1b}"), "{mode}: {printed}");
        assert!(!printed.contains("NO\u{1b}"), "{mode}: {printed}");
    }
}
