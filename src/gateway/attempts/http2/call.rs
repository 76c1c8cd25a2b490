//! One attempt to send a request over HTTP/2 and to pass on its response. Both bodies flow at the
//! same time, without a buffer beyond the windows of the streams.

use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use http::uri::Scheme;
use http::{HeaderMap, StatusCode, header};
use pingora::prelude::{Error, ErrorSource, ErrorType, ResponseHeader, Result};
use pingora::proxy::{ProxyHttp, Session};
use tokio::time::{Instant, Sleep};

use super::timeout::{Limits, Wait, Waiting};
use super::{Replay, request};
use crate::base::clock;
use crate::decide::reason::Failure;
use crate::gateway::Gateway;
use crate::gateway::attempts::deadline;
use crate::gateway::attempts::retry::Failed;
use crate::gateway::compression;
use crate::gateway::exchange::Exchange;
use crate::gateway::metering::End;
use crate::gateway::request::body_drain;
use crate::gateway::respond::{self, failure, grpc, upstream_response};
use crate::net::body_rate::BodyMeter;
use crate::net::framing;
use crate::policy::compression::OF_THE_ORIGINAL;
use crate::upstream::http2::{Stream, in_words, is_unprocessed};

/// An attempt in progress.
pub(super) struct Call<'a> {
    gateway: &'a Gateway,
    session: &'a mut Session,
    exchange: &'a mut Box<Exchange>,
    replay: &'a mut Replay,
    limits: Limits,
    body: RequestBody,
    response: Response,
    /// Bytes of the response that are missing by its `Content-Length`, if it has one.
    missing: Option<u64>,
    /// When the current wait began.
    since: Instant,
    /// When the attempt began, or when the client had sent the body if that is later.
    try_since: Instant,
    timer: Pin<Box<Sleep>>,
    /// Measures how fast the client sends the body; `None`: any rate will do.
    meter: Option<BodyMeter>,
    is_reused: bool,
    /// Counted by the connection until the attempt ends.
    stream: Stream,
}

/// The body of the request, on its way to the server.
struct RequestBody {
    stream: SendStream<Bytes>,
    /// The next part.
    pending: Option<Bytes>,
    /// Whether the client has sent all of it.
    is_whole: bool,
    /// Whether nothing more is sent: all of it was, or the server does not want the rest.
    is_done: bool,
    /// Whether all of it was sent, with its end.
    is_sent: bool,
}

/// The response, as far as it has come.
enum Response {
    Head(ResponseFuture),
    Body(RecvStream),
}

/// What happened next.
enum Event {
    /// The client has sent a part of the body; `None`: it had sent all before.
    FromClient(Result<Option<Bytes>>),
    /// A part of the body has been sent.
    Sent(Result<(), h2::Error>),
    Interim(http::Response<()>),
    Head(Result<http::Response<RecvStream>, h2::Error>),
    /// A part of the response; `None`: there are no more.
    Data(Option<Result<Bytes, h2::Error>>),
    /// The client has closed the stream of its request.
    ClientClosed(Box<Error>),
    Timeout(Wait),
    /// The client sends the body below the minimum rate.
    ClientSlow,
    /// Bytes of the body that arrive have extended the time of the client.
    Extended,
}

