//! Which requests a rule counts, and by which bucket.

use crate::support::{DEMO, Gateway, Request, key};

/// With a trusted proxy, a test can use any client address.
const TRUSTED: &str = "trusted_proxies = [\"127.0.0.1\"]\n";

fn from(address: &str) -> Request {
    Request::get("/").header("X-Forwarded-For", address)
}

fn with_key(secret: &str) -> Request {
    Request::get("/").header("X-Api-Key", secret)
}

#[test]
fn plans_and_keys_have_separate_limits() {
    let config = r#"
[plans.pro]

[rules.per-key]
per = ["key"]
rate = "10/d"
plans.pro = { rate = "100/d", burst = 200 }
"#;
    let own = "rules.per-key = { rate = \"7/d\" }\n";
    let keys = key("basic", "b", "free") + &key("paid", "p", "pro") + &key("odd", "o", "pro") + own;
    let gateway = Gateway::start(&format!("{DEMO}{config}{keys}"));
    let limit = |request: &Request| {
        let answer = gateway.send(request);
        answer.header("x-ratelimit-limit").unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(limit(&Request::get("/")), 10);
    assert_eq!(limit(&with_key("b")), 10);
    assert_eq!(limit(&with_key("p")), 200);
    assert_eq!(limit(&with_key("o")), 7);
}

#[test]
fn rule_without_a_rate_for_a_plan_does_not_apply_to_it() {
    let config = "[plans.pro]\n[rules.free]\nper = [\"key\"]\nplans.free = { rate = \"1/d\" }\n";
    let keys = key("paid", "p", "pro");
    let gateway = Gateway::start(&format!("{DEMO}{config}{keys}"));
    assert_eq!([gateway.get("/").status, gateway.get("/").status], [200, 429]);
    for _ in 0..3 {
        let answer = gateway.send(&with_key("p"));
        assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (200, None));
    }
}

#[test]
fn exempt_clients_are_not_limited_but_still_authenticated() {
    let config = r#"
[rules.all]
per = []
rate = "1/d"
exempt = { ips = ["10.0.0.0/8", "2001:db8::/32"], keys = ["monitor"] }
"#;
    let gateway =
        Gateway::start(&format!("{TRUSTED}{DEMO}{config}{}", key("monitor", "m", "free")));
    assert_eq!(gateway.get("/").remaining(), 0);
    for exempt in [from("10.1.2.3"), from("2001:db8::7"), with_key("m"), with_key("m")] {
        let answer = gateway.send(&exempt);
        assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (200, None), "{exempt:?}");
    }
    assert_eq!(gateway.send(&from("10.1.2.3").header("X-Api-Key", "unknown")).status, 401);
    assert_eq!(gateway.get("/").status, 429);
}

#[test]
fn shadow_rule_counts_and_never_denies() {
    let config = r#"
[rules.shadow]
per = []
rate = "2/d"
mode = "shadow"

[rules.enforced]
per = []
rate = "5/d"
"#;
    let gateway = Gateway::start(&format!("{DEMO}{config}"));
    let answers: Vec<_> = (0..7).map(|_| gateway.get("/")).collect();
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429]);
    // The shadow rule takes no tokens from the enforced rule, and no header shows it.
    let left: Vec<u64> = answers.iter().map(crate::support::Response::remaining).collect();
    assert_eq!(left, [4, 3, 2, 1, 0, 0, 0]);
    let is_hidden =
        answers.iter().all(|answer| !format!("{:?}", answer.headers).contains("shadow"));
    assert!(is_hidden, "{answers:#?}");
    let decided = |decision| {
        let labels = [("rule", "shadow"), ("decision", decision), ("source", "local")];
        gateway.count("tollgate_decisions_total", &labels)
    };
    assert_eq!((decided("allow"), decided("shadow_deny"), decided("deny")), (2, 3, 0));
}

