//! What clients used on each day and through each route, beside the totals of periods: sums over
//! requests, with `usage.detail`.
//!
//! A total is what the bucket says, and counts an operator's grants. Sums have no such source, so
//! each write must be added once: a transaction of the file, or in Redis a numbered batch, which is
//! sent again unchanged until its reply has come.
//!
//! Reading order: [`row`], [`tally`] (what requests note), [`batch`] (what is sent to Redis).

pub mod batch;
pub mod row;
pub mod tally;
