//! Addresses and lengths of time.

use super::super::render;

#[test]
fn listeners_are_not_addresses() {
    insta::assert_snapshot!(render("[server]\nlisten = ['localhost:8080', ':80', '80', '::1', 'x']"), @r#"
    error: `localhost:8080` is not an address and a port
     --> gateway.toml:2:11
      |
    2 | listen = ['localhost:8080', ':80', '80', '::1', 'x']
      |           ^^^^^^^^^^^^^^^^
      |
      = help: write `127.0.0.1:8080`

    error: `:80` is not an address and a port
     --> gateway.toml:2:29
      |
    2 | listen = ['localhost:8080', ':80', '80', '::1', 'x']
      |                             ^^^^^
      |
      = help: for every address, write `0.0.0.0:80`

    error: `80` is not an address and a port
     --> gateway.toml:2:36
      |
    2 | listen = ['localhost:8080', ':80', '80', '::1', 'x']
      |                                    ^^^^
      |
      = help: for every address, write `0.0.0.0:80`

    error: `::1` is not an address and a port
     --> gateway.toml:2:42
      |
    2 | listen = ['localhost:8080', ':80', '80', '::1', 'x']
      |                                          ^^^^^
      |
      = help: write `[::1]:8080`

    error: `x` is not an address and a port
     --> gateway.toml:2:49
      |
    2 | listen = ['localhost:8080', ':80', '80', '::1', 'x']
      |                                                 ^^^
      |
      = help: it looks like `listen = "127.0.0.1:8080"` or `"[::1]:8080"`

    gateway.toml: 5 errors
    "#);
}

#[test]
fn reachable_admin_port_needs_a_token() {
    insta::assert_snapshot!(render("[server]\nadmin = '0.0.0.0:9090'"), @r#"
    error: `admin` can be reached from other machines without a token
     --> gateway.toml:2:9
      |
    2 | admin = '0.0.0.0:9090'
      |         ^^^^^^^^^^^^^^
      |
      = help: write `token = "${TOLLGATE_ADMIN_TOKEN}"` under `[admin]`, or take an address such as `127.0.0.1:9090`

    gateway.toml: 1 error
    "#);
    assert_eq!(render("[server]\nadmin = '[::1]:9090'"), "no errors\n");
    assert_eq!(render("[server]\nadmin = '127.8.0.1:9090'"), "no errors\n");
    let with = |token| render(&format!("[server]\nadmin = '[::]:9'\n[admin]\ntoken = '{token}'"));
    assert_eq!(with("0123456789abcdef"), "no errors\n");
    insta::assert_snapshot!(with("0123456789abcde"), @r"
    error: `token` is shorter than 16 characters: it can be guessed
     --> gateway.toml:4:9
      |
    4 | token = *****************
      |         ^^^^^^^^^^^^^^^^^
      |
      = help: `openssl rand -hex 32` makes a good one

    gateway.toml: 1 error
    ");
    let long = "x".repeat(1025);
    for wrong in ["0123456789abcde f", "0123456789abcdefü", &long] {
        assert!(with(wrong).starts_with("error: `token` "), "{wrong}");
    }
    assert!(with("${NOT_SET_ANYWHERE}").contains("`NOT_SET_ANYWHERE` is not set"));
}

#[test]
fn listeners_that_are_written_twice() {
    insta::assert_snapshot!(render("[server]\nlisten = ['0.0.0.0:80', '0.0.0.0:80', '127.0.0.1:0', '127.0.0.1:0']\nadmin = '0.0.0.0:80'"), @r#"
    error: `0.0.0.0:80` is written twice
     --> gateway.toml:2:25
      |
    2 | listen = ['0.0.0.0:80', '0.0.0.0:80', '127.0.0.1:0', '127.0.0.1:0']
      |           ------------  ^^^^^^^^^^^^
      |           |
      |           here first

    error: `listen` and `admin` are both 0.0.0.0:80
     --> gateway.toml:3:9
      |
    2 | listen = ['0.0.0.0:80', '0.0.0.0:80', '127.0.0.1:0', '127.0.0.1:0']
      |           ------------ clients connect here
    3 | admin = '0.0.0.0:80'
      |         ^^^^^^^^^^^^
      |
      = help: give `admin` another port

    error: `admin` can be reached from other machines without a token
     --> gateway.toml:3:9
      |
    3 | admin = '0.0.0.0:80'
      |         ^^^^^^^^^^^^
      |
      = help: write `token = "${TOLLGATE_ADMIN_TOKEN}"` under `[admin]`, or take an address such as `127.0.0.1:9090`

    gateway.toml: 3 errors
    "#);
}

#[test]
fn listen_and_admin_are_both_127_0_0_1() {
    insta::assert_snapshot!(render("[server]\nlisten = ['127.0.0.1:9090']"), @r"
    error: `listen` and `admin` are both 127.0.0.1:9090
     --> gateway.toml:2:11
      |
    2 | listen = ['127.0.0.1:9090']
      |           ^^^^^^^^^^^^^^^^
      |
      = help: one of them is the default; give `admin` another port

    gateway.toml: 1 error
    ");
}

#[test]
fn listeners_of_all_addresses_include_the_port_of_others() {
    insta::assert_snapshot!(render("[server]\nlisten = ['0.0.0.0:9090']"), @r"
    error: `listen` and `admin` have the same port: 0.0.0.0:9090 and 127.0.0.1:9090
     --> gateway.toml:2:11
      |
    2 | listen = ['0.0.0.0:9090']
      |           ^^^^^^^^^^^^^^
      |
      = help: one of them is the default; give `admin` another port

    gateway.toml: 1 error
    ");
    let table = |address: &str| render(&format!("[[listeners]]\naddress = '{address}'\n"));
    for address in ["0.0.0.0:8081", "127.0.0.2:9090", "[::]:8081"] {
        assert_eq!(table(address), "no errors\n");
    }
    let shown = table("0.0.0.0:9090");
    assert!(
        shown.contains("`0.0.0.0:9090` has the port of the default of `server.admin`"),
        "{shown}"
    );
    let both =
        render("[server]\nlisten = ['127.0.0.1:80']\n[[listeners]]\naddress = '0.0.0.0:80'\n");
    assert!(both.contains("`0.0.0.0:80` and `127.0.0.1:80` have the same port"), "{both}");
    for (first, second) in [("0.0.0.0", "127.0.0.1"), ("127.0.0.1", "0.0.0.0"), ("[::]", "[::1]")] {
        let shown = render(&format!("[server]\nlisten = ['{first}:80', '{second}:80']\n"));
        let message = format!("error: `{second}:80` and `{first}:80` have the same port");
        assert!(shown.contains(&message), "{shown}");
    }
    // The system decides whether an address of IPv6 includes those of IPv4.
    assert_eq!(render("[server]\nlisten = ['[::]:9090', '0.0.0.0:80', '[::]:80']"), "no errors\n");
}

#[test]
fn a_network_has_bits_set_beyond_its_prefix() {
    insta::assert_snapshot!(render("[server]\ntrusted_proxies = ['10.0.0.1/8', 'x']"), @r"
    error: `10.0.0.1/8` has bits set beyond its prefix
     --> gateway.toml:2:20
      |
    2 | trusted_proxies = ['10.0.0.1/8', 'x']
      |                    ^^^^^^^^^^^^
      |
      = help: the network is `10.0.0.0/8`

    error: `x` is neither an address nor a network
     --> gateway.toml:2:34
      |
    2 | trusted_proxies = ['10.0.0.1/8', 'x']
      |                                  ^^^
      |
      = help: it looks like `10.0.0.0/8`, `192.0.2.7` or `2001:db8::/32`

    gateway.toml: 2 errors
    ");
}

#[test]
fn ipv4_network_inside_ipv6_is_rejected() {
    insta::assert_snapshot!(render("[server]\ntrusted_proxies = ['::ffff:10.0.0.0/104', '64:ff9b::192.0.2.7']"), @r"
    error: `::ffff:10.0.0.0/104` matches no client: IPv4 inside IPv6 is read as IPv4
     --> gateway.toml:2:20
      |
    2 | trusted_proxies = ['::ffff:10.0.0.0/104', '64:ff9b::192.0.2.7']
      |                    ^^^^^^^^^^^^^^^^^^^^^
      |
      = help: write `10.0.0.0/8`

    error: `64:ff9b::192.0.2.7` matches no client: IPv4 inside IPv6 is read as IPv4
     --> gateway.toml:2:43
      |
    2 | trusted_proxies = ['::ffff:10.0.0.0/104', '64:ff9b::192.0.2.7']
      |                                           ^^^^^^^^^^^^^^^^^^^^
      |
      = help: write `192.0.2.7`

    gateway.toml: 2 errors
    ");
}

#[test]
fn read_timeout_cannot_be_0() {
    insta::assert_snapshot!(render("[server]\nread_timeout = '0s'\nwrite_timeout = '5'\ndrain_timeout = '5 sec'\nkeepalive_timeout = '9d'"), @r#"
    error: `read_timeout` cannot be 0
     --> gateway.toml:2:16
      |
    2 | read_timeout = '0s'
      |                ^^^^
      |
      = help: the shortest is `1ms`

    error: `write_timeout` has no unit
     --> gateway.toml:3:17
      |
    3 | write_timeout = '5'
      |                 ^^^
      |
      = help: for seconds, write `write_timeout = "5s"`

    error: `drain_timeout` has an unknown unit
     --> gateway.toml:4:17
      |
    4 | drain_timeout = '5 sec'
      |                 ^^^^^^^
      |
      = help: write `drain_timeout = "5s"`

    error: `keepalive_timeout` is too long
     --> gateway.toml:5:21
      |
    5 | keepalive_timeout = '9d'
      |                     ^^^^
      |
      = help: the longest is `1d`

    gateway.toml: 4 errors
    "#);
}

#[test]
fn instances_are_out_of_range() {
    insta::assert_snapshot!(render("[server]\ninstances = 0"), @r"
    error: `instances` is at least 1 and at most 10000
     --> gateway.toml:2:13
      |
    2 | instances = 0
      |             ^

    gateway.toml: 1 error
    ");
    insta::assert_snapshot!(render("[server]\ninstances = '3'\n[headers]\nmode = 'local'"), @r"
    error: `instances` is a whole number, not a string
     --> gateway.toml:2:13
      |
    2 | instances = '3'
      |             ^^^
      |
      = help: write `instances = 3`

    error: `mode` is `true` or `false`, not a string
     --> gateway.toml:4:8
      |
    4 | mode = 'local'
      |        ^^^^^^^

    gateway.toml: 2 errors
    ");
}

#[test]
fn listen_is_written_as_in_other_gateways() {
    let each = ["':8080'", "8080", "['http://0.0.0.0:8080', 8080]", "'example.com:80'"];
    let each = each.map(|value| render(&format!("[server]\nlisten = {value}\n")));
    insta::assert_snapshot!(each.join("\n"), @r#"
    error: `listen` is a list, not a string
     --> gateway.toml:2:10
      |
    2 | listen = ':8080'
      |          ^^^^^^^
      |
      = help: write `listen = ["0.0.0.0:8080"]`

    gateway.toml: 1 error

    error: `listen` is a list, not a number
     --> gateway.toml:2:10
      |
    2 | listen = 8080
      |          ^^^^
      |
      = help: write `listen = ["0.0.0.0:8080"]`

    gateway.toml: 1 error

    error: `http://0.0.0.0:8080` is not an address and a port
     --> gateway.toml:2:11
      |
    2 | listen = ['http://0.0.0.0:8080', 8080]
      |           ^^^^^^^^^^^^^^^^^^^^^
      |
      = help: for every address, write `0.0.0.0:8080`

    error: an item of `listen` is a string, not a number
     --> gateway.toml:2:34
      |
    2 | listen = ['http://0.0.0.0:8080', 8080]
      |                                  ^^^^
      |
      = help: write `"0.0.0.0:8080"`

    gateway.toml: 2 errors

    error: `listen` is a list, not a string
     --> gateway.toml:2:10
      |
    2 | listen = 'example.com:80'
      |          ^^^^^^^^^^^^^^^^

    gateway.toml: 1 error
    "#);
    insta::assert_snapshot!(render("[server]\nadmin = 9191\n"), @r#"
    error: `admin` is a string, not a number
     --> gateway.toml:2:9
      |
    2 | admin = 9191
      |         ^^^^
      |
      = help: write `admin = "127.0.0.1:9191"`

    gateway.toml: 1 error
    "#);
}
