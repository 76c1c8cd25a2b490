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
