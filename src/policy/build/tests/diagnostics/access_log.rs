//! One line for every request, to somewhere.

use super::super::render;

#[test]
fn values_are_out_of_range() {
    insta::assert_snapshot!(render(
        "[access_log]\noutput = 'access.log'\nclient_ip = 'hash'\nsalt = 'short'\nsample = 10"
    ), @r#"
    error: `output` is `stdout`, `off` or the path of a file, not `access.log`
     --> gateway.toml:2:10
      |
    2 | output = 'access.log'
      |          ^^^^^^^^^^^^
      |
      = help: a path begins with `/`: `output = "/var/log/tollgate/access.log"`

    error: `client_ip` is `plain`, `hashed` or `off`, not `hash`
     --> gateway.toml:3:13
      |
    3 | client_ip = 'hash'
      |             ^^^^^^
      |
      = help: did you mean `client_ip = "hashed"`?

    error: `salt` has less than 16 characters
     --> gateway.toml:4:8
      |
    4 | salt = *******
      |        ^^^^^^^
      |
      = help: make one with `openssl rand -hex 16`, and best take it from the environment: `salt = "${LOG_SALT}"`

    error: `sample` is at least 0 and at most 1
     --> gateway.toml:5:10
      |
    5 | sample = 10
      |          ^^
      |
      = help: `0.1` writes one in ten of the requests that pass

    gateway.toml: 4 errors
    "#);
}

#[test]
fn a_sample_is_a_number() {
    insta::assert_snapshot!(render("[access_log]\nsample = '10%'\nsalt = '${NONE_OF_OURS}'"), @r"
    error: `sample` is a number, not a string
     --> gateway.toml:2:10
      |
    2 | sample = '10%'
      |          ^^^^^

    error: the environment variable `NONE_OF_OURS` is not set
     --> gateway.toml:3:8
      |
    3 | salt = '${NONE_OF_OURS}'
      |        ^^^^^^^^^^^^^^^^^
      |
      = help: set it where the gateway is started; `$${` is a plain `${`

    gateway.toml: 2 errors
    ");
}

#[test]
fn fields_do_not_exist() {
    insta::assert_snapshot!(render(
        "[access_log]\nfields = ['time', 'statsu', 'query', 'user_agent', '$remote_addr', 'remote_addr', 'x y']"
    ), @r#"
    error: there is no field `statsu`
     --> gateway.toml:2:19
      |
    2 | fields = ['time', 'statsu', 'query', 'user_agent', '$remote_addr', 'remote_addr', 'x y']
      |                   ^^^^^^^^
      |
      = help: did you mean `status`?
              the fields are `time`, `id`, `trace_id`, `generation`, `key`, `key_name`, `key_from`, `tenant`,
              `ip`, `plan`, `method`, `path`, `route`, `decision`, `rule`, `shadow_rules`, `cost`, `remaining`,
              `source`, `reason`, `status`, `bytes_in`, `bytes_out`, `upstream`, `server`, `total_ms`, `check_ms`,
              `wait_ms`, `upstream_ms`, `connection`, `connect_ms`, `request_body_ms`, `first_byte_ms`, `body_ms`,
              `send_ms`, `http`, `tls_version`, `tls_cipher`, `sni`, `cert_subject`, `grpc_status`, `attempts`,
              `costs` and `header:<name>`

    error: there is no field `query`
     --> gateway.toml:2:29
      |
    2 | fields = ['time', 'statsu', 'query', 'user_agent', '$remote_addr', 'remote_addr', 'x y']
      |                             ^^^^^^^
      |
      = help: a query may contain a key, so no field has it: `path` has the path

    error: there is no field `user_agent`
     --> gateway.toml:2:38
      |
    2 | fields = ['time', 'statsu', 'query', 'user_agent', '$remote_addr', 'remote_addr', 'x y']
      |                                      ^^^^^^^^^^^^
      |
      = help: did you mean `header:user-agent`?

    error: there is no field `$remote_addr`
     --> gateway.toml:2:52
      |
    2 | fields = ['time', 'statsu', 'query', 'user_agent', '$remote_addr', 'remote_addr', 'x y']
      |                                                    ^^^^^^^^^^^^^^
      |
      = help: did you mean `ip`?

    error: there is no field `remote_addr`
     --> gateway.toml:2:68
      |
    2 | fields = ['time', 'statsu', 'query', 'user_agent', '$remote_addr', 'remote_addr', 'x y']
      |                                                                    ^^^^^^^^^^^^^
      |
      = help: did you mean `ip`?

    error: there is no field `x y`
     --> gateway.toml:2:83
      |
    2 | fields = ['time', 'statsu', 'query', 'user_agent', '$remote_addr', 'remote_addr', 'x y']
      |                                                                                   ^^^^^

    gateway.toml: 6 errors
    "#);
}

#[test]
fn fields_are_written_twice_or_not_at_all() {
    insta::assert_snapshot!(render(
        "[access_log]\nfields = ['time', 'header:user-agent', 'id', 'time', 'header:User-Agent']"
    ), @r#"
    error: `time` is written twice
     --> gateway.toml:2:46
      |
    2 | fields = ['time', 'header:user-agent', 'id', 'time', 'header:User-Agent']
      |           ------ here first                  ^^^^^^

    error: `header:User-Agent` is written twice
     --> gateway.toml:2:54
      |
    2 | fields = ['time', 'header:user-agent', 'id', 'time', 'header:User-Agent']
      |                   ------------------- here first     ^^^^^^^^^^^^^^^^^^^

    gateway.toml: 2 errors
    "#);
    insta::assert_snapshot!(render("[access_log]\nfields = []"), @r#"
    error: `fields` names no field
     --> gateway.toml:2:10
      |
    2 | fields = []
      |          ^^
      |
      = help: leave `fields` out for all fields, or name some: `fields = ["time", "key", "status"]`

    gateway.toml: 1 error
    "#);
    insta::assert_snapshot!(render("[access_log]\nfields = 'time'"), @r#"
    error: `fields` is a list, not a string
     --> gateway.toml:2:10
      |
    2 | fields = 'time'
      |          ^^^^^^
      |
      = help: write `fields = ["time"]`

    gateway.toml: 1 error
    "#);
}

#[test]
fn fields_would_have_secrets() {
    insta::assert_snapshot!(render(
        "[clients]\napi_key = ['header:x-tenant-key']\n[access_log]\nfields = ['header:Authorization', \
         'header:cookie', 'header:X_Tenant_Key', 'header:a b', 'header:']"
    ), @r#"
    error: the header `authorization` may carry a secret, which the access log must not contain
     --> gateway.toml:4:11
      |
    4 | fields = ['header:Authorization', 'header:cookie', 'header:X_Tenant_Key', 'header:a b', 'header:']
      |           ^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: remove it; the fields `key` and `key_from` have the id of a key and where it was

    error: the header `cookie` may carry a secret, which the access log must not contain
     --> gateway.toml:4:35
      |
    4 | fields = ['header:Authorization', 'header:cookie', 'header:X_Tenant_Key', 'header:a b', 'header:']
      |                                   ^^^^^^^^^^^^^^^
      |
      = help: remove it; the fields `key` and `key_from` have the id of a key and where it was

    error: the header `x_tenant_key` may carry a secret, which the access log must not contain
     --> gateway.toml:4:52
      |
    4 | fields = ['header:Authorization', 'header:cookie', 'header:X_Tenant_Key', 'header:a b', 'header:']
      |                                                    ^^^^^^^^^^^^^^^^^^^^^
      |
      = help: `clients.api_key` names it; the fields `key` and `key_from` have the id of the key and where it was

    error: what follows `header:` is not the name of a header
     --> gateway.toml:4:75
      |
    4 | fields = ['header:Authorization', 'header:cookie', 'header:X_Tenant_Key', 'header:a b', 'header:']
      |                                                                           ^^^^^^^^^^^^
      |
      = help: such as `header:user-agent`

    error: what follows `header:` is not the name of a header
     --> gateway.toml:4:89
      |
    4 | fields = ['header:Authorization', 'header:cookie', 'header:X_Tenant_Key', 'header:a b', 'header:']
      |                                                                                         ^^^^^^^^^
      |
      = help: such as `header:user-agent`

    gateway.toml: 5 errors
    "#);
}

#[test]
fn headers_are_too_many() {
    let headers: Vec<String> = (0..17).map(|count| format!("'header:x-{count}'")).collect();
    insta::assert_snapshot!(render(
        &format!("[access_log]\nfields = [\n{}\n]", headers.join(",\n"))
    ), @r#"
    error: `fields` has more than 16 headers
      --> gateway.toml:19:1
       |
    19 | 'header:x-16'
       | ^^^^^^^^^^^^^

    gateway.toml: 1 error
    "#);
}

#[test]
fn secret_headers_are_refused_however_they_are_written() {
    for header in
        ["authorization", "Proxy-Authorization", "cookie", "Set-Cookie", "x-api-key", "X_API_KEY"]
    {
        let text = render(&format!("[access_log]\nfields = ['header:{header}']"));
        assert!(text.contains("may carry a secret"), "{header}: {text}");
    }
}
