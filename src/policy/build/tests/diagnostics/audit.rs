//! Refusals, in a stream in Redis.

use super::super::told;

const REDIS: &str = "[redis]\nurl = 'redis://h'\n";

#[test]
fn a_stream_needs_redis() {
    insta::assert_snapshot!(told("[audit]\nstream = true"), @r#"
    error: `stream` needs Redis, and the file has no [redis]
     --> gateway.toml:2:10
      |
    2 | stream = true
      |          ^^^^
      |
      = help: write `url = "redis://127.0.0.1:6379"` under `[redis]`, or take `stream` out: the admin port and the log tell of refusals all the same

    gateway.toml: 1 error
    "#);
    assert_eq!(told("[audit]\nstream = false\nmax_records = 100"), "no errors\n");
    assert_eq!(told(&format!("[audit]\nstream = true\n{REDIS}")), "no errors\n");
    // What is wrong with Redis is said there, and once.
    let wrong = told("redis = 5\n[audit]\nstream = true");
    assert!(wrong.contains("error") && !wrong.contains("`stream`"), "{wrong}");
}

#[test]
fn values_do_not_fit() {
    insta::assert_snapshot!(
        told(&format!("[audit]\nstrem = true\nmax_records = 99\n{REDIS}")), @r#"
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
    insta::assert_snapshot!(told(&format!("[[audit]]\nstream = 'yes'\n{REDIS}")), @r#"
    error: `audit` is a table, not a list
     --> gateway.toml:1:1
      |
    1 | [[audit]]
      | ^^^^^^^^^
      |
      = help: write `[audit]`, once and in single brackets

    gateway.toml: 1 error
    "#);
    insta::assert_snapshot!(told("[audit]\nmax_records = -1"), @r#"
    error: `max_records` cannot be negative
     --> gateway.toml:2:15
      |
    2 | max_records = -1
      |               ^^

    gateway.toml: 1 error
    "#);
}
