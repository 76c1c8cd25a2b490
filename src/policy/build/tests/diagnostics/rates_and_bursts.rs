//! Rates and bursts that cannot be.

use super::super::render;

#[test]
fn unknown_unit_sec() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrate = '10/sec'"), @r"
    error: unknown unit `sec`
     --> gateway.toml:3:8
      |
    3 | rate = '10/sec'
      |        ^^^^^^^^
      |
      = help: write `10/s`

    gateway.toml: 1 error
    ");
}

#[test]
fn the_rate_has_no_period() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrate = '10'"), @r"
    error: the rate has no period
     --> gateway.toml:3:8
      |
    3 | rate = '10'
      |        ^^^^
      |
      = help: for one second, write `10/s`

    gateway.toml: 1 error
    ");
}

#[test]
fn a_rate_of_0_would_let_nothing_pass() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrate = '0/s'"), @r"
    error: a rate of 0 would let nothing pass; to refuse requests, leave the route out instead
     --> gateway.toml:3:8
      |
    3 | rate = '0/s'
      |        ^^^^^

    gateway.toml: 1 error
    ");
}

#[test]
fn a_burst_of_0_would_refuse_every_request() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrate = '1/s'\nburst = 0"), @r"
    error: a burst of 0 would refuse every request; the smallest is 1
     --> gateway.toml:4:9
      |
    4 | burst = 0
      |         ^

    gateway.toml: 1 error
    ");
}

#[test]
fn the_burst_is_too_large_for_this_rate() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrate = '1/s'\nburst = 9223372036854775807"), @r"
    error: the burst is too large for this rate: at most 9007199254 can be counted exactly
     --> gateway.toml:4:9
      |
    4 | burst = 9223372036854775807
      |         ^^^^^^^^^^^^^^^^^^^

    gateway.toml: 1 error
    ");
}

#[test]
fn burst_without_a_rate() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nburst = 5"), @r#"
    error: `burst` without a `rate`
     --> gateway.toml:3:9
      |
    3 | burst = 5
      |         ^
      |
      = help: add `rate = "10/s"`

    gateway.toml: 1 error
    "#);
}

#[test]
fn the_rule_r_has_no_rate() {
    insta::assert_snapshot!(render("[rules.r]\nper = []"), @r#"
    error: the rule `r` has no rate
     --> gateway.toml:1:8
      |
    1 | [rules.r]
      |        ^
      |
      = help: add `rate = "10/s"`, or `plans.<plan> = { rate = "10/s" }` for each plan

    gateway.toml: 1 error
    "#);
}

#[test]
fn the_rule_r_has_no_per() {
    insta::assert_snapshot!(render("[rules.r]\nrate = '1/s'"), @r#"
    error: the rule `r` has no `per`
     --> gateway.toml:1:8
      |
    1 | [rules.r]
      |        ^
      |
      = help: write `per = ["key"]` or `per = ["ip"]`; `per = []` is one bucket for all

    gateway.toml: 1 error
    "#);
}

#[test]
fn rules_r_plans_default_has_no_rate() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nplans.default = { burst = 5 }"), @r#"
    error: `rules.r.plans.default` has no rate
     --> gateway.toml:3:7
      |
    3 | plans.default = { burst = 5 }
      |       ^^^^^^^
      |
      = help: write `{ rate = "10/s", burst = 20 }`

    gateway.toml: 1 error
    "#);
}

#[test]
fn the_period_of_the_rate_is_too_long_to_be_counted_exactly() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrate = '1/200000d'"), @r"
    error: the period of the rate is too long to be counted exactly
     --> gateway.toml:3:8
      |
    3 | rate = '1/200000d'
      |        ^^^^^^^^^^^
      |
      = help: take a shorter one, such as `1/30d`

    gateway.toml: 1 error
    ");
}

#[test]
fn rate_is_a_fraction_or_spelt_otherwise() {
    let each = ["1.5/s", "10 per second", "10rps", "10r/s", "100/min"];
    let each = each.map(|rate| render(&format!("[rules.r]\nper = []\nrate = '{rate}'")));
    insta::assert_snapshot!(each.join("\n"), @r"
    error: the number of a rate is whole
     --> gateway.toml:3:8
      |
    3 | rate = '1.5/s'
      |        ^^^^^^^
      |
      = help: write `90/m`, which is the same; its burst is 90 if `burst` is left out

    gateway.toml: 1 error

    error: `10 per second` is not a rate
     --> gateway.toml:3:8
      |
    3 | rate = '10 per second'
      |        ^^^^^^^^^^^^^^^
      |
      = help: write `10/s`

    gateway.toml: 1 error

    error: `10rps` is not a rate
     --> gateway.toml:3:8
      |
    3 | rate = '10rps'
      |        ^^^^^^^
      |
      = help: write `10/s`

    gateway.toml: 1 error

    error: `10r/s` is not a rate
     --> gateway.toml:3:8
      |
    3 | rate = '10r/s'
      |        ^^^^^^^
      |
      = help: write `10/s`

    gateway.toml: 1 error

    error: unknown unit `min`
     --> gateway.toml:3:8
      |
    3 | rate = '100/min'
      |        ^^^^^^^^^
      |
      = help: write `100/m`

    gateway.toml: 1 error
    ");
}
