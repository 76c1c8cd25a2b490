//! Files of each format, with what is made of them.

mod envoy;
mod kong;

use std::fmt::Write as _;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::load::{LoadError, Source};

/// The result as text: the file, the list, and what `tollgate check` says.
fn imported(format: Format, name: &str, text: &str) -> String {
    let import = import(format, &[File { name, text }], &Includes::new()).unwrap();
    let mut shown = import.toml.clone();
    shown += "\n=== list ===\n";
    for note in &import.notes {
        let _ = writeln!(shown, "{}: {note}", note.place.shown(name));
    }
    shown += "\n=== check ===\n";
    shown += &checked(&import.toml);
    shown
}

/// What `tollgate check` says, without a look at the files that a configuration names.
fn checked(toml: &str) -> String {
    let source = Source::unresolved(Path::new("gateway.toml"), toml.into()).unwrap();
    match source.check() {
        Ok((_, report)) | Err(LoadError::Diagnostics(report)) => report.render(false),
        Err(error) => error.to_string(),
    }
}

macro_rules! snapshot {
    ($($test:ident: $format:ident $file:literal,)*) => {$(
        #[test]
        fn $test() {
            let text = include_str!(concat!("files/", $file));
            let shown = imported(Format::$format, $file, text);
            assert!(!shown.contains("error:"), "{shown}");
            assert_eq!(Format::of(File { name: "x", text }), Some(Format::$format));
            insta::with_settings!({ snapshot_path => "snapshots", prepend_module_to_snapshot => false }, {
                insta::assert_snapshot!($file, shown);
            });
        }
    )*};
}

snapshot! {
    nginx_proxy_with_limits_becomes_routes_and_rules: Nginx "nginx-api.conf",
    nginx_servers_with_tls_become_listeners: Nginx "nginx-tls.conf",
    nginx_directives_without_equal_are_listed: Nginx "nginx-rest.conf",
    traefik_routers_become_routes: Traefik "traefik.yml",
    kong_services_and_consumers_become_routes_and_keys: Kong "kong.yml",
    envoy_virtual_hosts_become_routes: Envoy "envoy.yaml",
}

#[test]
fn several_files_are_one_configuration() {
    let first = File { name: "nginx.conf", text: "http { include conf.d/*.conf; }" };
    let second = File {
        name: "conf.d/api.conf",
        text: "\nserver { location / { proxy_pass http://a:1; } mirror /x; }",
    };
    let included = Included { files: vec![1], failed: Vec::new() };
    let includes = Includes::from([("conf.d/*.conf".to_owned(), included)]);
    let import = import(Format::Nginx, &[first, second], &includes).unwrap();
    assert!(import.toml.contains("# conf.d/api.conf:2\n[routes.all]"), "{}", import.toml);
    let places: Vec<Place> = import.notes.iter().map(|note| note.place).collect();
    assert_eq!(places, [Place { file: 1, line: 2, column: 0 }]);
}

#[test]
fn json_is_read_as_yaml() {
    let text = r#"{"_format_version": "3.0", "services": [{"name": "a", "url": "http://a:1",
        "routes": [{"name": "r", "paths": ["/a/"]}]}]}"#;
    assert_eq!(Format::of(File { name: "kong.json", text }), Some(Format::Kong));
    let import =
        import(Format::Kong, &[File { name: "kong.json", text }], &Includes::new()).unwrap();
    assert!(import.toml.contains("[routes.r]\npath = \"/a/*\""), "{}", import.toml);
    assert!(checked(&import.toml).contains("no errors"), "{}", import.toml);
}

#[test]
fn files_without_routes_have_an_error_that_check_reports() {
    for (format, text) in [
        (Format::Nginx, "server { root /srv; }"),
        (Format::Traefik, "http: {routers: {}}"),
        (Format::Envoy, "static_resources: {}"),
    ] {
        let import = import(format, &[File { name: "file", text }], &Includes::new()).unwrap();
        assert!(import.notes.iter().any(|note| note.what == "routes"), "{:?}", import.notes);
        assert!(checked(&import.toml).contains("there are no routes"), "{}", import.toml);
    }
}

