//! The servers of an upstream, and how requests are distributed over them.

use std::fmt;
use std::time::Duration;

use http::HeaderName;

use super::redis::Secret;
use crate::net::address::Origin;

/// A server of an upstream. Each of its addresses is an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its host and port, or the name of a service. Names are looked up at run time.
    pub origin: Origin,
    /// Share of the requests that each of its endpoints gets, at least 1; 1 of a service, whose
    /// records have weights.
    pub weight: u16,
    /// The endpoints of the lowest priority with a healthy one get the requests. Of a service, that
    /// of the records with the lowest priority.
    pub priority: u8,
}

/// How requests are distributed over endpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Balance {
    /// In turn, by weight.
    #[default]
    RoundRobin,
    /// To the endpoint with the fewest requests in flight for its weight.
    LeastRequest,
    /// To the better one of two random endpoints.
    RandomTwo,
    /// To the same endpoint for the same client.
    Hash(HashSource),
}

/// What identifies a client whose requests go to the same endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HashSource {
    /// Its address.
    Ip,
    /// Its API key; its address if the request has none.
    Key,
    /// A header of the request; its address if the request has none.
    Header(HeaderName),
}

/// A cookie that keeps the requests of a client on one endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sticky {
    /// Its name.
    pub cookie: Box<str>,
    /// How long a browser keeps it; `None`: until it is closed.
    pub ttl: Option<Duration>,
    /// Key of the hashes that are its values; `None`: one of the process.
    pub secret: Option<Secret>,
}

impl fmt::Display for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.origin.fmt(formatter)
    }
}

impl Balance {
    /// All but those by a header.
    pub const PLAIN: [Self; 5] = [
        Self::RoundRobin,
        Self::LeastRequest,
        Self::RandomTwo,
        Self::Hash(HashSource::Ip),
        Self::Hash(HashSource::Key),
    ];
}

impl fmt::Display for Balance {
    /// As in the configuration file.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RoundRobin => formatter.write_str("round_robin"),
            Self::LeastRequest => formatter.write_str("least_request"),
            Self::RandomTwo => formatter.write_str("random_two"),
            Self::Hash(HashSource::Ip) => formatter.write_str("hash:ip"),
            Self::Hash(HashSource::Key) => formatter.write_str("hash:key"),
            Self::Hash(HashSource::Header(name)) => write!(formatter, "hash:header:{name}"),
        }
    }
}
