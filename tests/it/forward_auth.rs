//! A server that is asked about each request: nginx as such a server, and beside the gateway with
//! its `auth_request`; servers that are slow, broken or gone; and clients that forge its headers.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use crate::support::{
    ClosedPort, Connection, DEMO, Gateway, HTTP2_LISTENER, Nginx, Request, Upstream, curl,
    eventually, fetch, proxy_to, timed_below,
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// Answers with the status that the request wants, for the user that it names, with a realm.
fn auth_server() -> Nginx {
    let statuses = [204, 401, 403, 404, 418, 500]
        .map(|status| format!("if ($http_x_want = \"{status}\") {{ return {status}; }}\n"))
        .concat();
    Nginx::listening("", |_| {
        format!(
            "add_header WWW-Authenticate 'Test realm=\"r\"' always;\nadd_header X-User $http_x_name always;\n\
             add_header X-Plan $http_x_plan always;\nadd_header X-Secret hidden always;\n\
             location = /guarded {{ auth_request /auth; return 200; }}\n\
             location = /gif {{ auth_request /auth; empty_gif; }}\n\
             location /auth {{ {statuses} return 200; }}\nlocation /login {{ return 302 /login?next=1; }}"
        )
    })
}

fn table(address: SocketAddr, settings: &str) -> String {
    format!("[forward_auth]\nurl = \"http://{address}/auth\"\ntimeout = \"5s\"\n{settings}\n")
}

fn wanting(status: u16) -> Request {
    Request::get("/").header("X-Want", status.to_string())
}

fn checks(gateway: &Gateway, result: &str) -> u64 {
    gateway.count("tollgate_auth_checks_total", &[("method", "forward_auth"), ("result", result)])
}

fn statuses(gateway: &Gateway, request: &Request, count: usize) -> Vec<u16> {
    (0..count).map(|_| gateway.send(request).status).collect()
}

#[test]
fn verdicts_are_those_of_nginx() {
    let server = auth_server();
    let settings = "request_headers = [\"X-Want\"]";
    let gateway = Gateway::start(&format!("{DEMO}{}", table(server.address, settings)));
    for status in [200, 204, 401, 403, 404, 418, 500] {
        let own = gateway.send(&wanting(status)).status;
        let gif = Request::get("/gif").header("X-Want", status.to_string());
        let of_nginx = Connection::open(server.address).send(&gif).status;
        // nginx says 500 if the answer is neither yes nor no, and the gateway that it is away.
        assert_eq!(own, if of_nginx == 500 { 503 } else { of_nginx }, "{status}");
    }
    let refused = gateway.send(&wanting(401));
    assert_eq!(refused.header("www-authenticate"), Some("Test realm=\"r\""));
    assert_eq!(
        (refused.header("x-secret"), refused.header("content-type")),
        (None, Some("text/html"))
    );
    assert!(refused.text().contains("nginx"), "{}", refused.text());
    let unclear = gateway.send(&wanting(500));
    assert_eq!(unclear.header("retry-after"), Some("1"));
    let detail = "This request cannot be authorized at the moment; retry later.";
    assert_eq!(unclear.json()["detail"], detail);
}

#[test]
fn upstream_gets_headers_of_the_answer_and_none_of_the_client() {
    let upstream = Upstream::responding(OK);
    let auth = Upstream::responding(
        "HTTP/1.1 200 OK\r\nX-User: ann\r\nX-Role: a\r\nX-Role: b\r\nX-Other: no\r\nContent-Length: 2\r\n\r\nok",
    );
    let settings = "response_headers = [\"X-User\", \"X-Role\", \"X-Missing\"]";
    let free = "[routes.free]\npath = \"/free\"\nupstream = \"api\"\nforward_auth = false\n";
    let gateway = Gateway::start(&format!(
        "{}{free}{}",
        proxy_to(&[upstream.address]),
        table(auth.address, settings)
    ));
    let forged = |path: &str| {
        Request::new("POST", path)
            .header("X-User", "root")
            .header("x_user", "root")
            .header("X-Role", "admin")
            .header("X-Missing", "root")
            .header("X-Forwarded-Uri", "/other")
            .header("X-Forwarded-For", "192.0.2.1")
            .header("Authorization", "Bearer t")
            .body("body")
    };
    assert_eq!(gateway.send(&forged("/a%20b?c=d")).status, 200);
    assert_eq!(gateway.send(&forged("/free")).status, 200);
    let asked = auth.only_request();
    assert_eq!((asked.line(), asked.body.len()), ("GET /auth HTTP/1.1", 0));
    let sent = [
        ("X-Forwarded-Method", vec!["POST"]),
        ("X-Original-Method", vec!["POST"]),
        ("X-Forwarded-Uri", vec!["/a%20b?c=d"]),
        ("X-Original-URI", vec!["/a%20b?c=d"]),
        ("X-Forwarded-For", vec!["127.0.0.1"]),
        ("X-Forwarded-Proto", vec!["http"]),
        ("Authorization", vec!["Bearer t"]),
        ("X-User", vec![]),
        ("Content-Length", vec![]),
        ("Transfer-Encoding", vec![]),
    ];
    for (name, values) in sent {
        assert_eq!(asked.values(name), values, "{name}");
    }
    assert_eq!(asked.values("X-Request-Id").len(), 1);
    let [guarded, free] = &upstream.requests()[..] else { panic!() };
    assert_eq!(guarded.values("X-User"), ["ann"]);
    assert_eq!(guarded.values("X-Role"), ["a", "b"]);
    for (request, name) in [(guarded, "X-Missing"), (guarded, "x_user"), (guarded, "X-Other")] {
        assert_eq!(request.values(name), Vec::<&str>::new(), "{name}");
    }
    for name in ["X-User", "x_user", "X-Role", "X-Missing"] {
        assert_eq!(free.values(name), Vec::<&str>::new(), "{name}");
    }
    assert_eq!(guarded.body, b"body");
}

