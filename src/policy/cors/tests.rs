use proptest::prelude::*;

use super::origin::OriginError;
use super::*;

fn listed(origins: &[&str]) -> Cors {
    let patterns = origins.iter().map(|origin| OriginPattern::parse(origin).unwrap());
    Cors {
        origins: Origins::Listed(patterns.collect()),
        methods: None,
        headers: None,
        exposed: Exposed::default(),
        credentials: false,
        max_age_s: 600,
    }
}

fn any() -> Cors {
    Cors { origins: Origins::Any, ..listed(&[]) }
}

fn request(headers: &[(&str, &str)]) -> HeaderMap {
    let header = |(name, value): &(&str, &str)| {
        let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
        (HeaderName::from_bytes(name.as_bytes()).unwrap(), value)
    };
    let mut map = HeaderMap::new();
    for (name, value) in headers.iter().map(header) {
        map.append(name, value);
    }
    map
}

/// The headers as text: `Access-Control-Allow-Origin: *`.
fn lines(headers: Headers) -> Vec<String> {
    headers
        .into_iter()
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect()
}

#[test]
fn origin_is_compared_by_scheme_host_and_port() {
    let site = "https://app.example.com";
    let below = "https://*.example.com";
    let local = "http://localhost:5173";
    let table: [(&str, &str, bool); 47] = [
        (site, "https://app.example.com", true),
        (site, "HTTPS://App.Example.COM", true),
        (site, "https://app.example.com:443", true),
        ("https://app.example.com:443", "https://app.example.com", true),
        ("https://APP.example.com", "https://app.example.com", true),
        (site, "http://app.example.com", false),
        (site, "https://app.example.com:8443", false),
        (site, "https://app.example.com:80", false),
        (site, "https://app.example.com.", false),
        (site, "https://app.example.com/", false),
        (site, "https://app.example.com:", false),
        (site, "https://app.example.com:443:443", false),
        (site, "https://app.example.com.evil.test", false),
        (site, "https://evilapp.example.com", false),
        (site, "https://evil.test", false),
        (site, "https://app.example.com@evil.test", false),
        (site, "https://evil.test#https://app.example.com", false),
        (site, " https://app.example.com", false),
        (site, "https://app.example.com https://evil.test", false),
        (site, "https://app.example.com, https://evil.test", false),
        (site, "app.example.com", false),
        (site, "null", false),
        (site, "", false),
        (site, "*", false),
        ("null", "null", true),
        ("null", "NULL", false),
        ("null", "https://null", false),
        (local, "http://localhost:5173", true),
        (local, "http://localhost", false),
        (local, "http://localhost:51730", false),
        ("http://[::1]:3000", "http://[::1]:3000", true),
        ("http://[0:0:0:0:0:0:0:1]", "http://[::1]", true),
        ("http://127.0.0.1", "http://127.0.0.1:80", true),
        ("capacitor://localhost", "capacitor://localhost", true),
        ("capacitor://localhost", "ionic://localhost", false),
        ("chrome-extension://abcdefghijklmnop", "chrome-extension://abcdefghijklmnop", true),
        (below, "https://a.example.com", true),
        (below, "https://A.b.EXAMPLE.com:443", true),
        (below, "https://example.com", false),
        (below, "https://.example.com", false),
        (below, "https://a..example.com", false),
        (below, "https://badexample.com", false),
        (below, "https://a.example.com.evil.test", false),
        (below, "https://evil.test/.example.com", false),
        (below, "https://evil.test:443.example.com", false),
        (below, "https://a.example.com:8443", false),
        ("https://*.example.com:8443", "https://a.example.com:8443", true),
    ];
    for (pattern, origin, expected) in table {
        let cors = listed(&["https://other.test", pattern]);
        let allowed = cors.origins.allow(&HeaderValue::from_str(origin).unwrap());
        assert_eq!(allowed, expected, "{pattern}: {origin}");
        let headers = lines(cors.of_response(&request(&[("origin", origin)])));
        let reflected = format!("Access-Control-Allow-Origin: {origin}");
        assert_eq!(
            headers,
            expected.then_some(reflected).into_iter().collect::<Vec<_>>(),
            "{origin}"
        );
    }
}

