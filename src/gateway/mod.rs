//! The proxy: one request in Pingora's phases.
//!
//! Reading order: this file (the phases) and `exchange` (the state of one request), then the life
//! of a request, a folder for each part: `request` (what the client sent), `judge` (whether it is
//! allowed), `answers` (the gateway's own, instead of an upstream), `attempts` (those to send it to
//! a server of its upstream), `respond` (the response to the client), `telemetry` (metrics, log and
//! trace of it). Beside them are the headers that several parts set: `limit_headers` and
//! `header_text` (rate limits), `header_edits` (changes by a route), `cors` (which pages of other
//! sites can read the response), `metering` (what a request costs by its response), and
//! `compression` of the responses of upstreams.

pub mod exchange;
pub mod judge;
pub mod limit_headers;

mod answers;
mod attempts;
mod compression;
mod cors;
mod header_edits;
mod header_text;
mod metering;
mod request;
mod respond;
mod telemetry;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::StatusCode;
use pingora::modules::http::HttpModules;
use pingora::prelude::{Error, HttpPeer, RequestHeader, ResponseHeader, Result};
use pingora::protocols::Digest;
use pingora::proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};
use prometheus::Histogram;

use crate::acme::challenges::Challenges;
use crate::auth::passwords::PasswordChecks;
use crate::base::boxed::{boxed, ready};
use crate::base::clock;
use crate::decide::decision::Decision;
use crate::downstream::ConnectionInfo;
use crate::downstream::rejections::Rejections;
use crate::downstream::rest;
use crate::keys::store::KeyStore;
use crate::observe::access_log::AccessLog;
use crate::observe::audit::Audit;
use crate::observe::metrics::{CheckSeries, Metrics, seconds};
use crate::observe::traces::Traces;
use crate::runtime::{CurrentSnapshot, Runtime};
use crate::store::limiter::{Limiter, Source};
use crate::upstream::connection::Attempt;
use crate::usage::kept::Kept;
use answers::{acme_challenge, redirect};
pub use attempts::retry::MAX_TRIES;
use attempts::{forward, http2, mirror};
use exchange::Exchange;
use judge::Judged;
use judge::split::Turns;
use judge::waiting::Queue;
use metering::End;
use request::{body_drain, grpc_deadline, upgrade};
use respond::{drain, failure, upstream_response};
use telemetry::Sent;
use telemetry::bearer_hint::BearerHint;
use telemetry::trace;

/// The proxy. Lives as long as the process.
pub struct Gateway {
    current: Arc<CurrentSnapshot>,
    limiter: Arc<Limiter>,
    usage: Option<Kept>,
    keys: Option<Arc<KeyStore>>,
    passwords: PasswordChecks,
    /// Series of the servers that are asked about requests.
    checks_by_server: CheckSeries,
    /// Series of tokens that their issuer is asked about.
    introspections: CheckSeries,
    metrics: Arc<Metrics>,
    access_log: Arc<AccessLog>,
    audit: Arc<Audit>,
    traces: Arc<Traces>,
    challenges: Arc<Challenges>,
    /// Durations of checks, by source.
    checks: [Histogram; Source::COUNT],
    bearer_hint: BearerHint,
    rejections: Rejections,
    waiting: Queue,
    turns: Turns,
}

impl Gateway {
    /// Creates a gateway with the configuration in force of `runtime`.
    pub fn new(runtime: &Runtime, rejections: Rejections) -> Self {
        let Runtime {
            current, limiter, usage, keys, metrics, access_log, audit, traces, acme, ..
        } = runtime.clone();
        Self {
            current,
            limiter,
            usage,
            keys,
            passwords: PasswordChecks::new(metrics.auth.basic()),
            introspections: metrics.auth.introspection(),
            checks_by_server: metrics.auth.forward_auth(),
            access_log,
            audit,
            traces,
            challenges: Arc::clone(&acme.challenges),
            checks: Source::ALL.map(|source| metrics.checks(source)),
            bearer_hint: BearerHint::default(),
            rejections,
            turns: Turns::new(),
            waiting: Queue::new(metrics.waits.waiting.clone()),
            metrics,
        }
    }

