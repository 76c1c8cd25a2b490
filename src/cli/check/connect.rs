//! `tollgate check --connect`: whether the servers of upstreams and Redis can be reached from here.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::config::diagnostic::Diagnostic;
use crate::config::outline::Outline;
use crate::config::spanned::Spanned;
use crate::limit::Limit;
use crate::load::{Checked, Source};
use crate::net::address::Origin;
use crate::net::lookup::{LookupError, Names, names};
use crate::net::proxy_protocol;
use crate::policy::Policy;
use crate::policy::key_store::Place;
use crate::policy::settings::{Protocol, Target, Upstream};
use crate::store::redis::durability;
use crate::store::redis::link::trial::{self, Part, Uses};
use crate::upstream::tls::{Offer, TlsClient};

/// Maximum number of servers that are tried at the same time.
const MAX_PARALLEL: usize = 32;

/// Maximum number of addresses of one name that are tried.
const MAX_ADDRESSES: usize = 8;

/// Time limit of a name look-up.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum time for a connection, even if `connect_timeout` is longer.
const MAX_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What was found.
pub(super) struct Findings {
    /// A warning for each server that cannot be used.
    pub(super) warnings: Vec<Diagnostic>,
    /// Why Redis was not tried, although the file has one.
    pub(super) skipped: Option<&'static str>,
}

/// Connects to every server of the file.
///
/// # Errors
/// The system has no resources for it.
pub(super) fn check(checked: &Checked) -> io::Result<Findings> {
    let Checked { source, policy, .. } = checked;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outline = source.outline();
    let has_assumed = redis_is_assumed(source);
    let warnings = runtime.block_on(async {
        let mut warnings = upstreams(policy, &outline).await;
        if !has_assumed {
            warnings.extend(redis(policy, &outline).await);
        }
        warnings
    });
    // A look-up that hangs must not keep the process.
    runtime.shutdown_background();
    let skipped = (has_assumed && policy.redis.is_some())
        .then_some("Redis was not tried, because its settings have assumed values");
    Ok(Findings { warnings, skipped })
}

/// A warning for each server of an upstream that cannot be connected to, in the order of the file.
async fn upstreams(policy: &Policy, outline: &Outline) -> Vec<Diagnostic> {
    let (names, permits) = (names(), Arc::new(Semaphore::new(MAX_PARALLEL)));
    let mut trials = Vec::new();
    for upstream in &policy.upstreams {
        let Target::Servers(servers) = &upstream.target else { continue };
        let limit = upstream.connect_timeout.min(MAX_CONNECT_TIMEOUT);
        let handshake = Arc::new(Handshake::of(upstream));
        for (index, server) in servers.iter().enumerate() {
            let path = ["upstreams", &upstream.name, "servers"];
            let place = outline.item_place(&path, index).unwrap_or(0..0);
            let (names, permits) = (Arc::clone(&names), Arc::clone(&permits));
            let (handshake, resolvers) = (Arc::clone(&handshake), Arc::clone(&upstream.resolvers));
            let tried = server.origin.clone();
            let trial = tokio::spawn(async move {
                let _permit = permits.acquire_owned().await;
                let addresses = look_up(&tried, &resolvers, &names).await?;
                connect(&tried, addresses, limit, &handshake).await
            });
            trials.push((server, place, trial));
        }
    }
    let mut warnings = Vec::new();
    for (server, place, trial) in trials {
        if let Ok(Err(Failure { why, step })) = trial.await {
            let message = format!("`{server}` cannot be connected to from here: {why}");
            warnings.push(Diagnostic::warning(place, message).help(step.help()));
        }
    }
    warnings
}

/// Why a server cannot be used.
struct Failure {
    why: String,
    step: Step,
}

/// A step on the way to a server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The look-up of its name, or the TCP connection.
    Connection,
    /// The TLS handshake.
    Handshake,
}

impl Step {
    /// What to do if it fails.
    const fn help(self) -> &'static str {
        match self {
            Self::Connection => {
                "check the address, and whether the server runs; the gateway starts without it"
            }
            Self::Handshake => {
                "the server runs; in `tls` of the upstream, check `ca` (the authority of its certificate), \
                 `server_name` (a name in it), and `cert` and `key` (the gateway's own certificate)"
            }
        }
    }

    /// A failure of this step.
    fn failed(self, why: impl Into<String>) -> Failure {
        Failure { why: why.into(), step: self }
    }
}

/// What follows the TCP connection to a server.
struct Handshake {
    proxy_header: Vec<u8>,
    tls: Option<(TlsClient, Offer)>,
}

impl Handshake {
    /// The handshake with the servers of an upstream. The PROXY header, if there is one, names no
    /// client.
    fn of(upstream: &Upstream) -> Self {
        let proxy_header =
            upstream.proxy_protocol.map(|version| proxy_protocol::encode(version, None));
        let offer = match upstream.protocol {
            Protocol::Http1 => Offer::Http1,
            Protocol::H2 => Offer::Http2,
            Protocol::Auto | Protocol::H2c => Offer::Both,
        };
        let tls = upstream.tls.as_ref().map(|settings| {
            let client = TlsClient::new(Arc::clone(&upstream.name), settings.clone());
            client.refresh();
            (client, offer)
        });
        Self { proxy_header: proxy_header.unwrap_or_default(), tls }
    }

