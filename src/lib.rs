//! tollgate: an API gateway that holds every client to its limits, exactly.

pub mod clock;
pub mod config;
pub mod limit;
pub mod policy;

pub mod load;
