//! Longer tests, which `make test-outages` runs.

use std::time::Duration;

use super::FAST_BREAKER;
use super::bounds::Fleet;

const HALF_A_MINUTE: Duration = Duration::from_secs(30);

#[test]
fn row_01_30_s_of_flapping_grant_no_burst_per_flap() {
    Fleet::start(1, "").holds_the_limit(|fleet| fleet.flap(HALF_A_MINUTE));
}

/// The same with a breaker that closes quickly.
#[test]
fn row_01_three_gateways_with_fast_recovery_stay_within_the_bound() {
    Fleet::start(3, FAST_BREAKER).holds_the_limit(|fleet| fleet.flap(HALF_A_MINUTE));
}

#[test]
fn row_01_three_gateways_stay_within_the_bound_for_10_s_without_redis() {
    let fleet = Fleet::start(3, "");
    fleet.holds_the_limit(|fleet| fleet.lose_redis(Duration::from_secs(10)));
}