#[test]
fn shadow_rule_with_on_missing_deny_never_denies() {
    let config = "[rules.shadow]\nper = [\"key\"]\nrate = \"1/d\"\nmode = \"shadow\"\n\
        on_missing = \"deny\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{config}"));
    assert_eq!(gateway.get("/").status, 200);
    let labels = [("rule", "shadow"), ("decision", "shadow_deny"), ("source", "policy")];
    assert_eq!(gateway.count("tollgate_decisions_total", &labels), 1);
}

#[test]
fn disabled_rule_is_ignored() {
    let config = "[rules.off]\nper = []\nrate = \"1/d\"\nenabled = false\n";
    let gateway = Gateway::start(&format!("{DEMO}{config}"));
    for _ in 0..3 {
        assert_eq!(gateway.get("/").status, 200);
    }
    assert!(!gateway.metrics().contains("rule=\"off\""));
}

#[test]
fn client_without_a_key_is_counted_as_on_missing_says() {
    // (on_missing, statuses of two requests from one address and one from another)
    let table = [
        ("ip", [200, 429, 200]),
        ("skip", [200, 200, 200]),
        ("shared", [200, 429, 429]),
        ("deny", [401, 401, 401]),
    ];
    for (word, expected) in table {
        let rule =
            format!("[rules.keyed]\nper = [\"key\"]\nrate = \"1/d\"\non_missing = \"{word}\"\n");
        let gateway = Gateway::start(&format!("{TRUSTED}{DEMO}{rule}{}", key("one", "1", "free")));
        let requests = [from("192.0.2.1"), from("192.0.2.1"), from("192.0.2.2")];
        let statuses = requests.map(|request| gateway.send(&request).status);
        assert_eq!(statuses, expected, "on_missing = {word}");
        // Clients with a key are counted by it in every case.
        let keyed = [with_key("1"), with_key("1")].map(|request| gateway.send(&request).status);
        assert_eq!(keyed, [200, 429], "on_missing = {word}");
    }
}

#[test]
fn requests_are_counted_by_method_host_header_or_plan() {
    let get = || Request::get("/");
    let named = |host: &str| get().without("Host").header("Host", host);
    // (dimension, two requests that share a bucket, one that does not)
    let table = [
        ("method", [get(), get()], Request::new("POST", "/").body("")),
        ("host", [named("a.test:80"), named("A.TEST.")], named("b.test")),
        (
            "header:x-tenant",
            [get().header("X-Tenant", "a"), get().header("x-tenant", "a")],
            get().header("X-Tenant", "b"),
        ),
        ("header:x-tenant", [get(), get()], get().header("X-Tenant", "")),
        ("plan", [get(), get()], with_key("p")),
    ];
    for (dimension, same, other) in table {
        let rule = format!("[plans.pro]\n[rules.r]\nper = [\"{dimension}\"]\nrate = \"9/d\"\n");
        let gateway = Gateway::start(&format!("{DEMO}{rule}{}", key("paid", "p", "pro")));
        let left = same.map(|request| gateway.send(&request).remaining());
        assert_eq!(left, [8, 7], "{dimension}");
        assert_eq!(gateway.send(&other).remaining(), 8, "{dimension}");
    }
}

#[test]
fn rule_counts_only_its_routes() {
    let config = r#"
[routes.search]
path = "/search"
methods = ["GET"]
upstream = "api"

[rules.search]
per = []
routes = ["search"]
rate = "1/d"
"#;
    let gateway = Gateway::start(&format!("{DEMO}{config}"));
    assert_eq!([gateway.get("/search").status, gateway.get("/search").status], [200, 429]);
    for other in [Request::new("POST", "/search").body("x"), Request::get("/search/more")] {
        assert_eq!(gateway.send(&other).header("x-ratelimit-limit"), None);
    }
}

#[test]
fn row_35_all_spellings_of_an_ipv4_address_are_one_client() {
    let rule = "[rules.per-ip]\nper = [\"ip\"]\nrate = \"9/d\"\n";
    let gateway = Gateway::start(&format!("{TRUSTED}{DEMO}{rule}"));
    let spelt = [
        "192.0.2.1",
        "::ffff:192.0.2.1",
        "::ffff:c000:201",
        "64:ff9b::192.0.2.1",
        "192.0.2.1:4711",
        "[::ffff:192.0.2.1]:4711",
    ];
    let left = spelt.map(|address| gateway.send(&from(address)).remaining());
    assert_eq!(left, [8, 7, 6, 5, 4, 3]);
}

