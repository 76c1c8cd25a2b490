//! The rest of a request whose response has ended.
//!
//! Pingora 0.9.1 goes on to read the body of such a request from the client and to send it to the
//! server, for as long as the client likes: over HTTP/2 without any time limit. Meanwhile nothing
//! reads from the connection to the server, so that not even its end is noticed. So a request is
//! dropped if it takes longer than [`REST_TIMEOUT`]: a client of HTTP/2 gets RST_STREAM with
//! NO_ERROR (RFC 9113, section 8.1), and a connection of HTTP/1 is closed.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

/// How long a client may send the rest of a body after the response has ended.
const REST_TIMEOUT: Duration = Duration::from_secs(2);

tokio::task_local! {
    /// Whether the response to the request that the task serves has ended before the request.
    static HAS_REST: Cell<bool>;
}

/// Begins the time limit of the request that the current task serves: its response has ended, and
/// it has been recorded.
pub fn begin() {
    // Tests of single parts serve no connection.
    let _ = HAS_REST.try_with(|has_rest| has_rest.set(true));
}

/// Serves a request. `None`: its rest took too long.
pub(super) fn bounded<F: Future + ?Sized>(
    mut request: Pin<Box<F>>,
) -> impl Future<Output = Option<F::Output>> {
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    let serve = poll_fn(move |context: &mut Context<'_>| {
        if let Poll::Ready(output) = request.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        // Set while the request was polled.
        if timer.is_none() && HAS_REST.with(Cell::get) {
            timer = Some(Box::pin(sleep(REST_TIMEOUT)));
        }
        let Some(timer) = &mut timer else { return Poll::Pending };
        ready!(timer.as_mut().poll(context));
        Poll::Ready(None)
    });
    HAS_REST.scope(Cell::new(false), serve)
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

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
            begin();
            sleep(REST_TIMEOUT / 2).await;
            8
        }));
        assert_eq!(in_time.await, Some(8));

        let started = Instant::now();
        let endless = bounded(Box::pin(async {
            sleep(Duration::from_secs(60)).await;
            begin();
            std::future::pending::<()>().await;
        }));
        assert_eq!(endless.await, None);
        assert_eq!(started.elapsed(), Duration::from_secs(60) + REST_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn next_request_of_a_connection_is_not_bounded_by_the_one_before() {
        bounded(Box::pin(async { begin() })).await;
        let next = bounded(Box::pin(sleep(REST_TIMEOUT * 2)));
        assert_eq!(next.await, Some(()));
    }
}
