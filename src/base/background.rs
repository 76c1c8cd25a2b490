//! Services that run beside the others.

use futures_util::future::BoxFuture;
use pingora::server::ShutdownWatch;

/// A service that runs until it has nothing more to do or the process ends.
///
/// It is Pingora's `BackgroundService` without the where clauses that `async_trait` adds: in a
/// method with them, the compiler proves anew for each type within the future that it can be sent
/// between threads, which took a second for some services.
pub trait Background: Send + Sync + 'static {
    /// Runs the service. `shutdown` changes when the process drains.
    fn start(&self, shutdown: ShutdownWatch) -> BoxFuture<'_, ()>;
}
