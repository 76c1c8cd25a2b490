//! Locks and atomics of code that is checked under all interleavings of threads. `tests/model`
//! builds the same files with the types of a model checker instead.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use parking_lot::Mutex;
