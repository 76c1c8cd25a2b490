//! Events that are sent to servers.

use prometheus::IntCounterVec;

use super::registrar::Registrar;

/// Attempts to send events, by webhook and result.
#[derive(Debug, Clone)]
pub struct WebhookSeries {
    pub(super) attempts: IntCounterVec,
}

impl WebhookSeries {
    pub(super) fn register(series: &Registrar) -> Result<Self, prometheus::Error> {
        let attempts = series.counters(
            "tollgate_webhook_attempts_total",
            "Attempts to send an event to a webhook, by result: ok; error, after which it is sent again; given_up, which the last \
             one also counts as.",
            &["webhook", "result"],
        )?;
        Ok(Self { attempts })
    }

    /// Counts an attempt.
    pub fn count(&self, webhook: &str, result: &str) {
        self.attempts.with_label_values(&[webhook, result]).inc();
    }
}
