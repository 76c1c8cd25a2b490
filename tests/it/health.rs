//! `tollgate health`.

use std::time::Duration;

use crate::support::{
    ClosedPort, DEMO, Gateway, Outcome, Upstream, eventually, timed_below, tollgate,
};

/// Asks a gateway by the URL of its admin port.
fn health_at(address: std::net::SocketAddr, more: &[&str]) -> Outcome {
    let url = format!("http://{address}");
    tollgate(&[&["health", "--admin", &url], more].concat(), "")
}

/// Asks by a file with this content.
fn health_by(content: &str) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    std::fs::write(&file, content).unwrap();
    tollgate(&["health", file.to_str().unwrap()], "")
}

#[test]
fn gateway_is_healthy_until_it_drains() {
    let gateway = Gateway::start(&format!("drain_delay = \"5s\"\n{DEMO}"));
    let url = format!("http://{}", gateway.admin);
    let Outcome { code, stdout, stderr } = health_at(gateway.admin, &[]);
    let expected = format!("healthy: {url}/ready answers \"ready\"\n");
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(0), expected.as_str(), ""));

    gateway.terminate();
    eventually("the drain", || (gateway.admin("/ready").status == 503).then_some(()));
    let Outcome { code, stdout, stderr } = health_at(gateway.admin, &[]);
    let expected = format!("unhealthy: {url}/ready answers 503: the gateway is draining\n");
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(1), "", expected.as_str()));
    let alive = health_at(gateway.admin, &["--live"]);
    let expected = format!("healthy: {url}/live answers \"alive\"\n");
    assert_eq!((alive.code, alive.stdout), (Some(0), expected));
}

#[test]
fn address_is_that_of_the_file_whatever_else_is_wrong_in_it() {
    let gateway = Gateway::start(DEMO);
    let (ip, port) = (gateway.admin.ip(), gateway.admin.port());
    assert_eq!(ip.to_string(), "127.0.0.1");
    let server = format!("[server]\nadmin = \"127.0.0.1:{port}\"\n");
    let wildcard = format!("[server]\nadmin = \"0.0.0.0:{port}\"\n");
    let files = [
        format!("{server}{DEMO}"),
        // All addresses, and a token that is not set here: health needs none.
        format!("{wildcard}[admin]\ntoken = \"${{TOLLGATE_NOT_SET}}\"\n{DEMO}"),
        format!("{server}[redis]\nurl = \"redis://:${{NOT_SET}}@127.0.0.1\"\n"),
        // The running gateway is not affected by a file that it rejects.
        format!("{server}[rules.all]\nrate = \"ten/s\"\nunknown = 1\n"),
        format!("{server}[upstreams\nservers = ["),
    ];
    for file in files {
        let outcome = health_by(&file);
        assert_eq!(outcome.code, Some(0), "{outcome:?}\n{file}");
        assert!(outcome.stdout.contains(&format!("http://127.0.0.1:{port}/ready")), "{outcome:?}");
    }
}

#[test]
fn file_that_does_not_show_the_address_is_an_error() {
    let table = [
        ("[server]\nadmin = \":9090\"\n", "not an address"),
        ("[server]\nadmin = 9090\n", "admin"),
        ("[server\nadmin = \"127.0.0.1:1\"\n", "]"),
        ("[server]\nadmin = \"127.0.0.1:0\"\n", "has port 0"),
    ];
    for (file, message) in table {
        let outcome = health_by(file);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(64), ""), "{outcome:?}");
        assert!(outcome.stderr.contains(message), "{outcome:?}");
    }
    let arguments = [
        &["health", "/nonexistent/gateway.toml"][..],
        &["health", "--admin", "https://localhost"],
        &["health", "--timeout", "0s"],
        &["health", "--timeout", "2"],
    ];
    for arguments in arguments {
        let outcome = tollgate(arguments, "");
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(64), ""), "{outcome:?}");
    }
}

#[test]
fn gateway_that_does_not_answer_is_unhealthy() {
    let closed = ClosedPort::bind();
    let refused = health_at(closed.address, &[]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("is not reachable: Connection refused"), "{refused:?}");
    let by_file = health_by(&format!("[server]\nadmin = \"{}\"\n{DEMO}", closed.address));
    assert_eq!((by_file.code, by_file.stderr), (Some(1), refused.stderr));

    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let ask = || health_at(silent.local_addr().unwrap(), &["--timeout", "200ms"]);
    let late = timed_below(Duration::from_secs(5), ask);
    assert_eq!(late.code, Some(1), "{late:?}");
    assert!(late.stderr.contains("does not answer within 200ms"), "{late:?}");

    let other = Upstream::responding("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let outcome = health_at(other.address, &[]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("not as the admin port of tollgate"), "{outcome:?}");
}

#[test]
fn gateway_without_the_redis_that_it_needs_is_unhealthy_but_alive() {
    let closed = ClosedPort::bind();
    let redis = format!("[redis]\nurl = \"redis://{}\"\nready = \"connected\"\n", closed.address);
    let gateway = Gateway::start(&format!("{redis}{DEMO}"));
    let outcome = health_at(gateway.admin, &[]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(
        outcome.stderr.ends_with("503: the gateway has no connection to Redis\n"),
        "{outcome:?}"
    );
    assert_eq!(health_at(gateway.admin, &["--live"]).code, Some(0));
}
