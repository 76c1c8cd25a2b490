//! Warns that a restart loses the counts of a quota or of a sliding window: of an hour or longer,
//! without `[redis]` and without `usage.file`.

use crate::config::Config;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::policy::build::rules::Rules;

/// Adds one warning, at the first such limit of an enabled rule.
pub(super) fn add(config: &Config, rules: &Rules, diagnostics: &mut Diagnostics) {
    let has_file = config.usage.as_ref().is_some_and(|usage| usage.get_ref().file.is_some());
    if config.redis.is_some() || has_file {
        return;
    }
    let enabled = rules.with_grants().filter(|(rule, _)| rule.enabled);
    let mut quotas = enabled.filter_map(|(rule, grants)| {
        let quota = grants.iter().find(|one| one.grant.limit.counts_for_hours())?;
        Some((rule, quota))
    });
    let Some((rule, quota)) = quotas.next() else { return };
    let more = match quotas.count() {
        0 => String::new(),
        1 => " and another rule".to_owned(),
        more => format!(" and {more} other rules"),
    };
    let message = format!(
        "a restart loses the counts of `{}`{more}: they are in the memory of this process",
        rule.name
    );
    let help = "write `file = \"usage.redb\"` under `[usage]`, or count in `[redis]`";
    diagnostics.push(Diagnostic::warning(quota.span.clone(), message).help(help));
}
