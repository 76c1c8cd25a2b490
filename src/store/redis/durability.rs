//! Whether a Redis server keeps what it stores: for quotas, whose counts do not come back.

use redis::aio::ConnectionLike;
use tracing::{info, warn};

/// What makes a server lose counts, from its reply to `INFO`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Durability {
    /// It does not write an append-only file, so a restart loses counts.
    pub forgets_at_restart: bool,
    /// It has a maximum of memory, and removes keys that expire when it is reached.
    pub evicts: bool,
}

impl Durability {
    /// Reads a reply to `INFO`; `None` if it does not say.
    pub fn of_info(info: &str) -> Option<Self> {
        let field = |name: &str| {
            info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        let (persists, policy) = (field("aof_enabled")?, field("maxmemory_policy")?);
        let is_bounded = field("maxmemory").is_some_and(|bytes| bytes != "0");
        Some(Self {
            forgets_at_restart: persists == "0",
            evicts: is_bounded && policy != "noeviction",
        })
    }

    /// What the server does not do for quotas, and the settings that mend it; empty if nothing.
    pub fn lacks(self) -> Vec<(&'static str, &'static str)> {
        let each = [
            (
                self.forgets_at_restart,
                ("it writes no append-only file, so a restart loses them", "appendonly yes"),
            ),
            (
                self.evicts,
                ("it removes keys when its memory is full", "maxmemory-policy noeviction"),
            ),
        ];
        each.into_iter().filter(|(lacks, _)| *lacks).map(|(_, words)| words).collect()
    }
}

/// Asks a server. `None` if it does not say, as without the right to run `INFO`.
pub async fn ask(redis: &mut impl ConnectionLike) -> Option<Durability> {
    let info: String = redis::cmd("INFO").query_async(redis).await.ok()?;
    Durability::of_info(&info)
}

/// Logs what a server does not do for quotas; `None` if it does not say.
pub fn log(found: Option<Durability>) {
    let Some(found) = found else {
        info!("unknown whether Redis keeps the counts of quotas: the gateway may not run INFO");
        return;
    };
    for (why, setting) in found.lacks() {
        warn!("Redis may lose the counts of quotas: {why}; set `{setting}` there");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lacks_follow_from_the_reply_to_info() {
        let info = |aof, max, policy| {
            format!(
                "# Memory\r\nused_memory:9\r\nmaxmemory:{max}\r\nmaxmemory_human:0B\r\n\
                 maxmemory_policy:{policy}\r\n\r\n# Persistence\r\naof_enabled:{aof}\r\n"
            )
        };
        // (append-only file, maximum of memory, policy) -> (forgets, evicts)
        let table = [
            ((0, 0, "noeviction"), (true, false)),
            ((1, 0, "noeviction"), (false, false)),
            ((1, 0, "allkeys-lru"), (false, false)),
            ((1, 1_000, "noeviction"), (false, false)),
            ((1, 1_000, "volatile-ttl"), (false, true)),
            ((0, 1_000, "allkeys-lru"), (true, true)),
        ];
        for ((aof, max, policy), (forgets_at_restart, evicts)) in table {
            let found = Durability::of_info(&info(aof, max, policy));
            let expected = Durability { forgets_at_restart, evicts };
            assert_eq!(found, Some(expected), "{aof} {max} {policy}");
            let count = usize::from(forgets_at_restart) + usize::from(evicts);
            assert_eq!(expected.lacks().len(), count);
        }
        assert_eq!(Durability::of_info("# Server\r\nredis_version:7.0\r\n"), None);
    }
}
