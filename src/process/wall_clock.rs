//! Keeps the Unix time of the process' clock, which calendar periods follow, as the wall clock is
//! corrected.

use std::time::Duration;

use futures_util::future::BoxFuture;
use pingora::server::ShutdownWatch;
use tokio::time::MissedTickBehavior;

use crate::base::background::Background;
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

impl Background for WallClock {
    fn start(&self, _: ShutdownWatch) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let mut interval = tokio::time::interval(INTERVAL);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                interval.tick().await;
                Self::read();
            }
        })
    }
}