/// A client cannot have the gateway's header removed as one of its connection.
#[test]
fn headers_of_the_answer_cannot_be_taken_away() {
    let upstream = Upstream::responding(OK);
    let auth = Upstream::responding("HTTP/1.1 200 OK\r\nX-User: ann\r\nContent-Length: 0\r\n\r\n");
    let gateway = Gateway::start(&format!(
        "{}{}",
        proxy_to(&[upstream.address]),
        table(auth.address, "response_headers = [\"X-User\"]")
    ));
    let request = Request::get("/").header("Connection", "keep-alive, X-User");
    match gateway.send(&request).status {
        400 => assert!(upstream.requests().is_empty()),
        200 => assert_eq!(upstream.only_request().values("X-User"), ["ann"]),
        other => panic!("{other}"),
    }
}

#[test]
fn refused_requests_are_charged_to_their_address_and_then_not_asked_about() {
    let server = auth_server();
    let rules = "[rules.per-ip]\nper = [\"ip\"]\nrate = \"5/365d\"\n[rules.per-key]\nper = [\"key\"]\nrate = \"1/365d\"\n\
                 on_missing = \"skip\"\n";
    let settings = "request_headers = [\"X-Want\"]";
    let gateway = Gateway::start(&format!("{DEMO}{rules}{}", table(server.address, settings)));
    assert_eq!(statuses(&gateway, &wanting(200), 2), [200, 200]);
    assert_eq!(statuses(&gateway, &wanting(403), 5), [403, 403, 403, 429, 429]);
    assert_eq!(statuses(&gateway, &wanting(200), 1), [429]);
    assert_eq!((checks(&gateway, "allowed"), checks(&gateway, "refused")), (2, 3));
}

#[test]
fn server_is_not_asked_about_requests_that_are_refused_anyway() {
    let upstream = Upstream::responding(OK);
    let auth = Upstream::responding(OK);
    let config = "[clients]\non_missing_key = \"deny\"\n[keys.a]\nsha256 = \"KEY\"\nplan = \"free\"\n[routes.closed]\n\
                  path = \"/closed\"\nupstream = \"api\"\nmaintenance = true\n[routes.small]\npath = \"/small\"\n\
                  upstream = \"api\"\nmax_body_bytes = 1\n[routes.denied]\npath = \"/denied\"\nupstream = \"api\"\n\
                  deny_ips = [\"127.0.0.0/8\"]\n";
    let config = config.replace("KEY", &crate::support::digest("k"));
    let gateway = Gateway::start(&format!(
        "{}{config}{}",
        proxy_to(&[upstream.address]),
        table(auth.address, "")
    ));
    let with_key = |request: Request| request.header("X-Api-Key", "k");
    let refused = [
        (Request::get("/"), 401),
        (Request::get("/").header("X-Api-Key", "other"), 401),
        (with_key(Request::get("/closed")), 503),
        (with_key(Request::new("POST", "/small").body("body")), 413),
        (with_key(Request::get("/denied")), 403),
        (with_key(Request::get("/a/../b")), 400),
    ];
    for (request, status) in refused {
        assert_eq!(gateway.send(&request).status, status, "{request:?}");
    }
    assert_eq!(auth.requests().len(), 0);
    assert_eq!(gateway.send(&with_key(Request::get("/"))).status, 200);
    assert_eq!((auth.requests().len(), upstream.requests().len()), (1, 1));
    // A request that only looks like one of a browser before another is asked about, too.
    let preflight = Request::new("OPTIONS", "/")
        .header("Origin", "https://evil.test")
        .header("Access-Control-Request-Method", "GET");
    assert_eq!(gateway.send(&with_key(preflight)).status, 200);
    assert_eq!(auth.requests().len(), 2);
}

