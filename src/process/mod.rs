//! The end of the process, and its replacement by another one.
//!
//! Reading order: `signals`, `busy` (what it waits for before it ends), `handover` (upgrades), `notify` (systemd).

pub mod busy;
pub mod handover;
pub mod notify;
pub mod signals;