#[test]
fn bytes_that_are_no_text_are_no_origin() {
    let cors = listed(&["https://app.example.com", "https://*.example.com", "null"]);
    for bytes in [
        &b"https://\xff.example.com"[..],
        b"\xff",
        b"https://a\t.example.com",
        b"https://app.example.com\xc3\xa4",
    ] {
        assert!(!cors.origins.allow(&HeaderValue::from_bytes(bytes).unwrap()), "{bytes:?}");
    }
    let long = format!("https://{}.example.com", "a".repeat(60_000));
    let labels = format!("https://{}example.com", "a.".repeat(30_000));
    for origin in [long, labels] {
        assert!(!cors.origins.allow(&HeaderValue::from_str(&origin).unwrap()));
    }
}

#[test]
fn origins_of_the_file_are_displayed_as_they_are_compared() {
    for (text, expected) in [
        ("null", "null"),
        ("HTTPS://App.example.com:443", "https://app.example.com"),
        ("http://*.Example.com:8080", "http://*.example.com:8080"),
        ("http://[0::1]:3000", "http://[::1]:3000"),
    ] {
        assert_eq!(OriginPattern::parse(text).unwrap().to_string(), expected);
    }
    for (text, expected) in [
        ("", OriginError::NoScheme),
        ("app.example.com", OriginError::NoScheme),
        ("*", OriginError::NoScheme),
        ("://a", OriginError::Scheme),
        ("1https://a", OriginError::Scheme),
        ("https://a/", OriginError::Slash),
        ("https://a/b", OriginError::Path),
        ("https://a?b", OriginError::Path),
        ("https://u@a", OriginError::User),
        ("https://*", OriginError::Wildcard),
        ("https://*example.com", OriginError::Wildcard),
        ("https://app.*.com", OriginError::Wildcard),
        ("https://*.*.com", OriginError::Wildcard),
        ("https://*.1.2.3.4", OriginError::Host),
        ("https://a:0", OriginError::Port),
        ("https://a:", OriginError::Port),
        ("https://a:b:1", OriginError::Port),
        ("https://a:*", OriginError::Port),
        ("https://", OriginError::Host),
        ("https://b\u{fc}cher.example", OriginError::Host),
        ("https://[::1", OriginError::Host),
    ] {
        assert_eq!(OriginPattern::parse(text), Err(expected), "{text}");
    }
}

#[test]
fn request_without_an_origin_or_with_two_gets_none() {
    let cors = listed(&["https://a.test", "https://b.test"]);
    assert!(cors.of_response(&request(&[])).is_empty());
    for two in [["https://a.test", "https://b.test"], ["https://a.test", "https://a.test"]] {
        let headers = request(&two.map(|origin| ("origin", origin)));
        assert!(cors.of_response(&headers).is_empty());
        assert_eq!(Preflight::of(&Method::OPTIONS, &headers), None);
    }
}

#[test]
fn response_to_an_allowed_origin_has_its_headers() {
    let of_page = request(&[("origin", "https://a.test")]);
    let exposed = Exposed {
        plain: Some(HeaderValue::from_static("Retry-After")),
        grpc_web: Some(HeaderValue::from_static("Retry-After, Grpc-Status")),
    };
    let cors = Cors { credentials: true, exposed: exposed.clone(), ..listed(&["https://a.test"]) };
    assert_eq!(
        lines(cors.of_response(&of_page)),
        [
            "Access-Control-Allow-Origin: https://a.test",
            "Access-Control-Allow-Credentials: true",
            "Access-Control-Expose-Headers: Retry-After",
        ]
    );
    let call = request(&[
        ("origin", "https://a.test"),
        ("content-type", "application/grpc-web-text+proto"),
    ]);
    let of_call = lines(cors.of_response(&call));
    assert_eq!(of_call[2], "Access-Control-Expose-Headers: Retry-After, Grpc-Status");
    let of_any = ["Access-Control-Allow-Origin: *", "Access-Control-Expose-Headers: Retry-After"];
    let any = Cors { exposed, ..any() };
    for headers in [of_page, request(&[]), request(&[("origin", "null")])] {
        assert_eq!(lines(any.of_response(&headers)), of_any);
    }
}