#[test]
fn files_that_are_none_of_the_formats_have_none() {
    for text in ["", "[server]\nlisten = []\n", "hello world", "a: 1\n", "{}"] {
        assert_eq!(Format::of(File { name: "file", text }), None, "{text}");
    }
}

/// What restricts access stays in the result, or the list says that it is not there.
fn holds(format: Format, table: &[(&str, &[&str], &[&str])]) {
    for (text, expected, missing) in table {
        let shown = imported(format, "file", text);
        for part in *expected {
            assert!(shown.contains(part), "{part} is not in the result of {text}:\n{shown}");
        }
        let (toml, _) = shown.split_once("=== list ===").unwrap();
        for part in *missing {
            assert!(!toml.contains(part), "{part} is in the result of {text}:\n{shown}");
        }
    }
}

#[test]
fn nginx_restrictions_are_kept() {
    holds(
        Format::Nginx,
        &[
            (
                "server { location / { proxy_pass http://a:1; } location /i/ { internal; proxy_pass http://b:1; } }",
                &[
                    "[routes.i]\npath = \"/i/*\"\nrespond = { status = 404 }",
                    "internal: not taken over",
                ],
                &["b:1"],
            ),
            (
                r"server { location / { proxy_pass http://a:1; } location ~ /\.(ht|git) { deny all; } location /private/ { deny all; } }",
                &[
                    "path = \"/private/*\"\nrespond = { status = 403 }",
                    "(ht|git)'\nrespond = { status = 403 }",
                ],
                &[],
            ),
            (
                "server { location / { deny all; allow 10.0.0.0/8; proxy_pass http://a:1; } }",
                &["respond = { status = 403 }"],
                &["allow_ips"],
            ),
            (
                "server { location / { satisfy any; allow 10.0.0.0/8; deny all; proxy_pass http://a:1; } }",
                &["satisfy any: not taken over", "allow_ips = [\"10.0.0.0/8\"]"],
                &[],
            ),
            (
                "server { server_name mail.* ~^x; location / { proxy_pass http://a:1; } } server { server_name b; location / { return 410; } }",
                &["server: not taken over: the server is left out"],
                &["a:1"],
            ),
            (
                "ssl_certificate a.pem; ssl_certificate_key a.key; \
                 server { listen 443 ssl; listen [::]:443; ssl_client_certificate ca.pem; ssl_verify_client on; \
                 location / { proxy_pass http://a:1; } } \
                 server { listen 443 ssl; server_name b; ssl_client_certificate ca.pem; ssl_verify_client optional; \
                 location / { proxy_pass http://b:1; } }",
                &["address = \"[::]:443\"", "client_ca = \"ca.pem\"", "the strictest is used"],
                &["client_auth"],
            ),
            (
                "server { listen 80; location / { proxy_pass http://a:1; } } \
                 server { listen 127.0.0.1:81; server_name b; location / { proxy_pass http://b:1; } }",
                &["As a matter of security"],
                &[],
            ),
        ],
    );
}

#[test]
fn addresses_that_another_one_has_are_left_out() {
    let file = |first: &str, second: &str| {
        format!(
            "server {{ listen {first}; server_name a; location / {{ proxy_pass http://a:1; }} }} \
             server {{ listen {second}; server_name b; location / {{ proxy_pass http://b:1; }} }}"
        )
    };
    let note = "listen 127.0.0.1:80: approximately: 0.0.0.0:80 includes it";
    let (one, other) = (file("80", "127.0.0.1:80"), file("127.0.0.1:80", "80"));
    holds(
        Format::Nginx,
        &[
            (
                &one,
                &["listen = [\"0.0.0.0:80\"]", note, "no errors", "As a matter of security"],
                &["127.0.0.1:80"],
            ),
            (&other, &["listen = [\"0.0.0.0:80\"]", note, "no errors"], &["127.0.0.1:80"]),
            (
                &file("[::]:80", "127.0.0.1:80"),
                &["listen = [\"[::]:80\"]", "listen 127.0.0.1:80: approximately", "no errors"],
                &["127.0.0.1:80"],
            ),
            (
                &file("127.0.0.1:80", "127.0.0.1:81"),
                &["listen = [\"127.0.0.1:80\", \"127.0.0.1:81\"]"],
                &[],
            ),
        ],
    );
}