#[test]
fn row_217_server_that_is_gone_slow_or_broken_lets_nothing_pass() {
    let closed = ClosedPort::bind();
    let (hanging, _latch) = Upstream::holding();
    let garbage = Upstream::responding("SSH-2.0-OpenSSH_9.2\r\n\r\n");
    let cut = Upstream::start(|_, _| false);
    let dripping = Upstream::start(|_, stream| {
        let mut rest = b"HTTP/1.1 200 OK\r\nX-A: ".chunks(1).chain(std::iter::repeat(&b"a"[..]));
        rest.all(|byte| {
            crate::support::sleep_for(Duration::from_millis(20));
            stream.write_all(byte).is_ok()
        })
    });
    let huge =
        format!("HTTP/1.1 200 OK\r\nX-User: {}\r\nContent-Length: 0\r\n\r\n", "a".repeat(20_000));
    let huge = Upstream::responding(huge);
    let informational = Upstream::responding("HTTP/1.1 100 Continue\r\n\r\n");
    let upstream = Upstream::responding(OK);
    let servers = [
        closed.address,
        hanging.address,
        garbage.address,
        cut.address,
        dripping.address,
        huge.address,
        informational.address,
    ];
    for address in servers {
        let settings = "response_headers = [\"X-User\"]";
        let mut table = table(address, settings);
        // What is refused for its size must not be late.
        if address != huge.address {
            table = table.replace("5s", "300ms");
        }
        let gateway = Gateway::start(&format!("{}{table}", proxy_to(&[upstream.address])));
        let refused = timed_below(Duration::from_secs(5), || gateway.send(&Request::get("/")));
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{address}");
        let log = gateway.log();
        assert!(log.contains("no answer of the server of forward_auth"), "{log}");
        assert_eq!(checks(&gateway, "failed"), 1);
        gateway.apply(&format!("{}{table}on_failure = \"allow\"\n", proxy_to(&[upstream.address])));
        let forged = Request::get("/").header("X-User", "root");
        // The server may have made large headers of what the client sent.
        let expected = if address == huge.address { 503 } else { 200 };
        assert_eq!(gateway.send(&forged).status, expected, "{address}");
    }
    assert_eq!(upstream.requests().len(), servers.len() - 1);
    assert!(upstream.requests().iter().all(|request| request.values("X-User").is_empty()));
}

