//! Converts the words of the file to those of the policy. The types are separate so that the format of the
//! file can change without the code that uses the policy.

use crate::config::spanned::Spanned;
use crate::config::words;
use crate::policy::{access_log, acme, listener, matcher, settings, tracing};

/// Converts a word of the file to its meaning; without one, returns the default.
pub(super) fn meaning<W: Copy, M: From<W> + Default>(field: Option<&Spanned<W>>) -> M {
    field.map_or_else(M::default, |word| M::from(*word.get_ref()))
}

impl From<words::Kind> for crate::policy::Kind {
    fn from(word: words::Kind) -> Self {
        match word {
            words::Kind::TokenBucket => Self::TokenBucket,
            words::Kind::FixedWindow => Self::FixedWindow,
            words::Kind::LeakyBucket => Self::LeakyBucket,
            words::Kind::Concurrency => Self::Concurrency,
            words::Kind::SlidingWindow => Self::SlidingWindow,
        }
    }
}

impl From<words::SplitBy> for crate::policy::split::SplitBy {
    fn from(word: words::SplitBy) -> Self {
        match word {
            words::SplitBy::Request => Self::Request,
            words::SplitBy::Client => Self::Client,
        }
    }
}

impl From<words::Mode> for crate::limit::charge::Mode {
    fn from(word: words::Mode) -> Self {
        match word {
            words::Mode::Enforce => Self::Enforce,
            words::Mode::Shadow => Self::Shadow,
        }
    }
}

impl From<words::OnMissing> for crate::policy::OnMissing {
    fn from(word: words::OnMissing) -> Self {
        match word {
            words::OnMissing::Ip => Self::Ip,
            words::OnMissing::Skip => Self::Skip,
            words::OnMissing::Shared => Self::Shared,
            words::OnMissing::Deny => Self::Deny,
        }
    }
}

impl From<words::OnFailure> for crate::policy::OnFailure {
    fn from(word: words::OnFailure) -> Self {
        match word {
            words::OnFailure::Local => Self::Local,
            words::OnFailure::Allow => Self::Allow,
            words::OnFailure::Deny => Self::Deny,
        }
    }
}

impl From<words::RefundReason> for crate::policy::refund::RefundReason {
    fn from(word: words::RefundReason) -> Self {
        match word {
            words::RefundReason::UpstreamConnect => Self::UpstreamConnect,
            words::RefundReason::NoServer => Self::NoServer,
            words::RefundReason::Shed => Self::Shed,
            words::RefundReason::UpstreamTls => Self::UpstreamTls,
            words::RefundReason::UpstreamConnectTimeout => Self::UpstreamConnectTimeout,
        }
    }
}

impl From<words::Colocate> for crate::policy::redis::Colocate {
    fn from(word: words::Colocate) -> Self {
        match word {
            words::Colocate::Key => Self::Key,
            words::Colocate::Off => Self::Off,
        }
    }
}

impl From<words::Ready> for crate::policy::redis::Ready {
    fn from(word: words::Ready) -> Self {
        match word {
            words::Ready::Always => Self::Always,
            words::Ready::Connected => Self::Connected,
        }
    }
}

impl From<words::StartWithout> for crate::policy::redis::StartWithout {
    fn from(word: words::StartWithout) -> Self {
        match word {
            words::StartWithout::Empty => Self::Empty,
            words::StartWithout::Full => Self::Full,
        }
    }
}

impl From<words::OnMissingKey> for settings::OnMissingKey {
    fn from(word: words::OnMissingKey) -> Self {
        match word {
            words::OnMissingKey::Anonymous => Self::Anonymous,
            words::OnMissingKey::Deny => Self::Deny,
        }
    }
}

impl From<words::OnPreflight> for settings::OnPreflight {
    fn from(word: words::OnPreflight) -> Self {
        match word {
            words::OnPreflight::Deny => Self::Deny,
            words::OnPreflight::Anonymous => Self::Anonymous,
        }
    }
}

impl From<words::OnUnknownKey> for settings::OnUnknownKey {
    fn from(word: words::OnUnknownKey) -> Self {
        match word {
            words::OnUnknownKey::Deny => Self::Deny,
            words::OnUnknownKey::Anonymous => Self::Anonymous,
            words::OnUnknownKey::Accept => Self::Accept,
        }
    }
}

