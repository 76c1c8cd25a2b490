//! One client connection, from its first byte to its last.

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderValue;
use pingora::apps::HttpServerApp;
use pingora::server::ShutdownWatch;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::server::TlsStream;

use super::connection::{ClientProtocol, ConnectionInfo};
use super::ended::Ended;
use super::head::HeadLimits;
use super::http1::{self, Drain};
use super::http2::Http2Limits;
use super::open::{Entry, OverLimit};
use super::opening::Proxied;
use super::send::SendGuard;
use super::service::Front;
use super::stream::ClientStream;
use super::unwritten::WriteProgress;
use super::{http2, opening};
use crate::base::clock;
use crate::client::address::counted_address;
use crate::client::address::{canonical, is_trusted};
use crate::net::socket::Socket;
use crate::policy::Policy;
use crate::policy::listener::{Hsts, Listener, Redirect};
use crate::policy::settings::Server;
use crate::tls::client;

/// The name of HTTP/2 in ALPN.
const ALPN_HTTP2: &[u8] = b"h2";

/// The port that `https` URLs leave out.
const HTTPS_PORT: u16 = 443;

/// Serves the connections of one listener.
pub(super) struct Endpoint<A> {
    pub(super) app: Arc<A>,
    pub(super) shutdown: ShutdownWatch,
    pub(super) front: Front,
    /// Its index at the start.
    pub(super) index: usize,
    /// Its settings at the start. Those in force are looked up by its address.
    pub(super) bound: Listener,
}

/// A connection that is ready for its first request.
struct Opened {
    stream: Box<ClientStream>,
    http2: Http2Limits,
}

impl<A> Endpoint<A>
where
    A: HttpServerApp + Send + Sync + 'static,
{
    /// Adds a connection to the table of open ones; `None` if a limit forbids it, which is counted.
    pub(super) fn admit(&self, socket: &Socket) -> Option<Entry> {
        let policy = &self.front.current.load().policy;
        let pressure = &self.front.pressure;
        let max = pressure.max_connections(policy);
        pressure.make_room(max);
        let peer = socket.peer().map(|peer| peer.ip());
        let admitted = pressure.open().add(max).map_err(|OverLimit| Ended::MaxConnections);
        let admitted = admitted.and_then(|entry| {
            // The address of the client is not known before the PROXY header.
            if !self.settings(policy).1.proxy_protocol {
                self.count_by_address(&entry, peer, false, policy)?;
            }
            Ok(entry)
        });
        admitted.inspect_err(|ended| self.note(*ended, peer)).ok()
    }

    /// Serves a connection until it closes.
    pub(super) async fn serve(self: Arc<Self>, socket: Socket, entry: Entry) {
        let peer = socket.peer().map(|peer| peer.ip());
        let ended = match Box::pin(self.open(socket, entry)).await {
            Err(ended) => ended,
            Ok(opened) => self.requests(opened).await,
        };
        self.note(ended, peer);
    }

    /// Counts and logs why a connection was closed.
    fn note(&self, ended: Ended, peer: Option<IpAddr>) {
        if let Some(reason) = ended.label() {
            self.front.rejections.note(reason, peer, &self.front.current.load().policy);
        }
    }

    /// Serves the requests of a connection. Returns why it has closed.
    async fn requests(&self, opened: Opened) -> Ended {
        let Opened { stream, http2 } = opened;
        match stream.connection().protocol {
            ClientProtocol::Http1 => {
                let drain = Drain { shutdown: &self.shutdown, draining: &self.front.draining };
                http1::serve(&self.app, stream, &self.front.current, drain).await
            }
            ClientProtocol::Http2 => {
                let shutdown = self.shutdown.clone();
                Box::pin(http2::serve(&self.app, stream, &http2, shutdown)).await
            }
        }
    }

    /// Reads what comes before the first request, by the settings in force. Until a request has
    /// come, the connection counts as idle since it was accepted.
    async fn open(&self, mut socket: Socket, entry: Entry) -> Result<Opened, Ended> {
        let policy = Arc::clone(&self.front.current.load().policy);
        let (index, listener) = self.settings(&policy);
        let limits = policy.server.limits;
        let deadline = Instant::now() + limits.handshake_timeout;
        let mut connection = ConnectionInfo::from_peer(index, socket.peer());
        connection.shutdown = Some(self.shutdown.clone());
        entry.note_idle(clock::now());
        if listener.proxy_protocol {
            let read = opening::proxied_peer(&mut socket, &policy.server.trusted_proxies);
            let read = timeout_at(deadline, read);
            let read = entry.unless_shed(read).await.map_err(Ended::Shed)?;
            let Proxied { peer, is_hidden } = read.unwrap_or(Err(Ended::HandshakeTimeout))?;
            (connection.peer, connection.is_client_hidden) = (peer, is_hidden);
            self.count_by_address(&entry, peer.map(|peer| peer.ip()), is_hidden, &policy)?;
        }
        connection.redirect = redirect(listener, &policy);
        connection.hsts = listener.hsts.as_ref().and_then(hsts);
        let head = head_limits(&policy.server);
        let progress = WriteProgress::new(self.front.unwritten.clone());
        let guard = SendGuard::new(limits.send_min_rate);
        let stream = if listener.tls.is_some() {
            let handshake = self.handshake(socket, deadline);
            let stream = entry.unless_shed(handshake).await.map_err(Ended::Shed)??;
            let tls = stream.get_ref().1;
            if tls.alpn_protocol() == Some(ALPN_HTTP2) {
                connection.protocol = ClientProtocol::Http2;
            }
            connection.tls = Some(client::info(tls));
            connection.entry = Some(entry);
            ClientStream::tls(stream, connection, head, progress, guard)
        } else {
            if listener.http2 {
                let first_request = http1::first_request(&policy.server);
                let detected = opening::protocol(&mut socket, first_request, head.timeout);
                connection.protocol = entry.unless_shed(detected).await.map_err(Ended::Shed)??;
            }
            connection.entry = Some(entry);
            ClientStream::clear(socket, connection, head, progress, guard)
        };
        Ok(Opened { stream: Box::new(stream), http2: Http2Limits::of(&policy.server) })
    }

    async fn handshake(
        &self,
        socket: Socket,
        deadline: Instant,
    ) -> Result<TlsStream<Socket>, Ended> {
        // A reload replaces the policy before or after the TLS of its listeners.
        let tls = self.front.tls.of(self.index, &self.bound.address).ok_or(Ended::Uncounted)?;
        let handshake = self.front.handshakes.perform(socket, tls, deadline).await;
        handshake.map_err(|_| Ended::Uncounted)
    }

    fn count_by_address(
        &self,
        entry: &Entry,
        peer: Option<IpAddr>,
        is_hidden: bool,
        policy: &Policy,
    ) -> Result<(), Ended> {
        let max = self.front.pressure.max_connections_per_ip(policy);
        count_by_address(entry, peer, is_hidden, policy, max)
    }

    /// The settings of the listener and their index, in this policy. A listener that a reload has
    /// removed stays until the restart.
    fn settings<'a>(&'a self, policy: &'a Policy) -> (usize, &'a Listener) {
        let index = Listener::position(&policy.listeners, self.index, &self.bound.address);
        let found = index.and_then(|index| Some((index, policy.listeners.get(index)?)));
        found.unwrap_or((usize::MAX, &self.bound))
    }
}

