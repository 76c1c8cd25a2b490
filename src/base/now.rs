//! [`Now`]: one instant by the two clocks that limits count by.

/// An instant by the process' clock, and in Unix time, both in microseconds. Calendar periods
/// follow Unix time, which may be corrected; everything else follows the process' clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// By the process' clock.
    pub us: u64,
    /// In Unix time.
    pub unix_us: u64,
}

impl Now {
    /// An instant by a clock that is Unix time, as that of Redis.
    pub const fn unix(us: u64) -> Self {
        Self { us, unix_us: us }
    }

    /// The instant `us` of the process' clock, if Unix time is not corrected between the two.
    pub const fn at(self, us: u64) -> Self {
        Self { us, unix_us: us.saturating_add(self.offset_us()) }
    }

    /// Instant of the process' clock at a Unix time, both in microseconds; 0 if it is before the
    /// clock began.
    pub const fn instant(self, unix_us: u64) -> u64 {
        unix_us.saturating_sub(self.offset_us())
    }

    /// Unix time less the process' clock.
    const fn offset_us(self) -> u64 {
        self.unix_us.saturating_sub(self.us)
    }
}
