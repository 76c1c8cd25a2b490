//! Usage of quotas in Redis: one record for each client, rule and period, of all gateways that
//! share it.
//!
//! A record mirrors the bucket: a gateway writes the number that the last answer of Redis had, with
//! the time of that answer by Redis' clock, and the latest answer counts ([`codec`],
//! `lua/usage.lua`). So writes can arrive in any order and any number of times, and a gateway that
//! dies takes no count along: the next answer for the client, of any gateway, has the whole number.
//!
//! Reading order: [`codec`] (keys and values), [`store`] (reads and writes), [`writer`] (the thread
//! that writes), `settle` (what was granted locally while Redis was unavailable).

pub mod codec;
mod settle;
pub mod store;
pub mod writer;
