//! Files of each format, with what is made of them.

use std::fmt::Write as _;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::load::{LoadError, Source};

/// The result as text: the file, the list, and what `tollgate check` says.
fn imported(format: Format, name: &str, text: &str) -> String {
    let import = import(format, &[File { name, text }]).unwrap();
    let mut shown = import.toml.clone();
    shown += "\n=== list ===\n";
    for note in &import.notes {
        let _ = writeln!(shown, "{name}:{}: {note}", note.place.line);
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
    let import = import(Format::Nginx, &[first, second]).unwrap();
    assert!(import.toml.contains("# conf.d/api.conf:2\n[routes.all]"), "{}", import.toml);
    let places: Vec<Place> = import.notes.iter().map(|note| note.place).collect();
    assert_eq!(places, [Place { file: 1, line: 2 }]);
}

#[test]
fn json_is_read_as_yaml() {
    let text = r#"{"_format_version": "3.0", "services": [{"name": "a", "url": "http://a:1",
        "routes": [{"name": "r", "paths": ["/a/"]}]}]}"#;
    assert_eq!(Format::of(File { name: "kong.json", text }), Some(Format::Kong));
    let import = import(Format::Kong, &[File { name: "kong.json", text }]).unwrap();
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
        let import = import(format, &[File { name: "file", text }]).unwrap();
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

proptest! {
    #[test]
    fn no_text_panics(text in r#"(?s)([a-z0-9 $\{\}\[\]:;#\\'"\n~=^/.*()|&!<>-]|server |location |http|\PC){0,300}"#) {
        for format in [Format::Nginx, Format::Traefik, Format::Kong, Format::Envoy] {
            if let Ok(import) = import(format, &[File { name: "file", text: &text }]) {
                // It is TOML, whatever else.
                toml::from_str::<toml::Table>(&import.toml).unwrap();
            }
        }
    }
}
