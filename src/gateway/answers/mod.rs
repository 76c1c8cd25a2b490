//! What the gateway answers instead of an upstream.
//!
//! Reading order: before the decision, `acme_challenge` (automatic certificates) and `redirect`
//! (listeners that only redirect); after it, `own_limits` (a client's own limits), `own_key` (its
//! own key), `preflight` (CORS preflight requests), `route_answer` (routes without an upstream) and
//! `demo` (the built-in upstream).

pub(super) mod acme_challenge;
pub(super) mod demo;
pub(super) mod own_key;
pub(super) mod own_limits;
pub(super) mod preflight;
pub(super) mod redirect;
pub(super) mod route_answer;
