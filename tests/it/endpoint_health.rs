//! Which endpoints of an upstream get requests: health checks, ejection, and orders of operators.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::support::{
    Authority, CpuWaits, Gateway, PeerServer, Request, Response, Upstream, eventually, free_port,
    full_config, inconclusive_if_stalled, send_many, sleep_for, tollgate,
};
use crate::upgrade::{serving_process, upgraded};

/// What a server answers.
#[derive(Clone, Copy, Debug, Default)]
enum Answers {
    #[default]
    Ok,
    /// Every request gets 500.
    Failing,
    /// No request gets a response.
    Hung,
    /// Checks get 503, and requests 200.
    Unhealthy,
}

/// What a server answers, which the test changes.
#[derive(Clone, Default)]
struct Control(Arc<Mutex<Answers>>);

impl Control {
    fn set(&self, answers: Answers) {
        *self.0.lock() = answers;
    }
}

/// A server whose answers the test changes; checks are requests for `/healthz`.
fn server() -> (Upstream, Control) {
    let control = Control::default();
    let own = control.clone();
    let upstream = Upstream::start(move |request, stream| {
        let is_check = request.line().starts_with("GET /healthz ");
        let answers = *own.0.lock();
        let status = match answers {
            Answers::Hung => {
                sleep_for(Duration::from_secs(20));
                return false;
            }
            Answers::Failing => "500 No",
            Answers::Unhealthy if is_check => "503 No",
            Answers::Unhealthy | Answers::Ok => "200 OK",
        };
        let response = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok");
        stream.write_all(response.as_bytes()).is_ok()
    });
    (upstream, control)
}

/// The number of requests that are no checks.
fn served(upstream: &Upstream) -> usize {
    let is_check = |line: &str| line.starts_with("GET /healthz ");
    upstream.requests().iter().filter(|request| !is_check(request.line())).count()
}

/// A configuration with these servers; `more` continues the table of the upstream.
fn config(servers: &[&Upstream], more: &str) -> String {
    let servers: Vec<String> = servers.iter().map(|server| server.address.to_string()).collect();
    format!("\n[upstreams.api]\nservers = {servers:?}\n{more}\n[routes.all]\n")
}

/// The endpoint of a server, as the admin API shows it.
fn endpoint(gateway: &Gateway, server: &Upstream) -> Value {
    let own = server.address.to_string();
    gateway.endpoints().into_iter().find(|one| one["address"] == *own).unwrap()
}

fn wait_for_state(gateway: &Gateway, server: &Upstream, state: &str) -> Value {
    eventually(&format!("{} to be {state}", server.address), || {
        let shown = endpoint(gateway, server);
        (shown["state"] == state).then_some(shown)
    })
}

fn order(gateway: &Gateway, upstream: &str, server: &str, order: &str) -> Response {
    let path = format!("/api/upstreams/{upstream}/{server}/{order}");
    gateway.send_admin(&Request::new("POST", &path))
}

#[test]
fn server_that_answers_500_is_ejected_and_returns_after_its_time() {
    let ((a, control), (b, _)) = (server(), server());
    let gateway =
        Gateway::start(&config(&[&a, &b], "eject = { consecutive_failures = 3, for = \"4s\" }"));
    control.set(Answers::Failing);
    // It would get six of them. Few, so that a busy machine sends them before it returns.
    let failed = (0..12).filter(|_| gateway.get("/").status == 500).count();
    assert_eq!(failed, 3);
    let shown = endpoint(&gateway, &a);
    assert_eq!((&shown["health"], &shown["state"]), (&json!("down"), &json!("ejected")));
    assert_eq!(shown["reason"], "consecutive failures");
    assert!((1..=4_000).contains(&shown["retry_after_ms"].as_u64().unwrap()), "{shown}");
    assert!(shown["since"].as_str().is_some(), "{shown}");
    let reason = [("upstream", "api"), ("reason", "consecutive_failures")];
    assert_eq!(gateway.count("tollgate_upstream_ejections_total", &reason), 1);
    let own = a.address.to_string();
    let state = |state| [("upstream", "api"), ("server", &*own), ("state", state)];
    assert_eq!(gateway.count("tollgate_upstream_endpoint_state", &state("ejected")), 1);
    assert_eq!(gateway.count("tollgate_upstream_endpoint_state", &state("up")), 0);
    assert!(gateway.log().contains("endpoint gets no requests"), "{}", gateway.log());
    control.set(Answers::Ok);
    wait_for_state(&gateway, &a, "up");
    let before = served(&a);
    assert_eq!(send_many(40, |client, _| client.get(gateway.url("/"))).get(&200), Some(&40));
    assert!(served(&a) >= before + 15, "{} then {}", before, served(&a));
}

