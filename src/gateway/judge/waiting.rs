//! Requests that wait because of leaky buckets: how many, for how long, and how the wait of one
//! ends.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pingora::prelude::{Error, Result};
use pingora::protocols::http::ServerSession;
use pingora::proxy::Session;
use prometheus::IntGauge;
use tokio::time::Instant;

use super::CheckTime;
use crate::base::clock;
use crate::decide::decision::LimitCheck;
use crate::gateway::request::grpc_deadline;
use crate::limit::charge::Charge;
use crate::limit::leaky_bucket;
use crate::policy::{Kind, Policy};

/// The requests that wait. Clones share the count.
#[derive(Clone)]
pub(in crate::gateway) struct Queue {
    count: Arc<AtomicUsize>,
    /// The count, in the metrics.
    gauge: IntGauge,
}

/// One request in the queue, until it is dropped.
pub(in crate::gateway) struct Place(Queue);

/// The wait of a request.
pub(in crate::gateway) struct Wait {
    place: Place,
    delay_us: u64,
    /// When it ends, in microseconds of the monotonic clock.
    ends_at: u64,
}

impl Queue {
    /// An empty queue.
    pub(in crate::gateway) fn new(gauge: IntGauge) -> Self {
        Self { count: Arc::default(), gauge }
    }

    /// Adds a request, unless there are `max` already.
    pub(super) fn enter(&self, max: usize) -> Option<Place> {
        let one_more = |count: usize| (count < max).then_some(count + 1);
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        self.gauge.inc();
        Some(Place(self.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
        self.0.gauge.dec();
    }
}

/// Whether a request with these charges may have to wait.
pub(super) fn can_delay(policy: &Policy, charges: &[Charge]) -> bool {
    charges.iter().any(|charge| is_leaky(policy, charge))
}

fn is_leaky(policy: &Policy, charge: &Charge) -> bool {
    policy.rules.get(charge.rule as usize).is_some_and(|rule| rule.kind == Kind::LeakyBucket)
}

/// Microseconds that an allowed request waits: the longest delay of its leaky buckets.
fn delay_us(policy: &Policy, check: &LimitCheck) -> u64 {
    let each = check.taken.charges.iter().zip(&check.taken.answer.outcomes);
    let delays = each
        .filter(|(charge, _)| is_leaky(policy, charge))
        .map(|(charge, outcome)| leaky_bucket::delay_us(charge, outcome));
    delays.max().unwrap_or(0)
}

impl Wait {
    /// The wait of an allowed request, whose check took `time`; `None` if it need not wait.
    ///
    /// It begins with the decision. If it began later, requests whose decision arrives late would
    /// pass after those that were decided after them.
    pub(super) fn of(
        policy: &Policy,
        check: &LimitCheck,
        place: Place,
        time: Option<CheckTime>,
    ) -> Option<Self> {
        let delay_us = delay_us(policy, check);
        let known_at = time.map_or_else(clock::now, CheckTime::ended);
        let ends_at = check.taken.decided_at(known_at).saturating_add(delay_us);
        (delay_us > 0).then_some(Self { place, delay_us, ends_at })
    }

    /// Waits. Returns the microseconds for which the request was to wait. `deadline`: that of a
    /// gRPC call.
    ///
    /// # Errors
    /// The client has left, or the deadline has passed. Its place in the queue is free again; its
    /// tokens stay taken, since the requests after it have their delays already.
    pub(in crate::gateway) async fn end(
        self,
        session: &mut Session,
        deadline: Option<Instant>,
    ) -> Result<u64> {
        let Self { place, delay_us, ends_at } = self;
        let left = Duration::from_micros(ends_at.saturating_sub(clock::now()));
        let ready_at = Instant::now() + left;
        let deadline = deadline.filter(|deadline| *deadline < ready_at);
        tokio::select! {
            () = tokio::time::sleep_until(deadline.unwrap_or(ready_at)) => {}
            error = client_left(session) => return Err(error.into_down()),
        }
        if deadline.is_some() {
            return Err(grpc_deadline::passed());
        }
        drop(place);
        Ok(delay_us)
    }
}

/// Completes when the client resets the stream or closes the connection. Over HTTP/1.1, never for a
/// request whose body is not read yet, or one for an upgrade: what they send first belongs to the
/// upstream.
async fn client_left(session: &mut Session) -> Box<Error> {
    if session.is_upgrade_req() {
        return pending().await;
    }
    match &mut *session.downstream_session {
        ServerSession::H2(stream) => match stream.idle().await {
            Ok(reason) => Error::explain(
                pingora::ErrorType::H2Error,
                format!("the client has reset the stream: {reason}"),
            ),
            Err(error) => error,
        },
        downstream => {
            if !downstream.is_body_done() {
                return pending().await;
            }
            match downstream.read_body_or_idle(true).await {
                Err(error) => error,
                Ok(_) => pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_holds_at_most_the_maximum() {
        let gauge = IntGauge::new("waiting", "Waiting.").unwrap();
        let queue = Queue::new(gauge.clone());
        let first = queue.enter(2).unwrap();
        let _second = queue.enter(2).unwrap();
        assert!(queue.enter(2).is_none());
        assert_eq!(gauge.get(), 2);
        drop(first);
        assert_eq!(gauge.get(), 1);
        let third = queue.enter(2);
        assert!(third.is_some() && queue.enter(2).is_none() && queue.enter(0).is_none());
        // A reload may raise it.
        assert!(queue.enter(3).is_some());
    }
}
