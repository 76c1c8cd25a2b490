//! gRPC: Python's grpcio as client and server, over TLS and in clear.

use serde_json::{Value, json};

use super::Site;
use crate::support::{Authority, PeerServer, eventually, grpc_client, proxy_to};

/// A gateway in front of a gRPC server.
struct Chain {
    site: Site,
    server: PeerServer,
}

impl Chain {
    /// The gateway speaks h2c with the server.
    fn start(rules: &str) -> Self {
        let server = PeerServer::grpc(None);
        let config = proxy_to(&[server.address]).replace("servers", "protocol = \"h2c\"\nservers");
        Self { site: Site::start(&format!("{config}{rules}")), server }
    }

    /// Runs a scenario over TLS.
    #[track_caller]
    fn over_tls(&self, scenario: &str, more: &[&str]) -> Value {
        let (ca, target) = (self.site.authority.ca(), self.site.tls.to_string());
        grpc_client(&[&[scenario, &target, "--ca", &ca], more].concat())
    }

    /// Runs a scenario over h2c.
    #[track_caller]
    fn in_clear(&self, scenario: &str, more: &[&str]) -> Value {
        grpc_client(&[&[scenario, &self.site.clear.to_string()], more].concat())
    }

    fn decisions(&self, decision: &str) -> u64 {
        self.site.gateway.count("tollgate_decisions_total", &[("decision", decision)])
    }
}

#[test]
fn unary_call_keeps_metadata_and_trailers() {
    let chain = Chain::start("[rules.all]\nper = []\nrate = \"100/d\"\n");
    for results in
        [chain.over_tls("unary", &["--count", "2"]), chain.in_clear("unary", &["--count", "2"])]
    {
        for result in results.as_array().unwrap() {
            assert_eq!((&result["code"], &result["response"]), (&json!("OK"), &json!("hello")));
            assert_eq!(result["initial"]["x-initial"], "first", "{result}");
            assert_eq!(result["trailing"]["x-binary-bin"], "0001ff", "{result}");
            let seen = result["trailing"]["x-seen"].as_str().unwrap();
            assert!(seen.contains("grpc-python"), "{result}");
            assert!(seen.contains("\"x-forwarded-for\": \"127.0.0.1\""), "{result}");
        }
    }
    chain.server.wait_for_count("call /test.Echo/Unary", 4);
    // Each call is counted once.
    assert_eq!(chain.decisions("allow"), 4);
    chain.site.assert_requests([("200", 4)]);
}

#[test]
fn streams_pass_message_by_message_both_ways() {
    let chain = Chain::start("[rules.all]\nper = []\nrate = \"100/d\"\n");
    // The client sends each message only after the answer to the previous one.
    for chat in
        [chain.over_tls("chat", &["--count", "20"]), chain.in_clear("chat", &["--count", "20"])]
    {
        let answers = chat["answers"].as_array().unwrap();
        assert_eq!((answers.len(), &answers[19]), (20, &json!("MESSAGE 19")), "{chat}");
        assert_eq!((&chat["code"], &chat["trailing"]["x-count"]), (&json!("OK"), &json!("20")));
    }
    let split = chain.over_tls("split", &[]);
    assert_eq!(split["answers"], json!(["s", "t", "r", "e", "a", "m", "e", "d"]), "{split}");
    assert_eq!(split["trailing"]["x-count"], "8", "{split}");
    let join = chain.over_tls("join", &["--count", "1000"]);
    assert_eq!((&join["code"], &join["length"]), (&json!("OK"), &json!(3_890)), "{join}");
    // One stream is one request, however many messages it carries.
    assert_eq!(chain.decisions("allow"), 4);
}

#[test]
fn large_messages_and_errors_of_the_server_pass() {
    let chain = Chain::start("");
    let large = chain.over_tls("large", &[]);
    assert_eq!((&large["code"], &large["length"]), (&json!("OK"), &json!(3_000_000)));
    let failed = chain.over_tls("fail", &[]);
    assert_eq!(failed["code"], "INVALID_ARGUMENT", "{failed}");
    assert_eq!(failed["details"], "no: 100 % w\u{fc}rong", "{failed}");
    assert_eq!(failed["trailing"]["x-cause"], "tested", "{failed}");
    assert_eq!(chain.over_tls("unknown", &[])["code"], "UNIMPLEMENTED");
}

#[test]
fn deadline_reaches_the_server_and_ends_the_call() {
    let chain = Chain::start("");
    let result = chain.over_tls("deadline", &[]);
    let left: u64 = result["response"].as_str().unwrap().parse().unwrap();
    assert!((1..=7_000).contains(&left), "{result}");
    let late = chain.over_tls("late", &[]);
    assert_eq!(late["code"], "DEADLINE_EXCEEDED", "{late}");
    eventually("the server to see the end", || {
        (chain.server.count("cancelled /test.Echo/Wait") == 1).then_some(())
    });
}

#[test]
fn cancelled_call_is_cancelled_at_the_server() {
    let chain = Chain::start("");
    assert_eq!(chain.over_tls("cancel", &[])["code"], "CANCELLED");
    eventually("the server to see the end", || {
        (chain.server.count("cancelled /test.Echo/Wait") == 1).then_some(())
    });
}