#[test]
fn kong_restrictions_are_kept() {
    let key = "key-auth, config: {anonymous: null}";
    let one = |plugins: &str| {
        format!(
            "_format_version: '3.0'\nservices:\n- url: http://a:1\n  routes:\n  - paths: [/a/]\n    plugins: [{plugins}]\n- url: http://b:1\n  routes:\n  - paths: [/b/]\n"
        )
    };
    let anonymous = one(&format!("{{name: {key}}}"));
    let lists = one("{name: ip-restriction, config: {allow: [office]}}");
    let consumer = one("{name: rate-limiting, consumer: x, config: {minute: 5}}");
    let expression = one("") + "  - paths: [/c/]\n    expression: x\nacls: []\n";
    holds(
        Format::Kong,
        &[
            (
                &anonymous,
                &["[rules.key-required]", "routes = [\"all\"]", "on_missing = \"deny\""],
                &[],
            ),
            (
                &lists,
                &["deny_ips = [\"0.0.0.0/0\", \"::/0\"]", "ip-restriction: office: not taken over"],
                &[],
            ),
            (&consumer, &["plugin rate-limiting: not taken over"], &["[rules"]),
            (&expression, &["expression: not taken over", "acls: not taken over"], &["/c/*"]),
        ],
    );
}

#[test]
fn traefik_restrictions_are_kept() {
    let file = |router: &str, rest: &str| {
        format!(
            "entryPoints: {{s: {{address: ':443', http: {{tls: {{}}}}}}}}\nhttp:\n  services: {{a: {{loadBalancer: {{servers: [{{url: 'http://a:1'}}]}}}}}}\n  routers:\n    r: {{service: a, {router}}}\n  middlewares:\n    one: {{ipAllowList: {{sourceRange: [10.0.0.0/8]}}}}\n    two: {{ipAllowList: {{sourceRange: [10.1.0.0/16, 192.168.0.0/16]}}}}\n    bad: {{ipAllowList: {{sourceRange: [office], ipStrategy: {{depth: 1}}}}}}\n    limit: {{rateLimit: {{average: 5}}}}\ntls:\n  certificates: [{{certFile: a.pem, keyFile: a.key}}]\n{rest}"
        )
    };
    let both = file("rule: 'Host(`a`)', middlewares: [one, two]", "");
    let bad = file("rule: 'Host(`a`)', middlewares: [bad]", "");
    let client = file("rule: 'ClientIP(`x`)'", "");
    let options = "  options: {default: {minVersion: VersionTLS13, clientAuth: {caFiles: [ca.pem], clientAuthType: RequireAndVerifyClientCert}}}\n";
    let options = file("rule: 'Host(`a`)', tls: {options: x}", options);
    let no_ca =
        "  options: {default: {clientAuth: {clientAuthType: RequireAndVerifyClientCert}}}\n";
    let no_ca = file("rule: 'Host(`a`)'", no_ca);
    let not = file("rule: 'Host(`a`) && !PathPrefix(`/api/`)'", "");
    let limit = file("rule: 'Path(`/a`) || Path(`/b`)', middlewares: [limit]", "");
    let all = "deny_ips = [\"0.0.0.0/0\", \"::/0\"]";
    holds(
        Format::Traefik,
        &[
            (&both, &["allow_ips = [\"10.1.0.0/16\"]"], &["192.168"]),
            (&bad, &[all, "office: not taken over", "ipStrategy: approximately"], &[]),
            (&client, &[all, "ClientIP: x: not taken over"], &[]),
            (
                &options,
                &[
                    "client_ca = \"ca.pem\"",
                    "min_tls = \"1.3\"",
                    "router r: tls.options: not taken over",
                ],
                &[],
            ),
            (&no_ca, &["the listener is left out"], &["[[listeners]]"]),
            (
                &not,
                &["path = \"/api/*\"\ntrailing_slash = \"distinct\"\nrespond = { status = 404 }"],
                &[],
            ),
            (&limit, &["per = [\"ip\"]"], &[]),
        ],
    );
}

