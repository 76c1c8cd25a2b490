//! When a request must have ended.

use tokio::time::Instant;

/// When a request must have ended, and who has set that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    pub(crate) set_by: SetBy,
}

/// Who has set a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetBy {
    /// The client of a gRPC call.
    Client,
    /// `timeout` of the route or the upstream.
    Gateway,
}
