//! Automatic certificates while something fails: the server, Redis, the storage, the clock, the
//! gateway.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::time::Duration;

use super::{Acme, DAY, orders, presented, shared, wait_for_log, wait_for_order};
use crate::support::{
    Authority, FaultProxy, Gateway, Mode, Nginx, Pebble, PebbleOptions, Redis, Request, WallClock,
    eventually, free_port, replace_file, timed_below, within,
};

/// A server between the gateway and Pebble that refuses new orders.
struct Front {
    nginx: Nginx,
    authority: Authority,
}

impl Front {
    /// `refusal`: what nginx does with a new order.
    fn start(pebble: &Pebble, refusal: &str) -> Self {
        let authority = Authority::new();
        let issued = authority.issue("front", &["localhost", "127.0.0.1"]);
        let (certificate, key, server) = (issued.certificate, issued.key, pebble.address());
        let nginx = Nginx::listening("ssl", |folder| {
            format!(
                "ssl_certificate {certificate}; ssl_certificate_key {key};\n\
                 access_log {folder}/files/requests.log;\n\
                 location = /order-plz {{ {refusal} }}\n\
                 location / {{ proxy_pass https://{server}; proxy_set_header Host $http_host; }}"
            )
        });
        Self { nginx, authority }
    }

    fn settings(&self) -> String {
        let (port, ca) = (self.nginx.address.port(), self.authority.ca());
        format!("\n[acme]\ndirectory = \"https://localhost:{port}/dir\"\nca = {ca:?}\n")
    }

    /// Asserts the number of new orders that arrived. nginx logs them just after its response.
    #[track_caller]
    fn expect_new_orders(&self, expected: usize) {
        let arrived = || {
            let log = std::fs::read_to_string(self.nginx.file("requests.log")).unwrap();
            log.matches("POST /order-plz").count()
        };
        eventually("the new orders", || (arrived() >= expected).then_some(()));
        assert_eq!(arrived(), expected);
    }
}

/// A server that accepts connections and says nothing: an order at it takes half a minute to fail.
struct Silent {
    socket: TcpListener,
    ca: Authority,
}

impl Silent {
    fn start() -> Self {
        Self { socket: TcpListener::bind("127.0.0.1:0").unwrap(), ca: Authority::new() }
    }

    fn settings(&self) -> String {
        let (port, ca) = (self.socket.local_addr().unwrap().port(), self.ca.ca());
        format!("\n[acme]\ndirectory = \"https://127.0.0.1:{port}/dir\"\nca = {ca:?}\n")
    }

    /// Waits for a connection, which stays open.
    #[track_caller]
    fn wait_for_connection(&self) -> std::net::TcpStream {
        self.socket.set_nonblocking(true).unwrap();
        eventually("a connection", || self.socket.accept().ok()).0
    }

    #[track_caller]
    fn expect_no_connection(&self) {
        self.socket.set_nonblocking(true).unwrap();
        let accepted = self.socket.accept().map_err(|error| error.kind());
        assert_eq!(accepted.err(), Some(ErrorKind::WouldBlock));
    }
}

/// A configuration for the `[acme]` settings of another server.
fn config(acme: &Acme, server: &str, settings: &str) -> String {
    let folder = acme.folder.path().display();
    let settings = format!("storage = \"{folder}\"\ndomains = [\"api.example.com\"]\n{settings}");
    acme.config_for(server, &settings)
}

fn stored_orders(acme: &Acme) -> serde_json::Value {
    eventually("the state of orders", || {
        let json = std::fs::read(acme.stored("api.example.com.orders.json")).ok()?;
        serde_json::from_slice(&json).ok()
    })
}

