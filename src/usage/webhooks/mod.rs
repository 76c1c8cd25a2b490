//! Webhooks: servers that are sent events, such as a client that has used 80 % of its quota.
//!
//! The thread that writes usage looks at what it writes, and hands events over ([`notices`]):
//! requests do nothing for them. Another thread sends them ([`delivery`]), signed as Standard
//! Webhooks demands, again and again until the server accepts them. Of the gateways that share a
//! Redis, one sends an event ([`claims`]); its id is the same at all of them, so that a server can
//! tell a repetition.
//!
//! Reading order: [`event`], `sign`, `retry`, [`claims`], [`notices`], [`delivery`].

pub mod claims;
pub mod delivery;
pub mod event;
pub mod notices;
mod retry;
mod sign;
