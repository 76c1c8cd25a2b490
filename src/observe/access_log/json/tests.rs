use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};

use http::{HeaderValue, Method, Version};
use proptest::option::of as maybe;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde::Serialize;

use super::*;
use crate::client::principal::{Principal, Tenant};
use crate::client::{Client, ClientKey};
use crate::decide::decision::Summary;
use crate::decide::label::DecisionLabel;
use crate::limit::cost::{Amount, Cost};
use crate::load::from_text;
use crate::net::tls_info::{ClientCertificate, TlsInfo};
use crate::observe::access_log::{Timings, UpstreamMarks, UpstreamTimes};
use crate::observe::traces::context::TraceId;
use crate::policy::Policy;
use crate::policy::access_log::fields::RequestHeader;
use crate::store::limiter::Source;

const FILE: &str = r#"
[plans.free]
[plans.pro]
[keys.acme]
sha256 = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
plan = "pro"
[upstreams.api]
servers = ["demo"]
[routes.all]
[rules.per-key]
per = ["key"]
rate = "2/d"
[access_log]
client_ip = "#;

/// Subject of the client's certificate.
const SUBJECT: &str = "CN=alice,O=tests";

/// A record for serde, with the members in the order of a line.
#[derive(Serialize)]
struct SerdeRecord<'a> {
    time: UtcTime,
    id: &'a str,
    trace_id: Option<TraceId>,
    generation: u64,
    key: Option<&'a str>,
    key_name: Option<String>,
    key_from: Option<String>,
    tenant: Option<String>,
    ip: Option<ShownAddress>,
    plan: Option<&'a str>,
    method: &'a str,
    path: &'a str,
    route: Option<&'a str>,
    decision: &'static str,
    rule: Option<&'a str>,
    shadow_rules: Vec<&'a str>,
    cost: Option<Cost>,
    remaining: Option<u64>,
    source: Option<&'static str>,
    reason: Option<&'static str>,
    status: Option<u16>,
    bytes_in: u64,
    bytes_out: u64,
    upstream: Option<&'a str>,
    server: Option<SocketAddr>,
    total_ms: f64,
    check_ms: Option<f64>,
    wait_ms: Option<f64>,
    upstream_ms: Option<f64>,
    connection: Option<&'static str>,
    connect_ms: Option<f64>,
    request_body_ms: Option<f64>,
    first_byte_ms: Option<f64>,
    body_ms: Option<f64>,
    send_ms: Option<f64>,
}

#[allow(clippy::cast_precision_loss, reason = "a duration in microseconds is far below 2^53")]
fn milliseconds(us: u64) -> f64 {
    us as f64 / 1_000.0
}

fn by_serde(record: &Record) -> String {
    let resolved = Resolved::of(record);
    let parts = record.timings.parts;
    let members = SerdeRecord {
        time: UtcTime(record.time),
        id: &record.request_id,
        trace_id: record.trace_id,
        generation: record.generation,
        key: resolved.key.map(|key| &*key.id),
        key_name: record.key_name.as_ref().map(ToString::to_string),
        key_from: resolved.key_from.map(ToString::to_string),
        tenant: resolved.tenant.map(ToOwned::to_owned),
        ip: resolved.ip,
        plan: resolved.plan,
        method: truncated(record.method.as_str()),
        path: &record.path,
        route: resolved.route.map(|route| &*route.name),
        decision: record.decision.label.as_str(),
        rule: resolved.rule.map(|rule| &*rule.name),
        shadow_rules: resolved.shadow_rules.iter().map(|rule| &*rule.name).collect(),
        cost: record.decision.cost,
        remaining: record.decision.remaining,
        source: record.decision.source.map(source_label),
        reason: record.reason.map(Reason::label),
        status: record.status,
        bytes_in: record.bytes_in,
        bytes_out: record.bytes_out,
        upstream: resolved.upstream.map(|upstream| &*upstream.name),
        server: record.server,
        total_ms: milliseconds(record.timings.total),
        check_ms: record.timings.check.map(milliseconds),
        wait_ms: record.timings.wait.map(milliseconds),
        upstream_ms: record.timings.upstream.map(milliseconds),
        connection: record.is_reused.map(connection),
        connect_ms: parts.connect.map(milliseconds),
        request_body_ms: parts.request_body.map(milliseconds),
        first_byte_ms: parts.first_byte.map(milliseconds),
        body_ms: parts.body.map(milliseconds),
        send_ms: parts.send.map(milliseconds),
    };
    serde_json::to_string(&members).unwrap() + "\n"
}

