//! Tokens of the admin port with names, roles, tenants and times.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate::base::clock;

use crate::support::{DEMO, Gateway, Request, Response, check, digest, eventually, key, tollgate};

fn token(name: &str, settings: &str) -> String {
    let digest = digest(format!("secret-of-{name}"));
    format!("[[admin.tokens]]\nname = \"{name}\"\nsha256 = \"{digest}\"\n{settings}\n")
}

fn config() -> String {
    let yesterday = jiff::Timestamp::from_microsecond(clock::unix_us().cast_signed()).unwrap()
        - jiff::Span::new().hours(24);
    let tokens = [
        token("reader", ""),
        token("operator", "roles = [\"operate\"]"),
        token("keeper", "roles = [\"keys\"]"),
        token("customer", "roles = [\"read\", \"keys\"]\ntenant = \"acme\""),
        token("old", &format!("expires = {yesterday}")),
        token("new", "not_before = 2999-01-01T00:00:00Z"),
    ];
    let clients = key("a", "a", "free") + "tenant = \"acme\"\n" + &key("b", "b", "free");
    format!(
        "{DEMO}[rules.each]\nper = [\"key\"]\nrate = \"5/d\"\n\
         [rules.all]\nper = []\nrate = \"900/d\"\n\
         [rules.total]\nper = [\"tenant\"]\nrate = \"9/d\"\n{clients}{}",
        tokens.concat()
    )
}

fn call(gateway: &Gateway, token: &str, method: &str, path: &str) -> Response {
    let bearer = format!("Bearer secret-of-{token}");
    gateway.send_admin(&Request::new(method, path).header("Authorization", bearer))
}

#[test]
fn roles_decide_what_a_token_may_do() {
    let gateway = Gateway::start(&config());
    let status = |token: &str, method: &str, path: &str| call(&gateway, token, method, path).status;
    let reads = ["/api/status", "/api/policy", "/api/upstreams", "/api/clients"];
    let writes = ["/api/clients/key/a/reset", "/api/reload"];
    for path in reads {
        for (token, expected) in
            [("reader", 200), ("operator", 200), ("keeper", 403), ("customer", 403)]
        {
            assert_eq!(status(token, "GET", path), expected, "{token} {path}");
        }
    }
    for path in writes {
        for (token, expected) in
            [("reader", 403), ("operator", 200), ("keeper", 403), ("customer", 403)]
        {
            assert_eq!(status(token, "POST", path), expected, "{token} {path}");
        }
    }
    // A tenant's token sees the tenant and its clients.
    assert_eq!(status("customer", "GET", "/api/clients/tenant/acme/buckets"), 200);
    assert_eq!(status("customer", "GET", "/api/clients/key/a/buckets"), 200);
    assert_eq!(status("customer", "GET", "/api/clients/key/b/buckets"), 403);
    assert_eq!(status("customer", "GET", "/api/clients/tenant/globex/buckets"), 403);
    assert_eq!(status("customer", "GET", "/api/clients/ip/127.0.0.1/buckets"), 403);
    assert_eq!(status("customer", "GET", "/api/events"), 403);
    // Parameters select no bucket of another client, and rules of several tenants are not shown.
    let path = "/api/clients/tenant/acme/buckets?ip=127.0.0.1";
    assert_eq!(status("customer", "GET", path), 403);
    let path = "/api/clients/key/a/buckets";
    let rules =
        |token: &str| call(&gateway, token, "GET", path).json()["rules"].as_array().unwrap().len();
    assert_eq!((rules("reader"), rules("customer")), (3, 2));
    let refused = call(&gateway, "reader", "POST", "/api/reload");
    assert!(refused.text().contains("the token `reader` does not have the role `operate`"));
    for token in ["old", "new", "nobody"] {
        let refused = call(&gateway, token, "GET", "/api/status");
        assert_eq!(refused.status, 401, "{token}");
        assert!(refused.header("www-authenticate").is_some());
    }
    let expired = call(&gateway, "old", "GET", "/api/status").text();
    assert!(expired.contains("its token has expired"), "{expired}");
    let loopback = gateway.admin("/api/status");
    assert_eq!(loopback.status, 401, "with tokens, loopback needs one");
    assert_eq!(gateway.admin("/metrics").status, 200);
}

