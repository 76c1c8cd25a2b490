//! Classes of errors of calls, for metrics and for the circuit breaker.

use redis::{ErrorKind, RedisError};

/// Class of the error of a call to Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// The connection is lost, or was never made.
    Connection,
    /// The server is a replica.
    ReadOnly,
    /// The server is reading its data from disk.
    Loading,
    /// The server requires a password, or another one.
    Auth,
    /// The user may not run a command, or not with these keys.
    NoPermission,
    /// The server has no memory left for writes.
    OutOfMemory,
    /// A script runs for too long.
    Busy,
    /// The server takes no writes: its disk fails, or replicas are missing.
    Misconfigured,
    /// The server is a replica that has lost its master.
    MasterDown,
    /// The reply violates the protocol.
    Parse,
    /// A key holds another type of value than a bucket.
    WrongType,
    /// The server does not know the script: it has to be sent.
    NoScript,
    /// The server ran the call after the time until which it may run. It has changed nothing.
    Expired,
    /// The server is part of a cluster and does not own the keys.
    Cluster,
    /// Any other error that the server reports; most often from within the script.
    Script,
}

impl ErrorClass {
    /// Value of the label `result` of `tollgate_redis_calls_total`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::ReadOnly => "readonly",
            Self::Loading => "loading",
            Self::Auth => "auth",
            Self::NoPermission => "noperm",
            Self::OutOfMemory => "oom",
            Self::Busy => "busy",
            Self::Misconfigured => "misconf",
            Self::MasterDown => "masterdown",
            Self::Parse => "parse",
            Self::WrongType => "wrongtype",
            Self::NoScript => "noscript",
            Self::Expired => "expired",
            Self::Cluster => "cluster",
            Self::Script => "script",
        }
    }

    /// Advice for the operator, to append to the server's text; empty if that text is sufficient.
    pub fn help(self) -> &'static str {
        match self {
            Self::NoPermission => "; checks of all rules need `+eval +evalsha +time +get +set`",
            Self::Expired => {
                "; it came after its time, twice: Redis is slow, or its clock was stepped"
            }
            Self::Cluster => {
                "; the server belongs to a Redis Cluster: use `redis+cluster://` in `redis.url`"
            }
            _ => "",
        }
    }

    /// Whether the call has certainly changed nothing in Redis.
    pub fn is_without_effect(self) -> bool {
        !matches!(self, Self::Connection | Self::Parse)
    }

    /// Whether a new connection may help: it may reach another server, or the server after it
    /// recovered.
    pub fn asks_for_another_connection(self) -> bool {
        match self {
            Self::Connection
            | Self::ReadOnly
            | Self::Loading
            | Self::Auth
            | Self::MasterDown
            | Self::Parse => true,
            Self::NoPermission
            | Self::OutOfMemory
            | Self::Busy
            | Self::Misconfigured
            | Self::WrongType
            | Self::NoScript
            | Self::Expired
            | Self::Cluster
            | Self::Script => false,
        }
    }
}

/// Class of the error of a call.
pub fn classify(error: &RedisError) -> ErrorClass {
    match error.kind() {
        ErrorKind::Io => ErrorClass::Connection,
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => ErrorClass::Parse,
        ErrorKind::AuthenticationFailed => ErrorClass::Auth,
        _ => of_reply(error.code().unwrap_or("ERR"), error.detail().unwrap_or("")),
    }
}

/// Class of an error reply: `code` is its first word, `detail` the rest.
fn of_reply(code: &str, detail: &str) -> ErrorClass {
    of_code(code).unwrap_or_else(|| {
        // Servers before 7.0 wrap an error from within a script into a text of their own.
        let inner = || detail.split([' ', ':']).filter_map(|word| word.strip_prefix('-'));
        let says = |texts: &[&str]| texts.iter().any(|text| detail.contains(text));
        if says(&["max number of clients"]) {
            ErrorClass::Connection
        } else if says(&["can't run this command", "can't access", "ACL failure", "permissions"]) {
            ErrorClass::NoPermission
        } else if says(&["without any password configured", "invalid password"]) {
            ErrorClass::Auth
        } else {
            inner().find_map(of_code).unwrap_or(ErrorClass::Script)
        }
    })
}

