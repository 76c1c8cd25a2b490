//! Names and words that do not exist.

use super::super::{messages, render};

#[test]
fn unknown_name_rtae_in_rules_r() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrtae = '1/s'\nbrust = 5"), @r"
    error: unknown name `rtae` in `rules.r`
     --> gateway.toml:3:1
      |
    3 | rtae = '1/s'
      | ^^^^
      |
      = help: did you mean `rate`?

    error: unknown name `brust` in `rules.r`
     --> gateway.toml:4:1
      |
    4 | brust = 5
      | ^^^^^
      |
      = help: did you mean `burst`?

    gateway.toml: 2 errors
    ");
}

#[test]
fn unknown_name_rulez() {
    insta::assert_snapshot!(render("[rulez.r]\nper = []"), @r"
    error: unknown name `rulez`
     --> gateway.toml:1:2
      |
    1 | [rulez.r]
      |  ^^^^^
      |
      = help: did you mean `rules`?

    gateway.toml: 1 error
    ");
}

#[test]
fn on_unknown_key_is_deny_anonymous_or_accept_not_alow() {
    insta::assert_snapshot!(render("[clients]\non_unknown_key = 'alow'\nipv6 = 64"), @r"
    error: `on_unknown_key` is `deny`, `anonymous` or `accept`, not `alow`
     --> gateway.toml:2:18
      |
    2 | on_unknown_key = 'alow'
      |                  ^^^^^^

    error: unknown name `ipv6` in `clients`
     --> gateway.toml:3:1
      |
    3 | ipv6 = **
      | ^^^^
      |
      = help: did you mean `ipv6_prefix`?

    gateway.toml: 2 errors
    ");
}

#[test]
fn there_is_no_plan_fre() {
    insta::assert_snapshot!(render("[plans.free]\n[keys.k]\nsha256 = '9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F'\nplan = 'fre'"), @r"
    error: there is no plan `fre`
     --> gateway.toml:4:8
      |
    4 | plan = 'fre'
      |        ^^^^^
      |
      = help: did you mean `free`?

    gateway.toml: 1 error
    ");
}

#[test]
fn per_does_not_take_per_key() {
    insta::assert_snapshot!(render("[rules.r]\nper = ['per-key', 'ips', 'ip', 'ip']\nrate = '1/s'\nroutes = ['al']"), @r"
    error: `per` does not take `per-key`
     --> gateway.toml:2:8
      |
    2 | per = ['per-key', 'ips', 'ip', 'ip']
      |        ^^^^^^^^^
      |
      = help: did you mean `key`?

    error: `per` does not take `ips`
     --> gateway.toml:2:19
      |
    2 | per = ['per-key', 'ips', 'ip', 'ip']
      |                   ^^^^^
      |
      = help: did you mean `ip`?

    error: `ip` is written twice
     --> gateway.toml:2:32
      |
    2 | per = ['per-key', 'ips', 'ip', 'ip']
      |                          ----  ^^^^
      |                          |
      |                          here first

    error: there is no route `al`
     --> gateway.toml:4:11
      |
    4 | routes = ['al']
      |           ^^^^
      |
      = help: did you mean `all`?

    gateway.toml: 4 errors
    ");
}

#[test]
fn there_is_no_rule_x() {
    insta::assert_snapshot!(render("[keys.k]\nsha256 = '9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F'\nrules.x = { rate = '1/s' }"), @r"
    error: there is no rule `x`
     --> gateway.toml:3:7
      |
    3 | rules.x = { rate = '1/s' }
      |       ^
      |
      = help: add `[rules.x]`

    gateway.toml: 1 error
    ");
}

#[test]
fn the_name_of_a_rule_cannot_hold() {
    insta::assert_snapshot!(render("[rules.'a b']\nper = []\nrate = '1/s'\n[rules.\"\"]\nper = []\nrate = '1/s'"), @r#"
    error: the name of a rule cannot hold ' '
     --> gateway.toml:1:8
      |
    1 | [rules.'a b']
      |        ^^^^^
      |
      = help: a name is made of letters A-Z and a-z, digits, `_`, `.` and `-`

    error: the name of a rule is empty
     --> gateway.toml:4:8
      |
    4 | [rules.""]
      |        ^^
      |
      = help: a name is made of letters A-Z and a-z, digits, `_`, `.` and `-`

    gateway.toml: 2 errors
    "#);
}

#[test]
fn root_setting_like_a_table_hides_no_error() {
    let text = "upstream = 'api'\nrout = 1\n[upstreams.api]\n[plans.free]\n";
    assert_eq!(
        messages(text),
        [
            "unknown name `upstream`",
            "there are no routes: every request would be answered 404",
            "unknown name `rout`",
            "the upstream `api` has no servers",
        ]
    );
}

#[test]
fn name_of_a_rule_is_too_long() {
    let name = "per-key-".repeat(9);
    insta::assert_snapshot!(render(&format!("[rules.{name}]\nper = []\nrate = '1/s'")), @r"
    error: the name of a rule has 72 characters
     --> gateway.toml:1:8
      |
    1 | [rules.per-key-per-key-per-key-per-key-per-key-per-key-per-key-per-key-per-key-]
      |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ too long
      |
      = help: a name has at most 64; this one begins `per-key-per-key-per-key-…`

    gateway.toml: 1 error
    ");
}

#[test]
fn parameter_of_per_is_not_in_the_paths() {
    let routes = "[routes.a]\npath = '/v1/{tenant}/*'\n[routes.b]\npath = '/{other}/x'\n";
    let rule = |per: &str| format!("{routes}[rules.r]\nper = [{per}]\nrate = '1/s'");
    insta::assert_snapshot!(render(&rule("'param:tenent', 'param:', 'param:a-b', 'ip'")));
    insta::assert_snapshot!(render(&rule("'param:tenant', 'ip'")));
    insta::assert_snapshot!(render("[rules.r]\nper = ['param:tenant']\nrate = '1/s'"));
}

#[test]
fn help_lists_everything_that_rules_count_by() {
    let text = render("[rules.r]\nper = ['zzzzzzzz']\nrate = '1/s'");
    let help = text.split("help: ").nth(1).unwrap();
    let each =
        ["ip", "key", "plan", "route", "method", "host", "header:<name>", "param:<name>", "cert"];
    assert!(each.iter().all(|item| help.contains(&format!("`{item}`"))), "{text}");
}
