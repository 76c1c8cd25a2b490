//! What every module may use: time, texts, hashes, locks, services and bounded logs. Knows nothing
//! of limits, HTTP or the configuration.

pub mod background;
pub mod blocking;
pub mod bounded_log;
pub(crate) mod boxed;
#[cfg(test)]
pub(crate) mod cases;
pub mod clock;
pub mod duration;
pub mod failure;
#[cfg(test)]
pub(crate) mod faulty_file;
pub(crate) mod hash;
pub(crate) mod log_interval;
pub mod now;
pub(crate) mod period;
pub(crate) mod random;
pub mod request_id;
pub(crate) mod shard;
pub(crate) mod sync;
pub mod text;
pub(crate) mod time;
pub mod unix_time;
