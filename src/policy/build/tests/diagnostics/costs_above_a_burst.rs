//! Costs that no bucket could ever pay.

use super::super::render;

#[test]
fn every_grant_below_the_cost_is_reported() {
    insta::assert_snapshot!(render("[routes.r]\npath = '/r'\ncost = 50\n[rules.x]\nper = ['ip']\nrate = '10/s'\nplans.default = { rate = '1/s', burst = 49 }\n[rules.off]\nper = []\nrate = '1/s'\nenabled = false"), @r"
    error: a request to `r` costs 50, more than the burst of 10 that the rule `x` allows: it could never pass
     --> gateway.toml:3:8
      |
    3 | cost = 50
      |        ^^ the cost
    ...
    6 | rate = '10/s'
      |        ------ at most 10
      |
      = help: lower the cost, or write `burst = 50` or more

    error: a request to `r` costs 50, more than the burst of 49 that the rule `x` allows the plan `default`: it could never pass
     --> gateway.toml:3:8
      |
    3 | cost = 50
      |        ^^ the cost
    ...
    7 | plans.default = { rate = '1/s', burst = 49 }
      |                                         -- at most 49
      |
      = help: lower the cost, or write `burst = 50` or more

    gateway.toml: 2 errors
    ");
}

#[test]
fn grant_of_one_key_below_the_cost_is_reported() {
    insta::assert_snapshot!(render("[plans.free]\n[keys.k]\nplan='free'\nsha256 = '9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F'\nrules.x = { rate = '1/s' }\n[routes.r]\ncost = 2\npath='/r'\n[rules.x]\nper = ['key']\nrate = '10/s'\non_missing='skip'\n[rules.y]\nper=['ip']\nrate='5/s'\non_missing='deny'"), @r#"
    error: a request to `r` costs 2, more than the burst of 1 that the rule `x` allows the key `k`: it could never pass
     --> gateway.toml:7:8
      |
    5 | rules.x = { rate = '1/s' }
      |                    ----- at most 1
    6 | [routes.r]
    7 | cost = 2
      |        ^ the cost
      |
      = help: lower the cost, or write `burst = 2` or more

    error: `on_missing` is for rules per key, and this rule's `per` has no `key`
      --> gateway.toml:16:12
       |
    16 | on_missing='deny'
       |            ^^^^^^
       |
       = help: take `on_missing` out, or add `"key"` to `per`

    gateway.toml: 2 errors
    "#);
}

#[test]
fn grants_below_the_cost_of_their_rule_are_reported_whatever_routes_cost() {
    insta::assert_snapshot!(render(
        "[routes.r]\npath = '/r'\ncost = 50\n[rules.x]\nper = ['ip']\nlimit = 5\nkind = 'concurrency'\ncost = 6\n[rules.y]\nper = []\nrate = '1/s'\ncost = 1\n[rules.off]\nper = []\nrate = '1/s'\ncost = 2\nenabled = false"
    ));
}

#[test]
fn route_is_not_compared_with_a_rule_whose_cost_is_an_error() {
    insta::assert_snapshot!(render(
        "[routes.r]\npath = '/r'\ncost = 50\n[rules.x]\nper = ['ip']\nrate = '5/s'\ncost = 0"
    ));
}

#[test]
fn cost_has_at_most_three_decimals_and_is_above_0() {
    insta::assert_snapshot!(render("[routes.a]\npath = '/a'\ncost = 0.0005\n[routes.b]\npath = '/b'\ncost = 0.0\n[routes.c]\npath = '/c'\ncost = -0.5\n[routes.d]\npath = '/d'\ncost = '0.5'\n[routes.e]\npath = '/e'\ncost = 1000000000000000000"), @r"
    error: `cost` is a number with at most three decimals, not `0.0005`
     --> gateway.toml:3:8
      |
    3 | cost = 0.0005
      |        ^^^^^^

    error: `cost` is above 0
     --> gateway.toml:6:8
      |
    6 | cost = 0.0
      |        ^^^
      |
      = help: to let requests pass uncounted, leave the route out of the rules

    error: `cost` cannot be negative
     --> gateway.toml:9:8
      |
    9 | cost = -0.5
      |        ^^^^

    error: `cost` is a number with at most three decimals, not a string
      --> gateway.toml:12:8
       |
    12 | cost = '0.5'
       |        ^^^^^
       |
       = help: write `cost = 0.5`

    error: `cost` is too large
      --> gateway.toml:15:8
       |
    15 | cost = 1000000000000000000
       |        ^^^^^^^^^^^^^^^^^^^

    gateway.toml: 5 errors
    ");
}

#[test]
fn cost_with_decimals_above_a_burst_is_reported() {
    insta::assert_snapshot!(render("[routes.r]\npath = '/r'\ncost = 2.5\n[rules.x]\nper = []\nrate = '2/s'\n"), @r"
    error: a request to `r` costs 2.5, more than the burst of 2 that the rule `x` allows: it could never pass
     --> gateway.toml:3:8
      |
    3 | cost = 2.5
      |        ^^^ the cost
    ...
    6 | rate = '2/s'
      |        ----- at most 2
      |
      = help: lower the cost, or write `burst = 3` or more

    gateway.toml: 1 error
    ");
}

#[test]
fn burst_that_cannot_be_counted_in_parts_of_a_token_is_reported() {
    insta::assert_snapshot!(render("[routes.r]\npath = '/r'\ncost = 0.001\n[rules.x]\nper = []\nrate = '1000000/s'\nburst = 9007199254740992\n"), @r"
    error: the burst is too large for this rate: at most 9007199254740 can be counted exactly
     --> gateway.toml:7:9
      |
    7 | burst = 9007199254740992
      |         ^^^^^^^^^^^^^^^^

    gateway.toml: 1 error
    ");
}
