use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::*;
use Outcome::{Depends, No, Yes};

/// Names and values.
type Lines = &'static [(&'static str, &'static str)];

fn condition(source: Source, value: &str) -> Condition {
    let test = match value.strip_suffix('*') {
        _ if value == "true" => Test::Present,
        _ if value == "false" => Test::Absent,
        Some(prefix) => Test::Begins(prefix.into()),
        None => Test::Is(value.into()),
    };
    Condition { source, test, is_secret: false }
}

fn header(name: &str) -> Source {
    Source::Header(name.into())
}

fn query(name: &str) -> Source {
    Source::Query(name.into())
}

fn cookie(name: &str) -> Source {
    Source::Cookie(name.into())
}

fn outcome(
    source: Source,
    value: &str,
    headers: &[(&'static str, &'static str)],
    query: Option<&str>,
) -> Outcome {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    let request = RequestParts { method: &Method::GET, headers: &map, query };
    let condition = condition(source, value);
    let outcome = condition.outcome(request);
    assert_eq!(condition.why_not(request).is_none(), outcome == Outcome::Yes);
    outcome
}

#[test]
fn header_values_are_compared_whole() {
    let table: [(&str, Lines, Outcome); 18] = [
        ("2", &[("x-v", "2")], Yes),
        ("2", &[("x-v", "20")], No),
        ("2", &[("x-v", "")], No),
        ("2", &[], No),
        ("2*", &[("x-v", "2")], Yes),
        ("2*", &[("x-v", "2.1")], Yes),
        ("2*", &[("x-v", "1")], No),
        ("a", &[("x-v", "A")], No),
        ("true", &[("x-v", "")], Yes),
        ("true", &[], No),
        ("false", &[], Yes),
        ("false", &[("x-v", "1")], No),
        // Servers use the first value, or the last, or a list.
        ("2", &[("x-v", "2"), ("x-v", "1")], Depends),
        ("2", &[("x-v", "1"), ("x-v", "2")], Depends),
        ("2", &[("x-v", "2"), ("x-v", "2")], Yes),
        ("3", &[("x-v", "1"), ("x-v", "2")], No),
        ("2*", &[("x-v", "2.1"), ("x-v", "2.2")], Yes),
        ("true", &[("x-v", "2.1"), ("x-v", "2.2")], Yes),
    ];
    for (value, headers, expected) in table {
        assert_eq!(outcome(header("x-v"), value, headers, None), expected, "{value} {headers:?}");
    }
}

/// The upstream may not get the header, or get it beside another one.
#[test]
fn header_that_servers_may_not_get_depends() {
    let table: [(&str, Lines, Outcome); 8] = [
        ("2", &[("x-v", "2"), ("connection", "close, X-V")], Depends),
        ("false", &[("x-v", "2"), ("connection", "x-v")], Depends),
        ("3", &[("x-v", "2"), ("connection", "x-v")], No),
        ("false", &[("connection", "x-v")], Yes),
        ("2", &[("x_v", "2")], Depends),
        ("false", &[("x_v", "2")], Depends),
        ("2", &[("x_v", "2"), ("x-v", "2")], Yes),
        ("2", &[("x_v", "1"), ("x-v", "2")], Depends),
    ];
    for (value, headers, expected) in table {
        assert_eq!(outcome(header("x-v"), value, headers, None), expected, "{value} {headers:?}");
    }
}

#[test]
fn query_parameters_are_compared_decoded() {
    let table = [
        ("2", "v=2", Yes),
        ("2", "a=1&v=2&b", Yes),
        ("2", "v=%32", Yes),
        ("2", "%76=2", Yes),
        ("2", "V=2", No),
        ("a b", "v=a+b", Yes),
        ("a b", "v=a%20b", Yes),
        ("a+b", "v=a%2Bb", Yes),
        ("\u{fc}", "v=%c3%BC", Yes),
        ("2", "v=2=3", No),
        ("true", "v", Yes),
        ("true", "v=", Yes),
        ("true", "vv=1&w", No),
        ("false", "vv=1", Yes),
        ("false", "", Yes),
        ("2", "v=1&v=2", Depends),
        ("2", "v=2&v=%32", Yes),
        ("true", "v=1&v=2", Yes),
        // `;` separates parameters for some servers, and invalidates them for others.
        ("2", "a=1;v=2", Depends),
        ("2", "v=2;a", Depends),
        ("false", "a=1;v=2", Depends),
        ("3", "v=2;a", No),
        ("2", "v=2%zz", No),
        ("2*", "v=2%zz", Depends),
    ];
    for (value, text, expected) in table {
        assert_eq!(outcome(query("v"), value, &[], Some(text)), expected, "{value} {text}");
    }
    assert_eq!(outcome(query("v"), "false", &[], None), Yes);
}

