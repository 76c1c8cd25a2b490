//! The access log: content of its lines. `outputs` tests where they are written, and that no
//! request waits for that; `times` tests in which field a delay is shown.

mod outputs;
mod times;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    Authority, DEMO, Gateway, Issued, Request, Upstream, curl, eventually, key, proxy_to,
};

/// A temporary folder, and the path of a log in it.
fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    (folder, path)
}

/// The `[access_log]` table for this path.
fn table(path: &Path, more: &str) -> String {
    format!("\n[access_log]\noutput = \"{}\"\n{more}\n", path.display())
}

/// Waits for `count` lines and parses them.
#[track_caller]
fn lines(path: &Path, count: usize) -> Vec<Value> {
    let read = || {
        let text = std::fs::read_to_string(path).ok()?;
        (text.lines().count() >= count && text.ends_with('\n')).then_some(text)
    };
    let text = eventually(&format!("{count} lines in {}", path.display()), read);
    assert_eq!(text.lines().count(), count, "{text}");
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// Checks and removes the members that differ between runs.
#[track_caller]
fn steady(mut line: Value) -> Value {
    let members = line.as_object_mut().unwrap();
    let time = members.remove("time").unwrap();
    let time = time.as_str().unwrap();
    assert!(time.len() == 27 && time.starts_with("20") && time.ends_with('Z'), "{time}");
    let id = members.remove("id").unwrap();
    assert_eq!(id.as_str().unwrap().len(), 32);
    let total = members.remove("total_ms").unwrap().as_f64().unwrap();
    let parts = ["connect_ms", "request_body_ms", "first_byte_ms", "body_ms", "send_ms"];
    let sum: f64 = parts.iter().filter_map(|part| members[*part].as_f64()).sum();
    assert!(sum <= total + 0.001, "{sum} of {total}");
    for part in ["check_ms", "upstream_ms"].into_iter().chain(parts) {
        if let Some(milliseconds) = members[part].as_f64() {
            assert!((0.0..=total).contains(&milliseconds), "{part}: {milliseconds} of {total}");
            members.insert(part.to_owned(), json!("some"));
        }
    }
    line
}

/// Number of members of a line that has all of them.
const MEMBERS: usize = 35;

/// An enforced rule, a shadow rule, and a rule that requires a key.
const RULES: &str = r#"
[plans.pro]
[rules.per-key]
per = ["key"]
plans.pro = { rate = "2/d" }
[rules.tried]
per = []
mode = "shadow"
rate = "3/d"
plans.free = { rate = "1/d" }
[rules.known]
per = ["key"]
routes = ["known"]
on_missing = "deny"
rate = "9/d"
[routes.known]
path = "/known"
upstream = "api"
"#;

#[test]
fn access_log_line_has_all_fields() {
    let upstream = Upstream::echo();
    let (_folder, path) = place();
    let routes = proxy_to(&[upstream.address]);
    let config = format!("{routes}{RULES}{}{}", key("acme", "secret", "pro"), table(&path, ""));
    let gateway = Gateway::start(&config);
    let post = Request::new("POST", "/a/b?c=d&api_key=secret").body("twelve bytes");
    // The lines of one connection are in order.
    let mut client = gateway.connect();
    for request in
        [post.clone(), post.clone(), post, Request::get("/free?x"), Request::get("/free")]
    {
        client.send(&request);
    }
    let lines: Vec<Value> = lines(&path, 5).into_iter().map(steady).collect();

    let line = |changes: Value| {
        let mut line = json!({
            "trace_id": null, "key": "acme", "ip": "127.0.0.1", "plan": "pro", "method": "POST", "path": "/a/b",
            "route": "all", "decision": "allow", "rule": "per-key", "remaining": 1,
            "shadow_rules": [], "cost": 1, "source": "local", "reason": null, "status": 200, "bytes_in": 12, "bytes_out": 12, "upstream": "api",
            "server": upstream.address.to_string(), "check_ms": "some", "upstream_ms": "some",
            "generation": 1, "key_name": null, "tenant": null, "key_from": "query:api_key", "connection": "reused", "connect_ms": "some",
            "request_body_ms": "some", "first_byte_ms": "some", "body_ms": "some", "send_ms": "some",
            "wait_ms": null,
        });
        for (name, value) in changes.as_object().unwrap() {
            assert!(line.get(name).is_some(), "{name}");
            line[name] = value.clone();
        }
        line
    };
    let refused = json!({
        "decision": "deny", "remaining": 0, "status": 429, "bytes_out": lines[2]["bytes_out"],
        "reason": "limited", "upstream": null, "server": null, "upstream_ms": null,
        "connection": null, "connect_ms": null, "request_body_ms": null, "first_byte_ms": null,
        "body_ms": null, "send_ms": null,
    });
    let free = json!({
        "body_ms": null, "send_ms": null, "key": null, "key_from": null, "request_body_ms": null, "plan": "free", "method": "GET", "path": "/free", "rule": null,
        "remaining": null, "bytes_in": 0, "bytes_out": 0,
    });
    let mut shadow = free.clone();
    shadow["decision"] = json!("shadow_deny");
    shadow["rule"] = json!("tried");
    shadow["shadow_rules"] = json!(["tried"]);
    shadow["remaining"] = json!(0);
    assert_eq!(lines[0], line(json!({"connection": "new"})));
    assert_eq!(lines[1], line(json!({"remaining": 0})));
    assert_eq!(lines[2], line(refused));
    assert!(lines[2]["bytes_out"].as_u64() > Some(100), "{}", lines[2]);
    assert_eq!(lines[3], line(free));
    assert_eq!(lines[4], line(shadow));
}

#[test]
fn access_log_line_of_a_rejected_request_has_the_reason() {
    let (_folder, path) = place();
    let denies = "[clients]\non_unknown_key = \"deny\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{RULES}{denies}{}", table(&path, "")));
    let mut client = gateway.connect();
    for request in [
        Request::get("/known"),
        Request::get("/a").header("X-Api-Key", "unknown"),
        Request::get("/a/../b"),
        Request::get("/").without("Host"),
    ] {
        client.send(&request);
    }
    let view = |line: &Value| {
        let members = ["decision", "rule", "source", "reason", "status", "route", "plan", "ip"];
        Value::from(members.map(|name| line[name].clone()).to_vec())
    };
    let view: Vec<Value> = lines(&path, 4).iter().map(view).collect();
    assert_eq!(
        view[0],
        json!(["deny", "known", "policy", "missing_key", 401, "known", "free", "127.0.0.1"])
    );
    assert_eq!(
        view[1],
        json!(["reject", null, null, "unknown_key", 401, "all", "free", "127.0.0.1"])
    );
    assert_eq!(
        view[2],
        json!(["reject", null, null, "dot_segment", 400, null, "free", "127.0.0.1"])
    );
    // The client of a malformed request is unknown.
    assert_eq!(view[3], json!(["reject", null, null, "missing_host", 400, null, null, null]));
}

