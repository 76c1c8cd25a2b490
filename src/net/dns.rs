//! Look-ups of A, AAAA and SRV records, with their times to live.
//!
//! Each look-up reads `/etc/resolv.conf` anew, if that has the name servers, and keeps no
//! connection to one: look-ups run on several runtimes, and a connection ends with its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ProtocolConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use hickory_resolver::system_conf::read_system_conf;

use super::address::HostPort;
use super::lookup::{Answer, Family, Found, LookupError};

/// Maximum number of targets of a service that are looked up, in the order of the response.
const MAX_TARGETS: usize = 256;

/// Whether `/etc/resolv.conf` has a name server.
pub(super) fn has_name_server() -> bool {
    read_system_conf().is_ok()
}

/// Looks up the addresses of a host. `servers`: the name servers; empty: those of the system.
///
/// # Errors
/// There is none, or no name server has answered.
pub(super) async fn host(server: &HostPort, servers: &[SocketAddr]) -> Result<Answer, LookupError> {
    let resolver = Resolver::new(servers)?;
    let name: Arc<str> = server.host.as_str().into();
    resolver.addresses(&name).await.map(|addresses| addresses.answer(&name, server.port, (0, 0)))
}

/// Looks up the targets of a service, and their addresses.
///
/// # Errors
/// There is no target with an address, or no name server has answered.
pub(super) async fn service(name: &str, servers: &[SocketAddr]) -> Result<Answer, LookupError> {
    let resolver = Resolver::new(servers)?;
    let records = resolver.services(name).await?;
    let mut answer = Answer { ttl: Some(ttl(&records)), ..Answer::default() };
    let mut targets = Vec::new();
    for record in records.into_iter().take(MAX_TARGETS) {
        let RData::SRV(srv) = record.data else { continue };
        // The target `.` says that there is no such service; at port 0 nothing can be reached.
        if srv.target.is_root() || srv.port == 0 {
            continue;
        }
        let target: Arc<str> = srv.target.to_ascii().trim_end_matches('.').into();
        targets.push((target, srv.port, (srv.priority, srv.weight)));
    }
    let lookups = targets.iter().map(|(target, ..)| resolver.exact(Arc::clone(target)));
    let lookups = join_all(lookups).await;
    let has_targets = !targets.is_empty();
    for ((target, port, rank), found) in targets.into_iter().zip(lookups) {
        match found {
            Ok(addresses) => answer.add(addresses.answer(&target, port, rank)),
            Err(LookupError::Absent(_)) => {}
            Err(LookupError::Failed(error)) => {
                answer.failed.extend(Family::ALL.map(|family| (Arc::clone(&target), family)));
                answer.error = Some(format!("{target}: {error}"));
            }
        }
    }
    match &answer.error {
        Some(error) if answer.found.is_empty() => Err(LookupError::Failed(error.clone())),
        None if answer.found.is_empty() && has_targets => {
            Err(LookupError::Absent("no target of its SRV records has an address".to_owned()))
        }
        _ => Ok(answer),
    }
}

/// The addresses of one host.
struct Addresses {
    records: Vec<Record>,
    /// The family whose look-up has failed, and why.
    failed: Option<(Family, String)>,
}

impl Addresses {
    fn answer(self, host: &Arc<str>, port: u16, (priority, weight): (u16, u16)) -> Answer {
        let ttl = ttl(&self.records);
        let address = |record: Record| match record.data {
            RData::A(ip) => Some(SocketAddr::from((ip.0, port))),
            RData::AAAA(ip) => Some(SocketAddr::from((ip.0, port))),
            _ => None,
        };
        let found = self.records.into_iter().filter_map(address);
        let found =
            found.map(|address| Found { address, host: Arc::clone(host), priority, weight });
        let (failed, error) = self.failed.unzip();
        Answer {
            found: found.collect(),
            ttl: Some(ttl),
            failed: failed.map(|family| (Arc::clone(host), family)).into_iter().collect(),
            error,
        }
    }
}

/// The shortest time to live.
fn ttl(records: &[Record]) -> Duration {
    Duration::from_secs(records.iter().map(|record| record.ttl).min().unwrap_or(0).into())
}

/// The name servers, and the domains that names are searched in.
struct Resolver {
    dns: TokioResolver,
    search: Vec<Name>,
    ndots: usize,
}

impl Resolver {
    /// # Errors
    /// `/etc/resolv.conf` has no name server.
    fn new(servers: &[SocketAddr]) -> Result<Self, LookupError> {
        let (config, mut options) = if servers.is_empty() {
            read_system_conf().map_err(|error| LookupError::Failed(error.to_string()))?
        } else {
            let servers = servers.iter().map(name_server).collect();
            (ResolverConfig::from_name_servers(servers), ResolverOpts::default())
        };
        let (domain, search, servers) = config.into_parts();
        let search = if search.is_empty() { domain.into_iter().collect() } else { search };
        let ndots = options.ndots;
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Never;
        let config = ResolverConfig::from_name_servers(servers);
        let dns = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let dns = dns.with_options(options).build();
        let dns = dns.map_err(|error| LookupError::Failed(error.to_string()))?;
        Ok(Self { dns, search, ndots })
    }

    /// The addresses of a host, whose name is completed by the domains of `/etc/resolv.conf`.
    async fn addresses(&self, host: &str) -> Result<Addresses, LookupError> {
        let mut absent = None;
        for name in candidates(host, &self.search, self.ndots)? {
            let found = self.both_families(name).await;
            if let Some(ended) = first(found, &mut absent) {
                return ended;
            }
        }
        Err(LookupError::Absent(absent.unwrap_or_default()))
    }

