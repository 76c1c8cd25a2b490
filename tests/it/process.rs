//! Start and shutdown of the process.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::{
    ClosedPort, Connection, DEMO, Gateway, Latch, Request, Stopwatch, TIMEOUT, Upstream,
    eventually, free_port, full_config, proxy_to, timed_below, tollgate, within,
};

/// A file with these ports in a temporary folder.
fn file(listen: &str, admin: &str, rest: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    let server = format!("[server]\nlisten = [\"{listen}\"]\nadmin = \"{admin}\"\n");
    std::fs::write(&path, format!("{server}{rest}")).unwrap();
    let path = path.to_str().unwrap().to_string();
    (folder, path)
}

#[test]
fn row_49_invalid_file_exits_before_any_port_is_opened() {
    // If the port were opened first, the error would be about the port.
    let owner = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = owner.local_addr().unwrap().to_string();
    let (_folder, path) = file(&taken, "127.0.0.1:0", &DEMO.replace("upstream =", "upsteram ="));
    let outcome = tollgate(&["run", "-c", &path], "");
    assert_eq!(outcome.code, Some(64), "{outcome:?}");
    assert!(outcome.stderr.contains("upsteram"), "{outcome:?}");
    assert!(!outcome.stderr.contains("listen"), "{outcome:?}");
}

#[test]
fn invalid_log_level_does_not_hide_errors() {
    let config = full_config(DEMO);
    for wanted in ["", "inf", "wran"] {
        let gateway = Gateway::start_logging(&config, wanted);
        assert!(gateway.log().contains("INFO"), "TOLLGATE_LOG={wanted}");
    }
}

/// The lines of a log, each of them a JSON object with these members.
#[track_caller]
fn events(log: &str) -> Vec<Value> {
    let event = |line: &str| {
        let event: Value = serde_json::from_str(line).expect(line);
        let members: Vec<&String> = event.as_object().unwrap().keys().collect();
        assert_eq!(members, ["event", "fields", "level", "time"], "{line}");
        event
    };
    log.lines().map(event).collect()
}

#[test]
fn every_line_of_a_json_log_is_an_object() {
    let closed = ClosedPort::bind();
    let log = "[log]\nformat = \"json\"\n";
    let mut gateway = Gateway::start(&format!("{}{log}", proxy_to(&[closed.address])));
    assert_eq!(gateway.get("/a%0a\"b").status, 502);
    gateway.save("[routes.r\nx = \"\\u0000\n");
    assert_eq!(gateway.reload().status, 422);
    gateway.terminate();
    assert_eq!(gateway.exit().0, Some(0));
    let events = events(&gateway.log());
    let find = |event: &str| {
        let found = events.iter().find(|found| found["event"] == event);
        found.unwrap_or_else(|| panic!("{event} in {events:#?}")).clone()
    };
    let failed = find("request failed");
    assert_eq!(failed["level"], "warn");
    let fields = &failed["fields"];
    assert_eq!(fields["reason"], "upstream_connect");
    assert_eq!(fields["cause"], "connection refused");
    assert_eq!(fields["server"], closed.address.to_string());
    assert_eq!((&fields["route"], &fields["upstream"]), (&"all".into(), &"api".into()));
    find("the configuration was rejected; the previous configuration stays in force");
    assert!(find("configuration error")["fields"]["line"].is_u64());
    find("drained");
}

#[test]
fn failures_of_one_server_are_one_line_at_once_and_one_with_their_number() {
    let closed = ClosedPort::bind();
    let log = "[log]\nformat = \"json\"\n";
    let mut gateway = Gateway::start(&format!("{}{log}", proxy_to(&[closed.address])));
    for _ in 0..30 {
        assert_eq!(gateway.get("/").status, 502);
    }
    let lines = |event: &str| {
        let events = events(&gateway.log());
        events.into_iter().filter(|found| found["event"] == event).collect::<Vec<_>>()
    };
    assert_eq!(lines("request failed").len(), 1, "{}", gateway.log());
    gateway.terminate();
    assert_eq!(gateway.exit().0, Some(0));
    let events = events(&gateway.log());
    let all = |event: &str| {
        let found = events.iter().filter(|found| found["event"] == event);
        found.map(|found| &found["fields"]).collect::<Vec<_>>()
    };
    assert_eq!(all("request failed").len(), 1);
    let [run] = all("requests failed")[..] else { panic!("{events:#?}") };
    assert_eq!((&run["count"], &run["reason"]), (&30.into(), &"upstream_connect".into()));
    assert_eq!((&run["upstream"], &run["status"]), (&"api".into(), &502.into()));
    assert_eq!(run["server"], closed.address.to_string());
    assert_eq!(run["cause"], "connection refused");
}

