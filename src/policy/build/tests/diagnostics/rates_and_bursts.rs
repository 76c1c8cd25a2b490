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
    error: `burst` without a `rate` or `limit`
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

#[test]
fn kind_is_one_of_the_kinds_that_exist() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nkind = 'token-bucket'\nlimit = 20\nplans.free = {}\n[plans.free]"), @r#"
    error: `kind` is `token_bucket`, `fixed_window`, `leaky_bucket`, `concurrency` or `sliding_window`, not `token-bucket`
     --> gateway.toml:3:8
      |
    3 | kind = 'token-bucket'
      |        ^^^^^^^^^^^^^^
      |
      = help: did you mean `kind = "token_bucket"`?

    gateway.toml: 1 error
    "#);
}

#[test]
fn kind_is_a_setting_of_the_rule() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\n[rules.r.plans.free]\nkind = 'token_bucket'\nrate = '1/s'\n[plans.free]"), @r"
    error: unknown name `kind` in `rules.r.plans.free`
     --> gateway.toml:4:1
      |
    4 | kind = 'token_bucket'
      | ^^^^
      |
      = help: all limits of a rule have the kind of the rule

    gateway.toml: 1 error
    ");
}

#[test]
fn rate_and_limit_exclude_each_other() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrate = '10/s'\nlimit = '1000/h'\n"), @r"
    error: a token bucket has a `rate` or a `limit`, not both
     --> gateway.toml:4:9
      |
    3 | rate = '10/s'
      |        ------ the rate
    4 | limit = '1000/h'
      |         ^^^^^^^^ the limit
      |
      = help: take out `rate`: it follows from `limit` and `burst`; or take out `limit`

    gateway.toml: 1 error
    ");
}

#[test]
fn rate_and_limit_of_a_plan_exclude_each_other() {
    insta::assert_snapshot!(render("[plans.free]\n[rules.r]\nper = []\nplans.free = { rate = '10/s', limit = '1000/h' }"), @r"
    error: a token bucket has a `rate` or a `limit`, not both
     --> gateway.toml:4:39
      |
    4 | plans.free = { rate = '10/s', limit = '1000/h' }
      |                       ------ the rate ^^^^^^^^ the limit
      |
      = help: take out `rate`: it follows from `limit` and `burst`; or take out `limit`

    gateway.toml: 1 error
    ");
}

#[test]
fn limit_has_a_period() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nlimit = '1000'"), @r"
    error: the limit has no period
     --> gateway.toml:3:9
      |
    3 | limit = '1000'
      |         ^^^^^^
      |
      = help: for one second, write `1000/s`

    gateway.toml: 1 error
    ");
}

#[test]
fn limit_is_a_string() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nlimit = 1000"), @r#"
    error: `limit` is a string, not a number
     --> gateway.toml:3:9
      |
    3 | limit = 1000
      |         ^^^^
      |
      = help: write `limit = "1000/s"`

    gateway.toml: 1 error
    "#);
}

#[test]
fn limit_of_0() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nlimit = '0/h'"), @r"
    error: a limit of 0 would let nothing pass
     --> gateway.toml:3:9
      |
    3 | limit = '0/h'
      |         ^^^^^
      |
      = help: to refuse requests, leave the route out instead

    gateway.toml: 1 error
    ");
}

#[test]
fn limit_of_1_is_a_rate() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nlimit = '1/h'"), @r#"
    error: a `limit` is at least 2: the burst is a part of it
     --> gateway.toml:3:9
      |
    3 | limit = '1/h'
      |         ^^^^^
      |
      = help: for one token in that time, write `rate = "1/h"` and `burst = 1`

    gateway.toml: 1 error
    "#);
}

#[test]
fn limit_has_a_period_above_0() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nlimit = '10/0h'"), @r"
    error: a limit needs a period longer than 0
     --> gateway.toml:3:9
      |
    3 | limit = '10/0h'
      |         ^^^^^^^

    gateway.toml: 1 error
    ");
}

#[test]
fn burst_is_less_than_the_limit() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nlimit = '1000/h'\nburst = 1000"), @r"
    error: a burst of 1000 leaves no rate: it must be less than the limit of 1000
     --> gateway.toml:4:9
      |
    4 | burst = 1000
      |         ^^^^
      |
      = help: write `burst = 100`, or another one up to 999: the rest of the limit is the rate

    gateway.toml: 1 error
    ");
}

