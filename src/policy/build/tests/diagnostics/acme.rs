//! `[acme]`.

use super::super::render;

const HTTPS: &str = "[[listeners]]\naddress = '0.0.0.0:443'\ncertificates = ['acme']\n\
    [[listeners]]\naddress = '0.0.0.0:80'\nredirect = 'https'\n";

/// The diagnostics of a file with this `[acme]`, whose certificates a listener uses.
fn render_acme(text: &str) -> String {
    render(&format!("{HTTPS}[acme]\n{text}"))
}

#[test]
fn listener_uses_acme_without_its_table() {
    insta::assert_snapshot!(render(HTTPS), @r#"
    error: there is no `[acme]`
     --> gateway.toml:3:17
      |
    3 | certificates = ['acme']
      |                 ^^^^^^
      |
      = help: add `[acme]` with `domains = ["api.example.com"]`

    gateway.toml: 1 error
    "#);
    assert_eq!(render_acme("domains = ['api.example.com']"), "no errors\n");
}

#[test]
fn domains_are_names_without_wildcards() {
    insta::assert_snapshot!(render_acme("email = 'ops@example.com'"), @r#"
    error: `[acme]` has no `domains`
     --> gateway.toml:7:1
      |
    7 | [acme]
      | ^^^^^^
      |
      = help: write `domains = ["api.example.com"]`

    gateway.toml: 1 error
    "#);
}

#[test]
fn domain_is_not_a_name() {
    insta::assert_snapshot!(render_acme("domains = ['*.example.com', '192.0.2.1', 'bücher.example', 'api.example.com', 'API.example.com', 'https://a', 'a:443', 'a_b.example', '', 'a.']"), @r"
    error: `*.example.com` needs the challenge dns-01, which the gateway does not have
     --> gateway.toml:8:12
      |
    8 | domains = ['*.example.com', '192.0.2.1', 'bücher.example', 'api.example.com', 'API.example.com', 'https://a', 'a:...
      |            ^^^^^^^^^^^^^^^
      |
      = help: list each name, or use certificate files for the wildcard

    error: `192.0.2.1` is an address, and certificates are for names
     --> gateway.toml:8:29
      |
    8 | domains = ['*.example.com', '192.0.2.1', 'bücher.example', 'api.example.com', 'API.example.com', 'https://a', 'a:...
      |                             ^^^^^^^^^^^
      |
      = help: such as `api.example.com`

    error: `bücher.example` is not a name in ASCII
     --> gateway.toml:8:42
      |
    8 | domains = ['*.example.com', '192.0.2.1', 'bücher.example', 'api.example.com', 'API.example.com', 'https://a', 'a:...
      |                                          ^^^^^^^^^^^^^^^^
      |
      = help: write it as it is in DNS, in ASCII: such as `xn--bcher-kva.example`

    error: `API.example.com` is written twice
     --> gateway.toml:8:79
      |
    8 | domains = ['*.example.com', '192.0.2.1', 'bücher.example', 'api.example.com', 'API.example.com', 'https://a', 'a:...
      |                                                            -----------------  ^^^^^^^^^^^^^^^^^
      |                                                            |
      |                                                            here first

    error: `https://a` is not the name of a domain
     --> gateway.toml:8:98
      |
    8 | domains = ['*.example.com', '192.0.2.1', 'bücher.example', 'api.example.com', 'API.example.com', 'https://a', 'a:...
      |                                                                                                  ^^^^^^^^^^^
      |
      = help: write only the name, such as `api.example.com`, without scheme, port and path

    error: `a:443` is not the name of a domain
     --> gateway.toml:8:111
      |
    8 | ...'api.example.com', 'API.example.com', 'https://a', 'a:443', 'a_b.example', '', 'a.']
      |                                                       ^^^^^^^
      |
      = help: write only the name, such as `api.example.com`, without scheme, port and path

    error: `a_b.example` is not the name of a domain
     --> gateway.toml:8:120
      |
    8 | ....com', 'API.example.com', 'https://a', 'a:443', 'a_b.example', '', 'a.']
      |                                                    ^^^^^^^^^^^^^
      |
      = help: write only the name, such as `api.example.com`, without scheme, port and path

    error: `` is not the name of a domain
     --> gateway.toml:8:135
      |
    8 | ...PI.example.com', 'https://a', 'a:443', 'a_b.example', '', 'a.']
      |                                                          ^^
      |
      = help: write only the name, such as `api.example.com`, without scheme, port and path

    error: `a.` is not the name of a domain
     --> gateway.toml:8:139
      |
    8 | ...ample.com', 'https://a', 'a:443', 'a_b.example', '', 'a.']
      |                                                         ^^^^
      |
      = help: write only the name, such as `api.example.com`, without scheme, port and path

    gateway.toml: 9 errors
    ");
}

#[test]
fn directory_email_and_challenge_are_invalid() {
    insta::assert_snapshot!(render_acme("domains = ['a.example']\ndirectory = 'http://acme.example/d'\nemail = 'mailto:ops@example.com'\nchallenge = 'dns-01'\nurl = 'x'"), @r#"
    error: `directory` is not a URL with `https://`
     --> gateway.toml:9:13
      |
    9 | directory = 'http://acme.example/d'
      |             ^^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: it looks like `https://acme-v02.api.letsencrypt.org/directory`

    error: `email` is not an address
      --> gateway.toml:10:9
       |
    10 | email = 'mailto:ops@example.com'
       |         ^^^^^^^^^^^^^^^^^^^^^^^^
       |
       = help: write one address, such as `ops@example.com`, without `mailto:`

    error: `challenge` is `http-01` or `tls-alpn-01`, not `dns-01`
      --> gateway.toml:11:13
       |
    11 | challenge = 'dns-01'
       |             ^^^^^^^^
       |
       = help: the gateway does not have dns-01: for a wildcard, use certificate files

    error: unknown name `url` in `acme`
      --> gateway.toml:12:1
       |
    12 | url = ***
       | ^^^
       |
       = help: write `directory = "https://acme-v02.api.letsencrypt.org/directory"`: for tests, Let's Encrypt has `https://acme-staging-v02.api.letsencrypt.org/directory`

    gateway.toml: 4 errors
    "#);
    for wrong in
        ["", "acme.example", "https://", "https://u:p@h/d", "https://h/d#x", "https://h:0/"]
    {
        let shown = render_acme(&format!("domains = ['a.example']\ndirectory = '{wrong}'"));
        assert!(shown.contains("`directory` is not a URL"), "{wrong}: {shown}");
    }
}

#[test]
fn storage_in_redis_needs_redis_and_a_key() {
    insta::assert_snapshot!(render_acme("domains = ['a.example']\nstorage = 'redis'"), @r#"
    error: `storage = "redis"` needs `[redis]`
     --> gateway.toml:9:11
      |
    9 | storage = 'redis'
      |           ^^^^^^^
      |
      = help: add `[redis]` with its `url`, or name a folder

    error: `storage = "redis"` needs `storage_key`, which encrypts private keys
     --> gateway.toml:9:11
      |
    9 | storage = 'redis'
      |           ^^^^^^^
      |
      = help: write `storage_key = "${ACME_STORAGE_KEY}"`, the same for all gateways; `openssl rand -hex 32` makes a good one

    gateway.toml: 2 errors
    "#);
    insta::assert_snapshot!(render_acme("domains = ['a.example']\nstorage = 'redis'\nstorage_key = 'hunter2'\n[redis]\nurl = 'redis://h'"), @r"
    error: `storage_key` has 32 to 1024 visible ASCII characters
      --> gateway.toml:10:15
       |
    10 | storage_key = *********
       |               ^^^^^^^^^
       |
       = help: `openssl rand -hex 32` makes a good one

    gateway.toml: 1 error
    ");
    insta::assert_snapshot!(render_acme("domains = ['a.example']\nstorage_key = '0123456789abcdef0123456789abcdef'"), @r#"
    error: `storage_key` encrypts what is in Redis, and `storage` is a folder
     --> gateway.toml:9:15
      |
    9 | storage_key = **********************************
      |               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: write `storage = "redis"`, or leave it out: files have mode 0600

    gateway.toml: 1 error
    "#);
    insta::assert_snapshot!(render_acme("domains = ['a.example']\nstorage = ''"), @r#"
    error: `storage` is not a folder
     --> gateway.toml:9:11
      |
    9 | storage = ''
      |           ^^
      |
      = help: it is the path of a folder, such as `"acme"`, or `"redis"`

    gateway.toml: 1 error
    "#);
}

#[test]
fn external_account_is_incomplete() {
    insta::assert_snapshot!(render_acme("domains = ['a.example']\neab = { key_id = 'kid' }"), @r"
    error: `eab` has no `hmac_key`
     --> gateway.toml:9:7
      |
    9 | eab = { key_id = 'kid' }
      |       ^^^^^^^^^^^^^^^^^^
      |
      = help: the authority shows both, `key_id` and `hmac_key`, where the account was made

    gateway.toml: 1 error
    ");
    insta::assert_snapshot!(render_acme("domains = ['a.example']\neab = { hmac_key = 'c2VjcmV0' }"), @r"
    error: `eab` has no `key_id`
     --> gateway.toml:9:7
      |
    9 | eab = { hmac_key = ********** }
      |       ^^^^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: the authority shows both, `key_id` and `hmac_key`, where the account was made

    gateway.toml: 1 error
    ");
    insta::assert_snapshot!(render_acme("domains = ['a.example']\neab = { key_id = '', hmac_key = 'c2VjcmV0' }"), @r"
    error: `key_id` is empty
     --> gateway.toml:9:18
      |
    9 | eab = { key_id = '', hmac_key = ********** }
      |                  ^^
      |
      = help: the authority shows it where the account was made

    gateway.toml: 1 error
    ");
    insta::assert_snapshot!(render_acme("domains = ['a.example']\neab = { key_id = 'kid', hmac_key = 'secret!' }"), @r"
    error: `hmac_key` is not base64url
     --> gateway.toml:9:36
      |
    9 | eab = { key_id = 'kid', hmac_key = ********* }
      |                                    ^^^^^^^^^
      |
      = help: copy it from the authority: letters, digits, `-` and `_`

    gateway.toml: 1 error
    ");
}

#[test]
fn acme_that_cannot_obtain_a_certificate_is_a_warning() {
    let acme = "[acme]\ndomains = ['a.example']\n";
    insta::assert_snapshot!(render(acme), @r#"
    warning: no listener uses the certificates of `[acme]`
     --> gateway.toml:1:1
      |
    1 | [acme]
      | ^^^^^^
      |
      = help: write `certificates = ["acme"]` in a listener, or leave `[acme]` out

    gateway.toml: 1 warning
    "#);
    let https = HTTPS.replace("0.0.0.0:443", "0.0.0.0:8443").replace("0.0.0.0:80", "0.0.0.0:8080");
    insta::assert_snapshot!(render(&format!("{https}{acme}")), @r#"
    warning: the authority connects to port 80, where no listener without TLS is
     --> gateway.toml:7:1
      |
    7 | [acme]
      | ^^^^^^
      |
      = help: add a listener with `address = "0.0.0.0:80"` and `redirect = "https"`; or let what has that port forward `/.well-known/acme-challenge/` to the gateway

    gateway.toml: 1 warning
    "#);
    let tls_alpn = format!("{https}{acme}challenge = 'tls-alpn-01'\n");
    insta::assert_snapshot!(render(&tls_alpn), @r#"
    warning: the authority connects to port 443, where no listener with `"acme"` is
     --> gateway.toml:9:13
      |
    9 | challenge = 'tls-alpn-01'
      |             ^^^^^^^^^^^^^
      |
      = help: add a listener with `address = "0.0.0.0:443"`; or let what has that port forward connections to the gateway without ending TLS

    gateway.toml: 1 warning
    "#);
    assert_eq!(render(&tls_alpn.replace("0.0.0.0:8443", "[::]:443")), "no errors\n");
}
