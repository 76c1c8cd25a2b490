//! One connection attempt: resolves the name or asks the sentinels, connects, logs in, and sends a
//! PING.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, RedisConnectionInfo};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::error::ConnectError;
use super::health::Health;
use super::stream::{BoundedStream, Transport};
use super::watch::Reason;
use super::{Connection, sentinel};
use crate::base::blocking::BlockingCalls;
use crate::net::address::HostPort;
use crate::net::lookup::Resolver;
use crate::net::tls::{self, ClientTls};
use crate::policy::redis::{Address, Login, Redis};
use crate::store::redis::class::classify;
use crate::store::redis::error_text::Secrets;

/// Timeout of each step: a look-up, a handshake, an answer.
pub(super) const STEP_TIMEOUT: Duration = Duration::from_secs(1);

/// Time after which the kernel closes a connection with unacknowledged bytes. The default is a
/// quarter of an hour.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of commands that can wait for the stream.
const PIPELINE_BUFFER: usize = 256;

/// A new connection, and the task that drives it.
pub(super) struct NewConnection {
    pub(super) connection: Connection,
    pub(super) driver: Driver,
    /// Address of the server, shown in logs.
    pub(super) address: String,
    /// Secrets that no error may show.
    pub(super) secrets: Secrets,
}

/// Task that reads and writes a connection; stops when dropped.
pub(super) struct Driver(JoinHandle<()>);

impl Driver {
    /// Waits until the connection is closed.
    pub(super) async fn until_closed(&mut self) {
        let _ = (&mut self.0).await;
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// TLS connector. Its files are read on another thread: on a network mount whose server is gone,
/// that may never end.
async fn connector(tls: ClientTls, reads: &BlockingCalls) -> Result<TlsConnector, ConnectError> {
    match reads.run(STEP_TIMEOUT, move || tls::connector(tls::REDIS, &tls)).await {
        Ok(connector) => Ok(connector?),
        Err(no_result) => Err(ConnectError::FilesUnread(no_result)),
    }
}

/// Connects to the server of `settings`, or to the current master.
pub(super) async fn connect(
    settings: &Redis,
    resolver: &Resolver,
    reads: &BlockingCalls,
) -> Result<NewConnection, ConnectError> {
    let tls = match &settings.tls {
        None => None,
        Some(tls) => Some(connector(tls.clone(), reads).await?),
    };
    let mut fresh = match &settings.address {
        Address::Socket(path) => open_socket(path).await?,
        Address::Server(server) => open(server, tls.as_ref(), resolver).await?,
        Address::Sentinel(sentinel) => {
            let master = sentinel::master(sentinel, tls.as_ref(), resolver).await?;
            open(&master, tls.as_ref(), resolver).await?
        }
        Address::Cluster(nodes) => open_any(nodes, tls.as_ref(), resolver).await?,
    };
    fresh.log_in(&settings.login).await?;
    if settings.database != 0 {
        fresh.call::<()>("SELECT", redis::cmd("SELECT").arg(settings.database)).await?;
    }
    match fresh.call::<redis::Value>("PING", &redis::cmd("PING")).await {
        // The server answers. Probes find out whether checks work.
        Err(ConnectError::Refused { class, .. }) if !class.asks_for_another_connection() => {}
        other => drop(other?),
    }
    Ok(fresh)
}

/// Connects to the first of some hosts that can be reached, without login.
async fn open_any(
    servers: &[HostPort],
    tls: Option<&TlsConnector>,
    resolver: &Resolver,
) -> Result<NewConnection, ConnectError> {
    let mut last = None;
    for server in servers {
        match open(server, tls, resolver).await {
            Ok(fresh) => return Ok(fresh),
            Err(error) => last = Some(error),
        }
    }
    Err(last
        .unwrap_or_else(|| ConnectError::Silent { at: "(none)".to_owned(), step: "connecting" }))
}

/// Connects to a host, without login.
pub(super) async fn open(
    server: &HostPort,
    tls: Option<&TlsConnector>,
    resolver: &Resolver,
) -> Result<NewConnection, ConnectError> {
    let at = server.to_string();
    let addresses = match timeout(STEP_TIMEOUT, resolver(server)).await {
        Ok(Ok(addresses)) => addresses,
        Ok(Err(source)) => return Err(ConnectError::Lookup { host: at, source }),
        Err(_) => return Err(ConnectError::Silent { at, step: "the lookup of its name" }),
    };
    let none = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let mut last = ConnectError::Lookup { host: at.clone(), source: none };
    for address in addresses {
        match timeout(STEP_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                set_up(&stream).map_err(|source| ConnectError::Io { at: at.clone(), source })?;
                let carrier = match tls {
                    None => Transport::Tcp(stream),
                    Some(tls) => encrypt(stream, server, tls).await?,
                };
                return start(carrier, at).await;
            }
            Ok(Err(source)) => last = ConnectError::Io { at: at.clone(), source },
            Err(_) => last = ConnectError::Silent { at: at.clone(), step: "connecting" },
        }
    }
    Err(last)
}

async fn open_socket(path: &Path) -> Result<NewConnection, ConnectError> {
    let at = path.display().to_string();
    match timeout(STEP_TIMEOUT, UnixStream::connect(path)).await {
        Ok(Ok(stream)) => start(Transport::Unix(stream), at).await,
        Ok(Err(source)) => Err(ConnectError::Io { at, source }),
        Err(_) => Err(ConnectError::Silent { at, step: "connecting" }),
    }
}

/// Sets the socket options: small packets are sent at once, and a dead peer is noticed within
/// seconds.
fn set_up(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(3))
        .with_retries(3);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(TCP_USER_TIMEOUT))
}

