use http::HeaderMap;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::accepted::coding;
use super::media_type::is_compressible;
use super::*;

use Coding::{Br, Gzip, Zstd};

const ALL: [Coding; 3] = [Br, Zstd, Gzip];

fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let name = HeaderName::from_static(name);
        headers.append(name, HeaderValue::from_str(value).unwrap());
    }
    headers
}

fn chosen(codings: &[Coding], accept: &str) -> Option<Coding> {
    coding(codings, &headers(&[("accept-encoding", accept)]))
}

#[test]
fn client_gets_the_coding_that_it_prefers() {
    let table = [
        // Chromium, Firefox, curl, Python's requests, Go.
        ("gzip, deflate, br, zstd", Some(Br)),
        ("gzip, deflate", Some(Gzip)),
        ("gzip;q=1.0, br;q=0.5", Some(Gzip)),
        ("br;q=0.5, zstd;q=0.5, gzip;q=0.4", Some(Br)),
        ("zstd, br;q=0.9", Some(Zstd)),
        ("X-GZIP", Some(Gzip)),
        ("*", Some(Br)),
        ("*, br;q=0", Some(Zstd)),
        ("*;q=0, gzip", Some(Gzip)),
        ("*;q=0", None),
        ("br;q=0, zstd;q=0, gzip;q=0", None),
        ("identity", None),
        ("identity, gzip;q=0.5", None),
        ("identity;q=0.5, gzip", Some(Gzip)),
        ("identity;q=0.5, gzip;q=0.5", Some(Gzip)),
        ("identity;q=0", None),
        ("identity;q=0, *", Some(Br)),
        ("gzip;q=0.5, *;q=0.8", Some(Br)),
        ("gzip;q=0.001", Some(Gzip)),
        ("gzip;q=x", None),
        ("deflate, compress", None),
        ("", None),
    ];
    for (accept, expected) in table {
        assert_eq!(chosen(&ALL, accept), expected, "{accept}");
    }
    assert_eq!(coding(&ALL, &HeaderMap::new()), None);
    assert_eq!(chosen(&[Gzip, Br], "br, gzip"), Some(Gzip));
    assert_eq!(chosen(&[Gzip], "gzip;q=0.5, *;q=0.8"), None);
    let lines = headers(&[("accept-encoding", "br;q=0.1"), ("accept-encoding", "zstd")]);
    assert_eq!(coding(&ALL, &lines), Some(Zstd));
}

/// The coding by the words of RFC 9110, section 12.5.3, for items that are each listed once.
fn by_the_words(codings: &[Coding], listed: &[(&str, u16)]) -> Option<Coding> {
    let weight = |name: &str| {
        let of =
            |name: &str| listed.iter().find(|(own, _)| *own == name).map(|(_, weight)| *weight);
        of(name).or_else(|| of("*"))
    };
    // No coding is acceptable unless it is refused, and then sent all the same: there is no other.
    let mut choices: Vec<(u16, usize, Option<Coding>)> = Vec::new();
    for (place, coding) in codings.iter().enumerate() {
        let weight = weight(coding.name()).unwrap_or(0);
        if weight > 0 {
            choices.push((weight, codings.len() - place, Some(*coding)));
        }
    }
    choices.push((weight("identity").unwrap_or(0), 0, None));
    choices.sort_by_key(|(weight, place, _)| (*weight, *place));
    choices.pop()?.2
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    #[test]
    fn coding_is_the_one_by_the_words_of_the_standard(
        codings in subsequence(ALL.to_vec(), 0..=3).prop_shuffle(),
        names in subsequence(vec!["br", "zstd", "gzip", "identity", "*", "deflate"], 0..=6)
            .prop_shuffle(),
        weights in prop::collection::vec(select(vec![0, 1, 500, 999, 1_000]), 6),
    ) {
        let listed: Vec<(&str, u16)> = names.into_iter().zip(weights).collect();
        let item = |(name, weight): &(&str, u16)| match weight {
            1_000 => (*name).to_owned(),
            weight => format!("{name};q=0.{weight:03}"),
        };
        let line = listed.iter().map(item).collect::<Vec<_>>().join(", ");
        prop_assert_eq!(chosen(&codings, &line), by_the_words(&codings, &listed), "{}", line);
    }

    #[test]
    fn any_header_has_a_coding_of_the_setting_or_none(
        line in "[a-z*;=,. q0-9-]{0,60}",
        codings in subsequence(ALL.to_vec(), 0..=3),
    ) {
        if let Some(coding) = chosen(&codings, &line) {
            prop_assert!(codings.contains(&coding));
            prop_assert!(line.contains(coding.name()) || line.contains('*'));
        }
    }
}

#[test]
fn contents_that_get_smaller_are_compressed() {
    for kind in [
        "text/html; charset=utf-8",
        "TEXT/Plain",
        "application/json",
        "application/json;charset=utf-8",
        "application/problem+json",
        "application/vnd.api+json; ext=x",
        "image/svg+xml",
        "application/wasm",
        "application/javascript ; x",
        "font/ttf",
    ] {
        assert!(is_compressible(kind.as_bytes()), "{kind}");
    }
    for kind in [
        "",
        "text",
        "image/png",
        "video/mp4",
        "application/octet-stream",
        "application/zip",
        "font/woff2",
        "text/event-stream",
        "Text/Event-Stream; charset=utf-8",
        "application/grpc",
        "application/grpc+proto",
        "application/grpc-web",
        "application/x; y=+json",
        "multipart/form-data",
    ] {
        assert!(!is_compressible(kind.as_bytes()), "{kind}");
    }
}