    /// The SRV records of a name, completed in the same way.
    async fn services(&self, name: &str) -> Result<Vec<Record>, LookupError> {
        let mut absent = None;
        for name in candidates(name, &self.search, self.ndots)? {
            let found = self.records(name, RecordType::SRV).await;
            if let Some(ended) = first(found, &mut absent) {
                return ended;
            }
        }
        Err(LookupError::Absent(absent.unwrap_or_default()))
    }

    /// The addresses of a host with its whole name.
    async fn exact(&self, host: Arc<str>) -> Result<Addresses, LookupError> {
        self.both_families(absolute(&host)?).await
    }

    async fn both_families(&self, name: Name) -> Result<Addresses, LookupError> {
        let (v4, v6) = tokio::join!(
            self.records(name.clone(), RecordType::A),
            self.records(name, RecordType::AAAA)
        );
        let failed =
            |family, records, error| Ok(Addresses { records, failed: Some((family, error)) });
        match (v4, v6) {
            (Ok(mut v4), Ok(v6)) => {
                v4.extend(v6);
                Ok(Addresses { records: v4, failed: None })
            }
            (Ok(records), Err(LookupError::Failed(error))) => failed(Family::V6, records, error),
            (Err(LookupError::Failed(error)), Ok(records)) => failed(Family::V4, records, error),
            (Ok(records), Err(LookupError::Absent(_)))
            | (Err(LookupError::Absent(_)), Ok(records)) => Ok(Addresses { records, failed: None }),
            (Err(LookupError::Absent(why)), Err(LookupError::Absent(_))) => {
                Err(LookupError::Absent(why))
            }
            (Err(LookupError::Failed(error)), Err(_))
            | (Err(_), Err(LookupError::Failed(error))) => Err(LookupError::Failed(error)),
        }
    }

    /// The records of this type, and those of the aliases that led to them.
    async fn records(&self, name: Name, kind: RecordType) -> Result<Vec<Record>, LookupError> {
        let found = self.dns.lookup(name, kind).await.map_err(|error| in_words(&error))?;
        let records = Lookup::answers(&found);
        if !records.iter().any(|record| record.record_type() == kind) {
            return Err(LookupError::Absent(format!("the name has no {kind} record")));
        }
        Ok(records.to_vec())
    }
}

/// What the look-up of one of several names has ended with; `None`: the next one is tried, because
/// it does not exist. That is not known of one that could not be looked up. `absent`: the first
/// reason.
fn first<T>(
    found: Result<T, LookupError>,
    absent: &mut Option<String>,
) -> Option<Result<T, LookupError>> {
    let Err(LookupError::Absent(why)) = found else { return Some(found) };
    absent.get_or_insert(why);
    None
}

/// The complete names that a name may stand for, in the order in which they are tried
/// (resolv.conf(5)).
fn candidates(host: &str, search: &[Name], ndots: usize) -> Result<Vec<Name>, LookupError> {
    let whole = absolute(host)?;
    if host.ends_with('.') {
        return Ok(vec![whole]);
    }
    let mut name = whole.clone();
    name.set_fqdn(false);
    let searched = search.iter().filter_map(|domain| name.clone().append_domain(domain).ok());
    let searched = searched.map(|mut name| {
        name.set_fqdn(true);
        name
    });
    let dots = host.bytes().filter(|byte| *byte == b'.').count();
    let names = if dots >= ndots {
        std::iter::once(whole).chain(searched).collect()
    } else {
        searched.chain([whole]).collect()
    };
    Ok(names)
}

fn absolute(host: &str) -> Result<Name, LookupError> {
    let mut name =
        Name::from_ascii(host).map_err(|error| LookupError::Failed(error.to_string()))?;
    name.set_fqdn(true);
    Ok(name)
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let connections = [ProtocolConfig::Udp, ProtocolConfig::Tcp].map(|protocol| {
        let mut connection = ConnectionConfig::new(protocol);
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.into())
}

fn in_words(error: &NetError) -> LookupError {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => {
            let kind = none.query.query_type();
            LookupError::Absent(match none.response_code {
                ResponseCode::NXDomain => "the name does not exist (NXDOMAIN)".to_owned(),
                _ => format!("the name has no {kind} record"),
            })
        }
        NetError::Dns(DnsError::ResponseCode(code)) => LookupError::Failed(match code {
            ResponseCode::ServFail => "the name server failed (SERVFAIL)".to_owned(),
            ResponseCode::Refused => "the name server refused the query (REFUSED)".to_owned(),
            code => format!("the name server answered: {code}"),
        }),
        NetError::Timeout | NetError::NoConnections => {
            LookupError::Failed("no name server answered".to_owned())
        }
        error => LookupError::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_searched_first_and_names_with_dots_as_they_are() {
        let search = ["svc.cluster.local", "lan"].map(|name| Name::from_ascii(name).unwrap());
        let names = |host: &str, ndots| {
            let names = candidates(host, &search, ndots).unwrap();
            names.iter().map(Name::to_ascii).collect::<Vec<_>>()
        };
        assert_eq!(names("api", 1), ["api.svc.cluster.local.", "api.lan.", "api."]);
        assert_eq!(
            names("api.prod", 1),
            ["api.prod.", "api.prod.svc.cluster.local.", "api.prod.lan."]
        );
        assert_eq!(names("api.prod", 5).last().unwrap(), "api.prod.");
        assert_eq!(names("api.", 5), ["api."]);
        assert_eq!(names("_http._tcp.api", 1)[0], "_http._tcp.api.");
    }
}