impl From<words::OnConflictingKeys> for settings::OnConflictingKeys {
    fn from(word: words::OnConflictingKeys) -> Self {
        match word {
            words::OnConflictingKeys::Deny => Self::Deny,
            words::OnConflictingKeys::First => Self::First,
        }
    }
}

impl From<words::ClientAuth> for listener::ClientAuthMode {
    fn from(word: words::ClientAuth) -> Self {
        match word {
            words::ClientAuth::Required => Self::Required,
            words::ClientAuth::Optional => Self::Optional,
        }
    }
}

impl From<words::MinTls> for listener::TlsVersion {
    fn from(word: words::MinTls) -> Self {
        match word {
            words::MinTls::V1_2 => Self::V1_2,
            words::MinTls::V1_3 => Self::V1_3,
        }
    }
}

impl From<words::Challenge> for acme::Challenge {
    fn from(word: words::Challenge) -> Self {
        match word {
            words::Challenge::Http01 => Self::Http01,
            words::Challenge::TlsAlpn01 => Self::TlsAlpn01,
        }
    }
}

impl From<words::Protocol> for settings::Protocol {
    fn from(word: words::Protocol) -> Self {
        match word {
            words::Protocol::Auto => Self::Auto,
            words::Protocol::Http1 => Self::Http1,
            words::Protocol::H2 => Self::H2,
            words::Protocol::H2c => Self::H2c,
        }
    }
}

impl From<words::ProxyVersion> for settings::ProxyVersion {
    fn from(word: words::ProxyVersion) -> Self {
        match word {
            words::ProxyVersion::V1 => Self::V1,
            words::ProxyVersion::V2 => Self::V2,
        }
    }
}

impl From<words::TrailingSlash> for matcher::TrailingSlash {
    fn from(word: words::TrailingSlash) -> Self {
        match word {
            words::TrailingSlash::Same => Self::Same,
            words::TrailingSlash::Distinct => Self::Distinct,
        }
    }
}

impl From<words::Follow> for tracing::Follow {
    fn from(word: words::Follow) -> Self {
        match word {
            words::Follow::Trusted => Self::Trusted,
            words::Follow::All => Self::All,
            words::Follow::None => Self::None,
        }
    }
}

impl From<words::LogFormat> for settings::LogFormat {
    fn from(word: words::LogFormat) -> Self {
        match word {
            words::LogFormat::Text => Self::Text,
            words::LogFormat::Json => Self::Json,
        }
    }
}

impl From<words::LogLevel> for settings::LogLevel {
    fn from(word: words::LogLevel) -> Self {
        match word {
            words::LogLevel::Error => Self::Error,
            words::LogLevel::Warn => Self::Warn,
            words::LogLevel::Info => Self::Info,
            words::LogLevel::Debug => Self::Debug,
        }
    }
}

impl From<words::ClientIp> for access_log::ClientIp {
    fn from(word: words::ClientIp) -> Self {
        match word {
            words::ClientIp::Plain => Self::Plain,
            words::ClientIp::Hashed => Self::Hashed,
            words::ClientIp::Off => Self::Off,
        }
    }
}

impl From<words::HeaderStyle> for settings::HeaderStyle {
    fn from(word: words::HeaderStyle) -> Self {
        match word {
            words::HeaderStyle::Both => Self::Both,
            words::HeaderStyle::Draft => Self::Draft,
            words::HeaderStyle::X => Self::X,
            words::HeaderStyle::None => Self::None,
        }
    }
}

impl From<words::HeaderPolicies> for settings::HeaderPolicies {
    fn from(word: words::HeaderPolicies) -> Self {
        match word {
            words::HeaderPolicies::Binding => Self::Binding,
            words::HeaderPolicies::All => Self::All,
        }
    }
}

impl From<words::ResetForm> for settings::ResetForm {
    fn from(word: words::ResetForm) -> Self {
        match word {
            words::ResetForm::Epoch => Self::Epoch,
            words::ResetForm::Delta => Self::Delta,
        }
    }
}
