//! Parts of `gateway.toml` that many tests share.

use std::fmt::Write as _;
use std::net::SocketAddr;

use sha2::{Digest as _, Sha256};

/// One plan, and one route for all paths to the built-in demo upstream. Tests add rules.
pub(crate) const DEMO: &str = r#"
[plans.free]

[upstreams.api]
servers = ["demo"]

[routes.all]
path = "/*"
upstream = "api"
"#;

/// One plan, and one route for all paths to these servers. Tests add rules.
pub(crate) fn proxy_to(servers: &[SocketAddr]) -> String {
    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    DEMO.replace("[\"demo\"]", &format!("{servers:?}"))
}

/// The same, with these settings of the upstream.
pub(crate) fn proxy_with(servers: &[SocketAddr], settings: &str) -> String {
    proxy_to(servers).replace("[upstreams.api]", &format!("[upstreams.api]\n{settings}"))
}

/// A listener for HTTP/2 in clear, beside HTTP/1.1.
pub(crate) const HTTP2_LISTENER: &str = "[[listeners]]\naddress = \"127.0.0.1:0\"\nhttp2 = true\n";

/// SHA-256 of an API key, in hexadecimal digits.
pub(crate) fn digest(secret: impl AsRef<[u8]>) -> String {
    Sha256::digest(secret.as_ref()).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A `[keys]` table for an API key.
pub(crate) fn key(id: &str, secret: impl AsRef<[u8]>, plan: &str) -> String {
    let digest = digest(secret);
    format!("\n[keys.{id}]\nsha256 = \"{digest}\"\nplan = \"{plan}\"\n")
}
