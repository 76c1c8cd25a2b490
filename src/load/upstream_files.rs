//! The certificate files of upstreams, which are checked with the configuration file.

use crate::config::diagnostic::Diagnostic;
use crate::config::outline::Outline;
use crate::net::tls::{ClientTls, SettingNames, TlsError};
use crate::policy::Policy;

/// Checks the files of every upstream. An error is at the setting that names the file.
pub(super) fn check(
    policy: &Policy,
    outline: impl FnOnce() -> Outline,
    check: impl Fn(SettingNames<'_>, &ClientTls) -> Result<(), TlsError>,
) -> Vec<Diagnostic> {
    let mut errors = Vec::new();
    for upstream in &policy.upstreams {
        let Some(tls) = &upstream.tls else { continue };
        let table = format!("upstreams.{}.tls", upstream.name);
        let names = SettingNames { table: &table, ca: "ca", chain: "cert", key: "key" };
        if let Err(error) = check(names, &tls.files) {
            errors.push((&*upstream.name, error));
        }
    }
    if errors.is_empty() {
        return Vec::new();
    }
    let outline = outline();
    let diagnostic = |(name, error): (&str, TlsError)| {
        let path = ["upstreams", name, "tls", setting(&error)];
        let place = outline.place(&path).unwrap_or(0..0);
        let diagnostic = Diagnostic::new(place, error.to_string());
        match error {
            TlsError::Unreadable { .. } => {
                diagnostic.help("a relative path begins at the folder of the configuration file")
            }
            TlsError::Empty { wanted: "private key", .. } => {
                diagnostic.help("it needs a line `-----BEGIN PRIVATE KEY-----`")
            }
            TlsError::Empty { .. } => {
                diagnostic.help("it needs a line `-----BEGIN CERTIFICATE-----`")
            }
            _ => diagnostic,
        }
    };
    errors.into_iter().map(diagnostic).collect()
}

/// The setting that an error concerns.
fn setting(error: &TlsError) -> &'static str {
    match error {
        TlsError::Unreadable { setting, .. } | TlsError::Empty { setting, .. } => {
            ["ca", "cert", "key"]
                .into_iter()
                .find(|name| setting.starts_with(&format!("`{name}` ")))
                .unwrap_or("ca")
        }
        TlsError::Certificate { .. } => "key",
        TlsError::Library(_) => "ca",
    }
}