/// Replaces the file and reloads.
#[track_caller]
fn reload(gateway: &Gateway, config: &str) {
    replace_file(gateway.file(), config);
    let answer = gateway.reload();
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn row_92_rate_limited_order_waits_as_long_as_the_server_says() {
    let acme = Acme::new();
    let pebble = acme.pebble();
    let front = Front::start(
        &pebble,
        "default_type application/problem+json; add_header Retry-After 7200 always; \
         return 429 '{\"type\":\"urn:ietf:params:acme:error:rateLimited\",\
         \"detail\":\"too many certificates\"}';",
    );
    let gateway = Gateway::start_full(&config(&acme, &front.settings(), ""));
    wait_for_order(&gateway, "rate_limited");
    wait_for_log(&gateway, "no certificate: the server refused: too many certificates");
    let stored = stored_orders(&acme);
    let wait = stored["retry_at"].as_u64().unwrap() - stored["last"].as_u64().unwrap();
    assert_eq!(wait, 7_200, "{stored}");
    front.expect_new_orders(1);
    // The server's wait outlives a restart.
    drop(gateway);
    let gateway = Gateway::start_full(&config(&acme, &front.settings(), ""));
    wait_for_log(&gateway, "no certificate yet; the next order is at 20");
    front.expect_new_orders(1);
}

/// A server can refuse nonces that it has issued: after its restart, or as one of several servers.
/// Pebble refuses each twentieth.
#[test]
fn row_92_order_whose_nonces_are_refused_is_begun_three_times() {
    let acme = Acme::new();
    let pebble = acme.pebble();
    let front = Front::start(
        &pebble,
        "default_type application/problem+json; \
         return 400 '{\"type\":\"urn:ietf:params:acme:error:badNonce\",\"detail\":\"old\"}';",
    );
    let gateway = Gateway::start_full(&config(&acme, &front.settings(), ""));
    wait_for_order(&gateway, "refused");
    wait_for_log(&gateway, "no certificate: the server refused: old");
    // The library repeats each request twice.
    front.expect_new_orders(9);
    assert_eq!(stored_orders(&acme)["failures"], 1);
}

#[test]
fn row_92_failing_server_gets_one_order_a_minute_at_most() {
    let acme = Acme::new();
    let pebble = acme.pebble();
    let front = Front::start(&pebble, "return 500 '<h1>oops</h1>';");
    let gateway = Gateway::start_full(&config(&acme, &front.settings(), ""));
    wait_for_order(&gateway, "refused");
    wait_for_log(&gateway, "no certificate: the server refused: HTTP 500: <h1>oops</h1>");
    assert_eq!(stored_orders(&acme)["failures"], 1);
    front.expect_new_orders(1);
    // A reload does not shorten the wait.
    reload(&gateway, &config(&acme, &front.settings(), "email = \"ops@example.com\"\n"));
    wait_for_log(&gateway, "no certificate yet; the next order is at 20");
    front.expect_new_orders(1);
}

#[test]
fn row_93_gateway_that_is_killed_while_it_orders_does_not_order_at_each_start() {
    let acme = Acme::new();
    let silent = Silent::start();
    let config = config(&acme, &silent.settings(), "");
    let gateway = Gateway::start_full(&config);
    let _open = silent.wait_for_connection();
    // SIGKILL.
    drop(gateway);
    let gateway = Gateway::start_full(&config);
    wait_for_log(&gateway, "no certificate yet; the next order is at 20");
    silent.expect_no_connection();
}

#[test]
fn row_93_stopped_gateway_orders_again_at_its_start() {
    let acme = Acme::new();
    let silent = Silent::start();
    let config = config(&acme, &silent.settings(), "");
    let mut gateway = Gateway::start_full(&config);
    let _open = silent.wait_for_connection();
    gateway.terminate();
    gateway.exit();
    let gateway = Gateway::start_full(&config);
    wait_for_log(&gateway, "no certificate yet; ordering one");
    let _open = silent.wait_for_connection();
}

#[test]
fn row_93_order_is_begun_again_after_an_upgrade_in_its_middle() {
    let acme = Acme::new();
    let silent = Silent::start();
    let mut gateway = Gateway::start_full(&config(&acme, &silent.settings(), ""));
    let open = silent.wait_for_connection();
    let answer = gateway.send_admin(&Request::new("POST", "/api/upgrade"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(gateway.exit().0, Some(0));
    drop(open);
    // At once, or a minute after the order that the previous process has abandoned.
    let is_planned = || {
        let log = gateway.log();
        let orders = log.matches("no certificate yet; ordering one").count();
        (orders == 2 || log.contains("no certificate yet; the next order is at 20")).then_some(())
    };
    eventually("the new process to plan an order", is_planned);
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn row_94_order_ends_when_another_gateway_has_taken_the_lock() {
    let acme = Acme::new();
    let (silent, redis) = (Silent::start(), Redis::start());
    let settings = format!(
        "storage = \"redis\"\nstorage_key = \"{}\"\ndomains = [\"api.example.com\"]\n{}",
        "k".repeat(32),
        redis.table()
    );
    let gateway = Gateway::start_full(&acme.config_for(&silent.settings(), &settings));
    let _open = silent.wait_for_connection();
    let locks: Vec<String> = redis.query(&["KEYS", "tollgate:acme:*:lock"]);
    let [lock] = &locks[..] else { panic!("{locks:?}") };
    redis.query::<()>(&["SET", lock, "another", "PX", "600000"]);
    let words = "another gateway has taken the lock of automatic certificates; orders stop";
    // The lock is extended every 20 s.
    let is_logged = || gateway.log().contains(words).then_some(());
    let noticed =
        timed_below(Duration::from_secs(22), || within(Duration::from_secs(45), is_logged));
    assert!(noticed.is_some(), "{}", gateway.log());
    assert_eq!(redis.query::<String>(&["GET", lock]), "another", "it is not released");
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(gateway.log().matches(words).count(), 1);
}

#[test]
fn row_94_certificate_that_is_issued_while_redis_is_down_is_stored_later() {
    // On a busy machine, the outage may begin after the certificate is stored: then once more.
    let was_down = (0..5).any(|_| is_stored_after_an_outage());
    assert!(was_down, "every certificate was stored before the outage");
}

/// Asserts that a certificate that is issued while Redis is down is stored later. `false`: it was
/// stored before, as Redis shows.
fn is_stored_after_an_outage() -> bool {
    let (first, second) = (Acme::new(), Acme::new());
    let redis = Redis::start();
    let (proxy, table) = (FaultProxy::start(&redis), redis.table());
    let ports = [free_port(), free_port()];
    let pebble = first.pebble();
    let config = shared(&first, &pebble, &proxy.table("1s"), ('k', ports[0]));
    let ordering = Gateway::start_full(&config);
    let has = |name: &str| {
        let keys: Vec<String> = redis.query(&["KEYS", &format!("tollgate:acme:*:{name}")]);
        !keys.is_empty()
    };
    eventually("a published challenge", || has("challenges").then_some(()));
    proxy.set(Mode::Refuse);
    wait_for_order(&ordering, "ok");
    let root = pebble.root();
    assert!(presented(ports[0], "api.example.com", &root).is_some(), "in force at once");
    // Logged before the order is counted.
    let words = "an issued certificate is not stored: Redis: ";
    let is_stored = eventually("the certificate in Redis, or an error in the log", || {
        let is_logged = ordering.log().contains(words);
        (is_logged || has("certificate:*")).then_some(!is_logged)
    });
    if is_stored {
        return false;
    }
    proxy.set(Mode::Pass);
    wait_for_log(&ordering, "the issued certificate is stored now");
    let following = Gateway::start_full(&shared(&second, &pebble, &table, ('k', ports[1])));
    assert!(presented(ports[1], "api.example.com", &root).is_some());
    assert!(!following.log().contains("ordering one"), "{}", following.log());
    assert_eq!(orders(&ordering, "ok"), 1);
    true
}

#[test]
fn row_95_file_that_cannot_be_read_does_not_delay_other_domains() {
    let acme = Acme::new();
    let pebble = acme.pebble();
    let folder = acme.folder.path().display();
    let settings = |domains: &str| {
        let settings = format!("storage = \"{folder}\"\ndomains = [{domains}]\n");
        acme.config_with(&pebble, &settings)
    };
    let gateway = Gateway::start_full(&settings("\"b.example.com\""));
    wait_for_log(&gateway, "certificate issued");
    drop(gateway);
    std::fs::create_dir(acme.stored("a.example.com.pem")).unwrap();
    let gateway =
        Gateway::start_full(&settings("\"a.example.com\", \"b.example.com\", \"c.example.com\""));
    wait_for_order(&gateway, "ok");
    let shown = eventually("two certificates", || {
        let shown = gateway.admin("/api/certificates").json();
        let names = shown["certificates"].as_array()?.iter();
        let names: Vec<_> = names.filter_map(|one| one["names"][0].as_str()).collect();
        (names == ["b.example.com", "c.example.com"]).then(|| shown.to_string())
    });
    assert!(shown.contains("a.example.com.pem: it is no regular file"), "{shown}");
    // The files can be used again without a restart.
    std::fs::remove_dir(acme.stored("a.example.com.pem")).unwrap();
    eventually("two orders", || (orders(&gateway, "ok") == 2).then_some(()));
    let words = "the storage of automatic certificates cannot be used: ";
    assert_eq!(gateway.log().matches(words).count(), 1, "{}", gateway.log());
}

#[test]
fn row_95_nothing_is_ordered_that_cannot_be_stored() {
    let acme = Acme::new();
    let silent = Silent::start();
    // The folder of the directory is a file.
    let port = silent.socket.local_addr().unwrap().port();
    std::fs::write(acme.folder.path().join(format!("127.0.0.1-{port}-dir")), "").unwrap();
    let gateway = Gateway::start_full(&config(&acme, &silent.settings(), ""));
    wait_for_log(&gateway, "the storage of automatic certificates cannot be used: ");
    silent.expect_no_connection();
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn row_96_reload_adds_and_removes_domains_and_changes_the_server() {
    let acme = Acme::new();
    let pebble = acme.pebble();
    let tls_port = free_port();
    let config = |pebble: &Pebble, domains: &str| {
        let folder = acme.folder.path().display();
        let settings = format!(
            "storage = \"{folder}\"\ndomains = [{domains}]\n\n[[listeners]]\naddress = \
             \"127.0.0.1:{tls_port}\"\ncertificates = [\"acme\"]\n"
        );
        acme.config_with(pebble, &settings)
    };
    let of = |name: &str, root: &str| presented(tls_port, name, root);
    let gateway = Gateway::start_full(&config(&pebble, "\"a.example.com\""));
    wait_for_log(&gateway, "certificate issued");
    let root = pebble.root();
    let first = of("a.example.com", &root);
    assert!(first.is_some());
    reload(&gateway, &config(&pebble, "\"a.example.com\", \"b.example.com\""));
    eventually("the added domain", || of("b.example.com", &root));
    assert_eq!(of("a.example.com", &root), first, "not ordered again");
    reload(&gateway, &config(&pebble, "\"b.example.com\""));
    eventually("no certificate for the removed domain", || {
        of("a.example.com", &root).is_none().then_some(())
    });
    assert_eq!(orders(&gateway, "ok"), 2);
    // Another server: its certificate replaces that of the first, which is presented until then.
    let production = acme.pebble();
    reload(&gateway, &config(&production, "\"b.example.com\""));
    let root_of_other = production.root();
    eventually("a certificate of the other server", || {
        let presented = of("b.example.com", &root_of_other);
        assert!(
            presented.is_some()
                || of("b.example.com", &root).is_some()
                || of("b.example.com", &root_of_other).is_some()
        );
        presented
    });
    // Counted just after the certificate is in force.
    eventually("the third order", || (orders(&gateway, "ok") == 3).then_some(()));
}

#[test]
fn row_97_clock_that_is_wrong_does_not_order_again_and_again() {
    let acme = Acme::new();
    let options =
        PebbleOptions { http_port: acme.port, validity: 90 * 86_400, ..PebbleOptions::default() };
    let pebble = Pebble::start(options);
    let clock = WallClock::new();
    clock.set(400 * DAY);
    let gateway = Gateway::start_with(&acme.config(&pebble), |command| clock.apply_to(command));
    wait_for_log(&gateway, "the issued certificate must be renewed already: is the clock right?");
    assert_eq!(orders(&gateway, "ok"), 1);
    let stored = eventually("the failure", || {
        let stored = stored_orders(&acme);
        (stored["failures"] == 1).then_some(stored)
    });
    assert!(stored["error"].as_str().unwrap().contains("is the clock right?"), "{stored}");
    // It is shown just after it is logged.
    let shown = eventually("the failure on the admin port", || {
        let shown = gateway.admin("/api/certificates").json();
        shown["certificates"][0]["error"]["message"].as_str().map(str::to_owned)
    });
    assert!(shown.contains("is the clock right?; the next order is at 20"), "{shown}");
}
