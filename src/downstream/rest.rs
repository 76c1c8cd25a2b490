//! The rest of a request whose response has ended.
//!
//! Pingora 0.9.1 goes on to read the body of such a request from the client and to send it to the
//! server, for as long as the client likes: over HTTP/2 without any time limit. Meanwhile nothing
//! reads from the connection to the server, so that not even its end is noticed. So the rest has a
//! time limit, after which the request is dropped: a client of HTTP/2 gets RST_STREAM with NO_ERROR
//! (RFC 9113, section 8.1), and a connection of HTTP/1 is closed.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

tokio::task_local! {
    /// Time limit of the rest of the request that the task serves; `None`: its response has not
    /// ended.
    static LIMIT: Cell<Option<Duration>>;
}

/// Limits the time of the rest of the request that the current task serves, whose response has
/// ended. The client may not have read all of the response yet: the limit has to allow for that.
pub fn begin(limit: Duration) {
    // Tests of single parts serve no connection.
    let _ = LIMIT.try_with(|it| it.set(Some(limit)));
}

/// Serves a request. `None`: its rest took too long.
pub(super) fn bounded<F: Future + ?Sized>(
    mut request: Pin<Box<F>>,
) -> impl Future<Output = Option<F::Output>> {
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    let serve = poll_fn(move |context: &mut Context<'_>| {
        // First: a request that is busy all the time uses up what the runtime lets a task do at
        // once.
        if let Some(timer) = &mut timer
            && timer.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(None);
        }
        if let Poll::Ready(output) = request.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        // Set while the request was polled.
        if timer.is_none()
            && let Some(limit) = LIMIT.with(Cell::get)
        {
            let mut begun = Box::pin(sleep(limit));
            // Also if the runtime lets the task do no more now: it is polled again at once then.
            let _ = begun.as_mut().poll(context);
            timer = Some(begun);
        }
        Poll::Pending
    });
    LIMIT.scope(Cell::new(None), serve)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::time::Instant;

    use super::*;

    const LIMIT_OF_REST: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn only_the_rest_of_a_request_is_bounded() {
        let started = Instant::now();
        let whole = bounded(Box::pin(async {
            sleep(Duration::from_secs(3600)).await;
            7
        }));
        assert_eq!(whole.await, Some(7));
        assert_eq!(started.elapsed(), Duration::from_secs(3600));

        let in_time = bounded(Box::pin(async {
            sleep(Duration::from_secs(60)).await;
            begin(LIMIT_OF_REST);
            sleep(LIMIT_OF_REST / 2).await;
            8
        }));
        assert_eq!(in_time.await, Some(8));

        let started = Instant::now();
        let endless = bounded(Box::pin(async {
            sleep(Duration::from_secs(60)).await;
            begin(LIMIT_OF_REST);
            std::future::pending::<()>().await;
        }));
        assert_eq!(endless.await, None);
        assert_eq!(started.elapsed(), Duration::from_secs(60) + LIMIT_OF_REST);
    }

    #[tokio::test(start_paused = true)]
    async fn rest_that_keeps_the_task_busy_is_bounded() {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        tokio::spawn(async move {
            for _ in 0..200 {
                tokio::time::advance(LIMIT_OF_REST / 100).await;
            }
            over.store(true, Ordering::Relaxed);
        });
        let busy = bounded(Box::pin(async {
            begin(LIMIT_OF_REST);
            while !is_over.load(Ordering::Relaxed) {
                // Ends each turn of the task with nothing left of what the runtime allows at once.
                tokio::task::consume_budget().await;
            }
        }));
        assert_eq!(busy.await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn next_request_of_a_connection_is_not_bounded_by_the_one_before() {
        bounded(Box::pin(async { begin(LIMIT_OF_REST) })).await;
        let next = bounded(Box::pin(sleep(2 * LIMIT_OF_REST)));
        assert_eq!(next.await, Some(()));
    }
}
