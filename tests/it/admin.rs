//! Access control and error responses of the admin port.

use std::io::Write as _;

use crate::support::{
    DEMO, Gateway, Request, Response, Stopwatch, check, eventually, full_config, tollgate,
};

const TOKEN: &str = "t0ken-that-n0body-guesses";

fn with_token() -> Gateway {
    let config = full_config(&format!("{DEMO}[admin]\ntoken = \"${{ADMIN_TOKEN}}\"\n"));
    Gateway::start_with(&config, |command| {
        command.env("ADMIN_TOKEN", TOKEN);
    })
}

fn bearing(method: &str, path: &str, token: &str) -> Request {
    Request::new(method, path).header("Authorization", format!("Bearer {token}"))
}

#[track_caller]
fn assert_problem(answer: &Response, status: u16) {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{answer:?}");
    assert_eq!(answer.json()["status"], status, "{answer:?}");
}

#[test]
fn row_71_public_admin_port_requires_a_token() {
    for address in ["0.0.0.0:9090", "[::]:9090", "192.0.2.1:9090"] {
        let file = format!("[server]\nadmin = \"{address}\"\n{DEMO}");
        let outcome = check(file.as_bytes());
        assert_eq!(outcome.code, Some(64), "{outcome:?}");
        assert!(outcome.stderr.contains("without a token"), "{outcome:?}");
        let with = format!("{file}[admin]\ntoken = \"{TOKEN}\"\n");
        assert_eq!(check(with.as_bytes()).code, Some(0), "{address}");
    }
}

#[test]
fn row_71_admin_port_is_on_loopback_by_default() {
    let outcome = check(format!("[server]\nlisten = [\"0.0.0.0:1\"]\n{DEMO}").as_bytes());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let schema = tollgate(&["schema"], "").stdout;
    assert!(schema.contains("127.0.0.1:9090"), "{schema}");
    // The admin API does not respond on the ports for clients.
    let gateway = Gateway::start(&DEMO.replace("\"/*\"", "\"/x\""));
    for path in ["/api/explain", "/api/reload", "/metrics", "/live", "/ready"] {
        assert_eq!(gateway.get(path).status, 404, "{path}");
    }
}

#[test]
fn row_71_api_requires_the_token() {
    let gateway = with_token();
    let watch = Stopwatch::start();
    for path in ["/live", "/ready", "/metrics"] {
        assert_eq!(gateway.admin(path).status, 200, "{path}");
    }
    for path in ["/api/reload", "/api/explain", "/api/", "/api/nowhere"] {
        for wrong in ["", "x", "t0ken-that-n0body-guessed", &TOKEN.repeat(100)] {
            let answer = gateway.send_admin(&bearing("POST", path, wrong));
            assert_problem(&answer, 401);
            assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"tollgate\""));
        }
        assert_problem(&gateway.send_admin(&Request::new("POST", path)), 401);
    }
    let taken = gateway.send_admin(&bearing("POST", "/api/reload", TOKEN));
    assert_eq!(taken.status, 200, "{}", taken.text());
    assert_problem(&gateway.send_admin(&bearing("GET", "/api/nowhere", TOKEN)), 404);

    // The log is written after the response.
    let reload = "POST /api/reload: generation 1 stays";
    let log = eventually("the log line", || Some(gateway.log()).filter(|log| log.contains(reload)));
    assert!(log.contains("it has no token"), "{log}");
    assert!(log.contains("peer=\"127.0.0.1:"), "{log}");
    let wrong = log.matches("the admin port refused a request").count();
    let most = 3 + usize::try_from(watch.elapsed().as_secs()).unwrap();
    assert!((1..=most).contains(&wrong), "one line a second: {wrong}\n{log}");
    assert!(!log.contains(TOKEN) && !log.contains("guessed"), "{log}");
}

#[test]
fn row_40_token_in_a_malformed_request_is_not_logged() {
    let gateway = with_token();
    for broken in ["X: \0", "X", "Host: b\r\nContent-Length: x"] {
        let mut client = crate::support::Connection::open(gateway.admin);
        let head = format!("GET /api/status HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}");
        client.write(format!("{head}\r\n{broken}\r\n\r\n").as_bytes());
        let _ = client.try_read_response("GET");
    }
    assert_eq!(gateway.admin("/live").status, 200);
    assert!(!gateway.log().contains(TOKEN), "{}", gateway.log());
}

