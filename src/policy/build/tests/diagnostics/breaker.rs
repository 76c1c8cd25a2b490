//! When requests stop waiting for Redis, and how they return.

use super::super::render;

/// The diagnostics of a `[redis.breaker]` with these lines.
fn render_with(lines: &str) -> String {
    render(&format!("[redis]\nurl = 'redis://h'\n[redis.breaker]\n{lines}"))
}

#[test]
fn counts_are_out_of_range() {
    insta::assert_snapshot!(render_with("timeouts = 0\nwindow_calls = 200_000\nwindow_timeouts = 101\nprobes = -1"), @r"
    error: `timeouts` is at least 1 and at most 1000
     --> gateway.toml:4:12
      |
    4 | timeouts = 0
      |            ^

    error: `window_calls` is at least 1 and at most 100000
     --> gateway.toml:5:16
      |
    5 | window_calls = 200_000
      |                ^^^^^^^

    error: `window_timeouts` is at least 1 and at most 100
     --> gateway.toml:6:19
      |
    6 | window_timeouts = 101
      |                   ^^^

    error: `probes` cannot be negative
     --> gateway.toml:7:10
      |
    7 | probes = -1
      |          ^^

    gateway.toml: 4 errors
    ");
}

#[test]
fn a_share_is_a_fraction() {
    insta::assert_snapshot!(render_with("window_timeouts = 0.5"), @r"
    error: `window_timeouts` is a whole number, not a fraction
     --> gateway.toml:4:19
      |
    4 | window_timeouts = 0.5
      |                   ^^^

    gateway.toml: 1 error
    ");
}

#[test]
fn times_are_out_of_range() {
    insta::assert_snapshot!(render_with("window = '0s'\nopen = '2h'\nramp_step = '1'"), @r#"
    error: `window` cannot be 0
     --> gateway.toml:4:10
      |
    4 | window = '0s'
      |          ^^^^
      |
      = help: the shortest is `1ms`

    error: `open` is too long
     --> gateway.toml:5:8
      |
    5 | open = '2h'
      |        ^^^^
      |
      = help: the longest is `1h`

    error: `ramp_step` has no unit
     --> gateway.toml:6:13
      |
    6 | ramp_step = '1'
      |             ^^^
      |
      = help: for seconds, write `ramp_step = "1s"`

    gateway.toml: 3 errors
    "#);
}

#[test]
fn times_are_numbers() {
    insta::assert_snapshot!(render_with("window = 5\nopen = 500"), @r#"
    error: `window` is a string, not a number
     --> gateway.toml:4:10
      |
    4 | window = 5
      |          ^
      |
      = help: write `window = "5s"`

    error: `open` is a string, not a number
     --> gateway.toml:5:8
      |
    5 | open = 500
      |        ^^^
      |
      = help: write `open = "500ms"`

    gateway.toml: 2 errors
    "#);
}

#[test]
fn open_max_is_shorter_than_open() {
    insta::assert_snapshot!(render_with("open = '2s'\nopen_max = '1500ms'"), @r"
    error: `open_max` is shorter than `open`
     --> gateway.toml:5:12
      |
    4 | open = '2s'
      |        ---- the first time it stays open
    5 | open_max = '1500ms'
      |            ^^^^^^^^
      |
      = help: `open` doubles up to `open_max`; for the same time throughout, give both one value

    gateway.toml: 1 error
    ");
    insta::assert_snapshot!(render_with("open = '20s'"), @r#"
    error: `open` is longer than `open_max`, by default 15s
     --> gateway.toml:4:8
      |
    4 | open = '20s'
      |        ^^^^^
      |
      = help: write `open_max = "20s"` or longer, too

    gateway.toml: 1 error
    "#);
    insta::assert_snapshot!(render_with("open_max = '100ms'"), @r#"
    error: `open_max` is shorter than `open`, by default 500ms
     --> gateway.toml:4:12
      |
    4 | open_max = '100ms'
      |            ^^^^^^^
      |
      = help: write `open = "100ms"` or shorter, too

    gateway.toml: 1 error
    "#);
}

#[test]
fn open_is_longer_than_a_failover_by_sentinels() {
    insta::assert_snapshot!(render("[redis]\nurl = 'redis+sentinel://h/m'\nbreaker.open = '2s'"), @r#"
    error: `open` is longer than `open_max`, by default 1s with sentinels
     --> gateway.toml:3:16
      |
    3 | breaker.open = '2s'
      |                ^^^^
      |
      = help: write `open_max = "2s"` or longer, too

    gateway.toml: 1 error
    "#);
}

#[test]
fn misspelt_open_max_is_the_only_error() {
    insta::assert_snapshot!(render_with("open = '20s'\nopne_max = '30s'"), @r"
    error: unknown name `opne_max` in `redis.breaker`
     --> gateway.toml:5:1
      |
    5 | opne_max = *****
      | ^^^^^^^^
      |
      = help: did you mean `open_max`?

    gateway.toml: 1 error
    ");
}

#[test]
fn ramp_does_not_end_at_100() {
    insta::assert_snapshot!(render_with("ramp = []"), @r"
    error: `ramp` has no step
     --> gateway.toml:4:8
      |
    4 | ramp = []
      |        ^^
      |
      = help: it looks like `ramp = [1, 10, 50, 100]`; `[100]` returns all at once

    gateway.toml: 1 error
    ");
    insta::assert_snapshot!(render_with("ramp = [1, 10, 50]"), @r"
    error: the last step of `ramp` is not 100: some requests would never return
     --> gateway.toml:4:16
      |
    4 | ramp = [1, 10, 50]
      |                ^^
      |
      = help: it looks like `ramp = [1, 10, 50, 100]`; `[100]` returns all at once

    gateway.toml: 1 error
    ");
    insta::assert_snapshot!(render_with("ramp = [10, 1, 100]"), @r"
    error: a step of `ramp` is below the one before it
     --> gateway.toml:4:13
      |
    4 | ramp = [10, 1, 100]
      |         --  ^
      |         |
      |         before it

    gateway.toml: 1 error
    ");
    insta::assert_snapshot!(render_with("ramp = [0, 50, 101]"), @r"
    error: a step of `ramp` is a percentage, at least 1 and at most 100
     --> gateway.toml:4:9
      |
    4 | ramp = [0, 50, 101]
      |         ^

    error: a step of `ramp` is a percentage, at least 1 and at most 100
     --> gateway.toml:4:16
      |
    4 | ramp = [0, 50, 101]
      |                ^^^

    gateway.toml: 2 errors
    ");
    insta::assert_snapshot!(render_with("ramp = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 100]"), @r"
    error: `ramp` has more than 16 steps
     --> gateway.toml:4:8
      |
    4 | ramp = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 100]
      |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

    gateway.toml: 1 error
    ");
}

#[test]
fn ramp_is_not_a_list() {
    insta::assert_snapshot!(render_with("ramp = 100"), @r"
    error: `ramp` is a list, not a number
     --> gateway.toml:4:8
      |
    4 | ramp = 100
      |        ^^^
      |
      = help: write `ramp = [100]`

    gateway.toml: 1 error
    ");
    insta::assert_snapshot!(render_with("ramp = [1, '50%', 100]"), @r"
    error: an item of `ramp` is a whole number, not a string
     --> gateway.toml:4:12
      |
    4 | ramp = [1, '50%', 100]
      |            ^^^^^

    gateway.toml: 1 error
    ");
}

#[test]
fn unknown_names_in_breaker() {
    insta::assert_snapshot!(render_with("timeout = 5\npassword = 'my-secret'"), @r"
    error: unknown name `timeout` in `redis.breaker`
     --> gateway.toml:4:1
      |
    4 | timeout = *
      | ^^^^^^^
      |
      = help: did you mean `timeouts`?

    error: unknown name `password` in `redis.breaker`
     --> gateway.toml:5:1
      |
    5 | password = ***********
      | ^^^^^^^^
      |
      = help: `password` is a setting of `[redis]`

    gateway.toml: 2 errors
    ");
}

#[test]
fn breaker_is_not_a_table() {
    insta::assert_snapshot!(render("[redis]\nurl = 'redis://h'\nbreaker = true"), @r"
    error: `breaker` is a table, not a boolean
     --> gateway.toml:3:11
      |
    3 | breaker = ****
      |           ^^^^

    gateway.toml: 1 error
    ");
    insta::assert_snapshot!(render("[redis]\nurl = 'redis://h'\n[[redis.breaker]]\nprobes = 1"), @r"
    error: `redis.breaker` is a table, not a list
     --> gateway.toml:3:1
      |
    3 | [[redis.breaker]]
      | ^^^^^^^^^^^^^^^^^
      |
      = help: write `[redis.breaker]`, once and in single brackets

    gateway.toml: 1 error
    ");
}
