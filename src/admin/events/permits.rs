//! Limits the number of open event streams, in total and for each address.

use std::collections::HashMap;
use std::net::IpAddr;

use http::{StatusCode, header};
use parking_lot::Mutex;

use crate::admin::answer::Answer;

/// Maximum number of open streams.
const MAX_STREAMS: usize = 32;

/// Maximum number of open streams from one address. A dashboard opens one in each tab.
const MAX_STREAMS_PER_PEER: usize = 8;

/// Number of open streams by address; `None` is a client without an address.
#[derive(Debug, Default)]
pub(super) struct StreamPermits(Mutex<HashMap<Option<IpAddr>, usize>>);

/// Permit for one open stream, returned when dropped.
#[derive(Debug)]
pub(super) struct StreamPermit<'a> {
    permits: &'a StreamPermits,
    peer: Option<IpAddr>,
}

/// Why no further stream can be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::admin) enum TooManyStreams {
    /// The address has [`MAX_STREAMS_PER_PEER`] streams.
    FromPeer,
    /// All addresses together have [`MAX_STREAMS`] streams.
    Total,
}

impl StreamPermits {
    /// Takes a permit for a stream from `peer`.
    pub(super) fn take(&self, peer: Option<IpAddr>) -> Result<StreamPermit<'_>, TooManyStreams> {
        let peer = peer.map(|address| address.to_canonical());
        let mut open = self.0.lock();
        let of_peer = open.get(&peer).copied().unwrap_or(0);
        if of_peer >= MAX_STREAMS_PER_PEER {
            return Err(TooManyStreams::FromPeer);
        }
        if open.values().sum::<usize>() >= MAX_STREAMS {
            return Err(TooManyStreams::Total);
        }
        open.insert(peer, of_peer + 1);
        Ok(StreamPermit { permits: self, peer })
    }
}

impl Drop for StreamPermit<'_> {
    fn drop(&mut self) {
        let mut open = self.permits.0.lock();
        if let Some(count) = open.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.peer);
            }
        }
    }
}

impl TooManyStreams {
    /// The response to a request for a further stream.
    pub(in crate::admin) fn answer(self) -> Answer {
        let (status, reason) = match self {
            Self::FromPeer => {
                let reason = format!("this address has {MAX_STREAMS_PER_PEER} open event streams");
                (StatusCode::TOO_MANY_REQUESTS, reason)
            }
            Self::Total => {
                let reason = format!("there are {MAX_STREAMS} open event streams");
                (StatusCode::SERVICE_UNAVAILABLE, reason)
            }
        };
        let detail = format!("{reason}; close one, or try again later");
        Answer::problem(status, &detail).with_header(header::RETRY_AFTER, "5")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permit_returns_when_its_stream_ends() {
        let permits = StreamPermits::default();
        let peer = |last: u8| Some(IpAddr::from([192, 0, 2, last]));
        let mapped = Some(IpAddr::from([0, 0, 0, 0, 0, 0xffff, 0xc000, 0x0201]));
        let mut of_one: Vec<_> = (0..8).map(|_| permits.take(peer(1)).unwrap()).collect();
        assert_eq!(permits.take(peer(1)).unwrap_err(), TooManyStreams::FromPeer);
        assert_eq!(
            permits.take(mapped).unwrap_err(),
            TooManyStreams::FromPeer,
            "192.0.2.1 as IPv6"
        );
        let others: Vec<_> = (0..24).map(|n| permits.take(peer(2 + n / 8)).unwrap()).collect();
        assert_eq!(permits.take(None).unwrap_err(), TooManyStreams::Total);
        of_one.pop();
        drop(permits.take(None).unwrap());
        of_one.push(permits.take(mapped).unwrap());
        drop((of_one, others));
        assert!(permits.0.lock().is_empty());
    }
}
