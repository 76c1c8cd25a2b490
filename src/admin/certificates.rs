//! `GET /api/certificates`: the certificates of the listeners, when they expire, and which could
//! not be replaced or obtained.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::base::clock;
use crate::base::time::UtcTime;
use crate::policy::listener::CertificateFiles;
use crate::tls::certificate::Certificate;
use crate::tls::failures::{Failing, Failure};
use crate::tls::listeners::TlsListeners;

/// Maximum number of certificates in a response.
const MAX_LISTED: usize = 1_000;

/// Maximum number of names of one certificate in a response.
const MAX_NAMES: usize = 100;

/// The certificates of the listeners: first those with a failure, then by their end.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Certificates {
    certificates: Vec<Entry>,
    /// Number of certificates that are not listed.
    more_certificates: usize,
}

/// A certificate in use, or one that could not be obtained.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Entry {
    /// Its first name, as in metrics and logs.
    name: String,
    /// `file`, or `acme` for a certificate of `[acme]`.
    source: &'static str,
    /// Path of its file; `null` for a certificate of `[acme]`.
    cert: Option<String>,
    /// Up to 100 of its DNS names and IP addresses.
    names: Vec<String>,
    /// Start of its validity, in UTC (RFC 3339); `null` without a certificate.
    not_before: Option<String>,
    /// End of its validity, in UTC (RFC 3339); `null` without a certificate.
    not_after: Option<String>,
    /// Seconds until its end; negative if it has expired.
    expires_in_s: Option<i64>,
    /// Whether an OCSP response is stapled.
    stapled: bool,
    /// What clients may object to.
    warnings: Vec<String>,
    /// Why it could not be replaced or obtained; `null` if there is no failure.
    error: Option<CertificateFailure>,
}

/// Why a certificate could not be replaced or obtained. The previous one stays in use, if any.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct CertificateFailure {
    message: String,
    /// When it was found first, in UTC (RFC 3339).
    since: String,
}

impl Certificates {
    pub(super) fn of(tls: &TlsListeners) -> Self {
        let now = clock::unix_seconds();
        let mut failures = tls.failures().all();
        let certificates = tls.certificates();
        let mut entries: Vec<Entry> = certificates
            .iter()
            .map(|(files, it)| Entry::of(files.as_ref(), it, &failures, now))
            .collect();
        for (files, certificate) in &certificates {
            failures.remove(&failing(files.as_ref(), certificate));
        }
        entries.extend(
            failures.into_iter().map(|(failing, failure)| Entry::without(&failing, &failure)),
        );
        entries.sort_by_key(|entry| (entry.error.is_none(), entry.expires_in_s));
        let more_certificates = entries.len().saturating_sub(MAX_LISTED);
        entries.truncate(MAX_LISTED);
        Self { certificates: entries, more_certificates }
    }
}

impl Entry {
    fn of(
        files: Option<&CertificateFiles>,
        certificate: &Certificate,
        failures: &BTreeMap<Failing, Failure>,
        now: u64,
    ) -> Self {
        let addresses = certificate.addresses().iter().map(ToString::to_string);
        let names = certificate.dns_names().iter().cloned().chain(addresses);
        let signed = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
        Self {
            name: certificate.name().to_string(),
            source: if files.is_some() { "file" } else { "acme" },
            cert: files.map(|files| files.cert.display().to_string()),
            names: names.take(MAX_NAMES).collect(),
            not_before: Some(time(certificate.not_before())),
            not_after: Some(time(certificate.not_after())),
            expires_in_s: Some(signed(certificate.not_after()).saturating_sub(signed(now))),
            stapled: certificate.is_stapled(),
            warnings: certificate.warnings(now).iter().map(ToString::to_string).collect(),
            error: failures.get(&failing(files, certificate)).map(CertificateFailure::of),
        }
    }

    /// A failure without a certificate: the authorities of client certificates, or a name of
    /// `[acme]`.
    fn without(failing: &Failing, failure: &Failure) -> Self {
        let (name, source, cert) = match failing {
            Failing::File(path) => {
                let path = path.display().to_string();
                (path.clone(), "file", Some(path))
            }
            Failing::Acme(name) => (name.to_string(), "acme", None),
        };
        Self {
            name,
            source,
            cert,
            names: Vec::new(),
            not_before: None,
            not_after: None,
            expires_in_s: None,
            stapled: false,
            warnings: Vec::new(),
            error: Some(CertificateFailure::of(failure)),
        }
    }
}

/// What a failure of a certificate is recorded for.
fn failing(files: Option<&CertificateFiles>, certificate: &Certificate) -> Failing {
    match files {
        Some(files) => Failing::File(files.cert.clone()),
        None => Failing::Acme(Arc::clone(certificate.name())),
    }
}

/// A time in UTC, of this many seconds since the epoch.
fn time(seconds: u64) -> String {
    format!("{:.0}", UtcTime::of_seconds(seconds))
}

impl CertificateFailure {
    fn of(failure: &Failure) -> Self {
        let since = time(failure.since);
        Self { message: failure.message.clone(), since }
    }
}