#[test]
fn errors_of_the_file_at_the_start_are_events_of_a_json_log() {
    let (_folder, path) =
        file("127.0.0.1:0", "127.0.0.1:0", "[log]\nformat = \"json\"\nx = 1\ny = 2\n");
    let outcome = tollgate(&["run", "-c", &path], "");
    assert_eq!(outcome.code, Some(64), "{outcome:?}");
    let events = events(&outcome.stderr);
    assert_eq!(events[0]["event"], "the configuration was rejected; the gateway does not start");
    assert_eq!(
        (&events[0]["fields"]["path"], &events[0]["level"]),
        (&path.into(), &"error".into())
    );
    assert_eq!(events[0]["fields"]["errors"], events.len() - 1);
    let of_line = events.iter().find(|event| event["fields"]["line"] == 6).unwrap();
    assert_eq!(of_line["event"], "configuration error");
}

#[test]
fn environment_selects_the_format_of_the_log() {
    let (_folder, path) = file("127.0.0.1:0", "127.0.0.1:0", "x = 1\n");
    let run = |format: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(["run", "-c", &path]).env("TOLLGATE_LOG_FORMAT", format);
        let output = command.env_remove("TOLLGATE_LOG").output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, log) = run("json");
    assert_eq!((code, events(&log).len() > 1), (Some(64), true));
    assert!(run("text").1.starts_with("error: "), "{}", run("text").1);
    let expected = "error: TOLLGATE_LOG_FORMAT is `text` or `json`, not \"xml\"\n";
    assert_eq!(run("xml"), (Some(64), expected.to_owned()));
}

#[test]
fn level_of_the_file_applies_unless_the_environment_has_one() {
    let config = full_config(&format!("{DEMO}[log]\nlevel = \"debug\"\n"));
    let quiet = Gateway::start_logging(&config, "info");
    assert!(!quiet.log().contains("DEBUG"), "{}", quiet.log());
    let owner = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = owner.local_addr().unwrap().to_string();
    let (_folder, path) = file("127.0.0.1:0", &taken, &format!("{DEMO}[log]\nlevel = \"error\"\n"));
    // A port that cannot be opened: the only event at this level.
    let outcome = tollgate(&["run", "-c", &path], "");
    assert_eq!(outcome.code, Some(69), "{outcome:?}");
    assert!(!outcome.stderr.contains("INFO") && outcome.stderr.contains("ERROR"), "{outcome:?}");
}

#[test]
fn row_49_unreadable_file_is_named_in_the_error() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.toml");
    for path in [missing.to_str().unwrap(), folder.path().to_str().unwrap()] {
        for command in ["run", "check"] {
            let outcome = tollgate(&[command, "-c", path], "");
            assert_eq!(outcome.code, Some(64), "{outcome:?}");
            assert!(outcome.stderr.contains(path), "{outcome:?}");
        }
    }
}

#[test]
fn row_68_port_in_use_exits_with_69() {
    let owner = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = owner.local_addr().unwrap();
    let port = taken.port().to_string();
    let free = "127.0.0.1:0".to_string();
    for (listen, admin) in [(taken.to_string(), free.clone()), (free, taken.to_string())] {
        let (_folder, path) = file(&listen, &admin, DEMO);
        let outcome = timed_below(Duration::from_secs(10), || tollgate(&["run", "-c", &path], ""));
        assert_eq!(outcome.code, Some(69), "{outcome:?}");
        assert!(outcome.stderr.contains(&port), "{outcome:?}");
    }
}

