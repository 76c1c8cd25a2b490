//! How long an HTTP/2 connection stays open. Pure: times are microseconds of the monotonic clock.

/// The limits of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetime {
    /// Time without a request after which it is closed.
    pub(super) idle_us: u64,
    /// When it accepts no further requests; `None`: never.
    pub(super) aged_at: Option<u64>,
}

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// It serves requests.
    Busy,
    /// It has had no request since then.
    IdleSince(u64),
}

/// What to do with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Check it again at this time.
    At(u64),
    /// Close it once its requests have ended.
    Close,
}

impl Lifetime {
    /// Decides at `now`.
    pub(super) fn check(&self, now: u64, activity: Activity) -> Due {
        if self.aged_at.is_some_and(|aged_at| now >= aged_at) {
            return Due::Close;
        }
        let idle_at = match activity {
            // It is idle at the earliest then.
            Activity::Busy => now.saturating_add(self.idle_us),
            Activity::IdleSince(since) => since.saturating_add(self.idle_us),
        };
        if now >= idle_at && activity != Activity::Busy {
            return Due::Close;
        }
        Due::At(self.aged_at.map_or(idle_at, |aged_at| aged_at.min(idle_at)))
    }
}

/// The age of a connection with up to a tenth added, so that connections that were opened together
/// are not closed together. `random` is any number.
pub(super) fn jittered(age_us: u64, random: u32) -> u64 {
    let tenth = u128::from(age_us / 10) * u128::from(random) / u128::from(u32::MAX);
    age_us.saturating_add(u64::try_from(tenth).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const YOUNG: Lifetime = Lifetime { idle_us: 100, aged_at: None };

    #[test]
    fn idle_connection_closes_after_its_timeout() {
        assert_eq!(YOUNG.check(50, Activity::IdleSince(0)), Due::At(100));
        assert_eq!(YOUNG.check(99, Activity::IdleSince(0)), Due::At(100));
        assert_eq!(YOUNG.check(100, Activity::IdleSince(0)), Due::Close);
    }

    #[test]
    fn busy_connection_is_checked_again_after_the_idle_timeout() {
        assert_eq!(YOUNG.check(1_000, Activity::Busy), Due::At(1_100));
    }

    #[test]
    fn old_connection_closes_even_if_it_is_busy() {
        let old = Lifetime { aged_at: Some(150), ..YOUNG };
        assert_eq!(old.check(100, Activity::Busy), Due::At(150));
        assert_eq!(old.check(149, Activity::IdleSince(100)), Due::At(150));
        assert_eq!(old.check(150, Activity::Busy), Due::Close);
    }

    #[test]
    fn jitter_adds_at_most_a_tenth() {
        assert_eq!(jittered(1_000, 0), 1_000);
        assert_eq!(jittered(1_000, u32::MAX), 1_100);
        assert!((1_000..=1_100).contains(&jittered(1_000, 12_345)));
    }
}