/// Class that follows from the first word of an error.
fn of_code(code: &str) -> Option<ErrorClass> {
    Some(match code {
        "READONLY" => ErrorClass::ReadOnly,
        "LOADING" => ErrorClass::Loading,
        "NOAUTH" | "WRONGPASS" | "DENIED" => ErrorClass::Auth,
        "NOPERM" => ErrorClass::NoPermission,
        "OOM" => ErrorClass::OutOfMemory,
        "BUSY" => ErrorClass::Busy,
        "MISCONF" | "NOREPLICAS" => ErrorClass::Misconfigured,
        "MASTERDOWN" => ErrorClass::MasterDown,
        "WRONGTYPE" => ErrorClass::WrongType,
        "NOSCRIPT" => ErrorClass::NoScript,
        "EXPIRED" => ErrorClass::Expired,
        "MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" | "CROSSSLOT" => ErrorClass::Cluster,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::error_text::Secrets;

    #[test]
    fn error_replies_are_classified() {
        let table = [
            ("-READONLY You can't write against a read only replica.", ErrorClass::ReadOnly),
            ("-LOADING Redis is loading the dataset in memory", ErrorClass::Loading),
            ("-NOAUTH Authentication required.", ErrorClass::Auth),
            ("-WRONGPASS invalid username-password pair or user is disabled.", ErrorClass::Auth),
            ("-DENIED Redis is running in protected mode", ErrorClass::Auth),
            ("-ERR AUTH <password> called without any password configured", ErrorClass::Auth),
            ("-NOPERM User x has no permissions to run 'get'", ErrorClass::NoPermission),
            ("-ERR The user executing the script can't run this command", ErrorClass::NoPermission),
            ("-OOM command not allowed when used memory > 'maxmemory'.", ErrorClass::OutOfMemory),
            ("-BUSY Redis is busy running a script.", ErrorClass::Busy),
            ("-MISCONF Redis is configured to save RDB snapshots", ErrorClass::Misconfigured),
            ("-NOREPLICAS Not enough good replicas to write.", ErrorClass::Misconfigured),
            ("-MASTERDOWN Link with MASTER is down", ErrorClass::MasterDown),
            ("-WRONGTYPE Operation against a key", ErrorClass::WrongType),
            ("-NOSCRIPT No matching script.", ErrorClass::NoScript),
            ("-EXPIRED 1795278840000000", ErrorClass::Expired),
            ("-MOVED 1 127.0.0.1:7000", ErrorClass::Cluster),
            ("-ERR max number of clients reached", ErrorClass::Connection),
            ("-ERR Error running script (call to f_0): @user_script:1: -OOM x", {
                ErrorClass::OutOfMemory
            }),
            ("-ERR Error running script: @user_script: 1: -READONLY x", ErrorClass::ReadOnly),
            ("-ERR user_script:1: attempt to index nil", ErrorClass::Script),
            ("-X", ErrorClass::Script),
        ];
        for (reply, class) in table {
            let value = redis::parse_redis_value(format!("{reply}\r\n").as_bytes()).unwrap();
            let error = value.extract_error().unwrap_err();
            assert_eq!(classify(&error), class, "{reply}");
            let shown = Secrets::default().describe(&error);
            assert!(shown.contains(reply[1..].split(' ').next().unwrap()), "{reply}");
        }
        let garbage = redis::parse_redis_value(b"%garbage\r\n").unwrap_err();
        assert_eq!(classify(&garbage), ErrorClass::Parse);
        let cut = RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(classify(&cut), ErrorClass::Connection);
    }
}
