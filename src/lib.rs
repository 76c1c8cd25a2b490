//! tollgate: an API gateway that holds every client to its limits, exactly.

pub mod clock;
pub mod limit;
pub mod policy;

pub mod identity;

pub mod store;
