//! Limits of sliding windows that cannot be.

use super::super::render;

/// The diagnostics of a rule of this kind with these settings.
fn sliding(settings: &str) -> String {
    render(&format!("[rules.r]\nper = []\nkind = 'sliding_window'\n{settings}"))
}

#[test]
fn limits_that_can_be_counted() {
    for limit in ["1/s", "100/m", "4096/365d", "5/250ms", "1/104249d"] {
        let found = sliding(&format!("limit = '{limit}'\n[usage]\nfile = 'usage.redb'"));
        assert_eq!(found, "no errors\n", "{limit}");
    }
    let of_a_plan = "limit = '10/s'\nplans.free = { limit = '1/s' }\n[plans.free]";
    assert_eq!(sliding(of_a_plan), "no errors\n");
}

#[test]
fn stamps_that_a_restart_loses_are_warned_of() {
    assert_eq!(sliding("limit = '5/59m'"), "no errors\n");
    insta::assert_snapshot!(sliding("limit = '5/h'"), @r#"
    warning: a restart loses the counts of `r`: they are in the memory of this process
     --> gateway.toml:4:9
      |
    4 | limit = '5/h'
      |         ^^^^^
      |
      = help: write `file = "usage.redb"` under `[usage]`, or count in `[redis]`

    gateway.toml: 1 warning
    "#);
}

#[test]
fn limit_is_above_what_a_log_holds() {
    insta::assert_snapshot!(sliding("limit = '4097/m'"));
}

#[test]
fn limit_of_0() {
    insta::assert_snapshot!(sliding("limit = '0/m'"));
}

#[test]
fn window_of_0() {
    insta::assert_snapshot!(sliding("limit = '5/0s'"));
}

#[test]
fn window_is_too_long() {
    insta::assert_snapshot!(sliding("limit = '5/104250d'"));
}

#[test]
fn sliding_window_has_a_limit() {
    insta::assert_snapshot!(sliding(""));
}

#[test]
fn sliding_window_has_no_rate() {
    insta::assert_snapshot!(sliding("rate = '10/s'"));
}

#[test]
fn sliding_window_has_no_burst() {
    insta::assert_snapshot!(sliding("limit = '10/s'\nburst = 5"));
}

#[test]
fn sliding_window_of_a_plan_has_a_limit() {
    insta::assert_snapshot!(sliding("limit = '10/s'\nplans.free = {}\n[plans.free]"));
}

#[test]
fn calendar_period_of_a_sliding_window() {
    insta::assert_snapshot!(sliding("limit = '10/month'\nzone = 'UTC'"));
}

#[test]
fn cost_with_decimals() {
    let route = "[routes.half]\npath = '/half'\ncost = 0.5";
    insta::assert_snapshot!(sliding(&format!("limit = '10/s'\n{route}")));
    let other =
        format!("limit = '10/s'\nroutes = ['other']\n[routes.other]\npath = '/other'\n{route}");
    assert_eq!(sliding(&other), "no errors\n");
    let own = format!("limit = '10/s'\ncost = 2\n{route}");
    assert_eq!(sliding(&own), "no errors\n");
    insta::assert_snapshot!(sliding("limit = '10/s'\ncost = 1.5"));
}

#[test]
fn cost_above_the_limit() {
    insta::assert_snapshot!(sliding("limit = '10/s'\n[routes.large]\npath = '/large'\ncost = 11"));
}
