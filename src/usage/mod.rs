//! Usage of quotas: what each client used of each fixed window of an hour or longer, by period, for billing. Without Redis
//! it is kept in a file, so that a restart loses no counts, too.
//!
//! Requests note what they used in the [`ledger`], in memory. Twice a second, and at the end of the process, a thread
//! writes it: that of the [`keeper`] to the [`file`], or that of [`shared`] to Redis. At the start, the counts of periods in
//! the file that have not ended are put back into the buckets.
//!
//! Reading order: [`record`], [`ledger`], [`file`], [`keeper`], [`shared`], [`kept`].

pub mod file;
pub mod keeper;
pub mod kept;
pub mod ledger;
pub mod record;
pub mod shared;