impl<'a> Call<'a> {
    /// Sends the head of the request.
    ///
    /// # Errors
    /// Nothing was sent. The error says whether the request is retried.
    pub(super) async fn begin(
        gateway: &'a Gateway,
        session: &'a mut Session,
        exchange: &'a mut Box<Exchange>,
        mut stream: Stream,
        replay: &'a mut Replay,
        limits: Limits,
    ) -> Result<Self> {
        let has_body = !session.is_body_empty();
        let head = head(gateway, session, exchange, has_body && replay.len == 0);
        let head = head.await?;
        if !has_body {
            gateway.mirror(session, exchange, Some(Bytes::new()));
        }
        // An error means that the connection is closing: nothing was sent.
        let sent = stream.sender.send_request(head, !has_body);
        let (response, upload) = sent.map_err(|error| {
            let (method, failed) = (&session.req_header().method, Failed::NotProcessed);
            let is_retried = gateway.is_retried(exchange, failed, method, replay.is_complete());
            retriable(error, is_retried)
        })?;
        let mut pending = None;
        if replay.len > 0 {
            pending = Some(replay.chunks.concat().into());
        } else if replay.is_whole && has_body {
            pending = Some(Bytes::new());
        }
        let body = RequestBody {
            stream: upload,
            pending,
            is_whole: !has_body || replay.is_whole,
            is_done: !has_body,
            is_sent: !has_body,
        };
        let now = Instant::now();
        let began = limits.bounds_attempt().then(|| exchange.attempts.last_began()).flatten();
        let server = &exchange.snapshot.policy.server;
        let meter = server.limits.body_min_rate.filter(|_| has_body && limits.bounds_client());
        let transfer = &exchange.connection.transfer;
        let meter = meter.map(|rate| BodyMeter::new(rate, Arc::clone(transfer)));
        Ok(Self {
            gateway,
            is_reused: stream.is_reused,
            session,
            exchange,
            replay,
            limits,
            body,
            response: Response::Head(response),
            missing: None,
            since: now,
            try_since: began.unwrap_or(now),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            meter,
            stream,
        })
    }

    /// Passes on the bodies and the head of the response, until the response has ended.
    ///
    /// # Errors
    /// The attempt failed. The error says whether the request is retried.
    pub(super) async fn run(mut self) -> Result<()> {
        loop {
            let end = match self.next().await {
                Event::FromClient(Ok(chunk)) => self.take_chunk(chunk),
                Event::FromClient(Err(error)) | Event::ClientClosed(error) => {
                    return Err(error.into_down());
                }
                Event::Sent(result) => {
                    self.since = Instant::now();
                    if result.is_err() {
                        // The response says why, also if the server did not want the rest.
                        self.body.abandon();
                    }
                    None
                }
                Event::Interim(response) => self.write_interim(response).await,
                Event::Head(Ok(response)) => self.write_head(response).await,
                Event::Head(Err(error)) => return Err(self.without_head(error)),
                Event::Data(Some(Ok(data))) => self.write_data(data).await,
                Event::Data(None) => self.write_trailers().await,
                Event::Data(Some(Err(error)))
                    if self.body.is_unwanted(&error) && self.is_complete() =>
                {
                    self.write_trailers().await
                }
                Event::Data(Some(Err(error))) => Some(Err(in_words(error))),
                Event::ClientSlow => Some(Err(Error::new(failure::SLOW_BODY).into_down())),
                Event::Extended => None,
                Event::Timeout(wait) => Some(Err(self.timed_out(wait))),
            };
            match end {
                None => {}
                Some(Ok(())) => {
                    self.finish().await;
                    return Ok(());
                }
                Some(Err(error)) => return Err(self.fail(error).await),
            }
        }
    }

    /// What the request waits for now.
    fn wait(&self) -> Wait {
        let body = &self.body;
        let is_received = body.is_whole || body.is_done;
        let has_head = matches!(self.response, Response::Body(_));
        let of = match (body.pending.is_some(), is_received) {
            (true, _) => Waiting::Window,
            (false, false) => Waiting::Client,
            (false, true) if has_head => Waiting::Body,
            (false, true) => Waiting::Head,
        };
        let try_since = (is_received && !has_head).then_some(self.try_since);
        Wait { of, since: self.since, try_since }
    }

    async fn next(&mut self) -> Event {
        let wait = self.wait();
        let waiting = wait.of;
        let Self { session, body, response, timer, limits, meter, .. } = self;
        let longest = limits.end(wait);
        let mut end = longest;
        if let Some(meter) = meter {
            let slow = slow_at(meter, waiting);
            end = slow.into_iter().chain(end).min();
        }
        let is_sending = body.pending.is_some();
        let is_idle = body.is_whole || body.is_done;
        // Pingora takes what an idle client of HTTP/1.1 sends for its next request, also if it is
        // the rest of this one.
        let is_watched = body.is_whole || !body.is_done || session.is_http2();
        let from_client = async {
            if !is_sending && is_watched {
                return Event::FromClient(session.read_body_or_idle(is_idle).await);
            }
            match session.downstream_session.watch_h2_stream_close() {
                None => pending().await,
                Some(closed) => Event::ClientClosed(match closed.await {
                    Ok(_) => Error::new(ErrorType::ConnectionClosed),
                    Err(error) => error,
                }),
            }
        };
        let event = tokio::select! {
            event = response.next() => event,
            result = poll_fn(|context| body.poll_send(context)), if is_sending => {
                Event::Sent(result)
            }
            event = from_client => event,
            () = sleep_until(timer, end) => Event::Timeout(wait),
        };
        // Time in which the response is written does not count.
        let is_too_slow = meter.as_mut().is_some_and(|meter| {
            let now = clock::now();
            let is_too_slow = meter.is_too_slow(now);
            meter.pause(now);
            is_too_slow
        });
        match event {
            Event::Timeout(_) if is_too_slow && waiting == Waiting::Client => Event::ClientSlow,
            Event::Timeout(_) if longest.is_none_or(|longest| Instant::now() < longest) => {
                Event::Extended
            }
            event => event,
        }
    }

