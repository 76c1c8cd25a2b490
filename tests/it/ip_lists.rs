//! `allow_ips` and `deny_ips`: which clients are served, by their address (`docs/ip-lists.md`).

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use serde_json::json;

use crate::support::{
    Connection, Gateway, Nginx, Request, Upstream, curl, eventually, full_config, replace_file,
    tollgate,
};

const DEMO: &str = "[upstreams.api]\nservers = [\"demo\"]\n";

/// Status of a request of the client with this address, according to a trusted proxy.
fn of(gateway: &Gateway, client: &str, target: &str) -> u16 {
    gateway.send(&Request::get(target).header("X-Forwarded-For", client)).status
}

fn denied(gateway: &Gateway) -> u64 {
    gateway.count("tollgate_rejections_total", &[("reason", "ip_denied")])
}

#[test]
fn lists_of_server_and_route_refuse_clients_before_tokens_and_keys() {
    let upstream = Upstream::responding("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let gateway = Gateway::start(&format!(
        "trusted_proxies = [\"127.0.0.1\"]\nallow_ips = [\"192.0.2.0/24\", \"2001:db8::/32\"]\n\
         deny_ips = [\"192.0.2.66\", \"2001:db8:bad::/48\"]\nlimits.max_body_bytes = 5\n\
         [clients]\non_missing_key = \"deny\"\nlimits_path = \"/limits\"\n\
         [upstreams.api]\nservers = [\"{}\"]\n[routes.rest]\npath = \"/*\"\n\
         [routes.open]\npath = \"/open\"\nallow_ips = [\"0.0.0.0/0\"]\ndeny_ips = [\"192.0.2.9\"]\n\
         [rules.all]\nper = []\nrate = \"3/d\"\n[rules.ip]\nper = [\"ip\"]\nrate = \"100/d\"\n",
        upstream.address
    ));
    let table = [
        // Client, then the statuses on /, /open, a path without a route, and /limits.
        ("192.0.2.1", [401, 401]),
        ("192.0.2.66", [403, 403]),
        ("::ffff:192.0.2.66", [403, 403]),
        ("64:ff9b::192.0.2.66", [403, 403]),
        ("[::ffff:192.0.2.66]:4711", [403, 403]),
        ("2001:db8:1::1", [401, 403]),
        ("2001:db8:bad::1", [403, 403]),
        ("192.0.2.9", [401, 403]),
        ("203.0.113.1", [403, 401]),
        ("2001:db9::1", [403, 403]),
    ];
    for (client, expected) in table {
        let statuses = ["/", "/open"].map(|target| of(&gateway, client, target));
        assert_eq!(statuses, expected, "{client}");
    }
    assert_eq!(of(&gateway, "203.0.113.1", "/limits"), 403);
    let refused = denied(&gateway);
    assert_eq!(refused, 16);
    // A body that is too large, an unknown key: the address precedes both. Nothing of the list is
    // shown.
    let request = Request::new("POST", "/").header("X-Forwarded-For", "192.0.2.66");
    let answer = gateway.send(&request.header("X-Api-Key", "unknown").body("larger than 5"));
    let problem = answer.json();
    assert_eq!((answer.status, &problem["title"]), (403, &json!("Forbidden")));
    assert_eq!(problem["detail"], "Requests from this address are not allowed.");
    assert!(!answer.text().contains("192.0.2") && !answer.text().contains("deny_ips"));
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(denied(&gateway), refused + 1);
    assert_eq!(upstream.requests().len(), 0);
}

#[test]
fn refused_client_takes_no_tokens_and_its_connection_stays_open() {
    let route = "[routes.all]\ndeny_ips = [\"127.0.2.0/24\"]\n";
    let gateway = Gateway::start(&format!("{DEMO}{route}[rules.all]\nper = []\nrate = \"2/d\"\n"));
    let mut bad = Connection::open_from(Ipv4Addr::new(127, 0, 2, 7), gateway.address);
    let mut good = Connection::open_from(Ipv4Addr::new(127, 0, 3, 7), gateway.address);
    for _ in 0..5 {
        let answer = bad.send(&Request::new("POST", "/").body("x"));
        assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (403, None));
        // A header of a client that is no trusted proxy changes nothing.
        let forged = Request::get("/").header("X-Forwarded-For", "10.0.0.1");
        assert_eq!(bad.send(&forged).status, 403);
    }
    assert_eq!([(); 3].map(|()| good.send(&Request::get("/")).status), [200, 200, 429]);
}

