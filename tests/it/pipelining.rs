//! Pipelined requests.

use std::time::Duration;

use crate::support::{
    Connection, Gateway, Request, Response, Upstream, eventually, proxy_to, sleep_for, timed,
};

const LIMIT_OF_TWO: &str = "[rules.all]\nper = []\nrate = \"2/d\"\n";

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

fn post(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// An upstream that responds with the path.
fn paths() -> Upstream {
    Upstream::start(|seen, stream| {
        use std::io::Write as _;
        let path = seen.line().split(' ').nth(1).unwrap_or_default().to_string();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", path.len());
        stream.write_all(format!("{head}{path}").as_bytes()).is_ok()
    })
}

fn read(client: &mut Connection, methods: &[&str]) -> Vec<Response> {
    methods.iter().map(|method| client.read_response(method)).collect()
}

fn statuses(answers: &[Response]) -> Vec<u16> {
    answers.iter().map(|answer| answer.status).collect()
}

#[test]
fn pipelined_requests_are_answered_in_order_and_each_is_counted() {
    let upstream = Upstream::echo();
    let gateway = Gateway::start(&format!("{}{LIMIT_OF_TWO}", proxy_to(&[upstream.address])));
    let mut client = gateway.connect();
    client.write(format!("{}{}{}", get("/1"), get("/2"), get("/3")).as_bytes());
    let answers = read(&mut client, &["GET"; 3]);
    assert_eq!(statuses(&answers), [200, 200, 429]);
    assert_eq!(answers[1].remaining(), 0);
    let lines: Vec<_> = upstream.requests().iter().map(|seen| seen.line().to_string()).collect();
    assert_eq!(lines, ["GET /1 HTTP/1.1", "GET /2 HTTP/1.1"]);
    // A denied request keeps the connection, also for later requests.
    assert_eq!(client.send(&Request::get("/4")).status, 429);
    let counted = || (gateway.count("tollgate_requests_total", &[]) == 4).then_some(());
    eventually("all four requests to be counted", counted);
}

#[test]
fn pipelined_requests_keep_their_bodies() {
    let upstream = Upstream::echo();
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    let mut client = gateway.connect();
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
        3\r\ntwo\r\n0\r\n\r\n";
    let head = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";
    let all = [&post("/", "one"), chunked, head, &get("/"), &post("/", "five")].concat();
    client.write(all.as_bytes());
    let answers = read(&mut client, &["POST", "POST", "HEAD", "GET", "POST"]);
    let bodies: Vec<_> = answers.iter().map(Response::text).collect();
    assert_eq!(bodies, ["one", "two", "", "", "five"]);
    assert_eq!(upstream.requests().len(), 5);
}

#[test]
fn pipelined_requests_follow_a_refused_body() {
    let upstream = paths();
    let config = proxy_to(&[upstream.address]).replace("path = \"/*\"", "path = \"/api/*\"");
    let gateway = Gateway::start(&config);
    let mut client = gateway.connect();
    let body = "x".repeat(1_000);
    let chunked = "POST /none HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
        3\r\ntwo\r\n0\r\n\r\n";
    let all = [&post("/none", &body), chunked, &get("/api/3"), &get("/none"), &get("/api/5")];
    client.write(all.concat().as_bytes());
    let answers = read(&mut client, &["POST", "POST", "GET", "GET", "GET"]);
    assert_eq!(statuses(&answers), [404, 404, 200, 404, 200]);
    assert_eq!((answers[2].text(), answers[4].text()), ("/api/3".into(), "/api/5".into()));
}

/// Heads and bodies can be split anywhere.
#[test]
fn pipelined_requests_can_arrive_in_pieces() {
    let upstream = paths();
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    let all = [get("/1"), post("/2", "body of two"), get("/3")].concat();
    for cut in (0..all.len()).step_by(7) {
        let mut client = gateway.connect();
        client.write(&all.as_bytes()[..cut]);
        // If the first piece is a complete request, its response comes before the second piece is
        // sent.
        let first = (cut >= get("/1").len()).then(|| client.read_response("GET"));
        client.write(&all.as_bytes()[cut..]);
        let mut answers: Vec<Response> = first.into_iter().collect();
        let rest = ["GET", "POST", "GET"].into_iter().skip(answers.len());
        answers.extend(rest.map(|method| client.read_response(method)));
        let bodies: Vec<_> = answers.iter().map(Response::text).collect();
        assert_eq!(bodies, ["/1", "/2", "/3"], "cut at {cut}");
    }
}

#[test]
fn thousand_pipelined_requests_are_answered_in_order() {
    let upstream = paths();
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    let mut client = gateway.connect();
    let all: String = (0..1_000).map(|number| get(&format!("/{number}"))).collect();
    client.write(all.as_bytes());
    for number in 0..1_000 {
        assert_eq!(client.read_response("GET").text(), format!("/{number}"));
    }
}

#[test]
fn no_request_is_served_after_connection_close() {
    let upstream = paths();
    let gateway = Gateway::start(&format!("{}{LIMIT_OF_TWO}", proxy_to(&[upstream.address])));
    // The last three are rejected; their ends are unknown.
    let closing = [
        ("GET", "GET /1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
        ("GET", "GET /1 HTTP/1.0\r\nHost: a\r\n\r\n"),
        (
            "POST",
            "POST /1 HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
        ),
        ("POST", "POST /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n"),
        ("GET", "GET /1 HTTP/1.1\r\n\r\n"),
    ];
    for (method, first) in closing {
        let mut client = gateway.connect();
        client.write(format!("{first}{}", get("/smuggled")).as_bytes());
        let answer = client.read_response(method);
        assert_eq!(answer.header("connection"), Some("close"), "{first}");
        assert!(client.is_closed_by_server(), "{first}");
    }
    let smuggled = upstream.requests().iter().any(|seen| seen.line().contains("smuggled"));
    assert!(!smuggled, "{:#?}", upstream.requests());
}

/// Bytes sent before the upgrade completes are neither a request nor part of the upgrade request.
#[test]
fn bytes_after_an_upgrade_are_not_a_request() {
    let upstream = Upstream::start(|seen, stream| {
        use std::io::Write as _;
        let answer = match seen.header("upgrade") {
            Some(_) => {
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                Upgrade: websocket\r\n\r\n"
            }
            None => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        };
        stream.write_all(answer.as_bytes()).is_ok()
    });
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    let mut client = gateway.connect();
    let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    client.write(format!("{upgrade}{}", get("/later")).as_bytes());
    assert_eq!(client.read_response("GET").status, 101);
    // The bytes were forwarded in the upgraded protocol, which this server parses as a request.
    assert_eq!(client.read_response("GET").status, 200);
    drop(client);
    gateway.wait_for_count("tollgate_requests_in_flight", &[], 0);
    assert_eq!(gateway.count("tollgate_requests_total", &[]), 1);
}

#[test]
fn part_of_a_head_after_another_request_has_a_deadline() {
    let upstream = paths();
    let limits = "[server.limits]\nhead_timeout = \"1s\"\n";
    let gateway = Gateway::start(&format!("{limits}{}", proxy_to(&[upstream.address])));
    let mut client = gateway.connect();
    client.write(format!("{}GET /2 HTTP/1.1\r\nHo", get("/1")).as_bytes());
    assert_eq!(client.read_response("GET").status, 200);
    let (is_closed, took) = timed(|| client.is_closed_by_server());
    assert!(is_closed && took < Duration::from_secs(30), "{took:?}");
    gateway.wait_for_count("tollgate_connections_rejected_total", &[("reason", "head_timeout")], 1);
    // A head that arrives in parts, after a request that takes longer than that.
    let mut client = gateway.connect();
    client.write(format!("{}GET /2 HTTP/1.1\r\nHo", get("/1")).as_bytes());
    assert_eq!(client.read_response("GET").status, 200);
    client.write(b"st: a\r\n\r\n");
    assert_eq!(client.read_response("GET").text(), "/2");
    sleep_for(Duration::from_secs(2));
    assert_eq!(client.send(&Request::get("/3")).text(), "/3");
}