#[test]
fn hung_server_costs_as_many_timeouts_as_the_file_says() {
    let ((a, control), (b, _)) = (server(), server());
    let more = "read_timeout = \"3s\"\n\
                eject = { consecutive_failures = 2, on = [\"timeout\"], for = \"1m\" }";
    let gateway = Gateway::start(&config(&[&a, &b], more));
    control.set(Answers::Hung);
    let statuses: Vec<u16> = (0..12).map(|_| gateway.get("/").status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 504).count(), 2, "{statuses:?}");
    assert_eq!(endpoint(&gateway, &a)["state"], "ejected");
}

/// The head of a response is no success before its body has come.
#[test]
fn server_that_breaks_off_its_responses_is_ejected() {
    let broken = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok";
    for eject in ["consecutive_failures = 3", "consecutive_failures = 0, error_rate = \"80%\""] {
        let a = Upstream::start(move |_, stream| {
            let _ = stream.write_all(broken.as_bytes());
            false
        });
        let (b, _) = server();
        let more = format!("eject = {{ {eject}, on = [\"reset\"], for = \"1m\" }}");
        let gateway = Gateway::start(&config(&[&a, &b], &more));
        for _ in 0..60 {
            let mut client = gateway.connect();
            client.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            client.read_bytes(1_000);
        }
        assert_eq!(endpoint(&gateway, &a)["state"], "ejected", "{eject}");
        assert_eq!(served(&a), if eject.contains("rate") { 20 } else { 3 }, "{eject}");
    }
}

#[test]
fn error_rate_above_that_of_the_others_ejects_a_server() {
    let ((a, control), (b, _), (c, _)) = (server(), server(), server());
    let more = "eject = { consecutive_failures = 0, error_rate = \"50%\", for = \"1m\" }";
    let gateway = Gateway::start(&config(&[&a, &b, &c], more));
    control.set(Answers::Failing);
    let failed = (0..120).filter(|_| gateway.get("/").status == 500).count();
    // Twenty of its requests are needed.
    assert_eq!(failed, 20);
    assert_eq!(endpoint(&gateway, &a)["reason"], "error rate");
}

#[test]
fn half_of_the_servers_stay_although_all_fail() {
    let servers: Vec<(Upstream, Control)> = (0..4).map(|_| server()).collect();
    let all: Vec<&Upstream> = servers.iter().map(|(server, _)| server).collect();
    let gateway = Gateway::start(&config(&all, "eject = { consecutive_failures = 1 }"));
    for (_, control) in &servers {
        control.set(Answers::Failing);
    }
    for _ in 0..30 {
        assert_eq!(gateway.get("/").status, 500);
    }
    let ejected = || {
        let states = gateway.endpoints().into_iter();
        states.filter(|shown| shown["state"] == "ejected").map(|shown| shown["address"].clone())
    };
    let before: Vec<Value> = ejected().collect();
    assert_eq!(before.len(), 2, "{before:?}");
    // A reload keeps them ejected.
    let more = "balance = \"least_request\"\neject = { consecutive_failures = 1 }";
    gateway.apply(&config(&all, more));
    assert_eq!(ejected().collect::<Vec<_>>(), before);
    // The last one never is.
    let alone = Gateway::start(&config(&all[..1], "eject = { consecutive_failures = 1 }"));
    for _ in 0..5 {
        assert_eq!(alone.get("/").status, 500);
    }
    assert_eq!(endpoint(&alone, all[0])["state"], "up");
}

/// Checks with time enough for a server that waits for a CPU.
const CHECKED: &str =
    "health = { path = \"/healthz\", interval = \"3s\", timeout = \"3s\", rise = 2, fall = 3 }";

