//! The key store.

use super::super::render;

const REDIS: &str = "[redis]\nurl = 'redis://h'\n";

#[test]
fn store_is_in_redis_or_in_a_file() {
    assert_eq!(render(&format!("{REDIS}[key_store]\nurl = 'redis'")), "no errors\n");
    assert_eq!(render("[key_store]\nurl = 'file:/var/lib/keys.redb'"), "no errors\n");
    insta::assert_snapshot!(render("[key_store]\nurl = 'redis'"), @r#"
    error: `url = "redis"` needs Redis, and the file has no [redis]
     --> gateway.toml:2:7
      |
    2 | url = 'redis'
      |       ^^^^^^^
      |
      = help: add `[redis]` with a `url`, or keep the keys in a file: `url = "file:/var/lib/tollgate/keys.redb"`

    gateway.toml: 1 error
    "#);
    insta::assert_snapshot!(render(&format!("{REDIS}[key_store]\nurl = 'redis://:secret@h'")), @r#"
    error: the key store has the connection of `[redis]`, not one of its own
     --> gateway.toml:4:7
      |
    4 | url = 'redis://*******@h'
      |       ^^^^^^^^^^^^^^^^^^^
      |
      = help: write `url = "redis"`, and the address under `[redis]`

    gateway.toml: 1 error
    "#);
}

#[test]
fn values_do_not_fit() {
    insta::assert_snapshot!(
        render("[key_store]\nurl = 'file:'\ncache = 5\nmax_stale = '0s'\non_store_failure = 'allow'"), @r#"
    error: `url` is not a place for keys: `file:`
     --> gateway.toml:2:7
      |
    2 | url = 'file:'
      |       ^^^^^^^
      |
      = help: write `url = "redis"` for the Redis of `[redis]`, or a file, such as `url = "file:/var/lib/tollgate/keys.redb"`

    error: `cache` is at least 1000 and at most 10000000
     --> gateway.toml:3:9
      |
    3 | cache = 5
      |         ^

    error: `max_stale` cannot be 0
     --> gateway.toml:4:13
      |
    4 | max_stale = '0s'
      |             ^^^^
      |
      = help: the shortest is `1s`

    error: `on_store_failure` is `deny` or `anonymous`, not `allow`
     --> gateway.toml:5:20
      |
    5 | on_store_failure = 'allow'
      |                    ^^^^^^^

    gateway.toml: 4 errors
    "#);
    insta::assert_snapshot!(render("[key_store]\ncache = 5000"), @r#"
    error: `[key_store]` has no `url`
     --> gateway.toml:1:1
      |
    1 | [key_store]
      | ^^^^^^^^^^^
      |
      = help: write `url = "redis"` for the Redis of `[redis]`, or a file, such as `url = "file:/var/lib/tollgate/keys.redb"`

    gateway.toml: 1 error
    "#);
}

#[test]
fn clients_need_a_path_to_replace_their_keys() {
    let store = "[key_store]\nurl = 'file:/var/lib/keys.redb'\nself_rotation = true\n";
    let path = "[clients]\nlimits_path = '/limits'\n";
    assert_eq!(render(&format!("{store}{path}")), "no errors\n");
    assert_eq!(render(&store.replace("true", "false")), "no errors\n");
    insta::assert_snapshot!(render(store), @r#"
    error: `self_rotation` needs the path where clients send POST
     --> gateway.toml:3:17
      |
    3 | self_rotation = true
      |                 ^^^^
      |
      = help: set it, such as `limits_path = "/.well-known/ratelimit"` in `[clients]`

    gateway.toml: 1 error
    "#);
}
