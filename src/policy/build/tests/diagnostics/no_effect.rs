//! Warnings of settings that cannot have the effect that they seem to have.

use super::super::render;

#[test]
fn one_address_gets_at_most_half_of_the_connections() {
    insta::assert_snapshot!(render("[server.limits]\nmax_connections = 1000\n"), @r"
    warning: `max_connections_per_ip` is 1000, but one address gets at most 500 connections, half of `max_connections`
     --> gateway.toml:2:19
      |
    2 | max_connections = 1000
      |                   ^^^^
      |
      = help: write `max_connections_per_ip = 500` or less; the addresses of `trusted_proxies` have no such limit

    gateway.toml: 1 warning
    ");
    let both = "[server.limits]\nmax_connections = 5000\nmax_connections_per_ip = 5000\n";
    insta::assert_snapshot!(render(both), @r"
    warning: `max_connections_per_ip` is 5000, but one address gets at most 2500 connections, half of `max_connections`
     --> gateway.toml:3:26
      |
    3 | max_connections_per_ip = 5000
      |                          ^^^^
      |
      = help: write `max_connections_per_ip = 2500` or less; the addresses of `trusted_proxies` have no such limit

    gateway.toml: 1 warning
    ");
    let lower = "[server.limits]\nmax_connections = 5000\nmax_connections_per_ip = 4999\n";
    assert_eq!(render(lower), "no errors\n");
}

#[test]
fn no_key_can_be_right() {
    let deny = "[clients]\non_missing_key = 'deny'\non_preflight = 'deny'\n";
    insta::assert_snapshot!(render(deny), @r#"
    warning: every request gets 401: it needs an API key, and the file has none
     --> gateway.toml:2:18
      |
    2 | on_missing_key = 'deny'
      |                  ^^^^^^
      |
      = help: `tollgate hash-key` makes a key and its lines for the file

    gateway.toml: 1 warning
    "#);
    assert_eq!(render(&format!("{deny}on_unknown_key = 'accept'\n")), "no errors\n");
    // The server of `[forward_auth]` names the clients.
    let asks = "[forward_auth]\nurl = 'http://127.0.0.1:9/'\n";
    let named = format!("{deny}{asks}id_header = 'X-User'\n");
    assert_eq!(render(&named), "no errors\n");
    assert!(render(&format!("{deny}{asks}")).contains("every request gets 401"));
    let rule = "[rules.own]\nper = ['key']\nrate = '1/s'\non_missing = 'deny'\n";
    let preflight = "[clients]\non_preflight = 'deny'\n";
    insta::assert_snapshot!(render(&format!("{preflight}{rule}")), @r#"
    warning: every request that `own` applies to gets 401: it needs an API key, and the file has none
     --> gateway.toml:6:14
      |
    6 | on_missing = 'deny'
      |              ^^^^^^
      |
      = help: `tollgate hash-key` makes a key and its lines for the file

    gateway.toml: 1 warning
    "#);
    let shadow = format!("{preflight}{rule}mode = 'shadow'\n");
    assert_eq!(render(&shadow), "no errors\n");
}
