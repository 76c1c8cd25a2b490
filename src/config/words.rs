//! Settings that take one of a few words, which are in lower case in the file.

use super::walk::words;

words! {
    /// Whether a rule is enforced.
    pub enum Mode {
        /// Refuse requests beyond the limit.
        Enforce,
        /// Count and report such requests, never refuse them.
        Shadow,
    }

    /// How a rule per key counts a client without one.
    pub enum OnMissing {
        /// By address.
        Ip,
        /// Not at all: the rule does not apply.
        Skip,
        /// All such clients together.
        Shared,
        /// Answer 401.
        Deny,
    }

    /// How requests are decided while Redis fails.
    pub enum OnFailure {
        /// In this process, within its local share.
        Local,
        /// Allow them.
        Allow,
        /// Answer 503.
        Deny,
    }

    /// What `/ready` answers while Redis fails.
    pub enum Ready {
        /// 200.
        Always,
        /// 503.
        Connected,
    }

    /// Content of the buckets of a gateway that has not reached Redis since it started.
    pub enum StartWithout {
        /// No tokens; buckets fill from the start on.
        Empty,
        /// The gateway's share of the burst.
        Full,
    }

    /// What happens to a request without a key.
    pub enum OnMissingKey {
        /// Treat it as a request of an anonymous client.
        Anonymous,
        /// Answer 401.
        Deny,
    }

    /// What happens to a request with an unknown key.
    pub enum OnUnknownKey {
        /// Answer 401.
        Deny,
        /// Treat it as a request of an anonymous client.
        Anonymous,
        /// Treat each unknown key as a client, on the anonymous plan.
        Accept,
    }

    /// What happens to a request with two different keys.
    pub enum OnConflictingKeys {
        /// Answer 400.
        Deny,
        /// Use the first, in the order of `api_key`.
        First,
    }

    /// Whether routes match paths case-sensitively.
    pub enum PathCase {
        /// `/API` and `/api` are two paths.
        Sensitive,
        /// `/API` and `/api` are one path.
        Insensitive,
    }

    /// Whether a trailing slash makes another path.
    pub enum TrailingSlash {
        /// `/api` and `/api/` are one path.
        Same,
        /// `/api` and `/api/` are two paths.
        Distinct,
    }

    /// Which headers responses have.
    pub enum HeaderStyle {
        /// Those of `draft` and of `x`.
        Both,
        /// `RateLimit` and `RateLimit-Policy`.
        Draft,
        /// `X-RateLimit-*`.
        X,
        /// Only `Retry-After`, on refusals.
        None,
    }

    /// Which rules the headers describe.
    pub enum HeaderPolicies {
        /// The one with the least left.
        Binding,
        /// All enforced rules that applied.
        All,
    }

    /// Unit of `X-RateLimit-Reset`.
    pub enum ResetForm {
        /// Unix time.
        Epoch,
        /// Seconds from now.
        Delta,
    }

    /// Whose `traceparent` is continued.
    pub enum Follow {
        /// That of trusted proxies, with their sampling decision.
        Trusted,
        /// That of all clients, but the sampling decision only of trusted proxies.
        All,
        /// None: every trace begins at the gateway.
        None,
    }

    /// How a client's address is shown.
    pub enum ClientIp {
        /// Unchanged.
        Plain,
        /// As a salted hash, which identifies a client but does not reveal its address.
        Hashed,
        /// Not at all.
        Off,
    }
}
