//! Variables of requests in headers and redirects.

use super::super::render;

fn route(settings: &str) -> String {
    render(&format!("[routes.a]\n{settings}"))
}

#[test]
fn named_variables() {
    for settings in [
        "path = '/v1/{tenant}/*'\nrequest_headers.set = { X-A = '{param:tenant}', X-B = '{header:X-C}{query:d}' }",
        "path = '/{a}'\nredirect = { to = 'https://a.test/{param:a}?b={header:b}&c={query:c}' }",
        "path = '/{a}'\nredirect = { to = '/{query:a}' }",
    ] {
        assert_eq!(route(settings), "no errors\n", "{settings}");
    }
}

#[test]
fn named_variables_are_invalid() {
    insta::assert_snapshot!(route(
        "path = '/{tenant}/*'\nrequest_headers.set = { X-A = '{param:tennant}', X-B = '{header:a b}', X-C = '{query:}' }"
    ));
    insta::assert_snapshot!(route(
        "path_regex = '^/a'\nresponse_headers.add = { X-A = '{param:tenant}' }"
    ));
}

/// A client would choose the host.
#[test]
fn host_of_a_redirect_is_no_value_of_a_request() {
    for to in [
        "{query:next}",
        "{header:x-next}/a",
        "https://{header:x-host}/",
        "https://{query:h}.a.test/",
        "https://a.test{query:h}",
        "https:/{query:h}",
        "//{param:a}/",
        "https://a.test:{header:port}/",
        "{header:scheme}://a.test/",
    ] {
        let shown = route(&format!("path = '/{{a}}'\nredirect = {{ to = '{to}' }}"));
        assert!(shown.ends_with("gateway.toml: 1 error\n"), "{to} {shown}");
    }
}