/// A file of Traefik with these entry points, routers and middlewares.
fn traefik(entry_points: &str, routers: &str, middlewares: &str) -> String {
    format!(
        "entryPoints: {{{entry_points}}}\nhttp:\n  services: {{a: {{loadBalancer: {{servers: [{{url: 'http://a:1'}}]}}}}}}\n  routers: {{{routers}}}\n  middlewares: {{{middlewares}}}\n"
    )
}

const WEB: &str = "s: {address: ':80'}";

fn router(name: &str, rule: &str, names: &str) -> String {
    format!("{name}: {{service: a, rule: '{rule}', middlewares: [{names}]}}, ")
}

#[test]
fn traefik_middlewares_allow_no_more() {
    let one = |middlewares: &str, names: &str| {
        traefik(WEB, &router("r", "PathPrefix(`/a/`)", names), middlewares)
    };
    let auths = "x: {forwardAuth: {address: 'http://x'}}, y: {forwardAuth: {address: 'http://y'}}, z: {forwardAuth: {}}";
    let sizes = "x: {buffering: {maxRequestBodyBytes: 9}}, y: {buffering: {maxRequestBodyBytes: 90}}, z: {buffering: {}}";
    let limit = |rest: &str| format!("l: {{rateLimit: {{average: 5, {rest}}}}}");
    let alternatives = traefik(
        WEB,
        &(router("r", "Path(`/a`) || Path(`/b`)", "l") + &router("s", "Path(`/c`)", "l")),
        &limit(""),
    );
    let trusted = traefik(
        "s: {address: ':80', forwardedHeaders: {trustedIPs: [10.0.0.0/8]}}, t: {address: ':81'}",
        &router("r", "Path(`/a`)", "l"),
        &limit(""),
    );
    holds(
        Format::Traefik,
        &[
            (
                &one(auths, "x, y, z"),
                &[
                    "forward_auth = { url = \"http://x\" }",
                    "middleware y: forwardAuth: not taken over: a route asks one server",
                    "middleware z: forwardAuth: not taken over: it has no `address`",
                ],
                &[],
            ),
            (&one(sizes, "x, y, z"), &["max_body_bytes = 9\n"], &[]),
            (&one(sizes, "y, x"), &["max_body_bytes = 9\n"], &[]),
            (&one(&limit("period: 1.0005s"), "l"), &["rate = \"5/1001ms\""], &[]),
            (
                &one(&limit("period: x"), "l"),
                &["rateLimit: not taken over: its period"],
                &["[rules"],
            ),
            (&one("l: {inFlightReq: {}}", "l"), &["inFlightReq: not taken over"], &["[rules"]),
            (
                &one(&limit("sourceCriterion: {ipStrategy: {ipv6Subnet: 48}}"), "l"),
                &["ipv6_prefix = 48"],
                &[],
            ),
            (&one(&limit("sourceCriterion: {ipStrategy: {ipv6Subnet: 96}}"), "l"), &[], &["ipv6"]),
            (
                &alternatives,
                &[
                    "[rules.l]\nper = [\"ip\"]",
                    "routes = [\"r\", \"r-2\"]",
                    "[rules.l-2]\nper = [\"ip\"]",
                    "routes = [\"s\"]",
                ],
                &["\"route\""],
            ),
            (
                &trusted,
                &[
                    "forwardedHeaders.trustedIPs: approximately: `server.trusted_proxies` is for all",
                    "rateLimit: the address of the connection: approximately",
                ],
                &[],
            ),
        ],
    );
}

