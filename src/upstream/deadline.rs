//! When a request must have ended, and an attempt must have its response.

use std::time::Duration;

use tokio::time::Instant;

/// When a request must have ended, and what sets that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    pub(crate) set_by: SetBy,
}

/// What sets a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetBy {
    /// `grpc-timeout` of the client of a gRPC call.
    Client,
    /// `timeout` of the route or the upstream.
    Gateway,
}

/// Time limit of an attempt to get the head of the response (`try_timeout`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TryLimit {
    /// When the attempt began.
    pub(crate) began: Instant,
    /// From then on, or from the end of the request's body if that is later.
    pub(crate) timeout: Duration,
}

impl TryLimit {
    /// When it ends connecting; `None`: `connect_timeout` does, which is as long.
    pub(crate) fn of_connecting(self, connect_timeout: Duration) -> Option<Instant> {
        let is_own = self.timeout != connect_timeout;
        self.began.checked_add(self.timeout).filter(|_| is_own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_of_an_attempt_ends_connecting_unless_it_is_that_of_connecting() {
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let end = |timeout| TryLimit { began, timeout }.of_connecting(second);
        assert_eq!(end(second / 2), Some(began + second / 2));
        assert_eq!((end(second), end(second * 2)), (None, Some(began + second * 2)));
    }
}
