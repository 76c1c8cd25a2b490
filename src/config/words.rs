//! Settings that take one of a few words. In the file they stand in lower case.

use super::walk::words;

words! {
    /// What a rule may do.
    pub enum Mode {
        /// Refuse.
        Enforce,
        /// Count and report only.
        Shadow,
    }

    /// What a rule per key does with a client without one.
    pub enum OnMissing {
        /// Count it by address.
        Ip,
        /// Do not apply.
        Skip,
        /// Count all such clients together.
        Shared,
        /// Answer 401.
        Deny,
    }

    /// What becomes of requests when the shared store fails.
    pub enum OnFailure {
        /// Decide in this process.
        Local,
        /// Let them pass.
        Allow,
        /// Answer 503.
        Deny,
    }

    /// What `/ready` says while the shared store fails.
    pub enum Ready {
        /// 200 all the same.
        Always,
        /// 200 only with a store that answers.
        Connected,
    }

    /// What buckets hold in a gateway that has not reached the shared store since it started.
    pub enum StartWithout {
        /// Nothing; they fill from the start on.
        Empty,
        /// The gateway's share of a full bucket.
        Full,
    }

    /// A request without a key.
    pub enum OnMissingKey {
        /// Go on as an anonymous client.
        Anonymous,
        /// Answer 401.
        Deny,
    }

    /// A request with a key that the file does not know.
    pub enum OnUnknownKey {
        /// Answer 401.
        Deny,
        /// Go on as an anonymous client.
        Anonymous,
        /// Go on as a client of its own, on the anonymous plan.
        Accept,
    }

    /// A request with two different keys.
    pub enum OnConflictingKeys {
        /// Answer 400.
        Deny,
        /// The first counts.
        First,
    }

    /// Whether the case of a path's letters tells routes apart.
    pub enum PathCase {
        /// `/API` and `/api` are two paths.
        Sensitive,
        /// `/API` and `/api` are one path.
        Insensitive,
    }

    /// Whether a path with a trailing slash is another path.
    pub enum TrailingSlash {
        /// `/api` and `/api/` are one path.
        Same,
        /// `/api` and `/api/` are two paths.
        Distinct,
    }

    /// Which family of headers.
    pub enum HeaderStyle {
        /// Both families.
        Both,
        /// `RateLimit` and `RateLimit-Policy`.
        Draft,
        /// `X-RateLimit-*`.
        X,
        /// None, but `Retry-After` on refusals.
        None,
    }

    /// Which rules the headers name.
    pub enum HeaderPolicies {
        /// The one that binds.
        Binding,
        /// All that apply.
        All,
    }

    /// What `X-RateLimit-Reset` counts.
    pub enum ResetForm {
        /// Seconds since 1970.
        Epoch,
        /// Seconds from now.
        Delta,
    }

    /// Whose `traceparent` is followed.
    pub enum Follow {
        /// That of trusted proxies, and their decision whether a request is traced.
        Trusted,
        /// That of all clients; whether a request is traced, only trusted proxies decide.
        All,
        /// Nobody's: every trace begins here.
        None,
    }

    /// How a client's address is shown.
    pub enum ClientIp {
        /// As it is.
        Plain,
        /// As a salted hash: whose it is cannot be told, that it is the same one can.
        Hashed,
        /// Not at all.
        Off,
    }
}