#[test]
fn traefik_routers_match_no_more() {
    let by_method = traefik(
        WEB,
        &(router("r", "Host(`a`) && !PathPrefix(`/api/`)", "")
            + &router("s", "Host(`a`) && PathPrefix(`/api/`) && Method(`GET`)", "")),
        "",
    );
    let named = |entry_points: &str| {
        traefik(
            "s: {address: ':80', asDefault: true}, t: {address: ':81'}",
            &format!(
                "r: {{service: a, rule: 'Path(`/a`)' {entry_points}}}, o: {{service: a, rule: 'Path(`/o`)', entryPoints: [t]}}"
            ),
            "",
        )
    };
    let expression = traefik(
        WEB,
        &(router("secret", "PathRegexp(`^/admin/secret[0-9]+`)", "")
            + &router("admin", "PathPrefix(`/admin/`)", "")),
        "",
    );
    holds(
        Format::Traefik,
        &[
            (
                &by_method,
                &[
                    "path = \"/api/*\"\ntrailing_slash = \"distinct\"\nrespond = { status = 404 }",
                    "no errors",
                ],
                &[],
            ),
            (
                &named(", entryPoints: [other]"),
                &["router r: not taken over: none of its entry"],
                &["/a"],
            ),
            (
                &named(""),
                &[
                    "these are reachable also on listeners that the file keeps them from ([::]:80, [::]:81): r, o",
                ],
                &[],
            ),
            (
                &traefik(WEB, &router("r", "HostRegexp(`^[a-z]+[.]a`)", ""), ""),
                &["router r"],
                &["[routes"],
            ),
            (
                &traefik(WEB, &router("r", "HostRegexp(`{sub:[a-z]+}.a.example`)", ""), ""),
                &["router r: HostRegexp(`{sub:[a-z]+}.a.example`): approximately"],
                &[],
            ),
            (
                &expression,
                &["route secret: approximately: requests that match both this one and admin"],
                &[],
            ),
        ],
    );
}

#[test]
fn nginx_limits_count_no_less() {
    let http = |zone: &str, rest: &str| {
        format!(
            "limit_req_zone {zone} zone=z:1m rate=5r/s; limit_conn_zone $server_name zone=c:1m; \
             map $http_x $client {{ default $binary_remote_addr; }} {rest}"
        )
    };
    let server = |name: &str, rest: &str| {
        format!(
            "server {{ server_name {name}; {rest} location / {{ limit_req zone=z; limit_conn c 3; proxy_pass http://a:1; }} location /b/ {{ limit_req zone=z; proxy_pass http://b:1; }} }}"
        )
    };
    let two = http("$server_name", &(server("a a.example", "") + &server("*.b", "")));
    let constant = http("all", &server("a", ""));
    let own = http("$client", &server("a", ""));
    let short =
        http("all", "server { location / { limit_req zone=z burst=4; proxy_pass http://a:1; } }")
            .replace("rate=5r/s", "rate=9000r/s");
    holds(
        Format::Nginx,
        &[
            (
                &two,
                &[
                    "[rules.z]\nper = []\nrate = \"5/s\"\nburst = 1\nroutes = [\"a\", \"a-b\"]",
                    "[rules.z-2]\nper = []\nrate = \"5/s\"\nburst = 1\nroutes = [\"b\", \"b-b\"]",
                    "[rules.c]\nper = []\nkind = \"concurrency\"\nlimit = 3\nroutes = [\"a\"]",
                    "[rules.c-2]",
                ],
                &["\"host\""],
            ),
            (&constant, &["[rules.z]\nper = []"], &[]),
            (&own, &["[rules.z]\nper = [\"ip\"]", "approximately: clients for which the map"], &[]),
            (&short, &["rate = \"9000/s\"\nburst = 5"], &["leaky"]),
        ],
    );
}

