//! Files of the program that are checked under all interleavings. `sync` uses the model checker;
//! everything else is as in the program.

#[path = "../../../src/limit/mod.rs"]
pub mod limit;

#[path = "../../../src/store"]
pub mod store {
    pub mod deny_cache;
    pub mod leases;

    #[path = "redis/batch/queue.rs"]
    pub mod queue;
}

#[path = "../../../src/base"]
pub mod base {
    #[cfg(test)]
    pub(crate) mod cases;
    pub mod duration;
    pub mod now;
    pub mod unix_time;

    /// Replaces `src/base/sync.rs`.
    pub(crate) mod sync {
        use loom::sync::MutexGuard;
        pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};

        /// A lock with the interface of `parking_lot`.
        #[derive(Debug)]
        pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

        impl<T> Mutex<T> {
            pub(crate) fn new(value: T) -> Self {
                Self(loom::sync::Mutex::new(value))
            }

            pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
                self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
            }
        }
    }
}
