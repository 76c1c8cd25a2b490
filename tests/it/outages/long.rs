//! What takes longer than everybody wants to wait: `make test-outages` runs it.

use std::time::Duration;

use super::QUICK;
use super::bounds::Fleet;

const HALF_A_MINUTE: Duration = Duration::from_secs(30);

#[test]
fn row_01_half_a_minute_of_flapping_gives_no_burst_each_time() {
    Fleet::start(1, "").holds_the_limit(|fleet| fleet.flap(HALF_A_MINUTE));
}

/// The same with a breaker that trusts Redis again each time.
#[test]
fn row_01_three_gateways_that_are_quick_to_return_hold_the_limit() {
    Fleet::start(3, QUICK).holds_the_limit(|fleet| fleet.flap(HALF_A_MINUTE));
}

#[test]
fn row_01_three_gateways_hold_the_limit_through_ten_seconds_without_redis() {
    let fleet = Fleet::start(3, "");
    fleet.holds_the_limit(|fleet| fleet.miss_redis(Duration::from_secs(10)));
}
