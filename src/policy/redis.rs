//! `[redis]`, resolved: address, TLS, credentials and failure handling.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::OnFailure;
use crate::config::tables;
pub use crate::config::words::{Colocate, Ready, StartWithout};
use crate::limit::breaker;
use crate::net::address::HostPort;
use crate::net::tls::ClientTls;

/// Default of [`Redis::prefix`], also shown in bucket keys without `[redis]`.
pub const DEFAULT_PREFIX: &str = match tables::Redis::prefix.text() {
    Some(prefix) => prefix,
    None => "",
};

/// The shared bucket store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redis {
    /// Address of the server, of the sentinels or of a cluster.
    pub address: Address,
    /// TLS settings for Redis and for sentinels; `None`: plain TCP.
    pub tls: Option<ClientTls>,
    /// User and password for Redis.
    pub login: Login,
    /// Number of the database.
    pub database: u32,
    /// Maximum time that one check waits.
    pub timeout: Duration,
    /// [`Rule::on_failure`](super::Rule::on_failure) of rules that do not set it.
    pub on_failure: OnFailure,
    /// Prefix of every key in Redis: visible ASCII characters without braces.
    pub prefix: String,
    /// Number of hash tags of the buckets in a cluster, at least 1; `None`: each client has its
    /// own.
    pub lanes: Option<u16>,
    /// Which buckets of a cluster have a common hash tag. Without a cluster, [`Colocate::Off`].
    pub colocate: Colocate,
    /// Whether a replica that takes over is repaired by what gateways saw. Without sentinels or a
    /// cluster, without effect.
    pub repair: bool,
    /// Response of `/ready` while Redis is unavailable.
    pub ready: Ready,
    /// Initial level of buckets if Redis is unavailable when the gateway starts.
    pub start_without: StartWithout,
    /// Parameters of the circuit breaker.
    pub breaker: breaker::Settings,
}

impl Redis {
    /// Whether a replica may take over, and is repaired then.
    pub fn has_repair(&self) -> bool {
        self.repair && matches!(self.address, Address::Sentinel(_) | Address::Cluster(_))
    }

    /// Whether `/ready` responds 503 while Redis is unavailable.
    pub fn is_needed(&self) -> bool {
        self.ready == Ready::Connected
    }
}

/// How to find the server: by its address, by sentinels, or by a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// One server. Its name is resolved for every new connection.
    Server(HostPort),
    /// The current master according to the sentinels.
    Sentinel(Sentinel),
    /// Absolute path of a Unix socket.
    Socket(PathBuf),
    /// Some nodes of a Redis Cluster, queried in this order for the others; at least one.
    Cluster(Vec<HostPort>),
}

/// Sentinels, and the master that they monitor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sentinel {
    /// Sentinels, queried in this order; at least one.
    pub servers: Vec<HostPort>,
    /// Name of the master in the sentinels' configuration.
    pub master: String,
    /// User and password for the sentinels.
    pub login: Login,
}

/// A user and a password.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Login {
    /// ACL user; `None`: the default user. Requires a password.
    pub username: Option<String>,
    /// Password; `None`: no authentication.
    pub password: Option<Secret>,
}

/// Text that `Debug` and `Display` never show.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text so that it is not logged by mistake.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text, for authentication only.
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

impl fmt::Display for Address {
    /// For logs: without user and password.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(origin) => write!(formatter, "{origin}"),
            Self::Sentinel(sentinel) => {
                write!(formatter, "the master `{}` of ", sentinel.master)?;
                write_list(formatter, &sentinel.servers)
            }
            Self::Socket(path) => write!(formatter, "{}", path.display()),
            Self::Cluster(nodes) => {
                write!(formatter, "the cluster of ")?;
                write_list(formatter, nodes)
            }
        }
    }
}

fn write_list(formatter: &mut fmt::Formatter<'_>, servers: &[HostPort]) -> fmt::Result {
    for (at, server) in servers.iter().enumerate() {
        write!(formatter, "{}{server}", if at == 0 { "" } else { "," })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_not_shown_by_debug_or_display() {
        let secret = Secret::new("hunter2".to_owned());
        let login = Login { username: None, password: Some(secret.clone()) };
        assert_eq!(format!("{secret} {secret:?} {login:?}").matches("hunter2").count(), 0);
        assert_eq!(secret.reveal(), "hunter2");
    }
}
