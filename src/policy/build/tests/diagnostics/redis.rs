//! The shared store: its url, its secrets, its certificates.

use super::super::render;

/// The diagnostics of a `[redis]` with these lines.
fn render_with(lines: &str) -> String {
    render(&format!("[redis]\n{lines}"))
}

#[test]
fn redis_has_no_url() {
    insta::assert_snapshot!(render_with("timeout = '5ms'"), @r#"
    error: `[redis]` has no `url`
     --> gateway.toml:1:1
      |
    1 | [redis]
      | ^^^^^^^
      |
      = help: write `url = "redis://127.0.0.1:6379"`, or leave the table out

    gateway.toml: 1 error
    "#);
}

#[test]
fn url_is_misspelt() {
    insta::assert_snapshot!(render_with("ulr = 'redis://h'"), @r"
    error: unknown name `ulr` in `redis`
     --> gateway.toml:2:1
      |
    2 | ulr = ***********
      | ^^^
      |
      = help: did you mean `url`?

    gateway.toml: 1 error
    ");
}

#[test]
fn url_has_another_scheme() {
    insta::assert_snapshot!(render_with("url = 'http://127.0.0.1:6379'"), @r"
    error: `url` has the scheme of HTTP, not of Redis
     --> gateway.toml:2:7
      |
    2 | url = 'http://127.0.0.1:6379'
      |       ^^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: write `redis://host:6379`, or `rediss://host:6379` for TLS

    gateway.toml: 1 error
    ");
    insta::assert_snapshot!(render_with("url = 'postgres://u:my-secret-key@h/1'"), @r"
    error: `url` has an unknown scheme
     --> gateway.toml:2:7
      |
    2 | url = 'postgres://***************@h/1'
      |       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: it looks like `redis://127.0.0.1:6379`, `rediss://…` for TLS, `redis+sentinel://host:26379/name`, `redis+cluster://host1,host2` or `unix:///path`

    gateway.toml: 1 error
    ");
    insta::assert_snapshot!(render_with("url = '127.0.0.1:6379'"), @r"
    error: `url` has no scheme
     --> gateway.toml:2:7
      |
    2 | url = '127.0.0.1:6379'
      |       ^^^^^^^^^^^^^^^^
      |
      = help: it looks like `redis://127.0.0.1:6379`, `rediss://…` for TLS, `redis+sentinel://host:26379/name`, `redis+cluster://host1,host2` or `unix:///path`

    gateway.toml: 1 error
    ");
}

#[test]
fn parts_of_the_url_are_out_of_range() {
    insta::assert_snapshot!(render_with("url = 'redis://h:99999'"), @r"
    error: the port in `url` is not a port
     --> gateway.toml:2:7
      |
    2 | url = 'redis://h:99999'
      |       ^^^^^^^^^^^^^^^^^
      |
      = help: a port is a number from 1 to 65535

    gateway.toml: 1 error
    ");
    insta::assert_snapshot!(render_with("url = 'redis://h/cache'"), @r"
    error: the database in `url` is not a number
     --> gateway.toml:2:7
      |
    2 | url = 'redis://h/cache'
      |       ^^^^^^^^^^^^^^^^^
      |
      = help: it looks like `redis://127.0.0.1:6379/2`; Redis has databases 0 to 15 by default

    gateway.toml: 1 error
    ");
    insta::assert_snapshot!(render_with("url = 'redis://h?db=1'"), @r"
    error: `url` cannot hold `?` or `#`
     --> gateway.toml:2:7
      |
    2 | url = 'redis://h?****'
      |       ^^^^^^^^^^^^^^^^
      |
      = help: write such options as settings of `[redis]`

    gateway.toml: 1 error
    ");
    insta::assert_snapshot!(render_with("url = 'redis+sentinel://a,b'"), @r"
    error: `url` does not name the master that the sentinels watch
     --> gateway.toml:2:7
      |
    2 | url = 'redis+sentinel://a,b'
      |       ^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: write it after the sentinels: `redis+sentinel://host:26379/mymaster`

    gateway.toml: 1 error
    ");
    insta::assert_snapshot!(render_with("url = 'unix://run/redis.sock'"), @r"
    error: `url` does not name a Unix socket by its whole path
     --> gateway.toml:2:7
      |
    2 | url = 'unix://run/redis.sock'
      |       ^^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: write three slashes: `unix:///run/redis/redis.sock`

    gateway.toml: 1 error
    ");
}

#[test]
fn a_password_in_the_url_is_not_encoded() {
    insta::assert_snapshot!(render_with("url = 'redis://:my/secret/key@h'"), @r"
    error: `url` has a `/` before its `@`
     --> gateway.toml:2:7
      |
    2 | url = 'redis://**************@h'
      |       ^^^^^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: in a user or a password write `/` as `%2F`, or use the setting `password`

    gateway.toml: 1 error
    ");
}

#[test]
fn a_variable_is_not_set() {
    insta::assert_snapshot!(render_with("url = 'redis://:${NOT_SET_ANYWHERE}@h'\nca = '${OPEN'"), @r"
    error: the environment variable `NOT_SET_ANYWHERE` is not set
     --> gateway.toml:2:7
      |
    2 | url = 'redis://********************@h'
      |       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: set it where the gateway is started; `$${` is a plain `${`

    error: `${` has no `}`
     --> gateway.toml:3:6
      |
    3 | ca = '${OPEN'
      |      ^^^^^^^^
      |
      = help: a variable looks like `${REDIS_PASSWORD}`, and a file like `${file:/run/secrets/redis}`; `$${` is a plain `${`

    gateway.toml: 2 errors
    ");
    insta::assert_snapshot!(render_with("url = 'redis://h'\npassword = '${NOT_SET_ANYWHERE}'"), @r"
    error: the environment variable `NOT_SET_ANYWHERE` is not set
     --> gateway.toml:3:12
      |
    3 | password = '${NOT_SET_ANYWHERE}'
      |            ^^^^^^^^^^^^^^^^^^^^^
      |
      = help: set it where the gateway is started; `$${` is a plain `${`

    gateway.toml: 1 error
    ");
}

#[test]
fn settings_are_in_the_url_already() {
    insta::assert_snapshot!(render_with("url = 'redis://u:p@h/2'\nusername = 'u'\npassword = 'p'\ndatabase = 3"), @r"
    error: user and password are in `url` already
     --> gateway.toml:3:12
      |
    2 | url = 'redis://***@h/2'
      |       ----------------- this url
    3 | username = 'u'
      |            ^^^
      |
      = help: take them out of `url`, or leave `username` and `password` out

    error: user and password are in `url` already
     --> gateway.toml:4:12
      |
    2 | url = 'redis://***@h/2'
      |       ----------------- this url
    3 | username = 'u'
    4 | password = ***
      |            ^^^
      |
      = help: take them out of `url`, or leave `username` and `password` out

    error: the database is in `url` already
     --> gateway.toml:5:12
      |
    2 | url = 'redis://***@h/2'
      |       ----------------- this url
    ...
    5 | database = 3
      |            ^
      |
      = help: take it out of `url`, or leave `database` out

    gateway.toml: 3 errors
    ");
}

#[test]
fn a_user_has_no_password() {
    insta::assert_snapshot!(render_with("url = 'redis://h'\nusername = 'gateway'"), @r#"
    error: a user without a password cannot log in
     --> gateway.toml:3:12
      |
    3 | username = 'gateway'
      |            ^^^^^^^^^
      |
      = help: add the password, best as `"${NAME}"` from the environment

    gateway.toml: 1 error
    "#);
    insta::assert_snapshot!(render_with("url = 'redis://h'\npassword = ''"), @r"
    error: the password is empty
     --> gateway.toml:3:12
      |
    3 | password = **
      |            ^^
      |
      = help: without a password, leave it out

    gateway.toml: 1 error
    ");
}

#[test]
fn certificates_without_tls() {
    insta::assert_snapshot!(render_with("url = 'redis://h'\nca = 'ca.pem'\nsentinel_password = 'x'"), @r"
    error: certificates are for TLS, and the connection has none
     --> gateway.toml:3:6
      |
    2 | url = 'redis://h'
      |       ----------- this url
    3 | ca = 'ca.pem'
      |      ^^^^^^^^
      |
      = help: write `rediss://`, `rediss+sentinel://` or `rediss+cluster://`, or leave it out

    error: there are no sentinels
     --> gateway.toml:4:21
      |
    2 | url = 'redis://h'
      |       ----------- this url
    3 | ca = 'ca.pem'
    4 | sentinel_password = ***
      |                     ^^^
      |
      = help: leave it out, or write `redis+sentinel://host:26379/name`

    gateway.toml: 2 errors
    ");
    insta::assert_snapshot!(render_with("url = 'rediss://h'\nclient_cert = 'gateway.pem'"), @r"
    error: `client_cert` needs its `client_key`
     --> gateway.toml:3:15
      |
    3 | client_cert = 'gateway.pem'
      |               ^^^^^^^^^^^^^
      |
      = help: both are PEM files

    gateway.toml: 1 error
    ");
}

#[test]
fn a_timeout_is_out_of_range() {
    insta::assert_snapshot!(render_with("url = 'redis://h'\ntimeout = '2s'"), @r"
    error: `timeout` is too long
     --> gateway.toml:3:11
      |
    3 | timeout = '2s'
      |           ^^^^
      |
      = help: the longest is `1s`

    gateway.toml: 1 error
    ");
    insta::assert_snapshot!(render_with("url = 'redis://h'\ntimeout = '10'"), @r#"
    error: `timeout` has no unit
     --> gateway.toml:3:11
      |
    3 | timeout = '10'
      |           ^^^^
      |
      = help: for milliseconds, write `timeout = "10ms"`

    gateway.toml: 1 error
    "#);
    insta::assert_snapshot!(render_with("url = 'redis://h'\ntimeout = 10"), @r#"
    error: `timeout` is a string, not a number
     --> gateway.toml:3:11
      |
    3 | timeout = 10
      |           ^^
      |
      = help: write `timeout = "10ms"`

    gateway.toml: 1 error
    "#);
}

#[test]
fn prefix_is_invalid() {
    insta::assert_snapshot!(render_with("url = 'redis://h'\nprefix = ''"), @r#"
    error: `prefix` is empty: nothing would set the gateway's keys apart
     --> gateway.toml:3:10
      |
    3 | prefix = ''
      |          ^^
      |
      = help: it looks like `"tollgate:"`

    gateway.toml: 1 error
    "#);
    insta::assert_snapshot!(render_with("url = 'redis://h'\nprefix = 'a{b}:'"), @r#"
    error: `prefix` cannot hold braces: they choose a key's slot in Redis Cluster
     --> gateway.toml:3:10
      |
    3 | prefix = 'a{b}:'
      |          ^^^^^^^
      |
      = help: it looks like `"tollgate:"`

    gateway.toml: 1 error
    "#);
    insta::assert_snapshot!(render_with("url = 'redis://h'\nprefix = 'a b'"), @r#"
    error: `prefix` holds a character that is not visible ASCII
     --> gateway.toml:3:10
      |
    3 | prefix = 'a b'
      |          ^^^^^
      |
      = help: it looks like `"tollgate:"`

    gateway.toml: 1 error
    "#);
}

#[test]
fn on_failure_is_an_unknown_word() {
    insta::assert_snapshot!(render_with("url = 'redis://h'\non_failure = 'open'"), @r#"
    error: `on_failure` is `local`, `allow` or `deny`, not `open`
     --> gateway.toml:3:14
      |
    3 | on_failure = 'open'
      |              ^^^^^^
      |
      = help: write `on_failure = "allow"`; `local`, the default, still limits

    gateway.toml: 1 error
    "#);
}

#[test]
fn a_list_of_tables() {
    insta::assert_snapshot!(render("[[redis]]\nurl = 'redis://h'"), @r"
    error: `redis` is a table, not a list
     --> gateway.toml:1:1
      |
    1 | [[redis]]
      | ^^^^^^^^^
      |
      = help: write `[redis]`, once and in single brackets

    gateway.toml: 1 error
    ");
}

#[test]
fn ready_is_an_unknown_word() {
    insta::assert_snapshot!(render_with("url = 'redis://h'\nready = 'conected'"), @r#"
    error: `ready` is `always` or `connected`, not `conected`
     --> gateway.toml:3:9
      |
    3 | ready = 'conected'
      |         ^^^^^^^^^^
      |
      = help: did you mean `ready = "connected"`?

    gateway.toml: 1 error
    "#);
    insta::assert_snapshot!(render_with("url = 'redis://h'\nready = true"), @r#"
    error: `ready` is a string, not a boolean
     --> gateway.toml:3:9
      |
    3 | ready = true
      |         ^^^^
      |
      = help: possible here: `"always"` and `"connected"`

    gateway.toml: 1 error
    "#);
}

#[test]
fn unknown_name_and_missing_url_are_both_reported() {
    insta::assert_snapshot!(render("[redis]\nhost = 'x'\ntimout = '1s'"), @r#"
    error: unknown name `host` in `redis`
     --> gateway.toml:2:1
      |
    2 | host = ***
      | ^^^^
      |
      = help: write `url = "redis://127.0.0.1:6379"`

    error: unknown name `timout` in `redis`
     --> gateway.toml:3:1
      |
    3 | timout = ****
      | ^^^^^^
      |
      = help: did you mean `timeout`?

    gateway.toml: 2 errors
    "#);
}

#[test]
fn colocate_is_wrong() {
    insta::assert_snapshot!(render_with("url = 'redis://h'\ncolocate = 'key'"), @r"
    error: `colocate` chooses slots of a Redis Cluster, and `url` is not one
     --> gateway.toml:3:12
      |
    3 | colocate = 'key'
      |            ^^^^^
      |
      = help: leave it out, or write `redis+cluster://host1,host2`

    gateway.toml: 1 error
    ");
    insta::assert_snapshot!(render_with("url = 'redis+cluster://h'\ncolocate = 'route'"), @r"
    error: `colocate` is `key`, `tenant` or `off`, not `route`
     --> gateway.toml:3:12
      |
    3 | colocate = 'route'
      |            ^^^^^^^

    gateway.toml: 1 error
    ");
    insta::assert_snapshot!(render_with("url = 'redis+cluster://h'\ncolocate = true"), @r#"
    error: `colocate` is a string, not a boolean
     --> gateway.toml:3:12
      |
    3 | colocate = true
      |            ^^^^
      |
      = help: possible here: `"key"`, `"tenant"` and `"off"`

    gateway.toml: 1 error
    "#);
    insta::assert_snapshot!(render_with("url = 'redis+cluster://h'\ncollocate = 'key'"), @r"
    error: unknown name `collocate` in `redis`
     --> gateway.toml:3:1
      |
    3 | collocate = *****
      | ^^^^^^^^^
      |
      = help: did you mean `colocate`?

    gateway.toml: 1 error
    ");
}
