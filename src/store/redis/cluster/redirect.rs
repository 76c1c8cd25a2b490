//! Redirections: errors by which a node of a cluster says that another one has a slot. Pure.

use redis::RedisError;

/// A redirection. Nothing was executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redirect {
    /// The slot has moved to the node at this host and port.
    Moved {
        slot: u16,
        /// The host; empty if it is that of the node that was called.
        host: String,
        port: u16,
    },
    /// The slot is being moved, and these keys may be at the node at this host and port already.
    Ask {
        /// The host; empty if it is that of the node that was called.
        host: String,
        port: u16,
    },
    /// The slot is being moved, and some of the keys are at either node.
    TryAgain,
}

impl Redirect {
    /// The redirection that an error is; `None` if it is another error.
    pub fn of(error: &RedisError) -> Option<Self> {
        let code = error.code()?;
        if code == "TRYAGAIN" {
            return Some(Self::TryAgain);
        }
        let mut words = error.detail().unwrap_or("").split_ascii_whitespace();
        let (slot, at) = (words.next()?, words.next()?);
        // An IPv6 address has colons, too.
        let (host, port) = at.rsplit_once(':')?;
        let (host, port) = (host.to_owned(), port.parse().ok()?);
        match code {
            "MOVED" => Some(Self::Moved { slot: slot.parse().ok()?, host, port }),
            "ASK" => Some(Self::Ask { host, port }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(reply: &str) -> Option<Redirect> {
        let value = redis::parse_redis_value(format!("-{reply}\r\n").as_bytes()).unwrap();
        Redirect::of(&value.extract_error().unwrap_err())
    }

    #[test]
    fn redirections_are_read() {
        let host = || "127.0.0.1".to_owned();
        let table = [
            (
                "MOVED 3999 127.0.0.1:6381",
                Some(Redirect::Moved { slot: 3_999, host: host(), port: 6_381 }),
            ),
            ("ASK 3999 127.0.0.1:6381", Some(Redirect::Ask { host: host(), port: 6_381 })),
            (
                "MOVED 1 ::1:6381",
                Some(Redirect::Moved { slot: 1, host: "::1".to_owned(), port: 6_381 }),
            ),
            ("MOVED 1 :6381", Some(Redirect::Moved { slot: 1, host: String::new(), port: 6_381 })),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Some(Redirect::TryAgain)),
            ("CLUSTERDOWN Hash slot not served", None),
            ("CROSSSLOT Keys in request don't hash to the same slot", None),
            ("MOVED", None),
            ("MOVED x y:1", None),
            ("MOVED 1 127.0.0.1:99999", None),
            ("ERR x", None),
        ];
        for (reply, redirect) in table {
            assert_eq!(read(reply), redirect, "{reply}");
        }
    }
}
