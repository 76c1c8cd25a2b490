//! Services that end by a panic. The process ends with them: without a listener or without its
//! supervision, it would look healthy and not serve.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;

use super::background::Background;

/// What the main thread waits for.
#[derive(Debug)]
pub enum Event {
    /// The listeners close; requests in flight end.
    Drain,
    /// All services have ended.
    Ended,
    /// A service cannot go on.
    Failed { service: String },
}

/// Reports services that cannot go on. Clones report to the same thread.
#[derive(Clone, Debug)]
pub struct Failures(Sender<Event>);

/// A background service whose panic ends the process.
pub struct Supervised<S> {
    name: &'static str,
    service: Arc<S>,
    failures: Failures,
}

/// Where threads and tasks report that start before the main thread waits, or deep within a
/// request.
static PROCESS: Mutex<Process> = Mutex::new(Process { failures: None, early: Vec::new() });

/// The reports of this process.
struct Process {
    /// Where to report; `None` until the main thread waits.
    failures: Option<Failures>,
    /// What has failed before.
    early: Vec<String>,
}

/// Runs a thread whose panic ends the process.
pub fn watch_thread(name: &str, run: impl FnOnce()) {
    let run = || {
        test_point(name);
        run();
    };
    if catch_unwind(AssertUnwindSafe(run)).is_err() {
        report(name);
    }
}

/// Runs a task whose panic ends the process.
pub async fn watch_task(name: &str, run: impl Future<Output = ()>) {
    let run = async {
        test_point(name);
        run.await;
    };
    if AssertUnwindSafe(run).catch_unwind().await.is_err() {
        report(name);
    }
}

fn report(service: &str) {
    let mut process = PROCESS.lock();
    match &process.failures {
        Some(failures) => failures.report(service),
        None => process.early.push(service.to_owned()),
    }
}

/// Panics in builds with debug assertions if the environment variable `TOLLGATE_TEST_PANIC` is
/// `place`, so that tests can show what a panic does. Other builds have no such variable.
pub fn test_point(place: &str) {
    debug_assert!(
        !std::env::var("TOLLGATE_TEST_PANIC").is_ok_and(|wanted| wanted == place),
        "TOLLGATE_TEST_PANIC is {place}"
    );
}

impl Failures {
    /// Reports to the receiver of `events`.
    pub fn new(events: Sender<Event>) -> Self {
        Self(events)
    }

    /// Also reports the panics of [`watch_thread`] and [`watch_task`], those so far included.
    #[must_use]
    pub fn for_process(self) -> Self {
        let mut process = PROCESS.lock();
        for service in process.early.drain(..) {
            self.report(&service);
        }
        process.failures = Some(self.clone());
        self
    }

    /// Reports that a service cannot go on.
    pub fn report(&self, service: &str) {
        // Without a receiver, the process ends already.
        let _ = self.0.send(Event::Failed { service: service.to_owned() });
    }

    /// Runs a service, and reports its panic.
    pub async fn watch(&self, service: &str, run: impl Future<Output = ()>) {
        let run = async {
            test_point(service);
            run.await;
        };
        if AssertUnwindSafe(run).catch_unwind().await.is_err() {
            self.report(service);
        }
    }
}

impl<S> Supervised<S> {
    /// Runs `service`, and reports its panic under this name.
    pub fn new(name: &'static str, service: impl Into<Arc<S>>, failures: Failures) -> Self {
        Self { name, service: service.into(), failures }
    }
}

impl<S: Background> Background for Supervised<S> {
    fn start(&self, shutdown: ShutdownWatch) -> BoxFuture<'_, ()> {
        Box::pin(self.failures.watch(self.name, self.service.start(shutdown)))
    }
}

#[async_trait]
impl<S: Background> BackgroundService for Supervised<S> {
    async fn start(&self, shutdown: ShutdownWatch) {
        Background::start(self, shutdown).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    struct Panics(bool);

    impl Background for Panics {
        fn start(&self, _: ShutdownWatch) -> BoxFuture<'_, ()> {
            Box::pin(async { assert!(!self.0, "a bug") })
        }
    }

    #[tokio::test]
    async fn panic_of_a_service_is_reported_and_its_end_is_not() {
        let (sender, receiver) = channel();
        let (_running, shutdown) = tokio::sync::watch::channel(false);
        for panics in [false, true] {
            let failures = Failures::new(sender.clone());
            let supervised = Supervised::new("orders", Panics(panics), failures);
            Background::start(&supervised, shutdown.clone()).await;
        }
        let events: Vec<Event> = receiver.try_iter().collect();
        assert!(
            matches!(&events[..], [Event::Failed { service }] if service == "orders"),
            "{events:?}"
        );
    }
}
