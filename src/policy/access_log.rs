//! `[access_log]` as it is meant: where lines go, and what they may tell.

use std::path::PathBuf;

use super::redis::Secret;

/// What becomes of one line for every request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessLog {
    /// Where lines go.
    pub output: Output,
    /// How a client's address is shown, where refusals are told too.
    pub client_ip: ClientIp,
    /// What addresses are hashed with; none: something that only this process knows.
    pub salt: Option<Secret>,
    /// Which of the requests that pass have a line.
    pub sample: Sample,
}

/// Where lines go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Output {
    /// Nowhere.
    #[default]
    Off,
    /// To standard output.
    Stdout,
    /// To the end of this file; its path is absolute.
    File(PathBuf),
}

/// How a client's address is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClientIp {
    /// As it is.
    #[default]
    Plain,
    /// As a salted hash.
    Hashed,
    /// Not at all.
    Off,
}

/// A part of all requests, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample(u32);

impl Sample {
    /// All of them.
    pub const ALL: Self = Self(1_000_000);

    /// `part` of them, 0 to 1; none for any other number.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of millionths within 0 and a million"
    )]
    pub fn of(part: f64) -> Option<Self> {
        (0.0..=1.0).contains(&part).then(|| Self((part * 1e6).round() as u32))
    }

    /// Whether it has the request of that id. The id alone decides, so that gateways which pass a
    /// request on under one id write it all or not at all.
    pub fn has(self, request_id: &str) -> bool {
        if self == Self::ALL {
            return true;
        }
        // FNV-1a, and a last mix so that ids which count up spread over the whole range.
        let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let hash = request_id.bytes().fold(0xcbf2_9ce4_8422_2325, fold);
        let hash = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (u128::from(hash) * 1_000_000) >> 64 < u128::from(self.0)
    }
}

impl Default for Sample {
    fn default() -> Self {
        Self::ALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_its_part_of_ids_that_count_up() {
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
            let sample = Sample::of(part).unwrap();
            let count = ids.iter().filter(|id| sample.has(id)).count();
            assert!((least..=most).contains(&count), "{part}: {count}");
        }
        for part in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Sample::of(part), None);
        }
    }
}