#[test]
fn client_ip_setting_applies_at_reload() {
    let (_folder, path) = place();
    let file = |more: &str| format!("{DEMO}{}", table(&path, more));
    let gateway = Gateway::start(&file(""));
    gateway.get("/");
    lines(&path, 1);
    gateway.apply(&file("client_ip = \"off\""));
    gateway.get("/");
    lines(&path, 2);
    gateway.apply(&file("client_ip = \"hashed\"\nsalt = \"0123456789abcdef\""));
    gateway.get("/");
    let lines = lines(&path, 3);
    let ips: Vec<&Value> = lines.iter().map(|line| &line["ip"]).collect();
    assert_eq!(ips[..2], [&json!("127.0.0.1"), &json!(null)]);
    assert_eq!(ips[2].as_str().map(str::len), Some("h:0123456789abcdef".len()));
}

#[test]
fn listed_fields_are_the_members_in_that_order_and_apply_at_reload() {
    let (_folder, path) = place();
    let file = |more: &str| format!("{DEMO}{}", table(&path, more));
    let gateway = Gateway::start(&file(
        "fields = [\"status\", \"header:User-Agent\", \"path\", \"header:referer\", \"header:x-none\"]",
    ));
    let referer = "https://a.example/b?api_key=secret";
    let request = Request::get("/p?api_key=secret");
    gateway.send(&request.header("User-Agent", "a \"b\"\\").header("Referer", referer));
    lines(&path, 1);
    gateway.apply(&file("fields = [\"path\"]"));
    gateway.get("/q");
    lines(&path, 2);
    gateway.apply(&file(""));
    gateway.get("/r");
    let whole = lines(&path, 3).pop().unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let listed: Vec<&str> = text.lines().take(2).collect();
    let first = r#"{"status":200,"header:user-agent":"a \"b\"\\","path":"/p","header:referer":"https://a.example/b?…","header:x-none":null}"#;
    assert_eq!(listed, [first, r#"{"path":"/q"}"#]);
    assert_eq!(whole.as_object().unwrap().len(), MEMBERS);
}

#[test]
fn allowed_requests_are_sampled_and_others_always_logged() {
    let (_folder, path) = place();
    let rules = "[rules.r]\nper = []\nrate = \"10/d\"\n";
    let config = format!("{DEMO}{rules}{}", table(&path, "sample = 0"));
    let mut gateway = Gateway::start(&config);
    let mut client = gateway.connect();
    for _ in 0..15 {
        client.send(&Request::get("/"));
    }
    gateway.terminate();
    assert_eq!(gateway.exit().0, Some(0));
    let statuses: Vec<Value> = lines(&path, 5).iter().map(|line| line["status"].clone()).collect();
    assert_eq!(statuses, [json!(429), json!(429), json!(429), json!(429), json!(429)]);
}

/// Also if the shadow rule would have denied the request because of a missing key.
#[test]
fn shadow_denials_are_always_logged() {
    let demanding = "[rules.r]\nper = [\"key\"]\nrate = \"10/d\"\non_missing = \"deny\"\n\
        mode = \"shadow\"\n";
    let counted = "[rules.all]\nper = []\nrate = \"9/d\"\n";
    for more in ["", counted] {
        let (_folder, path) = place();
        let config = format!("{DEMO}{demanding}{more}{}", table(&path, "sample = 0"));
        let mut gateway = Gateway::start(&config);
        assert_eq!(gateway.get("/").status, 200);
        gateway.terminate();
        assert_eq!(gateway.exit().0, Some(0));
        let line = &lines(&path, 1)[0];
        assert_eq!(line["decision"], "shadow_deny");
        assert_eq!((&line["rule"], &line["source"]), (&json!("r"), &json!("policy")));
        assert_eq!(line["shadow_rules"], json!(["r"]));
    }
}

#[test]
fn malformed_input_is_logged_as_one_line_of_json() {
    let (_folder, path) = place();
    let config = format!("trusted_proxies = [\"127.0.0.1\"]\n{DEMO}{}", table(&path, ""));
    let mut gateway = Gateway::start(&config);
    let long = "/x".repeat(3_000);
    let targets: [&[u8]; 9] = [
        b"/quote\"}\\",
        b"/{\"time\":0}",
        b"/\xff\xfe\xc3\x28",
        "/ü\u{2028}\u{85}".as_bytes(),
        b"/%00%0a%0d%22",
        b"/\x01\x02\x1b[31m",
        b"/a\x7f",
        b"/?a=\"\n",
        long.as_bytes(),
    ];
    let mut answered = 0;
    for target in targets {
        let head = [b"GET ", target, b" HTTP/1.1\r\nHost: a\r\nX-Request-Id: \"a\\\r\n"];
        let malformed =
            b"X-Forwarded-For: \"},{\xff\r\nUser-Agent: \"\\\xff\r\nConnection: close\r\n\r\n";
        let mut client = gateway.connect();
        client.write(&[&head.concat()[..], malformed].concat());
        answered += usize::from(client.try_read_response("GET").is_some());
    }
    assert!(answered > 5, "{answered}");
    gateway.send(&Request::new("M!#$%&'*+-.^_`|~", "/"));
    gateway.terminate();
    assert_eq!(gateway.exit().0, Some(0));
    let text = std::fs::read(&path).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.lines().count() > 5, "{text}");
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).expect(line);
        assert_eq!(line.as_object().unwrap().len(), MEMBERS, "{line}");
        assert!(line["path"].as_str().unwrap().len() < 2_100, "{line}");
    }
    let paths: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["path"].clone())
        .collect();
    assert!(paths.contains(&json!("/quote\"}\\")), "{paths:?}");
    assert!(paths.iter().any(|path| path.as_str().unwrap().ends_with('…')), "{paths:?}");
}

