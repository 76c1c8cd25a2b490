//! `refund_on`: which failures give tokens back.

use super::super::render;

/// The diagnostics of a rule with these settings.
fn refund(settings: &str) -> String {
    render(&format!("[rules.r]\nper = []\n{settings}"))
}

#[test]
fn refunds_of_every_kind_of_tokens() {
    let kinds = [
        "rate = '10/s'",
        "kind = 'fixed_window'\nlimit = '10/s'",
        "kind = 'sliding_window'\nlimit = '10/s'",
        "kind = 'leaky_bucket'\nrate = '10/s'",
    ];
    let lists = [
        "[]",
        "['no_server']",
        "['5xx', '500', '502', '503', '504']",
        "['upstream_connect', 'no_server', 'shed', 'upstream_tls', 'upstream_connect_timeout']",
    ];
    for (kind, list) in kinds.iter().flat_map(|kind| lists.iter().map(move |list| (kind, list))) {
        assert_eq!(refund(&format!("{kind}\nrefund_on = {list}")), "no errors\n", "{kind} {list}");
    }
    let held = "kind = 'concurrency'\nlimit = 5\nrefund_on = []";
    assert_eq!(refund(held), "no errors\n");
}

#[test]
fn refunds_that_are_not_possible() {
    let written = [
        "rate = '10/s'\nrefund_on = ['upstream_conect']",
        "rate = '10/s'\nrefund_on = ['4xx']",
        "rate = '10/s'\nrefund_on = ['upstream_timeout']",
        "rate = '10/s'\nrefund_on = ['limited', 1]",
        "rate = '10/s'\nrefund_on = 'no_server'",
        "kind = 'concurrency'\nlimit = 5\nrefund_on = ['no_server']",
    ];
    let all: Vec<String> = written.into_iter().map(refund).collect();
    insta::assert_snapshot!(all.join("\n"));
}
