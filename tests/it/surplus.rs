//! Surplus bytes after an upstream's response must not become the response to another request.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{
    Gateway, ReceivedRequest, Request, TIMEOUT, Upstream, eventually, proxy_to, sleep_for, within,
};

/// Surplus that the next client would parse as its response.
const FOREIGN: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nforeign";

/// Delay between the response and the surplus, which is a separate write.
const LATER: Duration = Duration::from_millis(5);

/// Responses without a body, one of which is followed by surplus.
const BODILESS: [(&str, &str); 3] = [
    ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
    ("DELETE", "HTTP/1.1 204 No Content\r\n\r\n"),
    ("OPTIONS", "HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n"),
];

fn path(seen: &ReceivedRequest) -> &str {
    seen.line().split(' ').nth(1).unwrap_or_default()
}

/// Responds to GET with its path, and to the methods of [`BODILESS`] without a body, followed by
/// `surplus`.
fn with_surplus(surplus: &'static [u8]) -> Upstream {
    Upstream::start(move |seen, stream| {
        let method = seen.line().split(' ').next().unwrap_or_default();
        let Some((_, head)) = BODILESS.iter().find(|(own, _)| *own == method) else {
            let path = path(seen);
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len());
            return stream.write_all(answer.as_bytes()).is_ok();
        };
        if stream.write_all(head.as_bytes()).is_err() {
            return false;
        }
        if !surplus.is_empty() {
            sleep_for(LATER);
        }
        stream.write_all(surplus).is_ok()
    })
}

#[test]
fn surplus_after_a_response_without_body_reaches_no_other_client() {
    for (method, _) in BODILESS {
        let upstream = with_surplus(FOREIGN);
        let gateway = Gateway::start(&proxy_to(&[upstream.address]));
        let foreign = (0..100).filter(|number| {
            gateway.send(&Request::new(method, "/"));
            let own = format!("/{number}");
            gateway.get(&own).text() != own
        });
        assert_eq!(foreign.count(), 0, "answers of 100 that were not their own, after {method}");
    }
}

#[test]
fn surplus_is_logged_with_the_request_at_a_bounded_rate() {
    let upstream = with_surplus(FOREIGN);
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    for _ in 0..20 {
        gateway.send(&Request::new("HEAD", "/"));
    }
    sleep_for(Duration::from_secs(1));
    let lines = || {
        gateway.get("/");
        let lines: Vec<_> = gateway.log().lines().map(str::to_string).collect();
        let lines: Vec<_> = lines.into_iter().filter(|line| line.contains("surplus")).collect();
        (!lines.is_empty()).then_some(lines)
    };
    let lines = eventually("a line about the surplus", lines);
    assert_eq!(lines.len(), 1, "{lines:?}");
    let seen = upstream.requests();
    let ids = seen.iter().filter_map(|seen| seen.header("x-request-id"));
    assert!(ids.into_iter().any(|id| lines[0].contains(id)), "{lines:?}");
}

/// Responds to every request with its path, and sends surplus later. Counts how often.
fn with_surplus_after_bodies() -> (Upstream, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::default());
    let counted = Arc::clone(&count);
    let upstream = Upstream::start(move |seen, stream| {
        let path = path(seen);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", path.len());
        stream.write_all(format!("{head}{path}").as_bytes()).is_ok() && {
            sleep_for(LATER);
            let is_sent = stream.write_all(FOREIGN).is_ok();
            counted.fetch_add(1, Ordering::SeqCst);
            is_sent
        }
    });
    (upstream, count)
}

fn wait_for_surplus(count: &AtomicUsize, expected: usize) {
    eventually("the surplus", || (count.load(Ordering::SeqCst) == expected).then_some(()));
}

/// Surplus is detected while the connection is idle, so it is never reused.
#[test]
fn surplus_on_an_idle_connection_reaches_no_other_client() {
    let (upstream, count) = with_surplus_after_bodies();
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    for number in 0..20 {
        let own = format!("/{number}");
        assert_eq!(gateway.get(&own).text(), own);
        wait_for_surplus(&count, number + 1);
    }
}