/// The server refuses what the client sent: that is no failure of the server.
#[test]
fn client_cannot_make_the_question_fail_to_pass_unasked() {
    let upstream = Upstream::responding(OK);
    let auth = auth_server();
    let table = table(auth.address, "on_failure = \"allow\"");
    let gateway = Gateway::start(&format!("{}{table}", proxy_to(&[upstream.address])));
    // nginx takes headers of at most 8 KiB by default.
    let large = Request::get("/").header("Cookie", format!("a={}", "x".repeat(9_000)));
    assert_eq!(gateway.send(&large).status, 503);
    for status in [400, 404, 413, 429, 431] {
        let refusing =
            Upstream::responding(format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n"));
        let table = self::table(refusing.address, "on_failure = \"allow\"");
        gateway.apply(&format!("{}{table}", proxy_to(&[upstream.address])));
        assert_eq!(gateway.get("/").status, 503, "{status}");
    }
    assert_eq!(upstream.requests().len(), 0);
}

/// What the gateway says of a request is said once, and by no client.
#[test]
fn request_headers_do_not_forge_what_the_gateway_says() {
    let upstream = Upstream::responding(OK);
    let auth = Upstream::responding("HTTP/1.1 200 OK\r\nX-Id: ann\r\nContent-Length: 0\r\n\r\n");
    let settings = "request_headers = [\"Cookie\", \"X-Original-URI\", \"X-Real-IP\"]\n\
        id_header = \"X-Id\"";
    let gateway = Gateway::start(&format!(
        "{}{}",
        proxy_to(&[upstream.address]),
        table(auth.address, settings)
    ));
    let forged = Request::get("/secret")
        .header("X-Original-URI", "/public")
        .header("X-Forwarded-For", "192.0.2.1")
        .header("X-Real-IP", "192.0.2.1")
        .header("X-Id", "root")
        .header("Cookie", "a=b");
    assert_eq!(gateway.send(&forged).status, 200);
    let asked = auth.only_request();
    assert_eq!(asked.values("X-Original-URI"), ["/secret"]);
    assert_eq!(asked.values("X-Forwarded-For"), ["127.0.0.1"]);
    assert_eq!(asked.values("X-Real-IP"), Vec::<&str>::new());
    assert_eq!(asked.values("Cookie"), ["a=b"]);
    assert_eq!(upstream.only_request().values("X-Id"), Vec::<&str>::new());
}

#[test]
fn number_of_questions_at_a_time_is_bounded() {
    let (auth, latch) = Upstream::holding();
    let settings = "max_in_flight = 2";
    let table = table(auth.address, settings);
    let gateway = Gateway::start(&format!("{DEMO}{table}"));
    let answers = std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..8).map(|_| scope.spawn(|| gateway.send(&Request::get("/")).status)).collect();
        let asked = || (auth.requests().len() >= 2).then_some(());
        eventually("the first questions", asked);
        let refused = || (checks(&gateway, "failed") >= 6).then_some(());
        eventually("the requests without a turn are refused", refused);
        assert!(auth.requests().len() <= 4, "{}", auth.requests().len());
        latch.open();
        clients.into_iter().map(|client| client.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(answers.iter().all(|status| [200, 503].contains(status)), "{answers:?}");
    assert_eq!(gateway.get("/").status, 200);
}

/// Requests that wait for their turn see the tokens that those before have taken.
#[test]
fn server_is_asked_about_few_more_requests_at_once_than_their_address_has_tokens() {
    let (auth, latch) = Upstream::holding();
    let rules = "[rules.per-ip]\nper = [\"ip\"]\nrate = \"3/365d\"\n";
    let table = table(auth.address, "max_in_flight = 2");
    let gateway = Gateway::start(&format!("{DEMO}{rules}{table}"));
    let answers = std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..30).map(|_| scope.spawn(|| gateway.send(&Request::get("/")).status)).collect();
        auth.wait_for_requests(2);
        latch.open();
        clients.into_iter().map(|client| client.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(answers.iter().filter(|status| **status == 200).count() <= 3, "{answers:?}");
    let asked = auth.requests().len();
    assert!(asked <= 3 + 2 * 2, "{asked} were asked about");
}

#[test]
fn cached_answers_are_for_the_same_request_only() {
    let server = auth_server();
    let upstream = Upstream::responding(OK);
    let settings = "request_headers = [\"X-Name\", \"X-Want\"]\nresponse_headers = [\"X-User\"]\ncache = \"1h\"";
    let gateway = Gateway::start(&format!(
        "{}{}",
        proxy_to(&[upstream.address]),
        table(server.address, settings)
    ));
    let of = |name: &str, path: &str| Request::get(path).header("X-Name", name);
    for (name, path) in [
        ("ann", "/"),
        ("ann", "/"),
        ("bob", "/"),
        ("ann", "/"),
        ("bob", "/"),
        ("ann", "/x"),
        ("annbob", "/"),
    ] {
        assert_eq!(gateway.send(&of(name, path)).status, 200);
        let last = upstream.requests().pop().unwrap();
        assert_eq!(last.values("X-User"), [name], "{path}");
    }
    assert_eq!((checks(&gateway, "allowed"), checks(&gateway, "cached")), (4, 3));
    let refused = of("ann", "/").header("X-Want", "401");
    assert_eq!(statuses(&gateway, &refused, 2), [401, 401]);
    assert_eq!((checks(&gateway, "refused"), checks(&gateway, "cached")), (1, 4));
    // A reload forgets them.
    gateway.apply(
        &format!("{}{}\n", proxy_to(&[upstream.address]), table(server.address, settings))
            .replace("1h", "30m"),
    );
    assert_eq!(gateway.send(&of("ann", "/")).status, 200);
    assert_eq!(checks(&gateway, "allowed"), 5);
}

#[test]
fn clients_that_the_server_names_have_limits_of_their_own() {
    let server = auth_server();
    let rule = "[rules.per-key]\nper = [\"key\"]\nplans.free = { rate = \"1/365d\" }\nplans.pro = { rate = \"2/365d\" }\n\
                on_missing = \"skip\"\n";
    let keys = crate::support::key("ann", "key of ann", "pro");
    let settings = "request_headers = [\"X-Name\", \"X-Plan\"]\nid_header = \"X-User\"\nplan_header = \"X-Plan\"";
    let gateway = Gateway::start(&format!(
        "[plans.pro]\n{DEMO}{rule}{keys}[clients]\non_missing_key = \"deny\"\n{}",
        table(server.address, settings)
    ));
    let of =
        |name: &str, plan: &str| Request::get("/").header("X-Name", name).header("X-Plan", plan);
    assert_eq!(statuses(&gateway, &of("ann", "pro"), 3), [200, 200, 429]);
    assert_eq!(statuses(&gateway, &of("bob", ""), 2), [200, 429]);
    assert_eq!(statuses(&gateway, &of("carol", "gold"), 1), [503], "an unknown plan");
    let key = Request::get("/").header("X-Api-Key", "key of ann");
    assert_eq!(
        statuses(&gateway, &key, 1),
        [401],
        "keys are not read here, and the answer names no client"
    );
    let answer = gateway.send(&of("dave", "pro"));
    let id = format!("dave http://{}", server.address);
    assert_eq!(answer.json()["client"], serde_json::json!(id));
}

/// Where the server names the client, API keys are the server's own, whatever their form.
#[test]
fn keys_that_contradict_each_other_are_for_the_server_that_names_the_client() {
    let auth = Upstream::responding("HTTP/1.1 200 OK\r\nX-User: ann\r\nContent-Length: 0\r\n\r\n");
    let settings = "id_header = \"X-User\"\ndefault_plan = \"free\"";
    let plain = "[routes.plain]\npath = \"/plain\"\nupstream = \"api\"\nforward_auth = false\n";
    let keys = crate::support::key("acme", "secret", "free");
    let gateway = Gateway::start(&format!("{DEMO}{plain}{keys}{}", table(auth.address, settings)));
    let two = |path| {
        let request = Request::get(path).header("X-Api-Key", "secret");
        gateway.send(&request.header("Authorization", "Bearer other"))
    };
    let named = two("/");
    assert_eq!(named.status, 200, "{}", named.text());
    assert_eq!(named.json()["client"], format!("ann http://{}", auth.address));
    assert_eq!(two("/plain").status, 400);
    // `explain` does not ask the server: the request counts as one whose client it does not name.
    let explained = |path| {
        let headers = serde_json::json!({ "X-Api-Key": "secret", "Authorization": "Bearer other" });
        let request = serde_json::json!({ "path": path, "headers": headers });
        gateway.explain(request.to_string()).json()
    };
    let named = explained("/");
    assert_eq!(named["verdict"]["decision"], "allow");
    assert_eq!(named["client"]["key_state"], "none");
    let handling = named["route"]["handling"].to_string();
    assert!(handling.contains("forward_auth names the client"), "{handling}");
    assert_eq!(explained("/plain")["verdict"]["status"], 400);
}

#[test]
fn redirects_bodies_http2_and_upgrades() {
    let server = auth_server();
    let upstream = Upstream::echo();
    let login = table(server.address, "").replace("/auth", "/login");
    let gateway =
        Gateway::start(&format!("{HTTP2_LISTENER}{}{login}", proxy_to(&[upstream.address])));
    let redirect = gateway.send(&Request::new("POST", "/").body("x".repeat(50_000)));
    assert_eq!(redirect.status, 302);
    assert!(redirect.header("location").unwrap().ends_with("/login?next=1"));
    assert_eq!(upstream.requests().len(), 0);
    let url = format!("http://{}/", gateway.listener(1));
    let over_http2 = fetch(&["--http2-prior-knowledge", &url]);
    assert_eq!(over_http2.status, 302);
    gateway.apply(&format!(
        "{HTTP2_LISTENER}{}{}",
        proxy_to(&[upstream.address]),
        table(server.address, "")
    ));
    let posted = gateway.send(&Request::new("POST", "/").body("x".repeat(50_000)));
    assert_eq!((posted.status, posted.body.len()), (200, 50_000));
    let posted = curl(&["-s", "--http2-prior-knowledge", "--data", "body", &url]);
    assert_eq!(posted.stdout, b"body");
    let upgrading = Upstream::upgrading();
    gateway.apply(&format!(
        "{HTTP2_LISTENER}{}{}",
        proxy_to(&[upgrading.address]),
        table(server.address, "request_headers = [\"X-Want\"]")
    ));
    let upgrade = |want: &str| {
        Request::get("/")
            .header("Connection", "Upgrade")
            .header("Upgrade", "websocket")
            .header("X-Want", want)
    };
    let mut connection = gateway.connect();
    let head = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    connection.write(head.as_bytes());
    assert_eq!(connection.read_bytes(12), b"HTTP/1.1 101");
    assert_eq!(gateway.send(&upgrade("403")).status, 403);
}