#[test]
fn subject_of_a_client_certificate_is_logged_and_limited_over_http1_and_http2() {
    let authority = Authority::new();
    let api = authority.issue("api", &["api.test"]);
    let [alice, bob] = ["alice", "bob"].map(|name| authority.issue_client(name));
    let (_folder, path) = place();
    let listener = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\ncertificates = [{}]\nclient_ca = {:?}\n\
         client_auth = \"optional\"\n",
        api.entry(),
        authority.ca()
    );
    let rule = "[rules.cert]\nper = [\"cert\"]\nrate = \"2/d\"\n";
    let fields = "fields = [\"cert_subject\", \"status\", \"rule\"]";
    let gateway = Gateway::start(&format!("\n{listener}{DEMO}{rule}{}", table(&path, fields)));
    let url = format!("https://api.test:{}/", gateway.listener(1).port());
    let ca = authority.ca();
    let send = |version: &str, issued: Option<&Issued>| {
        let own = issued.map(|issued| ["--cert", &issued.certificate, "--key", &issued.key]);
        let own: Vec<&str> = own.into_iter().flatten().collect();
        let base = ["--cacert", &ca, "--connect-to", "::127.0.0.1:", "-o", "/dev/null"];
        let shown = ["-w", "%{http_version} %{http_code}\n", version];
        // Two requests on one connection.
        curl(&[&base[..], &shown, &own, &[&url, "-o", "/dev/null", &url]].concat()).text()
    };
    // Each is sent when the lines before it are there: those of two connections have no order.
    assert_eq!(send("--http1.1", Some(&alice)), "1.1 200\n1.1 200\n");
    lines(&path, 2);
    assert_eq!(send("--http2", Some(&alice)), "2 429\n2 429\n");
    lines(&path, 4);
    assert_eq!(send("--http2", Some(&bob)), "2 200\n2 200\n");
    lines(&path, 6);
    assert_eq!(send("--http1.1", Some(&bob)), "1.1 429\n1.1 429\n");
    lines(&path, 8);
    // The connection of another client does not inherit the subject.
    assert_eq!(send("--http2", None), "2 200\n2 200\n");
    let [alice, bob] = ["CN=alice,O=tests", "CN=bob,O=tests"].map(Some);
    let limited = Some("cert");
    let expected = [
        (alice, 200, limited),
        (alice, 429, limited),
        (bob, 200, limited),
        (bob, 429, limited),
        (None, 200, None),
    ];
    let expected: Vec<Value> = expected
        .iter()
        .flat_map(|line| [line; 2])
        .map(|(subject, status, rule)| json!({"cert_subject": subject, "status": status, "rule": rule}))
        .collect();
    assert_eq!(lines(&path, 10), expected);
}

