//! Warns of a `lease` without effect: without `[redis]`, there is nothing to borrow from, and a
//! rule in shadow mode never borrows.

use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::{Config, in_order};
use crate::limit::charge::Mode;
use crate::policy::{Lease, Rule};

/// Adds the warning, at the `lease` of each enabled rule.
pub(super) fn add(config: &Config, rules: &[Rule], diagnostics: &mut Diagnostics) {
    for (rule, (_, table)) in rules.iter().zip(in_order(&config.rules)) {
        if !rule.enabled || rule.lease == Lease::Off {
            continue;
        }
        let (message, help) = if config.redis.is_none() {
            ("`lease` has no effect without `[redis]`", "take it out: no check makes a call")
        } else if rule.mode == Mode::Shadow {
            (
                "`lease` has no effect in shadow mode",
                "keep it if the rule will be enforced: until then, each of its requests asks Redis",
            )
        } else {
            continue;
        };
        let place = table.get_ref().lease.as_ref().map_or(0..0, Spanned::span);
        diagnostics.push(Diagnostic::warning(place, message).help(help));
    }
}
