//! CORS preflight requests: which of them the gateway answers, and as which route.

use super::{PEER, prechecked, request};
use crate::decide::raw_head::RawHead;
use crate::decide::{Head, Refusal};
use crate::load::from_text;

const ROUTES: &str = r#"
[upstreams.api]
servers = ["demo"]
[routes.read]
path = "/v1/*"
methods = ["GET"]
[routes.write]
path = "/v1/*"
methods = ["POST", "PUT"]
cors = { origins = ["https://b.test"], methods = ["PUT"] }
[routes.exact]
path = "/v1/options"
methods = ["OPTIONS"]
[routes.off]
path = "/off/*"
cors = false
[routes.down]
path = "/down"
maintenance = true
allow_ips = ["0.0.0.0/0"]
[routes.office]
path = "/office"
allow_ips = ["10.0.0.0/8"]
[rules.per-ip]
per = ["ip"]
rate = "10/s"
[rules.per-key]
per = ["key"]
rate = "10/s"
on_missing = "deny"
"#;

/// What is decided about a preflight request: the gateway answers it as this route, refuses it, or
/// treats it as any other request.
fn decided(file: &str, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
    let policy = from_text("gateway.toml", file).unwrap();
    let parts = request(method, path, headers);
    let head = Head::of(&parts, path.as_bytes(), Some(PEER), RawHead::Plain);
    let checked = prechecked(&policy, &head);
    assert!(checked.preflight.is_none() || checked.charges.is_empty());
    let route = checked.route.map(|route| policy.routes[route as usize].name.to_string());
    let route = route.unwrap_or_else(|| "none".to_owned());
    match (checked.preflight.is_some(), checked.refused()) {
        (true, None) => format!("answered as {route}"),
        (true, Some(Refusal::Rejected(rejection))) => format!("{rejection:?} as {route}"),
        (false, refused) => {
            let refused = refused.map_or("allowed".to_owned(), |refusal| format!("{refusal:?}"));
            format!("as usual: {refused} as {route}")
        }
        (true, refused) => panic!("{refused:?}"),
    }
}

#[test]
fn preflight_is_decided_by_the_route_of_the_request_that_it_is_about() {
    let limits = "[clients]\nlimits_path = \"/limits\"\non_missing_key = \"deny\"\n";
    let all = "[cors]\norigins = [\"https://a.test\"]\n";
    let file = format!("{limits}{all}{ROUTES}");
    let (a, b) = ("https://a.test", "https://b.test");
    let table = [
        ("/v1/x", a, "GET", "answered as read"),
        ("/v1/x", a, "HEAD", "answered as read"),
        ("/v1/x", b, "GET", "Preflight(Origin) as read"),
        ("/v1/x", b, "PUT", "answered as write"),
        ("/v1/x", a, "PUT", "Preflight(Origin) as write"),
        ("/v1/x", b, "POST", "Preflight(Method) as write"),
        // No route takes DELETE: the page can read the 404.
        ("/v1/x", a, "DELETE", "answered as none"),
        ("/none", a, "GET", "answered as none"),
        ("/none", b, "GET", "Preflight(Origin) as none"),
        // A route for OPTIONS does not get preflight requests about others.
        ("/v1/options", a, "GET", "answered as read"),
        ("/limits", a, "GET", "answered as none"),
        ("/limits", b, "GET", "Preflight(Origin) as none"),
        ("/off/x", a, "GET", "as usual: Unauthenticated(KeyMissing) as off"),
        ("/down", a, "GET", "answered as down"),
        ("/office", a, "GET", "IpDenied("),
        ("/v1/%2e%2e/x", a, "GET", "Path(DotSegment) as none"),
    ];
    for (path, origin, asked, expected) in table {
        let headers = [("origin", origin), ("access-control-request-method", asked)];
        let found = decided(&file, "OPTIONS", path, &headers);
        assert!(found.starts_with(expected), "{path} {origin} {asked}: {found}");
    }
    let headers = [("origin", a), ("access-control-request-method", "GET")];
    assert!(decided(&file, "GET", "/v1/x", &headers).starts_with("as usual"));
    for headers in [&headers[..1], &headers[1..], &[headers[0], headers[0], headers[1]]] {
        let found = decided(&file, "OPTIONS", "/v1/options", headers);
        assert!(found.starts_with("as usual") && found.ends_with("as exact"), "{found}");
    }
    // Without `[cors]`, only routes with their own settings are answered for.
    let file = format!("{limits}{ROUTES}");
    let headers = |origin| [("origin", origin), ("access-control-request-method", "PUT")];
    assert_eq!(decided(&file, "OPTIONS", "/v1/x", &headers(b)), "answered as write");
    let found = decided(&file, "OPTIONS", "/none", &headers(a));
    assert!(found.starts_with("as usual"), "{found}");
}

/// A page of another site gets no new key, whatever `[cors]` allows.
#[test]
fn preflight_about_a_new_key_is_refused() {
    let headers = [("origin", "https://a.test"), ("access-control-request-method", "POST")];
    let decided = |rotation: &str| {
        let file = format!(
            "[clients]\nlimits_path = \"/limits\"\n[cors]\norigins = [\"*\"]\n{rotation}{ROUTES}"
        );
        decided(&file, "OPTIONS", "/limits", &headers)
    };
    let store = "[key_store]\nurl = 'file:keys.redb'\n";
    assert_eq!(decided(store), "answered as none");
    let on = decided(&format!("{store}self_rotation = true\n"));
    assert_eq!(on, "Preflight(Method) as none");
}

#[test]
fn preflight_needs_no_key_and_takes_no_tokens() {
    let file = format!("[cors]\norigins = [\"https://a.test\"]\n{ROUTES}");
    let headers = [
        ("origin", "https://a.test"),
        ("access-control-request-method", "GET"),
        ("x-api-key", "guess"),
    ];
    for headers in [&headers[..2], &headers[..]] {
        assert_eq!(decided(&file, "OPTIONS", "/v1/x", headers), "answered as read");
    }
}
