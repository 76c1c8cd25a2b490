//! Limits on requests in flight that cannot be.

use super::super::render;

/// The diagnostics of a rule of this kind with these settings.
fn in_flight(settings: &str) -> String {
    render(&format!("[rules.r]\nper = []\nkind = 'concurrency'\n{settings}"))
}

#[test]
fn limit_is_a_number() {
    assert_eq!(in_flight("limit = 20"), "no errors\n");
    assert_eq!(in_flight("limit = '20'"), "no errors\n");
    assert_eq!(in_flight("limit = 1000000"), "no errors\n");
    assert_eq!(in_flight("limit = 5\nplans.free = { limit = 2 }\n[plans.free]"), "no errors\n");
}

#[test]
fn limit_on_requests_in_flight_has_no_period() {
    insta::assert_snapshot!(in_flight("limit = '20/s'"));
}

#[test]
fn limit_on_requests_in_flight_is_no_word() {
    insta::assert_snapshot!(in_flight("limit = 'many'"));
}

#[test]
fn limit_on_requests_in_flight_is_not_0() {
    insta::assert_snapshot!(in_flight("limit = 0"));
}

#[test]
fn limit_on_requests_in_flight_is_too_large() {
    insta::assert_snapshot!(in_flight("limit = 1000001"));
}

#[test]
fn limit_on_requests_in_flight_is_required() {
    insta::assert_snapshot!(in_flight("plans.free = {}\n[plans.free]"));
}

#[test]
fn rule_without_a_limit_on_requests_in_flight() {
    insta::assert_snapshot!(in_flight(""));
}

#[test]
fn limit_on_requests_in_flight_has_no_rate() {
    insta::assert_snapshot!(in_flight("rate = '10/s'"));
}

#[test]
fn limit_on_requests_in_flight_has_no_burst() {
    insta::assert_snapshot!(in_flight("limit = 10\nburst = 5"));
}

#[test]
fn limit_on_requests_in_flight_has_no_zone() {
    insta::assert_snapshot!(in_flight("limit = 10\nzone = 'UTC'"));
}

#[test]
fn limit_of_a_token_bucket_is_no_number() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nlimit = 20"));
}

#[test]
fn limit_of_a_fixed_window_is_no_number() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nkind = 'fixed_window'\nlimit = 20"));
}
