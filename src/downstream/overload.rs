//! When the process is overloaded, and how many idle connections it closes then. Pure: times are
//! microseconds of the monotonic clock.

/// Time that a connection must have been idle to be closed: a client that sends one request after
/// the other keeps its connection.
pub(super) const MIN_IDLE_US: u64 = 1_000_000;

/// Time after descriptors were short during which they count as exhausted.
const RECOVERY_US: u64 = 5 * 1_000_000;

/// Open connections that are served even above the memory limit. Without them, memory that is not
/// that of connections, or that the allocator keeps, would close the ports forever.
const ALWAYS_SERVED: usize = 64;

/// Connections that are closed at once, at least.
const LEAST_SHED: usize = 64;

/// The memory of the process, once a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryReading {
    /// Resident memory; 0 before the first reading, and if the system does not say.
    pub used_bytes: u64,
    /// `None`: no limit.
    pub max_bytes: Option<u64>,
    /// Open client connections.
    pub(super) connections: usize,
}

/// What follows from a [`MemoryReading`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MemoryState {
    /// Whether the process uses more than it may. Once it does, until it uses less than 95 %.
    pub(super) is_over: bool,
    /// How many idle connections are closed.
    pub(super) shed: usize,
}

impl MemoryState {
    /// The state after this one.
    pub(super) fn next(self, reading: MemoryReading) -> Self {
        let MemoryReading { used_bytes, max_bytes, connections } = reading;
        let is_over = max_bytes.is_some_and(|max| {
            if self.is_over { used_bytes >= max - max / 20 } else { used_bytes > max }
        });
        if !is_over {
            return Self::default();
        }
        Self { is_over, shed: batch(connections) }
    }

    /// Whether further connections wait to be accepted.
    pub(super) fn is_paused(self, connections: usize) -> bool {
        self.is_over && connections > ALWAYS_SERVED
    }
}

/// How many of `connections` are closed at once when a resource is exhausted: an eighth.
pub(super) fn batch(connections: usize) -> usize {
    (connections / 8).max(LEAST_SHED)
}

/// How many idle connections are closed so that a sixteenth of `max` stays free for new ones.
pub(super) fn missing_room(connections: usize, max: usize) -> usize {
    let free = max.saturating_sub(connections);
    let reserve = max / 16;
    if free > reserve {
        return 0;
    }
    // A little more, so that not every connection that follows searches again.
    (reserve + reserve / 4 - free).max(1)
}

/// Descriptors that stay free for connections to upstreams, at most.
const MOST_SPARE: u64 = 1024;

/// Whether so few descriptors are left that connections to upstreams may get none: less than 1/32.
pub(super) fn is_short_of_descriptors(open: u64, limit: u64) -> bool {
    limit.saturating_sub(open) < (limit / 32).min(MOST_SPARE)
}

/// Whether descriptors are exhausted, from the time at which they were short last.
pub(super) fn is_out_of_descriptors(last_failure: Option<u64>, now: u64) -> bool {
    last_failure.is_some_and(|last| now.saturating_sub(last) < RECOVERY_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_over_above_its_limit_until_it_is_below_95_percent() {
        // (used, max, over)
        let table = [
            (1000, Some(1000), false),
            (1001, Some(1000), true),
            (1000, Some(1000), true),
            (950, Some(1000), true),
            (949, Some(1000), false),
            (1000, Some(1000), false),
            (u64::MAX, Some(u64::MAX - 1), true),
            // The limit is removed, lowered and raised.
            (u64::MAX, None, false),
            (500, Some(499), true),
            (500, Some(600), false),
            (0, Some(0), false),
        ];
        let mut state = MemoryState::default();
        for (used_bytes, max_bytes, expected) in table {
            state = state.next(MemoryReading { used_bytes, max_bytes, connections: 1000 });
            assert_eq!(state.is_over, expected, "{used_bytes} of {max_bytes:?}");
            assert_eq!(state.is_paused(1000), expected);
            assert_eq!(state.shed, if expected { 125 } else { 0 });
        }
    }

    #[test]
    fn few_connections_are_accepted_above_the_memory_limit() {
        let reading = MemoryReading { used_bytes: 2, max_bytes: Some(1), connections: 0 };
        let over = MemoryState::default().next(reading);
        assert!(over.is_over && !over.is_paused(0) && !over.is_paused(ALWAYS_SERVED));
        assert!(over.is_paused(ALWAYS_SERVED + 1));
        assert!(!MemoryState::default().is_paused(usize::MAX));
    }

    #[test]
    fn a_sixteenth_of_the_connections_stays_free() {
        // (connections, max, closed)
        let table = [
            (0, 1600, 0),
            (1499, 1600, 0),
            (1500, 1600, 25),
            (1600, 1600, 125),
            (1700, 1600, 125),
            (9, 10, 0),
            (10, 10, 1),
            (1, 1, 1),
        ];
        for (connections, max, expected) in table {
            assert_eq!(missing_room(connections, max), expected, "{connections} of {max}");
        }
    }

    #[test]
    fn descriptors_are_short_if_less_than_a_32nd_is_left() {
        // (open, limit, short)
        let table = [
            (0, 20, false),
            (20, 20, false),
            (92, 96, false),
            (94, 96, true),
            (200, 96, true),
            (19_375, 20_000, false),
            (19_376, 20_000, true),
            (1_047_552, 1_048_576, false),
            (1_047_553, 1_048_576, true),
        ];
        for (open, limit, expected) in table {
            assert_eq!(is_short_of_descriptors(open, limit), expected, "{open} of {limit}");
        }
    }

    #[test]
    fn descriptors_recover_five_seconds_after_the_last_failure() {
        assert!(!is_out_of_descriptors(None, 0));
        assert!(is_out_of_descriptors(Some(10), 10));
        assert!(is_out_of_descriptors(Some(10), 9 + RECOVERY_US));
        assert!(!is_out_of_descriptors(Some(10), 10 + RECOVERY_US));
    }
}
