//! Automatic certificates, from Pebble, the ACME server that Let's Encrypt tests clients with.

mod faults;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::support::{
    DEMO, Gateway, Pebble, PebbleOptions, Redis, WallClock, curl, eventually, free_port,
};

const DAY: i64 = 86_400;

/// A gateway that orders certificates, and its storage.
struct Acme {
    folder: TempDir,
    port: u16,
}

impl Acme {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), port: free_port() }
    }

    /// A Pebble that checks HTTP-01 challenges at this gateway.
    fn pebble(&self) -> Pebble {
        Pebble::start(PebbleOptions { http_port: self.port, ..PebbleOptions::default() })
    }

    /// The configuration of a gateway with one domain, whose challenges this server checks by
    /// HTTP-01.
    fn config(&self, pebble: &Pebble) -> String {
        let folder = self.folder.path().display();
        let acme = format!("storage = \"{folder}\"\ndomains = [\"api.example.com\"]\n");
        self.config_with(pebble, &acme)
    }

    fn config_with(&self, pebble: &Pebble, acme: &str) -> String {
        self.config_for(&pebble.settings(), acme)
    }

    /// `server` has the settings of the ACME server.
    fn config_for(&self, server: &str, acme: &str) -> String {
        let port = self.port;
        let listen =
            format!("[server]\nlisten = [\"127.0.0.1:{port}\"]\nadmin = \"127.0.0.1:0\"\n");
        format!("{listen}{DEMO}{server}{acme}")
    }

    /// The folder of the storage that belongs to the server.
    fn stored(&self, name: &str) -> PathBuf {
        let mut servers = std::fs::read_dir(self.folder.path()).unwrap();
        servers.next().unwrap().unwrap().path().join(name)
    }
}

