//! Plans, and how clients are told apart.

use super::super::told;

#[test]
fn the_file_does_not_say_which_plan_a_client_without_a_key_has() {
    insta::assert_snapshot!(told("[plans.gold]\n[plans.silver]"), @r#"
    error: the file does not say which plan a client without a key has
     --> gateway.toml:1:8
      |
    1 | [plans.gold]
      |        ^^^^
      |
      = help: under `[clients]`, write `anonymous_plan = "gold"`; the plans are `gold` and `silver`

    gateway.toml: 1 mistake
    "#);
}

#[test]
fn there_is_no_plan_free() {
    insta::assert_snapshot!(told("[clients]\nanonymous_plan = 'free'"), @r"
    error: there is no plan `free`
     --> gateway.toml:2:18
      |
    2 | anonymous_plan = 'free'
      |                  ^^^^^^
      |
      = help: add `[plans.free]`; the file has no plans, so all clients have one, `default`

    gateway.toml: 1 mistake
    ");
}

#[test]
fn x_api_key_is_no_place_where_a_key_can_stand() {
    insta::assert_snapshot!(told("[clients]\napi_key = ['x-api-key', 'bearer', 'header:X-A', 'header:x-a', 'cookie:a']"), @r"
    error: `x-api-key` is no place where a key can stand
     --> gateway.toml:2:12
      |
    2 | api_key = ['x-api-key', 'bearer', 'header:X-A', 'header:x-a', 'cookie:a']
      |            ^^^^^^^^^^^
      |
      = help: did you mean `header:x-api-key`?

    error: `header:x-a` is written twice
     --> gateway.toml:2:49
      |
    2 | api_key = ['x-api-key', 'bearer', 'header:X-A', 'header:x-a', 'cookie:a']
      |                                   ------------  ^^^^^^^^^^^^
      |                                   |
      |                                   here first

    error: `cookie:a` is no place where a key can stand
     --> gateway.toml:2:63
      |
    2 | api_key = ['x-api-key', 'bearer', 'header:X-A', 'header:x-a', 'cookie:a']
      |                                                               ^^^^^^^^^^
      |
      = help: write `header:<name>`, `bearer` or `query:<name>`

    gateway.toml: 3 mistakes
    ");
}

#[test]
fn ipv6_prefix_is_at_least_1_and_at_most_128() {
    insta::assert_snapshot!(told("[clients]\nipv6_prefix = 129\n[memory]\nmax_buckets = 0"), @r"
    error: `ipv6_prefix` is at least 1 and at most 128
     --> gateway.toml:2:15
      |
    2 | ipv6_prefix = 129
      |               ^^^

    error: `max_buckets` is at least 1 and at most 100000000
     --> gateway.toml:4:15
      |
    4 | max_buckets = 0
      |               ^

    gateway.toml: 2 mistakes
    ");
}