    /// Prepares the head of an upstream's response for the client: all but its compression.
    ///
    /// # Errors
    /// Never: names and values are valid.
    fn prepare_response(
        session: &mut Session,
        response: &mut ResponseHeader,
        exchange: &mut Exchange,
    ) -> Result<()> {
        let is_final = respond::is_final(response.status);
        if is_final {
            metering::begin(session.req_header(), response, exchange);
        }
        if upstream_response::prepare(response, session.req_header().version)? {
            session.set_keepalive(None);
        }
        if session.is_http2() {
            upstream_response::detach(response)?;
        }
        if response.status == StatusCode::SWITCHING_PROTOCOLS {
            exchange.connection.note_upgraded();
            // `upstream::connection` ends it when it has been silent in both directions.
            session.set_read_timeout(None);
        }
        drain::announce(session, response.status);
        respond::add_hsts(response, &exchange.connection)?;
        limit_headers::insert(response, exchange)?;
        header_edits::edit_response(session.req_header(), response, exchange)?;
        // A route that removes the cookies of the upstream keeps its clients on their endpoints.
        let attempt = exchange.attempts.last_mut().filter(|_| is_final);
        if let Some(cookie) = attempt.and_then(|attempt| attempt.set_cookie.take()) {
            response.append_header(http::header::SET_COOKIE, cookie)?;
        }
        cors::insert(session.req_header(), response, exchange)
    }
}

impl Gateway {
    /// Prepares a request and its connection, before anything else.
    fn begin(&self, session: &mut Session, exchange: &mut Exchange) -> Result<()> {
        let server = &exchange.snapshot.policy.server;
        exchange.connection.count(&self.metrics.connections);
        #[cfg(debug_assertions)]
        if session.req_header().uri.path() == "/panic" {
            crate::base::failure::test_point("request");
        }
        if session.is_http2() {
            request::http2::normalize(session.req_header_mut())?;
        } else {
            upgrade::remove_unless_websocket(session.req_header_mut());
        }
        // Without a timeout, Pingora waits for the next request forever. A connection that closes
        // after this request has no keep-alive, and must not get one; `drain` closes it after a
        // response that refuses an upgrade. `downstream::http2` counts those over HTTP/2.
        if !session.is_http2()
            && exchange.connection.is_last_request(server.limits.max_requests_per_connection)
            && !session.is_upgrade_req()
        {
            session.set_keepalive(None);
        } else if session.get_keepalive().is_some() {
            session.set_keepalive(Some(server.keepalive_timeout.as_secs().max(1)));
        }
        session.set_read_timeout(Some(server.read_timeout));
        session.set_write_timeout(Some(server.write_timeout));
        // By default, Pingora reads the rest of a body after the response for as long as the client
        // sends any.
        session.set_total_drain_timeout(Some(body_drain::DRAIN_TIMEOUT));
        // Serves requests that the client sends before it has the response to this one. By default,
        // Pingora drops them.
        session.set_pipelining_enabled(true);
        Ok(())
    }