/// Number of orders with this result.
fn orders(gateway: &Gateway, result: &str) -> u64 {
    let metrics = gateway.metrics();
    let name = format!("tollgate_acme_orders_total{{result=\"{result}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
    line.map_or(0, |count| count.parse().unwrap())
}

#[track_caller]
fn wait_for_order(gateway: &Gateway, result: &str) {
    let what = format!("an order with the result {result}; log:\n{}", gateway.log());
    eventually(&what, || (orders(gateway, result) > 0).then_some(()));
}

#[track_caller]
fn wait_for_log(gateway: &Gateway, words: &str) {
    eventually(words, || gateway.log().contains(words).then_some(()));
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn certificate_is_ordered_by_http_01_and_kept_over_a_restart() {
    let acme = Acme::new();
    let pebble = acme.pebble();
    let config = acme.config(&pebble);
    let gateway = Gateway::start_full(&config);
    wait_for_order(&gateway, "ok");
    wait_for_log(&gateway, "certificate issued");
    let log = gateway.log();
    assert!(log.contains("no certificate yet; ordering one domain=\"api.example.com\""), "{log}");
    assert!(log.contains("certificate issued domain=\"api.example.com\" expires="), "{log}");
    // The token is not answered any more, and its path is a request like any other.
    assert_eq!(gateway.get("/.well-known/acme-challenge/x").status, 200, "the demo upstream");
    let certificate = acme.stored("api.example.com.pem");
    let pem = eventually("the file", || std::fs::read_to_string(&certificate).ok());
    assert!(pem.contains("PRIVATE KEY") && pem.contains("BEGIN CERTIFICATE"), "{pem}");
    assert_eq!(mode(&certificate), 0o600);
    assert_eq!(mode(&acme.stored("account.json")), 0o600);
    assert_eq!(mode(&acme.stored("")), 0o700);
    assert!(!log.contains("PRIVATE"), "{log}");
    drop(gateway);
    // No server is needed for a stored certificate.
    let authority = pebble.stop();
    let gateway = Gateway::start_full(&config);
    wait_for_log(&gateway, "admin port on");
    gateway.get("/");
    eventually("the order state", || {
        std::fs::read(acme.stored("api.example.com.orders.json")).ok()
    });
    assert_eq!(std::fs::read_to_string(&certificate).unwrap(), pem);
    assert!(!gateway.log().contains("ordering one"), "{}", gateway.log());
    drop(authority);
}

#[test]
fn failed_challenge_shows_the_words_of_the_server_and_backs_off() {
    let acme = Acme::new();
    let elsewhere = PebbleOptions { http_port: free_port(), ..PebbleOptions::default() };
    let pebble = Pebble::start(elsewhere);
    let gateway = Gateway::start_full(&acme.config(&pebble));
    wait_for_order(&gateway, "challenge");
    wait_for_log(&gateway, "no certificate: ");
    let log = gateway.log();
    let line = log.lines().find(|line| line.contains("no certificate: ")).unwrap();
    assert!(line.contains("the challenge failed: "), "{line}");
    assert!(line.contains("connection refused"), "the server's words: {line}");
    assert!(line.contains("port 80 of the domain"), "{line}");
    assert!(line.contains("failures=1 next=20"), "{line}");
    let shown = gateway.admin("/api/certificates").json();
    let shown = shown["certificates"][0]["error"]["message"].as_str().unwrap().to_owned();
    assert!(shown.starts_with("the challenge failed: "), "{shown}");
    assert!(shown.contains("; the next order is at 20"), "{shown}");
    assert_eq!(gateway.get("/").status, 200);
    // A restart remembers the failure.
    drop(gateway);
    let gateway = Gateway::start_full(&acme.config(&pebble));
    wait_for_log(&gateway, "no certificate yet; the next order is at 20");
    gateway.get("/");
    let stored = std::fs::read_to_string(acme.stored("api.example.com.orders.json")).unwrap();
    assert!(stored.contains("\"failures\":1"), "{stored}");
    assert_eq!(orders(&gateway, "challenge"), 0, "{}", gateway.log());
}

#[test]
fn certificate_is_renewed_at_two_thirds_of_its_lifetime() {
    let acme = Acme::new();
    let options =
        PebbleOptions { http_port: acme.port, validity: 90 * 86_400, ..PebbleOptions::default() };
    let pebble = Pebble::start(options);
    let clock = WallClock::new();
    let gateway = Gateway::start_with(&acme.config(&pebble), |command| clock.apply_to(command));
    wait_for_order(&gateway, "ok");
    let first = std::fs::read_to_string(acme.stored("api.example.com.pem")).unwrap();
    clock.set(60 * DAY + 1);
    eventually("a renewal", || (orders(&gateway, "ok") == 2).then_some(()));
    let renewed = eventually("the renewed certificate", || {
        let renewed = std::fs::read_to_string(acme.stored("api.example.com.pem")).unwrap();
        (renewed != first).then_some(renewed)
    });
    assert!(renewed.contains("BEGIN CERTIFICATE"));
}

#[test]
fn failed_renewal_keeps_the_certificate() {
    let acme = Acme::new();
    let options =
        PebbleOptions { http_port: acme.port, validity: 90 * 86_400, ..PebbleOptions::default() };
    let pebble = Pebble::start(options);
    let clock = WallClock::new();
    let gateway = Gateway::start_with(&acme.config(&pebble), |command| clock.apply_to(command));
    wait_for_order(&gateway, "ok");
    let path = acme.stored("api.example.com.pem");
    let first = eventually("the file", || std::fs::read_to_string(&path).ok());
    let authority = pebble.stop();
    clock.set(60 * DAY + 1);
    wait_for_order(&gateway, "unreachable");
    wait_for_log(&gateway, "no certificate: ");
    let log = gateway.log();
    assert!(log.contains("/dir: cannot connect: Connection refused"), "{log}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), first);
    assert_eq!(gateway.get("/").status, 200);
    drop(authority);
}

#[test]
fn account_that_the_server_has_lost_is_created_again() {
    let acme = Acme::new();
    let pebble = acme.pebble();
    let config = acme.config(&pebble);
    let gateway = Gateway::start_full(&config);
    wait_for_order(&gateway, "ok");
    let account = std::fs::read_to_string(acme.stored("account.json")).unwrap();
    drop(gateway);
    for kind in ["pem", "orders.json"] {
        let path = acme.stored(&format!("api.example.com.{kind}"));
        eventually("the file", || path.exists().then_some(()));
        std::fs::remove_file(path).unwrap();
    }
    let pebble = pebble.restart();
    let gateway = Gateway::start_full(&config);
    wait_for_order(&gateway, "ok");
    assert_ne!(std::fs::read_to_string(acme.stored("account.json")).unwrap(), account);
    drop(pebble);
}

/// The certificate that a client of this port gets for a name, if it is of the authority in `root`.
fn presented(port: u16, name: &str, root: &str) -> Option<String> {
    let resolve = format!("{name}:{port}:127.0.0.1");
    let url = format!("https://{name}:{port}/");
    let write = "%{http_code} %{http_version} %{certs}";
    let arguments = ["--cacert", root, "--resolve", &resolve, "--output", "/dev/null", "-w", write];
    let fetched = curl(&[&arguments[..], &[&url]].concat());
    (fetched.exit == Some(0)).then(|| String::from_utf8_lossy(&fetched.stdout).into_owned())
}

#[test]
fn certificate_is_ordered_by_tls_alpn_01_and_presented() {
    let acme = Acme::new();
    let tls_port = free_port();
    let pebble = Pebble::start(PebbleOptions { tls_port, ..PebbleOptions::default() });
    let folder = acme.folder.path().display();
    let settings = format!(
        "storage = \"{folder}\"\ndomains = [\"a.example.com\", \"b.example.com\"]\n\
         challenge = \"tls-alpn-01\"\n\n[[listeners]]\naddress = \"127.0.0.1:{tls_port}\"\n\
         certificates = [\"acme\"]\n"
    );
    let gateway = Gateway::start_full(&acme.config_with(&pebble, &settings));
    eventually("two certificates", || (orders(&gateway, "ok") == 2).then_some(()));
    let root = pebble.root();
    for name in ["a.example.com", "b.example.com"] {
        let presented = presented(tls_port, name, &root).unwrap();
        assert!(presented.starts_with("200 2 "), "{presented}");
        assert!(presented.contains(&format!("DNS:{name}")), "{presented}");
    }
    // A stored certificate is presented from the first handshake after a restart.
    let config = gateway.config().to_owned();
    drop(gateway);
    let _gateway = Gateway::start_full(&config);
    assert!(presented(tls_port, "b.example.com", &root).is_some());
}

#[test]
fn example_of_the_documentation_gets_its_certificates() {
    let page = std::fs::read_to_string("docs/acme.md").unwrap();
    let (_, example) = page.split_once("```toml\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let (http_port, tls_port) = (free_port(), free_port());
    let pebble = Pebble::start(PebbleOptions { http_port, ..PebbleOptions::default() });
    // The ports and the authority are those of this test.
    let config = example
        .replace("0.0.0.0:80", &format!("127.0.0.1:{http_port}"))
        .replace("0.0.0.0:443", &format!("127.0.0.1:{tls_port}"))
        .replace("127.0.0.1:9090", "127.0.0.1:0")
        .replace("[acme]\n", &pebble.settings());
    let gateway = Gateway::start_full(&config);
    eventually("two certificates", || (orders(&gateway, "ok") == 2).then_some(()));
    let root = pebble.root();
    for name in ["api.example.com", "www.example.com"] {
        let presented = presented(tls_port, name, &root).unwrap();
        assert!(presented.contains(&format!("DNS:{name}")), "{presented}");
    }
}

#[test]
fn damaged_files_are_kept_aside_and_replaced() {
    let acme = Acme::new();
    let pebble = acme.pebble();
    let config = acme.config(&pebble);
    let gateway = Gateway::start_full(&config);
    wait_for_order(&gateway, "ok");
    drop(gateway);
    let certificate = acme.stored("api.example.com.pem");
    eventually("the file", || certificate.exists().then_some(()));
    for name in ["api.example.com.pem", "api.example.com.orders.json", "account.json"] {
        std::fs::write(acme.stored(name), "garbage\u{0}").unwrap();
    }
    let gateway = Gateway::start_full(&config);
    wait_for_order(&gateway, "ok");
    wait_for_log(&gateway, "certificate issued");
    let log = gateway.log();
    assert!(log.contains("a stored certificate is not used: "), "{log}");
    assert!(log.contains("the stored ACME account cannot be read"), "{log}");
    assert!(std::fs::read_to_string(&certificate).unwrap().contains("BEGIN CERTIFICATE"));
    for name in ["api.example.com.pem.corrupt", "account.json.corrupt"] {
        assert_eq!(std::fs::read_to_string(acme.stored(name)).unwrap(), "garbage\u{0}");
    }
}

#[test]
fn external_account_is_bound() {
    let acme = Acme::new();
    let key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let options = PebbleOptions {
        http_port: acme.port,
        external_account: Some(("kid-1", key)),
        ..PebbleOptions::default()
    };
    let pebble = Pebble::start(options);
    let without = Gateway::start_full(&acme.config(&pebble));
    wait_for_order(&without, "refused");
    wait_for_log(&without, "no certificate: ");
    let log = without.log();
    assert!(log.contains("externalAccountRequired"), "{log}");
    drop(without);
    std::fs::remove_file(acme.stored("api.example.com.orders.json")).unwrap();
    let eab = format!("\n[acme.eab]\nkey_id = \"kid-1\"\nhmac_key = \"{key}\"\n");
    let gateway = Gateway::start_full(&(acme.config(&pebble) + &eab));
    wait_for_order(&gateway, "ok");
    assert!(!gateway.log().contains(key), "{}", gateway.log());
}

/// Configuration of a gateway that shares its certificates by Redis and presents them on
/// `tls_port`.
fn shared(acme: &Acme, pebble: &Pebble, redis: &str, (key, tls_port): (char, u16)) -> String {
    let key = key.to_string().repeat(32);
    let settings = format!(
        "storage = \"redis\"\nstorage_key = \"{key}\"\ndomains = [\"api.example.com\"]\n\
         {redis}\n[[listeners]]\naddress = \"127.0.0.1:{tls_port}\"\ncertificates = [\"acme\"]\n"
    );
    acme.config_with(pebble, &settings)
}

#[test]
fn one_of_two_gateways_orders_and_the_other_answers_the_challenge() {
    let (first, second) = (Acme::new(), Acme::new());
    let redis = Redis::start();
    let ports = [free_port(), free_port()];
    // Challenges are checked at the second gateway only.
    let pebble = second.pebble();
    // A busy machine may need longer to start the second one than the first one takes to order.
    pebble.suspend();
    let ordering = Gateway::start_full(&shared(&first, &pebble, &redis.table(), ('k', ports[0])));
    wait_for_log(&ordering, "ordering one");
    let answering = Gateway::start_full(&shared(&second, &pebble, &redis.table(), ('k', ports[1])));
    pebble.resume();
    wait_for_order(&ordering, "ok");
    wait_for_log(&answering, "took over a certificate from another gateway");
    assert_eq!(orders(&answering, "ok"), 0, "{}", answering.log());
    let root = pebble.root();
    let [one, other] = ports.map(|port| presented(port, "api.example.com", &root));
    assert!(one.is_some() && one == other, "the same certificate: {one:?} {other:?}");
    let keys: Vec<String> = redis.query(&["KEYS", "tollgate:acme:*"]);
    for key in &keys {
        let value: Vec<u8> = redis.try_query(&["GET", key]).unwrap_or_default();
        let text = String::from_utf8_lossy(&value);
        assert!(!text.contains("PRIVATE") && !text.contains("key_pkcs8"), "{key} is in clear");
    }
    assert!(keys.iter().any(|key| key.ends_with(":certificate:api.example.com")), "{keys:?}");
    eventually("the lock is free", || {
        let keys: Vec<String> = redis.query(&["KEYS", "tollgate:acme:*:lock"]);
        keys.is_empty().then_some(())
    });
    // A gateway with another key neither orders nor overwrites.
    let third = Acme::new();
    let stranger =
        Gateway::start_full(&shared(&third, &pebble, &redis.table(), ('x', free_port())));
    wait_for_log(&stranger, "`storage_key` of [acme] must be that of the gateway that wrote it");
    assert_eq!(stranger.get("/").status, 200);
    assert!(!stranger.log().contains(&"x".repeat(32)));
    drop((ordering, answering, stranger));
    // The key is right: the certificate is there at once.
    let again = Gateway::start_full(&shared(&first, &pebble, &redis.table(), ('k', ports[0])));
    assert!(presented(ports[0], "api.example.com", &root).is_some());
    assert!(!again.log().contains("ordering one"), "{}", again.log());
}
