//! Distribution of requests over the servers of an upstream: weights, backups, hashes, cookies.

use std::collections::BTreeSet;

use crate::support::{Gateway, Request, Upstream, full_config, send_many};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Starts a gateway with servers, each with more settings; `text` continues the table of the
/// upstream.
fn gateway(servers: &[(&Upstream, &str)], text: &str) -> Gateway {
    let each = servers
        .iter()
        .map(|(server, more)| format!("{{ address = \"{}\"{more} }}", server.address));
    let servers = each.collect::<Vec<_>>().join(", ");
    Gateway::start_full(&full_config(&format!(
        "[clients]\nanonymous_plan = \"free\"\n[plans.free]\n[upstreams.api]\nservers = [{servers}]\n\
         {text}\n[routes.all]\n"
    )))
}

fn upstreams() -> [Upstream; 3] {
    std::array::from_fn(|_| Upstream::responding(OK))
}

#[test]
fn requests_follow_the_weights_of_servers() {
    let [a, b, c] = upstreams();
    let servers = [(&a, ", weight = 1"), (&b, ", weight = 2"), (&c, ", weight = 5")];
    let gateway = gateway(&servers, "");
    let url = gateway.url("/");
    assert_eq!(send_many(800, |client, _| client.get(&url)).get(&200), Some(&800));
    let counts = [&a, &b, &c].map(|server| server.requests().len());
    for (count, expected) in counts.into_iter().zip([100_usize, 200, 500]) {
        assert!(count.abs_diff(expected) <= 16, "{counts:?}");
    }
}

#[test]
fn backup_gets_requests_only_without_other_servers() {
    let [a, backup, _] = upstreams();
    let gateway = gateway(&[(&a, ""), (&backup, ", backup = true")], "");
    for _ in 0..10 {
        assert_eq!(gateway.send(&Request::get("/")).status, 200);
    }
    assert_eq!((a.requests().len(), backup.requests().len()), (10, 0));
    drop(a);
    for _ in 0..10 {
        assert_eq!(gateway.send(&Request::get("/")).status, 200);
    }
    assert_eq!(backup.requests().len(), 10);
}

#[test]
fn requests_with_the_same_header_go_to_the_same_server() {
    let servers = upstreams();
    let [a, b, c] = &servers;
    let gateway = gateway(&[(a, ""), (b, ""), (c, "")], "balance = \"hash:header:x-tenant\"");
    for _ in 0..3 {
        for tenant in 0..30 {
            let request = Request::get("/").header("X-Tenant", format!("tenant-{tenant}"));
            assert_eq!(gateway.send(&request).status, 200);
        }
    }
    let mut seen = BTreeSet::new();
    for server in &servers {
        let requests = server.requests();
        let tenants: BTreeSet<String> =
            requests.iter().map(|request| request.header("x-tenant").unwrap().to_owned()).collect();
        assert!(!tenants.is_empty());
        assert_eq!(requests.len(), 3 * tenants.len());
        assert!(tenants.into_iter().all(|tenant| seen.insert(tenant)));
    }
    assert_eq!(seen.len(), 30);
}

#[test]
fn cookie_keeps_a_client_on_one_server() {
    let mut servers = upstreams().map(Some);
    let gateway = {
        let [a, b, c] = servers.each_ref().map(|server| server.as_ref().unwrap());
        gateway(&[(a, ""), (b, ""), (c, "")], "sticky = { cookie = \"srv\", ttl = \"1h\" }")
    };
    let first = gateway.send(&Request::get("/"));
    let cookie = first.header("set-cookie").unwrap().to_owned();
    assert!(cookie.ends_with("; Path=/; Max-Age=3600; HttpOnly; SameSite=Lax"), "{cookie}");
    let pair = cookie.split(';').next().unwrap().to_owned();
    let holder = servers
        .iter()
        .position(|server| server.as_ref().is_some_and(|server| !server.requests().is_empty()));
    let holder = holder.unwrap();
    for _ in 0..8 {
        let answer = gateway.send(&Request::get("/").header("Cookie", &pair));
        assert_eq!((answer.status, answer.header("set-cookie")), (200, None));
    }
    assert_eq!(servers[holder].as_ref().unwrap().requests().len(), 9);
    // Without it, the client moves, and gets another cookie.
    servers[holder] = None;
    let answer = gateway.send(&Request::get("/").header("Cookie", &pair));
    assert_eq!(answer.status, 200);
    assert!(answer.header("set-cookie").is_some_and(|new| !new.starts_with(&pair)));
}

