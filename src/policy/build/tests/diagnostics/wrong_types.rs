//! Values of another type than the setting's.

use super::super::render;

#[test]
fn burst_in_quotes_is_a_duration() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrate = '1/s'\nburst = \"50\""), @r#"
    error: `burst` has no unit
     --> gateway.toml:4:9
      |
    4 | burst = "50"
      |         ^^^^
      |
      = help: for 50 tokens, write `burst = 50`; a duration looks like `5m`

    gateway.toml: 1 error
    "#);
}

#[test]
fn rate_is_a_string_not_a_number() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrate = 10"), @r#"
    error: `rate` is a string, not a number
     --> gateway.toml:3:8
      |
    3 | rate = 10
      |        ^^
      |
      = help: write `rate = "10/s"`

    gateway.toml: 1 error
    "#);
}

#[test]
fn per_is_a_list_not_a_string() {
    insta::assert_snapshot!(render("[rules.r]\nper = \"ip\"\nrate = '1/s'"), @r#"
    error: `per` is a list, not a string
     --> gateway.toml:2:7
      |
    2 | per = "ip"
      |       ^^^^
      |
      = help: write `per = ["ip"]`

    gateway.toml: 1 error
    "#);
}

#[test]
fn burst_cannot_be_negative() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrate = '1/s'\nburst = -1"), @r"
    error: `burst` cannot be negative
     --> gateway.toml:4:9
      |
    4 | burst = -1
      |         ^^

    gateway.toml: 1 error
    ");
}

#[test]
fn burst_is_a_whole_number_not_1e30() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrate = '1/s'\nburst = 1e30"), @r"
    error: `burst` is a whole number or a duration, not `1e30`
     --> gateway.toml:4:9
      |
    4 | burst = 1e30
      |         ^^^^

    gateway.toml: 1 error
    ");
    insta::assert_snapshot!(render("[routes.x]\npath = '/x'\ncost = 1e3"), @r"
    error: `cost` is a number with at most three decimals, not `1e3`
     --> gateway.toml:3:8
      |
    3 | cost = 1e3
      |        ^^^
      |
      = help: write `cost = 1000`

    gateway.toml: 1 error
    ");
}

#[test]
fn burst_is_a_whole_number_not_nan() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrate = '1/s'\nburst = nan"), @r"
    error: `burst` is a whole number or a duration, not `nan`
     --> gateway.toml:4:9
      |
    4 | burst = nan
      |         ^^^

    gateway.toml: 1 error
    ");
}

#[test]
fn burst_is_too_large() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrate = '1/s'\nburst = 1000000000000000000000000000000"), @r"
    error: `burst` is too large
     --> gateway.toml:4:9
      |
    4 | burst = 1000000000000000000000000000000
      |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

    gateway.toml: 1 error
    ");
}

#[test]
fn hide_key_is_true_or_false_not_a_string() {
    insta::assert_snapshot!(render("[clients]\nhide_key = 'true'"), @r"
    error: `hide_key` is `true` or `false`, not a string
     --> gateway.toml:2:12
      |
    2 | hide_key = 'true'
      |            ^^^^^^
      |
      = help: write `hide_key = true`

    gateway.toml: 1 error
    ");
}

#[test]
fn read_timeout_is_a_string_not_a_number() {
    insta::assert_snapshot!(render("[server]\nread_timeout = 5\nlisten = ['0.0.0.0:1', 80]"), @r#"
    error: `read_timeout` is a string, not a number
     --> gateway.toml:2:16
      |
    2 | read_timeout = 5
      |                ^
      |
      = help: write `read_timeout = "5s"`

    error: an item of `listen` is a string, not a number
     --> gateway.toml:3:24
      |
    3 | listen = ['0.0.0.0:1', 80]
      |                        ^^
      |
      = help: write `"0.0.0.0:80"`

    gateway.toml: 2 errors
    "#);
}

#[test]
fn server_is_a_table_not_a_number() {
    insta::assert_snapshot!(render("server = 5\nplans = ['free']"), @r"
    error: `server` is a table, not a number
     --> gateway.toml:1:10
      |
    1 | server = 5
      |          ^
      |
      = help: write `[server]`, and its settings below

    error: `plans` is a table with names, not a list
     --> gateway.toml:2:9
      |
    2 | plans = ['free']
      |         ^^^^^^^^
      |
      = help: write `[plans.free]`, with its settings below

    gateway.toml: 2 errors
    ");
}

#[test]
fn list_is_not_a_table() {
    insta::assert_snapshot!(render("memory = [5]\n[[server]]\nthreads = 1"), @r"
    error: `memory` is a table, not a list
     --> gateway.toml:1:10
      |
    1 | memory = [5]
      |          ^^^
      |
      = help: write `[memory]`, once and in single brackets

    error: `server` is a table, not a list
     --> gateway.toml:2:1
      |
    2 | [[server]]
      | ^^^^^^^^^^
      |
      = help: write `[server]`, once and in single brackets

    gateway.toml: 2 errors
    ");
}
