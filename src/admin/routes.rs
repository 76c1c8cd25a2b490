//! The routes of the admin port. Requests are dispatched by this table, and the OpenAPI document is
//! generated from it.

use http::Method;

use super::body;
use crate::load::MAX_FILE_BYTES;
use crate::net::percent;

/// Maximum length of an import, in bytes.
const MAX_IMPORT_BYTES: usize = 4 << 20;

/// A method and a path of the admin port, and the operation that they call.
#[derive(Debug)]
pub(super) struct ApiRoute {
    /// The method. A route for GET also accepts HEAD.
    pub(super) method: Verb,
    /// The path. A name in braces matches one segment.
    pub(super) path: &'static str,
    /// The operation that answers a request.
    pub(super) call: Call,
}

/// The methods of routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// GET and HEAD: the operation changes nothing.
    Get,
    /// POST: the operation changes state, or has a body.
    Post,
    /// PATCH: the operation changes a part of what the path names.
    Patch,
    /// DELETE: the operation removes what the path names.
    Delete,
}

/// The operations; the names are also the operation ids of the OpenAPI document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Live,
    Ready,
    Metrics,
    Events,
    Samples,
    OpenApi,
    Status,
    Policy,
    Reloads,
    Upstreams,
    Drain,
    Disable,
    Enable,
    Certificates,
    Audit,
    Usage,
    Bans,
    BeginBan,
    LiftBans,
    Top,
    Buckets,
    Reset,
    Grant,
    TopUps,
    RevokeTopUp,
    ShowBreaker,
    SetBreaker,
    Explain,
    Reload,
    Upgrade,
    Keys,
    CreateKey,
    ImportKeys,
    Key,
    PatchKey,
    RemoveKey,
    RotateKey,
    DisableKey,
    EnableKey,
}

impl ApiRoute {
    /// Maximum length of the body of a request, in bytes.
    pub(super) fn max_body_bytes(&self) -> usize {
        match self.call {
            // Many clients.
            Call::ImportKeys => MAX_IMPORT_BYTES,
            // A whole configuration file.
            Call::Reload => usize::try_from(MAX_FILE_BYTES).unwrap_or(body::MAX_BYTES),
            _ => body::MAX_BYTES,
        }
    }
}

/// All routes of the admin port except the files of the dashboard.
pub(super) const ROUTES: &[ApiRoute] = &[
    get("/live", Call::Live),
    get("/ready", Call::Ready),
    get("/metrics", Call::Metrics),
    get("/api/events", Call::Events),
    get("/api/samples", Call::Samples),
    get("/api/openapi.json", Call::OpenApi),
    get("/api/status", Call::Status),
    get("/api/policy", Call::Policy),
    get("/api/reloads", Call::Reloads),
    get("/api/upstreams", Call::Upstreams),
    post("/api/upstreams/{name}/{server}/drain", Call::Drain),
    post("/api/upstreams/{name}/{server}/disable", Call::Disable),
    post("/api/upstreams/{name}/{server}/enable", Call::Enable),
    get("/api/certificates", Call::Certificates),
    get("/api/audit", Call::Audit),
    get("/api/usage", Call::Usage),
    get("/api/bans", Call::Bans),
    post("/api/bans", Call::BeginBan),
    ApiRoute { method: Verb::Delete, path: "/api/bans", call: Call::LiftBans },
    get("/api/clients", Call::Top),
    get("/api/clients/{kind}/{id}/buckets", Call::Buckets),
    post("/api/clients/{kind}/{id}/reset", Call::Reset),
    post("/api/clients/{kind}/{id}/grant", Call::Grant),
    get("/api/clients/{kind}/{id}/top-ups", Call::TopUps),
    ApiRoute {
        method: Verb::Delete,
        path: "/api/clients/{kind}/{id}/top-ups/{top_up}",
        call: Call::RevokeTopUp,
    },
    get("/api/breaker", Call::ShowBreaker),
    post("/api/breaker", Call::SetBreaker),
    post("/api/explain", Call::Explain),
    post("/api/reload", Call::Reload),
    post("/api/upgrade", Call::Upgrade),
    get("/api/keys", Call::Keys),
    post("/api/keys", Call::CreateKey),
    post("/api/keys/import", Call::ImportKeys),
    get("/api/keys/{id}", Call::Key),
    ApiRoute { method: Verb::Patch, path: "/api/keys/{id}", call: Call::PatchKey },
    ApiRoute { method: Verb::Delete, path: "/api/keys/{id}", call: Call::RemoveKey },
    post("/api/keys/{id}/rotate", Call::RotateKey),
    post("/api/keys/{id}/disable", Call::DisableKey),
    post("/api/keys/{id}/enable", Call::EnableKey),
];

