//! The responses of the admin API: the types that the gateway writes, and that commands such as
//! `tollgate top` read. `docs/admin-api.md` describes their members.
//!
//! A member that an older gateway does not send has a default. Unknown members are ignored.

pub mod audit;
pub mod bans;
pub mod clients;
pub mod keys;
pub mod reloads;
pub mod samples;
pub mod status;
pub mod top_ups;
pub mod upgrade;
pub mod upstreams;
pub mod usage;
