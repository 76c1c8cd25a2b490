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
