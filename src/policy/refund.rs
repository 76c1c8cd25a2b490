//! `refund_on` of a rule: after which failures a request gets its tokens back.

use http::StatusCode;

use crate::config::rules::Rule;
pub use crate::config::words::RefundReason;
use crate::config::words::Word as _;

/// The failures after which a request gets its tokens back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefundOn(u16);

impl RefundReason {
    const fn bit(self) -> u16 {
        1 << self as u16
    }

    /// The reason that is this status alone.
    const fn of_status(status: StatusCode) -> Option<Self> {
        match status.as_u16() {
            500 => Some(Self::InternalServerError),
            502 => Some(Self::BadGateway),
            503 => Some(Self::ServiceUnavailable),
            504 => Some(Self::GatewayTimeout),
            _ => None,
        }
    }
}

impl RefundOn {
    /// No failure.
    pub const NEVER: Self = Self(0);

    pub const fn has(self, reason: RefundReason) -> bool {
        self.0 & reason.bit() != 0
    }

    /// The reason that it has because of the status of a response.
    pub fn of_status(self, status: StatusCode) -> Option<RefundReason> {
        let is_any = status.is_server_error() && self.has(RefundReason::ServerError);
        let any = is_any.then_some(RefundReason::ServerError);
        RefundReason::of_status(status).filter(|reason| self.has(*reason)).or(any)
    }

    /// Whether it has a status of responses.
    pub fn has_statuses(self) -> bool {
        use RefundReason::{
            BadGateway, GatewayTimeout, InternalServerError, ServerError, ServiceUnavailable,
        };
        let all =
            [ServerError, InternalServerError, BadGateway, ServiceUnavailable, GatewayTimeout];
        all.into_iter().any(|reason| self.has(reason))
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
    fn every_reason_but_a_status_is_one_of_the_access_log() {
        let is_status =
            |reason: &RefundReason| std::iter::once(*reason).collect::<RefundOn>().has_statuses();
        for reason in RefundReason::ALL.iter().copied().filter(|reason| !is_status(reason)) {
            let is_it = |other: &Reason| other.label() == reason.name();
            assert!(Reason::ALL.iter().any(is_it), "{}", reason.name());
        }
    }

    #[test]
    fn status_is_a_reason_by_itself_or_as_one_of_all() {
        let set = |reasons: &[RefundReason]| reasons.iter().copied().collect::<RefundOn>();
        let one = set(&[RefundReason::BadGateway]);
        let any = set(&[RefundReason::ServerError, RefundReason::BadGateway]);
        for (status, of_one, of_any) in [
            (502, Some(RefundReason::BadGateway), Some(RefundReason::BadGateway)),
            (503, None, Some(RefundReason::ServerError)),
            (599, None, Some(RefundReason::ServerError)),
            (404, None, None),
            (200, None, None),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!((one.of_status(status), any.of_status(status)), (of_one, of_any));
            assert_eq!(RefundOn::default().of_status(status), None);
        }
        assert!(one.has_statuses() && !RefundOn::default().has_statuses());
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
