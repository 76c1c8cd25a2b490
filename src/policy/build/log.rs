//! `[log]`.

use super::words::meaning;
use crate::config::Config;
use crate::policy::settings::Log;

/// The log of the process.
pub(super) fn log(config: &Config) -> Log {
    let Some(table) = &config.log else { return Log::default() };
    let table = table.get_ref();
    Log { format: meaning(table.format.as_ref()), level: meaning(table.level.as_ref()) }
}
