//! [`Claims`]: which events are sent by which gateway, and which have been.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use super::event::Event;
use crate::base::clock;
use crate::policy::redis::Redis;
use crate::store::redis::link::records::{Records, RecordsError};

/// How long a gateway has an event for itself. It is extended at each attempt; after a crash,
/// another gateway may send the event.
pub const CLAIM: Duration = Duration::from_secs(120);

/// Content of the record of an event that was accepted, or given up.
const DONE: &str = "done";

/// How long that is known after the end of the event's period.
const KNOWN_AFTER_END_US: u64 = 86_400_000_000;

/// Where it is kept which events were sent.
pub enum Claims {
    /// Only in this process: without Redis.
    Own,
    /// In Redis, for all gateways that share it.
    Shared {
        /// The records.
        records: Box<Records>,
        /// Identifies this process.
        holder: String,
    },
}

/// Whether this gateway is to send an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// It is.
    Ours,
    /// Another gateway sends it.
    Others,
    /// It was accepted, or given up.
    Done,
}

impl Claims {
    /// Claims in the Redis of these settings.
    pub fn shared(redis: &Redis) -> Self {
        let holder = format!("{:016x}", RandomState::new().hash_one(clock::now()));
        Self::Shared { records: Box::new(Records::new(redis.clone())), holder }
    }

    /// Claims an event for a webhook.
    ///
    /// # Errors
    /// See [`RecordsError`].
    pub async fn claim(&self, webhook: &str, event: &Event) -> Result<Claim, RecordsError> {
        let Self::Shared { records, holder } = self else { return Ok(Claim::Ours) };
        let name = name(webhook, event);
        if records.lock(&name, holder, CLAIM).await? || records.extend(&name, holder, CLAIM).await?
        {
            return Ok(Claim::Ours);
        }
        let content = records.get(&name).await?;
        Ok(if content.as_deref() == Some(DONE.as_bytes()) { Claim::Done } else { Claim::Others })
    }

    /// Notes that an event was accepted or given up, at `unix_us` (Unix time).
    ///
    /// # Errors
    /// See [`RecordsError`].
    pub async fn done(
        &self,
        webhook: &str,
        event: &Event,
        unix_us: u64,
    ) -> Result<(), RecordsError> {
        let Self::Shared { records, .. } = self else { return Ok(()) };
        let left_us = event.record.place.end_us.saturating_sub(unix_us);
        let lifetime = Duration::from_micros(left_us.saturating_add(KNOWN_AFTER_END_US));
        records.set(&name(webhook, event), DONE.as_bytes(), Some(lifetime)).await
    }
}

fn name(webhook: &str, event: &Event) -> String {
    format!("webhooks:{}:{webhook}", event.id())
}
