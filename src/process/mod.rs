//! The process: its end, its replacement by another one, its clock.
//!
//! Reading order: `signals`, `busy` (what it waits for before it ends), `handover` (upgrades),
//! `notify` (systemd), `wall_clock` (Unix time).

pub mod busy;
pub mod handover;
pub mod notify;
pub mod signals;
pub mod wall_clock;