#[test]
fn server_that_sent_surplus_is_checked_after_every_response() {
    let (upstream, _) = with_surplus_after_bodies();
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    // Surplus that arrives together with its response is dropped with the connection and not
    // logged.
    eventually("surplus to be noticed", || {
        gateway.get("/first");
        sleep_for(2 * LATER);
        gateway.log().contains("surplus").then_some(())
    });
    let foreign = (0..100).filter(|number| {
        let own = format!("/{number}");
        gateway.get(&own).text() != own
    });
    assert_eq!(foreign.count(), 0, "answers of 100 that were not their own");
}

/// Answers after 5 ms with the path, and once, 3 ms behind an answer, with another one.
fn with_one_late_surplus() -> Upstream {
    let count = AtomicUsize::default();
    Upstream::start(move |seen, stream| {
        let path = path(seen);
        sleep_for(LATER);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", path.len());
        let is_sent = stream.write_all(format!("{head}{path}").as_bytes()).is_ok();
        if count.fetch_add(1, Ordering::SeqCst) == 100 {
            sleep_for(Duration::from_millis(3));
            return stream.write_all(FOREIGN).is_ok();
        }
        is_sent
    })
}

/// The surplus is taken for the answer to the next request, and each right answer for that to the
/// one after it, until the connection rests.
#[test]
fn late_surplus_shifts_the_answers_of_a_busy_connection_for_a_bounded_time() {
    let upstream = with_one_late_surplus();
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    let wrong = AtomicUsize::default();
    let answered: [AtomicUsize; 8] = std::array::from_fn(|_| AtomicUsize::default());
    let has_ended = AtomicBool::default();
    std::thread::scope(|scope| {
        for (client, answered) in answered.iter().enumerate() {
            let (gateway, wrong, has_ended) = (&gateway, &wrong, &has_ended);
            scope.spawn(move || {
                let mut connection = gateway.connect();
                for number in 0.. {
                    if has_ended.load(Ordering::SeqCst) {
                        break;
                    }
                    let own = format!("/{client}/{number}");
                    let is_own = connection.send(&Request::get(&own)).text() == own;
                    wrong.fetch_add(usize::from(!is_own), Ordering::SeqCst);
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        // Of each client: one can be slow to count its answer.
        let until_answered = |more: usize| {
            let counts = || answered.each_ref().map(|count| count.load(Ordering::SeqCst));
            let goals = counts().map(|count| count + more);
            let are_met = || counts().iter().zip(goals).all(|(count, goal)| *count >= goal);
            within(TIMEOUT, || are_met().then_some(()))
        };
        let found = within(TIMEOUT, || gateway.log().contains("surplus bytes").then_some(()));
        // Answers that were on their way.
        let is_served = until_answered(2);
        let before = wrong.load(Ordering::SeqCst);
        let is_served = is_served.and_then(|()| until_answered(50));
        let after = wrong.load(Ordering::SeqCst) - before;
        has_ended.store(true, Ordering::SeqCst);
        assert!(is_served.is_some(), "the clients get no answers");
        assert!(found.is_some(), "the surplus was not found, and {before} answers were wrong");
        assert_eq!(after, 0, "wrong answers after the surplus was found");
    });
}

#[test]
fn connection_is_reused_after_a_response_without_body_and_silence() {
    let upstream = with_surplus(b"");
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    for (method, _) in BODILESS {
        gateway.send(&Request::new(method, "/"));
        let is_used_again = || {
            sleep_for(Duration::from_millis(1_200));
            gateway.send(&Request::new(method, "/"));
            let seen = upstream.requests();
            let [.., before, last] = &*seen else { return None };
            (before.connection == last.connection).then_some(())
        };
        eventually(&format!("a connection to be used again after {method}"), is_used_again);
    }
}

#[test]
fn connection_is_reused_at_once_after_a_body() {
    let upstream = Upstream::echo();
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    let mut client = gateway.connect();
    for body in ["", "x", "a longer one"] {
        for _ in 0..20 {
            assert_eq!(client.send(&Request::new("POST", "/").body(body)).text(), body);
        }
    }
    let connections = upstream.requests().iter().map(|seen| seen.connection).max();
    // The response may reach the client before the connection is back in the pool.
    assert!(connections.is_some_and(|most| most < 20), "{connections:?}");
}