    /// Performs it. `host` is that of the file.
    async fn perform(&self, mut stream: TcpStream, host: &str) -> Result<(), Failure> {
        let Some((client, offer)) = &self.tls else { return Ok(()) };
        stream.write_all(&self.proxy_header).await.map_err(|error| reason(&error))?;
        let done = client.connect(stream, Some(host), *offer).await;
        done.map(drop).map_err(|error| Step::Handshake.failed(format!("TLS: {error}")))
    }
}

/// Looks up the addresses of a server, at least one.
async fn look_up(
    server: &Origin,
    resolvers: &[SocketAddr],
    names: &Names,
) -> Result<Vec<SocketAddr>, Failure> {
    let failed = |why: String| Err(Step::Connection.failed(why));
    if let Some(address) = server.address() {
        return Ok(vec![address]);
    }
    match timeout(LOOKUP_TIMEOUT, names(server, resolvers)).await {
        Ok(Ok(answer)) if !answer.found.is_empty() => {
            Ok(answer.found.into_iter().map(|found| found.address).collect())
        }
        Ok(Ok(_)) => failed("the name has no address".to_owned()),
        Ok(Err(LookupError::Absent(why) | LookupError::Failed(why))) => failed(why),
        Err(_) => failed(format!("the look-up of the name took longer than {LOOKUP_TIMEOUT:?}")),
    }
}

/// Connects to each address of a server. The error names those that fail.
async fn connect(
    server: &Origin,
    addresses: Vec<SocketAddr>,
    limit: Duration,
    handshake: &Arc<Handshake>,
) -> Result<(), Failure> {
    let open = |address| {
        let (host, handshake) = (server.host().to_owned(), Arc::clone(handshake));
        (address, tokio::spawn(async move { open(address, limit, &host, &handshake).await }))
    };
    let trials: Vec<_> = addresses.into_iter().take(MAX_ADDRESSES).map(open).collect();
    let (mut reasons, mut steps) = (Vec::new(), Vec::new());
    for (address, trial) in trials {
        let Ok(Err(Failure { why, step })) = trial.await else { continue };
        // A server that is written as an address needs no other name.
        let is_same = address.to_string() == server.to_string();
        reasons.push(if is_same { why } else { format!("{address}: {why}") });
        steps.push(step);
    }
    let is_handshake = steps.iter().all(|step| *step == Step::Handshake);
    let step = if is_handshake { Step::Handshake } else { Step::Connection };
    if reasons.is_empty() { Ok(()) } else { Err(step.failed(reasons.join("; "))) }
}

/// Connects to an address, with TLS if the upstream has it.
async fn open(
    address: SocketAddr,
    limit: Duration,
    host: &str,
    handshake: &Handshake,
) -> Result<(), Failure> {
    let connect = async {
        let stream = TcpStream::connect(address).await.map_err(|error| reason(&error))?;
        handshake.perform(stream, host).await
    };
    let late = || Step::Connection.failed(format!("no answer within {limit:?}"));
    timeout(limit, connect).await.unwrap_or_else(|_| Err(late()))
}

fn reason(error: &io::Error) -> Failure {
    Step::Connection.failed(match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "connection refused, so nothing listens there".to_owned()
        }
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            "there is no route to it".to_owned()
        }
        _ => error.to_string(),
    })
}

/// A warning if Redis cannot be used as the gateway needs it.
async fn redis(policy: &Policy, outline: &Outline) -> Vec<Diagnostic> {
    let Some(redis) = policy.redis.as_ref() else { return Vec::new() };
    let place = outline.place(&["redis", "url"]).unwrap_or(0..0);
    let has_keys = policy.key_store.as_ref().is_some_and(|store| store.place == Place::Redis);
    let parts: Vec<Part> = [
        (policy.audit.stream.is_some(), Part::Streams),
        (policy.has_quotas(), Part::Quotas),
        (has_keys, Part::Keys),
        (policy.rules.iter().any(|rule| rule.enabled && rule.ban.is_some()), Part::Bans),
    ]
    .into_iter()
    .filter_map(|(is_used, part)| is_used.then_some(part))
    .collect();
    let uses = Uses { limits: &policy.limits, parts: &parts };
    let found = match trial::run(redis, uses).await {
        Ok(found) => found.filter(|_| policy.limits.iter().any(Limit::counts_for_hours)),
        Err(error) => {
            let message = format!("Redis cannot be used from here: {error}");
            return vec![Diagnostic::warning(place, message).help(error.help())];
        }
    };
    let warning = |(why, setting): (&str, &str)| {
        let message = format!("Redis may lose the counts of quotas: {why}");
        Diagnostic::warning(place.clone(), message).help(format!("set `{setting}` in Redis"))
    };
    found.map(durability::Durability::lacks).unwrap_or_default().into_iter().map(warning).collect()
}

/// Whether a setting of `[redis]` has an assumed value.
fn redis_is_assumed(source: &Source) -> bool {
    let assumed = source.assumed();
    let config = source.as_written();
    let Some(redis) = config.redis.as_ref().map(Spanned::get_ref) else { return false };
    let fields = [
        &redis.url,
        &redis.username,
        &redis.password,
        &redis.sentinel_username,
        &redis.sentinel_password,
        &redis.ca,
        &redis.client_cert,
        &redis.client_key,
    ];
    let is_assumed = |text: &String| assumed.iter().any(|reference| text.contains(reference));
    fields.into_iter().flatten().any(|field| is_assumed(field.get_ref()))
}
