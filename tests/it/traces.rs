//! Traces of requests: the exported spans, the trace context for the upstream, and trust.
//! `collectors` tests that no request waits for a collector.

mod collectors;

use serde_json::{Value, json};

use crate::support::{
    ClosedPort, Collector, DEMO, Gateway, Latch, Request, Span, Upstream, eventually, key, proxy_to,
};

const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

const TRUSTED: &str = "trusted_proxies = [\"127.0.0.1\"]\n";

/// The trace context of a client.
fn asking(flags: &str) -> String {
    format!("00-{TRACE}-b7ad6b7169203331-{flags}")
}

/// The only span of a kind.
#[track_caller]
fn only<'a>(spans: &'a [Span], kind: &str) -> &'a Span {
    let mut found = spans.iter().filter(|span| span.kind == kind);
    let span = found.next().unwrap_or_else(|| panic!("no span is {kind}: {spans:#?}"));
    assert!(found.next().is_none(), "two spans are {kind}: {spans:#?}");
    span
}

/// Checks and removes the attributes that differ between runs.
#[track_caller]
fn steady(span: &Span) -> Value {
    let mut attributes = json!(span.attributes);
    if let Some(id) = attributes.as_object_mut().unwrap().remove("tollgate.request_id") {
        assert_eq!(id.as_str().unwrap().len(), 32);
    }
    attributes
}

const RULES: &str = "[plans.pro]\n[rules.per-key]\nper = [\"key\"]\nrate = \"2/d\"\n";

#[test]
fn request_check_and_upstream_request_each_have_a_span() {
    let (upstream, collector) = (Upstream::responding(ANSWER), Collector::start());
    let routes = proxy_to(&[upstream.address]).replace("/*", "/api/*");
    let key = key("acme", "secret", "pro");
    let config = format!("{routes}{RULES}{key}{}", collector.table("service_name = \"edge\""));
    let gateway = Gateway::start(&config);
    let request = Request::new("POST", "/api/a/b?c=d&api_key=secret").body("twelve bytes");
    assert_eq!(gateway.send(&request).status, 200);
    let spans = collector.wait_for(3);
    let (server, check) = (only(&spans, "Server"), only(&spans, "Internal"));
    let client = only(&spans, "Client");
    assert_eq!(
        steady(server),
        json!({
            "http.request.method": "POST", "http.route": "/api/*", "url.path": "/api/a/b",
            "url.scheme": "http", "network.protocol.version": "1.1", "server.address": "api.test",
            "client.address": "127.0.0.1", "http.response.status_code": 200,
            "tollgate.route": "all", "tollgate.plan": "pro", "tollgate.key": "acme",
            "tollgate.decision": "allow", "tollgate.rule": "per-key", "tollgate.remaining": 1,
            "tollgate.source": "local",
        })
    );
    assert_eq!(
        steady(check),
        json!({
            "tollgate.decision": "allow", "tollgate.rule": "per-key", "tollgate.remaining": 1,
            "tollgate.source": "local",
        })
    );
    assert_eq!(
        steady(client),
        json!({
            "http.request.method": "POST", "server.address": "127.0.0.1",
            "server.port": upstream.address.port(), "http.response.status_code": 200,
            "url.full": format!("http://{}/api/a/b", upstream.address),
            "tollgate.upstream": "api",
        })
    );
    let names = [server, check, client].map(|span| &*span.name);
    assert_eq!(names, ["POST /api/*", "check limits", "POST"]);
    assert_eq!([&check.parent, &client.parent], [&server.id; 2]);
    assert_eq!((&*server.parent, server.is_parent_remote), ("", false));
    for span in &spans {
        assert_eq!(span.trace, server.trace);
        assert!(span.times.0 <= span.times.1, "{span:?}");
        assert!(server.times.0 <= span.times.0 && span.times.1 <= server.times.1, "{spans:#?}");
        assert!(!span.has_failed);
        assert_eq!(span.resource["service.name"], "edge");
        assert_eq!(span.resource["service.instance.id"].as_str().unwrap().len(), 32);
    }
    // The upstream gets the id of the client span.
    let expected = format!("00-{}-{}-01", server.trace, client.id);
    assert_eq!(upstream.only_request().header("traceparent"), Some(&*expected));
    assert_eq!(upstream.only_request().header("tracestate"), None);
}

