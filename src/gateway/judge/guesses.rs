//! Refuses requests for their address before their credential is looked up or verified, so that an
//! address without tokens causes no such work.

use crate::base::clock;
use crate::client::principal::{Found, KeyRefusal};
use crate::decide::{self, Head, Rejection};
use crate::gateway::Gateway;
use crate::gateway::exchange::Exchange;
use crate::limit::charge::Charges;
use crate::store::limiter::Taken;

/// Why it is not known whose credential a request has.
pub(super) enum NotFound {
    Rejected(Rejection),
    /// It was not looked for: its address has no tokens left, which refuses any client.
    Limited(Box<Limited>),
}

/// The refusal of a request whose credential was not looked for.
pub(super) struct Limited {
    /// The client, as far as it is known.
    pub(super) found: Found,
    /// The refusal, which took no tokens.
    pub(super) taken: Taken,
    /// Time of the decision, in microseconds of the monotonic clock.
    pub(super) at: u64,
}

impl NotFound {
    /// The client that a request is decided with, and its refusal if it is limited.
    pub(super) fn split(
        found: Result<Found, Self>,
    ) -> (Result<Found, Rejection>, Option<Box<Limited>>) {
        match found {
            Ok(found) => (Ok(found), None),
            Err(Self::Rejected(rejection)) => (Err(rejection), None),
            Err(Self::Limited(limited)) => (Ok(limited.found.clone()), Some(limited)),
        }
    }
}

impl From<Rejection> for NotFound {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(rejection)
    }
}

impl Gateway {
    /// Checks that the address of a request has tokens left, as far as this is known without a call
    /// of Redis. `source` is the index of the source of its credential, which is not known yet.
    ///
    /// Only rules count here that would refuse the request with any credential, so no client is
    /// refused for the guesses of others.
    ///
    /// # Errors
    /// It has none left.
    #[cold]
    pub(super) fn bound_look_up(
        &self,
        head: &Head<'_>,
        exchange: &Exchange,
        source: usize,
    ) -> Result<(), NotFound> {
        let snapshot = &exchange.snapshot;
        let policy = &snapshot.policy;
        if !policy.limits_addresses() {
            return Ok(());
        }
        let found = Found::unusable(source, KeyRefusal::Unchecked);
        let precheck = decide::precheck(policy, head, Ok(found.clone()));
        // A known client may read its own limits without tokens.
        if !precheck.depends_on_key() || precheck.is_own_limits {
            return Ok(());
        }
        let mut charges: Charges = policy.charges_of_any_client(precheck.charges);
        snapshot.rates.apply(&mut charges);
        let at = clock::now();
        match self.limiter.known_refusal(&charges, &snapshot.stored_rules, at) {
            Some(taken) => Err(NotFound::Limited(Box::new(Limited { found, taken, at }))),
            None => Ok(()),
        }
    }
}