#[test]
fn clients_over_http2_and_by_a_proxy_header_are_refused_too() {
    let listener =
        |more: &str| format!("[[listeners]]\naddress = \"127.0.0.1:0\"\nhttp2 = true\n{more}\n");
    let gateway = Gateway::start(&format!(
        "trusted_proxies = [\"127.0.0.9\"]\ndeny_ips = [\"127.0.0.2\", \"192.0.2.0/24\"]\n\
         {DEMO}[routes.all]\n{}{}",
        listener(""),
        listener("proxy_protocol = true")
    ));
    let url = format!("http://{}/", gateway.listener(1));
    let by_curl = |interface: &str, protocol: &str| {
        let status = ["--interface", interface, "--output", "/dev/null", "--write-out"];
        curl(&[&status[..], &["%{http_code}", protocol, &url]].concat()).text()
    };
    for protocol in ["--http1.1", "--http2-prior-knowledge"] {
        assert_eq!(by_curl("127.0.0.2", protocol), "403");
        assert_eq!(by_curl("127.0.0.3", protocol), "200");
    }
    for (client, expected) in [("192.0.2.1", 403), ("198.51.100.1", 200)] {
        let proxy = Ipv4Addr::new(127, 0, 0, 9);
        let mut connection = Connection::open_from(proxy, gateway.listener(2));
        connection.write(format!("PROXY TCP4 {client} 127.0.0.1 1 2\r\n").as_bytes());
        assert_eq!(connection.send(&Request::get("/")).status, expected);
    }
    assert_eq!(denied(&gateway), 3);
}

/// 20,000 networks: 10.0.0.0/32, 10.0.0.4/32 and so on, and as many of IPv6.
fn many() -> String {
    (0..10_000_u32).fold(String::new(), |mut text, number| {
        let ip = Ipv4Addr::from_bits(0x0a00_0000 + number * 4);
        let _ = writeln!(text, "{ip}\n2001:db8:{number:x}::/48");
        text
    })
}

#[test]
fn list_in_a_file_is_reloaded_and_a_wrong_one_keeps_the_previous() {
    let folder = tempfile::tempdir().unwrap();
    let (config, list) = (folder.path().join("gateway.toml"), folder.path().join("blocked.txt"));
    let text = format!(
        "trusted_proxies = [\"127.0.0.1\"]\ndeny_ips = [\"file:blocked.txt\"]\n{DEMO}[routes.all]\n"
    );
    std::fs::write(&config, full_config(&text)).unwrap();
    std::fs::write(&list, many()).unwrap();
    let gateway = Gateway::start_on_file(&config);
    for (client, expected) in [
        ("10.0.0.4", 403),
        ("10.0.0.5", 200),
        ("10.0.156.60", 403),
        ("10.0.156.64", 200),
        ("2001:db8:270f:1::", 403),
        ("2001:db8:2710::", 200),
    ] {
        assert_eq!(of(&gateway, client, "/"), expected, "{client}");
    }
    // The connection stays open over the change.
    let mut connection = gateway.connect();
    let mut ask =
        || connection.send(&Request::get("/").header("X-Forwarded-For", "192.0.2.7")).status;
    assert_eq!(ask(), 200);
    replace_file(&list, format!("{}192.0.2.7 # new\n", many()));
    eventually("the list to be in force", || (ask() == 403).then_some(()));
    // The list is in force before the reload is listed.
    let changes = eventually("the reload in the list", || {
        let reload = gateway.admin("/api/reloads").json()["reloads"].get(0).cloned();
        reload.map(|reload| reload["changes"].clone())
    });
    let change = json!([{ "kind": "setting", "name": "server.deny_ips", "what": "file_changed" }]);
    assert_eq!(changes, change);
    // A wrong line, then no file at all.
    replace_file(&list, "192.0.2.8\n192.0.2.300\n");
    eventually("the error in the log", || {
        let error = "blocked.txt:2: `192.0.2.300` is neither an address nor a network";
        gateway.log().contains(error).then_some(())
    });
    assert_eq!((ask(), of(&gateway, "192.0.2.8", "/")), (403, 200));
    std::fs::remove_file(&list).unwrap();
    eventually("the missing file in the log", || {
        gateway.log().contains("blocked.txt: No such file").then_some(())
    });
    assert_eq!(ask(), 403);
    assert_eq!(gateway.reloads("applied"), 1);
    replace_file(&list, "192.0.2.8\n");
    eventually("the next list to be in force", || (ask() == 200).then_some(()));
    assert_eq!(of(&gateway, "192.0.2.8", "/"), 403);
}

