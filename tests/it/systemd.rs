//! Socket activation, and messages to the service manager.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;

use crate::http2::Client;
use crate::support::{
    DEMO, Gateway, Redis, RedisCluster, TIMEOUT, eventually, free_port, full_config,
};

/// The socket of a service manager.
struct Manager {
    socket: UnixDatagram,
    folder: tempfile::TempDir,
}

impl Manager {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self { socket, folder }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("notify")
    }

    /// The next message.
    #[track_caller]
    fn next(&self) -> String {
        let mut buffer = [0; 4096];
        let length = self.socket.recv(&mut buffer).expect("a message");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    /// Reads messages until one contains this line.
    #[track_caller]
    fn expect(&self, line: &str) -> String {
        loop {
            let message = self.next();
            if message.lines().any(|own| own == line) {
                return message;
            }
            assert!(message.contains("WATCHDOG=1"), "{message} instead of {line}");
        }
    }
}

#[test]
fn service_manager_is_notified_of_start_reload_upgrade_and_stop() {
    let manager = Manager::new();
    let mut gateway = Gateway::start_with(&full_config(DEMO), |command| {
        command.env("NOTIFY_SOCKET", manager.path()).env("WATCHDOG_USEC", "600000");
    });
    assert!(manager.expect("READY=1").contains("STATUS=serving"));
    for _ in 0..3 {
        manager.expect("WATCHDOG=1");
    }
    gateway.sighup();
    let reloading = manager.expect("RELOADING=1");
    assert!(reloading.contains("MONOTONIC_USEC="), "{reloading}");
    manager.expect("READY=1");
    let answer = gateway.send_admin(&crate::support::Request::new("POST", "/api/upgrade"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    manager.expect(&format!("MAINPID={}", answer.json()["pid"]));
    manager.expect("READY=1");
    manager.expect("WATCHDOG=1");
    assert_eq!(gateway.exit().0, Some(0));
    let successor = nix::unistd::Pid::from_raw(gateway.successors()[0].try_into().unwrap());
    nix::sys::signal::kill(successor, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert!(manager.expect("STOPPING=1").contains("STATUS=draining"));
}

/// A program that opens sockets on these ports as systemd does, then becomes the gateway.
fn activated(folder: &tempfile::TempDir, ports: &[u16]) -> std::path::PathBuf {
    let path = folder.path().join("activated");
    let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
    let script = format!(
        "#!/usr/bin/env python3\nimport os, socket, sys\nports = [{}]\n\
         kept = [os.dup(0) for _ in range(16)]\n\
         for number, port in enumerate(ports):\n    \
             s = socket.create_server(('127.0.0.1', port))\n    \
             os.dup2(s.fileno(), 3 + number)\n    os.set_inheritable(3 + number, True)\n    s.detach()\n\
         os.environ['LISTEN_FDS'] = str(len(ports))\n\
         os.environ['LISTEN_PID'] = str(os.getpid())\n\
         os.execv('{program}', ['{program}'] + sys.argv[1:])\n",
        ports.join(", "),
        program = env!("CARGO_BIN_EXE_tollgate"),
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path
}

#[test]
fn sockets_of_systemd_are_used_by_their_address() {
    let folder = tempfile::tempdir().unwrap();
    let (listen, admin) = (free_port(), free_port());
    // In another order than in the file. That they are bound already shows that they are used.
    let program = activated(&folder, &[admin, listen]);
    let server = format!("listen = [\"127.0.0.1:{listen}\"]\nadmin = \"127.0.0.1:{admin}\"\n");
    let gateway = Gateway::start_program(&program, &format!("[server]\n{server}{DEMO}"));
    assert_eq!(gateway.address.port(), listen);
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(gateway.admin("/ready").status, 200);
}

#[test]
fn socket_of_systemd_without_a_listener_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (listen, other) = (free_port(), free_port());
    let program = activated(&folder, &[other]);
    let file = folder.path().join("gateway.toml");
    let server = format!("listen = [\"127.0.0.1:{listen}\"]\nadmin = \"127.0.0.1:0\"\n");
    std::fs::write(&file, format!("[server]\n{server}{DEMO}")).unwrap();
    let output = std::process::Command::new(program).arg("run").arg("-c").arg(file).output();
    let output = output.unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{log}");
    let expected = format!("systemd passes 127.0.0.1:{other}, but no listener of the file has");
    assert!(log.contains(&expected), "{log}");
}

#[test]
fn row_70_panic_of_a_service_ends_the_process() {
    let redis = Redis::start();
    let config = full_config(&format!("{DEMO}{}", redis.table()));
    for service in ["proxy", "admin", "reloads", "sampler", "lookups", "acme", "redis", "clock"] {
        ends_by_a_panic_of(&config, service);
    }
}

#[track_caller]
fn ends_by_a_panic_of(config: &str, service: &str) {
    let mut gateway = Gateway::start_with(config, |command| {
        command.env("TOLLGATE_TEST_PANIC", service);
    });
    assert_eq!(gateway.exit().0, Some(70), "{service}: {}", gateway.log());
    let log = gateway.log();
    assert!(log.contains("a service has failed"), "{service}: {log}");
}

#[test]
fn row_70_panic_of_a_background_thread_ends_the_process() {
    let redis = Redis::start();
    let quota = "[rules.quota]\nper = [\"key\"]\nkind = \"fixed_window\"\nlimit = \"9/d\"\n";
    let config = full_config(&format!("{DEMO}{}{quota}", redis.table()));
    for thread in ["access-log", "audit", "traces", "usage", "webhooks"] {
        ends_by_a_panic_of(&config, thread);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("usage.db");
    let in_file = format!("[usage]\nfile = \"{}\"\n", file.display());
    ends_by_a_panic_of(&full_config(&format!("{DEMO}{quota}{in_file}")), "usage");
}

#[test]
fn row_70_panic_of_the_supervisor_of_a_master_ends_the_process() {
    let redis = RedisCluster::steady(0);
    let config = full_config(&format!("{DEMO}{}", redis.table_with("timeout = \"1s\"\n")));
    for service in ["redis", "redis master"] {
        ends_by_a_panic_of(&config, service);
    }
}

/// The checks of the call are decided locally, and the next calls are made.
#[test]
fn row_70_panic_in_a_call_of_redis_leaves_no_request_without_an_answer() {
    let redis = Redis::start();
    let rules = "[rules.a]\nper = []\nrate = \"1000/s\"\n\
                 [rules.b]\nper = []\nkind = \"concurrency\"\nlimit = 1000\n";
    let config = full_config(&format!("{DEMO}{}{rules}", redis.table()));
    let gateway = Gateway::start_with(&config, |command| {
        command.env("TOLLGATE_TEST_PANIC", "redis call");
    });
    gateway.wait_for_redis();
    for number in 0..30 {
        assert_eq!(gateway.send(&crate::support::Request::get("/")).status, 200, "{number}");
    }
    assert!(gateway.count("tollgate_decisions_total", &[("source", "local")]) > 0);
    assert!(gateway.log().contains("TOLLGATE_TEST_PANIC is redis call"), "{}", gateway.log());
}

#[test]
fn row_70_panic_in_a_request_ends_that_request_only() {
    let gateway = Gateway::start_with(&full_config(DEMO), |command| {
        command.env("TOLLGATE_TEST_PANIC", "request");
    });
    let mut other = gateway.connect();
    let get = |path| crate::support::Request::get(path);
    assert_eq!(other.send(&get("/")).status, 200);
    for _ in 0..3 {
        let mut connection = gateway.connect();
        connection.write(b"GET /panic HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(connection.is_closed_by_server());
    }
    assert_eq!(other.send(&get("/")).status, 200);
    assert_eq!(gateway.count("tollgate_panics_total", &[]), 3);
    eventually("no request in flight", || {
        (gateway.count("tollgate_requests_in_flight", &[]) == 0).then_some(())
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn row_70_panic_in_a_request_over_http2_ends_its_stream_only() {
    let listener = "[[listeners]]\naddress = \"127.0.0.1:0\"\nhttp2 = true\n";
    let gateway = Gateway::start_with(&full_config(&format!("{DEMO}{listener}")), |command| {
        command.env("TOLLGATE_TEST_PANIC", "request");
    });
    let mut client = Client::connect(gateway.listener(1)).await;
    let get = |path: &str| {
        let uri = format!("http://api.test{path}");
        http::Request::get(uri).version(http::Version::HTTP_2).body(()).unwrap()
    };
    assert_eq!(client.send(get("/")).await.unwrap().status(), 200);
    for _ in 0..3 {
        assert!(client.send(get("/panic")).await.is_err());
    }
    assert_eq!(client.send(get("/")).await.unwrap().status(), 200);
    assert_eq!(gateway.count("tollgate_panics_total", &[]), 3);
    gateway.wait_for_count("tollgate_requests_in_flight", &[], 0);
}

#[test]
fn watchdog_messages_end_when_the_process_is_stopped() {
    let manager = Manager::new();
    let gateway = Gateway::start_with(&full_config(DEMO), |command| {
        command.env("NOTIFY_SOCKET", manager.path()).env("WATCHDOG_USEC", "600000");
    });
    manager.expect("READY=1");
    manager.expect("WATCHDOG=1");
    let process = nix::unistd::Pid::from_raw(gateway.pid().try_into().unwrap());
    nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGSTOP).unwrap();
    manager.socket.set_read_timeout(Some(std::time::Duration::from_secs(2))).unwrap();
    // Some may be on the way.
    let silent = (0..20).find(|_| manager.socket.recv(&mut [0; 4096]).is_err());
    assert!(silent.is_some());
    nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGCONT).unwrap();
    manager.expect("WATCHDOG=1");
}

#[test]
fn handover_variable_of_another_process_is_an_error() {
    // The standard input is no socket of a gateway.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    std::fs::write(&file, full_config(DEMO)).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.arg("run").arg("-c").arg(&file).env("TOLLGATE_HANDOVER", "1");
    let output = command.stdin(std::process::Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(69));
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(log.contains("cannot take over the listening sockets"), "{log}");
}
