//! Three gateways that share a Redis, which can be killed and restarted.

use std::process::Command;
use std::time::Duration;

use parking_lot::Mutex;

use super::gateway::{Gateway, full_config};
use super::redis::Redis;
use super::wait::sleep_for;
use super::wall_clock::WallClock;

/// A breaker that looks for Redis often.
const BREAKER: &str =
    "\n[redis.breaker]\nopen = \"100ms\"\nopen_max = \"500ms\"\nramp_step = \"100ms\"\n";

/// Appends each change to a file before it replies. What a killed server has written stays with the
/// kernel, so that it loses nothing. It waits for no disk: on a busy one, that takes longer than
/// the timeout of a call.
const KEEP_ALL: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "no"];

/// Three gateways that share a Redis, with a breaker that looks for it often.
pub(crate) struct Fleet {
    pub(crate) gateways: [Gateway; 3],
    redis: Mutex<Redis>,
    launch: Launch,
}

/// What a killed Redis has when it starts again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    /// All that it has replied to.
    Kept,
    /// Nothing.
    Lost,
}

/// How Redis is started.
struct Launch {
    data: Data,
    clock: Option<WallClock>,
}

impl Launch {
    fn launch(&self, redis: &mut Redis) {
        redis.launch_with(|command| {
            if self.data == Data::Kept {
                command.args(KEEP_ALL);
            }
            self.set_clock_of(command);
        });
    }

    fn set_clock_of(&self, command: &mut Command) {
        if let Some(clock) = &self.clock {
            clock.apply_to(command);
        }
    }
}

impl Fleet {
    /// Starts the gateways, and Redis; all of them with this wall clock, if there is one. `config`
    /// returns what follows the `[server]` table, for a `[redis]` table.
    pub(crate) fn start(
        data: Data,
        clock: Option<WallClock>,
        config: impl Fn(&str) -> String,
    ) -> Self {
        let launch = Launch { data, clock };
        let mut redis = Redis::stopped();
        launch.launch(&mut redis);
        let text = config(&format!("{}{BREAKER}", redis.table()));
        let text = full_config(&format!("instances = 3\n{text}"));
        let start = |_| Gateway::start_with(&text, |command| launch.set_clock_of(command));
        let fleet = Self { gateways: std::array::from_fn(start), redis: Mutex::new(redis), launch };
        fleet.gateways.iter().for_each(Gateway::wait_for_redis);
        fleet
    }

    /// Kills Redis, and waits until all gateways have noticed it.
    pub(crate) fn kill_redis(&self) {
        self.redis.lock().kill();
        self.wait_for_breakers(2);
    }

    /// Starts Redis, and waits until all gateways use it.
    pub(crate) fn restart_redis(&self) {
        self.launch.launch(&mut self.redis.lock());
        self.wait_for_breakers(0);
    }

    /// Sets the wall clock of Redis and the gateways, in seconds from the real time, and waits
    /// until the gateways have it.
    pub(crate) fn set_clock(&self, seconds_off: i64) {
        self.launch.clock.as_ref().unwrap().set(seconds_off);
        // They read it once a second, on a busy machine later.
        sleep_for(Duration::from_millis(1_500));
    }

    /// Waits until the breakers of all gateways are closed (0) or open (2).
    fn wait_for_breakers(&self, state: u64) {
        for gateway in &self.gateways {
            gateway.wait_for_count("tollgate_breaker_state", &[], state);
        }
    }

    /// Sum of a metric over all gateways.
    pub(crate) fn count(&self, name: &str, labels: &[(&str, &str)]) -> usize {
        let sum: u64 = self.gateways.iter().map(|gateway| gateway.count(name, labels)).sum();
        usize::try_from(sum).unwrap()
    }
}
