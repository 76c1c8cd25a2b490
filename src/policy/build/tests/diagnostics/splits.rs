//! Routes with several upstreams by weight.

use super::super::render_whole;

/// The diagnostics of a route with these settings, and the upstreams `api` and `canary`.
fn route(settings: &str) -> String {
    render_whole(&format!(
        "[upstreams.api]\nservers = ['demo']\n[upstreams.canary]\nservers = ['demo']\n[routes.a]\npath = '/a'\n{settings}"
    ))
}

#[test]
fn split_is_valid() {
    assert_eq!(route("split = { api = 95, canary = 5 }"), "no errors\n");
    assert_eq!(route("split = { api = 1000, canary = 0 }\nsplit_by = 'client'"), "no errors\n");
}

#[test]
fn split_is_invalid() {
    insta::assert_snapshot!(route(
        "split = { api = 1001, canery = 5 }\nsplit_by = 'cookie'\n[routes.b]\npath = '/b'\nsplit = { api = 0, canary = 0 }\n[routes.c]\npath = '/c'\nupstream = 'api'\nsplit = { api = 95, canary = 5 }\n[routes.d]\npath = '/d'\nupstream = 'api'\nsplit_by = 'client'"
    ));
}

#[test]
fn split_has_wrong_types() {
    insta::assert_snapshot!(route(
        "split = { api = '95%', canary = 5.5 }\n[routes.b]\npath = '/b'\nsplit = ['api', 'canary']\n[routes.c]\npath = '/c'\nsplit = { api = -1, canary = 5 }"
    ));
}

#[test]
fn split_names_no_upstream() {
    insta::assert_snapshot!(route(
        "split = {}\n[routes.b]\npath = '/b'\nsplit = {}\nsplit_by = 'client'"
    ));
}

#[test]
fn weight_of_a_wrong_type_is_one_error() {
    let one = |settings: &str| {
        let shown = route(settings);
        assert!(shown.ends_with("gateway.toml: 1 error\n"), "{settings}: {shown}");
    };
    one("split = { api = '95' }");
    one("split = { api = 0, canary = '5' }");
    one("split = { api = true }\nsplit_by = 'client'");
    one("split = ['api', 'canary']\nsplit_by = 'client'");
}

#[test]
fn split_has_the_name_of_another_gateway() {
    insta::assert_snapshot!(route(
        "upstream = 'api'\nweighted_clusters = 'x'\nsplit_clients = 'x'\nsticky = true\nspilt = { api = 1 }"
    ));
}

#[test]
fn split_of_a_route_that_answers_itself_is_an_error() {
    let shown = route("respond = { status = 503 }\nsplit = { api = 95, canary = 5 }");
    let expected = "`split` has no effect: `respond` answers instead of an upstream";
    assert!(shown.contains(expected), "{shown}");
}
