//! Routes that more rules count than one check can carry.

use std::fmt::Write as _;

use super::super::render;

/// A file in which `count` rules count every route.
fn rules(count: usize) -> String {
    let mut text = String::new();
    for number in 1..=count {
        let _ = writeln!(text, "[rules.r{number}]\nper = ['ip']\nrate = '10/s'");
    }
    text
}

#[test]
fn rule_beyond_the_limit_of_a_route_is_refused_with_its_line() {
    assert_eq!(render(&rules(128)), "no errors\n");
    insta::assert_snapshot!(render(&rules(129)), @r"
    error: the rule `r129` is one too many for the route `all`: at most 128 rules may count the requests of a route
       --> gateway.toml:385:8
        |
    385 | [rules.r129]
        |        ^^^^
    ...
    391 | [routes.all]
        |         --- the route
        |
        = help: list under `routes` of each rule only the routes that it is for, or make rules that differ by plan one rule with `plans.<plan>`

    gateway.toml: 1 error
    ");
}

#[test]
fn each_rule_beyond_the_limit_is_reported_once() {
    let text = format!("{}[routes.other]\npath = '/other'\n", rules(130));
    assert!(render(&text).ends_with("gateway.toml: 2 errors\n"), "{}", render(&text));
}

#[test]
fn rules_that_are_disabled_or_count_other_routes_do_not_count_towards_the_limit() {
    let more = "[rules.off]\nper = []\nrate = '1/s'\nenabled = false\n\
        [routes.other]\npath = '/other'\n\
        [rules.elsewhere]\nper = []\nrate = '1/s'\nroutes = ['other']\n";
    let text = format!("{}{more}", rules(127));
    assert_eq!(render(&text), "no errors\n");
}
