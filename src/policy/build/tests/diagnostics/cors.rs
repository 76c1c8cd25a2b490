//! `[cors]`, and `cors` of a route.

use super::super::{render, render_whole};

/// The diagnostics of `[cors]` with these settings.
fn cors(settings: &str) -> String {
    render(&format!("[cors]\n{settings}\n"))
}

#[test]
fn settings_of_cors() {
    for settings in [
        "origins = ['*']",
        "origins = ['null']",
        "origins = ['https://app.example.com', 'https://*.example.com', 'http://localhost:5173']",
        "origins = ['https://app.example.com']\ncredentials = true\nmax_age = '24h'",
        "origins = ['*']\nmethods = ['*']\nheaders = ['*']\nexposed_headers = ['*']",
        "origins = ['*']\nmethods = ['GET', 'PURGE']\nheaders = []\nexposed_headers = []",
        "origins = ['capacitor://localhost', 'http://[::1]:3000']\nmax_age = '0s'",
    ] {
        assert_eq!(cors(settings), "no errors\n", "{settings}");
    }
    let route = "cors = { origins = ['*'] }\n[routes.b]\npath = '/b'\ncors = false\n";
    let route = format!("{route}response_headers = {{ set = {{ Access-Control-Max-Age = '5' }} }}");
    assert_eq!(render(&format!("[routes.a]\npath = '/a'\n{route}")), "no errors\n");
    assert_eq!(cors("origins = ['*']\n[routes.a]\npath = '/a'\ncors = true"), "no errors\n");
}

#[test]
fn origins_are_invalid() {
    insta::assert_snapshot!(cors(
        "origins = ['app.example.com', 'localhost:5173', 'https://app.example.com/', \
         'https://app.example.com/index.html', 'https://*', 'https://*example.com', \
         '^https://.*\\.example\\.com$', 'http://localhost:*', 'https://bücher.example', \
         'https://u:p@a.test', 'NULL', 'https://a.test', 'https://A.test:443', 'https://a b']"
    ));
    insta::assert_snapshot!(
        [
            cors("origins = []"),
            cors("credentials = true"),
            cors("origins = 'https://app.example.com'"),
            cors("origins = ['*', 'https://app.example.com']"),
            cors("origins = ['*']\ncredentials = true"),
            cors("origins = ['null']\ncredentials = true"),
        ]
        .join("\n")
    );
}

#[test]
fn other_settings_are_invalid() {
    insta::assert_snapshot!(cors(
        "origins = ['https://app.example.com']\nmethods = ['get', 'PSOT', 'TRACE', 'GET', 'GET', 'a b']\n\
         headers = ['content type', 'X-A', 'x-a', '*']\nexposed_headers = ['*']\ncredentials = true\nmax_age = '25h'"
    ));
    insta::assert_snapshot!(cors(
        "origins = ['*']\nmethods = []\nmax_age = 600\ncredentials = 'yes'"
    ));
    insta::assert_snapshot!(cors(
        "allow_origins = ['*']\nallow_methods = ['GET']\nexpose_headers = ['x']\nmaxAge = 5\norigns = ['*']"
    ));
}

#[test]
fn settings_of_a_route_are_invalid() {
    insta::assert_snapshot!(render_whole(
        "[upstreams.api]\nservers = ['demo']\n\
         [routes.a]\npath = '/a'\ncors = true\n\
         [routes.b]\npath = '/b'\ncors = { methods = ['GET'] }\n\
         [routes.c]\npath = '/c'\ncors = 'https://app.example.com'\n\
         [routes.d]\npath = '/d'\ncors = { origins = ['*'] }\n\
         response_headers = { set = { 'access-control-allow-origin' = '*' }, add = { Access-Control-Max-Age = '5' } }\n\
         [routes.e]\npath = '/e'\ncors = { origins = ['*'] }\nrespond = { headers = { Access-Control-Allow-Origin = '*' } }\n"
    ));
}

/// Browsers of an API with `cors` get the answer to their preflight requests.
#[test]
fn preflight_requests_that_are_answered_need_no_warning() {
    let file = |cors: &str, of_route: &str| {
        render_whole(&format!(
            "{cors}[clients]\non_missing_key = 'deny'\n[upstreams.api]\nservers = ['demo']\n\
             [keys.a]\nsha256 = '0000000000000000000000000000000000000000000000000000000000000000'\n\
             [routes.all]\n{of_route}\n[rules.r]\nper = ['key']\nrate = '1/s'\n"
        ))
    };
    let all = "[cors]\norigins = ['https://app.example.com']\n";
    assert_eq!(file(all, ""), "no errors\n");
    assert_eq!(file("", "cors = { origins = ['*'] }"), "no errors\n");
    assert!(file(all, "cors = false").starts_with("warning: CORS preflight"));
    assert!(file("", "").starts_with("warning: CORS preflight"));
}
