//! The locks and atomics of code that is checked under all interleavings of threads. In
//! `tests/model`, which builds the same files, those of the model checker take their place.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use parking_lot::Mutex;