#[test]
fn server_whose_checks_fail_gets_no_requests_until_they_succeed() {
    let ((a, control), (b, _)) = (server(), server());
    let gateway = Gateway::start(&config(&[&a, &b], CHECKED));
    assert_eq!(endpoint(&gateway, &a)["state"], "up");
    for (answers, reason) in
        [(Answers::Unhealthy, "check: status 503"), (Answers::Hung, "check: timeout")]
    {
        if matches!(answers, Answers::Hung) {
            gateway.apply(&config(&[&a, &b], &CHECKED.replace("3s", "250ms")));
            for server in [&a, &b] {
                wait_for_state(&gateway, server, "up");
            }
        }
        control.set(answers);
        let shown = wait_for_state(&gateway, &a, "unhealthy");
        assert_eq!(shown["reason"], reason, "{shown}");
        assert_eq!(shown["retry_after_ms"], 0);
        let before = served(&a);
        let counts = send_many(40, |client, _| client.get(gateway.url("/")));
        assert_eq!((counts.get(&200), served(&a)), (Some(&40), before));
        control.set(Answers::Ok);
        wait_for_state(&gateway, &a, "up");
        send_many(20, |client, _| client.get(gateway.url("/")));
        assert!(served(&a) > before);
    }
    let counted = |result| {
        gateway.count("tollgate_upstream_checks_total", &[("upstream", "api"), ("result", result)])
    };
    assert!(counted("ok") >= 4 && counted("status") >= 3 && counted("timeout") >= 3);
    let checks = a.requests().into_iter().find(|request| request.line().contains("/healthz"));
    let check = checks.unwrap();
    assert_eq!(check.header("host"), Some(&*a.address.to_string()));
    assert!(check.header("user-agent").unwrap().starts_with("tollgate/"), "{}", check.head);
}

#[test]
fn server_is_checked_before_its_first_request() {
    let ((a, control), (b, _), (c, late)) = (server(), server(), server());
    control.set(Answers::Unhealthy);
    late.set(Answers::Hung);
    let gateway = Gateway::start(&config(&[&a, &b], CHECKED));
    assert_eq!(endpoint(&gateway, &a)["state"], "unhealthy");
    for _ in 0..10 {
        assert_eq!(gateway.get("/").status, 200);
    }
    // The same with a reload. The file waits for the check of the new server.
    gateway.apply(&config(&[&a, &b, &c], CHECKED));
    assert_eq!(endpoint(&gateway, &c)["reason"], "check: timeout");
    for _ in 0..10 {
        assert_eq!(gateway.get("/").status, 200);
    }
    assert_eq!((served(&a), served(&b), served(&c)), (0, 20, 0));
    // Without checks, all get requests again.
    gateway.apply(&config(&[&a, &b], ""));
    assert_eq!(endpoint(&gateway, &a)["state"], "up");
}

#[test]
fn all_servers_are_tried_if_none_is_healthy() {
    let ((a, control), (b, other)) = (server(), server());
    control.set(Answers::Unhealthy);
    other.set(Answers::Unhealthy);
    let gateway = Gateway::start(&config(&[&a, &b], CHECKED));
    for _ in 0..10 {
        assert_eq!(gateway.get("/").status, 200);
    }
    assert_eq!((served(&a), served(&b)), (5, 5));
}

#[test]
fn check_begins_with_a_proxy_header_without_a_client_and_uses_its_own_host_and_port() {
    let ((a, _), (b, _)) = (server(), server());
    let more = format!(
        "proxy_protocol = \"v1\"\nhealth = {{ path = \"/healthz?x=1\", host = \"api.test\", port = {} }}",
        b.address.port()
    );
    let _gateway = Gateway::start(&config(&[&a], &more));
    let check = eventually("a check", || b.requests().first().cloned());
    let lines: Vec<&str> = check.head.lines().take(2).collect();
    assert_eq!(lines, ["PROXY UNKNOWN", "GET /healthz?x=1 HTTP/1.1"]);
    assert_eq!(check.header("host"), Some("api.test"));
    assert_eq!(a.requests().len(), 0);
}

#[test]
fn connection_is_a_check_of_its_own() {
    let (a, _) = server();
    let port = free_port();
    let more = "health = { kind = \"tcp\" }";
    let file =
        config(&[&a], more).replace("servers = [", &format!("servers = [\"127.0.0.1:{port}\", "));
    let gateway = Gateway::start(&file);
    let shown = &gateway.endpoints()[0];
    assert_eq!(shown["reason"], "check: connection refused", "{shown}");
    assert_eq!(a.requests().len(), 0);
    for _ in 0..6 {
        assert_eq!(gateway.get("/").status, 200);
    }
}