/// The result of finding a route.
#[derive(Debug)]
pub(super) enum Match {
    /// The route, with the decoded path segments that it has in braces.
    Found(&'static ApiRoute, Vec<String>),
    /// The path exists, but only for these methods.
    MethodNotAllowed(Vec<Verb>),
    /// No route has this path.
    NotFound,
}

const fn get(path: &'static str, call: Call) -> ApiRoute {
    ApiRoute { method: Verb::Get, path, call }
}

const fn post(path: &'static str, call: Call) -> ApiRoute {
    ApiRoute { method: Verb::Post, path, call }
}

impl Verb {
    /// Name of the HTTP method.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    fn takes(self, method: &Method) -> bool {
        match self {
            Self::Get => *method == Method::GET || *method == Method::HEAD,
            Self::Post => *method == Method::POST,
            Self::Patch => *method == Method::PATCH,
            Self::Delete => *method == Method::DELETE,
        }
    }
}

/// Finds the route of a request.
pub(super) fn find(method: &Method, path: &str) -> Match {
    let mut others = Vec::new();
    for route in ROUTES {
        let Some(parts) = parts(route.path, path) else { continue };
        if route.method.takes(method) {
            return Match::Found(route, parts);
        }
        others.push(route.method);
    }
    if others.is_empty() { Match::NotFound } else { Match::MethodNotAllowed(others) }
}

/// All routes in one line, for error messages.
pub(super) fn summary() -> String {
    let each = ROUTES.iter().map(|route| format!("{} {}", route.method.name(), route.path));
    each.collect::<Vec<_>>().join(", ")
}

/// The decoded segments for each name in braces, if the path matches the template.
fn parts(template: &str, path: &str) -> Option<Vec<String>> {
    let mut found = Vec::new();
    let (mut wanted, mut given) = (template.split('/'), path.split('/'));
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return Some(found),
            (Some(wanted), Some(given)) if wanted.starts_with('{') => {
                let decoded = decoded(given)?;
                found.push(decoded);
            }
            (Some(wanted), Some(given)) if wanted == given => {}
            _ => return None,
        }
    }
}

/// Decodes a path segment; `None` if it is empty, malformed or not UTF-8.
fn decoded(part: &str) -> Option<String> {
    let bytes = percent::decode_strict(part)?;
    String::from_utf8(bytes).ok().filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_found_by_its_path_and_method() {
        for route in ROUTES {
            let path = route.path.replace('{', "%7B").replace('}', "%7d");
            let method = Method::from_bytes(route.method.name().as_bytes()).unwrap();
            match find(&method, &path) {
                Match::Found(found, _) => assert_eq!(found.call, route.call, "{path}"),
                other => panic!("{path}: {other:?}"),
            }
        }
    }

    #[test]
    fn unknown_path_differs_from_wrong_method() {
        assert!(matches!(find(&Method::HEAD, "/live"), Match::Found(..)));
        let others = |method, path| match find(&method, path) {
            Match::MethodNotAllowed(verbs) => verbs.into_iter().map(Verb::name).collect(),
            _ => Vec::new(),
        };
        assert_eq!(others(Method::GET, "/api/reload"), ["POST"]);
        assert_eq!(others(Method::DELETE, "/metrics"), ["GET"]);
        for path in ["/", "", "/live/", "/api", "/api/", "/api/reload/x", "//live", "/LIVE"] {
            assert!(matches!(find(&Method::GET, path), Match::NotFound), "{path}");
        }
    }

    #[test]
    fn path_segments_are_decoded() {
        let found = |path| parts("/c/{kind}/{id}/x", path);
        let both = |a: &str, b: &str| Some(vec![a.to_owned(), b.to_owned()]);
        assert_eq!(found("/c/ip/2001:db8::1/x"), both("ip", "2001:db8::1"));
        assert_eq!(found("/c/ip/2001%3Adb8%3a%3A1/x"), both("ip", "2001:db8::1"));
        assert_eq!(found("/c/a%2Fb/%C3%BC/x"), both("a/b", "ü"));
        for malformed in ["/c//a/x", "/c/a/%/x", "/c/a/%4/x", "/c/a/%zz/x", "/c/a/%ff/x", "/c/a/x"]
        {
            assert_eq!(found(malformed), None, "{malformed}");
        }
    }
}