#[test]
fn burst_of_a_limit_is_at_least_1() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nlimit = '1000/h'\nburst = 0"), @r"
    error: a burst of 0 would refuse every request; the smallest is 1
     --> gateway.toml:4:9
      |
    4 | burst = 0
      |         ^

    gateway.toml: 1 error
    ");
}

#[test]
fn burst_of_a_limit_is_too_large() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nlimit = '10000019/30d'"), @r"
    error: the burst is too large for this limit to be counted exactly
     --> gateway.toml:3:9
      |
    3 | limit = '10000019/30d'
      |         ^^^^^^^^^^^^^^
      |
      = help: write `burst = 3474` or less

    gateway.toml: 1 error
    ");
}

#[test]
fn window_of_a_limit_is_too_long() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nlimit = '3/2000000d'"), @r"
    error: the period of the limit is too long to be counted exactly
     --> gateway.toml:3:9
      |
    3 | limit = '3/2000000d'
      |         ^^^^^^^^^^^^

    gateway.toml: 1 error
    ");
}

#[test]
fn limit_is_too_large() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nlimit = '18446744073709551615/ms'\nburst = 5"), @r"
    error: the limit is too large: at most 9007199254740992 per period can be counted exactly
     --> gateway.toml:3:9
      |
    3 | limit = '18446744073709551615/ms'
      |         ^^^^^^^^^^^^^^^^^^^^^^^^^

    gateway.toml: 1 error
    ");
}

#[test]
fn burst_by_time_is_a_duration() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrate = '10/s'\nburst = '5 min'\n[rules.b]\nper = []\nrate = '10/s'\nburst = 'many'"), @r#"
    error: `burst` has an unknown unit
     --> gateway.toml:4:9
      |
    4 | burst = '5 min'
      |         ^^^^^^^
      |
      = help: write `burst = "5m"`

    error: `burst` is not a duration
     --> gateway.toml:8:9
      |
    8 | burst = 'many'
      |         ^^^^^^
      |
      = help: a duration looks like `10ms`, `5s`, `2m`, `1h` or `1d`

    gateway.toml: 2 errors
    "#);
}

#[test]
fn burst_by_time_is_above_0() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrate = '10/s'\nburst = '0s'"), @r"
    error: `burst` cannot be 0
     --> gateway.toml:4:9
      |
    4 | burst = '0s'
      |         ^^^^
      |
      = help: the shortest is `1ms`

    gateway.toml: 1 error
    ");
}

#[test]
fn burst_by_time_is_at_most_366_days() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrate = '10/s'\nburst = '367d'"), @r"
    error: `burst` is too long
     --> gateway.toml:4:9
      |
    4 | burst = '367d'
      |         ^^^^^^
      |
      = help: the longest is `366d`

    gateway.toml: 1 error
    ");
}

#[test]
fn burst_by_time_is_too_large() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrate = '1000003/d'\nburst = '366d'"), @r"
    error: the burst is too large for this rate: at most 104249 can be counted exactly
     --> gateway.toml:4:9
      |
    4 | burst = '366d'
      |         ^^^^^^

    gateway.toml: 1 error
    ");
}

#[test]
fn burst_is_not_a_fraction() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrate = '10/s'\nburst = 1.5\n[rules.b]\nper = []\nrate = '10/s'\nburst = 50.0"), @r"
    error: `burst` is a whole number or a duration, not a fraction
     --> gateway.toml:4:9
      |
    4 | burst = 1.5
      |         ^^^

    error: `burst` is a whole number or a duration, not a fraction
     --> gateway.toml:8:9
      |
    8 | burst = 50.0
      |         ^^^^
      |
      = help: write `burst = 50`

    gateway.toml: 2 errors
    ");
}

#[test]
fn burst_without_a_rate_or_limit() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nburst = '5m'"), @r#"
    error: `burst` without a `rate` or `limit`
     --> gateway.toml:3:9
      |
    3 | burst = '5m'
      |         ^^^^
      |
      = help: add `rate = "10/s"`

    gateway.toml: 1 error
    "#);
}