#[test]
fn check_uses_the_tls_settings_and_the_version_of_http_of_requests() {
    let authority = Authority::new();
    let server = PeerServer::node(Some(&authority.issue("api", &["api.test"])));
    let shown = |protocol: &str, ca: &str| {
        let gateway = Gateway::start(&format!(
            "\n[upstreams.api]\nservers = [\"https://{}\"]\nprotocol = {protocol:?}\n\
             tls = {{ ca = {ca:?}, server_name = \"api.test\" }}\nhealth = {{ path = \"/healthz\" }}\n\
             [routes.all]\n",
            server.address
        ));
        gateway.endpoints().swap_remove(0)
    };
    for (protocol, is_http2) in [("h2", 1), ("auto", 1), ("http1", 0)] {
        let sessions = server.count("session");
        let shown = shown(protocol, &authority.ca());
        assert_eq!(shown["state"], "up", "{protocol} {shown}");
        eventually(protocol, || (server.count("session") == sessions + is_http2).then_some(()));
    }
    let other = Authority::new();
    let reason = shown("auto", &other.ca())["reason"].clone();
    let expected = "check: certificate of api.test: not signed by the authority of this name";
    assert_eq!(reason, expected);
}

#[test]
fn standard_health_service_of_grpc_is_asked() {
    let server = PeerServer::grpc(None);
    let check = |service: &str| {
        format!(
            "\n[upstreams.api]\nprotocol = \"h2c\"\nservers = [\"{}\"]\n\
             health = {{ kind = \"grpc\", interval = \"1s\", service = \"{service}\" }}\n[routes.all]\n",
            server.address
        )
    };
    let gateway = Gateway::start(&check("test.Echo"));
    let shown = || gateway.endpoints().swap_remove(0);
    let wait_for =
        |state: &str| eventually(state, || Some(shown()).filter(|shown| shown["state"] == state));
    assert_eq!(shown()["state"], "up");
    server.signal(Signal::SIGUSR1);
    assert_eq!(wait_for("unhealthy")["reason"], "check: not serving");
    server.signal(Signal::SIGUSR2);
    wait_for("up");
    for service in ["", "no.Such"] {
        let gateway = Gateway::start(&check(service));
        let shown = &gateway.endpoints()[0];
        let expected = if service.is_empty() { "" } else { "check: unknown service" };
        assert_eq!(shown["reason"], expected, "{shown}");
    }
}

#[test]
fn drained_server_keeps_only_clients_with_its_cookie() {
    let ((a, _), (b, _)) = (server(), server());
    let gateway = Gateway::start(&config(&[&a, &b], "sticky = { cookie = \"srv\" }"));
    let own = a.address.to_string();
    let cookie = eventually("the cookie of a server", || {
        let before = served(&a);
        let answer = gateway.get("/");
        let cookie = answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        (served(&a) > before).then_some(cookie)
    });
    let answer = order(&gateway, "api", &own, "drain");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let shown = endpoint(&gateway, &a);
    assert_eq!((&shown["state"], &shown["reason"]), (&json!("drained"), &json!("operator")));
    let before = served(&a);
    for _ in 0..10 {
        assert_eq!(gateway.get("/").status, 200);
    }
    assert_eq!(served(&a), before);
    let with_cookie = Request::get("/").header("Cookie", &cookie);
    assert_eq!(gateway.send(&with_cookie).status, 200);
    assert_eq!(served(&a), before + 1);
    assert_eq!(order(&gateway, "api", &own, "disable").status, 200);
    assert_eq!(gateway.send(&with_cookie).status, 200);
    assert_eq!(served(&a), before + 1);
    assert!(gateway.log().contains(&format!("api {own} disabled")), "{}", gateway.log());
    assert_eq!(order(&gateway, "api", &own, "enable").status, 200);
    assert_eq!(endpoint(&gateway, &a)["state"], "up");
}

