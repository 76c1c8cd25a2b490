//! What the operator sees.

pub mod consumption;
pub mod metrics;
