//! What the operator sees.

pub mod metrics;