#[test]
fn preflight_has_one_origin_and_one_method() {
    let origin = ("origin", "https://a.test");
    let asks = ("access-control-request-method", "PUT");
    let is = |method: &Method, headers: &[(&str, &str)]| {
        Preflight::of(method, &request(headers)).map(|preflight| preflight.method)
    };
    assert_eq!(is(&Method::OPTIONS, &[origin, asks]), Some(Method::PUT));
    assert_eq!(is(&Method::GET, &[origin, asks]), None);
    assert_eq!(is(&Method::OPTIONS, &[origin]), None);
    assert_eq!(is(&Method::OPTIONS, &[asks]), None);
    assert_eq!(is(&Method::OPTIONS, &[origin, asks, asks]), None);
    for method in ["", "P UT", "PUT,GET", "\u{fc}"] {
        let asks = ("access-control-request-method", method);
        assert_eq!(is(&Method::OPTIONS, &[origin, asks]), None, "{method}");
    }
}

/// The response to a preflight request from this origin, for this method and these headers.
fn preflight(
    cors: &Cors,
    origin: &str,
    method: &str,
    names: &[&str],
) -> Result<Vec<String>, PreflightRefusal> {
    let mut headers = vec![("origin", origin), ("access-control-request-method", method)];
    headers.extend(names.iter().map(|names| ("access-control-request-headers", *names)));
    let headers = request(&headers);
    let preflight = Preflight::of(&Method::OPTIONS, &headers).unwrap();
    match cors.refusal(&preflight) {
        Some(refusal) => Err(refusal),
        None => Ok(lines(cors.of_preflight(&preflight, &headers))),
    }
}

#[test]
fn preflight_is_answered_with_what_was_asked_for() {
    let cors = listed(&["https://a.test"]);
    assert_eq!(
        preflight(&cors, "https://a.test", "PUT", &["content-type,x-a", " X-B ,, "]).unwrap(),
        [
            "Access-Control-Allow-Origin: https://a.test",
            "Access-Control-Allow-Methods: PUT",
            "Access-Control-Allow-Headers: content-type, x-a, X-B",
            "Access-Control-Max-Age: 600",
        ]
    );
    for names in ["", ",", "a b", "x-a, \u{fc}", "x-a: 1", "x-a;x-b"] {
        let headers = preflight(&cors, "https://a.test", "GET", &[names]).unwrap();
        assert!(!headers.iter().any(|line| line.contains("Allow-Headers")), "{names}: {headers:?}");
    }
    assert_eq!(preflight(&cors, "https://b.test", "PUT", &[]), Err(PreflightRefusal::Origin));
    assert!(preflight(&any(), "null", "PUT", &[]).is_ok());
}

#[test]
fn listed_methods_and_headers_are_those_that_pages_may_use() {
    let cors = Cors {
        methods: Some([Method::GET, Method::PUT].into()),
        headers: Some(HeaderValue::from_static("content-type")),
        credentials: true,
        ..listed(&["https://a.test"])
    };
    // Browsers allow POST whatever the list says, but not if the request is refused.
    for method in ["POST", "put", "DELETE"] {
        assert_eq!(preflight(&cors, "https://a.test", method, &[]), Err(PreflightRefusal::Method));
    }
    assert_eq!(
        preflight(&cors, "https://a.test", "PUT", &["x-other"]).unwrap(),
        [
            "Access-Control-Allow-Origin: https://a.test",
            "Access-Control-Allow-Credentials: true",
            "Access-Control-Allow-Methods: PUT",
            "Access-Control-Allow-Headers: content-type",
            "Access-Control-Max-Age: 600",
        ]
    );
}

