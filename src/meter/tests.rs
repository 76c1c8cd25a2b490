use super::*;

fn head(headers: &[(&'static str, &str)]) -> HeaderMap {
    let each = headers.iter();
    each.map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()))
        .collect()
}

const TOTALS: Totals = Totals { request_bytes: 11, duration_ms: 22 };

/// The cost of a response in thousandths of a token.
fn cost(source: &str, headers: &[(&'static str, &str)], body: &str) -> Option<u64> {
    let mut meter = Meter::new(Arc::new(Source::parse(source).unwrap()), &head(headers));
    body.as_bytes().chunks(5).for_each(|part| meter.read_body(part));
    meter.cost(TOTALS).map(Amount::thousandths)
}

const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");
const EVENTS: (&str, &str) = ("content-type", "Text/Event-Stream");

#[test]
fn sizes_times_and_headers_are_costs() {
    assert_eq!(cost("request_bytes", &[], "abc"), Some(11_000));
    assert_eq!(cost("duration_ms", &[], "abc"), Some(22_000));
    assert_eq!(cost("response_bytes", &[], "abcdefgh"), Some(8_000));
    assert_eq!(cost("header:x-cost", &[("x-cost", "12.5")], ""), Some(12_500));
    assert_eq!(cost("header:x-cost", &[("x-cost", "-1")], ""), None);
    assert_eq!(cost("header:x-cost", &[("x-cost", "many")], ""), None);
    assert_eq!(cost("header:x-cost", &[], ""), None);
}

#[test]
fn trailers_come_after_the_head() {
    let source = Arc::new(Source::parse("header:x-cost").unwrap());
    let mut meter = Meter::new(source, &head(&[("x-cost", "1")]));
    meter.read_trailers(&head(&[("grpc-status", "0")]));
    assert_eq!(meter.cost(TOTALS), Some(Amount::of_tokens(1)));
    meter.read_trailers(&head(&[("x-cost", "7")]));
    assert_eq!(meter.cost(TOTALS), Some(Amount::of_tokens(7)));
}

#[test]
fn json_is_read_by_its_media_type_and_without_a_content_coding() {
    let body = "{\"usage\": {\"total_tokens\": 9}}";
    let source = "json:usage.total_tokens";
    assert_eq!(cost(source, &[JSON], body), Some(9_000));
    assert_eq!(cost(source, &[("content-type", "application/vnd.api+json")], body), Some(9_000));
    assert_eq!(cost(source, &[("content-type", "application/x-ndjson")], body), Some(9_000));
    assert_eq!(cost(source, &[JSON, ("content-encoding", "identity")], body), Some(9_000));
    assert_eq!(cost(source, &[JSON, ("content-encoding", "gzip")], body), None);
    assert_eq!(cost(source, &[("content-type", "text/html")], body), None);
    assert_eq!(cost(source, &[], body), None);
    assert_eq!(cost(source, &[JSON], "{}"), None);
}

#[test]
fn sum_takes_the_first_number_of_each_term() {
    let source = "json:usage.input_tokens | message.usage.input_tokens + usage.output_tokens";
    let whole = "{\"usage\": {\"input_tokens\": 25, \"output_tokens\": 503}}";
    assert_eq!(cost(source, &[JSON], whole), Some(528_000));
    let start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n";
    let delta = "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":15}}\n\n";
    assert_eq!(cost(source, &[EVENTS], &format!("{start}{delta}")), Some(40_000));
    // A client that left before the second event.
    assert_eq!(cost(source, &[EVENTS], start), Some(25_000));
}
