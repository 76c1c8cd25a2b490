//! How many streams of events are open, in all and from one address.

use std::collections::HashMap;
use std::net::IpAddr;

use http::{StatusCode, header};
use parking_lot::Mutex;

use crate::admin::answer::Answer;

/// The most streams at once.
const MAX_STREAMS: usize = 32;

/// The most streams at once from one address. A dashboard has one a tab.
const MAX_STREAMS_PER_PEER: usize = 8;

/// The streams that are open, by the address at the other end; none: a peer without an address.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<HashMap<Option<IpAddr>, usize>>);

/// The place of one open stream. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place<'a> {
    places: &'a Places,
    peer: Option<IpAddr>,
}

/// Why there is no place for another stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::admin) enum Full {
    /// The address has as many streams as one may have.
    Peer,
    /// All addresses together have as many as there may be.
    All,
}

impl Places {
    /// A place for one more stream from `peer`.
    pub(super) fn take(&self, peer: Option<IpAddr>) -> Result<Place<'_>, Full> {
        let peer = peer.map(|address| address.to_canonical());
        let mut open = self.0.lock();
        let of_peer = open.get(&peer).copied().unwrap_or(0);
        if of_peer >= MAX_STREAMS_PER_PEER {
            return Err(Full::Peer);
        }
        if open.values().sum::<usize>() >= MAX_STREAMS {
            return Err(Full::All);
        }
        open.insert(peer, of_peer + 1);
        Ok(Place { places: self, peer })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut open = self.places.0.lock();
        if let Some(count) = open.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.peer);
            }
        }
    }
}

impl Full {
    /// The answer to a request for another stream.
    pub(in crate::admin) fn answer(self) -> Answer {
        let (status, whose) = match self {
            Self::Peer => {
                let whose = format!("this address has {MAX_STREAMS_PER_PEER} streams");
                (StatusCode::TOO_MANY_REQUESTS, whose)
            }
            Self::All => {
                (StatusCode::SERVICE_UNAVAILABLE, format!("there are {MAX_STREAMS} streams"))
            }
        };
        let detail = format!("{whose} of events open already; close one, or try again later");
        Answer::problem(status, &detail).with_header(header::RETRY_AFTER, "5")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_free_again_when_its_stream_ends() {
        let places = Places::default();
        let peer = |last: u8| Some(IpAddr::from([192, 0, 2, last]));
        let mapped = Some(IpAddr::from([0, 0, 0, 0, 0, 0xffff, 0xc000, 0x0201]));
        let mut of_one: Vec<_> = (0..8).map(|_| places.take(peer(1)).unwrap()).collect();
        assert_eq!(places.take(peer(1)).unwrap_err(), Full::Peer);
        assert_eq!(places.take(mapped).unwrap_err(), Full::Peer, "192.0.2.1 as IPv6");
        let others: Vec<_> = (0..24).map(|n| places.take(peer(2 + n / 8)).unwrap()).collect();
        assert_eq!(places.take(None).unwrap_err(), Full::All);
        of_one.pop();
        drop(places.take(None).unwrap());
        of_one.push(places.take(mapped).unwrap());
        drop((of_one, others));
        assert!(places.0.lock().is_empty());
    }
}