#[test]
fn row_36_ipv6_network_is_one_client() {
    let rule = "[rules.per-ip]\nper = [\"ip\"]\nrate = \"9/d\"\n";
    // (setting, two addresses that are one client, one that is another)
    let table = [
        ("", ["2001:db8:1:2::1", "2001:db8:1:2:ffff::2"], "2001:db8:1:3::1"),
        ("ipv6_prefix = 48", ["2001:db8:1:2::1", "2001:db8:1:3::1"], "2001:db8:2::1"),
        ("ipv6_prefix = 128", ["2001:db8::1", "2001:db8::1"], "2001:db8::2"),
    ];
    for (setting, same, other) in table {
        let gateway = Gateway::start(&format!("{TRUSTED}{DEMO}{rule}[clients]\n{setting}\n"));
        let left = same.map(|address| gateway.send(&from(address)).remaining());
        assert_eq!(left, [8, 7], "{setting}");
        assert_eq!(gateway.send(&from(other)).remaining(), 8, "{setting}");
    }
}

#[test]
fn row_35_ipv4_client_of_a_dual_stack_port_is_its_ipv4_address() {
    let config = format!(
        "[server]\nlisten = [\"[::]:0\", \"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\n\
         {DEMO}[rules.per-ip]\nper = [\"ip\"]\nrate = \"9/d\"\n"
    );
    let gateway = Gateway::start_full(&config);
    let ports: Vec<u16> = gateway
        .log()
        .lines()
        .filter_map(|line| {
            line.split_once("listening on http://")?.1.rsplit(':').next()?.parse().ok()
        })
        .collect();
    assert_eq!(ports.len(), 2);
    let left = |port: u16| {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        crate::support::Connection::open(address).send(&Request::get("/")).remaining()
    };
    assert_eq!([left(ports[0]), left(ports[1])], [8, 7]);
}

/// All spellings of a value are one, and a path that servers may read with different values is
/// refused.
#[test]
fn path_parameter_is_counted_in_any_spelling() {
    let routes = "[routes.tenant]\npath = \"/v1/{tenant}/*\"\n";
    let rule = "[rules.tenants]\nper = [\"param:tenant\"]\nrate = \"2/d\"\nroutes = [\"tenant\"]\n";
    let gateway = Gateway::start(&format!("{DEMO}{routes}{rule}"));
    let statuses = |paths: &[&str]| -> Vec<u16> {
        paths.iter().map(|path| gateway.get(path).status).collect()
    };
    assert_eq!(statuses(&["/v1/acme/a", "/v1/a%63me/b?c", "/v1/%61cme/"]), [200, 200, 429]);
    assert_eq!(statuses(&["/v1/Acme/a", "/v1/globex/a", "/v1/ac%20me/a"]), [200, 200, 200]);
    let odd = ["/v1/acme;1/a", "/v1/acme%2Fx/a", "/v1/acme\\x/a", "/v1/./a", "/v1/x/../acme/a"];
    assert_eq!(statuses(&odd), [400; 5]);
    // Routes that the rule does not count.
    assert_eq!(statuses(&["/other", "/other", "/other"]), [200; 3]);
    let explained = gateway.explain(r#"{ "path": "/v1/acme/x" }"#).json();
    let shared = &explained["rules"][0]["shared_by"];
    assert_eq!(shared[0], "this value of the path parameter tenant", "{explained}");
    let ignoring = format!("path_case = \"insensitive\"\n{DEMO}{routes}{rule}");
    gateway.apply(&ignoring);
    assert_eq!(statuses(&["/V1/ACME/a", "/v1/aCMe/b", "/v1/%41cme/c"]), [429; 3]);
}
