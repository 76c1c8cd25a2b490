//! Which endpoints of an upstream get requests: health checks, ejection, and orders of operators.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    Gateway, PeerServer, Request, Response, Upstream, eventually, free_port, full_config,
    send_many, sleep_for, tollgate,
};

/// What a server answers, which the test changes.
#[derive(Clone, Default)]
struct Mood(Arc<AtomicUsize>);

const WELL: usize = 0;
/// Every request gets 500.
const FAILING: usize = 1;
/// No request gets a response.
const HUNG: usize = 2;
/// Checks get 503, and requests 200.
const UNHEALTHY: usize = 3;

impl Mood {
    fn set(&self, mood: usize) {
        self.0.store(mood, Ordering::SeqCst);
    }
}

/// A server that answers by its mood; checks are requests for `/healthz`.
fn server() -> (Upstream, Mood) {
    let mood = Mood::default();
    let own = mood.clone();
    let upstream = Upstream::start(move |request, stream| {
        let is_check = request.line().starts_with("GET /healthz ");
        let status = match own.0.load(Ordering::SeqCst) {
            HUNG => {
                sleep_for(Duration::from_secs(20));
                return false;
            }
            FAILING => "500 No",
            UNHEALTHY if is_check => "503 No",
            _ => "200 OK",
        };
        let response = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok");
        stream.write_all(response.as_bytes()).is_ok()
    });
    (upstream, mood)
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
    let all: Value = serde_json::from_str(&gateway.admin("/api/upstreams").text()).unwrap();
    let own = server.address.to_string();
    let endpoints = all["upstreams"][0]["addresses"].as_array().unwrap().clone();
    endpoints.into_iter().find(|one| one["address"] == *own).unwrap()
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
    let ((a, mood), (b, _)) = (server(), server());
    let gateway =
        Gateway::start(&config(&[&a, &b], "eject = { consecutive_failures = 3, for = \"2s\" }"));
    mood.set(FAILING);
    let failed = (0..40).filter(|_| gateway.get("/").status == 500).count();
    assert_eq!(failed, 3);
    let shown = endpoint(&gateway, &a);
    assert_eq!((&shown["health"], &shown["state"]), (&json!("down"), &json!("ejected")));
    assert_eq!(shown["reason"], "consecutive failures");
    assert!((1..=2_000).contains(&shown["retry_after_ms"].as_u64().unwrap()), "{shown}");
    assert!(shown["since"].as_str().is_some(), "{shown}");
    let reason = [("upstream", "api"), ("reason", "consecutive_failures")];
    assert_eq!(gateway.count("tollgate_upstream_ejections_total", &reason), 1);
    let own = a.address.to_string();
    let state = |state| [("upstream", "api"), ("server", &*own), ("state", state)];
    assert_eq!(gateway.count("tollgate_upstream_endpoint_state", &state("ejected")), 1);
    assert_eq!(gateway.count("tollgate_upstream_endpoint_state", &state("up")), 0);
    assert!(gateway.log().contains("endpoint gets no requests"), "{}", gateway.log());
    mood.set(WELL);
    wait_for_state(&gateway, &a, "up");
    let before = served(&a);
    assert_eq!(send_many(40, |client, _| client.get(gateway.url("/"))).get(&200), Some(&40));
    assert!(served(&a) >= before + 15, "{} then {}", before, served(&a));
}

#[test]
fn hung_server_costs_as_many_timeouts_as_the_file_says() {
    let ((a, mood), (b, _)) = (server(), server());
    let more = "read_timeout = \"300ms\"\n\
                eject = { consecutive_failures = 2, on = [\"timeout\"], for = \"1m\" }";
    let gateway = Gateway::start(&config(&[&a, &b], more));
    mood.set(HUNG);
    let statuses: Vec<u16> = (0..12).map(|_| gateway.get("/").status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 504).count(), 2, "{statuses:?}");
    assert_eq!(endpoint(&gateway, &a)["state"], "ejected");
}

#[test]
fn error_rate_above_that_of_the_others_ejects_a_server() {
    let ((a, mood), (b, _), (c, _)) = (server(), server(), server());
    let more = "eject = { consecutive_failures = 0, error_rate = \"50%\", for = \"1m\" }";
    let gateway = Gateway::start(&config(&[&a, &b, &c], more));
    mood.set(FAILING);
    let failed = (0..120).filter(|_| gateway.get("/").status == 500).count();
    // Twenty of its requests are needed.
    assert_eq!(failed, 20);
    assert_eq!(endpoint(&gateway, &a)["reason"], "error rate");
}

