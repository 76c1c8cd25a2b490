//! What clients may object to in a certificate.

use std::fmt;

/// What clients may object to in a certificate that can be presented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Warning {
    /// It has expired.
    Expired,
    /// It expires within this many days.
    ExpiresSoon {
        /// Whole days that are left.
        days: u64,
    },
    NotYetValid,
    /// It is the certificate of an authority.
    Authority,
    /// It has neither a DNS name nor an IP address.
    NoNames,
    /// Its issuer does not let servers present it.
    NotForServers,
    /// The OCSP response has expired.
    StapleExpired,
    /// The OCSP response says that the certificate is revoked.
    StapleRevoked,
    /// The OCSP response says that the responder does not know the certificate.
    StapleUnknown,
}

// === impl Warning ===

impl fmt::Display for Warning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Expired => "has expired",
            Self::ExpiresSoon { days: 0 } => "expires within a day",
            Self::ExpiresSoon { days: 1 } => "expires in 1 day",
            Self::ExpiresSoon { days } => return write!(formatter, "expires in {days} days"),
            Self::NotYetValid => "is not valid yet",
            Self::Authority => "is that of an authority (CA:TRUE), which some clients refuse",
            Self::NoNames => "has neither a DNS name nor an IP address, so most clients refuse it",
            Self::NotForServers => "is not for servers (key usage), so most clients refuse it",
            Self::StapleExpired => "has an expired OCSP response, which is not stapled",
            Self::StapleRevoked => "is revoked by its OCSP response, which is not stapled",
            Self::StapleUnknown => "is unknown to its OCSP responder; the response is not stapled",
        })
    }
}

impl Warning {
    /// Whether it is about the OCSP response.
    pub fn is_of_staple(self) -> bool {
        matches!(self, Self::StapleExpired | Self::StapleRevoked | Self::StapleUnknown)
    }

    /// What to do about it.
    pub fn help(self) -> Option<&'static str> {
        match self {
            Self::Expired | Self::ExpiresSoon { .. } => {
                Some("renew it; the gateway uses the new files as soon as they are in place")
            }
            Self::StapleExpired => Some("fetch a new one before the old one expires"),
            Self::StapleRevoked => Some("replace the certificate"),
            _ => None,
        }
    }
}
