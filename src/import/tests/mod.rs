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
            (&not, &["path = \"/api/*\"\nrespond = { status = 404 }"], &[]),
            (&limit, &["per = [\"ip\"]"], &[]),
        ],
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