#[test]
fn half_of_the_servers_stay_although_all_fail() {
    let servers: Vec<(Upstream, Mood)> = (0..4).map(|_| server()).collect();
    let all: Vec<&Upstream> = servers.iter().map(|(server, _)| server).collect();
    let gateway = Gateway::start(&config(&all, "eject = { consecutive_failures = 1 }"));
    for (_, mood) in &servers {
        mood.set(FAILING);
    }
    for _ in 0..30 {
        assert_eq!(gateway.get("/").status, 500);
    }
    let states: Vec<Value> = all.iter().map(|server| endpoint(&gateway, server)).collect();
    let ejected = states.iter().filter(|shown| shown["state"] == "ejected").count();
    assert_eq!(ejected, 2, "{states:?}");
    // A file that changes the weights keeps them ejected.
    let alone = Gateway::start(&config(&all[..1], "eject = { consecutive_failures = 1 }"));
    for _ in 0..5 {
        assert_eq!(alone.get("/").status, 500);
    }
    assert_eq!(endpoint(&alone, all[0])["state"], "up");
}

const CHECKED: &str = "health = { path = \"/healthz\", interval = \"250ms\", timeout = \"250ms\", rise = 2, fall = 3 }";

#[test]
fn server_whose_checks_fail_gets_no_requests_until_they_succeed() {
    let ((a, mood), (b, _)) = (server(), server());
    let gateway = Gateway::start(&config(&[&a, &b], CHECKED));
    assert_eq!(endpoint(&gateway, &a)["state"], "up");
    for (unwell, reason) in [(UNHEALTHY, "check: status 503"), (HUNG, "check: timeout")] {
        mood.set(unwell);
        let shown = wait_for_state(&gateway, &a, "unhealthy");
        assert_eq!(shown["reason"], reason, "{shown}");
        assert_eq!(shown["retry_after_ms"], 0);
        let before = served(&a);
        let counts = send_many(40, |client, _| client.get(gateway.url("/")));
        assert_eq!((counts.get(&200), served(&a)), (Some(&40), before));
        mood.set(WELL);
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
    let ((a, mood), (b, _), (c, late)) = (server(), server(), server());
    mood.set(UNHEALTHY);
    late.set(HUNG);
    let checked = CHECKED.replace("250ms", "400ms");
    let gateway = Gateway::start(&config(&[&a, &b], &checked));
    assert_eq!(endpoint(&gateway, &a)["state"], "unhealthy");
    for _ in 0..10 {
        assert_eq!(gateway.get("/").status, 200);
    }
    // The same with a reload. The file waits for the check of the new server.
    gateway.apply(&config(&[&a, &b, &c], &checked));
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
    let ((a, mood), (b, other)) = (server(), server());
    mood.set(UNHEALTHY);
    other.set(UNHEALTHY);
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
    let all: Value = serde_json::from_str(&gateway.admin("/api/upstreams").text()).unwrap();
    let shown = &all["upstreams"][0]["addresses"][0];
    assert_eq!(shown["reason"], "check: connection refused", "{shown}");
    assert_eq!(a.requests().len(), 0);
    for _ in 0..6 {
        assert_eq!(gateway.get("/").status, 200);
    }
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
    let shown = || {
        let all: Value = serde_json::from_str(&gateway.admin("/api/upstreams").text()).unwrap();
        all["upstreams"][0]["addresses"][0].clone()
    };
    let wait_for =
        |state: &str| eventually(state, || Some(shown()).filter(|shown| shown["state"] == state));
    assert_eq!(shown()["state"], "up");
    server.signal(Signal::SIGUSR1);
    assert_eq!(wait_for("unhealthy")["reason"], "check: not serving");
    server.signal(Signal::SIGUSR2);
    wait_for("up");
    for service in ["", "no.Such"] {
        let gateway = Gateway::start(&check(service));
        let all: Value = serde_json::from_str(&gateway.admin("/api/upstreams").text()).unwrap();
        let shown = &all["upstreams"][0]["addresses"][0];
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
    let pid = gateway.pid();
    let answer = gateway.send_admin(&Request::new("POST", "/api/upgrade"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    eventually("the new process", || {
        let status: Value = serde_json::from_str(&gateway.admin("/api/status").text()).unwrap();
        (status["pid"] != pid).then_some(())
    });
    assert_eq!(endpoint(&gateway, &a)["state"], "disabled");
    for _ in 0..6 {
        assert_eq!(gateway.get("/").status, 200);
    }
    assert_eq!(served(&a), 0);
}

#[test]
fn upstream_without_an_enabled_server_answers_503() {
    let (a, _) = server();
    let gateway = Gateway::start(&config(&[&a], ""));
    assert_eq!(order(&gateway, "api", &a.address.to_string(), "disable").status, 200);
    let answer = gateway.get("/");
    assert!((502..=503).contains(&answer.status), "{answer:?}");
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
