//! `[usage]`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::environment::{Environment, expand_path};
use super::values::{duration_up_to, number};
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::{Config, tables};
use crate::policy::settings::Usage;

const DAY_MS: u64 = 86_400_000;

/// Default of `keep`, in milliseconds: three months.
const KEEP_MS: u64 = 100 * DAY_MS;

/// Maximum of `keep`, in milliseconds and as in the file: ten years.
const MAX_KEEP: (u64, &str) = (3_660 * DAY_MS, "3660d");

/// Default of `max_records` in a file: some 3 GB.
const MAX_RECORDS: u64 = 10_000_000;

/// Default of `max_records` in Redis: some 200 MB.
const MAX_RECORDS_IN_REDIS: u64 = 1_000_000;

const RECORDS: RangeInclusive<u64> = 1_000..=1_000_000_000;

/// Builds the settings of `[usage]`; none if one of them has an error.
pub(super) fn usage(
    config: &Config,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Usage> {
    let default = tables::Usage::default();
    let usage = config.usage.as_ref().map_or(&default, |usage| usage.get_ref());
    let keep = duration_up_to(MAX_KEEP, "keep", usage.keep.as_ref(), KEEP_MS, diagnostics);
    let keep = keep.filter(|keep| {
        let is_long_enough = keep.as_millis() >= u128::from(DAY_MS);
        if let (false, Some(field)) = (is_long_enough, &usage.keep) {
            let diagnostic = Diagnostic::new(field.span(), "`keep` is too short".to_owned());
            diagnostics.push(diagnostic.help("the shortest is `1d`".to_owned()));
        }
        is_long_enough
    });
    let most = if config.redis.is_some() { MAX_RECORDS_IN_REDIS } else { MAX_RECORDS };
    let max_records =
        number("max_records", usage.max_records.as_ref(), most, RECORDS, diagnostics)?;
    let max_records = u64::try_from(max_records).unwrap_or(u64::MAX);
    let Some(field) = &usage.file else {
        return Some(Usage { file: None, keep: keep?, max_records });
    };
    let path = expand_path(field, environment, diagnostics)?;
    if path.is_empty() {
        let diagnostic = Diagnostic::new(field.span(), "`file` is empty".to_owned());
        diagnostics.push(diagnostic.help("write a path, such as `/var/lib/tollgate/usage.redb`"));
        return None;
    }
    if config.redis.is_some() {
        let message =
            "`file` has no effect with `[redis]`, where counts and usage of quotas are kept";
        let help = "remove it; `GET /api/usage` lists what is in Redis";
        diagnostics.push(Diagnostic::warning(field.span(), message.to_owned()).help(help));
        return Some(Usage { file: None, keep: keep?, max_records });
    }
    Some(Usage { file: Some(PathBuf::from(path)), keep: keep?, max_records })
}
