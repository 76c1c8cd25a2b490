//! Automatic certificates: ordered from a certificate authority by ACME (RFC 8555), renewed, stored.
//!
//! Reading order: [`plan`] (when to order), pure; [`challenges`] (what the gateway answers to the
//! authority); [`storage`] (account, certificates and state of orders); `error`, `transport` (HTTP),
//! `account`, `board` (challenges of running orders), `order`; [`running`] (the work for one `[acme]`
//! table); [`status`] (what the admin port shows).

mod account;
mod board;
pub mod challenges;
pub mod error;
mod order;
pub mod plan;
pub mod running;
pub mod status;
pub mod storage;
mod transport;

use std::sync::Arc;

use prometheus::IntCounterVec;

use crate::tls::store::CertificateStore;
use challenges::Challenges;
use status::Statuses;

/// What automatic certificates share with the rest of the gateway. Clones share all of it.
#[derive(Clone)]
pub struct AcmeHandles {
    /// Certificates for handshakes.
    pub certificates: Arc<CertificateStore>,
    /// Challenges that requests ask for.
    pub challenges: Arc<Challenges>,
    /// What the admin port shows.
    pub statuses: Arc<Statuses>,
    /// Numbers of orders by result.
    pub orders: IntCounterVec,
}

impl AcmeHandles {
    /// Handles without a certificate or challenge yet. Certificates go to `certificates`; `orders` counts
    /// orders.
    pub fn new(certificates: Arc<CertificateStore>, orders: IntCounterVec) -> Self {
        Self { certificates, challenges: Arc::default(), statuses: Arc::default(), orders }
    }
}
