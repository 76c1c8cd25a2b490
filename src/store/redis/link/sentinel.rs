//! Address of the master, from the sentinels.

use tokio_rustls::TlsConnector;

use super::connect::open;
use super::error::ConnectError;
use crate::net::address::{HostPort, MAX_HOST_BYTES};
use crate::net::lookup::Resolver;
use crate::policy::redis::Sentinel;

/// Asks the sentinels in order. Returns the address of the first that knows the master.
pub(super) async fn master(
    sentinel: &Sentinel,
    tls: Option<&TlsConnector>,
    resolver: &Resolver,
) -> Result<HostPort, ConnectError> {
    let mut last = None;
    for server in &sentinel.servers {
        match ask(server, sentinel, tls, resolver).await {
            Ok(master) => return Ok(master),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| ConnectError::UnknownMaster {
        at: "(none)".to_owned(),
        master: sentinel.master.clone(),
    }))
}

async fn ask(
    server: &HostPort,
    sentinel: &Sentinel,
    tls: Option<&TlsConnector>,
    resolver: &Resolver,
) -> Result<HostPort, ConnectError> {
    let mut fresh = open(server, tls, resolver).await?;
    fresh.log_in(&sentinel.login).await?;
    let mut question = redis::cmd("SENTINEL");
    question.arg("get-master-addr-by-name").arg(&sentinel.master);
    let answer: Option<(String, u16)> = fresh.call("SENTINEL", &question).await?;
    let unknown =
        || ConnectError::UnknownMaster { at: server.to_string(), master: sentinel.master.clone() };
    let (host, port) = answer.ok_or_else(unknown)?;
    // The name is looked up and logged.
    if host.len() > MAX_HOST_BYTES || !host.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(unknown());
    }
    Ok(HostPort { host, port })
}