/// Browsers ignore the cookies of interim responses.
#[test]
fn final_response_sets_the_cookie() {
    let server = Upstream::responding(format!("HTTP/1.1 103 Early Hints\r\n\r\n{OK}"));
    let gateway = gateway(&[(&server, "")], "sticky = { cookie = \"srv\" }");
    let mut client = gateway.connect();
    let hints = client.send(&Request::get("/"));
    assert_eq!((hints.status, hints.header("set-cookie")), (103, None));
    let answer = client.read_response("GET");
    assert!(answer.header("set-cookie").is_some_and(|cookie| cookie.starts_with("srv=")));
}

#[test]
fn cookie_is_found_beside_one_that_is_not_ascii() {
    let server = Upstream::responding(OK);
    let gateway = gateway(&[(&server, "")], "sticky = { cookie = \"srv\" }");
    let first = gateway.send(&Request::get("/"));
    let pair = first.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    for other in ["name=J\u{f6}rg".as_bytes(), b"name=J\xf6rg"] {
        let cookies = [other, b"; ", pair.as_bytes()].concat();
        let answer = gateway.send(&Request::get("/").header("Cookie", cookies));
        assert_eq!((answer.status, answer.header("set-cookie")), (200, None));
    }
}

#[test]
fn cookies_of_two_upstreams_with_one_name_keep_a_client_on_both() {
    let servers: Vec<Upstream> = (0..8).map(|_| Upstream::responding(OK)).collect();
    let list = |servers: &[Upstream]| {
        let addresses: Vec<String> =
            servers.iter().map(|server| server.address.to_string()).collect();
        format!("servers = {addresses:?}\nsticky = {{ cookie = \"srv\" }}\n")
    };
    let (a, b) = servers.split_at(4);
    let gateway = Gateway::start(&format!(
        "\n[upstreams.a]\n{}\n[upstreams.b]\n{}\n[routes.a]\npath = \"/a\"\nupstream = \"a\"\n\
         [routes.b]\npath = \"/b\"\nupstream = \"b\"\nresponse_headers = {{ remove = [\"Set-Cookie\"] }}\n",
        list(a),
        list(b)
    ));
    let mut cookie = String::new();
    for number in 0..20 {
        for path in ["/a", "/b"] {
            let answer = gateway.send(&Request::get(path).header("Cookie", &cookie));
            let new = answer.header("set-cookie");
            assert_eq!((answer.status, new.is_some()), (200, number == 0), "{path}: {cookie}");
            if let Some(new) = new {
                cookie = new.split(';').next().unwrap().to_owned();
            }
        }
    }
    let counts = |servers: &[Upstream]| {
        let mut counts: Vec<_> = servers.iter().map(|server| server.requests().len()).collect();
        counts.sort_unstable();
        counts
    };
    assert_eq!((counts(a), counts(b)), (vec![0, 0, 0, 20], vec![0, 0, 0, 20]));
    // A cookie of before has one value only.
    let (name, values) = cookie.split_once('=').unwrap();
    for value in values.split('.') {
        let cookies = ["/a", "/b"].map(|path| {
            let request = Request::get(path).header("Cookie", format!("{name}={value}"));
            gateway.send(&request).header("set-cookie").is_some()
        });
        assert_eq!(cookies.iter().filter(|is_new| **is_new).count(), 1);
    }
}

#[test]
fn reload_that_changes_only_the_choice_among_servers_keeps_connections() {
    let server = Upstream::responding(OK);
    let config = |text: &str| {
        let address = server.address;
        let second = "{ address = \"127.0.0.1:1\", backup = true }";
        format!("[upstreams.a]\nservers = [\"{address}\", {second}]\n{text}\n[routes.a]\n")
    };
    let gateway = Gateway::start(&config(""));
    assert_eq!(gateway.get("/").status, 200);
    for text in
        ["balance = \"random_two\"", "sticky = { cookie = \"srv\" }", "slow_start = \"10s\""]
    {
        gateway.apply(&config(text));
        assert_eq!(gateway.get("/").status, 200);
        let connections: Vec<usize> =
            server.requests().iter().map(|request| request.connection).collect();
        assert!(connections.iter().all(|number| *number == 0), "{text}: {connections:?}");
    }
    // Another protocol needs other connections.
    gateway.apply(&config("proxy_protocol = \"v1\""));
    gateway.get("/");
    assert_eq!(server.requests().last().map(|request| request.connection), Some(1));
}
