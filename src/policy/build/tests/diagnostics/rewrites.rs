//! Rewrites of paths and hosts by routes.

use super::super::render;

/// The diagnostics of a route for `/v1/*` with these settings.
fn route(settings: &str) -> String {
    render(&format!("[routes.a]\npath = '/v1/*'\n{settings}"))
}

#[test]
fn rewrites() {
    for settings in [
        "strip_prefix = '/v1'",
        "strip_prefix = '/v1'\nadd_prefix = '/api'",
        "replace_prefix = { '/v1' = '/api/v2' }",
        "replace_prefix = { '/v1' = '/' }",
        "add_prefix = '/api'\nupstream_host = 'b.internal:8080'",
        "replace_path = '/users/{header:x-id}/{query:page}/%20'\nupstream_host = 'b'",
        "upstream_host = '{upstream}'",
        "upstream_host = '[::1]:80'",
    ] {
        assert_eq!(route(settings), "no errors\n", "{settings}");
    }
    let ignoring_case =
        "[server]\npath_case = 'insensitive'\n[routes.a]\npath = '/V1/*'\nstrip_prefix = '/v1'";
    assert_eq!(render(ignoring_case), "no errors\n");
}

#[test]
fn prefixes_are_invalid() {
    insta::assert_snapshot!(render(
        "[routes.a]\npath = '/a/*'\nstrip_prefix = '/a/'\n[routes.b]\npath = '/b/*'\nstrip_prefix = 'b'\n[routes.c]\npath = '/c/*'\nstrip_prefix = '/c/*'\n[routes.d]\npath = '/d/*'\nstrip_prefix = '/'\n[routes.e]\npath = '/e/*'\nadd_prefix = '/'\n[routes.f]\npath = '/ü/*'\nstrip_prefix = '/ü'\n[routes.g]\npath = '/g/*'\nreplace_prefix = { '/g' = '/../x?y' }\n[routes.h]\npath = '/h'\nadd_prefix = '/{x}'"
    ));
}

#[test]
fn prefix_is_not_that_of_every_path() {
    insta::assert_snapshot!(render(
        "[routes.a]\nstrip_prefix = '/v1'\n[routes.b]\npath = '/v12/*'\nreplace_prefix = { '/v1' = '/x' }"
    ));
}

#[test]
fn rewrites_exclude_each_other() {
    insta::assert_snapshot!(route("strip_prefix = '/v1'\nreplace_prefix = { '/v1' = '/x' }"));
    insta::assert_snapshot!(route("replace_prefix = { '/v1' = '/x', '/v1/a' = '/y' }"));
}

#[test]
fn whole_paths_are_invalid() {
    let settings = [
        "replace_path = 'users'",
        "replace_path = '/a?b'",
        "replace_path = '//a'",
        "replace_path = '/a/../b'",
        "replace_path = '/ü'",
        "replace_path = '/a%zz'",
        "replace_path = '/api/*'",
        "replace_path = '/{path}'",
        "replace_path = '/{client.id}'",
        "replace_path = '/{param:id}'",
        "replace_path = '/{id}'",
        "replace_path = '/a'\nadd_prefix = '/b'",
    ];
    let route =
        |(at, settings): (usize, &&str)| format!("[routes.r{at}]\npath = '/{at}'\n{settings}");
    let routes: Vec<String> = settings.iter().enumerate().map(route).collect();
    insta::assert_snapshot!(render(&routes.join("\n")));
}

#[test]
fn host_of_upstreams_is_invalid() {
    insta::assert_snapshot!(render(
        "[routes.a]\npath = '/a'\nupstream_host = 'http://b'\n[routes.b]\npath = '/b'\nupstream_host = '{host}'\n[routes.c]\npath = '/c'\nupstream_host = \"a\\r\\nb\"\n[routes.d]\npath = '/d'\nupstream_host = ''"
    ));
}

#[test]
fn names_of_other_gateways() {
    insta::assert_snapshot!(route("prefix_rewrite = '/'\nstripPrefix = '/v1'\nhost_rewrite = 'b'"));
}