    /// Takes the next part of the body from the client. Ends the attempt if the body is too large.
    fn take_chunk(&mut self, chunk: Option<Bytes>) -> Option<Result<()>> {
        if self.body.is_whole || self.body.is_done {
            // Bytes of the next request.
            return None;
        }
        let is_whole = chunk.is_none() || self.session.is_body_done();
        if let Err(error) = self.exchange.count_body(chunk.as_ref().map_or(0, Bytes::len)) {
            return Some(Err(error));
        }
        if let (Some(meter), Some(chunk)) = (&mut self.meter, &chunk) {
            meter.note(clock::now(), u64::try_from(chunk.len()).unwrap_or(u64::MAX));
        }
        if let Some(chunk) = chunk.filter(|chunk| !chunk.is_empty() || is_whole) {
            self.replay.push(&chunk);
            self.body.pending = Some(chunk);
        }
        if is_whole {
            self.body.is_whole = true;
            self.replay.is_whole = true;
            self.gateway.mirror(self.session, self.exchange, self.replay.body());
            self.try_since = Instant::now();
            self.body.pending.get_or_insert_default();
            if let Some(attempt) = self.exchange.attempts.last_mut() {
                attempt.marks.request.get_or_insert_with(clock::now);
            }
        }
        self.since = Instant::now();
        None
    }

