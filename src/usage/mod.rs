//! Usage of quotas: what each client used of each fixed window of an hour or longer, by period. Kept in a file, so that
//! a restart loses no counts, and for billing.
//!
//! Requests note what they used in the [`ledger`], in memory. A thread of the [`keeper`] writes it to the [`file`]
//! twice a second, and at the end of the process. At the start, the counts of periods that have not ended are put back
//! into the buckets.
//!
//! Reading order: [`record`], [`ledger`], [`file`], [`keeper`].

pub mod file;
pub mod keeper;
pub mod ledger;
pub mod record;