#[test]
fn order_outlives_reloads_and_upgrades() {
    let ((a, _), (b, _)) = (server(), server());
    let gateway = Gateway::start(&config(&[&a, &b], ""));
    let own = a.address.to_string();
    assert_eq!(order(&gateway, "api", &own, "disable").status, 200);
    gateway.apply(&config(&[&a, &b], "balance = \"least_request\""));
    assert_eq!(endpoint(&gateway, &a)["state"], "disabled");
    upgraded(&gateway);
    assert_eq!(endpoint(&gateway, &a)["state"], "disabled");
    for _ in 0..6 {
        assert_eq!(gateway.get("/").status, 200);
    }
    assert_eq!(served(&a), 0);
}

/// The new process has the orders that were given before its first checks, for which it waits.
#[test]
fn order_that_the_new_process_would_lack_ends_the_upgrade() {
    let ((a, control), (b, _)) = (server(), server());
    let checked = "health = { path = \"/healthz\", interval = \"60s\", timeout = \"5s\" }";
    let gateway = Gateway::start(&config(&[&a, &b], checked));
    let (process, before) = (serving_process(&gateway), a.requests().len());
    control.set(Answers::Hung);
    let waits = CpuWaits::now();
    let upgrade = || gateway.send_admin(&Request::new("POST", "/api/upgrade"));
    let answer = std::thread::scope(|scope| {
        let running = scope.spawn(upgrade);
        let is_checked = || (a.requests().len() > before).then_some(());
        eventually("the first check of the new process", is_checked);
        assert_eq!(order(&gateway, "api", &a.address.to_string(), "drain").status, 200);
        running.join().unwrap()
    });
    if answer.status == 200 {
        let least = Duration::from_secs(1);
        inconclusive_if_stalled("the order was too late", waits.stall(), least);
    } else {
        assert_eq!(answer.status, 409, "{answer:?}");
        assert!(answer.text().contains("upgrade again"), "{}", answer.text());
        assert_eq!(serving_process(&gateway).to_bits(), process.to_bits());
        assert_eq!(endpoint(&gateway, &a)["state"], "drained");
        control.set(Answers::Ok);
        upgraded(&gateway);
    }
    assert_ne!(serving_process(&gateway).to_bits(), process.to_bits());
    assert_eq!(endpoint(&gateway, &a)["state"], "drained");
}

#[test]
fn upstream_without_an_enabled_server_answers_502() {
    let (a, _) = server();
    let gateway = Gateway::start(&config(&[&a], ""));
    assert_eq!(order(&gateway, "api", &a.address.to_string(), "disable").status, 200);
    let answer = gateway.get("/");
    assert_eq!(answer.status, 502, "{answer:?}");
    assert_eq!(served(&a), 0);
    for (upstream, server) in [("none", "127.0.0.1:1"), ("api", "127.0.0.1:1"), ("api", "nowhere")]
    {
        assert_eq!(order(&gateway, upstream, server, "drain").status, 404, "{upstream} {server}");
    }
}

#[test]
fn endpoints_are_drained_and_listed_by_the_command_line() {
    let ((a, _), (b, _)) = (server(), server());
    let gateway = Gateway::start_full(&full_config(&config(&[&a, &b], "")));
    let admin = format!("http://{}", gateway.admin);
    let own = a.address.to_string();
    let run = |arguments: &[&str]| {
        let all = [&["upstreams"], arguments, &["--admin", &admin]].concat();
        tollgate(&all, "")
    };
    let drained = run(&["drain", "api", &own]);
    assert_eq!(drained.code, Some(0), "{drained:?}");
    assert!(drained.stdout.contains("drained: operator"), "{}", drained.stdout);
    let listed = run(&["list"]);
    assert_eq!((listed.code, listed.stdout.lines().count()), (Some(0), 3), "{listed:?}");
    let json: Value = serde_json::from_str(&run(&["list", "--json"]).stdout).unwrap();
    assert_eq!(json["upstreams"][0]["addresses"][0]["state"], "drained");
    let unknown = run(&["enable", "api", "127.0.0.1:1"]);
    assert_eq!(unknown.code, Some(64), "{unknown:?}");
    assert!(unknown.stderr.contains(&own), "{unknown:?}");
    let enabled = run(&["enable", "api", &own]);
    assert!(enabled.code == Some(0) && !enabled.stdout.contains("drained"), "{enabled:?}");
}
