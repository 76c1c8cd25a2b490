//! Limits, zones and anchors of fixed windows that cannot be.

use super::super::render;

/// The diagnostics of a rule of this kind with these settings.
fn window(settings: &str) -> String {
    render(&format!("[rules.r]\nper = []\nkind = 'fixed_window'\n{settings}"))
}

#[test]
fn every_period_has_a_limit() {
    for period in ["s", "m", "h", "d", "week", "month", "year"] {
        assert_eq!(window(&format!("limit = '1/{period}'")), "no errors\n", "{period}");
    }
    assert_eq!(window("limit = '5/month'\nzone = 'Europe/Berlin'\nanchor = 31"), "no errors\n");
    assert_eq!(window("limit = '5/week'\nanchor = 7"), "no errors\n");
}

#[test]
fn window_has_a_limit() {
    insta::assert_snapshot!(window(""));
}

#[test]
fn window_of_a_plan_has_a_limit() {
    insta::assert_snapshot!(window("plans.free = {}\n[plans.free]"));
}

#[test]
fn window_has_no_rate() {
    insta::assert_snapshot!(window("rate = '10/s'"));
}

#[test]
fn window_has_no_burst() {
    insta::assert_snapshot!(window("limit = '10/d'\nburst = 5"));
}

#[test]
fn window_has_a_period() {
    insta::assert_snapshot!(window("limit = '1000'"));
}

#[test]
fn window_is_a_number() {
    insta::assert_snapshot!(window("limit = 'many/d'"));
}

#[test]
fn window_of_another_spelling() {
    insta::assert_snapshot!(window("limit = '1000/30d'"));
}

#[test]
fn window_of_an_unknown_period() {
    insta::assert_snapshot!(window("limit = '1000/fortnight'"));
}

#[test]
fn window_of_0() {
    insta::assert_snapshot!(window("limit = '0/d'"));
}

#[test]
fn window_is_too_large() {
    insta::assert_snapshot!(window("limit = '9007199254740993/d'"));
}

#[test]
fn window_is_far_too_large() {
    insta::assert_snapshot!(window("limit = '99999999999999999999/d'"));
}

#[test]
fn zone_is_unknown_and_reported_once() {
    insta::assert_snapshot!(window(
        "limit = '10/d'\nzone = 'Europe/Berlim'\nplans.free = { limit = '5/d' }\n[plans.free]"
    ));
}

#[test]
fn anchor_of_a_month_is_a_day() {
    insta::assert_snapshot!(window("limit = '10/month'\nanchor = 32"));
}

#[test]
fn anchor_of_a_week_is_a_day() {
    insta::assert_snapshot!(window("limit = '10/week'\nanchor = 0"));
}

#[test]
fn anchor_of_a_day() {
    insta::assert_snapshot!(window("limit = '10/d'\nanchor = 1"));
}

#[test]
fn zone_and_anchor_of_a_token_bucket() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrate = '10/s'\nzone = 'UTC'\nanchor = 1"));
}

#[test]
fn unknown_kind_lists_the_kinds() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nkind = 'window'\nlimit = '10/d'"));
}
