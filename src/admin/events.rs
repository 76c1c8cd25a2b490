//! `GET /api/events`: server-sent events, one a second, for as long as somebody listens.

mod places;

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
pub(super) use places::Full;
use places::Places;

/// Where events are.
pub(super) const PATH: &str = "/api/events";

/// What a stream of them is.
pub(super) const KIND: &str = "text/event-stream";

/// How long one write may take: who does not read is cut, and may come back.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a stream may take to notice that the process ends.
const NOTICE: Duration = Duration::from_millis(100);

/// Those who listen.
pub(super) struct Events {
    sampler: Arc<Sampler>,
    draining: Draining,
    places: Places,
}

impl Events {
    pub(super) fn new(sampler: Arc<Sampler>, draining: Draining) -> Self {
        Self { sampler, draining, places: Places::default() }
    }

    /// Answers `peer` with what happens until the listener leaves or the process ends.
    ///
    /// # Errors
    /// Too many listen already. Nothing was answered.
    pub(super) async fn stream(
        &self,
        session: &mut ServerSession,
        peer: Option<IpAddr>,
    ) -> Result<(), Full> {
        let _place = self.places.take(peer)?;
        session.set_keepalive(None);
        session.set_write_timeout(Some(PATIENCE));
        // Whoever left, left: there is nobody to tell.
        let _ = self.tell(session).await;
        Ok(())
    }

    async fn tell(&self, session: &mut ServerSession) -> pingora::Result<()> {
        let mut head = ResponseHeader::build(StatusCode::OK, Some(4))?;
        head.insert_header(header::CONTENT_TYPE, KIND)?;
        head.insert_header(header::CACHE_CONTROL, "no-store")?;
        head.insert_header(header::TRANSFER_ENCODING, "chunked")?;
        // A proxy in between would otherwise collect events before it passes them on.
        head.insert_header("X-Accel-Buffering", "no")?;
        session.write_response_header(Box::new(head)).await?;
        let (history, mut samples) = self.sampler.subscribe();
        session.write_response_body(event("history", &history), false).await?;
        while let Some(sample) = self.next(&mut samples).await {
            session.write_response_body(event("sample", &sample), false).await?;
        }
        session.write_response_body(Bytes::new(), true).await
    }

    /// What happened next; none where the process ends, or where the listener is too slow.
    async fn next(&self, samples: &mut broadcast::Receiver<Bytes>) -> Option<Bytes> {
        while !self.draining.is_draining() {
            if let Ok(sample) = tokio::time::timeout(NOTICE, samples.recv()).await {
                return sample.ok();
            }
        }
        None
    }
}

/// One event. JSON has no line breaks of its own here.
fn event(name: &str, data: &[u8]) -> Bytes {
    let mut event = BytesMut::with_capacity(data.len() + 32);
    for part in [b"event: ", name.as_bytes(), b"\ndata: ", data, b"\n\n"] {
        event.put_slice(part);
    }
    event.freeze()
}
