//! `count` and `reserve`: costs that are read from responses.

use super::super::render;

/// The diagnostics of a rule with these settings.
fn count(settings: &str) -> String {
    render(&format!("[rules.r]\nper = []\n{settings}"))
}

#[test]
fn costs_of_every_kind_of_tokens_are_read_from_responses() {
    let kinds = [
        "rate = '10/s'",
        "kind = 'fixed_window'\nlimit = '10/s'",
        "kind = 'sliding_window'\nlimit = '10/s'",
        "kind = 'leaky_bucket'\nrate = '10/s'",
    ];
    let sources = [
        "requests",
        "header:x-cost",
        "json:usage.total_tokens",
        "json:usage.input_tokens|message.usage.input_tokens + usage.output_tokens",
        "request_bytes",
        "response_bytes",
        "duration_ms",
    ];
    for (kind, source) in kinds.iter().flat_map(|kind| sources.map(|source| (kind, source))) {
        assert_eq!(count(&format!("{kind}\ncount = '{source}'")), "no errors\n", "{kind} {source}");
    }
    assert_eq!(count("rate = '10/s'\ncount = 'duration_ms'\nreserve = 0.5"), "no errors\n");
}

#[test]
fn mistakes_in_count_and_reserve() {
    let written = [
        "rate = '10/s'\ncount = 'tokens'",
        "rate = '10/s'\ncount = 'header:'",
        "rate = '10/s'\ncount = 'json:$.usage'",
        "rate = '10/s'\ncount = 'json:usage..total'",
        "rate = '10/s'\ncount = 'json:a|b|c|d|e|f|g|h|i'",
        "rate = '10/s'\nreserve = 5",
        "rate = '10/s'\ncount = 'requests'\nreserve = 5",
        "rate = '10/s'\ncount = 'duration_ms'\ncost = 5",
        "rate = '10/s'\ncount = 'duration_ms'\nreserve = 0",
        "rate = '10/s'\ncount = 'duration_ms'\nreserve = 11",
        "kind = 'sliding_window'\nlimit = '10/s'\ncount = 'duration_ms'\nreserve = 0.5",
        "kind = 'concurrency'\nlimit = 5\ncount = 'duration_ms'",
    ];
    let all: Vec<String> = written.into_iter().map(count).collect();
    insta::assert_snapshot!(all.join("\n"));
}
