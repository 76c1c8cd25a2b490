//! Automatic certificates: ordered from a certificate authority by ACME (RFC 8555), renewed,
//! stored.
//!
//! Reading order: [`plan`] (when to order), pure; [`challenges`] (what the gateway answers to the
//! authority); [`storage`] (account, certificates and state of orders); `error`, `transport`
//! (HTTP), `account`, `board` (challenges of running orders), `order`; `domain`; [`running`] (the
//! work for one `[acme]` table).

mod account;
mod board;
pub mod challenges;
mod domain;
pub mod error;
mod order;
pub mod plan;
pub mod running;
pub mod storage;
mod transport;

use std::sync::Arc;

use crate::observe::metrics::Metrics;
use crate::tls::listeners::TlsListeners;
use challenges::Challenges;

/// What automatic certificates share with the rest of the gateway. Clones share all of it.
#[derive(Clone)]
pub struct AcmeHandles {
    /// Where certificates and failures go.
    pub tls: Arc<TlsListeners>,
    /// Challenges that requests ask for.
    pub challenges: Arc<Challenges>,
    /// Counts orders and failures.
    pub metrics: Arc<Metrics>,
}

impl AcmeHandles {
    /// Handles without a challenge yet.
    pub fn new(tls: Arc<TlsListeners>, metrics: Arc<Metrics>) -> Self {
        Self { tls, challenges: Arc::default(), metrics }
    }
}
