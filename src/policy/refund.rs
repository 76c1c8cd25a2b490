//! `refund_on` of a rule: after which failures a request gets its tokens back.

use crate::config::rules::Rule;
pub use crate::config::words::RefundReason;
use crate::config::words::Word as _;

/// The failures after which a request gets its tokens back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefundOn(u8);

impl RefundReason {
    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl RefundOn {
    /// No failure.
    pub const NEVER: Self = Self(0);

    pub const fn has(self, reason: RefundReason) -> bool {
        self.0 & reason.bit() != 0
    }

    /// Its reasons, as the file writes them.
    pub fn names(self) -> Vec<&'static str> {
        let each = RefundReason::ALL.iter().copied().filter(|reason| self.has(*reason));
        each.map(RefundReason::name).collect()
    }
}

impl Default for RefundOn {
    fn default() -> Self {
        let Some(words) = Rule::refund_on.texts() else { return Self::NEVER };
        words.iter().filter_map(|word| RefundReason::of_word(word)).collect()
    }
}

impl FromIterator<RefundReason> for RefundOn {
    fn from_iter<I: IntoIterator<Item = RefundReason>>(reasons: I) -> Self {
        Self(reasons.into_iter().fold(0, |bits, reason| bits | reason.bit()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::reason::Reason;

    #[test]
    fn every_reason_is_one_of_the_access_log() {
        for reason in RefundReason::ALL.iter().copied() {
            let is_it = |other: &Reason| other.label() == reason.name();
            assert!(Reason::ALL.iter().any(is_it), "{}", reason.name());
        }
    }

    #[test]
    fn set_has_the_reasons_that_it_was_made_of() {
        assert_eq!(RefundOn::default().names(), ["upstream_connect", "no_server", "shed"]);
        assert_eq!(RefundOn::NEVER.names(), [""; 0]);
        for reason in RefundReason::ALL.iter().copied() {
            let set: RefundOn = std::iter::once(reason).collect();
            assert_eq!(set.names(), [reason.name()]);
        }
    }
}
