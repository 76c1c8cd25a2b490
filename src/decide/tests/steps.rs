//! The order of the steps that the precheck takes.

use http::Request;

use super::{PEER, prechecked};
use crate::decide::Head;
use crate::decide::raw_head::RawHead;
use crate::decide::step::Step;
use crate::load::from_text;

const FILE: &str = r#"
[server]
deny_ips = ["192.0.2.66"]
[clients]
limits_path = "/limits"
on_missing_key = "anonymous"
on_unknown_key = "deny"
[upstreams.api]
servers = ["demo"]
[routes.down]
path = "/down/*"
strip_prefix = "/down"
max_body_bytes = 5
maintenance = true
cors = { origins = ["https://app.test"] }
[routes.up]
path = "/up/*"
strip_prefix = "/up"
max_body_bytes = 5
[routes.moved]
path = "/moved"
redirect = { to = "https://new.example/{client.id}" }
[rules.tenant]
per = ["header:x-tenant"]
rate = "10/s"
[rules.demanding]
per = ["key"]
rate = "10/s"
on_missing = "deny"
"#;

#[test]
fn first_step_that_refuses_a_request_decides_on_its_response() {
    /// Step, address, method, path, headers, and a part of the refusal.
    type Row<'a> = (Step, &'a str, &'a str, &'a str, &'a [(&'a str, &'a str)], &'a str);

    const DENIED: &str = "192.0.2.66";
    const EXPECT: (&str, &str) = ("expect", "x");
    const TWO_KEYS: [(&str, &str); 2] = [("x-api-key", "a"), ("x-api-key", "b")];
    const UNKNOWN: (&str, &str) = ("x-api-key", "guess");
    const LONG: (&str, &str) = ("content-length", "9");
    const TENANTS: [(&str, &str); 2] = [("x-tenant", "a"), ("x-tenant", "b")];
    const PREFLIGHT: [(&str, &str); 2] =
        [("origin", "https://other.test"), ("access-control-request-method", "GET")];
    let [one, two] = TWO_KEYS;
    let [here, there] = TENANTS;
    let [other, asks] = PREFLIGHT;
    let own = PEER.to_string();
    // Each request has the fault of its step, and those of as many later ones as it can have.
    let table: [Row<'_>; 13] = [
        (Step::Head, DENIED, "POST", "/limits", &[EXPECT, one, two], "Malformed("),
        (Step::Credential, DENIED, "POST", "/limits", &[one, two], "Identity("),
        (Step::IpAccess, DENIED, "POST", "/limits", &[UNKNOWN], "IpDenied("),
        (Step::OwnLimits, &own, "POST", "/limits", &[UNKNOWN], "OwnLimitsMethod"),
        (Step::Route, &own, "GET", "/none", &[LONG, UNKNOWN, here, there], "NoRoute"),
        (
            Step::Preflight,
            &own,
            "OPTIONS",
            "/%64own/a",
            &[other, asks, LONG, UNKNOWN, here, there],
            "Preflight(Origin)",
        ),
        (Step::Maintenance, &own, "GET", "/%64own/a", &[LONG, UNKNOWN, here, there], "Maintenance"),
        (Step::Rewrite, &own, "GET", "/%75p/a", &[LONG, UNKNOWN, here, there], "Unrewritable"),
        (Step::BodyLength, &own, "GET", "/up/a", &[LONG, UNKNOWN, here, there], "BodyTooLarge"),
        (Step::Key, &own, "GET", "/up/a", &[UNKNOWN, here, there], "KeyUnknown"),
        (Step::Headers, &own, "GET", "/moved", &[here, there], "Header("),
        (Step::RequiredKey, &own, "GET", "/moved", &[], "KeyRequired("),
        (Step::Location, &own, "GET", "/moved", &[], "NoLocation("),
    ];
    let policy = from_text("gateway.toml", FILE).unwrap();
    let lenient = FILE.replace("on_missing = \"deny\"", "on_missing = \"skip\"");
    let lenient = from_text("gateway.toml", &lenient).unwrap();
    for (step, peer, method, path, headers, expected) in table {
        let request = Request::builder().method(method).uri(path).header("host", "api.test");
        let request =
            headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let parts = request.body(()).unwrap().into_parts().0;
        let policy = if step == Step::Location { &lenient } else { &policy };
        let peer = Some(peer.parse().unwrap());
        let head = Head::of(&parts, path.as_bytes(), peer, RawHead::Plain);
        let refusal = format!("{:?}", prechecked(policy, &head).refused());
        assert!(refusal.contains(expected), "{step:?}: {refusal}");
    }
    // One row for each step of the precheck, in the order of the list.
    let taken = Step::ALL.iter().filter(|step| (Step::Head..=Step::Location).contains(step));
    assert!(taken.eq(table.iter().map(|(step, ..)| step)));
    assert!(Step::ALL.is_sorted());
}