async fn encrypt(
    stream: TcpStream,
    server: &HostPort,
    connector: &TlsConnector,
) -> Result<Transport, ConnectError> {
    let at = server.to_string();
    let failed = |source| ConnectError::Tls { at: at.clone(), source };
    let name = tls::server_name(&server.host).map_err(failed)?;
    match timeout(STEP_TIMEOUT, connector.connect(name, stream)).await {
        Ok(Ok(stream)) => Ok(Transport::Tls(Box::new(stream))),
        Ok(Err(source)) => Err(failed(source)),
        Err(_) => Err(ConnectError::Silent { at, step: "the TLS handshake" }),
    }
}

/// Starts the Redis protocol. Sends nothing yet.
async fn start(carrier: Transport, address: String) -> Result<NewConnection, ConnectError> {
    let health = Arc::new(Health::default());
    let stream = BoundedStream::new(carrier, Arc::clone(&health));
    // Only commands that checks need are sent, and callers set the timeouts.
    let info = RedisConnectionInfo::default().set_skip_set_lib_name();
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_pipeline_buffer_size(PIPELINE_BUFFER);
    let (redis, driver) = MultiplexedConnection::new_with_config(&info, stream, config)
        .await
        .map_err(|error| ConnectError::Refused {
            at: address.clone(),
            step: "the start",
            class: classify(&error),
            text: Secrets::default().describe(&error),
        })?;
    let driver = Driver(tokio::spawn(driver));
    Ok(NewConnection {
        connection: Connection { redis, health },
        driver,
        address,
        secrets: Secrets::default(),
    })
}

impl NewConnection {
    /// Whether it is closed, as far as is known.
    pub(super) fn is_closed(&self) -> bool {
        self.driver.0.is_finished() || self.connection.health.broken().is_some()
    }

    /// Whether it is closed because a reply was larger than any call should need.
    pub(super) fn is_reply_too_large(&self) -> bool {
        self.connection.health.broken() == Some(Reason::ReplyTooLarge)
    }

    /// Logs in, if a password is configured.
    pub(super) async fn log_in(&mut self, login: &Login) -> Result<(), ConnectError> {
        let Some(password) = &login.password else { return Ok(()) };
        self.secrets = Secrets::of(login);
        let mut auth = redis::cmd("AUTH");
        if let Some(username) = &login.username {
            auth.arg(username);
        }
        self.call("AUTH", auth.arg(password.reveal())).await
    }

    /// Sends one command, and waits up to [`STEP_TIMEOUT`]. `step` names it in errors.
    pub(super) async fn call<T: FromRedisValue>(
        &mut self,
        step: &'static str,
        call: &Cmd,
    ) -> Result<T, ConnectError> {
        match timeout(STEP_TIMEOUT, call.query_async(&mut self.connection.redis)).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(ConnectError::Refused {
                at: self.address.clone(),
                step,
                class: classify(&error),
                text: self.secrets.describe(&error),
            }),
            Err(_) => Err(ConnectError::Silent { at: self.address.clone(), step }),
        }
    }
}
