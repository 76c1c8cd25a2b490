//! API keys that are missing, duplicated, malformed, unknown or too long.

use crate::support::{DEMO, Gateway, Request, eventually, key};

/// A configuration with two keys, and `more` in `[clients]`.
fn gateway(more: &str) -> Gateway {
    let keys = key("one", "first", "free") + &key("two", "second", "free");
    Gateway::start(&format!("{DEMO}{keys}[clients]\n{more}\n"))
}

/// The client id that the demo upstream returns, or the status of a denied request.
fn client(gateway: &Gateway, request: &Request) -> String {
    let answer = gateway.send(request);
    match answer.status {
        200 => answer.json()["client"].as_str().unwrap().to_string(),
        status => status.to_string(),
    }
}

fn header(secret: impl AsRef<[u8]>) -> Request {
    Request::get("/").header("X-Api-Key", secret)
}

fn bearer(secret: &str) -> Request {
    Request::get("/").header("Authorization", format!("Bearer {secret}"))
}

#[test]
fn api_key_is_found_in_every_configured_place() {
    let gateway = gateway("");
    let requests = [
        header("first"),
        bearer("first"),
        Request::get("/").header("authorization", "BEARER   first "),
        Request::get("/?api_key=first"),
        Request::get("/?other=1&api%5Fkey=%66irst&more"),
    ];
    for request in requests {
        assert_eq!(client(&gateway, &request), "one", "{request:?}");
    }
}

#[test]
fn row_32_two_different_keys_are_400() {
    let gateway = gateway("");
    let different = [
        header("first").header("X-Api-Key", "second"),
        header("first").header("Authorization", "Bearer second"),
        Request::get("/?api_key=second").header("X-Api-Key", "first"),
        Request::get("/?api_key=first&api_key=second"),
        bearer("first").header("Authorization", "Bearer second"),
        // Two unknown keys, and a key that differs from a known one.
        header("neither").header("Authorization", "Bearer nor"),
        header("first").header("Authorization", "Bearer FIRST"),
    ];
    for request in different {
        assert_eq!(client(&gateway, &request), "400", "{request:?}");
    }
    let same = [
        header("first").header("x-api-key", "first"),
        Request::get("/?api_key=first")
            .header("X-Api-Key", "first")
            .header("Authorization", "Bearer first"),
    ];
    for request in same {
        assert_eq!(client(&gateway, &request), "one", "{request:?}");
    }
}

#[test]
fn row_32_on_conflicting_keys_first_uses_the_first() {
    let gateway = gateway("on_conflicting_keys = \"first\"");
    // The first source in the order of `clients.api_key`, not in that of the header lines.
    let table = [
        (header("second").header("Authorization", "Bearer first"), "two"),
        (bearer("first").header("X-Api-Key", "second"), "two"),
        (Request::get("/?api_key=second").header("Authorization", "Bearer first"), "one"),
        (header("first").header("X-Api-Key", "second"), "one"),
        (header("unknown").header("Authorization", "Bearer first"), "401"),
    ];
    for (request, expected) in table {
        assert_eq!(client(&gateway, &request), expected, "{request:?}");
    }
}

#[test]
fn row_32_alias_of_the_key_header_is_not_a_key() {
    let gateway = gateway("");
    let alias = Request::get("/").header("x_api_key", "first");
    assert_eq!(client(&gateway, &alias), "anonymous");
    assert_eq!(client(&gateway, &alias.header("X-Api-Key", "second")), "two");
}

#[test]
fn row_30_key_above_1_kib_is_400() {
    let gateway = gateway("");
    let huge = "k".repeat(10 * 1024);
    // A target is limited to 8 KiB, so a huge key in the query is rejected for that reason.
    let in_query = |length: usize| Request::get(&format!("/?api_key={}", &huge[..length]));
    for request in [header(&huge), bearer(&huge), in_query(1_025), header(&huge[..1_025])] {
        assert_eq!(client(&gateway, &request), "400");
    }
    assert_eq!(client(&gateway, &in_query(10_240)), "414");
    assert_eq!(client(&gateway, &header(&huge[..1_024])), "401");
}

