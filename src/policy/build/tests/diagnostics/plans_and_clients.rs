//! Plans, and how clients are identified.

use super::super::render;

#[test]
fn no_plan_is_set_for_clients_without_a_key() {
    insta::assert_snapshot!(render("[plans.gold]\n[plans.silver]"), @r#"
    error: no plan is set for clients without a key
     --> gateway.toml:1:8
      |
    1 | [plans.gold]
      |        ^^^^
      |
      = help: under `[clients]`, write `anonymous_plan = "gold"`; the plans are `gold` and `silver`

    gateway.toml: 1 error
    "#);
}

#[test]
fn there_is_no_plan_free() {
    insta::assert_snapshot!(render("[clients]\nanonymous_plan = 'free'"), @r"
    error: there is no plan `free`
     --> gateway.toml:2:18
      |
    2 | anonymous_plan = 'free'
      |                  ^^^^^^
      |
      = help: add `[plans.free]`; the file has no plans, so all clients have one, `default`

    gateway.toml: 1 error
    ");
}

#[test]
fn x_api_key_is_not_a_place_for_a_key() {
    insta::assert_snapshot!(render("[clients]\napi_key = ['x-api-key', 'bearer', 'header:X-A', 'header:x-a', 'cookie:a']"), @r"
    error: an item of `api_key` is not a place for a key
     --> gateway.toml:2:12
      |
    2 | api_key = ['x-api-key', 'bearer', 'header:X-A', 'header:x-a', **********]
      |            ^^^^^^^^^^^
      |
      = help: did you mean `header:x-api-key`?

    error: `header:x-a` is written twice
     --> gateway.toml:2:49
      |
    2 | api_key = ['x-api-key', 'bearer', 'header:X-A', 'header:x-a', **********]
      |                                   ------------  ^^^^^^^^^^^^
      |                                   |
      |                                   here first

    error: an item of `api_key` is not a place for a key
     --> gateway.toml:2:63
      |
    2 | api_key = ['x-api-key', 'bearer', 'header:X-A', 'header:x-a', **********]
      |                                                               ^^^^^^^^^^ not shown
      |
      = help: write `header:<name>`, `bearer` or `query:<name>`

    gateway.toml: 3 errors
    ");
}

#[test]
fn ipv6_prefix_is_at_least_1_and_at_most_128() {
    insta::assert_snapshot!(render("[clients]\nipv6_prefix = 129\n[memory]\nmax_buckets = 0"), @r"
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

    gateway.toml: 2 errors
    ");
}

#[test]
fn max_bytes_is_0_or_at_least_16_mib() {
    insta::assert_snapshot!(render("[memory]\nmax_bytes = 16777215"), @r"
    error: `max_bytes` is at least 16777216 and at most 1125899906842624
     --> gateway.toml:2:13
      |
    2 | max_bytes = 16777215
      |             ^^^^^^^^
      |
      = help: it is a number of bytes; 0 removes the limit

    gateway.toml: 1 error
    ");
    for value in ["0", "16777216", "1125899906842624"] {
        assert!(
            !render(&format!("[memory]\nmax_bytes = {value}")).contains("max_bytes"),
            "{value}"
        );
    }
}

#[test]
fn secret_in_clients_is_not_shown() {
    insta::assert_snapshot!(render("[clients]\nmy-secret = 'sk_live_9f86'\napi_key = ['sk_live_9f86', 'header:x-key: sk_live_9f86', 'query:k=sk_live_9f86']"), @r"
    error: unknown name `my-secret` in `clients`
     --> gateway.toml:2:1
      |
    2 | my-secret = **************
      | ^^^^^^^^^
      |
      = help: possible here: `api_key`, `anonymous_plan`, `on_missing_key`, `on_preflight`, `on_unknown_key`,
              `on_conflicting_keys`, `hide_key`, `ipv6_prefix`, `limits_path`, `jwt`, `introspection` and `basic`

    error: an item of `api_key` is not a place for a key
     --> gateway.toml:3:12
      |
    3 | api_key = [**************, ****************************, **********************]
      |            ^^^^^^^^^^^^^^ not shown
      |
      = help: write `header:<name>`, `bearer` or `query:<name>`

    error: what follows `header:` is not the name of a header
     --> gateway.toml:3:28
      |
    3 | api_key = [**************, ****************************, **********************]
      |                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^ not shown
      |
      = help: it looks like `header:x-api-key`

    error: what follows `query:` is not the name of a query parameter
     --> gateway.toml:3:58
      |
    3 | api_key = [**************, ****************************, **********************]
      |                                                          ^^^^^^^^^^^^^^^^^^^^^^ not shown
      |
      = help: it has letters, digits, `_`, `-` and `.`, at most 64

    gateway.toml: 4 errors
    ");
}

#[test]
fn secret_in_a_broken_list_of_clients_is_not_shown() {
    insta::assert_snapshot!(render("[clients]\napi_key = 'sk_live_9f86'"), @r"
    error: `api_key` is a list, not a string
     --> gateway.toml:2:11
      |
    2 | api_key = **************
      |           ^^^^^^^^^^^^^^

    gateway.toml: 1 error
    ");
    insta::assert_snapshot!(render("[clients]\napi_key = 'header:x-key'\n[clients.acme]\nsecret = 'sk_live_9f86'"), @r#"
    error: `api_key` is a list, not a string
     --> gateway.toml:2:11
      |
    2 | api_key = 'header:x-key'
      |           ^^^^^^^^^^^^^^
      |
      = help: write `api_key = ["header:x-key"]`

    error: unknown name `acme` in `clients`
     --> gateway.toml:3:10
      |
    3 | [clients.acme]
      |          ^^^^
      |
      = help: possible here: `api_key`, `anonymous_plan`, `on_missing_key`, `on_preflight`, `on_unknown_key`,
              `on_conflicting_keys`, `hide_key`, `ipv6_prefix`, `limits_path`, `jwt`, `introspection` and `basic`

    gateway.toml: 2 errors
    "#);
    insta::assert_snapshot!(render("[clients]\napi_key = [\n  'bearer'\n  'sk_live==9f86',\n]\nsecret = sk_live_9f86"), @r"
    error: a list is not closed, or lacks a comma
     --> gateway.toml:3:11
      |
    3 | **********
      |           ^
      |
      = help: end it with `]`, or put `,` between its items

    gateway.toml: 1 error
    ");
}

#[test]
fn limits_path_is_one_path_as_clients_send_it() {
    let wrong = ["''", "'api'", "'/me/*'", "'/a?b'", "'/a%20b'", "'/über'", "'https://h/a'", "7"];
    let each = wrong.map(|path| render(&format!("[clients]\nlimits_path = {path}")));
    insta::assert_snapshot!(each.join("\n"));
    let good = render("[clients]\nlimits_path = '/.well-known/ratelimit'");
    assert_eq!(good, "no errors\n");
}

#[test]
fn headers_of_tokens_are_read_by_no_rule_route_or_upstream() {
    let jwt = "[clients.jwt]\nissuer = 'https://id.test'\naudience = 'api'\n\
               headers = { X-User = 'sub', X-Org = 'org.id' }\n";
    let wrong = "[rules.r]\nper = ['header:x-org', 'header:x-other']\nrate = '1/s'\n\
                 [routes.a]\nheaders = { X_User = 'root', x-other = '1' }\n\
                 [upstreams.api]\nservers = ['demo']\nbalance = 'hash:header:X-User'\n";
    insta::assert_snapshot!(render(&format!("{jwt}{wrong}")));
    assert!(!render(wrong).contains("clients.jwt"));
}
