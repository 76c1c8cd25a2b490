//! Changes of headers by routes.

use super::super::render;

/// The diagnostics of a route with these settings.
fn route(settings: &str) -> String {
    render(&format!("[routes.a]\npath = '/a'\n{settings}"))
}

#[test]
fn changes_of_headers() {
    let request = "request_headers = { set = { X-A = '{client.id} {{}}', x-b = '' }, add = { X-A = 'b' }, remove = ['Cookie'] }";
    assert_eq!(route(request), "no errors\n");
    let response =
        "response_headers = { set = { Server = 'api' }, remove = ['X-Powered-By', 'set-cookie'] }";
    assert_eq!(route(response), "no errors\n");
}

#[test]
fn headers_that_the_gateway_sets_cannot_be_changed() {
    insta::assert_snapshot!(route(
        "[routes.a.request_headers]\nset = { Content_Length = '1', Host = 'b', X_Forwarded-For = '1.1.1.1', X-Request-Id = 'a' }\nremove = ['transfer-encoding', 'te']\n[routes.a.response_headers]\nset = { RateLimit = 'x' }\nremove = ['Retry-After', 'connection']"
    ));
}

#[test]
fn headers_are_invalid() {
    insta::assert_snapshot!(route(
        "[routes.a.response_headers.set]\n'a b' = 'x'\nX-A = \"a\\r\\nSet-Cookie: b\"\nx-a = ' c'\nX-B = '{client.ids}'\nX-C = '{host'\nX-D = 'a}'\nX-E = '{}'\nX-F = '${TOLLGATE_NO_SUCH_VARIABLE}'\nX-G = 'ü'"
    ));
}

#[test]
fn headers_have_wrong_types() {
    insta::assert_snapshot!(route(
        "request_headers = { set = ['a'], add = { X-A = 5 }, remove = 'Cookie', drop = [] }\nresponse_headers = 'x'\nproxy_set_header = 'Host b'\nadd_header = 'a'"
    ));
}

#[test]
fn header_is_changed_twice() {
    insta::assert_snapshot!(route(
        "[routes.a.request_headers]\nset = { X-A = 'a', x-a = 'b', Cookie = 'c' }\nremove = ['cookie']"
    ));
}

#[test]
fn number_of_changes_is_bounded() {
    let each: Vec<String> = (0..65).map(|number| format!("'x-{number}'")).collect();
    let shown = route(&format!("request_headers = {{ remove = [{}] }}", each.join(", ")));
    assert!(shown.contains("there are 65 changes of headers; 64 are allowed"), "{shown}");
}