    /// Forwards an interim response, which does not extend the time limit of the final one. Pingora
    /// does not forward them to clients of HTTP/2. A 100 is not forwarded: the gateway has sent one
    /// itself.
    async fn write_interim(&mut self, response: http::Response<()>) -> Option<Result<()>> {
        self.stream.note_response();
        let status = response.status();
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return Some(Err(respond::unrequested_upgrade()));
        }
        if let Err(error) = self.exchange.attempts.count_interim() {
            return Some(Err(error));
        }
        let request = self.session.req_header();
        if status == StatusCode::CONTINUE
            || self.session.as_http1().is_none()
            || request.version == http::Version::HTTP_10
        {
            return None;
        }
        let mut head = ResponseHeader::from(response.into_parts().0);
        let prepared = upstream_response::prepare(&mut head, request.version);
        if let Err(error) = prepared {
            return Some(Err(error));
        }
        let written = self.session.write_response_header(Box::new(head), false).await;
        written.err().map(|error| Err(error.into_down()))
    }

    async fn write_head(&mut self, response: http::Response<RecvStream>) -> Option<Result<()>> {
        self.since = Instant::now();
        self.stream.note_response();
        let (parts, mut body) = response.into_parts();
        let mut head = ResponseHeader::from(parts);
        if head.status.is_informational() || !framing::has_clear_length(&head.headers) {
            let words = "the head of the response is not valid";
            return Some(Err(Error::new(ErrorType::Custom(words)).into_up()));
        }
        let is_unavailable = grpc::is_unavailable(&head.headers) && grpc::is_call(self.session);
        let failed = if is_unavailable { StatusCode::SERVICE_UNAVAILABLE } else { head.status };
        let method = &self.session.req_header().method;
        let (gateway, has_whole_body) = (self.gateway, self.replay.is_complete());
        let responded =
            gateway.responded(self.exchange, head.status, failed, method, has_whole_body);
        if let Err(error) = responded {
            return Some(Err(error));
        }
        self.missing =
            framing::content_length(&head.headers).and_then(|length| length.parse().ok());
        // Data after a head without a body is discarded.
        let is_end = if framing::has_body(&self.session.req_header().method, head.status) {
            match self.body.is_end(&mut body, self.is_complete()) {
                Ok(is_end) => is_end,
                Err(error) => return Some(Err(in_words(error))),
            }
        } else {
            true
        };
        if is_end {
            self.exchange.release_slot();
        }
        if let Err(error) = self.write_final_head(&mut head, is_end).await {
            return Some(Err(error));
        }
        self.response = Response::Body(body);
        is_end.then_some(Ok(()))
    }

    async fn write_final_head(&mut self, head: &mut ResponseHeader, is_end: bool) -> Result<()> {
        Gateway::prepare_response(self.session, head, self.exchange)?;
        if is_end {
            self.gateway.settle(self.exchange, End::Complete);
        }
        if !is_end {
            compression::begin(self.session, head, self.exchange)?;
        }
        let request = self.session.req_header();
        let has_body = framing::has_body(&request.method, head.status);
        let is_unframed = has_body && !head.headers.contains_key(header::CONTENT_LENGTH);
        if is_unframed && self.session.as_http1().is_some() {
            if is_end {
                head.insert_header(header::CONTENT_LENGTH, 0)?;
            } else if request.version == http::Version::HTTP_10 {
                self.session.set_keepalive(None);
            } else {
                head.insert_header(header::TRANSFER_ENCODING, "chunked")?;
            }
        }
        respond::write_head(self.session, head.clone(), is_end).await.map_err(Error::into_down)
    }

    async fn write_data(&mut self, data: Bytes) -> Option<Result<()>> {
        self.stream.note_response();
        let len = data.len();
        let received = u64::try_from(len).unwrap_or(u64::MAX);
        self.missing = self.missing.map(|missing| missing.saturating_sub(received));
        if let Some(metering) = &mut self.exchange.metering {
            metering.read_body(Some(&data));
        }
        self.exchange.note_part();
        let is_complete = self.is_complete();
        let Response::Body(body) = &mut self.response else { return None };
        let is_end = match self.body.is_end(body, is_complete) {
            Ok(is_end) => is_end,
            Err(error) => return Some(Err(in_words(error))),
        };
        if is_end {
            self.exchange.release_upstream();
            self.gateway.settle(self.exchange, End::Complete);
        }
        let written = self.write_body(Some(data), is_end).await;
        if let Err(error) = written {
            return Some(Err(error));
        }
        let Response::Body(body) = &mut self.response else { return None };
        // An error means that the stream has ended, which the next read shows.
        let _ = body.flow_control().release_capacity(len);
        self.since = Instant::now();
        is_end.then_some(Ok(()))
    }

    async fn write_trailers(&mut self) -> Option<Result<()>> {
        let Response::Body(body) = &mut self.response else { return None };
        let trailers = match poll_fn(|context| body.poll_trailers(context)).await {
            Ok(trailers) => trailers,
            Err(error) if self.body.is_unwanted(&error) => None,
            Err(error) => return Some(Err(in_words(error))),
        };
        self.exchange.release_upstream();
        if let (Some(metering), Some(trailers)) = (&mut self.exchange.metering, &trailers) {
            metering.read_trailers(trailers);
        }
        self.gateway.settle(self.exchange, End::Complete);
        Some(match trailers {
            Some(trailers) => self.write_last(trailers).await,
            None => self.write_body(None, true).await,
        })
    }

    /// Writes a part of the body as the client gets it.
    async fn write_body(&mut self, mut data: Option<Bytes>, is_end: bool) -> Result<()> {
        compression::encode(&mut data, is_end, self.exchange)?;
        if !is_end && data.as_ref().is_none_or(Bytes::is_empty) {
            return Ok(());
        }
        self.session.write_response_body(data, is_end).await.map_err(Error::into_down)
    }

    /// Whether no byte of the response is missing, as far as its length is known.
    fn is_complete(&self) -> bool {
        self.missing.unwrap_or(0) == 0
    }

    /// Writes the trailers. HTTP/1.1 to a client has none.
    async fn write_last(&mut self, mut trailers: HeaderMap) -> Result<()> {
        if self.session.as_http1().is_some() {
            return self.write_body(None, true).await;
        }
        if let Some(rest) = compression::end(self.exchange)? {
            for name in &OF_THE_ORIGINAL {
                trailers.remove(name);
            }
            let written = self.session.write_response_body(Some(rest), false).await;
            written.map_err(Error::into_down)?;
        }
        self.exchange.grpc_status = trailers.get(grpc::STATUS).cloned();
        let written = self.session.downstream_session.write_response_trailers(trailers).await;
        written.map_err(Error::into_down)
    }

    /// The response has been written. What the client has not sent yet is not needed.
    async fn finish(self) {
        if let Some(attempt) = self.exchange.attempts.last_mut() {
            attempt.marks.body = Some(clock::now());
        }
        let Self { gateway, session, exchange, body, response, stream, .. } = self;
        if !session.is_body_done() {
            // What the request holds is free, and its end is recorded, before the rest of it.
            gateway.end(session, exchange);
            end_stream(body, response, stream);
            if session.as_http2().is_some() {
                // Many clients ignore the response if their stream is reset while they send.
                body_drain::linger(session).await;
            } else if !body_drain::drain(session).await {
                session.set_keepalive(None);
            }
        }
    }

    /// The error of an attempt that got no head of a response.
    #[allow(clippy::unnecessary_box_returns, reason = "the type of Pingora's errors")]
    fn without_head(&mut self, error: h2::Error) -> Box<Error> {
        let failed = if is_unprocessed(&error) {
            Failed::NotProcessed
        } else if self.is_reused && error.is_io() {
            Failed::ClosedIdle
        } else if error.is_io() || error.is_remote() {
            Failed::Reset
        } else {
            Failed::Otherwise
        };
        retriable(error, self.is_retried(failed))
    }

    /// The error of a wait that has taken too long.
    #[allow(clippy::unnecessary_box_returns, reason = "the type of Pingora's errors")]
    fn timed_out(&mut self, wait: Wait) -> Box<Error> {
        let mut error = self.limits.error(wait, Instant::now());
        let is_of_server = *error.esource() == ErrorSource::Upstream;
        if is_of_server && !deadline::has_passed(&error) && self.exchange.attempts.answer.is_none()
        {
            error.set_retry(self.is_retried(Failed::TimedOut));
        }
        error
    }

    fn is_retried(&mut self, failed: Failed) -> bool {
        let method = &self.session.req_header().method;
        self.gateway.is_retried(self.exchange, failed, method, self.replay.is_complete())
    }

    /// Ends a gRPC call whose head has been written by trailers with the status, so that the client
    /// learns it; another response can only be cut off.
    async fn fail(self, error: Box<Error>) -> Box<Error> {
        let Self { gateway, session, exchange, response, body, stream, .. } = self;
        let is_begun = matches!(response, Response::Body(_));
        let is_of_server = *error.esource() == ErrorSource::Upstream;
        let is_too_large = failure::failure(&error) == Failure::BodyTooLarge;
        if is_begun
            && (is_of_server || is_too_large)
            && grpc::is_call(session)
            && let Some(trailers) = grpc::failure_trailers(&error)
        {
            exchange.grpc_status = trailers.get(grpc::STATUS).cloned();
            // An error means that the client has closed the connection.
            let _ = session.downstream_session.write_response_trailers(trailers).await;
            if is_too_large {
                // What the request holds is free before the rest of it.
                gateway.release(exchange);
                end_stream(body, response, stream);
                body_drain::linger(session).await;
            }
        }
        error
    }
}

