//! `tollgate check --connect`: whether the servers of upstreams and Redis can be reached from here.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::config::diagnostic::Diagnostic;
use crate::config::outline::Outline;
use crate::config::spanned::Spanned;
use crate::load::{Checked, Source};
use crate::net::address::HostPort;
use crate::net::lookup::{Resolver, system_resolver};
use crate::policy::Policy;
use crate::policy::settings::Target;
use crate::store::redis::link::trial;

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
    let (resolver, permits) = (system_resolver(), Arc::new(Semaphore::new(MAX_PARALLEL)));
    let mut trials = Vec::new();
    for upstream in &policy.upstreams {
        let Target::Servers(servers) = &upstream.target else { continue };
        let limit = upstream.connect_timeout.min(MAX_CONNECT_TIMEOUT);
        for (index, server) in servers.iter().enumerate() {
            let path = ["upstreams", &upstream.name, "servers"];
            let place = outline.item_place(&path, index).unwrap_or(0..0);
            let (resolver, permits) = (Arc::clone(&resolver), Arc::clone(&permits));
            let tried = server.clone();
            let trial = tokio::spawn(async move {
                let _permit = permits.acquire_owned().await;
                connect(&tried, limit, &resolver).await
            });
            trials.push((server, place, trial));
        }
    }
    let mut warnings = Vec::new();
    for (server, place, trial) in trials {
        if let Ok(Err(why)) = trial.await {
            let message = format!("`{server}` cannot be connected to from here: {why}");
            let help =
                "check the address, and whether the server runs; the gateway starts without it";
            warnings.push(Diagnostic::warning(place, message).help(help));
        }
    }
    warnings
}

/// Looks a server up, and connects to each of its addresses. The error names the addresses that fail.
async fn connect(server: &HostPort, limit: Duration, resolver: &Resolver) -> Result<(), String> {
    let addresses = match timeout(LOOKUP_TIMEOUT, resolver(server)).await {
        Ok(Ok(addresses)) => addresses,
        Ok(Err(error)) => return Err(format!("the name has no address ({error})")),
        Err(_) => {
            return Err(format!("the look-up of the name took longer than {LOOKUP_TIMEOUT:?}"));
        }
    };
    if addresses.is_empty() {
        return Err("the name has no address".to_owned());
    }
    let open = |address| (address, tokio::spawn(open(address, limit)));
    let trials: Vec<_> = addresses.into_iter().take(MAX_ADDRESSES).map(open).collect();
    let mut failed = Vec::new();
    for (address, trial) in trials {
        let Ok(Err(why)) = trial.await else { continue };
        // A server that is written as an address needs no other name.
        let is_same = address.to_string() == server.to_string();
        failed.push(if is_same { why } else { format!("{address}: {why}") });
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

async fn open(address: SocketAddr, limit: Duration) -> Result<(), String> {
    match timeout(limit, TcpStream::connect(address)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(reason(&error)),
        Err(_) => Err(format!("no answer within {limit:?}")),
    }
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "connection refused, so nothing listens there".to_owned()
        }
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            "there is no route to it".to_owned()
        }
        _ => error.to_string(),
    }
}

/// A warning if Redis cannot be used as the gateway needs it.
async fn redis(policy: &Policy, outline: &Outline) -> Option<Diagnostic> {
    let redis = policy.redis.as_ref()?;
    let error = trial::run(redis, policy.audit.stream.is_some()).await.err()?;
    let place = outline.place(&["redis", "url"]).unwrap_or(0..0);
    let message = format!("Redis cannot be used from here: {error}");
    Some(Diagnostic::warning(place, message).help(error.help()))
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
