//! TLS and the version of HTTP to the servers of an upstream.

use std::path::PathBuf;

use super::environment::{Environment, expand};
use super::origin::Scheme;
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::{tables, words};
use crate::net::tls::{self, CertificateFiles, ClientTls};
use crate::policy::settings::UpstreamTls;

/// TLS to the servers of the upstream `name`, which have this scheme; none without TLS. Settings
/// with an error are reported.
pub(super) fn tls(
    name: &str,
    scheme: Option<Scheme>,
    table: Option<&Spanned<tables::UpstreamTls>>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<UpstreamTls> {
    let default = tables::UpstreamTls::default();
    let settings = table.map_or(&default, Spanned::get_ref);
    if let (Some(Scheme::Http), Some(table)) = (scheme, table) {
        let help = "write `https://` before the servers, or leave `tls` out";
        let diagnostic = Diagnostic::new(table.span(), "`tls` is for servers with `https://`");
        diagnostics.push(diagnostic.help(help));
    }
    let mut path = |row, field: &Option<Spanned<String>>| {
        expand(row, field.as_ref()?, environment, diagnostics).map(PathBuf::from)
    };
    let ca = path(&tables::UpstreamTls::ca, &settings.ca);
    let chain = path(&tables::UpstreamTls::cert, &settings.cert);
    let key = path(&tables::UpstreamTls::key, &settings.key);
    let lonely = match (&settings.cert, &settings.key) {
        (Some(field), None) => Some((field, "`cert` needs its `key`", "key")),
        (None, Some(field)) => Some((field, "`key` needs its `cert`", "cert")),
        _ => None,
    };
    if let Some((field, message, missing)) = lonely
        && !diagnostics.explain_absence(&["upstreams", name, "tls", missing])
    {
        diagnostics.push(Diagnostic::new(field.span(), message).help("both are PEM files"));
    }
    let server_name = settings.server_name.as_ref();
    let server_name = server_name.and_then(|field| server_name_of(field, diagnostics));
    (scheme == Some(Scheme::Https)).then(|| UpstreamTls {
        files: ClientTls {
            ca,
            certificate: chain.zip(key).map(|(chain, key)| CertificateFiles { chain, key }),
        },
        server_name,
    })
}

/// The name of `server_name`; none with an error.
fn server_name_of(field: &Spanned<String>, diagnostics: &mut Diagnostics) -> Option<Box<str>> {
    let text = field.get_ref();
    if tls::server_name(text).is_ok() {
        return Some(text.as_str().into());
    }
    let (message, help) = if text.is_empty() {
        let help = "leave it out for the host of the server: certificates are always verified";
        ("`server_name` is empty".to_owned(), help)
    } else {
        let message = format!("`{}` is not the name of a server", cut(text, 64));
        (message, "it is a name such as `api.internal`, without scheme and port")
    };
    diagnostics.push(Diagnostic::new(field.span(), message).help(help));
    None
}

/// Reports a version of HTTP that servers of `scheme` cannot be asked for. The built-in responder
/// has no scheme.
pub(super) fn check_protocol(
    scheme: Option<Scheme>,
    field: Option<&Spanned<words::Protocol>>,
    diagnostics: &mut Diagnostics,
) {
    let Some(field) = field else { return };
    let (message, help) = match (field.get_ref(), scheme) {
        (words::Protocol::H2, Some(Scheme::Http)) => (
            "`h2` is HTTP/2 over TLS, and the servers have none",
            "write `h2c`, or `https://` before the servers",
        ),
        (words::Protocol::H2c, Some(Scheme::Https)) => {
            ("`h2c` is HTTP/2 without TLS, and the servers have it", "write `h2`")
        }
        _ => return,
    };
    diagnostics.push(Diagnostic::new(field.span(), message).help(help));
}