    /// Decides a request. Returns whether it has been answered.
    fn decide<'a>(
        &'a self,
        session: &'a mut Session,
        exchange: &'a mut Exchange,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            if let Some(answer) = acme_challenge::answer(&self.challenges, session.req_header()) {
                exchange.judged = Some(Judged::of(Decision::UNCHECKED));
                trace::begin(session, exchange);
                let response = Box::pin(acme_challenge::respond(session, exchange, &answer));
                response.await.map_err(Error::into_down)?;
                body_drain::linger_unless_read(session).await;
                return Ok(true);
            }
            if let Some(port) = exchange.connection.redirect {
                exchange.connection.note_decided();
                let response = Box::pin(redirect::respond(session, exchange, port));
                response.await.map_err(Error::into_down)?;
                body_drain::linger_unless_read(session).await;
                return Ok(true);
            }
            let mut judged = self.judge(session, exchange).await;
            exchange.connection.note_decided();
            self.record_refusals(exchange, &judged);
            let wait = judged.wait.take();
            exchange.judged = Some(judged);
            if exchange.via_trusted_proxy()
                && let Some(given) = forward::given_id(session.req_header())
            {
                exchange.request_id = given;
            }
            trace::begin(session, exchange);
            if let Some(wait) = wait {
                let deadline = grpc_deadline::of(session, exchange.started);
                let waited_us = Box::pin(wait.end(session, deadline)).await?;
                exchange.waited_us = Some(waited_us);
                self.metrics.waits.duration.observe(seconds(waited_us));
            }
            // Only the client can make a response of the gateway fail. Pingora names no source of
            // errors of HTTP/2.
            let is_answered = respond::respond(session, exchange).await;
            let is_answered = is_answered.map_err(Error::into_down)?;
            if is_answered {
                // Before the rest of the request is read.
                exchange.release_holds();
                body_drain::linger_unless_read(session).await;
            }
            Ok(is_answered)
        })
    }

    /// Forwards over HTTP/2 instead of Pingora, if the upstream speaks it. Returns whether Pingora
    /// forwards.
    fn forward_unless_http1<'a>(
        &'a self,
        session: &'a mut Session,
        exchange: &'a mut Box<Exchange>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            if exchange.upstream().is_none_or(http2::is_excluded) {
                return http2::refuse_grpc(session).map(|()| true);
            }
            Box::pin(self.forward_http2(session, exchange)).await.map(|is_done| !is_done)
        })
    }

    /// The server to which the request is sent next.
    fn select_peer<'a>(
        &'a self,
        session: &'a mut Session,
        exchange: &'a mut Exchange,
    ) -> BoxFuture<'a, Result<Box<HttpPeer>>> {
        Box::pin(self.peer(session, exchange))
    }

    /// Prepares the head of a request for its server.
    fn prepare_request(
        session: &mut Session,
        request: &mut RequestHeader,
        exchange: &mut Exchange,
    ) -> Result<()> {
        forward::prepare(session.client_addr(), request, exchange)?;
        metering::prepare_request(request, exchange)?;
        trace::propagate(request, exchange)?;
        mirror::note_head(session, request, exchange);
        Ok(())
    }

    /// Counts a part of the request's body before it is sent, drops an empty last one, and begins
    /// to mirror a request whose whole body has come.
    fn note_body(
        &self,
        session: &mut Session,
        body: &mut Option<Bytes>,
        is_end: bool,
        exchange: &mut Exchange,
    ) -> Result<()> {
        // The bytes of an upgraded connection are no body.
        if let Some(body) = body
            && !session.was_upgraded()
        {
            exchange.count_body(body.len())?;
        }
        if is_end && body.as_ref().is_some_and(Bytes::is_empty) {
            // Clients of HTTP/2 often end a body with an empty frame. As a chunk, no bytes are the
            // end of the body: Pingora would write the end twice, and the server would read the
            // second one as the beginning of the next request.
            *body = None;
        }
        if is_end && exchange.mirroring.is_pending() {
            self.mirror_over_http1(session, exchange);
        }
        let Some(attempt) = exchange.attempts.last_mut() else { return Ok(()) };
        let connection = attempt.connection.as_ref().filter(|connection| connection.has_body);
        let Some(connection) = connection else { return Ok(()) };
        connection.note_body(clock::now(), body.as_ref().map_or(0, Bytes::len));
        if is_end {
            attempt.marks.request.get_or_insert_with(clock::now);
            connection.note_whole_body();
        }
        Ok(())
    }

    /// Notes the head of a server's response.
    fn note_head(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        exchange: &mut Exchange,
    ) -> Result<()> {
        let status = response.status;
        if status == StatusCode::SWITCHING_PROTOCOLS && !session.is_upgrade_req() {
            return Err(respond::unrequested_upgrade());
        }
        if let Some(connection) = exchange.attempts.connection() {
            if respond::is_final(status) {
                connection.note_head(&session.req_header().method, response);
            } else if status == StatusCode::CONTINUE {
                connection.note_continue();
            }
        }
        let has_whole_body = !session.as_ref().retry_buffer_truncated();
        self.responded(exchange, status, status, &session.req_header().method, has_whole_body)
    }

    /// Notes a connection to a server.
    fn note_connected(&self, exchange: &mut Exchange) {
        let is_reused = exchange.attempts.connection().is_some_and(Attempt::is_reused);
        if let Some(raced) = exchange.attempts.connection().and_then(Attempt::take_raced) {
            self.raced(exchange, &raced);
        }
        self.connected(exchange, is_reused);
    }

    /// Prepares the head of the response to the client.
    fn begin_response(
        session: &mut Session,
        response: &mut ResponseHeader,
        exchange: &mut Exchange,
    ) -> Result<()> {
        Self::prepare_response(session, response, exchange)?;
        compression::begin(session, response, exchange)
    }

    /// Answers a request that has failed.
    fn answer_failure<'a>(
        &'a self,
        session: &'a mut Session,
        error: &'a Error,
        exchange: &'a mut Exchange,
    ) -> BoxFuture<'a, FailToProxy> {
        Box::pin(async move {
            self.count_failure(exchange, error);
            let failure = failure::failure(error);
            let failure = self.count_slowness(exchange, failure);
            exchange.failure = Some(failure);
            Box::pin(self.refund(exchange, failure, error)).await;
            // The response may wait for the rest of the request.
            self.release(exchange);
            respond::fail(session, exchange, &self.audit, failure, error).await
        })
    }

    /// Ends a request whose response has ended while the client still sends the body: what it holds
    /// is free, and the rest takes a limited time, or is dropped.
    fn end_before_request(&self, session: &Session, exchange: &mut Exchange) {
        let is_early = exchange.attempts.connection().is_some_and(Attempt::is_answered_early);
        if is_early && !exchange.is_recorded {
            let status = exchange.attempts.answer.map(|answer| answer.status);
            self.end_with(session, Sent { status, bytes: exchange.response_bytes }, exchange);
            let server = &exchange.snapshot.policy.server;
            rest::begin(server.read_timeout.max(server.write_timeout));
        }
    }

    /// Records a request that has ended.
    fn end(&self, session: &Session, exchange: &mut Exchange) {
        if !exchange.is_recorded {
            self.end_with(session, Sent::of(session), exchange);
        }
    }

    fn end_with(&self, session: &Session, sent: Sent, exchange: &mut Exchange) {
        exchange.is_recorded = true;
        // The request has ended, and what it holds is free, before all of this is recorded.
        self.release(exchange);
        self.record(session, sent, exchange);
    }

    /// Frees what a request holds, when it has failed or ended.
    fn release(&self, exchange: &mut Exchange) {
        // First of all: what it holds bounds what requests may cost beyond their reserve.
        self.settle_at_end(exchange);
        exchange.note_success();
        exchange.release_holds();
    }
}

