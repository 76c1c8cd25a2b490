//! Traces of requests, to somewhere.

use super::super::render;

#[test]
fn values_are_out_of_range() {
    insta::assert_snapshot!(render(
        "[tracing]\nendpoint = '127.0.0.1:4318'\nsample = 5\nfollow = 'everyone'\n\
         timeout = '5m'\nservice_name = ''"
    ), @r#"
    error: `endpoint` has no scheme
     --> gateway.toml:2:12
      |
    2 | endpoint = '127.0.0.1:4318'
      |            ^^^^^^^^^^^^^^^^
      |
      = help: write `http://` or `https://` before it

    error: `sample` is at least 0 and at most 1
     --> gateway.toml:3:10
      |
    3 | sample = 5
      |          ^
      |
      = help: `0.01` traces one in a hundred requests

    error: `follow` is `trusted`, `all` or `none`, not `everyone`
     --> gateway.toml:4:10
      |
    4 | follow = 'everyone'
      |          ^^^^^^^^^^

    error: `timeout` is too long
     --> gateway.toml:5:11
      |
    5 | timeout = '5m'
      |           ^^^^
      |
      = help: the longest is `1m`

    error: `service_name` is empty
     --> gateway.toml:6:16
      |
    6 | service_name = ''
      |                ^^
      |
      = help: it is the name of the gateway in traces, such as `"tollgate"`

    gateway.toml: 5 errors
    "#);
}

#[test]
fn endpoints_are_invalid() {
    for (endpoint, expected) in [
        ("grpc://h:4317", "traces are sent by OTLP over HTTP, not gRPC"),
        ("http://h:0", "`endpoint` has no valid port"),
        ("http://a b", "`endpoint` is not the address of a collector"),
    ] {
        let shown = render(&format!("[tracing]\nendpoint = '{endpoint}'"));
        assert!(shown.starts_with(&format!("error: {expected}\n")), "{shown}");
    }
    insta::assert_snapshot!(render("[tracing]\nendpoint = 'https://me:secret@h'"), @r#"
    error: `endpoint` cannot hold a login
     --> gateway.toml:2:12
      |
    2 | endpoint = 'https://*********@h'
      |            ^^^^^^^^^^^^^^^^^^^^^
      |
      = help: write `headers = { authorization = "Basic ${OTLP_LOGIN}" }`

    gateway.toml: 1 error
    "#);
    insta::assert_snapshot!(render("[tracing]\nendpoint = 'https://h/?key=secret'"), @r"
    error: `endpoint` cannot hold a query
     --> gateway.toml:2:12
      |
    2 | endpoint = 'https://h/?**********'
      |            ^^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: write credentials for the collector in `headers`

    gateway.toml: 1 error
    ");
    insta::assert_snapshot!(render("[tracing]\nca = '/ca.pem'"), @r"
    error: `ca` is for TLS, and the connection has none
     --> gateway.toml:2:6
      |
    2 | ca = '/ca.pem'
      |      ^^^^^^^^^
      |
      = help: write `https://` in `endpoint`, or leave it out

    gateway.toml: 1 error
    ");
}

#[test]
fn headers_cannot_be_sent() {
    insta::assert_snapshot!(render(
        "[tracing.headers]\n'a b' = 'secret'\nContent-Type = 'text/plain'\n\
         x-key = 'secret\u{e4}'\nX-Key = '${NONE_OF_OURS}'"
    ), @r"
    error: `a b` is not the name of a header
     --> gateway.toml:2:1
      |
    2 | 'a b' = ********
      | ^^^^^
      |
      = help: a name has letters, digits, `-` and `_`

    error: the header `Content-Type` is set by the gateway itself
     --> gateway.toml:3:1
      |
    3 | Content-Type = ************
      | ^^^^^^^^^^^^
      |
      = help: leave it out

    error: the value of `x-key` holds a character that no header can carry
     --> gateway.toml:4:9
      |
    4 | x-key = **********
      |         ^^^^^^^^^^
      |
      = help: it can have visible ASCII characters and spaces; is there a line break?

    error: the header `X-Key` is written twice
     --> gateway.toml:5:1
      |
    4 | x-key = **********
      | ----- first here
    5 | X-Key = '${NONE_OF_OURS}'
      | ^^^^^
      |
      = help: names of headers are case-insensitive; keep one

    error: the environment variable `NONE_OF_OURS` is not set
     --> gateway.toml:5:9
      |
    5 | X-Key = '${NONE_OF_OURS}'
      |         ^^^^^^^^^^^^^^^^^
      |
      = help: set it where the gateway is started; `$${` is a plain `${`

    gateway.toml: 5 errors
    ");
}

#[test]
fn names_and_types_are_wrong() {
    insta::assert_snapshot!(render(
        "[tracing]\nendpont = 'http://h'\nsample = '1%'\ntimeout = 10\nheaders = ['a']"
    ), @r#"
    error: unknown name `endpont` in `tracing`
     --> gateway.toml:2:1
      |
    2 | endpont = **********
      | ^^^^^^^
      |
      = help: did you mean `endpoint`?

    error: `sample` is a number, not a string
     --> gateway.toml:3:10
      |
    3 | sample = '1%'
      |          ^^^^

    error: `timeout` is a string, not a number
     --> gateway.toml:4:11
      |
    4 | timeout = 10
      |           ^^
      |
      = help: write `timeout = "10s"`

    error: `headers` is a table, not a list
     --> gateway.toml:5:11
      |
    5 | headers = [***]
      |           ^^^^^

    gateway.toml: 4 errors
    "#);
}
