//! Which masters of a Redis Cluster can be called, and what follows for the whole. Pure.

use super::link::breaker::{BreakerState, BreakerStatus};

/// A master of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MasterStatus {
    pub address: String,
    pub slots: usize,
    /// Whether it can be called: there is a connection, and the breaker is not open.
    pub is_connected: bool,
    /// Its circuit breaker.
    pub breaker: BreakerStatus,
}

/// Which masters are away, for operators: `1 of 3 masters is away (127.0.0.1:7003); limits in its
/// slots are decided locally`. `None` if all can be called.
pub fn summary(masters: &[MasterStatus]) -> Option<String> {
    let away = masters.iter().filter(|master| !master.is_connected);
    let away: Vec<&str> = away.map(|master| master.address.as_str()).collect();
    let (verb, whose) = match away.len() {
        0 => return None,
        1 => ("is", "its"),
        _ => ("are", "their"),
    };
    Some(format!(
        "{} of {} masters {verb} away ({}); limits in {whose} slots are decided locally",
        away.len(),
        masters.len(),
        away.join(", ")
    ))
}

/// The breakers of all masters as one: closed if all are closed, open if all are open, otherwise
/// half open. Its percentage is that of the slots. `None` without masters.
pub fn breaker(masters: &[MasterStatus]) -> Option<BreakerStatus> {
    let worst = masters.iter().map(|master| master.breaker).max_by_key(|status| status.state)?;
    let all = |state| masters.iter().all(|master| master.breaker.state == state);
    let state = if all(BreakerState::Closed) {
        BreakerState::Closed
    } else if all(BreakerState::Open) {
        BreakerState::Open
    } else {
        BreakerState::HalfOpen
    };
    Some(BreakerStatus { state, admits_percent: admits_percent(masters), ..worst })
}

/// Percentage of the slots whose requests call Redis, rounded down.
fn admits_percent(masters: &[MasterStatus]) -> u32 {
    let percent = |master: &MasterStatus| master.breaker.admits_percent as usize;
    let slots: usize = masters.iter().map(|master| master.slots).sum();
    let sum: usize = masters.iter().map(|master| master.slots * percent(master)).sum();
    let mean = sum
        .checked_div(slots)
        .unwrap_or_else(|| masters.iter().map(percent).sum::<usize>() / masters.len().max(1));
    u32::try_from(mean).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::link::breaker::Override;

    fn master(port: u16, slots: usize, state: BreakerState) -> MasterStatus {
        let admits_percent = match state {
            BreakerState::Closed => 100,
            BreakerState::HalfOpen => 10,
            BreakerState::Open => 0,
        };
        let breaker = BreakerStatus {
            state,
            r#override: Override::Auto,
            since_us: 1,
            admits_percent,
            retry_after_us: if state == BreakerState::Open { 9 } else { 0 },
        };
        let is_connected = state != BreakerState::Open;
        MasterStatus { address: format!("h:{port}"), slots, is_connected, breaker }
    }

    #[test]
    fn masters_that_are_away_are_named() {
        use BreakerState::{Closed, HalfOpen, Open};
        let of = |states: [BreakerState; 3]| {
            let masters: Vec<_> =
                (1..).zip(states).map(|(port, state)| master(port, 100, state)).collect();
            let breaker = breaker(&masters).unwrap();
            (breaker.state, breaker.admits_percent, summary(&masters))
        };
        assert_eq!(of([Closed; 3]), (Closed, 100, None));
        assert_eq!(of([Closed, HalfOpen, Closed]), (HalfOpen, 70, None));
        let one = "1 of 3 masters is away (h:3); limits in its slots are decided locally";
        assert_eq!(of([Closed, Closed, Open]), (HalfOpen, 66, Some(one.to_owned())));
        let all =
            "3 of 3 masters are away (h:1, h:2, h:3); limits in their slots are decided locally";
        assert_eq!(of([Open; 3]), (Open, 0, Some(all.to_owned())));
    }

    #[test]
    fn percentage_is_that_of_the_slots() {
        let masters = [master(1, 300, BreakerState::Closed), master(2, 100, BreakerState::Open)];
        assert_eq!(breaker(&masters).unwrap().admits_percent, 75);
        let without_slots = masters.map(|master| MasterStatus { slots: 0, ..master });
        assert_eq!(breaker(&without_slots).unwrap().admits_percent, 50);
        assert_eq!(breaker(&[]), None);
    }
}