#[test]
fn row_30_key_can_be_any_bytes_that_http_allows() {
    let malformed: [&[u8]; 4] =
        [b"\xff\xfe", b"{braces} and spaces", b"\r\n\0", "schl\u{fc}ssel".as_bytes()];
    let keys: String = ["bytes", "braces", "breaks", "umlaut"]
        .iter()
        .zip(malformed)
        .map(|(id, secret)| key(id, secret, "free"))
        .collect();
    let gateway = Gateway::start(&format!("{DEMO}{keys}"));
    let table = [
        (header(b"\xff\xfe"), "bytes"),
        (header("{braces} and spaces"), "braces"),
        (header("schl\u{fc}ssel"), "umlaut"),
        (Request::get("/?api_key=%FF%fe"), "bytes"),
        (Request::get("/?api_key={braces}+and%20spaces"), "braces"),
        (Request::get("/?api_key=%0D%0A%00"), "breaks"),
        (Request::get("/?api_key=%00"), "401"),
        // In a header these bytes end the line or the request.
        (header(b"first\0"), "400"),
        (header(b"first\rsecond"), "400"),
    ];
    for (request, expected) in table {
        assert_eq!(client(&gateway, &request), expected, "{request:?}");
    }
}

#[test]
fn row_33_empty_key_counts_as_missing() {
    let gateway = gateway("");
    let empty = [
        header(""),
        header("   "),
        bearer(""),
        Request::get("/").header("Authorization", "Bearer"),
        Request::get("/").header("Authorization", "Basic Zmlyc3Q6"),
        Request::get("/?api_key="),
        Request::get("/?api_key"),
    ];
    for request in empty {
        assert_eq!(client(&gateway, &request), "anonymous", "{request:?}");
    }
    assert_eq!(client(&gateway, &header("").header("Authorization", "Bearer first")), "one");
}

#[test]
fn row_33_unknown_keys_are_counted_by_address_and_add_no_buckets() {
    let rules = r#"
[rules.per-key]
per = ["key"]
rate = "1000/d"

[rules.per-ip]
per = ["ip"]
rate = "20/d"
"#;
    let denies = "[clients]\non_unknown_key = \"deny\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{rules}{denies}"));
    let statuses: Vec<u16> =
        (0..30).map(|guess| gateway.send(&header(format!("guess {guess}"))).status).collect();
    assert_eq!(statuses[..20], [401; 20]);
    assert_eq!(statuses[20..], [429; 10]);
    // The buckets of the address, one for each rule.
    let buckets = gateway.count("tollgate_local_buckets", &[]);
    assert!((1..=2).contains(&buckets), "{buckets} buckets");
    // A request without a key counts for the same address.
    assert_eq!(gateway.get("/").status, 429);
}

#[test]
fn row_33_missing_key_is_401_if_on_missing_key_is_deny() {
    let rules = "[rules.per-ip]\nper = [\"ip\"]\nrate = \"2/d\"\n";
    let keys = key("one", "first", "free");
    let demand = "[clients]\non_missing_key = \"deny\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{rules}{keys}{demand}"));
    assert_eq!(client(&gateway, &header("first")), "one");
    assert_eq!(client(&gateway, &Request::get("/")), "401");
    assert_eq!(client(&gateway, &Request::get("/")), "429");
}

#[test]
fn preflight_without_a_key_is_anonymous_if_on_preflight_is() {
    let rules = "[rules.per-ip]\nper = [\"ip\"]\nrate = \"4/d\"\n\
                 [rules.demanding]\nper = [\"key\"]\nrate = \"9/d\"\non_missing = \"deny\"\n";
    let keys = key("one", "first", "free");
    let preflight = || {
        let options = Request::new("OPTIONS", "/").header("Origin", "https://app.test");
        options.header("Access-Control-Request-Method", "POST")
    };
    for required in ["on_missing_key = \"deny\"", ""] {
        let file = |on_preflight: &str| {
            format!("{DEMO}{rules}{keys}[clients]\n{required}\n{on_preflight}\n")
        };
        for default in ["", "on_preflight = \"deny\""] {
            assert_eq!(client(&Gateway::start(&file(default)), &preflight()), "401", "{default}");
        }
        let gateway = Gateway::start(&file("on_preflight = \"anonymous\""));
        // It is counted, so that it is no way around the limits of an address.
        assert_eq!(client(&gateway, &preflight()), "anonymous", "{required}");
        // Not a preflight request, or one with an unknown key.
        let page = Request::new("OPTIONS", "/").header("Origin", "https://app.test");
        assert_eq!(client(&gateway, &page), "401");
        assert_eq!(client(&gateway, &preflight().header("X-Api-Key", "guess")), "401");
        assert_eq!(client(&gateway, &header("first")), "one");
        assert_eq!(client(&gateway, &preflight()), "429", "{required}");
    }
}