/// Ends the stream to the server, which it resets if it has not ended, and gives its place on the
/// connection to another one. h2 resets a stream once nothing refers to it.
fn end_stream(body: RequestBody, response: Response, stream: Stream) {
    drop((body, response, stream));
}

/// The error of an attempt without a response, which says whether the request is retried.
#[allow(clippy::unnecessary_box_returns, reason = "the type of Pingora's errors")]
fn retriable(error: h2::Error, is_retried: bool) -> Box<Error> {
    let mut error = in_words(error);
    error.set_retry(is_retried);
    error
}

/// When the client sends the body too slowly unless more of it arrives before; `None`: never,
/// because the gateway does not wait for the client.
fn slow_at(meter: &mut BodyMeter, waiting: Waiting) -> Option<Instant> {
    let now = clock::now();
    if waiting != Waiting::Client {
        meter.pause(now);
        return None;
    }
    meter.wait(now);
    let left = meter.deadline()?.saturating_sub(now);
    Instant::now().checked_add(Duration::from_micros(left))
}

impl Response {
    async fn next(&mut self) -> Event {
        match self {
            Self::Head(head) => {
                poll_fn(|context| {
                    // While nothing has arrived, `head` is not polled: it would skip interim
                    // responses that arrive in between.
                    if let Some(Ok(interim)) = ready!(head.poll_informational(context)) {
                        return Poll::Ready(Event::Interim(interim));
                    }
                    // The final response, or an error.
                    Pin::new(&mut *head).poll(context).map(Event::Head)
                })
                .await
            }
            Self::Body(body) => Event::Data(poll_fn(|context| body.poll_data(context)).await),
        }
    }
}