#[test]
fn refused_call_is_resource_exhausted_with_pushback() {
    let chain = Chain::start("[rules.all]\nper = []\nrate = \"3/d\"\n");
    let results = chain.over_tls("unary", &["--count", "5"]);
    let codes: Vec<&str> =
        results.as_array().unwrap().iter().map(|result| result["code"].as_str().unwrap()).collect();
    assert_eq!(codes[..3], ["OK"; 3], "{results}");
    assert_eq!(codes[3..], ["RESOURCE_EXHAUSTED"; 2], "{results}");
    let refused = &results[3];
    assert!(refused["details"].as_str().unwrap().contains("Limit \"all\""), "{refused}");
    let metadata = [&refused["trailing"], &refused["initial"]];
    let pushback = metadata.iter().find_map(|fields| fields["grpc-retry-pushback-ms"].as_str());
    let pushback: u64 = pushback.unwrap().parse().unwrap();
    assert!((28_000_000..=28_800_000).contains(&pushback), "{refused}");
    chain.server.wait_for_count("call ", 3);
    assert_eq!((chain.decisions("allow"), chain.decisions("deny")), (3, 2));
}

/// A message is longer by five bytes than what the client sends.
#[test]
fn call_above_the_size_limit_is_resource_exhausted() {
    let any_size =
        "[routes.any]\npath = \"/test.Echo/Join\"\nmax_body_bytes = 0\nupstream = \"api\"\n";
    let chain = Chain::start(&format!("{any_size}[server.limits]\nmax_body_bytes = 1000\n"));
    let refused = |result: &Value| {
        assert_eq!(result["code"], "RESOURCE_EXHAUSTED", "{result}");
        let details = result["details"].as_str().unwrap();
        assert!(details.starts_with("The body is larger than"), "{result}");
    };
    let over_tls = |scenario: &str, count: &str| chain.over_tls(scenario, &["--count", count]);
    let in_clear = |scenario: &str, count: &str| chain.in_clear(scenario, &["--count", count]);
    for run in [&over_tls as &dyn Fn(&str, &str) -> Value, &in_clear] {
        assert_eq!(run("unary", "1")[0]["code"], "OK");
        refused(&run("large", "1"));
        // The limit is reached in the middle of the stream, after the head of the response.
        let chat = run("chat", "200");
        refused(&chat);
        let answers = chat["answers"].as_array().unwrap();
        assert!((50..100).contains(&answers.len()), "{chat}");
        // A route without a limit, with ten times as many bytes.
        let join = run("join", "1000");
        assert_eq!((&join["code"], &join["length"]), (&json!("OK"), &json!(3_890)), "{join}");
    }
    let counted = [("reason", "body_cut_off")];
    chain.site.gateway.wait_for_count("tollgate_rejections_total", &counted, 4);
}

/// grpcio retries by itself after the time that the gateway names, as its service config allows,
/// and not after the 30 s that the config has.
#[test]
fn client_retries_when_the_pushback_says() {
    // On a busy machine, a call can take a second, after which the next one would be allowed.
    let chain = Chain::start("[rules.all]\nper = []\nrate = \"1/4s\"\nburst = 1\n");
    let results = chain.over_tls("unary", &["--count", "3", "--retry"]);
    for result in results.as_array().unwrap() {
        assert_eq!(result["code"], "OK", "{results}");
        assert!(result["took_ms"].as_f64().unwrap() < 15_000.0, "{results}");
    }
    chain.server.wait_for_count("call ", 3);
    assert!(chain.decisions("deny") >= 2, "{results}");
}

#[test]
fn unavailable_server_is_a_grpc_status() {
    let closed = crate::support::ClosedPort::bind();
    let config = proxy_to(&[closed.address]).replace("servers", "protocol = \"h2c\"\nservers");
    let site = Site::start(&config);
    let result = grpc_client(&["unary", &site.clear.to_string()]);
    assert_eq!(result[0]["code"], "UNAVAILABLE", "{result}");
}

#[test]
fn calls_pass_to_a_server_with_tls() {
    let authority = Authority::new();
    let issued = authority.issue("grpc", &["grpc.test"]);
    let server = PeerServer::grpc(Some(&issued));
    let config = proxy_to(&[server.address]).replace("[\"127", "[\"https://127").replace(
        "servers",
        &format!(
            "protocol = \"h2\"\ntls = {{ ca = {:?}, server_name = \"grpc.test\" }}\nservers",
            authority.ca()
        ),
    );
    let chain = Chain { site: Site::start(&config), server };
    assert_eq!(chain.over_tls("unary", &[])[0]["code"], "OK");
    assert_eq!(chain.in_clear("chat", &["--count", "5"])["trailing"]["x-count"], "5");
    chain.server.wait_for_count("call ", 2);
}

#[test]
fn status_of_each_call_is_in_the_access_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let log = format!(
        "[access_log]\noutput = {path:?}\nfields = [\"path\", \"status\", \"grpc_status\"]\n"
    );
    let chain = Chain::start(&format!("[rules.all]\nper = []\nrate = \"1/d\"\n{log}"));
    // The trailers of the server, then a response of the gateway that consists of trailers only.
    chain.over_tls("unary", &["--count", "2"]);
    let lines: Vec<Value> = eventually("two lines", || {
        let text = std::fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n'))?;
        let mut lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        // The lines of two connections of the gateway have no order.
        lines.sort_by_key(|line| line["grpc_status"].as_u64());
        (lines.len() >= 2).then_some(lines)
    });
    let line = |grpc_status: u32| json!({"path": "/test.Echo/Unary", "status": 200, "grpc_status": grpc_status});
    assert_eq!(lines, [line(0), line(8)]);
}
