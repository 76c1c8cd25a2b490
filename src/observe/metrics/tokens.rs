//! Series of the keys of token issuers.

use prometheus::{IntCounterVec, IntGaugeVec, Opts};

use super::Registrar;

/// The keys of each issuer, and how their fetches went.
pub struct TokenSeries {
    keys: IntGaugeVec,
    fetches: IntCounterVec,
}

/// How the fetches of an issuer's keys went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenKeys<'a> {
    pub issuer: &'a str,
    /// Number of keys that tokens are verified with.
    pub keys: usize,
    /// Fetches that succeeded.
    pub fetched: u64,
    /// Fetches that failed.
    pub failed: u64,
}

impl TokenSeries {
    pub(super) fn register(series: &Registrar) -> Result<Self, prometheus::Error> {
        Ok(Self {
            keys: series.keep(IntGaugeVec::new(
                Opts::new(
                    "tollgate_token_keys",
                    "Keys that tokens of the issuer are verified with; 0 until they have been fetched.",
                ),
                &["issuer"],
            )?)?,
            fetches: series.counters(
                "tollgate_token_key_fetches_total",
                "Fetches of the keys of a token issuer by result: ok, failed (the keys stay in use).",
                &["issuer", "result"],
            )?,
        })
    }

    /// Replaces the series by those of these issuers.
    pub fn show<'a>(&self, issuers: impl Iterator<Item = TokenKeys<'a>>) {
        self.keys.reset();
        self.fetches.reset();
        for TokenKeys { issuer, keys, fetched, failed } in issuers {
            self.keys.with_label_values(&[issuer]).set(i64::try_from(keys).unwrap_or(i64::MAX));
            self.fetches.with_label_values(&[issuer, "ok"]).inc_by(fetched);
            self.fetches.with_label_values(&[issuer, "failed"]).inc_by(failed);
        }
    }
}
