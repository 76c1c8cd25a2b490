//! Headers in which proxies say what they know of a request, and which servers trust.

use http::HeaderName;

/// Headers that a proxy sets and servers trust, and all that begin with [`FORWARDED_PREFIX`]. Those
/// of a client are removed unless the request came through a trusted proxy.
const FORWARDING: [&str; 3] = [FORWARDED, "x-real-ip", "x-request-id"];

const FORWARDED: &str = "forwarded";

/// Also `X-Forwarded-Port`, `-Prefix`, `-Ssl` and others, which the gateway does not set.
const FORWARDED_PREFIX: &str = "x-forwarded";

/// Prefixes of these names. Not only `x-`: that of an API key's header often begins so.
const FORWARDING_PREFIXES: [&str; 3] = [FORWARDED_PREFIX, "x-re", FORWARDED];

/// Whether a name may be one of these. Costs less than [`is_forwarding`].
pub fn may_be_forwarding(name: &HeaderName) -> bool {
    FORWARDING_PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix))
}

/// Whether servers may read a header as one of [`FORWARDING`], or as one with their prefix.
pub fn is_forwarding(name: &str) -> bool {
    let begins = |prefix: &str| {
        let letters = |(own, wanted): (u8, u8)| own == wanted || (own == b'_' && wanted == b'-');
        name.len() >= prefix.len() && name.bytes().zip(prefix.bytes()).all(letters)
    };
    begins(FORWARDED_PREFIX) || FORWARDING.iter().any(|own| name.len() == own.len() && begins(own))
}
