//! Usage of quotas: what each client used of each fixed window of an hour or longer, by period, for
//! billing. Without Redis it is kept in a file, so that a restart loses no counts, too.
//!
//! Requests note what they used in the [`ledger`], in memory. Twice a second, and at the end of the
//! process, a thread writes it: that of the [`keeper`] to the [`file`], or that of [`shared`] to
//! Redis. At the start, the counts of periods in the file that have not ended are put back into the
//! buckets.
//!
//! The file also has the logs of sliding windows of an hour or longer: [`kept_log`]. They are no
//! usage, and are not listed. The store says which of them have changed, because settlements change
//! them as well.
//!
//! With `usage.detail`, what each client used on each day is kept as well: [`days`].
//!
//! Reading order: [`record`], [`ledger`], [`kept_log`], [`file`], [`keeper`], [`restored`],
//! [`shared`], [`kept`], [`webhooks`].

pub mod days;
pub mod file;
pub mod keeper;
pub mod kept;
pub mod kept_log;
pub mod ledger;
pub mod record;
mod restored;
pub mod shared;
pub mod webhooks;
