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
