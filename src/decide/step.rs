//! The order in which a request can end before it is forwarded.

/// A step that can end a request before it is forwarded. The steps are taken in the order of this
/// list. The first that ends the request decides on its response, so a client never learns what a
/// later one would have said.
///
/// `gateway` takes the first two, [`credential`](super::credential) the next two, and
/// [`precheck`](super::precheck) those up to [`Location`](Self::Location). Then `gateway` looks for
/// a place in flight and in the queue, and takes the tokens.
///
/// Requests that may be guesses at API keys are not refused for free: [`Queue`](Self::Queue) and
/// [`Buckets`](Self::Buckets), with the rules that count by address, precede the responses of
/// [`Key`](Self::Key) and [`RequiredKey`](Self::RequiredKey), and that of
/// [`Location`](Self::Location) if the key is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// A certificate authority asks for a pending challenge (200). It has no API key, and may use
    /// any listener.
    AcmeChallenge,
    /// The listener only redirects to HTTPS (308), unless the head is malformed or has no host.
    Redirect,
    /// The head is malformed, or larger than allowed. `guard::check` has an order of its own.
    Head,
    /// The API keys contradict each other, or one is too long (400). The keys of a token's issuer
    /// have not been fetched yet (503).
    Credential,
    /// The client's address may not send requests (403), by the lists of the route if it has one.
    IpAccess,
    /// The method is none of `clients.limits_path` (405), or a page of another site wants to
    /// replace a key (403). A request for it has no route: of the later steps, only
    /// [`Key`](Self::Key), [`Queue`](Self::Queue) and [`Buckets`](Self::Buckets) are about it.
    OwnLimits,
    /// No route matches (404, for TRACE 405), or the path is ambiguous (400).
    Route,
    /// A CORS preflight request about a route with `cors` (204, or 403 if pages of the origin, or
    /// the method, are not allowed). No later step is about it.
    Preflight,
    /// The route is in maintenance (503).
    Maintenance,
    /// The route's rewrite does not fit the path (400).
    Rewrite,
    /// The `Content-Length` is larger than the route allows (413).
    BodyLength,
    /// `[clients]` refuses the API key, or demands one (401).
    Key,
    /// A limit cannot count by a header (400).
    Headers,
    /// A rule demands an API key, which the request does not have (401).
    RequiredKey,
    /// The route redirects, and has no URL for the request (400).
    Location,
    /// The upstream has as many requests in flight as it may (503).
    Shed,
    /// As many requests wait because of leaky buckets as may (429).
    Queue,
    /// A bucket is short (429), or cannot be read and its rule denies requests then (503).
    Buckets,
}

impl Step {
    /// All steps, in their order.
    pub const ALL: [Self; 18] = [
        Self::AcmeChallenge,
        Self::Redirect,
        Self::Head,
        Self::Credential,
        Self::IpAccess,
        Self::OwnLimits,
        Self::Route,
        Self::Preflight,
        Self::Maintenance,
        Self::Rewrite,
        Self::BodyLength,
        Self::Key,
        Self::Headers,
        Self::RequiredKey,
        Self::Location,
        Self::Shed,
        Self::Queue,
        Self::Buckets,
    ];
}
