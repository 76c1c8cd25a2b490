//! Name look-ups.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use super::address::HostPort;

/// Looks up the addresses of a server. Tests replace the system's resolver.
pub type Resolver = Arc<dyn Fn(&HostPort) -> Addresses + Send + Sync>;

/// A look-up in progress.
pub type Addresses = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Returns the resolver of the system: `/etc/hosts`, DNS, and what else it is configured for.
pub fn system_resolver() -> Resolver {
    Arc::new(|server| {
        let HostPort { host, port } = server.clone();
        Box::pin(async move { Ok(tokio::net::lookup_host((host.as_str(), port)).await?.collect()) })
    })
}