#[test]
fn row_33_unknown_keys_are_accepted_if_on_unknown_key_is_accept() {
    let rule = "[rules.per-key]\nper = [\"key\"]\nrate = \"9/d\"\n";
    // (on_unknown_key, remaining tokens after two requests with unknown keys and one without a key)
    for (word, expected) in [("anonymous", [8, 7, 6]), ("accept", [8, 8, 8])] {
        let setting = format!("[clients]\non_unknown_key = \"{word}\"\n");
        let gateway = Gateway::start(&format!("{DEMO}{rule}{setting}"));
        let requests = [header("unknown"), header("other"), Request::get("/")];
        let left = requests.map(|request| gateway.send(&request).remaining());
        assert_eq!(left, expected, "on_unknown_key = {word}");
    }
}

#[test]
fn request_needs_exactly_one_host() {
    let gateway = gateway("");
    let get = || Request::get("/");
    let table = [
        (get().without("Host"), "400"),
        (get().header("Host", "other.test"), "400"),
        (get().without("Host").header("Host", ""), "anonymous"),
        (get().without("Host").header("Host", "[::1]:80"), "anonymous"),
    ];
    for (request, expected) in table {
        assert_eq!(client(&gateway, &request), expected, "{request:?}");
    }
}

/// The limit of one line a minute is tested in `gateway::telemetry::bearer_hint`.
#[test]
fn refused_bearer_tokens_are_explained_in_the_log() {
    let gateway = gateway("");
    assert_eq!(client(&gateway, &header("wrong")), "401");
    assert_eq!(client(&gateway, &bearer("first")), "one");
    let hints = || -> Vec<String> {
        let log = gateway.log();
        let hints = log.lines().filter(|line| line.contains("bearer tokens were refused"));
        hints.map(str::to_owned).collect()
    };
    assert_eq!(hints(), [""; 0]);
    for _ in 0..3 {
        assert_eq!(client(&gateway, &bearer("token-of-the-api")), "401");
    }
    let hint = eventually("the hint", || hints().pop());
    assert!(hint.contains("count=1") && hint.contains("clients.api_key"), "{hint}");
    assert!(!hint.contains("token-of-the-api"), "{hint}");
    assert_eq!(hints().len(), 1);
}

/// What other gateways and the API itself use as tokens and keys.
#[test]
fn file_without_keys_takes_nothing_for_a_key() {
    let requests = [
        header("of the API"),
        bearer("eyJhbGciOiJIUzI1NiJ9.e30.x"),
        Request::get("/?api_key=abc"),
        Request::get("/?api_key=abc").header("X-Api-Key", "another"),
        header("x".repeat(2_000)),
    ];
    let rule = "[rules.per-key]\nper = [\"key\"]\nrate = \"5/d\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{rule}"));
    for request in &requests {
        assert_eq!(client(&gateway, request), "anonymous", "{request:?}");
    }
    // All of them are one client, that of the address.
    assert_eq!(client(&gateway, &requests[1]), "429");
    for (setting, expected) in [("deny", 401), ("accept", 200), ("anonymous", 200)] {
        let clients = format!("[clients]\non_unknown_key = \"{setting}\"\n");
        let gateway = Gateway::start(&format!("{DEMO}{clients}"));
        assert_eq!(gateway.send(&requests[1]).status, expected, "{setting}");
        assert_eq!(gateway.send(&requests[3]).status, 400, "{setting}");
    }
}
