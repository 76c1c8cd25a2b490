//! Rates and delays of leaky buckets that cannot be.

use super::super::render;

/// The diagnostics of a rule of this kind with these settings.
fn leaky(settings: &str) -> String {
    render(&format!("[rules.r]\nper = []\nkind = 'leaky_bucket'\n{settings}"))
}

#[test]
fn delay_has_a_default() {
    assert_eq!(leaky("rate = '10/s'"), "no errors\n");
    assert_eq!(leaky("rate = '10/s'\nmax_delay = '10m'"), "no errors\n");
    let of_a_plan = "rate = '10/s'\nplans.free = { rate = '1/s', max_delay = '2s' }\n[plans.free]";
    assert_eq!(leaky(of_a_plan), "no errors\n");
}

#[test]
fn leaky_bucket_has_a_rate() {
    insta::assert_snapshot!(leaky("max_delay = '1s'"));
}

#[test]
fn leaky_bucket_has_no_limit() {
    insta::assert_snapshot!(leaky("limit = '10/s'"));
}

#[test]
fn leaky_bucket_has_no_burst() {
    insta::assert_snapshot!(leaky("rate = '10/s'\nburst = 5"));
}

#[test]
fn delay_is_not_0() {
    insta::assert_snapshot!(leaky("rate = '10/s'\nmax_delay = '0s'"));
}

#[test]
fn delay_is_too_long() {
    insta::assert_snapshot!(leaky("rate = '10/s'\nmax_delay = '1h'"));
}

#[test]
fn rate_is_0() {
    insta::assert_snapshot!(leaky("rate = '0/s'"));
}

#[test]
fn delay_of_a_token_bucket() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrate = '1/s'\nmax_delay = '1s'"));
}

#[test]
fn delay_of_a_plan_of_a_token_bucket() {
    insta::assert_snapshot!(render(
        "[rules.r]\nper = []\nrate = '1/s'\nplans.free = { rate = '1/s', max_delay = '1s' }\n[plans.free]"
    ));
}