#[test]
fn versions_of_http_and_tls_and_the_server_name_are_logged() {
    let authority = Authority::new();
    let api = authority.issue("api", &["api.test"]);
    let (_folder, path) = place();
    let listener =
        format!("[[listeners]]\naddress = \"127.0.0.1:0\"\ncertificates = [{}]\n", api.entry());
    let fields = "fields = [\"http\", \"tls_version\", \"tls_cipher\", \"sni\", \"grpc_status\"]";
    let gateway = Gateway::start(&format!("\n{listener}{DEMO}{}", table(&path, fields)));
    let secure = format!("https://api.test:{}/", gateway.listener(1).port());
    let clear = format!("http://{}/", gateway.address);
    let by_address = format!("https://{}/", gateway.listener(1));
    let ca = authority.ca();
    let mut count = 0;
    let mut send = |arguments: &[&str]| {
        let base = ["--cacert", &*ca, "--connect-to", "::127.0.0.1:", "-o", "/dev/null"];
        curl(&[&base[..], arguments].concat());
        count += 1;
        // The lines of two connections have no order.
        lines(&path, count);
    };
    send(&["--http1.0", &clear]);
    send(&["--http1.1", &clear]);
    let cipher = ["--tls-max", "1.2", "--ciphers", "ECDHE-ECDSA-AES256-GCM-SHA384"];
    send(&[&cipher[..], &["--http1.1", &secure]].concat());
    send(&["--tls13-ciphers", "TLS_AES_128_GCM_SHA256", "--http2", &secure]);
    // Clients send no address as a server name. A call that the gateway answers itself has its
    // status in the head.
    let call = ["--request", "TRACE", "-H", "content-type: application/grpc", "-k"];
    send(&[&call[..], &["--tls13-ciphers", "TLS_AES_128_GCM_SHA256", &by_address]].concat());
    let line = |http: &str, tls: [Option<&str>; 3], grpc: Option<u32>| {
        let [version, cipher, sni] = tls;
        json!({"http": http, "tls_version": version, "tls_cipher": cipher, "sni": sni, "grpc_status": grpc})
    };
    let sni = Some("api.test");
    let strong = Some("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384");
    let modern = [Some("TLSv1.3"), Some("TLS13_AES_128_GCM_SHA256")];
    let expected = [
        line("1.0", [None; 3], None),
        line("1.1", [None; 3], None),
        line("1.1", [Some("TLSv1.2"), strong, sni], None),
        line("2", [modern[0], modern[1], sni], None),
        line("2", [modern[0], modern[1], None], Some(3)),
    ];
    assert_eq!(lines(&path, 5), expected);
}