#[test]
fn explanation_and_policy_show_the_list() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gateway.toml");
    let text = "deny_ips = [\"192.0.2.7\", \"file:more.txt\"]\n\
                [upstreams.api]\nservers = [\"demo\"]\n[routes.all]\nallow_ips = [\"192.0.2.0/24\"]\n";
    std::fs::write(&config, full_config(text)).unwrap();
    std::fs::write(folder.path().join("more.txt"), "198.51.100.0/24\n203.0.113.0/24\n").unwrap();
    let file = config.display().to_string();
    let explain = |ip: &str| tollgate(&["explain", "-c", &file, "--ip", ip], "").stdout;
    let by_server = explain("192.0.2.7");
    assert!(by_server.contains("refused: in `deny_ips` of [server]"), "{by_server}");
    assert!(by_server.contains("403"), "{by_server}");
    assert!(explain("203.0.113.9").contains("refused: in `deny_ips` of [server]"));
    assert!(explain("10.0.0.1").contains("refused: not in `allow_ips` of the route"));
    assert!(!explain("192.0.2.8").contains("refused"));
    let gateway = Gateway::start_on_file(&config);
    let policy = gateway.admin("/api/policy").json();
    assert_eq!(policy["server"]["ip_access"], json!(["deny_ips: 3 networks (of [server])"]));
    let expected = ["deny_ips: 3 networks (of [server])", "allow_ips: 1 network (of the route)"];
    assert_eq!(policy["routes"][0]["handling"], json!(expected));
    let explained = gateway.explain("{\"ip\": \"10.0.0.1\"}").json();
    let refused = &explained["client"]["address_refused"];
    assert_eq!(refused, "refused: not in `allow_ips` of the route");
    assert_eq!(explained["verdict"]["status"], 403);
}

/// The same lists in nginx, where the denied network precedes the allowed one, give the same
/// statuses.
#[test]
fn nginx_with_the_same_lists_gives_the_same_statuses() {
    let lists = "deny 127.0.1.8/29; allow 127.0.1.0/24; deny all;";
    let nginx = Nginx::limited("", lists);
    let gateway = Gateway::start(&format!(
        "{DEMO}[routes.all]\nallow_ips = [\"127.0.1.0/24\"]\ndeny_ips = [\"127.0.1.8/29\"]\n"
    ));
    for last in [[1, 0], [1, 7], [1, 8], [1, 15], [1, 16], [1, 255], [2, 1], [0, 1]] {
        let source = Ipv4Addr::new(127, 0, last[0], last[1]);
        let statuses = [gateway.address, nginx.address]
            .map(|address| Connection::open_from(source, address).send(&Request::get("/")).status);
        assert_eq!(statuses[0] == 403, statuses[1] == 403, "{source}: {statuses:?}");
        assert_eq!(
            statuses[0],
            if last[0] == 1 && !(8..16).contains(&last[1]) { 200 } else { 403 }
        );
    }
}