#[test]
fn denied_request_has_a_span_with_the_reason() {
    let collector = Collector::start();
    let denies = "[clients]\non_unknown_key = \"deny\"\n";
    let config = format!("{DEMO}{RULES}{denies}{}", collector.table(""));
    let gateway = Gateway::start(&config);
    let mut client = gateway.connect();
    client.send(&Request::get("/1"));
    client.send(&Request::get("/4").header("X-Api-Key", "unknown"));
    client.send(&Request::get("/3"));
    // The demo upstream has no span. An unknown key is counted by its address before it is
    // rejected.
    let spans = collector.wait_for(6);
    let of = |path: &str| spans.iter().find(|span| span.get("url.path") == path).unwrap();
    let view = |span: &Span| {
        let of = |name: &str| span.get(name);
        let names = ["http.response.status_code", "tollgate.decision", "tollgate.rule"];
        (names.map(of), of("tollgate.reason"))
    };
    assert_eq!(view(of("/1")), ([json!(200), json!("allow"), json!("per-key")], json!(null)));
    assert_eq!(view(of("/3")), ([json!(429), json!("deny"), json!("per-key")], json!("limited")));
    assert_eq!(view(of("/4")), ([json!(401), json!("reject"), json!(null)], json!("unknown_key")));
    // A client error is not a failure of the server.
    assert!(spans.iter().all(|span| !span.has_failed), "{spans:#?}");
}

/// Trust in ids and in the sampling decision: (lines of `[server]`, of `[tracing]`, received
/// context; whether the trace continues, and whether it is recorded).
#[test]
fn trace_context_is_accepted_from_trusted_proxies_only() {
    let all = "follow = \"all\"\n";
    let none = "follow = \"all\"\nsample = 0";
    let table = [
        ("", "sample = 1", "01", false, true),
        ("", "sample = 1", "00", false, true),
        ("", "sample = 0", "01", false, false),
        (TRUSTED, "sample = 0", "01", true, true),
        (TRUSTED, "sample = 1", "00", true, false),
        (TRUSTED, "follow = \"none\"\nsample = 0", "01", false, false),
        ("", all, "00", true, true),
        ("", none, "01", true, false),
    ];
    for (server, tracing, flags, goes_on, is_recorded) in table {
        let row = format!("{server:?} {tracing:?} {flags}");
        let (upstream, collector) = (Upstream::responding(ANSWER), Collector::start());
        let mut tables = collector.table(tracing);
        if tracing.contains("sample") {
            tables = tables.replacen("sample = 1\n", "", 1);
        }
        let routes = proxy_to(&[upstream.address]);
        let mut gateway = Gateway::start(&format!("{server}{routes}{tables}"));
        let request = Request::get("/").header("traceparent", asking(flags));
        gateway.send(&request.header("tracestate", "a=b, c=d").header("TraceState", "e=f"));
        gateway.terminate();
        assert_eq!(gateway.exit().0, Some(0));

        let seen = upstream.only_request();
        let passed = seen.header("traceparent").unwrap();
        assert_eq!(passed.len(), 55, "{row}: {passed}");
        assert_eq!(passed.contains(TRACE), goes_on, "{row}: {passed}");
        assert!(!passed.contains("b7ad6b7169203331"), "{row}: {passed}");
        assert_eq!(passed.ends_with("-01"), is_recorded, "{row}: {passed}");
        let state = if goes_on { vec!["a=b, c=d", "e=f"] } else { vec![] };
        assert_eq!(seen.values("tracestate"), state, "{row}");
        let spans = collector.spans();
        assert_eq!(!spans.is_empty(), is_recorded, "{row}: {spans:#?}");
        if is_recorded && goes_on {
            let server = only(&spans, "Server");
            assert_eq!((&*server.trace, &*server.parent), (TRACE, "b7ad6b7169203331"), "{row}");
            assert!(server.is_parent_remote, "{row}");
            assert_eq!(server.state.replace(' ', ""), "a=b,c=d,e=f", "{row}");
        }
    }
}

