//! `tollgate audit`.

use crate::support::{DEMO, Gateway, Outcome, Request, eventually, key, tollgate};

const SECRET: &str = "s3cr3t-7h4t-nob0dy-m4y-r34d";

const RULE: &str = "[rules.hourly]\nper = [\"key\"]\nrate = \"1/h\"\n";

fn audit(gateway: &Gateway, arguments: &[&str]) -> Outcome {
    let admin = gateway.admin.to_string();
    let first = ["audit", "--admin", &admin, "--zone", "UTC"];
    tollgate(&[&first[..], arguments].concat(), "")
}

#[test]
fn question_about_a_key_is_answered_by_one_command() {
    let gateway = Gateway::start(&format!("{DEMO}{RULE}{}", key("acme", SECRET, "free")));
    for _ in 0..4 {
        gateway.send(&Request::get("/").header("X-Api-Key", SECRET));
    }
    let answered = eventually("all refusals", || {
        let outcome = audit(&gateway, &["--key-id", "acme", "--since", "5m"]);
        outcome.stdout.contains("3 requests").then_some(outcome)
    });
    let text = &answered.stdout;
    assert!(
        text.starts_with("hourly (1/h, burst 1, plan free) refused 3 requests of key acme"),
        "{text}"
    );
    assert!(text.contains("with 429; its bucket has 0 tokens now and is full again in"), "{text}");
    assert!(text.contains("Times are in UTC.\n"), "{text}");
    assert!(!text.contains(SECRET), "{text}");
    let json = audit(&gateway, &["--key-id", "acme", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["refusal_runs"][0]["count"], 3);

    let none = audit(&gateway, &["--key-id", "acme", "--until", "1h"]);
    assert_eq!(none.code, Some(0));
    assert!(none.stdout.starts_with("No refusals of key acme until "), "{}", none.stdout);
    assert!(none.stdout.contains("--all-gateways"), "{}", none.stdout);

    let minute = json["refusal_runs"][0]["first"].as_str().unwrap();
    let minute = format!("{}:00Z", &minute[.."0000-00-00T00:00".len()]);
    let at = audit(&gateway, &["--key-id", "acme", "--at", &minute]);
    assert!(at.stdout.contains("3 requests"), "{at:?}");
    let before = audit(&gateway, &["--key-id", "acme", "--at", "1h"]);
    assert!(before.stdout.starts_with("No refusals of key acme since "), "{before:?}");
    let same = audit(&gateway, &["--key-id", "acme", "--from", "5m", "--to", "0s"]);
    assert!(same.stdout.contains("3 requests"), "{same:?}");

    for (arguments, message) in [
        (&["--key", SECRET][..], "needs no key, but its id"),
        (&["--at", "10:03", "--since", "10:03"], "cannot be used with"),
        (&["--key-id", "acmee"], "the file has no key `acmee`: did you mean `acme`?"),
        (&["--since", "noon"], "`since` must be a time such as `10:03`"),
        (&["--all-gateways"], "[audit]"),
    ] {
        let outcome = audit(&gateway, arguments);
        assert_eq!(outcome.code, Some(64), "{outcome:?}");
        assert!(outcome.stderr.contains(message), "{}", outcome.stderr);
        assert!(!outcome.stderr.contains(SECRET), "{}", outcome.stderr);
    }
    let outcome = tollgate(&["audit", "--admin", "127.0.0.1:1"], "");
    assert_eq!(outcome.code, Some(69), "{outcome:?}");
}

#[test]
fn refusals_of_a_tenant_are_answered_by_one_command() {
    let of_acme = key("acme", SECRET, "free") + "tenant = \"north\"\n";
    let gateway =
        Gateway::start(&format!("{DEMO}{RULE}{of_acme}{}", key("other", "other", "free")));
    for secret in [SECRET, "other"] {
        for _ in 0..3 {
            gateway.send(&Request::get("/").header("X-Api-Key", secret));
        }
    }
    let text = eventually("all refusals", || {
        let text = audit(&gateway, &["--tenant", "north"]).stdout;
        text.contains("2 requests of key acme").then_some(text)
    });
    assert!(!text.contains("other"), "{text}");
    let none = audit(&gateway, &["--tenant", "south"]).stdout;
    assert!(none.starts_with("No refusals of tenant south on this gateway"), "{none}");
}

/// A client that pays, but sends a wrong key: its requests are refused by the limit of its address.
#[test]
fn refusals_with_a_wrong_key_differ_from_those_without_one() {
    let gateway = Gateway::start(&format!("{DEMO}{RULE}{}", key("acme", SECRET, "free")));
    let wrong = Request::get("/").header("X-Api-Key", "wrong");
    let statuses: Vec<u16> =
        [&wrong, &wrong, &Request::get("/")].map(|request| gateway.send(request).status).to_vec();
    assert_eq!(statuses, [401, 429, 429]);
    let text = eventually("both refusals", || {
        let text = audit(&gateway, &["--kind", "limit"]).stdout;
        (text.matches("refused 1 request").count() == 2).then_some(text)
    });
    assert!(text.contains("of address 127.0.0.1 without a key at"), "{text}");
    assert!(text.contains("with an unknown key in header:x-api-key at"), "{text}");
    let none = audit(&gateway, &["--key-id", "acme"]).stdout;
    assert!(none.contains("429 (unknown key)"), "{none}");
}
