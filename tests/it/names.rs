//! Names of upstream servers that cannot be looked up: at a reload, at an upgrade, and at the
//! start.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crate::support::{DEMO, Gateway, Names, Request, Upstream, eventually, sleep_for, timed_below};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// How look-ups of a name fail.
const FAILURES: [fn(&Names, &str); 3] = [Names::remove, Names::silence, Names::fail];

/// A file whose upstream has the server `api.test`, with the port of `upstream`.
fn to_api(names: &Names, upstream: &Upstream) -> String {
    let server = format!("api.test:{}", upstream.address.port());
    format!("{}{}", names.setting(), DEMO.replace("demo", &server))
}

/// A gateway with an upstream whose server is `api.test`, which has an address at the start.
fn started(names: &Names) -> (Upstream, Gateway, String) {
    let upstream = Upstream::responding(OK);
    names.set("api.test", LOCALHOST);
    let config = to_api(names, &upstream);
    let gateway = Gateway::start(&config);
    assert_eq!(gateway.get("/").status, 200, "{}", gateway.log());
    (upstream, gateway, config)
}

#[track_caller]
fn serves(gateway: &Gateway) {
    for _ in 0..20 {
        assert_eq!(gateway.get("/").status, 200, "{}", gateway.log());
    }
}

#[test]
fn row_140_reload_while_names_fail_keeps_the_addresses() {
    for fail in FAILURES {
        let names = Names::new();
        let (_upstream, gateway, config) = started(&names);
        fail(&names, "api.test");
        for change in ["balance = \"random_two\"", "sticky = { cookie = \"srv\" }"] {
            let changed = config.replace("]\n\n[routes", &format!("]\n{change}\n\n[routes"));
            gateway.save(&changed);
            let answer = timed_below(Duration::from_secs(3), || gateway.reload());
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(answer.json()["warnings"].as_array().map(Vec::len), Some(0));
            serves(&gateway);
        }
    }
}

#[test]
fn row_140_upgrade_while_names_fail_hands_the_addresses_over() {
    for fail in FAILURES {
        let names = Names::new();
        let (_upstream, mut gateway, _) = started(&names);
        fail(&names, "api.test");
        let answer = gateway.send_admin(&Request::new("POST", "/api/upgrade"));
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(gateway.exit().0, Some(0));
        serves(&gateway);
        assert_eq!(gateway.admin("/ready").text(), "ready\n");
    }
}

#[test]
fn row_140_start_without_an_address_is_named_until_a_look_up_succeeds() {
    let names = Names::new();
    let upstream = Upstream::responding(OK);
    let gateway = Gateway::start(&to_api(&names, &upstream));
    assert_eq!(gateway.get("/").status, 502);
    let ready = gateway.admin("/ready");
    let expected =
        "ready\nupstream `api`: no server has a known address, so requests to it get 502\n";
    assert_eq!((ready.status, ready.text().as_str()), (200, expected));
    for request in
        [Request::new("POST", "/api/reload"), Request::new("POST", "/api/reload?dry_run=true")]
    {
        let answer = gateway.send_admin(&request).json();
        let message = answer["warnings"][0]["message"].as_str().unwrap_or_default();
        let expected = format!(
            "`api.test:{}` of the upstream `api` has no known address",
            upstream.address.port()
        );
        assert_eq!(message, expected, "{answer}");
    }
    names.set("api.test", LOCALHOST);
    eventually("an address", || (gateway.get("/").status == 200).then_some(()));
    assert_eq!(gateway.admin("/ready").text(), "ready\n");
}

#[test]
fn row_141_silent_names_delay_no_later_change() {
    let names = Names::new();
    let (_upstream, gateway, config) = started(&names);
    let servers = (0..48).map(|number| {
        let name = format!("silent{number}.test");
        names.silence(&name);
        format!("{name}:80")
    });
    let servers: Vec<String> = servers.collect();
    let silent = format!("{config}\n[upstreams.silent]\nservers = {servers:?}\n");
    gateway.save(&silent);
    let denied = silent.replace("[routes.all]\n", "[routes.all]\ndeny_ips = [\"127.0.0.1\"]\n");
    std::thread::scope(|scope| {
        scope.spawn(|| gateway.reload());
        // Until it waits for the names.
        sleep_for(Duration::from_millis(500));
        gateway.save(&denied);
        timed_below(Duration::from_secs(6), || {
            eventually("the second reload", || (gateway.get("/").status == 403).then_some(()));
        });
    });
}
