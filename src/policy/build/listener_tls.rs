//! TLS of a listener: certificates, client certificates, HSTS.

use std::path::PathBuf;

use super::environment::{Environment, expand};
use super::values::{switch, written_duration};
use super::words::meaning;
use crate::base::text::cut;
use crate::config::Config;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::listeners as written;
use crate::config::row::Row;
use crate::config::spanned::Spanned;
use crate::config::tables::TextOr;
use crate::policy::listener::{CertificateFiles, ClientAuth, Hsts, ListenerTls};

/// The item of `certificates` for those of `[acme]`.
const ACME: &str = "acme";

/// The shortest time that the lists of browsers accept, in seconds: a year.
const PRELOAD_S: u64 = 365 * 86_400;

/// TLS of a listener; none without certificates. Settings with an error are reported.
pub(super) fn tls(
    config: &Config,
    listener: &written::Listener,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<ListenerTls> {
    let client_auth = client_auth(listener, environment, diagnostics);
    let Some(list) = &listener.certificates else {
        check_needs_no_tls(listener, diagnostics);
        return None;
    };
    if list.get_ref().is_empty() && !diagnostics.explain_absence(&["listeners", "certificates"]) {
        let help = "write `certificates = [{ cert = \"api.pem\", key = \"api.key\" }]` or `[\"acme\"]`, or \
                    leave it out for a listener without TLS";
        let diagnostic = Diagnostic::new(list.span(), "`certificates` is empty");
        diagnostics.push(diagnostic.help(help));
    }
    let mut certificates = Vec::new();
    let mut acme: Option<&Spanned<TextOr<written::CertificateFiles>>> = None;
    for item in list.get_ref() {
        match item.get_ref() {
            TextOr::Table(files) => {
                certificates.extend(files_of(item.span(), files, environment, diagnostics));
            }
            TextOr::Text(text) if text == ACME => match acme {
                Some(first) => {
                    let diagnostic = Diagnostic::new(item.span(), "`acme` is written twice");
                    diagnostics.push(diagnostic.and(first.span(), "here first"));
                }
                None => acme = Some(item),
            },
            TextOr::Text(text) => {
                let message = format!("`{}` is not a certificate", cut(text, 64));
                let help = "write `{ cert = \"api.pem\", key = \"api.key\" }`, or `\"acme\"` for those of \
                            `[acme]`";
                diagnostics.push(Diagnostic::new(item.span(), message).help(help));
            }
        }
    }
    if let (Some(item), None) = (acme, &config.acme)
        && !diagnostics.explain_unknown(&["acme"])
    {
        let help = "add `[acme]` with `domains = [\"api.example.com\"]`";
        diagnostics.push(Diagnostic::new(item.span(), "there is no `[acme]`").help(help));
    }
    Some(ListenerTls {
        certificates,
        acme: acme.is_some(),
        client_auth,
        min_version: meaning(listener.min_tls.as_ref()),
    })
}

/// An item of `certificates`.
fn files_of(
    span: std::ops::Range<usize>,
    files: &written::CertificateFiles,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<CertificateFiles> {
    let mut path = |row, field: &Option<Spanned<String>>| {
        let path = expand(row, field.as_ref()?, environment, diagnostics)?;
        if path.is_empty() {
            let help = "write the path of a PEM file";
            let span = field.as_ref().map_or_else(|| span.clone(), Spanned::span);
            diagnostics.push(Diagnostic::new(span, "the path is empty").help(help));
            return None;
        }
        Some(PathBuf::from(path))
    };
    let cert = path(&written::CertificateFiles::cert, &files.cert);
    let key = path(&written::CertificateFiles::key, &files.key);
    let ocsp = path(&written::CertificateFiles::ocsp, &files.ocsp);
    for (name, field) in [("cert", &files.cert), ("key", &files.key)] {
        if field.is_none() && !diagnostics.explain_absence(&["listeners", "certificates", name]) {
            let message = format!("a certificate has no `{name}`");
            let help = "both are PEM files: `{ cert = \"api.pem\", key = \"api.key\" }`";
            diagnostics.push(Diagnostic::new(span.clone(), message).help(help));
        }
    }
    Some(CertificateFiles { cert: cert?, key: key?, ocsp })
}

/// Whose client certificates are accepted.
fn client_auth(
    listener: &written::Listener,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<ClientAuth> {
    let Some(field) = &listener.client_ca else {
        if let Some(field) = &listener.client_auth
            && !diagnostics.explain_absence(&["listeners", "client_ca"])
        {
            let help = "write `client_ca = \"ca.pem\"`, the authorities of client certificates";
            let diagnostic = Diagnostic::new(field.span(), "`client_auth` needs `client_ca`");
            diagnostics.push(diagnostic.help(help));
        }
        return None;
    };
    let ca = expand(&written::Listener::client_ca, field, environment, diagnostics)?;
    Some(ClientAuth { ca: ca.into(), mode: meaning(listener.client_auth.as_ref()) })
}

/// Reports settings of TLS in a listener without it.
fn check_needs_no_tls(listener: &written::Listener, diagnostics: &mut Diagnostics) {
    if diagnostics.explain_absence(&["listeners", "certificates"]) {
        return;
    }
    let found = [
        ("client_ca", listener.client_ca.as_ref().map(Spanned::span)),
        ("min_tls", listener.min_tls.as_ref().map(Spanned::span)),
        ("hsts", listener.hsts.as_ref().map(Spanned::span)),
    ];
    for (name, span) in found {
        if let Some(span) = span {
            let message = format!("`{name}` is for TLS, and this listener has no `certificates`");
            let help =
                "add `certificates = [{ cert = \"api.pem\", key = \"api.key\" }]`, or leave it out";
            diagnostics.push(Diagnostic::new(span, message).help(help));
        }
    }
}

/// `Strict-Transport-Security` of a listener; none if it has none or with an error.
pub(super) fn hsts(listener: &written::Listener, diagnostics: &mut Diagnostics) -> Option<Hsts> {
    let field = listener.hsts.as_ref()?;
    let hsts = match field.get_ref() {
        TextOr::Text(text) => Hsts {
            max_age_s: max_age(&written::Listener::hsts, &field.with(text.clone()), diagnostics)?,
            include_subdomains: false,
            preload: false,
        },
        TextOr::Table(table) => {
            let Some(max_age_field) = &table.max_age else {
                if !diagnostics.explain_absence(&["listeners", "hsts", "max_age"]) {
                    let help = "write `max_age = \"365d\"`";
                    let diagnostic = Diagnostic::new(field.span(), "`hsts` has no `max_age`");
                    diagnostics.push(diagnostic.help(help));
                }
                return None;
            };
            Hsts {
                max_age_s: max_age(&written::Hsts::max_age, max_age_field, diagnostics)?,
                include_subdomains: switch(
                    &written::Hsts::include_subdomains,
                    &table.include_subdomains,
                ),
                preload: switch(&written::Hsts::preload, &table.preload),
            }
        }
    };
    let is_allowed = hsts.max_age_s >= PRELOAD_S && hsts.include_subdomains;
    if hsts.preload
        && !is_allowed
        && !diagnostics.explain_absence(&["listeners", "hsts", "include_subdomains"])
    {
        let message =
            "`preload` needs a year and `include_subdomains`: browsers ignore it otherwise";
        let help = "write `{ max_age = \"365d\", include_subdomains = true, preload = true }`";
        diagnostics.push(Diagnostic::new(field.span(), message).help(help));
    }
    Some(hsts)
}

/// A time in whole seconds; 0 is allowed.
fn max_age(row: &Row, field: &Spanned<String>, diagnostics: &mut Diagnostics) -> Option<u64> {
    let time = written_duration(row, field, diagnostics)?;
    if time.subsec_millis() > 0 {
        let message = format!("`{}` is in whole seconds", row.name);
        diagnostics.push(Diagnostic::new(field.span(), message).help("it looks like `365d`"));
        return None;
    }
    Some(time.as_secs())
}
