//! Refusals, in a stream in Redis.

use super::super::render;

const REDIS: &str = "[redis]\nurl = 'redis://h'\n";

#[test]
fn a_stream_needs_redis() {
    insta::assert_snapshot!(render("[audit]\nstream = true"), @r#"
    error: `stream` needs Redis, and the file has no [redis]
     --> gateway.toml:2:10
      |
    2 | stream = true
      |          ^^^^
      |
      = help: write `url = "redis://127.0.0.1:6379"` under `[redis]`, or take `stream` out: the admin port and the log have refusals in any case

    gateway.toml: 1 error
    "#);
    assert_eq!(render("[audit]\nstream = false\nmax_records = 100"), "no errors\n");
    assert_eq!(render(&format!("[audit]\nstream = true\n{REDIS}")), "no errors\n");
    // An error in `[redis]` is reported once.
    let wrong = render("redis = 5\n[audit]\nstream = true");
    assert!(wrong.contains("error") && !wrong.contains("`stream`"), "{wrong}");
}

#[test]
fn values_do_not_fit() {
    insta::assert_snapshot!(
        render(&format!("[audit]\nstrem = true\nmax_records = 99\n{REDIS}")), @r#"
    error: unknown name `strem` in `audit`
     --> gateway.toml:2:1
      |
    2 | strem = true
      | ^^^^^
      |
      = help: did you mean `stream`?

    error: `max_records` is at least 100 and at most 10000000
     --> gateway.toml:3:15
      |
    3 | max_records = 99
      |               ^^

    gateway.toml: 2 errors
    "#);
    insta::assert_snapshot!(render(&format!("[[audit]]\nstream = 'yes'\n{REDIS}")), @r#"
    error: `audit` is a table, not a list
     --> gateway.toml:1:1
      |
    1 | [[audit]]
      | ^^^^^^^^^
      |
      = help: write `[audit]`, once and in single brackets

    gateway.toml: 1 error
    "#);
    insta::assert_snapshot!(render("[audit]\nmax_records = -1"), @r#"
    error: `max_records` cannot be negative
     --> gateway.toml:2:15
      |
    2 | max_records = -1
      |               ^^

    gateway.toml: 1 error
    "#);
}
