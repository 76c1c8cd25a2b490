//! Conditions of routes on headers, query parameters and cookies, and expressions for paths.

use super::super::render;

fn route(settings: &str) -> String {
    render(&format!("[routes.a]\n{settings}"))
}

#[test]
fn conditions() {
    for settings in [
        "headers = { X-Version = '2', accept = 'application/*', x-a = true, x-b = false }",
        "query = { 'a[]' = 'a b', '\u{fc}.x' = '1*', empty = true }",
        "cookies = { beta = '1', 'a.b-c_d' = '2*', x = false }",
        "headers = { authorization = 'Bearer*', X-API-Key = true }\nquery.api_key = false",
        "path = '/x'\nheaders = {}\nquery = {}\ncookies = {}",
        "path_regex = '^/v[0-9]+/search$'\nadd_prefix = '/api'",
    ] {
        assert_eq!(route(settings), "no errors\n", "{settings}");
    }
}

#[test]
fn conditions_are_invalid() {
    insta::assert_snapshot!(route(
        "headers = { Host = 'a', Cookie = 'a=1', 'x y' = '1', Content-Length = '1', x-a = ' 1', x-b = '', x-c = '*', x-d = '*1', x-e = 'a*b*' }"
    ));
    insta::assert_snapshot!(route(
        "query = { '' = '1', 'a b' = '1', 'a%20b' = '1', a = 'a%20b', b = 'x*y' }"
    ));
    insta::assert_snapshot!(route(
        "cookies = { 'a=b' = '1', a = '\"1\"', b = '1;2', c = ' 1', d = \"\\u0007\" }"
    ));
    insta::assert_snapshot!(route("headers = { x-version = 2 }\nquery = ['a']\ncookies = 'a'"));
}

#[test]
fn condition_on_a_header_is_written_once() {
    insta::assert_snapshot!(route("headers = { x-version = '2', X-Version = '1' }"));
}

#[test]
fn credentials_are_no_conditions() {
    insta::assert_snapshot!(route(
        "headers = { authorization = 'Bearer tg_1', X-API-Key = 'tg_2' }\nquery = { api_key = 'tg_*' }"
    ));
}

#[test]
fn too_many_conditions() {
    let all: Vec<String> = (0..17).map(|n| format!("headers.x-{n} = true")).collect();
    insta::assert_snapshot!(route(&all.join("\n")));
}

#[test]
fn routes_that_tie_are_shown_with_a_request() {
    insta::assert_snapshot!(render(
        "[routes.a]\npath = '/{x}/*'\nhost = '*.a.test'\nheaders = { x-v = '2' }\nquery = { 'a[]' = '& ' }\n\
         [routes.b]\npath = '/{y}/*'\nhost = '*.a.test'\ncookies = { beta = '1' }\nheaders = { x-w = '3' }"
    ));
    insta::assert_snapshot!(render(
        "[routes.a]\npath_regex = '^/a'\nmethods = ['PUT']\nheaders = { x-v = '2*' }\n\
         [routes.b]\npath_regex = '^/a'\nmethods = ['GET', 'PUT']\nquery = { v = '2*' }"
    ));
}

#[test]
fn route_with_the_conditions_of_both_decides() {
    let decided = render(
        "[routes.a]\nheaders = { x-v = '2' }\n[routes.b]\nquery = { v = '2' }\n\
         [routes.both]\nheaders = { x-v = '2' }\nquery = { v = '2' }",
    );
    assert_eq!(decided, "no errors\n");
}

/// Not also a conflict with the other route.
#[test]
fn route_without_a_wrong_condition_is_in_no_conflict() {
    let shown = render("[routes.a]\nheaders = { x-v = 2 }\n[routes.b]\npath = '/*'");
    assert!(shown.ends_with("gateway.toml: 1 error\n"), "{shown}");
}

#[test]
fn expressions_are_invalid() {
    insta::assert_snapshot!(route("path_regex = '^/(a'"));
    insta::assert_snapshot!(route("path_regex = '^/(?!a)'"));
    insta::assert_snapshot!(route("path_regex = '(a|b)*a(a|b){20}'"));
    insta::assert_snapshot!(route("path_regex = '~ ^/a$'"));
    insta::assert_snapshot!(route("path_regex = ''"));
    insta::assert_snapshot!(route(&format!("path_regex = '{}'", "a".repeat(1025))));
    insta::assert_snapshot!(route("path = '/a'\npath_regex = '^/a'"));
    insta::assert_snapshot!(route("path_regex = '^/a'\ntrailing_slash = 'distinct'"));
    insta::assert_snapshot!(route("path_regex = '^/a'\nstrip_prefix = '/a'"));
}