#[test]
fn log_names_the_token_of_a_change_and_never_has_a_token() {
    let gateway = Gateway::start(&config());
    assert_eq!(call(&gateway, "operator", "POST", "/api/clients/key/a/reset").status, 200);
    let log = gateway.log();
    let line = log.lines().find(|line| line.contains("POST /api/clients/{kind}/{id}/reset"));
    assert!(line.is_some_and(|line| line.contains("by=\"operator\"")), "{log}");
    assert!(!log.contains("secret-of-"), "{log}");
}

#[test]
fn stream_of_events_ends_when_its_token_expires() {
    let soon = jiff::Timestamp::from_microsecond(clock::unix_us().cast_signed()).unwrap()
        + jiff::Span::new().seconds(8);
    let limited = token("brief", &format!("expires = {soon}"));
    let gateway = Gateway::start(&format!("{DEMO}{limited}"));
    let mut stream = TcpStream::connect(gateway.admin).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = "GET /api/events HTTP/1.1\r\nHost: localhost\r\n\
                Authorization: Bearer secret-of-brief\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut content = String::new();
    stream.read_to_string(&mut content).unwrap();
    assert!(content.starts_with("HTTP/1.1 200"), "{content}");
    assert!(content.contains("event: history"), "{content}");
    assert!(clock::unix_us() >= u64::try_from(soon.as_microsecond()).unwrap());
}

#[test]
fn command_makes_a_token_that_the_gateway_accepts() {
    let made = tollgate(&["hash-key", "--admin", "billing"], "");
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let secret = made.stderr.lines().last().unwrap().to_owned();
    let gateway = Gateway::start(&format!("{DEMO}{}", made.stdout));
    let request = Request::get("/api/status").header("Authorization", format!("Bearer {secret}"));
    assert_eq!(gateway.send_admin(&request).status, 200, "{}", made.stdout);
    let wrong = tollgate(&["hash-key", "--admin", "a b"], "");
    assert_eq!(wrong.code, Some(64));
    assert!(wrong.stderr.contains("1 to 64 letters"), "{}", wrong.stderr);
}

/// A gateway with a key store, and with tokens for two tenants.
fn with_keys() -> (TempDir, Gateway) {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("[key_store]\nurl = \"file:{}\"\n", folder.path().join("k").display());
    let plans = "[plans.pro]\n[tenants.acme]\nplan = \"free\"\n[tenants.globex]\n";
    let other = token("other", "roles = [\"keys\"]\ntenant = \"globex\"");
    let gateway = Gateway::start(&format!("{}{plans}{other}{store}", config()));
    (folder, gateway)
}

fn call_about_keys(
    gateway: &Gateway,
    token: &str,
    method: &str,
    path: &str,
    body: &Value,
) -> Response {
    let bearer = format!("Bearer secret-of-{token}");
    let request = Request::new(method, &format!("/api/keys{path}"));
    let request = request.header("Authorization", bearer);
    let request = if body.is_null() { request } else { request.body(body.to_string()) };
    gateway.send_admin(&request)
}

