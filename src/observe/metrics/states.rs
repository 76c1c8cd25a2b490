//! Series of the state of rules, which are set when they are rendered.

use std::collections::HashMap;

use prometheus::{GaugeVec, IntGaugeVec, Opts};

use super::registrar::Registrar;

/// What rules do at the moment.
pub struct RuleStates {
    /// Shares of adaptive rates, by rule.
    adaptive_rates: GaugeVec,
    /// Bans in force, by rule.
    bans: IntGaugeVec,
}

impl RuleStates {
    pub(super) fn register(series: &Registrar) -> Result<Self, prometheus::Error> {
        let help = "Clients that the rule has banned, on all gateways with the same Redis, as far as this one knows.";
        let bans = series.keep(IntGaugeVec::new(Opts::new("tollgate_bans", help), &["rule"])?)?;
        let help = "Share of its rate that a rule with `adapt` has now, from 0.01 to 1.";
        let options = Opts::new("tollgate_adaptive_rate", help);
        let adaptive_rates = series.keep(GaugeVec::new(options, &["rule"])?)?;
        Ok(Self { adaptive_rates, bans })
    }

    /// Shows which shares of their rates, in thousandths, rules have now that adapt.
    pub fn show_rates<'a>(&self, shares: impl Iterator<Item = (&'a str, u16)>) {
        self.adaptive_rates.reset();
        for (rule, share) in shares {
            self.adaptive_rates.with_label_values(&[rule]).set(f64::from(share) / 1_000.0);
        }
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
