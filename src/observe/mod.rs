//! What the operator sees.
//!
//! Reading order: `decision` (the words for what became of a request), `address` and `time` (how
//! both are shown), [`access_log`] (one line for every request), [`audit`] (who was refused by what),
//! [`consumption`] (who asks most), [`traces`], [`metrics`].

pub mod access_log;
pub mod audit;
pub mod consumption;
pub mod decision;
pub mod metrics;
pub mod traces;

/// How moments are shown; answers on the admin port show them so, too.
pub(crate) mod time;

pub mod address;