/// A token with the role `keys` sees who has changed keys, and nothing else.
#[test]
fn audit_of_keys_is_for_the_role_keys_and_has_a_filter_by_token() {
    let (_folder, gateway) = with_keys();
    let made = call_about_keys(&gateway, "keeper", "POST", "", &json!({"id": "n", "plan": "pro"}));
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(call(&gateway, "operator", "POST", "/api/clients/key/a/reset").status, 200);
    for _ in 0..9 {
        gateway.send(&Request::get("/").header("X-Api-Key", "a"));
    }
    let callers = |token: &str, query: &str| {
        let found = call(&gateway, token, "GET", &format!("/api/audit{query}"));
        assert_eq!(found.status, 200, "{}", found.text());
        let found = found.json();
        let changes = found["changes"].as_array().unwrap();
        let by: Vec<String> =
            changes.iter().map(|change| change["by"].as_str().unwrap().to_owned()).collect();
        (by, found["refusal_runs"].as_array().unwrap().len())
    };
    let all = (vec!["operator".to_owned(), "keeper".to_owned()], 1);
    assert_eq!(callers("reader", ""), all);
    assert_eq!(callers("reader", "?by=operator"), (vec!["operator".to_owned()], 0));
    for query in ["", "?kind=limit,change", "?key=n"] {
        assert_eq!(callers("keeper", query), (vec!["keeper".to_owned()], 0), "{query}");
    }
    assert_eq!(callers("keeper", "?by=operator"), (vec![], 0));
    // The tenant of the client `a`, by both of its roles.
    assert_eq!(callers("customer", ""), (vec!["operator".to_owned()], 1));
    assert_eq!(callers("customer", "?key=n"), (vec![], 0));
}

/// The ids of clients in the refusals and in the changes that a token sees.
fn audited(gateway: &Gateway, token: &str, query: &str) -> (Vec<String>, Vec<String>) {
    let found = call(gateway, token, "GET", &format!("/api/audit{query}"));
    assert_eq!(found.status, 200, "{}", found.text());
    let found = found.json();
    let all = |list: &str, member: &str| {
        let all = found[list].as_array().unwrap().iter();
        let mut all: Vec<String> = all
            .map(|one| one[member].as_str().or(one[member][0].as_str()).unwrap_or_default())
            .map(str::to_owned)
            .collect();
        all.sort_unstable();
        all
    };
    (all("refusal_runs", "key"), all("changes", "clients"))
}

#[test]
fn audit_has_a_filter_by_tenant_and_a_token_of_a_tenant_sees_no_other() {
    let (_folder, gateway) = with_keys();
    for secret in ["a", "b"] {
        for _ in 0..9 {
            gateway.send(&Request::get("/").header("X-Api-Key", secret));
        }
    }
    for (id, tenant) in [("n", "acme"), ("g", "globex"), ("m", "globex")] {
        let body = json!({"id": id, "plan": "pro", "tenant": tenant});
        assert_eq!(call_about_keys(&gateway, "keeper", "POST", "", &body).status, 201);
    }
    let moved = json!({"tenant": "acme"});
    assert_eq!(call_about_keys(&gateway, "keeper", "PATCH", "/m", &moved).status, 200);
    let of = |runs: &[&str], changes: &[&str]| {
        let owned = |ids: &[&str]| ids.iter().map(|&id| id.to_owned()).collect::<Vec<_>>();
        (owned(runs), owned(changes))
    };
    assert_eq!(audited(&gateway, "reader", ""), of(&["a", "b"], &["g", "m", "m", "n"]));
    assert_eq!(audited(&gateway, "reader", "?tenant=acme"), of(&["a"], &["m", "n"]));
    assert_eq!(audited(&gateway, "reader", "?tenant=globex"), of(&[], &["g", "m", "m"]));
    assert_eq!(audited(&gateway, "reader", "?tenant=none"), of(&[], &[]));
    // A change that names another tenant, too, is not shown.
    for query in ["", "?tenant=acme", "?key=g", "?rule=nothing"] {
        let (runs, changes) = audited(&gateway, "customer", query);
        let is_own = runs.iter().all(|id| id == "a") && changes.iter().all(|id| id == "n");
        assert!(is_own, "{query}: {runs:?} {changes:?}");
    }
    assert_eq!(audited(&gateway, "customer", ""), of(&["a"], &["n"]));
    assert_eq!(audited(&gateway, "other", ""), of(&[], &["g", "m"]));
    // Nor addresses of operators.
    let peer =
        |token| call(&gateway, token, "GET", "/api/audit").json()["changes"][0]["peer"].clone();
    assert!(peer("reader").is_string() && peer("customer").is_null());
    assert_eq!(call(&gateway, "customer", "GET", "/api/audit?tenant=globex").status, 403);
}