#[test]
fn row_68_port_listed_twice_in_the_file_is_named_in_the_error() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (_folder, path) = file(&format!("0.0.0.0:{port}"), &format!("127.0.0.1:{port}"), DEMO);
    let outcome = tollgate(&["run", "-c", &path], "");
    assert_eq!(outcome.code, Some(64), "{outcome:?}");
    assert!(outcome.stderr.contains("`listen` and `admin` have the same port"), "{outcome:?}");
}

#[test]
fn two_gateways_do_not_share_a_port() {
    let gateway = Gateway::start(DEMO);
    let (_folder, path) = file(&gateway.address.to_string(), "127.0.0.1:0", DEMO);
    assert_eq!(tollgate(&["run", "-c", &path], "").code, Some(69));
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn gateway_is_live_and_ready_once_it_listens() {
    let gateway = Gateway::start(DEMO);
    assert_eq!(gateway.admin("/live").text(), "alive\n");
    assert_eq!(gateway.admin("/ready").text(), "ready\n");
    assert_eq!(gateway.admin("/other").status, 404);
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    assert_eq!(gateway.count("tollgate_build_info", &version), 1);
    // The paths of the admin port do not exist on the ports for clients.
    assert_eq!(gateway.get("/metrics").json()["path"], "/metrics");
}

#[test]
fn row_66_sigterm_lets_requests_in_flight_finish() {
    let latch = Latch::default();
    let upstream = Upstream::start({
        let latch = latch.clone();
        move |_, stream| {
            latch.wait();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow").is_ok()
        }
    });
    let mut gateway = Gateway::start(&proxy_to(&[upstream.address]));
    let mut client = gateway.connect();
    client.write(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the request to arrive", || upstream.requests().pop());

    gateway.terminate();
    eventually("new connections to be refused", || TcpStream::connect(gateway.address).err());
    let ready = gateway.admin("/ready");
    assert_eq!((ready.status, ready.text().as_str()), (503, "draining\n"));
    assert_eq!(gateway.admin("/live").status, 200);

    latch.open();
    let answer = client.read_response("GET");
    assert_eq!((answer.status, answer.text().as_str()), (200, "slow"));
    assert_eq!(answer.header("connection"), Some("close"), "there is no next request");
    // Far below `drain_timeout`, which is 20 s.
    assert_eq!(gateway.exit_below(Duration::from_secs(8)), Some(0));
}

#[test]
fn row_66_drain_delay_keeps_the_ports_open() {
    let mut gateway = Gateway::start(&format!("drain_delay = \"3s\"\n{DEMO}"));
    let watch = Stopwatch::start();
    gateway.terminate();
    eventually("not to be ready", || (gateway.admin("/ready").status == 503).then_some(()));
    // The ports are still open, and new requests are served.
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(gateway.exit().0, Some(0));
    let took = watch.elapsed();
    assert!((3..13).contains(&took.as_secs()), "{took:?}");
}

#[test]
fn row_66_sigterm_lets_a_download_finish() {
    let latch = Latch::default();
    let upstream = Upstream::start({
        let latch = latch.clone();
        move |_, stream| {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n").unwrap();
            stream.write_all("x".repeat(1_000_000).as_bytes()).unwrap();
            latch.wait();
            stream.write_all("y".repeat(1_000_000).as_bytes()).is_ok()
        }
    });
    let mut gateway = Gateway::start(&proxy_to(&[upstream.address]));
    let mut client = gateway.connect();
    client.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the request to arrive", || upstream.requests().pop());
    gateway.terminate();
    eventually("new connections to be refused", || TcpStream::connect(gateway.address).err());
    latch.open();
    let answer = client.read_response("GET");
    assert_eq!((answer.complete, answer.body.len()), (true, 2_000_000));
    assert_eq!(gateway.exit().0, Some(0));
}

#[test]
fn sigterm_stops_an_idle_gateway_at_once() {
    let mut gateway = Gateway::start(DEMO);
    // A kept-alive connection counts as idle.
    let mut client = gateway.connect();
    assert_eq!(client.send(&Request::get("/")).status, 200);
    gateway.terminate();
    // Far below `drain_timeout`, which is 20 s.
    assert_eq!(gateway.exit_below(Duration::from_secs(3)), Some(0));
    assert!(client.is_closed_by_server());
}

#[test]
fn sigterm_during_the_start_is_handled() {
    for _ in 0..10 {
        let mut gateway = Gateway::start(DEMO);
        gateway.terminate();
        assert_eq!(gateway.exit().0, Some(0));
    }
}

#[test]
fn row_74_full_disk_of_the_log_of_the_process_stops_nothing() {
    let (listen, admin) = (free_port(), free_port());
    let (folder, path) = file(&format!("127.0.0.1:{listen}"), &format!("127.0.0.1:{admin}"), DEMO);
    let mut process = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["run", "-c", &path])
        .env("TOLLGATE_LOG", "debug")
        .stderr(std::fs::File::options().write(true).open("/dev/full").unwrap())
        .spawn()
        .unwrap();
    let connect = || TcpStream::connect(("127.0.0.1", listen)).ok();
    eventually("the gateway", connect);
    let send = |port: u16, request: Request| {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        Connection::open(address).send(&request.at(address)).status
    };
    for _ in 0..10 {
        assert_eq!(send(listen, Request::get("/")), 200);
    }
    assert_eq!(send(admin, Request::get("/ready")), 200);
    std::fs::write(folder.path().join("gateway.toml"), "x = 1").unwrap();
    assert_eq!(send(admin, Request::new("POST", "/api/reload")), 422);
    assert_eq!(send(listen, Request::get("/")), 200);
    let id = nix::unistd::Pid::from_raw(process.id().try_into().unwrap());
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).unwrap();
    let ended = within(TIMEOUT, || process.try_wait().unwrap());
    if ended.is_none() {
        process.kill().unwrap();
    }
    assert_eq!(ended.expect("the end").code(), Some(0));
}