impl ProxyHttp for Gateway {
    /// Boxed: Pingora moves it between futures, and each of them would reserve space for it.
    type CTX = Box<Exchange>;

    fn new_ctx(&self) -> Box<Exchange> {
        let in_flight = self.metrics.in_flight.clone();
        let connection = ConnectionInfo::current();
        connection.note_head();
        Box::new(Exchange::new(self.current.load_full(), connection, in_flight, clock::now()))
    }

    /// Adds no modules: [`compression`] is not Pingora's.
    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    boxed! {
        fn early_request_filter<'a, 'b, 'c>(
            &'a self,
            session: &'b mut Session,
            exchange: &'c mut Self::CTX
        ) -> Result<()> {
            ready(self.begin(session, exchange))
        }
    }

    boxed! {
        fn request_filter<'a, 'b, 'c>(
            &'a self,
            session: &'b mut Session,
            exchange: &'c mut Self::CTX
        ) -> Result<bool> {
            self.decide(session, exchange)
        }
    }

    boxed! {
        fn proxy_upstream_filter<'a, 'b, 'c>(
            &'a self,
            session: &'b mut Session,
            exchange: &'c mut Self::CTX
        ) -> Result<bool> {
            self.forward_unless_http1(session, exchange)
        }
    }

    boxed! {
        fn upstream_peer<'a, 'b, 'c>(
            &'a self,
            session: &'b mut Session,
            exchange: &'c mut Self::CTX
        ) -> Result<Box<HttpPeer>> {
            self.select_peer(session, exchange)
        }
    }

    boxed! {
        fn upstream_request_filter<'a, 'b, 'c, 'd>(
            &'a self,
            session: &'b mut Session,
            request: &'c mut RequestHeader,
            exchange: &'d mut Self::CTX
        ) -> Result<()> {
            ready(Self::prepare_request(session, request, exchange))
        }
    }

    boxed! {
        fn request_body_filter<'a, 'b, 'c, 'd>(
            &'a self,
            session: &'b mut Session,
            body: &'c mut Option<Bytes>,
            is_end: bool,
            exchange: &'d mut Self::CTX
        ) -> Result<()> {
            ready(self.note_body(session, body, is_end, exchange))
        }
    }

    boxed! {
        fn upstream_response_filter<'a, 'b, 'c, 'd>(
            &'a self,
            session: &'b mut Session,
            response: &'c mut ResponseHeader,
            exchange: &'d mut Self::CTX
        ) -> Result<()> {
            ready(self.note_head(session, response, exchange))
        }
    }

    fn upstream_response_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        is_end: bool,
        exchange: &mut Self::CTX,
    ) -> Result<Option<Duration>> {
        if let Some(metering) = &mut exchange.metering {
            metering.read_body(body.as_ref());
        }
        exchange.note_part();
        if let (true, Some(attempt)) = (is_end, exchange.attempts.last_mut())
            && let Some(connection) = &attempt.connection
        {
            attempt.marks.body = Some(clock::now());
            connection.note_end();
            // The client can send the next request before this one has been recorded.
            exchange.release_upstream();
            self.settle(exchange, End::Complete);
        }
        Ok(None)
    }

    boxed! {
        fn connected_to_upstream<'a, 'b, 'c, 'd, 'e>(
            &'a self,
            _session: &'b mut Session,
            _reused: bool,
            _peer: &'c HttpPeer,
            _fd: std::os::fd::RawFd,
            _digest: Option<&'d Digest>,
            exchange: &'e mut Self::CTX
        ) -> Result<()> {
            self.note_connected(exchange);
            ready(Ok(()))
        }
    }

    boxed! {
        fn response_filter<'a, 'b, 'c, 'd>(
            &'a self,
            session: &'b mut Session,
            response: &'c mut ResponseHeader,
            exchange: &'d mut Self::CTX
        ) -> Result<()> {
            let begun = Self::begin_response(session, response, exchange);
            if begun.is_ok() {
                self.end_before_request(session, exchange);
            }
            ready(begun)
        }
    }

    fn response_body_filter(
        &self,
        session: &mut Session,
        body: &mut Option<Bytes>,
        is_end: bool,
        exchange: &mut Self::CTX,
    ) -> Result<Option<Duration>>
    where
        Self::CTX: Send + Sync,
    {
        compression::encode(body, is_end, exchange)?;
        exchange.response_bytes += body.as_ref().map_or(0, |body| body.len() as u64);
        if is_end {
            self.end_before_request(session, exchange);
        }
        Ok(None)
    }

    fn fail_to_connect(
        &self,
        session: &mut Session,
        _peer: &HttpPeer,
        exchange: &mut Self::CTX,
        error: Box<Error>,
    ) -> Box<Error> {
        self.failed_to_connect(&session.req_header().method, exchange, error)
    }

    /// Pingora's default does not know that the connection was reused: `upstream` keeps idle
    /// connections, not Pingora.
    fn error_while_proxy(
        &self,
        peer: &HttpPeer,
        session: &mut Session,
        error: Box<Error>,
        exchange: &mut Self::CTX,
        _reused: bool,
    ) -> Box<Error> {
        self.failed_over_http1(session, exchange, error.more_context(format!("Peer: {peer}")))
    }

    boxed! {
        fn fail_to_proxy<'a, 'b, 'c, 'd>(
            &'a self,
            session: &'b mut Session,
            error: &'c Error,
            exchange: &'d mut Self::CTX
        ) -> FailToProxy {
            self.answer_failure(session, error, exchange)
        }
    }

    boxed! {
        fn logging<'a, 'b, 'c, 'd>(
            &'a self,
            session: &'b mut Session,
            _: Option<&'c Error>,
            exchange: &'d mut Self::CTX
        ) -> () {
            self.end(session, exchange);
            ready(())
        }
    }

    /// [`respond::fail`] logs failures, with the request's id and without its query.
    fn suppress_error_log(&self, _: &Session, _: &Self::CTX, _: &Error) -> bool {
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _: &Session,
        _: &Self::CTX,
        _: &Error,
        _: ProxyWarnLogContext,
    ) -> bool {
        true
    }

    /// Without the query, which may contain a key.
    fn request_summary(&self, session: &Session, exchange: &Self::CTX) -> String {
        let request = session.req_header();
        format!("{} {} ({})", request.method, request.uri.path(), exchange.request_id)
    }
}