#[test]
fn cookies_are_compared_in_all_headers_and_forms() {
    let table: [(&str, &[&str], Outcome); 19] = [
        ("1", &["beta=1"], Yes),
        ("1", &["a=2; beta=1; c=3"], Yes),
        ("1", &["a=2", "beta=1"], Yes),
        ("1", &["a=2;beta = 1 "], Yes),
        ("1", &["xbeta=1; Beta=1"], No),
        ("true", &["xbeta=1; Beta=1"], No),
        ("true", &["beta="], Yes),
        ("true", &["beta"], Depends),
        ("false", &["a=1"], Yes),
        ("false", &[], Yes),
        ("1", &["beta=1; beta=2"], Depends),
        ("1", &["beta=1", "beta=2"], Depends),
        ("1", &["beta=1", "beta=1"], Yes),
        ("1", &["beta=\"1\""], Depends),
        ("1", &["beta=%31"], Depends),
        ("1", &["beta=\"%31\""], Depends),
        ("a b", &["beta=a+b"], Depends),
        ("1", &["b%65ta=1"], Depends),
        ("2", &["beta=%31"], No),
    ];
    for (value, lines, expected) in table {
        let headers: Vec<(&str, &str)> = lines.iter().map(|line| ("cookie", *line)).collect();
        let headers: &'static [(&str, &str)] = Box::leak(headers.into());
        assert_eq!(outcome(cookie("beta"), value, headers, None), expected, "{value} {lines:?}");
    }
}

#[test]
fn more_values_than_are_kept_may_be_any() {
    let text = |count: usize| (0..count).map(|n| format!("v={n}")).collect::<Vec<_>>().join("&");
    assert_eq!(outcome(query("v"), "x", &[], Some(&text(8))), No);
    assert_eq!(outcome(query("v"), "x", &[], Some(&text(9))), Depends);
    assert_eq!(outcome(query("v"), "true", &[], Some(&text(9))), Yes);
    assert_eq!(outcome(query("v"), "false", &[], Some(&text(9))), No);
}

/// All lists of conditions on two headers.
fn lists() -> Vec<Vec<Condition>> {
    let values = ["", "true", "false", "1", "12", "1*", "12*", "2*"];
    let list = |a: &str, b: &str| {
        let each = [("a", a), ("b", b)].into_iter().filter(|(_, value)| !value.is_empty());
        each.map(|(name, value)| condition(header(name), value)).collect::<Vec<_>>()
    };
    values.iter().flat_map(|a| values.iter().map(move |b| list(a, b))).collect()
}

/// Whether conditions hold for requests with these values.
fn hold(list: &[Condition], values: [Option<&'static str>; 2]) -> bool {
    let mut headers = HeaderMap::new();
    for (name, value) in ["a", "b"].into_iter().zip(values) {
        if let Some(value) = value {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
    }
    let request = RequestParts { method: &Method::GET, headers: &headers, query: None };
    list.iter().all(|condition| condition.outcome(request) == Yes)
}

/// Compared with all requests that make a difference.
#[test]
fn relations_of_conditions_are_those_of_the_requests_that_meet_them() {
    let values = [None, Some("0"), Some("1"), Some("12"), Some("13"), Some("123"), Some("2")];
    let requests: Vec<_> =
        values.iter().flat_map(|a| values.iter().map(move |b| [*a, *b])).collect();
    for one in lists() {
        for other in lists() {
            let common = requests.iter().filter(|all| hold(&one, **all) && hold(&other, **all));
            let common: Vec<_> = common.collect();
            assert_eq!(are_compatible(&one, &other), !common.is_empty(), "{one:?} {other:?}");
            let implied = requests.iter().all(|all| !hold(&one, *all) || hold(&other, *all));
            assert_eq!(imply(&one, &other), implied, "{one:?} {other:?}");
            if implied && one != other {
                assert!(specificity(&one) < specificity(&other), "{one:?} {other:?}");
            }
            if !common.is_empty() {
                let both = both(&one, &other);
                let same = requests.iter().all(|all| hold(&both, *all) == common.contains(&all));
                assert!(same, "{one:?} {other:?}");
            }
        }
    }
}
