//! Keeps the Unix time of the process' clock, which calendar periods follow, as the wall clock is
//! corrected.

use std::time::Duration;

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use tokio::time::MissedTickBehavior;

use crate::base::{clock, unix_time};

/// Interval at which the wall clock is read.
const INTERVAL: Duration = Duration::from_secs(1);

/// Follows the wall clock.
pub struct WallClock;

impl WallClock {
    /// Reads the wall clock now.
    pub fn read() {
        unix_time::set(clock::unix_us(), clock::now());
    }
}

#[async_trait]
impl BackgroundService for WallClock {
    async fn start(&self, _: ShutdownWatch) {
        let mut interval = tokio::time::interval(INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            Self::read();
        }
    }
}
