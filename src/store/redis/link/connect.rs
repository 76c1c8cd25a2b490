//! One attempt to connect: a name or the sentinels asked anew, a stream, a login, a sign of life.

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
use super::stream::{Carrier, Metered};
use super::{Connection, sentinel};
use crate::blocking::BlockingCalls;
use crate::net::address::HostPort;
use crate::net::lookup::Resolver;
use crate::net::tls::{self, ClientTls};
use crate::policy::redis::{Address, Login, Redis};
use crate::store::redis::class::classify;
use crate::store::redis::error_text::Secrets;

/// How long each step may take: a lookup, a handshake, an answer.
pub(super) const STEP: Duration = Duration::from_secs(1);

/// How long bytes may stay unacknowledged before the kernel gives the connection up. Without it,
/// that is a quarter of an hour.
const USER_TIMEOUT: Duration = Duration::from_secs(5);

/// Requests that wait for the stream beyond those in flight.
const QUEUE: usize = 256;

/// A connection that answers, and the task that drives it.
pub(super) struct Fresh {
    pub(super) line: Connection,
    pub(super) driver: Driver,
    /// Where it leads, for logs.
    pub(super) address: String,
    /// What no error on it may show.
    pub(super) secrets: Secrets,
}

/// Moves the bytes of a connection; stops when dropped.
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

/// What connections are encrypted with. Its files are read on another thread: where they are on a
/// network mount whose server is gone, that may never end.
async fn connector(tls: ClientTls, reads: &BlockingCalls) -> Result<TlsConnector, ConnectError> {
    match reads.run(STEP, move || tls::connector(tls::REDIS, &tls)).await {
        Ok(connector) => Ok(connector?),
        Err(no_result) => Err(ConnectError::FilesUnread(no_result)),
    }
}

/// Connects to whatever `settings` lead to now.
pub(super) async fn connect(
    settings: &Redis,
    resolver: &Resolver,
    reads: &BlockingCalls,
) -> Result<Fresh, ConnectError> {
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
    };
    fresh.log_in(&settings.login).await?;
    if settings.database != 0 {
        fresh.call::<()>("SELECT", redis::cmd("SELECT").arg(settings.database)).await?;
    }
    match fresh.call::<redis::Value>("PING", &redis::cmd("PING")).await {
        // The server is alive and the right one; what else it lacks is for the probes to find.
        Err(ConnectError::Refused { class, .. }) if !class.asks_for_another_connection() => {}
        other => drop(other?),
    }
    Ok(fresh)
}

/// A connection to a host, without a login.
pub(super) async fn open(
    server: &HostPort,
    tls: Option<&TlsConnector>,
    resolver: &Resolver,
) -> Result<Fresh, ConnectError> {
    let at = server.to_string();
    let addresses = match timeout(STEP, resolver(server)).await {
        Ok(Ok(addresses)) => addresses,
        Ok(Err(source)) => return Err(ConnectError::Lookup { host: at, source }),
        Err(_) => return Err(ConnectError::Silent { at, step: "the lookup of its name" }),
    };
    let none = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let mut last = ConnectError::Lookup { host: at.clone(), source: none };
    for address in addresses {
        match timeout(STEP, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                set_up(&stream).map_err(|source| ConnectError::Io { at: at.clone(), source })?;
                let carrier = match tls {
                    None => Carrier::Tcp(stream),
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

async fn open_socket(path: &Path) -> Result<Fresh, ConnectError> {
    let at = path.display().to_string();
    match timeout(STEP, UnixStream::connect(path)).await {
        Ok(Ok(stream)) => start(Carrier::Unix(stream), at).await,
        Ok(Err(source)) => Err(ConnectError::Io { at, source }),
        Err(_) => Err(ConnectError::Silent { at, step: "connecting" }),
    }
}

/// Small packets at once, and a dead peer noticed in seconds, idle or not.
fn set_up(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(3))
        .with_retries(3);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))
}

async fn encrypt(
    stream: TcpStream,
    server: &HostPort,
    connector: &TlsConnector,
) -> Result<Carrier, ConnectError> {
    let at = server.to_string();
    let failed = |source| ConnectError::Tls { at: at.clone(), source };
    let name = tls::server_name(&server.host).map_err(failed)?;
    match timeout(STEP, connector.connect(name, stream)).await {
        Ok(Ok(stream)) => Ok(Carrier::Tls(Box::new(stream))),
        Ok(Err(source)) => Err(failed(source)),
        Err(_) => Err(ConnectError::Silent { at, step: "the TLS handshake" }),
    }
}

/// Starts to speak Redis' protocol. Nothing is sent yet.
async fn start(carrier: Carrier, address: String) -> Result<Fresh, ConnectError> {
    let health = Arc::new(Health::default());
    let stream = Metered::new(carrier, Arc::clone(&health));
    // Nothing but what a check needs is ever sent, and nobody waits but the caller's own timer.
    let info = RedisConnectionInfo::default().set_skip_set_lib_name();
    let config =
        AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(QUEUE);
    let (redis, driver) = MultiplexedConnection::new_with_config(&info, stream, config)
        .await
        .map_err(|error| ConnectError::Refused {
            at: address.clone(),
            step: "the start",
            class: classify(&error),
            text: Secrets::default().describe(&error),
        })?;
    let driver = Driver(tokio::spawn(driver));
    Ok(Fresh { line: Connection { redis, health }, driver, address, secrets: Secrets::default() })
}

impl Fresh {
    /// Says who the gateway is, where the file does.
    pub(super) async fn log_in(&mut self, login: &Login) -> Result<(), ConnectError> {
        let Some(password) = &login.password else { return Ok(()) };
        self.secrets = Secrets::of(login);
        let mut auth = redis::cmd("AUTH");
        if let Some(username) = &login.username {
            auth.arg(username);
        }
        self.call("AUTH", auth.arg(password.reveal())).await
    }

    /// Makes one call.
    pub(super) async fn call<T: FromRedisValue>(
        &mut self,
        step: &'static str,
        call: &Cmd,
    ) -> Result<T, ConnectError> {
        match timeout(STEP, call.query_async(&mut self.line.redis)).await {
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
