//! What there is on the operator's port: one table, by which requests are answered and which the
//! OpenAPI document is made from, so that the two cannot differ.

use http::Method;

/// One thing that can be asked for.
#[derive(Debug)]
pub(super) struct Route {
    /// How it is asked for. Whatever takes GET takes HEAD, too.
    pub(super) method: Verb,
    /// Where it is. A part in braces stands for one part of the path.
    pub(super) path: &'static str,
    /// What answers.
    pub(super) call: Call,
}

/// The methods that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// Reads, and changes nothing.
    Get,
    /// Changes something, or asks by a body.
    Post,
}

/// What answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Live,
    Ready,
    Metrics,
    Events,
    OpenApi,
    Status,
    Policy,
    Reloads,
    Upstreams,
    Audit,
    Top,
    Buckets,
    Reset,
    Grant,
    ShowBreaker,
    SetBreaker,
    Explain,
    Reload,
}

/// Everything that there is.
pub(super) const ROUTES: &[Route] = &[
    get("/live", Call::Live),
    get("/ready", Call::Ready),
    get("/metrics", Call::Metrics),
    get("/api/events", Call::Events),
    get("/api/openapi.json", Call::OpenApi),
    get("/api/status", Call::Status),
    get("/api/policy", Call::Policy),
    get("/api/reloads", Call::Reloads),
    get("/api/upstreams", Call::Upstreams),
    get("/api/audit", Call::Audit),
    get("/api/clients", Call::Top),
    get("/api/clients/{kind}/{id}/buckets", Call::Buckets),
    post("/api/clients/{kind}/{id}/reset", Call::Reset),
    post("/api/clients/{kind}/{id}/grant", Call::Grant),
    get("/api/breaker", Call::ShowBreaker),
    post("/api/breaker", Call::SetBreaker),
    post("/api/explain", Call::Explain),
    post("/api/reload", Call::Reload),
];

/// Where a request leads.
#[derive(Debug)]
pub(super) enum Found {
    /// To this, with the parts of the path that stand in braces, decoded.
    Route(&'static Route, Vec<String>),
    /// To nothing by this method; these are taken.
    OtherMethods(Vec<Verb>),
    /// To nothing.
    Nothing,
}

const fn get(path: &'static str, call: Call) -> Route {
    Route { method: Verb::Get, path, call }
}

const fn post(path: &'static str, call: Call) -> Route {
    Route { method: Verb::Post, path, call }
}

impl Verb {
    /// Its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
        }
    }

    fn takes(self, method: &Method) -> bool {
        match self {
            Self::Get => *method == Method::GET || *method == Method::HEAD,
            Self::Post => *method == Method::POST,
        }
    }
}

/// Where a request of that method leads to that path.
pub(super) fn find(method: &Method, path: &str) -> Found {
    let mut others = Vec::new();
    for route in ROUTES {
        let Some(parts) = parts(route.path, path) else { continue };
        if route.method.takes(method) {
            return Found::Route(route, parts);
        }
        others.push(route.method);
    }
    if others.is_empty() { Found::Nothing } else { Found::OtherMethods(others) }
}

/// Everything that there is, in one line.
pub(super) fn listed() -> String {
    let each = ROUTES.iter().map(|route| format!("{} {}", route.method.name(), route.path));
    each.collect::<Vec<_>>().join(", ")
}

/// What stands in the place of each part in braces, where the path is such a one.
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

/// A part of a path as it is meant; none where it is nothing, or no text.
fn decoded(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || char::from(rest.next()?).to_digit(16);
        bytes.push(match byte {
            b'%' => u8::try_from(digit()? * 16 + digit()?).ok()?,
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok().filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_is_found_by_its_own_path_and_method() {
        for route in ROUTES {
            let path = route.path.replace('{', "%7B").replace('}', "%7d");
            let method = Method::from_bytes(route.method.name().as_bytes()).unwrap();
            match find(&method, &path) {
                Found::Route(found, _) => assert_eq!(found.call, route.call, "{path}"),
                other => panic!("{path}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_is_not_there_is_told_apart_from_what_is_asked_for_in_another_way() {
        assert!(matches!(find(&Method::HEAD, "/live"), Found::Route(..)));
        let others = |method, path| match find(&method, path) {
            Found::OtherMethods(verbs) => verbs.into_iter().map(Verb::name).collect(),
            _ => Vec::new(),
        };
        assert_eq!(others(Method::GET, "/api/reload"), ["POST"]);
        assert_eq!(others(Method::DELETE, "/metrics"), ["GET"]);
        for path in ["/", "", "/live/", "/api", "/api/", "/api/reload/x", "//live", "/LIVE"] {
            assert!(matches!(find(&Method::GET, path), Found::Nothing), "{path}");
        }
    }

    #[test]
    fn parts_of_a_path_are_decoded() {
        let found = |path| parts("/c/{kind}/{id}/x", path);
        let both = |a: &str, b: &str| Some(vec![a.to_owned(), b.to_owned()]);
        assert_eq!(found("/c/ip/2001:db8::1/x"), both("ip", "2001:db8::1"));
        assert_eq!(found("/c/ip/2001%3Adb8%3a%3A1/x"), both("ip", "2001:db8::1"));
        assert_eq!(found("/c/a%2Fb/%C3%BC/x"), both("a/b", "ü"));
        for odd in ["/c//a/x", "/c/a/%/x", "/c/a/%4/x", "/c/a/%zz/x", "/c/a/%ff/x", "/c/a/x"] {
            assert_eq!(found(odd), None, "{odd}");
        }
    }
}