/// What happens to a response with status 200 and these headers beside a suitable type and length,
/// to a request that accepts all codings.
fn action(response: &[(&'static str, &str)]) -> Action {
    let mut all = headers(&[("content-type", "text/html"), ("content-length", "512")]);
    for (name, value) in response {
        all.insert(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    }
    of(&[], &Method::GET, Version::HTTP_11, StatusCode::OK, &all)
}

fn of(
    request: &[(&'static str, &str)],
    method: &Method,
    version: Version,
    status: StatusCode,
    response: &HeaderMap,
) -> Action {
    let mut all = headers(&[("accept-encoding", "*")]);
    all.extend(headers(request));
    let request = Request { method, version, headers: &all };
    Compression::of(&ALL).action(request, status, response)
}

#[test]
fn response_passes_as_it_is_if_its_head_says_so() {
    let (compressed, passes) = (Action::Compress(Br), Action::Pass);
    let table: [(&[(&'static str, &str)], Action); 12] = [
        (&[], compressed),
        (&[("content-length", "511")], passes),
        (&[("content-length", "0")], passes),
        (&[("content-encoding", "gzip")], passes),
        (&[("content-encoding", "identity")], compressed),
        (&[("content-encoding", "")], compressed),
        (&[("cache-control", "max-age=5, No-Transform")], passes),
        (&[("cache-control", "max-age=5")], compressed),
        (&[("content-type", "image/png")], passes),
        (&[("content-type", "text/event-stream")], passes),
        (&[("content-type", "application/grpc")], passes),
        (&[("etag", "\"a\"")], compressed),
    ];
    for (response, expected) in table {
        assert_eq!(action(response), expected, "{response:?}");
    }
    let without_type = headers(&[("content-length", "512")]);
    let plain = (&Method::GET, Version::HTTP_11);
    assert_eq!(of(&[], plain.0, plain.1, StatusCode::OK, &without_type), passes);
    let without_length = headers(&[("content-type", "text/html")]);
    assert_eq!(of(&[], plain.0, plain.1, StatusCode::OK, &without_length), compressed);
}

#[test]
fn response_that_another_request_gets_compressed_says_so() {
    let response = headers(&[("content-type", "text/html"), ("content-length", "512")]);
    let of_status = |status| of(&[], &Method::GET, Version::HTTP_2, status, &response);
    for status in [200, 201, 404, 416, 500] {
        assert_eq!(of_status(StatusCode::from_u16(status).unwrap()), Action::Compress(Br));
    }
    for status in [100, 101, 103, 204, 205] {
        assert_eq!(of_status(StatusCode::from_u16(status).unwrap()), Action::Pass, "{status}");
    }
    for status in [206, 304] {
        assert_eq!(of_status(StatusCode::from_u16(status).unwrap()), Action::Vary, "{status}");
    }
    let not_modified = StatusCode::NOT_MODIFIED;
    let get = |status, response: &_| of(&[], &Method::GET, Version::HTTP_11, status, response);
    assert_eq!(get(not_modified, &HeaderMap::new()), Action::Vary);
    let part = headers(&[("content-type", "text/html"), ("content-length", "9")]);
    assert_eq!(get(StatusCode::PARTIAL_CONTENT, &part), Action::Vary);
    let now = Version::HTTP_11;
    for (name, value, method, version) in [
        ("x-a", "", Method::HEAD, now),
        ("x-a", "", Method::GET, Version::HTTP_10),
        ("cache-control", "no-transform", Method::GET, now),
        ("accept-encoding", "*;q=0", Method::GET, now),
    ] {
        let action = of(&[(name, value)], &method, version, StatusCode::OK, &response);
        assert_eq!(action, Action::Vary, "{name} {value} {method} {version:?}");
    }
}

#[test]
fn strong_etag_becomes_weak() {
    for (etag, expected) in
        [("\"a\"", Some("W/\"a\"")), ("\"\"", Some("W/\"\"")), ("W/\"a\"", None), ("a", None)]
    {
        let weak = weakened(&HeaderValue::from_static(etag));
        assert_eq!(weak, expected.map(HeaderValue::from_static), "{etag}");
    }
}

#[test]
fn etag_of_a_304_is_the_one_that_the_client_has() {
    let etag = HeaderValue::from_static("\"a\"");
    for (has, expected) in [
        ("W/\"a\"", Some("W/\"a\"")),
        ("\"b\", W/\"a\"", Some("W/\"a\"")),
        ("\"a\"", None),
        ("W/\"a\", \"a\"", None),
        ("W/\"b\"", None),
        ("*", None),
    ] {
        let request = headers(&[("if-none-match", has)]);
        let changed = revalidated(&etag, &request);
        assert_eq!(changed, expected.map(HeaderValue::from_static), "{has}");
    }
    let weak = HeaderValue::from_static("W/\"a\"");
    assert_eq!(revalidated(&weak, &headers(&[("if-none-match", "W/\"a\"")])), None);
    assert_eq!(revalidated(&etag, &HeaderMap::new()), None);
}

#[test]
fn nothing_happens_if_it_is_off() {
    let response = headers(&[("content-type", "text/html"), ("content-length", "512")]);
    let request = headers(&[("accept-encoding", "*")]);
    let request = Request { method: &Method::GET, version: Version::HTTP_11, headers: &request };
    let off = Compression::default();
    assert_eq!(off.action(request, StatusCode::OK, &response), Action::Pass);
    assert_eq!(
        (off.to_string(), Compression::of(&ALL).to_string()),
        ("off".into(), "br, zstd, gzip".into())
    );
}