#[test]
fn malformed_traceparent_starts_a_new_trace() {
    let (upstream, collector) = (Upstream::responding(ANSWER), Collector::start());
    let routes = proxy_to(&[upstream.address]);
    let gateway = Gateway::start(&format!("{TRUSTED}{routes}{}", collector.table("")));
    let with =
        |value: &str| Request::get("/").header("traceparent", value).header("tracestate", "a=b");
    let zeros = "0".repeat(32);
    let mut client = gateway.connect();
    for request in [
        with(&asking("01").to_uppercase()),
        with(&format!("00-{zeros}-b7ad6b7169203331-01")),
        with(&asking("01").replacen("00", "ff", 1)),
        with(&asking("01-more")),
        with("\u{e4}"),
        with(&asking("01")).header("traceparent", asking("01")),
        Request::get("/").header("tracestate", "a=b"),
    ] {
        assert_eq!(client.send(&request).status, 200, "{request:?}");
    }
    // A malformed trace state is dropped.
    let malformed =
        Request::get("/odd").header("traceparent", asking("01")).header("tracestate", "A b");
    client.send(&malformed);
    let seen = upstream.requests();
    let (malformed, new) = seen.split_last().unwrap();
    assert_eq!(new.len(), 7);
    for seen in new {
        assert!(!seen.head.contains(&TRACE[2..]), "{}", seen.head);
        assert_eq!((seen.values("traceparent").len(), seen.values("tracestate").len()), (1, 0));
    }
    assert!(malformed.header("traceparent").unwrap().contains(TRACE), "{}", malformed.head);
    assert_eq!(malformed.header("tracestate"), None);
    assert_eq!(collector.wait_for(16).iter().filter(|span| span.trace == TRACE).count(), 2);
}

#[test]
fn without_tracing_trace_headers_are_forwarded_unchanged() {
    let upstream = Upstream::responding(ANSWER);
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    let request = Request::get("/").header("traceparent", "Whatever").header("tracestate", "A b");
    gateway.send(&request);
    let seen = upstream.only_request();
    assert_eq!(seen.header("traceparent"), Some("Whatever"));
    assert_eq!(seen.header("tracestate"), Some("A b"));
    assert_eq!(gateway.count("tollgate_traces_spans_total", &[]), 0);
}

#[test]
fn reload_starts_moves_and_stops_traces() {
    let (first, second) = (Collector::start(), Collector::start());
    let gateway = Gateway::start(DEMO);
    gateway.get("/1");
    gateway.apply(&format!("{DEMO}{}", first.table("")));
    gateway.get("/2");
    first.wait_for(1);
    gateway.apply(&format!("{DEMO}{}", second.table("client_ip = 1").replace("client_ip = 1", "")));
    gateway.get("/3");
    second.wait_for(1);
    gateway.apply(&format!("{DEMO}{}", second.table("sample = 0").replacen("sample = 1\n", "", 1)));
    gateway.get("/4");
    gateway.apply(DEMO);
    gateway.get("/5");
    gateway.apply(&format!("{DEMO}{}", first.table("headers.x-who = \"${HOME}\"")));
    gateway.get("/6");
    let paths = |collector: &Collector, count| {
        collector.wait_for(count).iter().map(|span| span.get("url.path")).collect::<Vec<_>>()
    };
    assert_eq!(paths(&first, 2), ["/2", "/6"]);
    assert_eq!(paths(&second, 1), ["/3"]);
    let home = std::env::var("HOME").unwrap();
    let messages = first.messages();
    let who: Vec<_> = messages.iter().map(|message| message.header("x-who")).collect();
    assert_eq!(who, [None, Some(&*home)]);
    let view = gateway.log();
    assert!(view.contains("tracing.headers.x-who: nothing -> \"${HOME}\""), "{view}");
}

#[test]
fn access_log_line_has_the_id_of_a_recorded_trace() {
    let collector = Collector::start();
    let tables = format!("{}\n[access_log]\n", collector.table("sample = 0"));
    let tables = tables.replacen("sample = 1\n", "", 1);
    let gateway = Gateway::start(&format!("{TRUSTED}{DEMO}{tables}"));
    gateway.send(&Request::get("/recorded").header("traceparent", asking("01")));
    gateway.send(&Request::get("/not").header("traceparent", asking("00")));
    let line = |path: &str| {
        let log = gateway.log();
        let line = log.lines().find(|line| line.contains(&format!("\"path\":\"{path}\"")))?;
        serde_json::from_str::<Value>(line).ok()
    };
    let [recorded, not] = ["/recorded", "/not"].map(|path| eventually(path, || line(path)));
    assert_eq!(recorded["trace_id"], TRACE);
    assert_eq!(not["trace_id"], json!(null));
    collector.wait_for(1);
}

#[test]
fn spans_show_addresses_as_client_ip_says() {
    for (more, expected) in [("off", 0), ("hashed", 18), ("plain", 9)] {
        let collector = Collector::start();
        let log = format!("[access_log]\noutput = \"off\"\nclient_ip = \"{more}\"\n");
        let gateway = Gateway::start(&format!("{DEMO}{}{log}", collector.table("")));
        gateway.get("/");
        let shown = collector.wait_for(1)[0].get("client.address");
        assert_eq!(shown.as_str().map_or(0, str::len), expected, "{shown}");
    }
}

