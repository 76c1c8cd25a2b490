//! What clients used on each day and through each route, beside the totals of periods: sums over
//! requests, with `usage.detail`.
//!
//! A total is what the bucket says, and counts an operator's grants. Sums have no such source, so
//! each write must be added once: it is a numbered batch, which is sent to Redis or written to the
//! file again unchanged until it is confirmed.
//!
//! Reading order: [`row`], [`tally`] (what requests note), [`batch`] (what is sent to Redis),
//! [`waiting`] (what is written to the file).

pub mod batch;
pub mod row;
pub mod tally;
pub mod waiting;