fn policies() -> impl Strategy<Value = Arc<Policy>> {
    let policy =
        |client_ip| Arc::new(from_text("gateway.toml", &format!("{FILE}{client_ip:?}")).unwrap());
    let all = ["hashed", "plain", "off"].map(policy);
    (0..3_usize).prop_map(move |index| Arc::clone(&all[index]))
}

fn clients() -> impl Strategy<Value = Client> {
    let keys = prop_oneof![
        Just(ClientKey::Missing),
        Just(ClientKey::Known(Arc::new(Principal::new("acme".into(), 1, true)))),
        any::<[u8; 32]>().prop_map(ClientKey::Unknown)
    ];
    let tenant = maybe(Just(Arc::new(Tenant::new("group".into(), None))));
    let client = |(ip, key, plan, tenant)| Client { ip, key, plan, tenant, certificate: None };
    (maybe(any::<IpAddr>()), keys, 0..2_u32, tenant).prop_map(client)
}

/// Costs with and without decimals.
fn costs() -> impl Strategy<Value = Cost> {
    let thousandths = prop_oneof![1..10_000_000_u64, (1..u64::MAX / 1_000).prop_map(|n| n * 1_000)];
    thousandths.prop_map(|thousandths| Cost::from_thousandths(thousandths).unwrap())
}

prop_compose! {
    fn records()(
        policy in policies(),
        (time, total) in (any::<u64>(), 0..1_000_000_000_000_u64),
        (request_id, path) in (".*", ".*"),
        trace_id in maybe(any::<u128>()),
        client in maybe(clients()),
        method in "[A-Z!#$%&'*+.^_`|~0-9a-z-]{1,80}",
        (route, rule) in (maybe(0..2_u32), maybe(0..2_u32)),
        shadow_rules in proptest::collection::vec(0..2_u32, 0..3),
        reason in maybe(proptest::sample::select(&Reason::ALL[..])),
        (remaining, cost, status) in (maybe(any::<u64>()), maybe(costs()), maybe(any::<u16>())),
        source in maybe(Just(Source::Redis)),
        (bytes_in, bytes_out) in any::<(u64, u64)>(),
        server in maybe(any::<SocketAddr>()),
        (check, wait, upstream) in
            (maybe(0..5_000_u64), maybe(0..9_000_000_u64), maybe(any::<u32>().prop_map(u64::from))),
        (generation, is_reused) in (any::<u64>(), maybe(any::<bool>())),
        (key_from, key_name) in (maybe(0..4_usize), maybe("[a-z]{1,3}")),
        marks in proptest::array::uniform5(maybe(0..9_000_u64)),
    ) -> Record {
        Record {
            policy,
            time,
            request_id,
            trace_id: trace_id.and_then(TraceId::of),
            client,
            method: Method::from_bytes(method.as_bytes()).unwrap(),
            path: Record::path(&path),
            route,
            upstream: route,
            decision: Summary { label: DecisionLabel::Allow, rule, remaining, cost, source },
            shadow_rules,
            reason,
            status,
            bytes_in,
            bytes_out,
            server,
            generation,
            key_from,
            key_name: key_name.map(Arc::from),
            is_reused,
            timings: Timings { total, check, wait, upstream, parts: parts(marks) },
        }
    }
}

fn parts([selected, connected, request, head, body]: [Option<u64>; 5]) -> UpstreamTimes {
    UpstreamMarks { selected, connected, request, head, body }.times(10_000)
}

/// Each phase is slow in one row, and only its own time is long.
#[test]
fn slow_part_is_in_its_own_time_only() {
    let slow = 1_000;
    for index in 0..5 {
        let mut now = 50;
        let marks: [Option<u64>; 6] = std::array::from_fn(|part| {
            now += if part == index + 1 { slow } else { 1 };
            Some(now)
        });
        let [selected, connected, request, head, body, end] = marks;
        let marks = UpstreamMarks { selected, connected, request, head, body };
        let UpstreamTimes { connect, request_body, first_byte, body, send } =
            marks.times(end.unwrap());
        let times = [connect, request_body, first_byte, body, send].map(Option::unwrap);
        assert_eq!(times[index], slow, "{index}");
        assert_eq!(times.iter().sum::<u64>(), slow + 4, "{index}");
    }
}

