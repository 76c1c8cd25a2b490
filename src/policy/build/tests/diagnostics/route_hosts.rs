//! Hosts of routes.

use super::super::render;

fn host(value: &str) -> String {
    render(&format!("[routes.a]\nhost = {value}"))
}

#[test]
fn hosts() {
    for value in [
        "'API.example.com.'",
        "'*.example.com'",
        "['a.example', '*.b.example', '[::1]', '10.0.0.1']",
        "'*.xn--bcher-kva.example'",
    ] {
        assert_eq!(host(value), "no errors\n", "{value}");
    }
}

#[test]
fn hosts_are_invalid() {
    insta::assert_snapshot!(host(
        "['*', 'api.*', '*.0.0.1', '.example.com', '~^(a|b)\\.example$', 'a', 'A', '*', 'https://a', '*.a:80']"
    ));
    insta::assert_snapshot!(host("[]"));
    insta::assert_snapshot!(host("7"));
    insta::assert_snapshot!(host("[7]"));
}

/// Not also a conflict of the route with itself.
#[test]
fn host_that_is_listed_twice_is_one_error() {
    let shown = host("['a.example', 'b.example', 'A.example.']");
    assert!(shown.ends_with("gateway.toml: 1 error\n"), "{shown}");
}

#[test]
fn routes_with_a_host_in_common_are_ambiguous() {
    insta::assert_snapshot!(render(
        "[routes.a]\nhost = ['a.example', 'b.example', '*.c.example']\n\
         [routes.b]\nhost = ['b.example', 'a.example']\n[routes.c]\nhost = '*.C.example'"
    ));
}

#[test]
fn names_of_other_gateways() {
    insta::assert_snapshot!(render("[routes.a]\nserver_name = 'a.example'\nhostnames = ['a']"));
}
