//! Upstreams and routes.

use super::super::{render, render_whole};

#[test]
fn servers_are_invalid() {
    insta::assert_snapshot!(render("[upstreams.b]\nservers = ['http://u:my-secret-key@api:80/x', 'https://api/', 'demo', 'api', 'api:0', 'grpc://api:1', 'http://::1']"), @r#"
    error: a server has no user and password
     --> gateway.toml:2:12
      |
    2 | servers = ['http://***************@api:80/x', 'https://api/', 'demo', 'api', 'api:0', 'grpc://api:1', 'http://::1']
      |            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: write `http://api:80`

    error: a server is `host:port`, without a path
     --> gateway.toml:2:47
      |
    2 | servers = ['http://***************@api:80/x', 'https://api/', 'demo', 'api', 'api:0', 'grpc://api:1', 'http://::1']
      |                                               ^^^^^^^^^^^^^^
      |
      = help: write `https://api`

    error: `demo` is the built-in responder, not one of several servers
     --> gateway.toml:2:63
      |
    2 | servers = ['http://***************@api:80/x', 'https://api/', 'demo', 'api', 'api:0', 'grpc://api:1', 'http://::1']
      |                                                               ^^^^^^
      |
      = help: take it out, or take the other servers out

    error: the server `api` has no port
     --> gateway.toml:2:71
      |
    2 | servers = ['http://***************@api:80/x', 'https://api/', 'demo', 'api', 'api:0', 'grpc://api:1', 'http://::1']
      |                                                                       ^^^^^
      |
      = help: write `api:80`

    error: the server `api:0` has no valid port
     --> gateway.toml:2:78
      |
    2 | servers = ['http://***************@api:80/x', 'https://api/', 'demo', 'api', 'api:0', 'grpc://api:1', 'http://::1']
      |                                                                              ^^^^^^^
      |
      = help: a port is a number from 1 to 65535

    error: the scheme of a server is `http://` or `https://`, or left out
     --> gateway.toml:2:87
      |
    2 | servers = ['http://***************@api:80/x', 'https://api/', 'demo', 'api', 'api:0', 'grpc://api:1', 'http://::1']
      |                                                                                       ^^^^^^^^^^^^^^
      |
      = help: write `api:1`, and `protocol = "h2c"` below

    error: the server `http://::1` has no port
     --> gateway.toml:2:103
      |
    2 | servers = ['http://***************@api:80/x', 'https://api/', 'demo', 'api', 'api:0', 'grpc://api:1', 'http://::1']
      |                                                                                                       ^^^^^^^^^^^^
      |
      = help: write `http://[::1]:80`

    error: the route `all` has no upstream
     --> gateway.toml:5:9
      |
    5 | [routes.all]
      |         ^^^
      |
      = help: add `upstream = "b"`, or another one

    gateway.toml: 8 errors
    "#);
}

#[test]
fn servers_and_balance_are_invalid() {
    insta::assert_snapshot!(super::tls::brief("[routes.all]\nupstream = 'a'\n[upstreams.a]\nservers = [{ address = 'a:80', weight = 1001 }, { address = 'a:80', backup = true, priority = 2 }, { url = 'b:80', weight = 0 }, 3, 'srv+http://_api._tcp.example']\nbalance = 'leastconn'\nslow_start = 30\nsticky = { ttl = '1500ms', secret = 'hunter2' }\n[upstreams.b]\nservers = ['b:80']\nbalance = 'hash:header:'\nsticky = { cookie = 'a b' }\nip_hash = true\nweight = 3\n[upstreams.c]\nservers = [{ weight = 2 }, 'c:80']\nbalance = 'hsh:key'"), @r#"
    `weight` is at least 1 and at most 1000
    `a:80` is written twice
    `backup = true` is the priority 1, so `priority` cannot be set, too
    = help: take one of them out
    unknown name `url` in `upstreams.a.servers`
    = help: write `address = "b:80"`
    an item of `servers` is a string or a table, not a number
    the scheme of a server is `http://` or `https://`, or left out
    = help: for SRV records, write `_api._tcp.example`, and `resolve = "srv"` below
    `balance` has no value `leastconn`
    = help: write `balance = "least_request"`
    `slow_start` is a string, not a number
    = help: write `slow_start = "30s"`
    `sticky` needs the name of its `cookie`
    = help: write `sticky = { cookie = "srv" }`
    `ttl` is a whole number of seconds
    = help: a cookie has no shorter unit: write `ttl = "1h"`
    `secret` has less than 16 characters
    = help: make one with `openssl rand -hex 16`, and best take it from the environment: `secret = "${STICKY_SECRET}"`
    `hash:header:` names no header
    = help: it looks like `hash:header:x-tenant`
    `a b` is not the name of a cookie
    = help: a name has 1 to 64 letters, digits, `_` and `-`, such as `srv`
    unknown name `ip_hash` in `upstreams.b`
    = help: write `balance = "hash:ip"`
    unknown name `weight` in `upstreams.b`
    = help: it is a setting of a server: `servers = [{ address = "127.0.0.1:3000", weight = 2, backup = true }]`
    this server has no `address`
    = help: write `{ address = "127.0.0.1:3000", weight = 2 }`
    `balance` has no value `hsh:key`
    = help: write `balance = "hash:key"`
    "#);
}

#[test]
fn servers_of_srv_records_and_resolvers_are_invalid() {
    insta::assert_snapshot!(super::tls::brief("[routes.all]\nupstream = 'a'\n[server]\nresolvers = ['10.0.0.2', '10.0.0.2:53', 'ns.lan', '[::1]:0']\n[upstreams.a]\nresolve = 'srv'\nservers = ['_http._tcp.a:80', '10.0.0.1', '[::1]:80', 'srv://a', 'a/b', { address = 'b.lan', weight = 2 }]\n[upstreams.b]\nresolve = 'srw'\nservers = ['_http._tcp.b']\n[upstreams.c]\nresolve = 'srv'\nservers = ['demo']"), @r#"
    `10.0.0.2:53` is written twice
    `ns.lan` is not the address of a name server
    = help: it looks like `10.0.0.2`, `127.0.0.1:8600` or `[2001:db8::1]:53`
    `[::1]:0` is not the address of a name server
    = help: it looks like `10.0.0.2`, `127.0.0.1:8600` or `[2001:db8::1]:53`
    `_http._tcp.a:80` has a port, which its SRV records have, too
    = help: write `_http._tcp.a`; for the addresses of a host, take `resolve` out
    `10.0.0.1` is an address, which has no SRV records
    = help: write a name such as `_http._tcp.api.internal`, or take `resolve` out
    `[::1]:80` is an address, which has no SRV records
    = help: write a name such as `_http._tcp.api.internal`, or take `resolve` out
    the scheme of a server is `http://` or `https://`, or left out
    = help: write `a`
    `a/b` is not the name of SRV records
    = help: it looks like `_http._tcp.api.internal`
    with `resolve = "srv"`, a server has no `weight`: its SRV records have weights
    = help: take it out
    `resolve` is `a` or `srv`, not `srw`
    = help: did you mean `resolve = "srv"`?
    the server `_http._tcp.b` has no port
    = help: if its SRV records have the port, write `resolve = "srv"`, too
    the built-in responder `demo` is no name of SRV records
    = help: take `resolve` out
    "#);
}

#[test]
fn the_upstream_b_has_no_servers() {
    insta::assert_snapshot!(render("[upstreams.b]\n[upstreams.c]\nservers = []"), @r#"
    error: the upstream `b` has no servers
     --> gateway.toml:1:12
      |
    1 | [upstreams.b]
      |            ^
      |
      = help: write `servers = ["127.0.0.1:3000"]`, or `["demo"]` to try things out

    error: the upstream `c` has no servers
     --> gateway.toml:3:11
      |
    3 | servers = []
      |           ^^
      |
      = help: write `servers = ["127.0.0.1:3000"]`, or `["demo"]` to try things out

    error: the route `all` has no upstream
     --> gateway.toml:6:9
      |
    6 | [routes.all]
      |         ^^^
      |
      = help: add `upstream = "b"`, or another one

    gateway.toml: 3 errors
    "#);
}

#[test]
fn trailing_slash_is_neither_same_nor_distinct() {
    let text = "[routes.a]\npath = '/a'\ntrailing_slash = 'sane'\n[routes.b]\npath = '/b'\ntrailing_slahs = 'same'";
    let shown = render(text);
    assert!(shown.contains("`trailing_slash` is `same` or `distinct`, not `sane`"), "{shown}");
    assert!(shown.contains("did you mean `trailing_slash`?"), "{shown}");
}

#[test]
fn the_route_all_has_no_upstream() {
    insta::assert_snapshot!(render("[upstreams.b]\nservers = ['b:1']"), @r#"
    error: the route `all` has no upstream
     --> gateway.toml:5:9
      |
    5 | [routes.all]
      |         ^^^
      |
      = help: add `upstream = "b"`, or another one

    gateway.toml: 1 error
    "#);
}

#[test]
fn every_setting_of_a_route_is_invalid() {
    insta::assert_snapshot!(render("[routes.r]\npath = '/api*'\nmethods = ['get', 'GET', 'GET', '?']\nhost = 'a:80'\ncost = 0\nupstream = 'apy'"), @r"
    error: `*` is allowed only after `/`
     --> gateway.toml:2:8
      |
    2 | path = '/api*'
      |        ^^^^^^^
      |
      = help: did you mean `/api/*`?

    error: the method `get` is not in upper case
     --> gateway.toml:3:12
      |
    3 | methods = ['get', 'GET', 'GET', '?']
      |            ^^^^^
      |
      = help: write `GET`

    error: `GET` is written twice
     --> gateway.toml:3:26
      |
    3 | methods = ['get', 'GET', 'GET', '?']
      |                   -----  ^^^^^
      |                   |
      |                   here first

    error: `?` is not a method
     --> gateway.toml:3:33
      |
    3 | methods = ['get', 'GET', 'GET', '?']
      |                                 ^^^
      |
      = help: such as `GET` or `POST`

    error: `host` has no port
     --> gateway.toml:4:8
      |
    4 | host = 'a:80'
      |        ^^^^^^
      |
      = help: write only the name: it matches on every port

    error: `cost` is above 0
     --> gateway.toml:5:8
      |
    5 | cost = 0
      |        ^
      |
      = help: to let requests pass uncounted, leave the route out of the rules

    error: there is no upstream `apy`
     --> gateway.toml:6:12
      |
    6 | upstream = 'apy'
      |            ^^^^^
      |
      = help: did you mean `api`?

    gateway.toml: 7 errors
    ");
}

#[test]
fn two_routes_for_the_same_requests() {
    let file = "[upstreams.api]\nservers = [\"demo\"]\n[routes.a]\npath = \"/x/*\"\n\
        methods = [\"GET\", \"POST\"]\n[routes.b]\npath = \"/x/*\"\nmethods = [\"POST\"]\n";
    insta::assert_snapshot!(render_whole(file), @r"
    error: the routes `a` and `b` match the same requests
     --> gateway.toml:6:9
      |
    3 | [routes.a]
      |         - the other one
    ...
    6 | [routes.b]
      |         ^
      |
      = help: set them apart by path, method or host, or drop one

    gateway.toml: 1 error
    ");
}

#[test]
fn parameters_are_invalid() {
    let paths = [
        "/v1/{Tenant-id}",
        "/{id:[0-9]+}",
        "/{id}.json",
        "/{a}/{a}",
        "/files/{rest...}",
        "/v1/*/chat",
        "/{1st}",
        "/a}",
    ];
    let file: Vec<String> = (0..)
        .zip(paths)
        .map(|(index, path)| format!("[routes.r{index}]\npath = '{path}'\n"))
        .collect();
    insta::assert_snapshot!(render(&file.concat()), @r#"
    error: the name of a parameter has only `a` to `z`, digits and `_`
     --> gateway.toml:2:8
      |
    2 | path = '/v1/{Tenant-id}'
      |        ^^^^^^^^^^^^^^^^^
      |
      = help: write `{tenant_id}`

    error: the name of a parameter has only `a` to `z`, digits and `_`
     --> gateway.toml:4:8
      |
    4 | path = '/{id:[0-9]+}'
      |        ^^^^^^^^^^^^^^
      |
      = help: a parameter matches any text: write only its name

    error: a parameter is a whole segment, in braces
     --> gateway.toml:6:8
      |
    6 | path = '/{id}.json'
      |        ^^^^^^^^^^^^
      |
      = help: such as `/v1/{tenant}/chat`; `*` at the end matches the rest

    error: the parameters of a path have different names
     --> gateway.toml:8:8
      |
    8 | path = '/{a}/{a}'
      |        ^^^^^^^^^^
      |
      = help: `{a}` is there twice

    error: a parameter is one segment
      --> gateway.toml:10:8
       |
    10 | path = '/files/{rest...}'
       |        ^^^^^^^^^^^^^^^^^^
       |
       = help: `*` at the end matches all the rest

    error: `*` is allowed only at the end of a path, after `/`
      --> gateway.toml:12:8
       |
    12 | path = '/v1/*/chat'
       |        ^^^^^^^^^^^^
       |
       = help: for any segment, write `/v1/{name}/chat`; a prefix is `/v1/*`

    error: the name of a parameter has only `a` to `z`, digits and `_`
      --> gateway.toml:14:8
       |
    14 | path = '/{1st}'
       |        ^^^^^^^^
       |
       = help: a name has at most 32 characters, the first no digit

    error: a parameter is a whole segment, in braces
      --> gateway.toml:16:8
       |
    16 | path = '/a}'
       |        ^^^^^
       |
       = help: such as `/v1/{tenant}/chat`; `*` at the end matches the rest

    gateway.toml: 8 errors
    "#);
}

#[test]
fn routes_differ_in_the_names_of_parameters() {
    let file = "[routes.a]\npath = '/v1/{tenant}/chat'\n[routes.b]\npath = '/v1/{id}/chat'\n\
                [routes.c]\npath = '/v1/{id}/*'";
    insta::assert_snapshot!(render(file), @r#"
    error: the routes `a` and `b` match the same requests
     --> gateway.toml:3:9
      |
    1 | [routes.a]
      |         - the other one
    2 | path = '/v1/{tenant}/chat'
    3 | [routes.b]
      |         ^
      |
      = help: set them apart by path, method or host, or drop one

    gateway.toml: 1 error
    "#);
}

#[test]
fn passwords_of_servers_are_in_no_message() {
    for server in ["https://u:secret@a", "u:secret@a", "u:secret@a:80", "http://u:secret@a b"] {
        for resolve in ["a", "srv"] {
            let upstream = format!("[upstreams.a]\nresolve = '{resolve}'\nservers = ['{server}']");
            let text = super::tls::brief(&upstream);
            assert!(text.contains("a server has no user and password"), "{server}\n{text}");
            assert!(!text.contains("secret"), "{server}\n{text}");
        }
    }
}
