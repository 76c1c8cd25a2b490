//! When a request must have ended, whatever it waits for.

use pingora::prelude::{Error, ErrorType};
use pingora::proxy::Session;
use tokio::time::Instant;

use crate::gateway::exchange::Exchange;
use crate::gateway::request::grpc_deadline;
use crate::gateway::respond::failure;
use crate::upstream::deadline::{Deadline, SetBy};

/// The deadline of a request whose first server is selected now: that of a gRPC call, or `timeout`
/// of its route or upstream; `None`: it has none.
pub(super) fn of(session: &Session, exchange: &Exchange) -> Option<Deadline> {
    let of_call = grpc_deadline::of(session, exchange.started);
    let of_call = of_call.map(|at| Deadline { at, set_by: SetBy::Client });
    let timeout = exchange.time_limits().request;
    let at = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let of_request = at.map(|at| Deadline { at, set_by: SetBy::Gateway });
    of_call.into_iter().chain(of_request).min_by_key(|deadline| deadline.at)
}

/// The error of a request whose deadline has passed. `waits_for_server`: neither the client still
/// sends its body, nor has the head of the response come.
#[allow(clippy::unnecessary_box_returns, reason = "the type of Pingora's errors")]
pub(super) fn passed(set_by: SetBy, waits_for_server: bool) -> Box<Error> {
    let cause = match set_by {
        SetBy::Client => return grpc_deadline::passed(),
        SetBy::Gateway if waits_for_server => failure::REQUEST_TIMED_OUT,
        SetBy::Gateway => failure::CLIENT_TOOK_ALL_TIME,
    };
    Error::new(ErrorType::Custom(cause)).into_up()
}

/// Whether a request failed because its deadline has passed.
pub(super) fn has_passed(error: &Error) -> bool {
    let causes =
        [failure::DEADLINE_PASSED, failure::REQUEST_TIMED_OUT, failure::CLIENT_TOOK_ALL_TIME];
    causes.into_iter().any(|cause| *error.etype() == ErrorType::Custom(cause))
}
