//! The limit of open files, of which every connection needs one.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use thiserror::Error;

/// Descriptors of a share of the limit that are kept for upstream connections, logs and files: a
/// tenth, at least this number.
const LEAST_RESERVE: u64 = 64;

/// Least limit of open files to start with. The threads of the process need some 45 of them, more
/// with further listeners.
const LEAST_LIMIT: u64 = 128;

/// Error: the limit of open files is below [`LEAST_LIMIT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the limit of {limit} open files is too low: at least {LEAST_LIMIT} are needed; raise the hard limit (LimitNOFILE \
     of systemd, ulimit -Hn)"
)]
pub struct LimitTooLow {
    /// Limit in force.
    limit: u64,
}

/// Raises the soft limit of open files to the hard limit, which needs no privilege. Returns the
/// limit in force; `None` if there is none or the system does not say.
///
/// # Errors
/// If the limit is too low to start with.
pub fn raise_limit() -> Result<Option<u64>, LimitTooLow> {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Ok(None) };
    // The soft limit of old programs is low because of select(2), which is not used here.
    let is_raised = soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    let limit = if is_raised { hard } else { soft };
    if limit < LEAST_LIMIT { Err(LimitTooLow { limit }) } else { Ok(Some(limit)) }
}

/// The number of open descriptors of the process, and their limit; `None` if the system does not
/// say, as Linux before 6.2.
pub(super) fn usage() -> Option<(u64, u64)> {
    // Counting the entries of the folder instead would take milliseconds with many connections.
    let open = std::fs::metadata("/proc/self/fd").ok()?.len();
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    (open > 0).then_some((open, limit))
}

/// Client connections that a limit of open files allows: nine tenths of it, less for a small limit.
pub fn most_connections(limit: u64) -> usize {
    let reserve = (limit / 10).max(LEAST_RESERVE.min(limit / 2));
    usize::try_from(limit - reserve).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_is_a_tenth_and_at_least_64_or_half() {
        let table = [
            (0, 1),
            (1, 1),
            (20, 10),
            (100, 50),
            (128, 64),
            (256, 192),
            (1024, 922),
            (20_000, 18_000),
            (1_048_576, 943_719),
        ];
        for (limit, expected) in table {
            assert_eq!(most_connections(limit), expected, "{limit}");
        }
    }
}
