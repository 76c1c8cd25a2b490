//! `GET /api/events`: streams samples as server-sent events, one per second.

mod permits;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{StatusCode, header};
use pingora::prelude::ResponseHeader;
use pingora::protocols::http::ServerSession;
use tokio::sync::broadcast;

use super::samples::Sampler;
use crate::runtime::drain::Draining;
use permits::StreamPermits;
pub(super) use permits::TooManyStreams;

/// Path of the stream.
pub(super) const PATH: &str = "/api/events";

/// Content type of the stream.
pub(super) const KIND: &str = "text/event-stream";

/// Timeout of one write. A client that does not read is disconnected; it can connect again.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval at which a stream checks whether the process is draining.
const DRAIN_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Streams samples to subscribers.
pub(super) struct Events {
    sampler: Arc<Sampler>,
    draining: Draining,
    permits: StreamPermits,
}

impl Events {
    pub(super) fn new(sampler: Arc<Sampler>, draining: Draining) -> Self {
        Self { sampler, draining, permits: StreamPermits::default() }
    }

    /// Streams samples to `peer` until it disconnects, the process ends or the request is not
    /// admitted any more: its token has expired, or was removed.
    ///
    /// # Errors
    /// If too many streams are open. Nothing was sent.
    pub(super) async fn stream(
        &self,
        session: &mut ServerSession,
        peer: Option<IpAddr>,
        is_admitted: impl Fn(&ServerSession) -> bool,
    ) -> Result<(), TooManyStreams> {
        let _permit = self.permits.take(peer)?;
        session.set_keepalive(None);
        session.set_write_timeout(Some(WRITE_TIMEOUT));
        // An error means that the client has disconnected.
        let _ = self.send(session, is_admitted).await;
        Ok(())
    }

    async fn send(
        &self,
        session: &mut ServerSession,
        is_admitted: impl Fn(&ServerSession) -> bool,
    ) -> pingora::Result<()> {
        let mut head = ResponseHeader::build(StatusCode::OK, Some(4))?;
        head.insert_header(header::CONTENT_TYPE, KIND)?;
        head.insert_header(header::CACHE_CONTROL, "no-store")?;
        head.insert_header(header::TRANSFER_ENCODING, "chunked")?;
        // Without it, nginx buffers events.
        head.insert_header("X-Accel-Buffering", "no")?;
        session.write_response_header(Box::new(head)).await?;
        let (history, mut samples) = self.sampler.subscribe();
        session.write_response_body(event("history", &history), false).await?;
        while let Some(sample) = self.next(&mut samples).await {
            if !is_admitted(session) {
                break;
            }
            session.write_response_body(event("sample", &sample), false).await?;
        }
        session.write_response_body(Bytes::new(), true).await
    }

    /// The next sample; `None` if the process ends or the client is too slow.
    async fn next(&self, samples: &mut broadcast::Receiver<Bytes>) -> Option<Bytes> {
        while !self.draining.is_draining() {
            if let Ok(sample) = tokio::time::timeout(DRAIN_CHECK_INTERVAL, samples.recv()).await {
                return sample.ok();
            }
        }
        None
    }
}

/// Encodes one event. `data` must not contain line breaks.
fn event(name: &str, data: &[u8]) -> Bytes {
    let mut event = BytesMut::with_capacity(data.len() + 32);
    for part in [b"event: ", name.as_bytes(), b"\ndata: ", data, b"\n\n"] {
        event.put_slice(part);
    }
    event.freeze()
}