#[test]
fn reload_changes_the_admin_token() {
    let gateway = Gateway::start(DEMO);
    let status = |token: Option<&str>| {
        let request = Request::new("POST", "/api/reload");
        let request = match token {
            Some(token) => request.header("Authorization", format!("Bearer {token}")),
            None => request,
        };
        gateway.send_admin(&request).status
    };
    gateway.apply(&format!("{DEMO}[admin]\ntoken = \"{TOKEN}\"\n"));
    assert_eq!((status(None), status(Some(TOKEN))), (401, 200));
    // On a busy machine the file watch may reload the file first; then reload again.
    let (mut held, mut number) = (TOKEN.to_owned(), 0);
    let old = eventually("a reload with the previous token", || {
        number += 1;
        let next = format!("another-t0ken-by-now-{number}");
        gateway.save(&format!("{DEMO}[admin]\ntoken = \"{next}\"\n"));
        let answered = status(Some(&held));
        let old = std::mem::replace(&mut held, next);
        (answered == 200).then_some(old)
    });
    assert_eq!((status(Some(&old)), status(Some(&held))), (401, 200));
    let log = gateway.log();
    assert!(log.contains("admin.token: the secret changed"), "{log}");
    assert!(!log.contains(TOKEN) && !log.contains("another-t0ken"), "{log}");
}

#[test]
fn row_71_cross_site_page_cannot_read_or_change_anything() {
    let gateway = Gateway::start(DEMO);
    let reload = || Request::new("POST", "/api/reload").without("Host");
    let here = gateway.admin.to_string();
    let from = |host: &str, name: &str, value: &str| {
        gateway.send_admin(&reload().header("Host", host).header(name, value))
    };
    assert_problem(&from(&here, "Origin", "https://evil.example"), 403);
    assert_problem(&from(&here, "Origin", "null"), 403);
    assert_problem(&from(&here, "Sec-Fetch-Site", "cross-site"), 403);
    assert_problem(&from("evil.example", "Accept", "*/*"), 403);
    assert_eq!(from(&here, "Origin", &format!("http://{here}")).status, 200);
    let rebound = Request::get("/api/explain").without("Host").header("Host", "evil.example");
    assert_problem(&gateway.send_admin(&rebound), 403);
    assert_eq!(
        gateway.send_admin(&Request::get("/live").without("Host").header("Host", "x")).status,
        200
    );
}

#[test]
fn cross_site_requests_to_the_api_are_403_for_every_method() {
    let gateway = Gateway::start(DEMO);
    let port = gateway.admin.port();
    let ask = |method: &str, path: &str, host: &str, site: &str| {
        let request = Request::new(method, path).without("Host").header("Host", host);
        gateway.send_admin(&request.header("Sec-Fetch-Site", site)).status
    };
    let own = gateway.admin.to_string();
    let alias = format!("a7.localhost:{port}");
    for path in ["/api/status", "/api/events", "/api/clients/ip/192.0.2.1/buckets?path=/a"] {
        for host in [&own, &alias] {
            for site in ["cross-site", "same-site"] {
                assert_eq!(ask("GET", path, host, site), 403, "GET {path} at {host}, {site}");
                assert_eq!(ask("HEAD", path, host, site), 403, "HEAD {path} at {host}, {site}");
            }
        }
    }
    for method in ["OPTIONS", "POST"] {
        assert_eq!(ask(method, "/api/reload", &own, "cross-site"), 403, "{method}");
    }
    for site in ["same-origin", "none"] {
        assert_eq!(ask("GET", "/api/status", &own, site), 200, "{site}");
        assert_eq!(ask("GET", "/api/status", &alias, site), 200, "{site}");
    }
    for path in ["/", "/live", "/metrics"] {
        assert_eq!(ask("GET", path, &own, "cross-site"), 200, "{path}");
    }
    // A script of another origin that reads events by CORS sends its origin.
    let foreign = Request::get("/api/events").header("Origin", "https://elsewhere.example");
    assert_problem(&gateway.send_admin(&foreign), 403);
}

#[test]
fn invalid_admin_requests_get_a_helpful_error() {
    let gateway = Gateway::start(DEMO);
    let answer = gateway.admin("/nowhere");
    assert_problem(&answer, 404);
    assert!(answer.text().contains("POST /api/explain"), "{}", answer.text());
    let answer = gateway.admin("/api/reload");
    assert_problem(&answer, 405);
    assert_eq!(answer.header("allow"), Some("POST"));
    let answer = gateway.send_admin(&Request::new("DELETE", "/metrics"));
    assert_problem(&answer, 405);
    assert_eq!(answer.header("allow"), Some("GET, HEAD"));

    let huge = Request::new("POST", "/api/explain").body("x".repeat(70_000));
    assert_problem(&gateway.send_admin(&huge), 413);
    for path in ["//", "/api/%zz", "/api/../live", "/api/explain?", "/%00", "/api/ä", "*"] {
        let answer = gateway.send_admin(&Request::get(path));
        assert!((400..500).contains(&answer.status), "{path}: {answer:?}");
    }
    let long = gateway.send_admin(&Request::get(&format!("/api/{}", "x".repeat(20_000))));
    assert!((400..500).contains(&long.status), "{long:?}");
    // Incomplete requests and silent connections do not block others.
    let mut half = std::net::TcpStream::connect(gateway.admin).unwrap();
    half.write_all(b"POST /api/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx")
        .unwrap();
    assert_eq!(gateway.admin("/live").status, 200);
}
