//! Which endpoints of an upstream get requests: health checks and ejection, and the states that an
//! endpoint can be in.

use std::time::Duration;

use super::failures::FailureSet;

/// Health checks of the endpoints of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthChecks {
    pub kind: CheckKind,
    /// Port of the checks; `None`: that of the endpoint.
    pub port: Option<u16>,
    /// Time between the beginnings of two checks of an endpoint.
    pub interval: Duration,
    /// Time limit of a check, with the connection.
    pub timeout: Duration,
    /// Successful checks in a row after which an endpoint is healthy again, at least 1.
    pub rise: u32,
    /// Failed checks in a row after which an endpoint is unhealthy, at least 1.
    pub fall: u32,
}

/// What a health check is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckKind {
    /// A `GET` request.
    Http {
        /// Path and query.
        path: Box<str>,
        /// Host; `None`: that of the server.
        host: Option<Box<str>>,
        /// Statuses of a healthy endpoint; empty: 200 to 399.
        status: Box<[u16]>,
    },
    /// A call of `grpc.health.v1.Health/Check` for this service; empty: the whole server.
    Grpc { service: Box<str> },
    /// A connection, with TLS if the upstream has it.
    Tcp,
}

/// When an endpoint gets no requests for a time because its requests fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Eject {
    /// Failures in a row after which it is ejected; `None`: any number.
    pub consecutive_failures: Option<u32>,
    /// What is a failure.
    pub on: FailureSet,
    /// Share of failed requests within the window from which it is ejected, in thousandths.
    pub error_rate: Option<u16>,
    /// Length of the window, in microseconds.
    pub window_us: u64,
    /// How long it is ejected for the first time, in microseconds.
    pub for_us: u64,
    /// Share of the endpoints that may be ejected at a time, in thousandths.
    pub max: u16,
}

/// Whether an endpoint gets requests, and which reason why not goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It does.
    #[default]
    Up,
    /// A connection to it failed within the last 5 s.
    Unreachable,
    /// Its requests failed.
    Ejected,
    /// No health check of it has ended yet.
    Unchecked,
    /// Its health checks fail.
    Unhealthy,
    /// Its name does not exist any more, or has no addresses.
    Unresolved,
    /// An operator drains it.
    Drained,
    /// An operator has disabled it.
    Disabled,
}

/// How the last look-up of a name went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupState {
    /// None has ended.
    Pending,
    /// It succeeded.
    Ok,
    /// It is not known what the name has: its addresses stay in use.
    Failed,
    /// The name does not exist, or has no addresses: those it had are used only if no other
    /// endpoint is healthy.
    Absent,
}

/// Why an endpoint was ejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EjectReason {
    ConsecutiveFailures,
    ErrorRate,
}

impl State {
    pub const ALL: [Self; 8] = [
        Self::Up,
        Self::Unreachable,
        Self::Ejected,
        Self::Unchecked,
        Self::Unhealthy,
        Self::Unresolved,
        Self::Drained,
        Self::Disabled,
    ];

    /// The word of metrics, logs and the admin API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Unreachable => "unreachable",
            Self::Ejected => "ejected",
            Self::Unchecked => "unchecked",
            Self::Unhealthy => "unhealthy",
            Self::Unresolved => "unresolved",
            Self::Drained => "drained",
            Self::Disabled => "disabled",
        }
    }
}

impl LookupState {
    pub const ALL: [Self; 4] = [Self::Pending, Self::Ok, Self::Failed, Self::Absent];

    /// The word of metrics, logs and the admin API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Absent => "absent",
        }
    }
}

impl EjectReason {
    pub const ALL: [Self; 2] = [Self::ConsecutiveFailures, Self::ErrorRate];

    /// The word of metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ConsecutiveFailures => "consecutive_failures",
            Self::ErrorRate => "error_rate",
        }
    }
}