/// Connections that each hold a part of a long head.
fn fill_memory(address: std::net::SocketAddr) -> Vec<TcpStream> {
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Long: {}", "x".repeat(900_000));
    let open = |_| {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?;
        stream.write_all(head.as_bytes()).ok()?;
        Some(stream)
    };
    (0..500).map_while(open).collect()
}

#[test]
fn row_121_failed_allocation_ends_the_process_by_sigabrt() {
    let limits = "limits.head_timeout = \"60s\"\nmax_header_bytes = 1048576\n";
    let config = full_config(&format!("{limits}{DEMO}"));
    // By default the allocator reserves a gibibyte, which the test would have to fill.
    let mut gateway = Gateway::start_with(&config, |command| {
        command.env("MIMALLOC_ARENA_RESERVE", "0");
    });
    assert_eq!(gateway.get("/").status, 200);
    // Little more address space than now: threads that are still started need some, too.
    let status = std::fs::read_to_string(format!("/proc/{}/statm", gateway.pid())).unwrap();
    let pages: u64 = status.split(' ').next().unwrap().parse().unwrap();
    let limit = format!("--as={}", pages * 4096 + (64 << 20));
    let process = gateway.pid().to_string();
    let limited = Command::new("prlimit").args(["--pid", &process, &limit]).status();
    assert!(limited.expect("install it: apt-get install util-linux").success());
    let held = fill_memory(gateway.address);
    // If all that was allocated just fits, the next thread does not start.
    let failures = ["memory allocation of", "Cannot allocate memory"];
    eventually("an allocation to fail", || {
        let log = gateway.log();
        failures.iter().any(|failure| log.contains(failure)).then_some(())
    });
    assert_eq!(gateway.exit().0, None, "{}", gateway.log());
    drop(held);
}

#[test]
fn drain_timeout_bounds_the_wait() {
    let latch = Latch::default();
    let upstream = Upstream::start({
        let latch = latch.clone();
        move |_, _| {
            latch.wait();
            false
        }
    });
    let routes = proxy_to(&[upstream.address]);
    let mut gateway = Gateway::start(&format!("drain_timeout = \"1s\"\n{routes}"));
    let mut client = gateway.connect();
    client.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the request to arrive", || upstream.requests().pop());
    let watch = Stopwatch::start();
    gateway.terminate();
    // Far below the default of 20 s.
    assert_eq!(gateway.exit_below(Duration::from_secs(10)), Some(0));
    let took = watch.elapsed();
    assert!(took > Duration::from_millis(900), "{took:?}");
    assert!(gateway.log().contains("drain_timeout is over"), "{}", gateway.log());
    latch.open();
}
