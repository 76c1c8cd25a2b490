//! Names that other gateways have.

use super::super::{messages, render, render_whole};

#[test]
fn settings_of_servers_have_other_names_or_do_not_exist() {
    insta::assert_snapshot!(render("[server]\nport = 8080\ntls = true\nmax_body_bytes = 1\ntimeout = '5s'\n"), @r#"
    error: unknown name `port` in `server`
     --> gateway.toml:2:1
      |
    2 | port = 8080
      | ^^^^
      |
      = help: write `listen = ["0.0.0.0:8080"]`

    error: unknown name `tls` in `server`
     --> gateway.toml:3:1
      |
    3 | tls = true
      | ^^^
      |
      = help: HTTPS is served by a listener: `[[listeners]]` with `address = "0.0.0.0:443"` and `certificates = [{ cert = "api.pem", key = "api.key" }]`

    error: unknown name `max_body_bytes` in `server`
     --> gateway.toml:4:1
      |
    4 | max_body_bytes = 1
      | ^^^^^^^^^^^^^^
      |
      = help: write `max_body_bytes = 104857600` in `[server.limits]`, or in a route

    error: unknown name `timeout` in `server`
     --> gateway.toml:5:1
      |
    5 | timeout = '5s'
      | ^^^^^^^
      |
      = help: clients have `read_timeout`, `write_timeout` and `keepalive_timeout`; those of servers are in `[upstreams.<name>]`

    gateway.toml: 4 errors
    "#);
}

#[test]
fn settings_of_upstreams_and_routes_have_other_names_or_do_not_exist() {
    insta::assert_snapshot!(render_whole("[upstreams.api]\nurl = 'http://h'\nretry = 3\nhealth_check = '/up'\nrequest_timeout = '5s'\n[routes.all]\nprefix = '/'\nbackend = 'api'\nstrip_path = '/v1'\nrate_limit = '10/s'\n"), @r#"
    error: unknown name `url` in `upstreams.api`
     --> gateway.toml:2:1
      |
    2 | url = 'http://h'
      | ^^^
      |
      = help: write `servers = ["http://h"]`

    error: unknown name `retry` in `upstreams.api`
     --> gateway.toml:3:1
      |
    3 | retry = 3
      | ^^^^^
      |
      = help: in an upstream or a route, write `retries = { count = 1, on = ["connect", "503"] }`; requests that are not idempotent are sent again with `non_idempotent = true`

    error: unknown name `health_check` in `upstreams.api`
     --> gateway.toml:4:1
      |
    4 | health_check = '/up'
      | ^^^^^^^^^^^^
      |
      = help: write `health = { path = "/healthz" }`

    error: unknown name `request_timeout` in `upstreams.api`
     --> gateway.toml:5:1
      |
    5 | request_timeout = '5s'
      | ^^^^^^^^^^^^^^^
      |
      = help: write `timeout = "30s"`: it is the time limit of the whole request with its retries; of one attempt, it is `try_timeout`

    error: unknown name `prefix` in `routes.all`
     --> gateway.toml:7:1
      |
    7 | prefix = '/'
      | ^^^^^^
    8 | backend = 'api'
    9 | strip_path = '/v1'
      | ---------- and this
      |
      = help: write `path = "/*"` and `strip_prefix = "/v1"`

    error: unknown name `backend` in `routes.all`
     --> gateway.toml:8:1
      |
    8 | backend = 'api'
      | ^^^^^^^
      |
      = help: write `upstream = "api"`

    error: unknown name `rate_limit` in `routes.all`
      --> gateway.toml:10:1
       |
    10 | rate_limit = '10/s'
       | ^^^^^^^^^^
       |
       = help: a rule names its routes: in `[rules.<name>]`, write `routes = ["all"]`

    gateway.toml: 7 errors
    "#);
}

#[test]
fn settings_of_rules_have_other_names_or_do_not_exist() {
    insta::assert_snapshot!(render("[rules.r]\nby = 'ip'\nrequests = 100\nwindow = '10s'\nalgorithm = 'gcra'\n"), @r#"
    error: unknown name `by` in `rules.r`
     --> gateway.toml:2:1
      |
    2 | by = 'ip'
      | ^^
      |
      = help: write `per = ["key"]`

    error: unknown name `requests` in `rules.r`
     --> gateway.toml:3:1
      |
    3 | requests = 100
      | ^^^^^^^^
    4 | window = '10s'
      | ------ and this
      |
      = help: write `rate = "100/10s"`

    error: unknown name `algorithm` in `rules.r`
     --> gateway.toml:5:1
      |
    5 | algorithm = 'gcra'
      | ^^^^^^^^^
      |
      = help: write `kind = "token_bucket"`

    gateway.toml: 3 errors
    "#);
}

#[test]
fn settings_of_plans_and_keys_belong_elsewhere() {
    insta::assert_snapshot!(render("[plans.free]\nrate = '10/s'\n[keys.acme]\nsecret = 'sk_live_9f86'\nplan = 'free'\nlimit = 5\n"), @r#"
    error: unknown name `rate` in `plans.free`
     --> gateway.toml:2:1
      |
    2 | rate = '10/s'
      | ^^^^
      |
      = help: a plan is only a name: its rate is in a rule, as `plans.free = { rate = "10/s" }`

    error: unknown name `secret` in `keys.acme`
     --> gateway.toml:4:1
      |
    4 | secret = **************
      | ^^^^^^
      |
      = help: the file has the hash of a key: `tollgate hash-key` prints the line `sha256 = "…"`

    error: unknown name `limit` in `keys.acme`
     --> gateway.toml:6:1
      |
    6 | limit = 5
      | ^^^^^
      |
      = help: a rate of one key overrides a rule, as `rules.<rule> = { rate = "10/s" }`

    gateway.toml: 3 errors
    "#);
}

#[test]
fn tables_of_other_gateways_do_not_exist() {
    insta::assert_snapshot!(render("[tls]\ncert = 'a.pem'\n[allowed_origins]\nx = []\n[rate_limit]\nrequests = 5\n"), @r#"
    error: unknown name `tls`
     --> gateway.toml:1:2
      |
    1 | [tls]
      |  ^^^
      |
      = help: HTTPS is served by a listener: `[[listeners]]` with `address = "0.0.0.0:443"` and `certificates = [{ cert = "api.pem", key = "api.key" }]`

    error: unknown name `allowed_origins`
     --> gateway.toml:3:2
      |
    3 | [allowed_origins]
      |  ^^^^^^^^^^^^^^^
      |
      = help: CORS is a table `[cors]` with `origins = ["https://app.example.com"]`, for all routes, or `cors = { origins = ["https://app.example.com"] }` of a route

    error: unknown name `rate_limit`
     --> gateway.toml:5:2
      |
    5 | [rate_limit]
      |  ^^^^^^^^^^
      |
      = help: a rate is part of a rule, such as `[rules.per-ip]` with `per = ["ip"]` and `rate = "10/s"`

    gateway.toml: 3 errors
    "#);
}

#[test]
fn other_name_of_a_setting_hides_no_error_and_adds_none() {
    assert_eq!(
        messages("[upstreams.api]\nurl = 'h:1'\n[routes.all]\ncost = 'x'\n"),
        [
            "unknown name `url` in `upstreams.api`",
            "`cost` is a number with at most three decimals, not a string",
        ]
    );
    assert_eq!(
        messages(&format!("[rules.r]\nlimit_by = 'ip'\nrequests = 5\n{}", super::super::SMALLEST)),
        ["unknown name `limit_by` in `rules.r`", "unknown name `requests` in `rules.r`"]
    );
}

#[test]
fn long_list_of_possible_names_is_complete() {
    insta::assert_snapshot!(render("[server]\nzzzzzzz = 1\n[redis]\nurl = 'redis://h'\nzzzzzzz = 1\n"), @r"
    error: unknown name `zzzzzzz` in `server`
     --> gateway.toml:2:1
      |
    2 | zzzzzzz = 1
      | ^^^^^^^
      |
      = help: possible here: `listen`, `admin`, `trusted_proxies`, `allow_ips`, `deny_ips`, `resolvers`,
              `threads`, `keepalive_timeout`, `read_timeout`, `write_timeout`, `drain_delay`, `drain_timeout`,
              `upgrade_timeout`, `max_header_bytes`, `max_uri_bytes`, `path_case`, `instances`, `maintenance`,
              `limits` and `http2`

    error: unknown name `zzzzzzz` in `redis`
     --> gateway.toml:5:1
      |
    5 | zzzzzzz = *
      | ^^^^^^^
      |
      = help: possible here: `url`, `timeout`, `on_failure`, `prefix`, `lanes`, `colocate`, `repair`, `username`,
              `password`, `database`, `sentinel_username`, `sentinel_password`, `ca`, `client_cert`, `client_key`,
              `ready`, `start_without` and `breaker`

    gateway.toml: 2 errors
    ");
}

#[test]
fn names_of_files_in_a_certificate_are_one_error() {
    let item = |names: &str| {
        render(&format!("[[listeners]]\naddress = '0.0.0.0:443'\ncertificates = [{{ {names} }}]\n"))
    };
    insta::assert_snapshot!(item("certFile = '/x/a.pem', keyFile = '/x/a.key'"), @r#"
    error: unknown name `certFile` in `listeners.certificates`
     --> gateway.toml:3:19
      |
    3 | certificates = [{ certFile = '/x/a.pem', keyFile = '/x/a.key' }]
      |                   ^^^^^^^^               ------- and this
      |
      = help: write `cert = "/x/a.pem"` and `key = "/x/a.key"`

    gateway.toml: 1 error
    "#);
    for (names, help) in [
        ("cert = 'a.pem', private_key = 'a.key'", "help: write `key = \"a.key\"`\n"),
        ("certificate = 'a.pem', key = 'a.key'", "help: write `cert = \"a.pem\"`\n"),
    ] {
        let shown = item(names);
        assert!(shown.contains(help) && shown.ends_with("1 error\n"), "{shown}");
    }
}
