//! Which endpoint of an upstream gets a request. Pure: the time, the requests in flight and random
//! bits are parameters.
//!
//! Reading order: `plan` (the endpoints that requests are sent to, and their weights),
//! `round_robin`, `least_request` (also the better of two random endpoints), `maglev` (the same
//! endpoint for the same client).

pub(crate) mod least_request;
pub(crate) mod maglev;
pub(crate) mod plan;
pub(crate) mod round_robin;

#[cfg(test)]
mod tests;
