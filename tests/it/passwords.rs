//! Users with passwords, whose hashes libxcrypt (Perl's `crypt`) and OpenSSL have made: who is let
//! in, as whom, at which price, and what the upstream gets.

use std::fmt::Write as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::support::{
    DEMO, Gateway, Nginx, Request, Upstream, digest, eventually, proxy_to, replace_file,
};

/// `secret`, with bcrypt.
const ALICE: &str = "alice:$2y$04$4KVlRPKQZEt1b2RBMpYQeOOoEI1ZPjm/zyo.2grGrZ8ntdITzzflm";
/// `secret`, with SHA-crypt of 512 bits.
const BOB: &str = "bob:$6$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZN.Pq.H91p5hVO1";
/// `secret`, with SHA-crypt of 256 bits.
const CAROL: &str = "carol:$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA";
/// `sésame:1`, with bcrypt.
const DAVE: &str = "dave:$2y$04$abcdefghijklmnopqrstuuvFKIakFkEEs45cYhPFamtf8TJdv7QIS";
/// `secret`, with bcrypt, at a cost that takes some 50 ms or more.
const EVE: &str = "eve:$2y$10$4KVlRPKQZEt1b2RBMpYQeOH5M1BzhLubQiv0IFCNwptYJ.KnQ9Eo.";

/// `[clients.basic]` with a file of these lines.
fn with_file(folder: &Path, lines: &[&str]) -> String {
    let file = folder.join("users");
    replace_file(&file, lines.join("\n"));
    format!("[clients.basic]\nusers = \"file:{}\"\n", file.display())
}

fn inline(lines: &[&str]) -> String {
    format!("[clients.basic]\nusers = {lines:?}\n")
}

fn login(login: impl AsRef<[u8]>) -> Request {
    Request::get("/").header("Authorization", format!("Basic {}", STANDARD.encode(login)))
}

/// The client id that the demo upstream returns, or the status of a denied request.
fn client(gateway: &Gateway, request: &Request) -> String {
    let answer = gateway.send(request);
    match answer.status {
        200 => answer.json()["client"].as_str().unwrap().to_string(),
        status => status.to_string(),
    }
}

fn checks(gateway: &Gateway, result: &str) -> u64 {
    gateway.count("tollgate_auth_checks_total", &[("method", "basic"), ("result", result)])
}

#[test]
fn logins_have_the_verdict_of_nginx() {
    let folder = tempfile::tempdir().unwrap();
    let table = with_file(folder.path(), &["# users", ALICE, "", BOB, CAROL, DAVE]);
    let users = folder.path().join("users");
    let directives = format!("auth_basic realm;\nauth_basic_user_file {};", users.display());
    let nginx = Nginx::limited("", &directives);
    let gateway = Gateway::start(&format!("{DEMO}{table}[clients]\non_missing_key = \"deny\"\n"));
    let logins = [
        "alice:secret",
        "alice:Secret",
        "alice:secret ",
        "alice:",
        "alice",
        ":secret",
        "",
        "bob:secret",
        "bob:secret:",
        "carol:secret",
        "carol:s",
        "dave:sésame:1",
        "dave:sesame:1",
        "dave:sésame",
        "Alice:secret",
        "mallory:secret",
        "# users:x",
        "alice:secret\u{e9}",
    ];
    for text in logins {
        let request = login(text);
        let expected = gateway_status_of(nginx_status(&nginx, &request));
        assert_eq!(gateway.send(&request).status, expected, "{text}");
    }
    for value in ["Basic", "Basic ", "Basic !!!", "Basic alice:secret", "basic YWxpY2U6c2VjcmV0"] {
        let request = Request::get("/").header("Authorization", value);
        let expected = gateway_status_of(nginx_status(&nginx, &request));
        assert_eq!(gateway.send(&request).status, expected, "{value}");
    }
    let refused = gateway.send(&Request::get("/"));
    let challenge = "Basic realm=\"tollgate\", charset=\"UTF-8\"";
    assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some(challenge)));
    let detail = "This request requires a user and a password in Authorization.";
    assert_eq!(refused.json()["detail"], detail);
    assert!(!gateway.log().contains("secret"), "{}", gateway.log());
}

fn nginx_status(nginx: &Nginx, request: &Request) -> u16 {
    crate::support::Connection::open(nginx.address).send(request).status
}

/// nginx has an image at each path.
fn gateway_status_of(nginx: u16) -> u16 {
    if nginx == 401 { 401 } else { 200 }
}

