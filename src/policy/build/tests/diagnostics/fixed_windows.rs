//! Limits, zones and anchors of fixed windows that cannot be.

use super::super::render;

/// The diagnostics of a rule of this kind with these settings.
fn window(settings: &str) -> String {
    render(&format!("[rules.r]\nper = []\nkind = 'fixed_window'\n{settings}"))
}

#[test]
fn every_period_has_a_limit() {
    let kept = |settings: &str| window(&format!("{settings}\n[usage]\nfile = 'usage.redb'"));
    for period in ["s", "m", "h", "d", "week", "month", "year"] {
        assert_eq!(kept(&format!("limit = '1/{period}'")), "no errors\n", "{period}");
    }
    assert_eq!(kept("limit = '5/month'\nzone = 'Europe/Berlin'\nanchor = 31"), "no errors\n");
    assert_eq!(kept("limit = '5/week'\nanchor = 7"), "no errors\n");
}

#[test]
fn counts_that_a_restart_loses_are_warned_of() {
    assert_eq!(window("limit = '5/m'"), "no errors\n");
    insta::assert_snapshot!(window("limit = '5/h'"), @r#"
    warning: a restart loses the counts of `r`: they are in the memory of this process
     --> gateway.toml:4:9
      |
    4 | limit = '5/h'
      |         ^^^^^
      |
      = help: write `file = "usage.redb"` under `[usage]`, or count in `[redis]`

    gateway.toml: 1 warning
    "#);
    let wrong = window("limit = '5/d'\n[usage]\nfile = ''\nkeep = '5s'");
    assert!(wrong.contains("`file` is empty") && wrong.contains("the shortest is `1d`"), "{wrong}");
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
