//! A server that counts the requests in flight.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::support::{ReceivedRequest, Upstream, is_closed_by_peer, sleep_for};

/// A server that counts requests from their head until it ends their response, or until the gateway
/// closes the connection. `/` is answered at once, `/slow` after some time, `/hang` never, `/cut`
/// by half. Upgrades are accepted.
pub(super) struct Counting {
    server: Upstream,
    state: Arc<Mutex<State>>,
}

struct State {
    /// Connections of the requests in flight.
    open: HashMap<usize, TcpStream>,
    /// Most of them that were open together.
    peak: usize,
}

impl Counting {
    pub(super) fn start() -> Self {
        let state = State { open: HashMap::new(), peak: 0 };
        let state = Arc::new(Mutex::new(state));
        let counted = Arc::clone(&state);
        let server = Upstream::start(move |request, stream| serve(&counted, request, stream));
        Self { server, state }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// Requests in flight, with those whose connection was closed a moment ago.
    pub(super) fn now(&self) -> usize {
        self.state.lock().open.len()
    }

    /// The most that were in flight at once.
    pub(super) fn peak(&self) -> usize {
        self.state.lock().peak
    }

    /// The same since the last call.
    pub(super) fn take_peak(&self) -> usize {
        let mut state = self.state.lock();
        state.open.retain(|_, stream| !is_closed_by_peer(stream));
        let now = state.open.len();
        std::mem::replace(&mut state.peak, now)
    }
}

fn serve(state: &Mutex<State>, request: &ReceivedRequest, stream: &mut TcpStream) -> bool {
    {
        let mut state = state.lock();
        state.open.insert(request.connection, stream.try_clone().unwrap());
        if state.open.len() > state.peak {
            // The gateway closes a connection before it releases the units, but the thread may be
            // late.
            state.open.retain(|_, stream| !is_closed_by_peer(stream));
        }
        state.peak = state.peak.max(state.open.len());
    }
    let end = || state.lock().open.remove(&request.connection);
    let path = request.line().split(' ').nth(1).unwrap_or_default();
    let is_upgrade = request.header("upgrade").is_some();
    let response = match path {
        "/hang" => "",
        _ if is_upgrade => {
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
        }
        "/cut" => "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        _ => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    };
    if path == "/hang" || is_upgrade {
        let _ = stream.write_all(response.as_bytes());
        while stream.read(&mut [0; 64]).is_ok_and(|bytes| bytes > 0) {}
        end();
        return false;
    }
    if path == "/slow" {
        sleep_for(Duration::from_millis(10));
    }
    // Not later: the gateway may send the next request as soon as it has the response.
    end();
    stream.write_all(response.as_bytes()).is_ok() && path != "/cut"
}
