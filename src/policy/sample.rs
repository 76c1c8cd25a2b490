//! Samples of requests, by their ids.

use crate::base::hash::{FNV_1A, GOLDEN, fnv_1a};

/// Fraction of the requests, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleRate(u32);

impl SampleRate {
    /// A rate of 1: all requests.
    pub const ALL: Self = Self(1_000_000);

    /// A rate from 0 to 1; `None` for any other number.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and 1,000,000"
    )]
    pub fn of(part: f64) -> Option<Self> {
        (0.0..=1.0).contains(&part).then(|| Self((part * 1e6).round() as u32))
    }

    /// A rate in thousandths, at most 1,000.
    pub fn of_thousandths(thousandths: u16) -> Self {
        Self(u32::from(thousandths.min(1_000)) * 1_000)
    }

    /// Whether the request with that id is in the sample. Only the id decides, so that of several
    /// gateways that forward a request with one id, it is in the samples of all or of none.
    pub fn includes(self, request_id: &str) -> bool {
        if self == Self::ALL {
            return true;
        }
        // FNV-1a, then a mix that spreads consecutive ids over the whole range.
        let hash = fnv_1a(FNV_1A, request_id.bytes());
        let hash = (hash ^ (hash >> 32)).wrapping_mul(GOLDEN);
        (u128::from(hash) * 1_000_000) >> 64 < u128::from(self.0)
    }
}

impl Default for SampleRate {
    fn default() -> Self {
        Self::ALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_includes_its_part_of_consecutive_ids() {
        let ids: Vec<String> = (0..100_000)
            .map(|count| format!("{:016x}{count:016x}", 0x7104_eb52_c520_936e_u64))
            .collect();
        for (part, least, most) in [
            (0.0, 0, 0),
            (0.001, 70, 130),
            (0.1, 9_700, 10_300),
            (0.5, 49_300, 50_700),
            (1.0, 100_000, 100_000),
        ] {
            let rate = SampleRate::of(part).unwrap();
            let count = ids.iter().filter(|id| rate.includes(id)).count();
            assert!((least..=most).contains(&count), "{part}: {count}");
        }
        for part in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(SampleRate::of(part), None);
        }
    }
}
