//! Kinds of refusals.

use http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::decide::problem;

/// What happened to the requests of a run. The numbers are indexes into [`Kind::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "RefusalKind"))]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A rate limit refused them: 429.
    #[default]
    Limit,
    /// Redis was unavailable, and a rule has `on_failure = "deny"`; or the key store: 503.
    Unavailable,
    /// They had no valid API key: 401.
    Unauthorized,
    /// They were allowed, but a rule in shadow mode would have refused them.
    Shadow,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Limit, Self::Unavailable, Self::Unauthorized, Self::Shadow];

    /// Name in the log, in the stream and in the admin API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Unavailable => "unavailable",
            Self::Unauthorized => "unauthorized",
            Self::Shadow => "shadow",
        }
    }

    /// Name of its stream in Redis, after the prefix. Each kind has its own, so that no kind
    /// shortens the history of another.
    pub const fn stream(self) -> &'static str {
        match self {
            Self::Limit => "audit",
            Self::Unavailable => "audit:unavailable",
            Self::Unauthorized => "audit:unauthorized",
            Self::Shadow => "audit:shadow",
        }
    }

    /// The kind of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Status of the problem document that the client received; `None` if the requests were
    /// allowed.
    pub fn status(self) -> Option<u16> {
        let status = match self {
            Self::Limit => problem::LIMITED,
            Self::Unavailable => problem::UNAVAILABLE.0,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Shadow => return None,
        };
        Some(status.as_u16())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_index_and_is_parsed_by_its_name() {
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
            assert_eq!(Kind::parse(kind.name()), Some(kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
        assert_eq!(Kind::parse("Limit"), None);
    }
}
