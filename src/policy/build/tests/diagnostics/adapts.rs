//! `adapt`: rates that fall while an upstream is unhealthy.

use super::super::render;

/// The diagnostics of a rule with these settings.
fn rule(settings: &str) -> String {
    render(&format!("[rules.r]\nper = ['ip']\n{settings}"))
}

#[test]
fn rates_that_adapt() {
    for settings in [
        "rate = '10/s'\nadapt = { upstream = 'api', p99 = '500ms' }",
        "rate = '1/h'\nadapt = { upstream = 'api', errors = '5%', floor = '1%' }",
        "limit = '1000/h'\nadapt = { upstream = 'api', p99 = '1m', errors = '0.1%', floor = '100%' }",
    ] {
        assert_eq!(rule(settings), "no errors\n", "{settings}");
    }
}

#[test]
fn mistakes_in_adapt() {
    let written = [
        "rate = '10/s'\nadapt = 'api'",
        "rate = '10/s'\nadapt = { p99 = '500ms' }",
        "rate = '10/s'\nadapt = { upstream = 'apii', p99 = '500ms' }",
        "rate = '10/s'\nadapt = { upstream = 'api' }",
        "rate = '10/s'\nadapt = { upstream = 'api', p99 = '2m' }",
        "rate = '10/s'\nadapt = { upstream = 'api', p99 = '1s', floor = '0%' }",
        "rate = '10/s'\nlease = 'auto'\nadapt = { upstream = 'api', p99 = '1s' }",
        "kind = 'concurrency'\nlimit = 5\nadapt = { upstream = 'api', p99 = '1s' }",
        "rate = '1/d'\nburst = 100000\nadapt = { upstream = 'api', p99 = '1s' }",
    ];
    let all: Vec<String> = written.into_iter().map(rule).collect();
    insta::assert_snapshot!(all.join("\n"));
}
