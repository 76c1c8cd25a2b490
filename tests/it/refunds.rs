//! Requests that reach no server cost nothing (`refund_on`): in memory, in Redis, in a cluster, and
//! in an outage. No limit refills during a test.

use crate::shared::is_decided_locally;
use crate::support::{
    ClosedPort, CpuWaits, DEMO, Gateway, Redis, RedisCluster, Request, Response, SilentPort,
    eventually, full_config, key,
};

/// A rule of each kind that refuses the sixth request, and what a client has left before the first.
const KINDS: [(&str, &str, u64); 4] = [
    ("token_bucket", "rate = \"5/365d\"", 5),
    ("fixed_window", "limit = \"5/year\"", 5),
    ("sliding_window", "limit = \"5/365d\"", 5),
    ("leaky_bucket", "rate = \"1/365d\"", 1),
];

/// A route to a server that refuses connections, and one whose requests pass.
fn config(closed: &ClosedPort, more: &str) -> String {
    let acme = key("acme", "secret", "free");
    format!(
        "{DEMO}[upstreams.closed]\nservers = [\"{}\"]\n[routes.closed]\npath = \"/closed\"\n\
         upstream = \"closed\"\n{more}{acme}",
        closed.address
    )
}

fn rule(kind: &str, settings: &str) -> String {
    format!("[rules.r]\nper = [\"key\"]\nkind = \"{kind}\"\n{settings}\n")
}

fn send(gateway: &Gateway, path: &str) -> Response {
    gateway.send(&Request::get(path).header("X-Api-Key", "secret"))
}

/// What a client gets that sends requests to the closed port, and others before and after.
#[derive(Debug, PartialEq)]
struct Seen {
    /// Statuses of the others before.
    before: Vec<u16>,
    /// Statuses of those to the closed port, and what the client has left after each.
    closed: Vec<(u16, u64)>,
    /// How many of the others pass after them.
    passed: u64,
    /// Status of another one to the closed port.
    last: u16,
}

/// How many requests a client sends before those to the closed port. They leave the bucket below
/// full, which would hide tokens that are given back twice. One leaky bucket gives nothing back
/// then.
const fn sent_before(limit: u64) -> u64 {
    limit / 2
}

impl Seen {
    fn send(gateways: &[&Gateway], limit: u64) -> Self {
        let gateway = |number: usize| gateways[number % gateways.len()];
        let before = (0..sent_before(limit)).map(|_| send(gateway(0), "/").status).collect();
        let closed = |number| {
            let answer = send(gateway(number), "/closed");
            (answer.status, answer.remaining())
        };
        let closed = (0..12).map(closed).collect();
        let passed = (0..12).filter(|number| send(gateway(*number), "/").status == 200);
        let passed = passed.count() as u64;
        Self { before, closed, passed, last: send(gateways[0], "/closed").status }
    }

    /// Requests to the closed port leave what the client has; then the limit passes, and no more.
    #[track_caller]
    fn assert_refunded(&self, limit: u64, about: &str) {
        let (before, left) = (sent_before(limit), limit - sent_before(limit));
        let expected = Self {
            before: vec![200; usize::try_from(before).unwrap()],
            closed: vec![(502, left); 12],
            passed: left,
            last: 429,
        };
        assert_eq!(*self, expected, "{about}");
    }
}

#[track_caller]
fn assert_refunded(gateways: &[&Gateway], limit: u64, about: &str) {
    Seen::send(gateways, limit).assert_refunded(limit, about);
}

fn refunds(gateway: &Gateway) -> u64 {
    gateway.count("tollgate_refunds_total", &[("rule", "r"), ("reason", "upstream_connect")])
}

fn lost_refunds(gateway: &Gateway) -> u64 {
    gateway.count("tollgate_refunds_lost_total", &[("rule", "r")])
}

/// A route to a server that accepts no connection within two seconds, twice, and a rule that gives
/// tokens back then. That is how long a busy machine has for what a test does meanwhile.
fn silent(silent: &SilentPort, kind: &str, settings: &str) -> String {
    format!(
        "[upstreams.silent]\nservers = [\"{}\"]\nconnect_timeout = \"2s\"\n[routes.silent]\npath = \"/silent\"\n\
         upstream = \"silent\"\n{}",
        silent.address,
        rule(kind, &format!("{settings}\nrefund_on = [\"upstream_connect_timeout\"]"))
    )
}