#[test]
fn users_are_clients_of_the_file_or_of_their_own() {
    let keys = format!(
        "[keys.alice]\nsha256 = \"{}\"\nplan = \"pro\"\n[keys.bob]\nplan = \"pro\"\nenabled = false\n",
        digest("key of alice")
    );
    let rule = "[rules.per-key]\nper = [\"key\"]\nplans.free = { rate = \"2/365d\" }\nplans.pro = { rate = \"3/365d\" }\n";
    let gateway =
        Gateway::start(&format!("[plans.pro]\n{DEMO}{keys}{rule}{}", inline(&[ALICE, BOB, CAROL])));
    let by_key = Request::get("/").header("X-Api-Key", "key of alice");
    let of_alice: Vec<String> = [&login("alice:secret"), &by_key, &login("alice:secret"), &by_key]
        .into_iter()
        .map(|request| client(&gateway, request))
        .collect();
    assert_eq!(of_alice, ["alice", "alice", "alice", "429"], "one client with one bucket");
    let of_carol: Vec<String> = (0..3).map(|_| client(&gateway, &login("carol:secret"))).collect();
    assert_eq!(of_carol, ["carol", "carol", "429"]);
    let disabled = gateway.send(&login("bob:secret"));
    assert_eq!(disabled.json()["detail"], "The user in Authorization is disabled.");
    let wrong = gateway.send(&login("bob:wrong"));
    assert_eq!(wrong.json()["detail"], "The user or the password in Authorization is wrong.");
    let both = login("carol:secret").header("X-Api-Key", "key of alice");
    assert_eq!(gateway.send(&both).status, 400, "two different credentials");
}

#[test]
fn upstream_gets_no_password_unless_asked_for() {
    let upstream = Upstream::responding("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let users = inline(&[ALICE]);
    let gateway = Gateway::start(&format!("{}{users}", proxy_to(&[upstream.address])));
    assert_eq!(gateway.send(&login("alice:secret")).status, 200);
    let token = Request::get("/").header("Authorization", "Bearer of-the-upstream");
    assert_eq!(gateway.send(&token).status, 200);
    gateway.apply(&format!("{}{users}hide_password = false\n", proxy_to(&[upstream.address])));
    assert_eq!(gateway.send(&login("alice:secret")).status, 200);
    let seen: Vec<Option<String>> = upstream
        .requests()
        .iter()
        .map(|request| request.header("Authorization").map(str::to_owned))
        .collect();
    let sent = format!("Basic {}", STANDARD.encode("alice:secret"));
    assert_eq!(seen, [None, Some("Bearer of-the-upstream".to_owned()), Some(sent)]);
}

/// Wrong passwords cost their address tokens, and none is verified when those are used up.
#[test]
fn guesses_are_charged_to_their_address_and_then_not_verified() {
    let rules = "[rules.per-ip]\nper = [\"ip\"]\nrate = \"6/365d\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{rules}{}", inline(&[ALICE])));
    assert_eq!(client(&gateway, &login("alice:secret")), "alice");
    let guesses = ["alice:1", "alice:2", "bob:secret", "alice:1", "alice:3", "alice:4", "alice:5"];
    let statuses: Vec<String> =
        guesses.iter().map(|guess| client(&gateway, &login(guess))).collect();
    assert_eq!(statuses, ["401", "401", "401", "401", "401", "429", "429"]);
    assert_eq!((checks(&gateway, "refused"), checks(&gateway, "cached")), (4, 1));
    let limited = gateway.send(&login("alice:6"));
    let expected = "The password in Authorization cannot be checked at the moment; retry later. Attempts are limited: \
                    limit \"per-ip\"";
    let detail = limited.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.starts_with(expected), "{detail}");
    assert_eq!(client(&gateway, &login("alice:secret")), "429", "the address, as with any key");
}

/// An unknown user costs as many verifications as a known one, of hashes that cost the same. The
/// price is compared by processor time, which other programs of the machine hardly change.
#[test]
fn unknown_users_cost_as_much_as_known_ones() {
    const GUESSES: u64 = 6;
    let gateway = Gateway::start(&format!("{DEMO}{}", inline(&[EVE])));
    let verified =
        || gateway.count("tollgate_auth_check_duration_seconds_count", &[("method", "basic")]);
    let price = |user: &str| {
        let (verified_before, ticks_before) = (verified(), gateway.processor_ticks());
        for guess in 0..GUESSES {
            let refused = gateway.send(&login(format!("{user}:{guess}")));
            let detail = "The user or the password in Authorization is wrong.";
            assert_eq!((refused.status, &refused.json()["detail"]), (401, &detail.into()));
        }
        assert_eq!(verified() - verified_before, GUESSES, "{user}");
        gateway.processor_ticks() - ticks_before
    };
    let (known, unknown) = (price("eve"), price("mallory"));
    assert!(known > 5, "inconclusive: {known} ticks are too few to compare");
    assert!(unknown > known / 2 && unknown < known * 2, "{known} and {unknown} ticks");
}

/// Guesses that wait for their turn see the tokens that those before have taken.
#[test]
fn guesses_at_once_are_verified_for_few_more_than_the_tokens_of_their_address() {
    const GUESSES: usize = 40;
    let rules = "[rules.per-ip]\nper = [\"ip\"]\nrate = \"3/365d\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{rules}{}", inline(&[EVE])));
    std::thread::scope(|scope| {
        let guess = |guess| client(&gateway, &login(format!("eve:{guess}")));
        let guesses: Vec<_> = (0..GUESSES).map(|at| scope.spawn(move || guess(at))).collect();
        for guess in guesses {
            let status = guess.join().unwrap();
            assert!(["401", "429", "503"].contains(&status.as_str()), "{status}");
        }
    });
    let cores = std::thread::available_parallelism().unwrap().get();
    let verified = usize::try_from(checks(&gateway, "refused")).unwrap();
    assert!(verified <= 3 + 2 * (cores / 2).max(1), "{verified} were verified");
}