#[test]
fn malformed_input_in_spans_is_bounded_and_has_no_secret() {
    const SECRET: &str = "s3cr3t-7h4t-nob0dy-m4y-r34d";
    let (upstream, collector) = (Upstream::responding(ANSWER), Collector::start());
    let routes = proxy_to(&[upstream.address]);
    let headers = format!("headers = {{ authorization = \"Bearer {SECRET}\" }}");
    let key = key("acme", SECRET, "free");
    let gateway = Gateway::start(&format!("{routes}{key}{}", collector.table(&headers)));
    let long = format!("/{}?{SECRET}", "x".repeat(5_000));
    let mut requests = vec![
        Request::get(&format!("/?api_key={SECRET}&{SECRET}")),
        Request::get("/").header("Authorization", format!("Bearer {SECRET}")),
        Request::get("/").header("Cookie", SECRET).header("User-Agent", SECRET),
        Request::get("/").header("tracestate", format!("a={SECRET}")),
        Request::get("/").without("Host").header("Host", format!("{SECRET}!")),
        Request::get(&long),
        Request::new(&format!("ODD{}", "X".repeat(100)), "/").header("X-Api-Key", SECRET),
    ];
    requests.push(Request::get("/%zz").header("X-Api-Key", SECRET));
    for request in &requests {
        gateway.send(request);
    }
    gateway.wait_for_count("tollgate_requests_in_flight", &[], 0);
    let is_sent = || {
        let sent = gateway.count("tollgate_traces_spans_total", &[("result", "sent")]);
        let spans = collector.spans();
        let servers = spans.iter().filter(|span| span.kind == "Server").count();
        (servers == requests.len() && sent == spans.len() as u64).then_some(spans)
    };
    let spans = eventually("all spans", is_sent);
    let view = format!("{spans:?}");
    assert!(!view.contains(SECRET), "{view}");
    assert!(view.contains("_OTHER") && view.contains("acme"), "{view}");
    assert!(spans.iter().all(|span| format!("{span:?}").len() < 6_000));
    assert!(!gateway.log().contains(SECRET), "{}", gateway.log());
    assert!(!gateway.metrics().contains(SECRET));
    let sent = collector.messages();
    let expected = format!("Bearer {SECRET}");
    assert!(sent.iter().all(|message| message.header("authorization") == Some(&expected)));
}

#[test]
fn spans_of_a_disconnected_client_are_canceled() {
    let latch = Latch::default();
    let held = latch.clone();
    let upstream = Upstream::start(move |_, _| {
        held.wait();
        false
    });
    let collector = Collector::start();
    let routes = proxy_to(&[upstream.address]);
    let gateway = Gateway::start(&format!("{routes}{}", collector.table("")));
    let mut client = gateway.connect();
    client.write(b"GET /gone HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the request", || (!upstream.requests().is_empty()).then_some(()));
    drop(client);
    let spans = collector.wait_for(2);
    latch.open();
    for span in spans {
        assert!(span.has_failed, "{span:?}");
        assert_eq!(span.get("error.type"), "canceled", "{span:?}");
        assert_eq!(span.get("http.response.status_code"), json!(null), "{span:?}");
    }
}

#[test]
fn spans_record_retries_and_failures() {
    let closed = ClosedPort::bind();
    let unused_address = closed.address;
    let (upstream, collector) = (Upstream::responding(ANSWER), Collector::start());
    let servers = proxy_to(&[unused_address, upstream.address]);
    let gateway = Gateway::start(&format!("{servers}{}", collector.table("")));
    for _ in 0..2 {
        assert_eq!(gateway.get("/").status, 200);
    }
    let spans = collector.wait_for(4);
    let clients: Vec<_> = spans.iter().filter(|span| span.kind == "Client").collect();
    let resent: Vec<_> = clients.iter().map(|span| span.get("http.request.resend_count")).collect();
    assert!(resent.contains(&json!(1)) && resent.contains(&json!(null)), "{resent:?}");
    let port = json!(upstream.address.port());
    assert!(clients.iter().all(|span| span.get("server.port") == port && !span.has_failed));

    let gateway =
        Gateway::start(&format!("{}{}", proxy_to(&[unused_address]), collector.table("")));
    assert_eq!(gateway.get("/").status, 502);
    let spans = collector.wait_for(6);
    let failed: Vec<_> = spans.iter().filter(|span| span.has_failed).collect();
    let types: Vec<_> = failed.iter().map(|span| (span.kind, span.get("error.type"))).collect();
    assert_eq!(types, [("Server", json!("502")), ("Client", json!("connect"))]);
}