#[test]
fn token_of_a_tenant_sees_the_usage_of_its_tenant_only() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("usage.redb");
    let quota = |name: &str, per: &str| {
        format!(
            "[rules.{name}]\nper = [\"{per}\"]\nkind = \"fixed_window\"\nlimit = \"900/year\"\n"
        )
    };
    let other = key("c", "c", "free") + "tenant = \"globex\"\n";
    let rules = quota("of-tenants", "tenant") + &quota("of-keys", "key");
    let gateway = Gateway::start(&format!(
        "{}{rules}{other}[usage]\nfile = \"{}\"\n",
        config(),
        file.display()
    ));
    for secret in ["a", "b", "c"] {
        assert_eq!(gateway.send(&Request::get("/").header("X-Api-Key", secret)).status, 200);
    }
    let clients = |token: &str, query: &str| {
        let found = call(&gateway, token, "GET", &format!("/api/usage{query}"));
        assert_eq!(found.status, 200, "{}", found.text());
        let entries = found.json()["entries"].as_array().unwrap().clone();
        let mut clients: Vec<String> = entries
            .iter()
            .map(|entry| format!("{} {}", entry["client_kind"], entry["client"]))
            .map(|text| text.replace('"', ""))
            .collect();
        clients.sort_unstable();
        clients
    };
    let all = ["key a", "key b", "key c", "tenant acme", "tenant globex"];
    eventually("the usage of all", || (clients("reader", "") == all).then_some(()));
    assert_eq!(clients("reader", "?tenant=globex"), ["tenant globex"]);
    for query in ["", "?tenant=acme", "?period=all"] {
        assert_eq!(clients("customer", query), ["tenant acme"], "{query}");
    }
    for query in ["?tenant=globex", "?key=c", "?key_id=a", "?client=globex", "?ip=127.0.0.1"] {
        let refused = call(&gateway, "customer", "GET", &format!("/api/usage{query}"));
        assert_eq!(refused.status, 403, "{query}");
    }
}