/// An address without tokens does not learn which password another one has logged in with.
#[test]
fn address_without_tokens_cannot_tell_a_right_password_from_a_wrong_one() {
    let rules = "[rules.per-ip]\nper = [\"ip\"]\nrate = \"2/365d\"\n";
    let server = "trusted_proxies = [\"127.0.0.1\"]\n";
    let gateway = Gateway::start(&format!("{server}{DEMO}{rules}{}", inline(&[ALICE])));
    let from =
        |address: &str, text: &str| gateway.send(&login(text).header("X-Forwarded-For", address));
    assert_eq!(from("192.0.2.1", "alice:secret").status, 200);
    assert_eq!([1, 2].map(|_| from("192.0.2.2", "alice:1").status), [401, 401]);
    let [right, wrong] = ["alice:secret", "alice:2"].map(|text| from("192.0.2.2", text));
    let known = from("192.0.2.2", "alice:1");
    for answer in [&right, &wrong, &known] {
        assert_eq!(answer.status, 429);
        let detail = answer.json()["detail"].as_str().unwrap().replace(char::is_numeric, "");
        assert!(detail.starts_with("The password in Authorization cannot be checked"), "{detail}");
    }
    assert_eq!(from("192.0.2.1", "alice:secret").status, 200);
    assert_eq!(checks(&gateway, "allowed"), 1);
}

#[test]
fn right_password_is_verified_once_until_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let table = with_file(folder.path(), &[ALICE]);
    let gateway = Gateway::start(&format!("{DEMO}{table}"));
    for _ in 0..10 {
        assert_eq!(client(&gateway, &login("alice:secret")), "alice");
    }
    assert_eq!((checks(&gateway, "allowed"), checks(&gateway, "cached")), (1, 9));
    let other = DAVE.replace("dave", "alice");
    with_file(folder.path(), &[&other]);
    eventually("the new password", || {
        (client(&gateway, &login("alice:sésame:1")) == "alice").then_some(())
    });
    assert_eq!(client(&gateway, &login("alice:secret")), "401");
    // A file with a mistake changes nothing.
    with_file(folder.path(), &["alice:secret"]);
    eventually("the rejected file", || (gateway.reloads("rejected") > 0).then_some(()));
    assert_eq!(client(&gateway, &login("alice:sésame:1")), "alice");
    let log = gateway.log();
    assert!(
        !log.contains("$2y$04$") && !log.contains("sésame") && !log.contains("alice:"),
        "{log}"
    );
}

/// The thread that serves requests does not verify: while many passwords are, others are served.
#[test]
fn verifications_do_not_delay_other_requests() {
    let gateway = Gateway::start(&format!("{DEMO}{}", inline(&[ALICE, EVE])));
    assert_eq!(client(&gateway, &login("alice:secret")), "alice");
    std::thread::scope(|scope| {
        let guesses: Vec<_> = (0..40)
            .map(|guess| {
                let gateway = &gateway;
                scope.spawn(move || client(gateway, &login(format!("eve:{guess}"))))
            })
            .collect();
        eventually("the first verification", || (checks(&gateway, "refused") > 0).then_some(()));
        for _ in 0..20 {
            assert_eq!(client(&gateway, &login("alice:secret")), "alice");
        }
        let verified = checks(&gateway, "refused");
        assert!(verified < 40, "inconclusive: all were verified before");
        for guess in guesses {
            let status = guess.join().unwrap();
            assert!(["401", "503"].contains(&status.as_str()), "{status}");
        }
    });
}

#[test]
fn wrong_lines_are_reported_without_their_hashes() {
    let folder = tempfile::tempdir().unwrap();
    let weak = "frank:$apr1$TWAfQQOP$7pGtzwLvRsQPyCA8d8dS./";
    let mut lines = vec![ALICE, weak, "grace", "h i:x", ALICE];
    lines.extend(["x:1", "x:2", "x:3"]);
    let table = with_file(folder.path(), &lines);
    let outcome = crate::support::check(format!("{DEMO}{table}").as_bytes());
    let shown = folder.path().display().to_string();
    let mut text = String::new();
    for line in outcome.stderr.lines().chain(outcome.stdout.lines()) {
        writeln!(text, "{}", line.replace(&shown, ".")).unwrap();
    }
    for expected in [
        "users:2: user `frank`: the hash is neither of bcrypt",
        "users:3: a line with a user has its name, a colon and a hash",
        "users:4: the name of a user cannot hold ' '",
        "users:5: user `alice` is written twice",
        "has 2 more wrong lines",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(!text.contains("TWAfQQOP") && !text.contains("$2y$04$4K"), "{text}");
}