impl RequestBody {
    /// Sends the pending part as the server's window allows it.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        let Some(pending) = &mut self.pending else { return Poll::Pending };
        while !pending.is_empty() {
            self.stream.reserve_capacity(pending.len());
            let capacity = match ready!(self.stream.poll_capacity(context)) {
                Some(Ok(capacity)) => capacity.min(pending.len()),
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => return Poll::Ready(Err(h2::Reason::STREAM_CLOSED.into())),
            };
            let part = pending.split_to(capacity);
            let is_last = pending.is_empty() && self.is_whole;
            self.stream.send_data(part, is_last)?;
            if is_last {
                (self.is_done, self.is_sent) = (true, true);
            }
        }
        if self.is_whole && !self.is_done {
            self.stream.send_data(Bytes::new(), true)?;
            (self.is_done, self.is_sent) = (true, true);
        }
        self.pending = None;
        Poll::Ready(Ok(()))
    }

    fn abandon(&mut self) {
        self.pending = None;
        self.is_done = true;
    }

    /// Whether the server has reset the stream because it does not want the rest of the request,
    /// after it has sent the whole response (RFC 9113, section 8.1). Of a request that was sent
    /// completely there is no rest: then, a reset cuts off the response.
    fn is_unwanted(&self, error: &h2::Error) -> bool {
        let is_no_error = error.reason() == Some(h2::Reason::NO_ERROR);
        !self.is_sent && error.is_reset() && error.is_remote() && is_no_error
    }

    /// Whether the response has ended, without trailers. The stream also ends if it fails.
    /// `is_complete`: no byte of the response is missing, as far as its length is known.
    fn is_end(&self, response: &mut RecvStream, is_complete: bool) -> Result<bool, h2::Error> {
        if !response.is_end_stream() {
            return Ok(false);
        }
        match response.poll_data(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(None) => Ok(true),
            Poll::Ready(Some(Err(error))) if is_complete && self.is_unwanted(&error) => Ok(true),
            Poll::Ready(Some(Err(error))) => Err(error),
            Poll::Ready(Some(Ok(_))) | Poll::Pending => Ok(false),
        }
    }
}

/// The head of the request for the upstream. If a body is to come, its client gets the 100 that it
/// may wait for.
async fn head(
    gateway: &Gateway,
    session: &mut Session,
    exchange: &mut Box<Exchange>,
    wants_body: bool,
) -> Result<http::Request<()>> {
    let is_awaiting = session.req_header().headers.contains_key(header::EXPECT);
    if wants_body && is_awaiting && session.as_http1().is_some() {
        session.write_continue_response().await.map_err(Error::into_down)?;
    }
    let mut head = session.req_header().clone();
    request::remove_hop_by_hop(&mut head);
    gateway.upstream_request_filter(session, &mut head, exchange).await?;
    let is_tls = exchange.upstream().is_some_and(|upstream| upstream.tls.is_some());
    request::of(head, if is_tls { Scheme::HTTPS } else { Scheme::HTTP })
}

/// Waits until `end`; forever without one. The timer is only set again if it is too early.
async fn sleep_until(timer: &mut Pin<Box<Sleep>>, end: Option<Instant>) {
    let Some(end) = end else { return pending().await };
    if timer.deadline() > end || timer.is_elapsed() {
        timer.as_mut().reset(end);
    }
    loop {
        timer.as_mut().await;
        if Instant::now() >= end {
            return;
        }
        timer.as_mut().reset(end);
    }
}
