//! No text makes the reader panic, and numbers out of range are rejected.

use proptest::prelude::*;

use super::render;
use crate::load::from_text;

const EXAMPLE: &str = include_str!("../fixtures/example.toml");

/// Every number of the file: the beginning of its table, and its name.
const NUMBERS: [(&str, &str); 22] = [
    ("[server]", "threads"),
    ("[server]", "max_header_bytes"),
    ("[server]", "max_uri_bytes"),
    ("[server]", "instances"),
    ("[server]", "limits.max_connections"),
    ("[server]", "limits.max_connections_per_ip"),
    ("[server]", "http2.max_concurrent_streams"),
    ("[server]", "http2.max_header_list_bytes"),
    ("[server]", "http2.max_pending_resets"),
    ("[clients]", "ipv6_prefix"),
    ("[memory]", "max_buckets"),
    ("[redis]\nurl = 'redis://h'", "database"),
    ("[redis]\nurl = 'redis://h'", "breaker.timeouts"),
    ("[redis]\nurl = 'redis://h'", "breaker.window_calls"),
    ("[redis]\nurl = 'redis://h'", "breaker.window_timeouts"),
    ("[redis]\nurl = 'redis://h'", "breaker.probes"),
    ("[redis]\nurl = 'redis://h'", "breaker.ramp"),
    ("[rules.r]\nper = []\nrate = '1/d'", "burst"),
    ("[rules.r]\nper = []\nplans.default.rate = '1/d'", "plans.default.burst"),
    ("[keys.k]\nrules.r.rate = '1/d'", "rules.r.burst"),
    ("[routes.x]\npath = '/x'", "cost"),
    ("[server]", "limits.max_headers"),
];

/// Every text of the file that contains a number.
const TEXTS: [(&str, &str); 23] = [
    ("[server]", "read_timeout"),
    ("[server]", "drain_timeout"),
    ("[server]", "upgrade_timeout"),
    ("[server]", "limits.head_timeout"),
    ("[server]", "limits.handshake_timeout"),
    ("[server]", "http2.idle_timeout"),
    ("[server]", "http2.max_connection_age"),
    ("[routes.x]\npath = '/x'", "websocket_idle_timeout"),
    ("[[listeners]]\naddress = '[::]:1'", "address"),
    ("[redis]\nurl = 'redis://h'", "timeout"),
    ("[redis]\nurl = 'redis://h'", "breaker.window"),
    ("[redis]\nurl = 'redis://h'", "breaker.open"),
    ("[redis]\nurl = 'redis://h'", "breaker.open_max"),
    ("[redis]\nurl = 'redis://h'", "breaker.ramp_step"),
    ("[upstreams.x]\nservers = ['a:1']", "connect_timeout"),
    ("[rules.r]\nper = []", "rate"),
    ("[rules.r]\nper = []\nburst = 1", "plans.default.rate"),
    ("[keys.k]", "rules.r.rate"),
    ("[rules.r]\nper = []", "limit"),
    ("[rules.r]\nper = []\nburst = 1", "plans.default.limit"),
    ("[keys.k]", "rules.r.limit"),
    ("[rules.r]\nper = []\nrate = '1/d'", "burst"),
    ("[rules.r]\nper = []\nlimit = '7/d'", "burst"),
];

/// Settings whose text has a syntax of its own: the beginning of the table, and the name.
const NEW_SETTINGS: [(&str, &str); 14] = [
    ("[[listeners]]", "address"),
    ("[[listeners]]\naddress = 'unix:/a'", "mode"),
    ("[[listeners]]\naddress = '[::]:1'", "certificates"),
    ("[[listeners]]\naddress = '[::]:1'\ncertificates = ['acme']", "hsts"),
    ("[[listeners]]\naddress = '[::]:1'\ncertificates = ['acme']", "client_ca"),
    ("[acme]\ndomains = ['a.b']", "directory"),
    ("[acme]\ndomains = ['a.b']", "email"),
    ("[acme]\ndomains = ['a.b']", "storage"),
    ("[acme]\ndomains = ['a.b']\nstorage = 'redis'", "storage_key"),
    ("[acme]", "domains"),
    ("[acme.eab]\nkey_id = 'a'", "hmac_key"),
    ("[upstreams.z]", "servers"),
    ("[upstreams.z]\nservers = ['https://h']", "tls"),
    ("[upstreams.z]\nservers = ['https://h']", "tls.server_name"),
];

/// Fault 28: NaN, infinite, negative, zero and huge numbers are refused with path and line.
#[test]
fn numbers_out_of_range_are_rejected() {
    let values = [
        "0",
        "-1",
        "9223372036854775808",
        "1000000000000000000000000000000",
        "1.5",
        "nan",
        "-nan",
        "inf",
        "-inf",
        "1e308",
        "1e999",
        "'1'",
        "'nan'",
        "true",
        "[]",
        "{}",
        "1979-05-27",
    ];
    for (table, name) in NUMBERS {
        for value in values {
            // A cost may have decimals; databases count from 0.
            if (name, value) == ("cost", "1.5") || (name, value) == ("database", "0") {
                continue;
            }
            let shown = render(&format!("{table}\n{name} = {value}"));
            let line = 2 + table.lines().count() - 1;
            assert!(
                shown.contains(&format!("gateway.toml:{line}:")),
                "{table} {name} = {value}:\n{shown}"
            );
        }
    }
}