#[test]
fn nginx_locations_and_addresses_match_no_more() {
    let real = |rest: &str| {
        format!(
            "server {{ set_real_ip_from 10.0.0.0/8; {rest} location / {{ proxy_pass http://a:1; }} }}"
        )
    };
    let nested = "server { location /a/ { proxy_pass http://a:1; location ~ \\.php$ { deny all; } location ~ ^/b { return 403; } location ~* x { return 403; } } }";
    let closed = "server { location / { proxy_pass http://a:1; } location /secret/ { return 444; } location /x*/ { return 403; } }";
    holds(
        Format::Nginx,
        &[
            (&real(""), &["nginx reads `X-Real-IP`", "real_ip_recursive off: approximately"], &[]),
            (
                nested,
                &[
                    "path_regex = '^/a/.*(?:\\.php$)'",
                    "path_regex = \"^/a/.*(?:(?i)x)\"",
                    "location ~ ^/b: approximately: it is in the location /a/",
                ],
                &[],
            ),
            (
                closed,
                &[
                    "path = \"/secret/*\"\nrespond = { status = 404 }",
                    "return 444: approximately",
                    "path_regex = '^/x\\*/'",
                ],
                &[],
            ),
        ],
    );
    let exact = real("real_ip_header X-Forwarded-For; real_ip_recursive on;");
    assert!(!imported(Format::Nginx, "file", &exact).contains("real_ip"));
    let several = real("real_ip_header X-Forwarded-For; real_ip_recursive on;")
        + "server { server_name b; location / { proxy_pass http://a:1; } }";
    holds(
        Format::Nginx,
        &[(
            &several,
            &["set_real_ip_from 10.0.0.0/8: approximately: `server.trusted_proxies` is"],
            &[],
        )],
    );
}

#[test]
fn envoy_restrictions_are_kept() {
    let file = |domain: &str, condition: &str, validation: &str| {
        format!(
            "static_resources:\n  listeners:\n  - address: {{socket_address: {{address: 0.0.0.0, port_value: 443}}}}\n    filter_chains:\n    - transport_socket: {{typed_config: {{require_client_certificate: true, common_tls_context: {{tls_certificates: [{{certificate_chain: {{filename: a.pem}}, private_key: {{filename: a.key}}}}], {validation}}}}}}}\n      filters:\n      - name: envoy.filters.network.http_connection_manager\n        typed_config:\n          route_config: {{virtual_hosts: [{{name: v, domains: ['{domain}'], routes: [{{match: {{prefix: /, {condition}}}, direct_response: {{status: 200}}}}]}}]}}\n"
        )
    };
    let ca = "combined_validation_context: {default_validation_context: {trusted_ca: {filename: ca.pem}, crl: {filename: x}}}";
    let combined = file("*", "", ca);
    let missing = file("*", "", "");
    let domain = file("api.*", "", ca);
    let grpc = file("*", "grpc: {}", ca);
    holds(
        Format::Envoy,
        &[
            (&combined, &["client_ca = \"ca.pem\"", "crl: not taken over"], &["client_auth"]),
            (&missing, &["require_client_certificate: not taken over"], &["[[listeners]]"]),
            (&domain, &["virtual host v: not taken over"], &["[routes"]),
            (&grpc, &["grpc: not taken over"], &["[routes"]),
        ],
    );
}

#[test]
fn weights_keep_their_proportions() {
    assert_eq!(common::weights(&[2000, 1000]), [2, 1]);
    assert_eq!(common::weights(&[9001, 90, 0, 1]), [1000, 9, 0, 1]);
}

#[test]
fn mistakes_are_reported_with_their_line() {
    for (name, text) in [("nginx.conf", "server {\n"), ("t.yml", "http:\n  a: [1\n")] {
        let file = File { name, text };
        let format = Format::of(file).unwrap();
        assert!(import(format, &[file], &Includes::new()).unwrap_err().place.line > 0, "{name}");
    }
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    #[test]
    fn no_text_panics(text in r#"(?s)([a-z0-9 $\{\}\[\]:;#\\'"\n~=^/.*()|&!<>-]|server |location |http|\PC){0,300}"#) {
        for format in [Format::Nginx, Format::Traefik, Format::Kong, Format::Envoy] {
            if let Ok(import) = import(format, &[File { name: "file", text: &text }], &Includes::new()) {
                // It is TOML, whatever else.
                toml::from_str::<toml::Table>(&import.toml).unwrap();
            }
        }
    }
}