/// Counts a connection by its address, of which there may be `max`. Trusted proxies are exempt:
/// their connections have requests of many clients. Clients of Unix sockets have no address. A
/// client that `is_hidden`, because its proxy sent no address of it, is counted by that of the
/// proxy.
fn count_by_address(
    entry: &Entry,
    peer: Option<IpAddr>,
    is_hidden: bool,
    policy: &Policy,
    max: usize,
) -> Result<(), Ended> {
    let Some(address) = peer.map(canonical) else { return Ok(()) };
    if !is_hidden && is_trusted(&policy.server.trusted_proxies, address) {
        return Ok(());
    }
    let counted = counted_address(address, policy.clients.ipv6_prefix);
    entry.count_by(counted, max).map_err(|OverLimit| Ended::MaxConnectionsPerIp)
}

/// The limits of heads. `max_bytes` is four times the sum of the sizes above which requests get 431
/// or 414.
fn head_limits(server: &Server) -> HeadLimits {
    let sizes = server.max_header_bytes.saturating_add(server.max_uri_bytes);
    HeadLimits { timeout: server.limits.head_timeout, max_bytes: sizes.saturating_mul(4) }
}

/// The port to which a listener redirects: that of the first listener with certificates, unless one
/// has the default port.
fn redirect(listener: &Listener, policy: &Policy) -> Option<u16> {
    let Redirect::Https = listener.redirect?;
    let secure = policy.listeners.iter().filter(|listener| listener.tls.is_some());
    let ports: Vec<u16> = secure
        .filter_map(|listener| listener.address.tcp())
        .map(|address| address.port())
        .collect();
    match ports.as_slice() {
        [first, ..] if !ports.contains(&HTTPS_PORT) => Some(*first),
        _ => Some(HTTPS_PORT),
    }
}

/// The value of `Strict-Transport-Security`.
fn hsts(settings: &Hsts) -> Option<HeaderValue> {
    let Hsts { max_age_s, include_subdomains, preload } = settings;
    let mut value = format!("max-age={max_age_s}");
    for (is_set, directive) in [(include_subdomains, "; includeSubDomains"), (preload, "; preload")]
    {
        if *is_set {
            value.push_str(directive);
        }
    }
    HeaderValue::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::super::open::OpenConnections;
    use super::*;
    use crate::load::from_text;

    #[test]
    fn connections_are_counted_by_network_and_those_of_trusted_proxies_are_not() {
        let file = "[server]\ntrusted_proxies = ['10.0.0.0/8']\n[upstreams.a]\nservers = ['demo']\n[routes.a]\n";
        let policy = from_text("file", file).unwrap();
        // (address of the first connection, address of the second, whether the second is refused)
        let table = [
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("2001:db8::1", "2001:db8::ffff", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            ("10.1.2.3", "10.1.2.3", false),
            ("::ffff:10.1.2.3", "10.1.2.3", false),
        ];
        for (first, second, is_refused) in table {
            let open = OpenConnections::default();
            let entries = [open.add(2).unwrap(), open.add(2).unwrap()];
            let count =
                |entry, ip: &str| count_by_address(entry, ip.parse().ok(), false, &policy, 1);
            assert_eq!(count(&entries[0], first), Ok(()));
            assert_eq!(count(&entries[1], second).is_err(), is_refused, "{first} {second}");
            assert_eq!(count_by_address(&entries[1], None, false, &policy, 1), Ok(()));
            // A client whose proxy sends no address counts by that of the proxy.
            let open = OpenConnections::default();
            let hidden = "10.1.2.3".parse().ok();
            let entries = [open.add(2).unwrap(), open.add(2).unwrap()];
            assert_eq!(count_by_address(&entries[0], hidden, true, &policy, 1), Ok(()));
            assert!(count_by_address(&entries[1], hidden, true, &policy, 1).is_err());
        }
    }
}