/// What the client has left.
fn tokens(gateway: &Gateway) -> u64 {
    let view = gateway.admin("/api/clients/key/acme/buckets").json();
    view["rules"][0]["tokens"].as_u64().unwrap()
}

fn post(gateway: &Gateway, path: &str, body: &str) {
    let answer = gateway.send_admin(&Request::new("POST", path).body(body.as_bytes()));
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn request_that_reaches_no_server_costs_nothing_in_memory() {
    let closed = ClosedPort::bind();
    for (kind, settings, limit) in KINDS {
        let gateway = Gateway::start(&config(&closed, &rule(kind, settings)));
        assert_refunded(&[&gateway], limit, kind);
        assert_eq!(refunds(&gateway), 12, "{kind}");
    }
}

#[test]
fn request_that_reaches_no_server_costs_nothing_in_redis() {
    let (closed, redis) = (ClosedPort::bind(), Redis::start());
    for (kind, settings, limit) in KINDS {
        redis.query::<String>(&["FLUSHALL"]);
        let text = config(&closed, &format!("{}{}", redis.table(), rule(kind, settings)));
        let gateways: [Gateway; 2] = std::array::from_fn(|_| Gateway::start(&text));
        for gateway in &gateways {
            gateway.wait_for_redis();
        }
        let waits = CpuWaits::now();
        let seen = Seen::send(&gateways.each_ref(), limit);
        if is_decided_locally(&gateways, &waits) {
            return;
        }
        seen.assert_refunded(limit, kind);
        assert_eq!(refunds(&gateways[0]) + refunds(&gateways[1]), 12, "{kind}");
    }
}

/// The buckets of a request are in several slots of several masters.
#[test]
fn request_that_reaches_no_server_costs_nothing_in_a_cluster() {
    let (closed, redis) = (ClosedPort::bind(), RedisCluster::start(0));
    let more = format!(
        "{}[rules.r]\nper = [\"key\"]\nkind = \"fixed_window\"\nlimit = \"5/year\"\n\
         [rules.route]\nper = [\"key\", \"host\"]\nrate = \"40/365d\"\n\
         [rules.ip]\nper = [\"ip\"]\nkind = \"sliding_window\"\nlimit = \"40/365d\"\n\
         [rules.all]\nper = []\nrate = \"40/365d\"\n",
        redis.table_with("timeout = \"1s\"\nlanes = 0\n")
    );
    let gateway = Gateway::start(&config(&closed, &more));
    eventually("a connection to every master", || {
        let masters = gateway.admin("/api/status").json();
        masters["redis"]["connected"].as_bool().filter(|connected| *connected)
    });
    assert_refunded(&[&gateway], 5, "cluster");
    // Of the others, only the five requests that passed are taken.
    let view = gateway.admin("/api/clients/key/acme/buckets?ip=127.0.0.1&host=localhost").json();
    let tokens = |name: &str| {
        let rules = view["rules"].as_array().unwrap();
        rules.iter().find(|rule| rule["rule"] == name).unwrap()["tokens"].as_i64()
    };
    assert_eq!(tokens("all"), Some(35), "{view}");
}

/// Local decisions of an outage, and their debts.
#[test]
fn request_that_reaches_no_server_costs_nothing_in_an_outage() {
    let (closed, mut redis) = (ClosedPort::bind(), Redis::start());
    for (kind, settings, limit) in KINDS {
        let text = config(&closed, &format!("{}{}", redis.table(), rule(kind, settings)));
        let gateway = Gateway::start(&text);
        gateway.wait_for_redis();
        redis.kill();
        eventually("the breaker to open", || {
            (gateway.count("tollgate_breaker_state", &[]) == 2).then_some(())
        });
        assert_refunded(&[&gateway], limit, kind);
        // Before Redis has counted it as one of two.
        drop(gateway);
        redis.launch();
    }
}

#[test]
fn quota_lists_no_request_that_reached_no_server() {
    let (closed, redis) = (ClosedPort::bind(), Redis::start());
    let folder = tempfile::tempdir().unwrap();
    let file = format!("[usage]\nfile = \"{}\"\n", folder.path().join("usage.redb").display());
    for store in [file, redis.table()] {
        let more = format!("{store}{}", rule("fixed_window", "limit = \"1000/year\""));
        let gateway = Gateway::start(&config(&closed, &more));
        if more.contains("[redis]") {
            gateway.wait_for_redis();
        }
        for number in 0..40 {
            let path = if number % 4 == 0 { "/" } else { "/closed" };
            send(&gateway, path);
        }
        let used = || {
            let answer = gateway.admin("/api/usage?rule=r&key=acme");
            let used = || answer.json()["entries"][0]["used"].as_f64();
            (answer.status == 200 && used() == Some(10.0)).then_some(())
        };
        eventually("the list has the requests that passed", used);
    }
}

#[test]
fn rule_without_refunds_counts_every_request() {
    let closed = ClosedPort::bind();
    let settings = "limit = \"5/year\"\nrefund_on = [\"no_server\"]";
    let gateway = Gateway::start(&config(&closed, &rule("fixed_window", settings)));
    for left in (0..5).rev() {
        let answer = send(&gateway, "/closed");
        assert_eq!((answer.status, answer.remaining()), (502, left));
    }
    assert_eq!(send(&gateway, "/closed").status, 429);
    assert_eq!(gateway.count("tollgate_refunds_total", &[]), 0);
}

/// A request that a server may have seen keeps its charge.
#[test]
fn request_that_reached_a_server_keeps_its_charge() {
    let closing = crate::support::Upstream::start(|_, _| false);
    let text = config(&ClosedPort::bind(), &rule("fixed_window", "limit = \"5/year\""));
    let text = full_config(&text).replace("[\"demo\"]", &format!("[\"{}\"]", closing.address));
    let gateway = Gateway::start_full(&text);
    for left in (0..5).rev() {
        let answer = send(&gateway, "/");
        assert_eq!((answer.status, answer.remaining()), (502, left));
    }
}

/// Two servers refuse connections, so that a request is tried twice. A rule in shadow mode that
/// refused it gave nothing.
#[test]
fn request_that_is_tried_twice_is_given_back_once_to_the_rules_that_counted_it() {
    let (closed, other, redis) = (ClosedPort::bind(), ClosedPort::bind(), Redis::start());
    let shadow = "[rules.shadow]\nper = [\"key\"]\nmode = \"shadow\"\nrate = \"2/365d\"\n";
    for table in [String::new(), redis.table()] {
        let more = format!("{table}{}{shadow}", rule("token_bucket", "rate = \"9/365d\""));
        let addresses = format!("\"{}\", \"{}\"", closed.address, other.address);
        let text = config(&closed, &more).replace(&format!("\"{}\"", closed.address), &addresses);
        let gateway = Gateway::start(&text);
        if !table.is_empty() {
            gateway.wait_for_redis();
        }
        let refused = || {
            let labels = [("rule", "shadow"), ("decision", "shadow_deny")];
            gateway.count("tollgate_decisions_total", &labels)
        };
        assert_eq!(send(&gateway, "/").remaining(), 8);
        let failing = |left: u64| {
            let answer = send(&gateway, "/closed");
            assert_eq!((answer.status, answer.remaining()), (502, left), "{text}");
        };
        (0..4).for_each(|_| failing(8));
        assert_eq!((send(&gateway, "/").remaining(), refused()), (7, 0));
        (0..4).for_each(|_| failing(7));
        assert_eq!(refused(), 4);
        assert_eq!((send(&gateway, "/").remaining(), refused()), (6, 5));
    }
}

/// After a reload, the buckets may be of another limit.
#[test]
fn request_that_a_reload_overtakes_keeps_its_charge() {
    let (silent, closed) = (SilentPort::bind(), ClosedPort::bind());
    let text = |limit: u64| {
        let slow = format!(
            "[upstreams.silent]\nservers = [\"{}\"]\nconnect_timeout = \"2s\"\n\
             [routes.silent]\npath = \"/silent\"\nupstream = \"silent\"\n",
            silent.address
        );
        let settings =
            format!("limit = \"{limit}/year\"\nrefund_on = [\"upstream_connect_timeout\"]");
        config(&closed, &format!("{slow}{}", rule("fixed_window", &settings)))
    };
    let gateway = Gateway::start(&text(5));
    let answer = send(&gateway, "/silent");
    assert_eq!((answer.status, answer.remaining()), (504, 5));
    std::thread::scope(|scope| {
        let late = scope.spawn(|| send(&gateway, "/silent"));
        eventually("the request to be counted", || {
            let view = gateway.admin("/api/clients/key/acme/buckets").json();
            (view["rules"][0]["tokens"] == 4).then_some(())
        });
        gateway.apply(&text(9));
        assert_eq!(late.join().unwrap().status, 504);
    });
    assert_eq!(lost_refunds(&gateway), 1);
    assert_eq!(send(&gateway, "/").remaining(), 7);
}

/// An operator fills the bucket after the request has taken from it: the client gets no more than a
/// full bucket.
#[test]
fn request_that_was_allowed_before_a_reset_gets_nothing_back() {
    let (slow, closed, redis) = (SilentPort::bind(), ClosedPort::bind(), Redis::start());
    for table in [String::new(), redis.table()] {
        for (kind, settings, limit) in &KINDS[..3] {
            redis.query::<String>(&["FLUSHALL"]);
            let more = format!("{table}{}", silent(&slow, kind, settings));
            let gateway = Gateway::start(&config(&closed, &more));
            if !table.is_empty() {
                gateway.wait_for_redis();
            }
            // The first look takes long, since the test reads the description of the API for it:
            // on a busy machine, longer than a request to the silent server.
            assert_eq!(tokens(&gateway), *limit);
            std::thread::scope(|scope| {
                let late = [(); 2].map(|()| scope.spawn(|| send(&gateway, "/silent").status));
                eventually("the requests to be counted", || {
                    (tokens(&gateway) == limit - 2).then_some(())
                });
                post(&gateway, "/api/clients/key/acme/reset", "");
                let passed = (0..8).filter(|_| send(&gateway, "/").status == 200).count() as u64;
                assert_eq!(passed, *limit, "{kind}");
                assert_eq!(late.map(|one| one.join().unwrap()), [504; 2]);
            });
            assert_eq!(send(&gateway, "/").status, 429, "{kind}, {table}");
        }
    }
}

/// A client that an operator has granted more than the limit gets nothing back, and no response
/// says that it does.
#[test]
fn response_reports_only_what_redis_has_given_back() {
    let (closed, redis) = (ClosedPort::bind(), Redis::start());
    let rule = rule("fixed_window", "limit = \"5/year\"");
    let gateway = Gateway::start(&config(&closed, &format!("{}{rule}", redis.table())));
    gateway.wait_for_redis();
    let grant = r#"{"rule": "r", "tokens": 10, "above_limit": true}"#;
    post(&gateway, "/api/clients/key/acme/grant", grant);
    for left in (5..15).rev() {
        assert_eq!((send(&gateway, "/closed").remaining(), tokens(&gateway)), (left, left));
    }
    assert_eq!((refunds(&gateway), lost_refunds(&gateway)), (0, 0));
    assert_eq!((send(&gateway, "/closed").remaining(), tokens(&gateway)), (5, 5));
    assert_eq!(refunds(&gateway), 1);
}

/// Redis does not answer the call that gives tokens back.
#[test]
fn lost_refund_is_counted_and_not_reported() {
    let (slow, closed, redis) = (SilentPort::bind(), ClosedPort::bind(), Redis::start());
    let more = format!("{}{}", redis.table(), silent(&slow, "fixed_window", "limit = \"5/year\""));
    let gateway = Gateway::start(&config(&closed, &more));
    gateway.wait_for_redis();
    let answer = std::thread::scope(|scope| {
        let late = scope.spawn(|| send(&gateway, "/silent"));
        eventually("the request to be counted", || (tokens(&gateway) == 4).then_some(()));
        redis.pause();
        late.join().unwrap()
    });
    redis.resume();
    assert_eq!((answer.status, answer.remaining()), (504, 4));
    assert_eq!((refunds(&gateway), lost_refunds(&gateway)), (0, 1));
}
