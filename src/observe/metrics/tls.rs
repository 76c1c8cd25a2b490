//! Series of TLS on listeners: handshakes, and the ends and failures of certificates.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::{IntCounterVec, IntGaugeVec, Opts};

use super::Registrar;

/// Handshakes by result, and certificates by name.
pub struct TlsSeries {
    /// Labels: listener, result.
    pub handshakes: IntCounterVec,
    expiry: IntGaugeVec,
    errors: IntCounterVec,
    /// The certificates that have series.
    shown: Mutex<BTreeMap<Arc<str>, u64>>,
}

impl TlsSeries {
    pub(super) fn register(series: &Registrar) -> Result<Self, prometheus::Error> {
        let expiry = Opts::new(
            "tollgate_certificate_expiry_seconds",
            "Unix time at which a certificate expires, in seconds; of several with the same name, the \
             earliest. Its name is the first name in it.",
        );
        Ok(Self {
            handshakes: series.counters(
                "tollgate_tls_handshakes_total",
                "TLS handshakes of clients by result: ok, resumed (with a session of earlier), timeout, \
                 no_certificate (there is none yet for the name), client_certificate (missing or refused), \
                 protocol (not TLS, or nothing in common), closed (by the client).",
                &["listener", "result"],
            )?,
            expiry: series.keep(IntGaugeVec::new(expiry, &["name"])?)?,
            errors: series.counters(
                "tollgate_certificate_errors_total",
                "Certificates that could not be replaced or obtained; the previous one stays in use.",
                &["name"],
            )?,
            shown: Mutex::default(),
        })
    }

    /// Counts a failure to replace or obtain the certificate with this name.
    pub fn failed(&self, name: &str) {
        self.errors.with_label_values(&[name]).inc();
    }

    /// Sets the series of these certificates: name, and end as Unix time in seconds. Series of
    /// others are removed.
    pub fn show(&self, certificates: impl Iterator<Item = (Arc<str>, u64)>) {
        let mut current = BTreeMap::new();
        for (name, end) in certificates {
            current.entry(name).and_modify(|at: &mut u64| *at = end.min(*at)).or_insert(end);
        }
        let mut shown = self.shown.lock();
        for name in shown.keys().filter(|name| !current.contains_key(*name)) {
            // Fails if there is none.
            let _ = self.expiry.remove_label_values(&[name]);
            let _ = self.errors.remove_label_values(&[name]);
        }
        for (name, end) in current.iter().filter(|(name, end)| shown.get(*name) != Some(end)) {
            let end = i64::try_from(*end).unwrap_or(i64::MAX);
            self.expiry.with_label_values(&[&**name]).set(end);
            // It exists before the first failure, so that `increase()` sees it.
            self.errors.with_label_values(&[&**name]);
        }
        *shown = current;
    }
}
