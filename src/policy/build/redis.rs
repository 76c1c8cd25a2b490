//! `[redis]`, which this version cannot serve yet. Goes away with the shared store.

use crate::config::Config;
use crate::config::mistake::{Mistake, Mistakes};

/// A file that asks for shared buckets must not be served with separate ones: every gateway would
/// grant the whole limit.
pub(super) fn refuse(config: &Config, mistakes: &mut Mistakes) {
    if let Some(redis) = &config.redis {
        mistakes.push(
            Mistake::new(
                redis.span(),
                "this version has no shared store: buckets live in this process",
            )
            .help("leave the table `[redis]` out"),
        );
    }
}
