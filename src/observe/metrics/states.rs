//! Series of the state of rules, which are set when they are rendered.

use std::collections::HashMap;

use prometheus::{IntGaugeVec, Opts};

use super::registrar::Registrar;

/// What rules do at the moment.
pub struct RuleStates {
    /// Bans in force, by rule.
    bans: IntGaugeVec,
}

impl RuleStates {
    pub(super) fn register(series: &Registrar) -> Result<Self, prometheus::Error> {
        let help = "Clients that the rule has banned, on all gateways with the same Redis, as far as this one knows.";
        let bans = series.keep(IntGaugeVec::new(Opts::new("tollgate_bans", help), &["rule"])?)?;
        Ok(Self { bans })
    }

    /// Shows the number of bans in force of these rules.
    pub fn show_bans<'a>(
        &self,
        rules: impl Iterator<Item = &'a str>,
        counts: &HashMap<String, u64>,
    ) {
        self.bans.reset();
        for rule in rules {
            let count = counts.get(rule).copied().unwrap_or_default();
            self.bans.with_label_values(&[rule]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}
