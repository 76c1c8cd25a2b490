//! Time limits of requests to an upstream, of the upstream or of a route.

use std::fmt;
use std::time::Duration;

/// Time limits that an upstream or a route can have; `None`: it has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimeLimits {
    /// From the end of the request to the head of the response. Replaces `read_timeout` there.
    pub first_byte: Option<Duration>,
    /// One attempt, from the selection of its server, or from the end of the request's body if that
    /// is later, to the head of the response.
    pub attempt: Option<Duration>,
    /// The whole request with its retries, from the first selection of a server to the end of the
    /// response.
    pub request: Option<Duration>,
}

impl TimeLimits {
    /// These, and those of `other` where there is none.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            first_byte: self.first_byte.or(other.first_byte),
            attempt: self.attempt.or(other.attempt),
            request: self.request.or(other.request),
        }
    }

    /// These, without those that `other` has.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self {
            first_byte: self.first_byte.filter(|_| other.first_byte.is_none()),
            attempt: self.attempt.filter(|_| other.attempt.is_none()),
            request: self.request.filter(|_| other.request.is_none()),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for TimeLimits {
    /// As in the file: `timeout 30s, try_timeout 5s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = [
            ("timeout", self.request),
            ("try_timeout", self.attempt),
            ("first_byte_timeout", self.first_byte),
        ];
        let set = each.into_iter().filter_map(|(name, time)| Some((name, time?)));
        for (at, (name, time)) in set.enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{name} {time:?}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_of_a_route_replaces_that_of_its_upstream() {
        let second = Some(Duration::from_secs(1));
        let upstream = TimeLimits { first_byte: second, attempt: None, request: second };
        let half = Some(Duration::from_millis(500));
        let route = TimeLimits { first_byte: None, attempt: half, request: half };
        let both = TimeLimits { first_byte: second, attempt: half, request: half };
        assert_eq!(route.or(upstream), both);
        assert_eq!(both.to_string(), "timeout 500ms, try_timeout 500ms, first_byte_timeout 1s");
        assert_eq!(upstream.without(route).to_string(), "first_byte_timeout 1s");
        assert!(TimeLimits::default().is_empty() && !upstream.is_empty());
    }
}