#[test]
fn vary_is_added_to_that_of_the_response() {
    let cors = listed(&["https://a.test"]);
    let vary = |lines: &[&str]| {
        let lines: Vec<_> = lines.iter().map(|line| ("vary", *line)).collect();
        let vary = cors.vary(&request(&lines), false);
        vary.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    for (lines, expected) in [
        (&[][..], Some("Origin")),
        (&[""], Some("Origin")),
        (&["Accept-Encoding"], Some("Accept-Encoding, Origin")),
        (&["a, b", "c"], Some("a, b, c, Origin")),
        (&["x-origin"], Some("x-origin, Origin")),
        (&["origin"], None),
        (&["a", "b, ORIGIN "], None),
        (&["*"], None),
    ] {
        assert_eq!(vary(lines).as_deref(), expected, "{lines:?}");
    }
    assert_eq!(any().vary(&request(&[]), false), None);
    assert!(any().vary(&request(&[]), true).is_some());
}

/// Whether an origin is one of a pattern's, by its text alone.
fn is_one_of(pattern: &str, origin: &str) -> bool {
    let plain = |text: &str| {
        let text = text.to_ascii_lowercase();
        let port = if text.starts_with("https:") { ":443" } else { ":80" };
        text.strip_suffix(port).map_or(text.clone(), str::to_owned)
    };
    let (pattern, origin) = (plain(pattern), plain(origin));
    let Some((before, after)) = pattern.split_once('*') else { return pattern == origin };
    let labels = origin.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
    labels.is_some_and(|labels| {
        labels.split('.').all(|label| {
            !label.is_empty()
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        })
    })
}

fn pattern() -> impl Strategy<Value = String> {
    "(https?|app)://(\\*\\.)?[a-c]{1,2}(\\.[a-c]{1,2}){1,2}(:(80|443|8080))?"
}

/// Texts that resemble origins, and some that are one of the patterns with few changes.
fn origin(patterns: Vec<String>) -> impl Strategy<Value = String> {
    let one = proptest::sample::select(patterns);
    let near = (one, "[a-c.:/@*#?%0-9]{0,3}", "[a-c.:/@, ]{0,3}", any_case()).prop_map(
        |(pattern, label, end, upper)| {
            let text = format!("{}{end}", pattern.replace('*', &label));
            if upper { text.to_ascii_uppercase() } else { text }
        },
    );
    prop_oneof![near, "(https?|app|null)(://)?[a-c.]{0,6}(:[0-9]{0,4})?", "[ -~]{0,20}",]
}

fn any_case() -> impl Strategy<Value = bool> {
    proptest::bool::ANY
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    #[test]
    fn exactly_the_origins_of_the_list_are_reflected(
        (patterns, origin) in proptest::collection::vec(pattern(), 1..4)
            .prop_flat_map(|patterns| (Just(patterns.clone()), origin(patterns))),
        asked in "[!-~]{0,8}",
    ) {
        let texts: Vec<&str> = patterns.iter().map(String::as_str).collect();
        let cors = Cors { credentials: true, ..listed(&texts) };
        let headers = request(&[("origin", &origin), ("access-control-request-method", &asked)]);
        let expected = patterns.iter().any(|pattern| is_one_of(pattern, &origin));
        let response = lines(cors.of_response(&headers));
        let reflected = format!("Access-Control-Allow-Origin: {origin}");
        prop_assert_eq!(response.first() == Some(&reflected), expected, "{:?}", response);
        prop_assert_eq!(response.is_empty(), !expected);
        if let Some(preflight) = Preflight::of(&Method::OPTIONS, &headers) {
            prop_assert_eq!(cors.refusal(&preflight).is_none(), expected);
        }
    }
}