/// The audit calls a client that replaces its own key `client`.
#[test]
fn token_with_the_name_of_another_caller_is_shown_with_another() {
    let text = format!("{DEMO}{}", token("client", "roles = [\"operate\"]"));
    let checked = check(text.as_bytes());
    let words = "`client` is what the audit calls a client that replaces its own key";
    let output = checked.stdout + &checked.stderr;
    assert!(checked.code == Some(0) && output.contains(words), "{output}");
    let gateway = Gateway::start(&format!("{text}{}", key("a", "a", "free")));
    let reset = call(&gateway, "client", "POST", "/api/clients/key/a/reset");
    assert_eq!(reset.status, 200, "{}", reset.text());
    let by = |query: &str| {
        let found = call(&gateway, "client", "GET", &format!("/api/audit{query}")).json();
        let changes = found["changes"].as_array().unwrap();
        changes.iter().map(|change| change["by"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = by("");
    assert!(all.iter().all(|by| by == "token client"), "{all:?}");
    assert_eq!(by("?by=token%20client"), all);
    assert_eq!(by("?by=client"), [""; 0]);
}

#[test]
fn client_that_an_operator_has_disabled_stays_so_for_the_token_of_its_tenant() {
    let (_folder, gateway) = with_keys();
    let call = |token: &str, method: &str, path: &str, body: Value| {
        call_about_keys(&gateway, token, method, path, &body)
    };
    let none = Value::Null;
    assert_eq!(call("customer", "POST", "", json!({"id": "n"})).status, 201);
    // What the tenant has disabled, it enables.
    assert_eq!(call("customer", "POST", "/n/disable", none.clone()).status, 200);
    assert_eq!(call("customer", "POST", "/n/enable", none.clone()).status, 200);
    let disabled = call("keeper", "POST", "/n/disable", none.clone());
    assert_eq!(disabled.json()["locked"], json!(true));
    let refused = [
        ("POST", "/n/enable", none.clone()),
        ("PATCH", "/n", json!({"enabled": true})),
        ("DELETE", "/n", none.clone()),
    ];
    for (method, path, body) in refused {
        assert_eq!(call("customer", method, path, body).status, 403, "{method} {path}");
    }
    assert_eq!(call("customer", "PATCH", "/n", json!({"metadata": {"a": "b"}})).status, 200);
    assert_eq!(call("keeper", "GET", "/n", none.clone()).json()["enabled"], json!(false));
    assert_eq!(call("keeper", "PATCH", "/n", json!({"enabled": true})).status, 200);
    assert_eq!(call("customer", "DELETE", "/n", none).status, 200);
}

#[test]
fn token_of_a_tenant_manages_the_keys_of_its_clients_only() {
    let (_folder, gateway) = with_keys();
    let call = |token: &str, method: &str, path: &str, body: Value| {
        call_about_keys(&gateway, token, method, path, &body)
    };
    let none = Value::Null;
    let made = call("keeper", "POST", "", json!({"id": "g", "plan": "pro", "tenant": "globex"}));
    assert_eq!(made.status, 201, "{made:?}");
    let made = call("customer", "POST", "", json!({"id": "n"}));
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!((&made.json()["tenant"], &made.json()["plan"]), (&"acme".into(), &"free".into()));
    for body in [
        json!({"id": "x", "tenant": "globex"}),
        json!({"id": "x", "plan": "pro"}),
        json!({"id": "x", "tenant": "acme", "plan": "pro"}),
    ] {
        assert_eq!(call("customer", "POST", "", body.clone()).status, 403, "{body}");
    }
    assert_eq!(call("other", "POST", "", json!({"id": "x"})).status, 403, "it has no plan");
    let taken = call("customer", "POST", "", json!({"id": "g"}));
    assert_eq!((taken.status, &taken.json()["detail"]), (409, &"the id `g` is not free".into()));
    // Pages have no client of another tenant, not even as the cursor.
    for (token, body) in [
        ("customer", json!({"id": "h"})),
        ("customer", json!({"id": "p"})),
        ("keeper", json!({"id": "o", "plan": "pro", "tenant": "globex"})),
        ("keeper", json!({"id": "z", "plan": "pro"})),
    ] {
        assert_eq!(call(token, "POST", "", body).status, 201);
    }
    let (mut cursors, mut cursor) = (Vec::new(), json!(""));
    while let Some(after) = cursor.as_str() {
        let path = format!("?limit=1&plan=free&cursor={after}");
        cursor = call("customer", "GET", &path, none.clone()).json()["next"].clone();
        cursors.push(cursor.clone());
    }
    assert_eq!(json!(cursors), json!(["h", "n", "p", null]));
    for id in ["h", "p"] {
        assert_eq!(call("customer", "DELETE", &format!("/{id}"), none.clone()).status, 200);
    }
    let listed = call("customer", "GET", "", none.clone()).json();
    let ids: Vec<_> = listed["keys"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert_eq!((ids, &listed["total"]), (vec![&json!("n")], &none));
    let listed = call("customer", "GET", "?tenant=globex", none.clone()).json();
    assert_eq!(listed["keys"], json!([]));
    for (method, path, body) in [
        ("GET", "/g", none.clone()),
        ("PATCH", "/g", json!({"enabled": false})),
        ("DELETE", "/g", none.clone()),
        ("POST", "/g/rotate", none.clone()),
        ("POST", "/g/disable", none.clone()),
        ("POST", "/g/enable", none.clone()),
    ] {
        assert_eq!(call("customer", method, path, body).status, 404, "{method} {path}");
    }
    for body in [json!({"plan": "pro"}), json!({"tenant": "globex"}), json!({"tenant": null})] {
        assert_eq!(call("customer", "PATCH", "/n", body.clone()).status, 403, "{body}");
    }
    assert_eq!(call("customer", "PATCH", "/n", json!({"enabled": true})).status, 200);
    assert_eq!(call("customer", "POST", "/n/rotate", none.clone()).status, 200);
    assert_eq!(call("customer", "POST", "/import", none.clone()).status, 403);
    assert_eq!(call("operator", "GET", "", none.clone()).status, 403, "another role");
    assert_eq!(call("customer", "DELETE", "/n", none.clone()).status, 200);
    assert_eq!(call("keeper", "GET", "/g", none).status, 200);
}
