//! Name look-ups.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::address::{HostPort, Origin};
use super::{dns, io_text};

/// Looks up the addresses of a server. Tests replace the system's resolver.
pub type Resolver = Arc<dyn Fn(&HostPort) -> Addresses + Send + Sync>;

/// A look-up in progress.
pub type Addresses = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Looks up the addresses of a server, with the time for which they are valid. The name servers are
/// the second argument; empty: those of the system.
pub type Names = Arc<dyn Fn(&Origin, &[SocketAddr]) -> Answering + Send + Sync>;

/// Such a look-up in progress.
pub type Answering = Pin<Box<dyn Future<Output = Result<Answer, LookupError>> + Send>>;

/// What a look-up found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    pub found: Vec<Found>,
    /// For how long that is valid; `None`: the source does not tell.
    pub ttl: Option<Duration>,
    /// Hosts and families whose look-up has failed, although others have succeeded: what was known
    /// of them stays valid.
    pub failed: Vec<(Arc<str>, Family)>,
    /// Why one of `failed` did.
    pub error: Option<String>,
}

/// An address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub address: SocketAddr,
    /// The name that has the address: that of the server, or of the target of a SRV record.
    pub host: Arc<str>,
    /// Priority of the SRV record: the lowest is used first. 0 without one.
    pub priority: u16,
    /// Weight of the SRV record. 0 without one.
    pub weight: u16,
}

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

/// Why a look-up found nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupError {
    /// The name does not exist, or it has no such record.
    Absent(String),
    /// It is not known whether it does: no name server has answered, or one has failed.
    Failed(String),
}

impl Family {
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    pub fn of(address: SocketAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

impl Answer {
    /// Adds that of another name.
    pub(super) fn add(&mut self, other: Self) {
        self.found.extend(other.found);
        self.failed.extend(other.failed);
        self.error = self.error.take().or(other.error);
        self.ttl = self.ttl.into_iter().chain(other.ttl).min();
    }
}

/// Returns the resolver of the system: `/etc/hosts`, DNS, and what else it is configured for.
pub fn system_resolver() -> Resolver {
    Arc::new(|server| {
        let HostPort { host, port } = server.clone();
        Box::pin(async move { Ok(tokio::net::lookup_host((host.as_str(), port)).await?.collect()) })
    })
}

/// Returns look-ups by DNS. Names that `/etc/hosts` has, and `localhost`, are those of the system;
/// so are all names if no name server is known, and one that DNS does not have, unless the name
/// servers are given.
pub fn names() -> Names {
    Arc::new(|origin, servers| {
        let (origin, servers) = (origin.clone(), servers.to_vec());
        Box::pin(async move {
            let server = match &origin {
                Origin::Service(name) => return dns::service(name, &servers).await,
                Origin::Host(server) => server,
            };
            let has_dns = || !servers.is_empty() || dns::has_name_server();
            if is_local(&server.host) || !has_dns() {
                // The system does not find local names with the dot at the end of a whole name.
                let host = server.host.trim_end_matches('.').to_owned();
                return by_system(&HostPort { host, port: server.port }).await;
            }
            match dns::host(server, &servers).await {
                Err(LookupError::Absent(why)) if servers.is_empty() => {
                    // Its own error says no more.
                    by_system(server).await.map_err(|_| LookupError::Absent(why))
                }
                ended => ended,
            }
        })
    })
}

async fn by_system(server: &HostPort) -> Result<Answer, LookupError> {
    let found = tokio::net::lookup_host((server.host.as_str(), server.port)).await;
    let found = found.map_err(|error| LookupError::Failed(io_text::plain(&error)))?;
    let host: Arc<str> = server.host.as_str().into();
    let found =
        found.map(|address| Found { address, host: Arc::clone(&host), priority: 0, weight: 0 });
    Ok(Answer { found: found.collect(), ..Answer::default() })
}

/// Whether `/etc/hosts` has this name, or it is one of this machine by RFC 6761.
fn is_local(host: &str) -> bool {
    let host = host.trim_end_matches('.');
    if host.eq_ignore_ascii_case("localhost") || host.ends_with(".localhost") {
        return true;
    }
    std::fs::read_to_string("/etc/hosts").is_ok_and(|hosts| has_host(&hosts, host))
}

fn has_host(hosts: &str, host: &str) -> bool {
    hosts.lines().any(|line| {
        let line = line.split('#').next().unwrap_or_default();
        line.split_whitespace().skip(1).any(|name| name.eq_ignore_ascii_case(host))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn local_name_with_a_final_dot_is_found() {
        let server = HostPort { host: "localhost.".to_owned(), port: 1 };
        let answer = names()(&Origin::Host(server), &[]).await.unwrap();
        assert!(answer.found.iter().all(|found| found.address.ip().is_loopback()));
        assert!(!answer.found.is_empty());
    }

    #[test]
    fn names_of_the_hosts_file_are_found_in_any_case_but_not_in_comments() {
        let hosts = "127.0.0.1 localhost\n10.0.0.1\tApi.lan api # old.lan\n# 10.0.0.2 no.lan\n";
        for (host, expected) in [
            ("api.lan", true),
            ("api", true),
            ("old.lan", false),
            ("no.lan", false),
            ("10.0.0.1", false),
        ] {
            assert_eq!(has_host(hosts, host), expected, "{host}");
        }
    }
}
