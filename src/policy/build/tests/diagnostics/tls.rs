//! `[[listeners]]`, and TLS to upstreams.

use super::super::{render, render_whole};

/// A listener with TLS.
const HTTPS: &str =
    "[[listeners]]\naddress = '0.0.0.0:443'\ncertificates = [{ cert = 'a.pem', key = 'a.key' }]\n";

#[test]
fn listener_without_address_or_with_an_invalid_one() {
    insta::assert_snapshot!(render("[[listeners]]\nhttp2 = true\n[[listeners]]\naddress = ':443'\n[[listeners]]\naddress = 'unix:run/a.sock'\n[[listeners]]\naddress = 'unix:///run/a.sock'\n[[listeners]]\naddress = 'unix:/run/a.sock'\nmode = '0888'\n[[listeners]]\naddress = '0.0.0.0:81'\nmode = '0600'"), @r#"
    error: a listener has no `address`
     --> gateway.toml:1:1
      |
    1 | [[listeners]]
      | ^^^^^^^^^^^^^
      |
      = help: write `address = "0.0.0.0:443"`

    error: `:443` is not an address and a port
     --> gateway.toml:4:11
      |
    4 | address = ':443'
      |           ^^^^^^
      |
      = help: for every address, write `0.0.0.0:443`

    error: a Unix socket has an absolute path
     --> gateway.toml:6:11
      |
    6 | address = 'unix:run/a.sock'
      |           ^^^^^^^^^^^^^^^^^
      |
      = help: it looks like `unix:/run/tollgate.sock`

    error: the path of a Unix socket follows `unix:` without `//`
     --> gateway.toml:8:11
      |
    8 | address = 'unix:///run/a.sock'
      |           ^^^^^^^^^^^^^^^^^^^^
      |
      = help: write `unix:/run/a.sock`

    error: `0888` is not the permissions of a file
      --> gateway.toml:11:8
       |
    11 | mode = '0888'
       |        ^^^^^^
       |
       = help: write octal digits such as `"0660"`, which is the default, or `"0600"`

    error: `mode` is for Unix sockets, and `address` is not one
      --> gateway.toml:14:8
       |
    14 | mode = '0600'
       |        ^^^^^^
       |
       = help: leave it out

    gateway.toml: 6 errors
    "#);
    let path = |length: usize| format!("/{}", "a".repeat(length - 1));
    let shown = |path: String| render(&format!("[[listeners]]\naddress = 'unix:{path}'"));
    assert_eq!(shown(path(107)), "no errors\n");
    insta::assert_snapshot!(shown(path(108)), @r"
    error: the path of a Unix socket has at most 107 bytes
     --> gateway.toml:2:11
      |
    2 | address = 'unix:/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...
      |           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: shorten it, or use a link to its folder

    gateway.toml: 1 error
    ");
}

#[test]
fn address_of_two_listeners() {
    insta::assert_snapshot!(render("[server]\nlisten = ['0.0.0.0:80']\n[[listeners]]\naddress = '0.0.0.0:80'\n[[listeners]]\naddress = '127.0.0.1:9090'\n[[listeners]]\naddress = 'unix:/run/a'\n[[listeners]]\naddress = 'unix:/run/a'\nmode = '0600'\n[[listeners]]\naddress = '127.0.0.1:0'\n[[listeners]]\naddress = '127.0.0.1:0'"), @r"
    error: `0.0.0.0:80` is written twice
     --> gateway.toml:4:11
      |
    2 | listen = ['0.0.0.0:80']
      |           ------------ here first
    3 | [[listeners]]
    4 | address = '0.0.0.0:80'
      |           ^^^^^^^^^^^^
      |
      = help: give each listener and the admin port another address

    error: `127.0.0.1:9090` is the default of `server.admin`
     --> gateway.toml:6:11
      |
    6 | address = '127.0.0.1:9090'
      |           ^^^^^^^^^^^^^^^^
      |
      = help: take another port, or set `admin` in `[server]`

    error: `unix:/run/a` is written twice
      --> gateway.toml:10:11
       |
     8 | address = 'unix:/run/a'
       |           ------------- here first
     9 | [[listeners]]
    10 | address = 'unix:/run/a'
       |           ^^^^^^^^^^^^^
       |
       = help: give each listener and the admin port another address

    gateway.toml: 3 errors
    ");
}

#[test]
fn certificates_are_invalid() {
    insta::assert_snapshot!(render("[[listeners]]\naddress = '0.0.0.0:1'\ncertificates = []\n[[listeners]]\naddress = '0.0.0.0:2'\ncertificates = ['acme', 'acme', 'api.pem', { cert = 'a.pem' }, { key = 'a.key' }, 7, { cert = '', key = 'a', pem = 'a' }]"), @r#"
    error: there is no `[acme]`
     --> gateway.toml:6:17
      |
    6 | certificates = ['acme', 'acme', 'api.pem', { cert = 'a.pem' }, { key = 'a.key' }, 7, { cert = '', key = 'a', pem ...
      |                 ^^^^^^
      |
      = help: add `[acme]` with `domains = ["api.example.com"]`

    error: `acme` is written twice
     --> gateway.toml:6:25
      |
    6 | certificates = ['acme', 'acme', 'api.pem', { cert = 'a.pem' }, { key = 'a.key' }, 7, { cert = '', key = 'a', pem ...
      |                 ------  ^^^^^^
      |                 |
      |                 here first

    error: `api.pem` is not a certificate
     --> gateway.toml:6:33
      |
    6 | certificates = ['acme', 'acme', 'api.pem', { cert = 'a.pem' }, { key = 'a.key' }, 7, { cert = '', key = 'a', pem ...
      |                                 ^^^^^^^^^
      |
      = help: write `{ cert = "api.pem", key = "api.key" }`, or `"acme"` for those of `[acme]`

    error: an item of `certificates` is a string or a table, not a number
     --> gateway.toml:6:83
      |
    6 | certificates = ['acme', 'acme', 'api.pem', { cert = 'a.pem' }, { key = 'a.key' }, 7, { cert = '', key = 'a', pem ...
      |                                                                                   ^

    error: the path is empty
     --> gateway.toml:6:95
      |
    6 | certificates = ['acme', 'acme', 'api.pem', { cert = 'a.pem' }, { key = 'a.key' }, 7, { cert = '', key = 'a', pem ...
      |                                                                                               ^^
      |
      = help: write the path of a PEM file

    error: unknown name `pem` in `listeners.certificates`
     --> gateway.toml:6:110
      |
    6 | ...em' }, { key = 'a.key' }, 7, { cert = '', key = 'a', pem = 'a' }]
      |                                                         ^^^
      |
      = help: possible here: `cert`, `key` and `ocsp`

    gateway.toml: 6 errors
    "#);
    insta::assert_snapshot!(render("[[listeners]]\naddress = '0.0.0.0:1'\ncertificates = 'api.pem'"), @r#"
    error: `certificates` is a list, not a string
     --> gateway.toml:3:16
      |
    3 | certificates = 'api.pem'
      |                ^^^^^^^^^
      |
      = help: write `certificates = [{ cert = "api.pem", key = "api.key" }]`

    gateway.toml: 1 error
    "#);
}

#[test]
fn settings_of_tls_without_certificates() {
    insta::assert_snapshot!(render("[[listeners]]\naddress = '0.0.0.0:1'\nclient_ca = 'ca.pem'\nmin_tls = '1.3'\nhsts = '365d'\n[[listeners]]\naddress = '0.0.0.0:2'\nclient_auth = 'optional'"), @r#"
    error: `client_ca` is for TLS, and this listener has no `certificates`
     --> gateway.toml:3:13
      |
    3 | client_ca = 'ca.pem'
      |             ^^^^^^^^
      |
      = help: add `certificates = [{ cert = "api.pem", key = "api.key" }]`, or leave it out

    error: `min_tls` is for TLS, and this listener has no `certificates`
     --> gateway.toml:4:11
      |
    4 | min_tls = '1.3'
      |           ^^^^^
      |
      = help: add `certificates = [{ cert = "api.pem", key = "api.key" }]`, or leave it out

    error: `hsts` is for TLS, and this listener has no `certificates`
     --> gateway.toml:5:8
      |
    5 | hsts = '365d'
      |        ^^^^^^
      |
      = help: add `certificates = [{ cert = "api.pem", key = "api.key" }]`, or leave it out

    error: `client_auth` needs `client_ca`
     --> gateway.toml:8:15
      |
    8 | client_auth = 'optional'
      |               ^^^^^^^^^^
      |
      = help: write `client_ca = "ca.pem"`, the authorities of client certificates

    gateway.toml: 4 errors
    "#);
    insta::assert_snapshot!(render(&format!("{HTTPS}client_auth = 'none'\nmin_tls = '1.1'\n")), @r#"
    error: `client_auth` is `required` or `optional`, not `none`
     --> gateway.toml:4:15
      |
    4 | client_auth = 'none'
      |               ^^^^^^

    error: `min_tls` is `1.2` or `1.3`, not `1.1`
     --> gateway.toml:5:11
      |
    5 | min_tls = '1.1'
      |           ^^^^^
      |
      = help: did you mean `min_tls = "1.2"`?

    gateway.toml: 2 errors
    "#);
}

#[test]
fn hsts_is_invalid() {
    insta::assert_snapshot!(render(&format!("{HTTPS}hsts = '365'\n[[listeners]]\naddress = '[::]:1'\ncertificates = [{{ cert = 'a', key = 'b' }}]\nhsts = {{ include_subdomains = true }}\n[[listeners]]\naddress = '[::]:2'\ncertificates = [{{ cert = 'a', key = 'b' }}]\nhsts = {{ max_age = '30d', preload = true }}\n[[listeners]]\naddress = '[::]:3'\ncertificates = [{{ cert = 'a', key = 'b' }}]\nhsts = '1500ms'")), @r#"
    error: `hsts` has no unit
     --> gateway.toml:4:8
      |
    4 | hsts = '365'
      |        ^^^^^
      |
      = help: for seconds, write `hsts = "365s"`

    error: `hsts` has no `max_age`
     --> gateway.toml:8:8
      |
    8 | hsts = { include_subdomains = true }
      |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: write `max_age = "365d"`

    error: `preload` needs a year and `include_subdomains`: browsers ignore it otherwise
      --> gateway.toml:12:8
       |
    12 | hsts = { max_age = '30d', preload = true }
       |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
       |
       = help: write `{ max_age = "365d", include_subdomains = true, preload = true }`

    error: `hsts` is in whole seconds
      --> gateway.toml:16:8
       |
    16 | hsts = '1500ms'
       |        ^^^^^^^^
       |
       = help: it looks like `365d`

    gateway.toml: 4 errors
    "#);
    assert_eq!(render(&format!("{HTTPS}hsts = '0s'\n")), "no errors\n");
}

#[test]
fn redirect_leads_to_a_listener_with_tls() {
    insta::assert_snapshot!(render("[[listeners]]\naddress = '0.0.0.0:80'\nredirect = 'https'"), @r#"
    error: `redirect` leads to HTTPS, which no listener serves
     --> gateway.toml:3:12
      |
    3 | redirect = 'https'
      |            ^^^^^^^
      |
      = help: add a listener with `certificates`, such as `address = "0.0.0.0:443"`

    gateway.toml: 1 error
    "#);
    insta::assert_snapshot!(render(&format!("{HTTPS}redirect = 'https'\n[[listeners]]\naddress = '0.0.0.0:80'\nredirect = 'http'")), @r#"
    error: `redirect` is for a listener without `certificates`
     --> gateway.toml:4:12
      |
    3 | certificates = [{ cert = 'a.pem', key = 'a.key' }]
      |                ----------------------------------- this listener serves HTTPS already
    4 | redirect = 'https'
      |            ^^^^^^^
      |
      = help: write `redirect` in another listener, such as one with `address = "0.0.0.0:80"`

    error: `redirect` is `https`, not `http`
     --> gateway.toml:7:12
      |
    7 | redirect = 'http'
      |            ^^^^^^
      |
      = help: did you mean `redirect = "https"`?

    gateway.toml: 2 errors
    "#);
    let both = format!("[[listeners]]\naddress = '0.0.0.0:80'\nredirect = 'https'\n{HTTPS}");
    assert_eq!(render(&both), "no errors\n");
}

#[test]
fn proxy_protocol_needs_trusted_proxies() {
    let file = "[[listeners]]\naddress = '0.0.0.0:80'\nproxy_protocol = true";
    insta::assert_snapshot!(render(file), @r#"
    error: `proxy_protocol` accepts only `server.trusted_proxies`, and there are none
     --> gateway.toml:3:18
      |
    3 | proxy_protocol = true
      |                  ^^^^
      |
      = help: write `trusted_proxies = ["10.0.0.0/8"]` in `[server]`, with the address of the proxy

    gateway.toml: 1 error
    "#);
    let trusting = format!("[server]\ntrusted_proxies = ['10.0.0.0/8']\n{file}");
    assert_eq!(render(&trusting), "no errors\n");
    assert_eq!(render(&file.replace("0.0.0.0:80", "unix:/run/a")), "no errors\n");
}

#[test]
fn listeners_in_single_brackets() {
    insta::assert_snapshot!(render("[listeners]\naddress = '0.0.0.0:80'"), @r"
    error: `listeners` is a list, not a table
     --> gateway.toml:1:1
      |
    1 | [listeners]
      | ^^^^^^^^^^^
      |
      = help: write `[[listeners]]`, in double brackets, for each listener

    gateway.toml: 1 error
    ");
    insta::assert_snapshot!(render("[listeners]\naddress = '0.0.0.0:80'\n[listeners]\naddress = '0.0.0.0:81'"), @r"
    error: the table `listeners` is written twice
     --> gateway.toml:3:2
      |
    1 | [listeners]
      |  --------- here first
    2 | address = '0.0.0.0:80'
    3 | [listeners]
      |  ^^^^^^^^^
      |
      = help: write `[[listeners]]`, in double brackets, for each listener

    gateway.toml: 1 error
    ");
    insta::assert_snapshot!(render("[listeners.https]\naddress = '0.0.0.0:80'"), @r"
    error: `listeners` is a list, not a table
     --> gateway.toml:1:2
      |
    1 | [listeners.https]
      |  ^^^^^^^^^
      |
      = help: write `[[listeners]]`, in double brackets, for each listener

    gateway.toml: 1 error
    ");
}

#[test]
fn limits_of_connections_are_out_of_range() {
    insta::assert_snapshot!(render("[server.limits]\nhead_timeout = '11m'\nhandshake_timeout = 5\n[server.http2]\nmax_concurrent_streams = 0\nmax_header_list_bytes = 10\nmax_pending_resets = 1000000\nmax_connection_age = 3600\nidle_timeout = '0s'"), @r#"
    error: `head_timeout` is too long
     --> gateway.toml:2:16
      |
    2 | head_timeout = '11m'
      |                ^^^^^
      |
      = help: the longest is `10m`

    error: `handshake_timeout` is a string, not a number
     --> gateway.toml:3:21
      |
    3 | handshake_timeout = 5
      |                     ^
      |
      = help: write `handshake_timeout = "5s"`

    error: `max_concurrent_streams` is at least 1 and at most 10000
     --> gateway.toml:5:26
      |
    5 | max_concurrent_streams = 0
      |                          ^

    error: `max_header_list_bytes` is at least 1024 and at most 1048576
     --> gateway.toml:6:25
      |
    6 | max_header_list_bytes = 10
      |                         ^^

    error: `max_pending_resets` is at least 1 and at most 10000
     --> gateway.toml:7:22
      |
    7 | max_pending_resets = 1000000
      |                      ^^^^^^^

    error: `max_connection_age` is a string, not a number
     --> gateway.toml:8:22
      |
    8 | max_connection_age = 3600
      |                      ^^^^
      |
      = help: write `max_connection_age = "3600s"`

    error: `idle_timeout` cannot be 0
     --> gateway.toml:9:16
      |
    9 | idle_timeout = '0s'
      |                ^^^^
      |
      = help: the shortest is `1ms`

    gateway.toml: 7 errors
    "#);
}

#[test]
fn servers_with_and_without_tls() {
    insta::assert_snapshot!(render_whole("[routes.all]\n[upstreams.api]\nservers = ['https://a', 'b:80', 'https://c:8443']"), @r"
    error: this server has no TLS, and the first one has
     --> gateway.toml:3:25
      |
    3 | servers = ['https://a', 'b:80', 'https://c:8443']
      |            -----------  ^^^^^^
      |            |
      |            with TLS
      |
      = help: write `https://` before all servers of an upstream, or before none

    gateway.toml: 1 error
    ");
    insta::assert_snapshot!(render_whole("[routes.all]\n[upstreams.api]\nservers = ['a:80', 'https://b']"), @r"
    error: this server has TLS, and the first one has none
     --> gateway.toml:3:20
      |
    3 | servers = ['a:80', 'https://b']
      |            ------  ^^^^^^^^^^^
      |            |
      |            without TLS
      |
      = help: write `https://` before all servers of an upstream, or before none

    gateway.toml: 1 error
    ");
}

#[test]
fn protocol_and_scheme_of_servers_disagree() {
    insta::assert_snapshot!(render_whole("[routes.all]\n[upstreams.api]\nservers = ['a:80']\nprotocol = 'h2'\ntls = { ca = 'ca.pem' }"), @r"
    error: `h2` is HTTP/2 over TLS, and the servers have none
     --> gateway.toml:4:12
      |
    4 | protocol = 'h2'
      |            ^^^^
      |
      = help: write `h2c`, or `https://` before the servers

    error: `tls` is for servers with `https://`
     --> gateway.toml:5:7
      |
    5 | tls = { ca = 'ca.pem' }
      |       ^^^^^^^^^^^^^^^^^
      |
      = help: write `https://` before the servers, or leave `tls` out

    gateway.toml: 2 errors
    ");
    insta::assert_snapshot!(render_whole("[routes.all]\n[upstreams.api]\nservers = ['https://a']\nprotocol = 'h2c'\nproxy_protocol = 'v3'\ntls = { cert = 'a.pem', server_name = '' }"), @r#"
    error: `h2c` is HTTP/2 without TLS, and the servers have it
     --> gateway.toml:4:12
      |
    4 | protocol = 'h2c'
      |            ^^^^^
      |
      = help: write `h2`

    error: `proxy_protocol` is `v1` or `v2`, not `v3`
     --> gateway.toml:5:18
      |
    5 | proxy_protocol = 'v3'
      |                  ^^^^
      |
      = help: did you mean `proxy_protocol = "v1"`?

    error: `cert` needs its `key`
     --> gateway.toml:6:16
      |
    6 | tls = { cert = 'a.pem', server_name = '' }
      |                ^^^^^^^
      |
      = help: both are PEM files

    error: `server_name` is empty
     --> gateway.toml:6:39
      |
    6 | tls = { cert = 'a.pem', server_name = '' }
      |                                       ^^
      |
      = help: leave it out for the host of the server: certificates are always verified

    gateway.toml: 4 errors
    "#);
}

#[test]
fn settings_of_upstreams_with_tls_are_invalid() {
    insta::assert_snapshot!(render_whole("[routes.all]\nwebsocket_idle_timeout = '25h'\n[upstreams.api]\nservers = ['https://a']\nprotocol = 'http2'\ntls = { key = 'a.key', server_name = 'a:443', verify = false }"), @r#"
    error: `websocket_idle_timeout` is too long
     --> gateway.toml:2:26
      |
    2 | websocket_idle_timeout = '25h'
      |                          ^^^^^
      |
      = help: the longest is `1d`

    error: `protocol` is `auto`, `http1`, `h2` or `h2c`, not `http2`
     --> gateway.toml:5:12
      |
    5 | protocol = 'http2'
      |            ^^^^^^^
      |
      = help: write `h2` for servers with `https://`, and `h2c` for others

    error: `key` needs its `cert`
     --> gateway.toml:6:15
      |
    6 | tls = { key = 'a.key', server_name = 'a:443', verify = false }
      |               ^^^^^^^
      |
      = help: both are PEM files

    error: `a:443` is not the name of a server
     --> gateway.toml:6:38
      |
    6 | tls = { key = 'a.key', server_name = 'a:443', verify = false }
      |                                      ^^^^^^^
      |
      = help: it is a name such as `api.internal`, without scheme and port

    error: unknown name `verify` in `upstreams.api.tls`
     --> gateway.toml:6:47
      |
    6 | tls = { key = 'a.key', server_name = 'a:443', verify = false }
      |                                               ^^^^^^
      |
      = help: certificates of servers are always verified: for a private authority, write `tls = { ca = "ca.pem" }`, and for another name `server_name` in it

    gateway.toml: 5 errors
    "#);
}

#[test]
fn rule_per_certificate_without_client_certificates_is_a_warning() {
    let rule = "[rules.r]\nper = ['ip', 'cert']\nrate = '1/s'\n";
    insta::assert_snapshot!(render(rule), @r#"
    warning: no listener asks for the client certificates that `r` counts
     --> gateway.toml:2:14
      |
    2 | per = ['ip', 'cert']
      |              ^^^^^^
      |
      = help: write `client_ca = "ca.pem"` in a listener with `certificates`: the rule does not apply to clients without a certificate

    gateway.toml: 1 warning
    "#);
    assert_eq!(render(&format!("{HTTPS}client_ca = 'ca.pem'\n{rule}")), "no errors\n");
    assert_eq!(render(&format!("{rule}enabled = false\n")), "no errors\n");
}

/// The message and the help of each error, a line each.
pub(super) fn brief(file: &str) -> String {
    let shown = render_whole(file);
    let lines = shown.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("error: ").or_else(|| line.strip_prefix("= help: ").map(|_| line))
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn values_as_other_gateways_write_them() {
    insta::assert_snapshot!(brief(&format!("{HTTPS}min_tls = 1.2\nhttp2 = 'on'\nhsts = 31536000\nclient_auth = 'optional_no_ca'\nclient_ca = 'ca.pem'\n[[listeners]]\naddress = '0.0.0.0:80'\nredirect = true\n[[listeners]]\naddress = '0.0.0.0:8443'\ncertificates = ['acme']\nmin_tls = 'TLSv1.3'\n[acme]\ndomains = ['a.example']\nchallenge = 'dns-01'\n[upstreams.a]\nservers = ['https://h']\nprotocol = 'http2'\nproxy_protocol = true\n[upstreams.b]\nservers = ['grpc://h:1', 'grpcs://h']\n[routes.all]\nupstream = 'a'")), @r#"
    `min_tls` is a string, not a fraction
    = help: write `min_tls = "1.2"`
    `http2` is `true` or `false`, not a string
    = help: write `http2 = true`
    `hsts` is a string or a table, not a number
    = help: write `hsts = "365d"`
    `client_auth` is `required` or `optional`, not `optional_no_ca`
    = help: did you mean `client_auth = "optional"`?
    `redirect` is a string, not a boolean
    = help: write `redirect = "https"`
    `min_tls` is `1.2` or `1.3`, not `TLSv1.3`
    = help: did you mean `min_tls = "1.3"`?
    `challenge` is `http-01` or `tls-alpn-01`, not `dns-01`
    = help: the gateway does not have dns-01: for a wildcard, use certificate files
    `protocol` is `auto`, `http1`, `h2` or `h2c`, not `http2`
    = help: write `h2` for servers with `https://`, and `h2c` for others
    `proxy_protocol` is a string, not a boolean
    = help: possible here: `"v1"` and `"v2"`
    the scheme of a server is `http://` or `https://`, or left out
    = help: write `h:1`, and `protocol = "h2c"` below
    the scheme of a server is `http://` or `https://`, or left out
    = help: write `https://h`, and `protocol = "h2"` below
    "#);
}

#[test]
fn names_as_other_gateways_write_them() {
    insta::assert_snapshot!(brief(&format!("[http2]\n{HTTPS}ssl_stapling = true\nserver_name = 'a'\nhttp3 = true\n[acme]\ndomains = ['a.example']\nagree_tos = true\neab = {{ kid = 'a', hmac = 'b' }}\n[upstreams.a]\nservers = ['https://h']\ntls = {{ ca_file = 'a', sni = 'b', verify = false, client_cert = 'c' }}\n[routes.all]")), @r#"
    unknown name `http2`
    = help: the limits of HTTP/2 are a table `[server.http2]`; a listener has `http2 = true`
    unknown name `ssl_stapling` in `listeners`
    = help: an OCSP response is a file of a certificate: `certificates = [{ cert = "api.pem", key = "api.key", ocsp = "api.ocsp" }]`
    unknown name `server_name` in `listeners`
    = help: the names of a listener are those of its certificates; for some hosts only, routes have `host = "api.example.com"`
    unknown name `http3` in `listeners`
    = help: the gateway has no HTTP/3; HTTP/2 is on with `certificates`
    unknown name `agree_tos` in `acme`
    = help: leave it out: with `[acme]`, you agree to the terms of service of the authority
    unknown name `kid` in `acme.eab`
    = help: write `key_id`
    unknown name `hmac` in `acme.eab`
    = help: write `hmac_key`
    unknown name `ca_file` in `upstreams.a.tls`
    = help: write `ca = "a"`
    unknown name `sni` in `upstreams.a.tls`
    = help: write `server_name = "b"`
    unknown name `verify` in `upstreams.a.tls`
    = help: certificates of servers are always verified: for a private authority, write `tls = { ca = "ca.pem" }`, and for another name `server_name` in it
    unknown name `client_cert` in `upstreams.a.tls`
    = help: write `cert = "client.pem"` and `key = "client.key"`
    "#);
}

#[test]
fn permissions_of_a_socket_are_three_octal_digits() {
    let is_refused = |mode: &str| {
        let file = format!("[[listeners]]\naddress = 'unix:/run/a.sock'\nmode = '{mode}'");
        render(&file).contains("is not the permissions of a file")
    };
    for mode in ["660", "0660", "000", "0777"] {
        assert!(!is_refused(mode), "{mode}");
    }
    for mode in ["", "0", "6", "60", "00660", "1777", "0888", "+60", "rw-"] {
        assert!(is_refused(mode), "{mode}");
    }
}
