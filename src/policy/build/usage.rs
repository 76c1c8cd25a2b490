//! `[usage]`.

use std::path::PathBuf;

use super::environment::{Environment, expand};
use super::values::{duration, number_in};
use super::webhooks::webhooks;
use super::words::meaning;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::{Config, tables};
use crate::policy::settings::{Detail, Usage};

/// Default of `max_records` in a file: some 3 GB.
const MAX_RECORDS: u64 = 10_000_000;

/// Default of `max_records` in Redis: some 200 MB.
const MAX_RECORDS_IN_REDIS: u64 = 1_000_000;

/// Builds the settings of `[usage]`; none if one of them has an error.
pub(super) fn usage(
    config: &Config,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Usage> {
    let default = tables::Usage::default();
    let usage = config.usage.as_ref().map_or(&default, |usage| usage.get_ref());
    let webhooks = webhooks(config, environment, diagnostics);
    let keep = duration(&tables::Usage::keep, &usage.keep, diagnostics);
    let max_records = match &usage.max_records {
        None if config.redis.is_some() => MAX_RECORDS_IN_REDIS,
        None => MAX_RECORDS,
        Some(field) => number_in(&tables::Usage::max_records, field, diagnostics)?,
    };
    let max_details = match &usage.max_details {
        None if config.redis.is_some() => MAX_RECORDS_IN_REDIS,
        None => MAX_RECORDS,
        Some(field) => number_in(&tables::Usage::max_details, field, diagnostics)?,
    };
    let detail = meaning(usage.detail.as_ref());
    let without_file =
        keep.map(|keep| Usage { file: None, keep, max_records, detail, max_details, webhooks });
    let Some(field) = &usage.file else {
        if let Some(field) = &usage.detail
            && config.redis.is_none()
            && detail != Detail::Off
        {
            let message = "`detail` has no effect without `[redis]` and without `file`";
            let help = "add `file = \"/var/lib/tollgate/usage.redb\"`, in which usage is kept";
            diagnostics.push(Diagnostic::warning(field.span(), message.to_owned()).help(help));
        }
        return without_file;
    };
    let path = expand(&tables::Usage::file, field, environment, diagnostics)?;
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
        return without_file;
    }
    Some(Usage { file: Some(PathBuf::from(path)), ..without_file? })
}
