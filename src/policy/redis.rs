//! `[redis]` as it is meant: where the shared store is, and how it is spoken to.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::OnFailure;
use crate::limit::breaker;
use crate::net::address::HostPort;
use crate::net::tls::ClientTls;

/// What every key begins with, where the file says nothing.
pub const DEFAULT_PREFIX: &str = "tollgate:";

/// The shared store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redis {
    /// Where it is.
    pub place: Place,
    /// How the connection is encrypted, to Redis and to sentinels alike; none: it is not.
    pub tls: Option<ClientTls>,
    /// Who the gateway is to Redis.
    pub login: Login,
    /// The database's number.
    pub database: u32,
    /// The most that one check may wait, 1 ms to 1 s.
    pub timeout: Duration,
    /// What becomes of requests when it fails, where a rule says nothing.
    pub on_failure: OnFailure,
    /// What every key begins with: 1 to 64 visible ASCII characters without braces.
    pub prefix: String,
    /// What `/ready` says while it fails.
    pub ready: Ready,
    /// What buckets hold until it is reached for the first time.
    pub start_without: StartWithout,
    /// When requests stop waiting for it, and how they return.
    pub breaker: breaker::Settings,
}

impl Redis {
    /// Whether a gateway without it is not ready.
    pub fn is_needed(&self) -> bool {
        self.ready == Ready::Connected
    }
}

/// What `/ready` says while Redis fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ready {
    /// 200 all the same: requests are still answered.
    #[default]
    Always,
    /// 503: a load balancer is to prefer gateways that reach Redis.
    Connected,
}

/// What buckets hold in a gateway that has not reached Redis since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StartWithout {
    /// Nothing: they fill from the start on. Restarts during an outage grant no bursts.
    #[default]
    Empty,
    /// The gateway's share of a full bucket: each restart during an outage grants it again.
    Full,
}

/// Where Redis is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// One server. Its name is looked up for every new connection.
    Server(HostPort),
    /// Whichever server the sentinels call the master.
    Sentinel(Sentinel),
    /// A Unix socket.
    Socket(PathBuf),
}

/// The sentinels, and what they watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sentinel {
    /// Whom to ask, in this order; at least one.
    pub servers: Vec<HostPort>,
    /// The master's name with the sentinels.
    pub master: String,
    /// Who the gateway is to the sentinels.
    pub login: Login,
}

/// A user and a password.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Login {
    /// An ACL user; none: the default user. Never without a password.
    pub username: Option<String>,
    /// The password; none: nobody logs in.
    pub password: Option<Secret>,
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides `text`.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself, for whom it is meant.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

impl fmt::Display for Place {
    /// For logs: an address, without user and password.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(origin) => write!(formatter, "{origin}"),
            Self::Sentinel(sentinel) => {
                write!(formatter, "the master `{}` of ", sentinel.master)?;
                for (at, server) in sentinel.servers.iter().enumerate() {
                    write!(formatter, "{}{server}", if at == 0 { "" } else { "," })?;
                }
                Ok(())
            }
            Self::Socket(path) => write!(formatter, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_in_no_form() {
        let secret = Secret::new("hunter2".to_owned());
        let login = Login { username: None, password: Some(secret.clone()) };
        assert_eq!(format!("{secret} {secret:?} {login:?}").matches("hunter2").count(), 0);
        assert_eq!(secret.reveal(), "hunter2");
    }
}