#[test]
fn response_before_the_end_of_the_request_ends_the_wait_for_its_body() {
    let times = parts([Some(0), Some(10), Some(90), Some(30), None]);
    let expected = [Some(10), Some(20), Some(0), None, None];
    let UpstreamTimes { connect, request_body, first_byte, body, send } = times;
    assert_eq!([connect, request_body, first_byte, body, send], expected);
    let without_body = parts([Some(0), Some(10), None, Some(30), Some(40)]);
    assert_eq!((without_body.request_body, without_body.first_byte), (None, Some(20)));
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    #[test]
    fn line_equals_the_json_of_serde(record in records()) {
        let mut lines = b"before\n".to_vec();
        append(&mut lines, &record, &parts_of(&HeaderMap::new()));
        prop_assert_eq!(std::str::from_utf8(&lines).unwrap(), format!("before\n{}", by_serde(&record)));
    }
}

/// A gRPC call over TLS with a client certificate.
fn parts_of(headers: &HeaderMap) -> RequestParts<'_> {
    static TLS: LazyLock<TlsInfo> = LazyLock::new(|| tls(Some(SUBJECT)));
    static GRPC_STATUS: HeaderValue = HeaderValue::from_static("14");
    static COSTS: [(u32, Amount); 1] = [(0, Amount::of_thousandths(12_500))];
    let version = Version::HTTP_2;
    RequestParts {
        headers,
        version,
        tls: Some(&TLS),
        grpc_status: Some(&GRPC_STATUS),
        attempts: 2,
        costs: &COSTS,
    }
}

fn tls(subject: Option<&str>) -> TlsInfo {
    let client = subject.map(|subject| ClientCertificate {
        subject: subject.into(),
        serial: "01".into(),
        fingerprint: "02".into(),
    });
    let (version, cipher) = ("TLSv1.3", "TLS13_AES_128_GCM_SHA256");
    TlsInfo { version, cipher, server_name: Some("api.test".into()), client }
}

/// The line of a request with one listed field.
fn value_of(field: &str, request: &RequestParts<'_>) -> serde_json::Value {
    let file = format!("{FILE}\"plain\"\nfields = [\"{field}\"]");
    let mut runner = TestRunner::deterministic();
    let mut record = records().new_tree(&mut runner).unwrap().current();
    record.policy = Arc::new(from_text("gateway.toml", &file).unwrap());
    let mut line = Vec::new();
    append(&mut line, &record, request);
    serde_json::from_slice::<serde_json::Value>(&line).unwrap()[field].take()
}

#[test]
fn properties_of_the_connection_are_null_in_clear() {
    let headers = HeaderMap::new();
    let version = Version::HTTP_10;
    let clear = RequestParts {
        headers: &headers,
        version,
        tls: None,
        grpc_status: None,
        attempts: 0,
        costs: &[],
    };
    assert_eq!(value_of("http", &clear), "1.0");
    for field in ["tls_version", "tls_cipher", "sni", "cert_subject", "grpc_status", "costs"] {
        assert_eq!(value_of(field, &clear), serde_json::Value::Null, "{field}");
    }
}

#[test]
fn costs_are_shown_by_rule() {
    let rule = records().new_tree(&mut TestRunner::deterministic()).unwrap().current();
    let rule = rule.policy.rules[0].name.to_string();
    let headers = HeaderMap::new();
    assert_eq!(value_of("costs", &parts_of(&headers)), serde_json::json!({rule: 12.5}));
}

#[test]
fn server_name_is_escaped_and_bounded() {
    let headers = HeaderMap::new();
    let long = "x".repeat(1_025);
    let cut = format!("{}…", &long[1..]);
    for (sent, shown) in [("a\"\n\u{0}\\", "a\"\n\u{0}\\"), (&long, &*cut)] {
        let tls = TlsInfo { server_name: Some(sent.into()), ..tls(None) };
        let request = RequestParts { tls: Some(&tls), ..parts_of(&headers) };
        assert_eq!(value_of("sni", &request), shown);
    }
}

#[test]
fn grpc_status_is_a_number_or_null() {
    let headers = HeaderMap::new();
    for (sent, shown) in [
        (&b"0"[..], serde_json::json!(0)),
        (b"16", serde_json::json!(16)),
        (b"", serde_json::Value::Null),
        (b"ok", serde_json::Value::Null),
        (b"99999999999", serde_json::Value::Null),
        (b"\xff", serde_json::Value::Null),
    ] {
        let value = HeaderValue::from_bytes(sent).unwrap();
        let request = RequestParts { grpc_status: Some(&value), ..parts_of(&headers) };
        assert_eq!(value_of("grpc_status", &request), shown, "{sent:?}");
    }
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    #[test]
    fn subject_of_the_certificate_is_shown_if_it_is_listed(mut record in records()) {
        let file = format!("{FILE}\"plain\"\nfields = [\"cert_subject\"]");
        record.policy = Arc::new(from_text("gateway.toml", &file).unwrap());
        let long = "x".repeat(1_025);
        let shortened = format!("{}…", &long[1..]);
        let odd = "CN=\"a\\,b\n\"";
        for (subject, shown) in
            [(None, None), (Some(odd), Some(odd)), (Some(&long), Some(&*shortened))]
        {
            let mut line = Vec::new();
            let (headers, tls) = (HeaderMap::new(), tls(subject));
            let request = RequestParts { tls: Some(&tls), ..parts_of(&headers) };
            append(&mut line, &record, &request);
            let line: serde_json::Value = serde_json::from_slice(&line).unwrap();
            prop_assert_eq!(line, serde_json::json!({ "cert_subject": shown }));
        }
    }
}

