//! Which requests are sent to a second upstream as well, whose responses are not used.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::sample::SampleRate;
use crate::config::row::percentage;

/// `mirror` of an upstream or a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// Index of the upstream that gets the copies.
    pub to: u32,
    /// Its name.
    pub name: Arc<str>,
    /// Share of the requests, in thousandths, above 0.
    pub share: u16,
    /// Maximum size of a body, in bytes.
    pub max_body_bytes: usize,
    /// Maximum number of copies in flight, at least 1.
    pub max_in_flight: u32,
    /// Maximum time of a copy, to the end of its response.
    pub timeout: Duration,
}

/// `mirror` of a route, in place of that of its upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteMirror {
    /// `false`: its requests have no copies.
    Off,
    To(Mirror),
}

impl Mirror {
    /// Whether the request with this id has a copy. Only the id decides, so that of several
    /// gateways that forward a request with one id, all copy it or none does.
    pub fn includes(&self, request_id: &str) -> bool {
        SampleRate::of_thousandths(self.share).includes(request_id)
    }
}

impl RouteMirror {
    /// The setting, unless it is `false`.
    pub fn on(&self) -> Option<&Mirror> {
        match self {
            Self::Off => None,
            Self::To(mirror) => Some(mirror),
        }
    }
}

impl fmt::Display for Mirror {
    /// A few words: `5% of the requests to shadow`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of the requests to {}", percentage(self.share), self.name)
    }
}

impl fmt::Display for RouteMirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::To(mirror) => mirror.fmt(f),
        }
    }
}