#[test]
fn rates_and_durations_out_of_range_are_rejected() {
    let values = [
        "0",
        "-1",
        "''",
        "'0'",
        "'0s'",
        "'0/s'",
        "'1/0s'",
        "'-1s'",
        "'-1/s'",
        "'9223372036854775808/ms'",
        "'1/9223372036854775808d'",
        "'99999999999999999999d'",
        "nan",
        "'nan'",
        "'inf/s'",
        "1e308",
        "'1e308s'",
        "'1.5/s'",
        "'0.000000001/ms'",
        "'999999999.999999999k/0.000000001d'",
        "'10rps'",
        "'10 per second'",
        "':8080'",
        "'1.5s'",
        "true",
        "[]",
        "{}",
    ];
    for (table, name) in TEXTS {
        for value in values {
            let shown = render(&format!("{table}\n{name} = {value}"));
            let line = 2 + table.lines().count() - 1;
            assert!(
                shown.contains(&format!("gateway.toml:{line}:")),
                "{table} {name} = {value}:\n{shown}"
            );
        }
    }
}

#[test]
fn files_with_10_000_errors_are_read() {
    let rule = |n| format!("[rules.r{n}]\nper = ['i']\nrate = '1'");
    let shown = render(&(0..5_000).map(rule).collect::<Vec<_>>().join("\n"));
    assert!(
        shown.contains("and 9950 more\ngateway.toml: 10000 errors\n"),
        "{}",
        &shown[shown.len() - 99..]
    );
    assert_eq!(shown.matches("error:").count(), 50);

    // Three errors in each rule. What is missing is not reported beyond 1000 errors.
    let rule = |n| format!("[rules.r{n}]\nburst = []");
    let shown = render(&(0..500).map(rule).collect::<Vec<_>>().join("\n"));
    assert!(shown.contains("gateway.toml: 1000 errors"), "{}", &shown[shown.len() - 99..]);
}

#[test]
fn long_lines_are_cut() {
    let long = "x".repeat(1 << 20);
    for text in [
        format!("[rules.r]\nper = []\nrate = \"{long}\""),
        format!("[rules.r]\nper = [\"{long}\"]\nrate = '1/s'"),
        format!("[rules.{long}]\nper = []\nrate = '1/s'"),
        format!("[rules.r]\n{long} = 1"),
        format!("[server]\nlisten = [\"{long}\"]\nadmin = \"{long}\""),
        format!("[rules.r]\nmode = \"{long}\""),
        format!("[rules.r]\nper = []\nrate = 1 # {long}"),
        format!("[routes.x]\npath = \"/{long}*\""),
        long.clone(),
    ] {
        let shown = render(&text);
        assert!(shown.len() < 4000, "{} bytes: {}", shown.len(), &shown[..2000]);
        assert!(
            shown.lines().all(|line| line.chars().count() < 500),
            "{}",
            &shown[..4000.min(shown.len())]
        );
    }
}

/// They neither exhaust the stack nor fill the terminal.
#[test]
fn deep_and_dense_files_have_short_errors() {
    let deep = "a.".repeat(200_000);
    for text in [
        format!("{deep}a = 1"),
        format!("[{deep}a]"),
        format!("a = {}", "[".repeat(200_000)),
        format!("a = {}", "{a=".repeat(200_000)),
        "=".repeat(25_000),
        "x\n".repeat(12_500),
        "x \"".repeat(12_500),
        "[a]\n".repeat(12_500),
        "[[rules.a]]\n".repeat(12_500),
        format!("[rules.r]\nper = [{}]", "'x',".repeat(12_500)),
    ] {
        assert!(render(&text).len() < 100_000, "{} …", &text[..20]);
    }
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    #[test]
    fn any_text_is_read_without_a_panic(text in "\\PC{0,300}") {
        let _ = from_text("a", &text).map_err(|report| report.render(true));
    }

    #[test]
    fn any_lines_are_read_without_a_panic(
        lines in prop::collection::vec(r#"(\[\[?)?[a-z.]{0,9}\]{0,2} ?=? ?["'\[{]{0,3}[a-z0-9/é-]{0,6}["'\]},]{0,3}(\r)?"#, 0..12),
    ) {
        let _ = from_text("a", &lines.join("\n")).map_err(|report| report.render(false));
    }

    #[test]
    fn any_value_of_a_listener_certificate_or_server_is_read_without_a_panic(
        name in prop::sample::select(&NEW_SETTINGS[..]),
        value in "['\"\\[{]{0,2}[a-z0-9:/.*@=%#${}\\[\\] é-]{0,24}['\"\\]}]{0,2}",
        text in "\\PC{0,150}",
    ) {
        let (table, name) = name;
        let quoted = format!("{text:?}");
        for value in [&value, &quoted] {
            let text = format!("{EXAMPLE}\n{table}\n{name} = {value}\n");
            let _ = from_text("a", &text).map_err(|report| report.render(false));
        }
    }

    #[test]
    fn a_mutated_file_is_read_without_a_panic(
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0usize..40, "\\PC{0,6}|[\n\r\t\"'\\[\\]{}=,.#é]{0,4}"), 1..6),
    ) {
        let mut text = EXAMPLE.to_owned();
        for (at, length, insert) in cuts {
            let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            if places.is_empty() {
                break;
            }
            let start = at.get(&places);
            let end = text[*start..].char_indices().nth(length).map_or(text.len(), |(n, _)| start + n);
            text.replace_range(start..&end, &insert);
        }
        let _ = from_text("a", &text).map_err(|report| report.render(false));
    }
}