/// Any fields, each once, in any order.
fn field_lists() -> impl Strategy<Value = Vec<Field>> {
    let header = |name| Field::Header(RequestHeader::new(HeaderName::from_static(name)));
    let names = Field::names().into_iter().filter_map(Field::named);
    let all: Vec<Field> = names.chain(["user-agent", "referer"].map(header)).collect();
    let most = all.len();
    proptest::sample::subsequence(all, 1..=most).prop_shuffle()
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    #[test]
    fn line_with_listed_fields_has_the_same_values_in_that_order(
        mut record in records().boxed(),
        fields in field_lists(),
        agent in maybe("[ !-~\u{80}-\u{10ffff}&&[^?]]{0,100}"),
    ) {
        let every: serde_json::Value = serde_json::from_str(&by_serde(&record)).unwrap();
        let agent = agent.map(|agent| HeaderValue::from_bytes(agent.as_bytes()).unwrap());
        let mut headers = HeaderMap::new();
        headers.extend(agent.clone().map(|agent| (http::header::USER_AGENT, agent)));
        let members = fields.iter().map(|field| {
            let value = match field.member() {
                "header:user-agent" => {
                    serde_json::json!(agent.as_ref().map(|agent| str::from_utf8(agent.as_bytes()).unwrap()))
                }
                "header:referer" => serde_json::Value::Null,
                "http" => "2".into(),
                "tls_version" => "TLSv1.3".into(),
                "tls_cipher" => "TLS13_AES_128_GCM_SHA256".into(),
                "sni" => "api.test".into(),
                "cert_subject" => SUBJECT.into(),
                "grpc_status" => 14.into(),
                "attempts" => 2.into(),
                "costs" => serde_json::json!({"per-key": 12.5}),
                name => every[name].clone(),
            };
            format!("\"{}\":{value}", field.member())
        });
        let expected = format!("{{{}}}\n", members.collect::<Vec<_>>().join(","));
        let mut policy = from_text("gateway.toml", &format!("{FILE}\"plain\"")).unwrap();
        policy.access_log.client_ip = record.policy.access_log.client_ip;
        policy.access_log.salt.clone_from(&record.policy.access_log.salt);
        policy.access_log.fields = Fields::Listed(fields.into());
        record.policy = Arc::new(policy);
        let mut line = Vec::new();
        append(&mut line, &record, &parts_of(&headers));
        prop_assert_eq!(String::from_utf8(line).unwrap(), expected);
    }
}

#[test]
fn header_is_bounded_and_shows_no_query() {
    let name = HeaderName::from_static("referer");
    let long = "é".repeat(600);
    let cut = format!("{}…", "é".repeat(512));
    let table: [(&[&[u8]], Option<&str>); 8] = [
        (&[], None),
        (&[b""], Some("")),
        (&[b"a", b"b"], Some("a, b")),
        (&[b"\xff\"\\"], Some("\u{fffd}\"\\")),
        (&[b"http://a/b?api_key=secret"], Some("http://a/b?…")),
        (&[b"a", b"b?c", b"d"], Some("a, b?…")),
        (&[b"a?"], Some("a?")),
        (&[long.as_bytes(), b"b"], Some(&cut)),
    ];
    for (values, expected) in table {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(&name, HeaderValue::from_bytes(value).unwrap());
        }
        assert_eq!(header_text(&headers, &name).as_deref(), expected);
    }
}

#[test]
fn strings_are_escaped_like_serde_escapes_them() {
    for character in (0..=0x7f_u8).map(char::from).chain(['é', '\u{2028}', '\u{10ffff}']) {
        let mut text = Vec::new();
        let value = format!("a{character}b");
        let mut object = Object::open(&mut text);
        object.string("member", Some(&value));
        object.close();
        let expected = serde_json::json!({ "member": value }).to_string();
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
