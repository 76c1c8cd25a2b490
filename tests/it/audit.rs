//! Refusals in the log of the process: one line for a burst of them, and no secret in it.

use crate::support::{DEMO, Gateway, Request, eventually, key};

const SECRET: &str = "s3cr3t-7h4t-nob0dy-m4y-r34d";

/// The lines that tell of refusals.
fn told(gateway: &Gateway) -> Vec<String> {
    let log = gateway.log();
    log.lines().filter(|line| line.contains("refused")).map(ToString::to_string).collect()
}

fn refuse(gateway: &Gateway, count: usize, request: &Request) {
    let mut client = gateway.connect();
    for _ in 0..=count {
        client.send(request);
    }
}

/// One request an hour, for each client.
const RULE: &str = "[rules.hourly]\nper = [\"key\"]\nrate = \"1/h\"\n";

#[test]
fn a_burst_of_refusals_is_told_in_one_line() {
    let config = format!("{DEMO}{RULE}{}", key("acme", SECRET, "free"));
    let mut gateway = Gateway::start(&config);
    refuse(&gateway, 7, &Request::get("/").header("X-Api-Key", SECRET));
    refuse(&gateway, 3, &Request::get(&format!("/?other={SECRET}")));
    gateway.terminate();
    assert_eq!(gateway.exit().0, Some(0));
    let lines = eventually("both lines", || Some(told(&gateway)).filter(|lines| lines.len() == 2));
    let of = |words: &[&str]| {
        let has_all = |line: &&String| words.iter().all(|word| line.contains(word));
        assert_eq!(lines.iter().filter(has_all).count(), 1, "{words:?} in {lines:?}");
    };
    of(&["rule=\"hourly\"", "plan=\"free\"", "key=\"acme\"", "count=7", "tokens=0"]);
    of(&["rule=\"hourly\"", "plan=\"free\"", "ip=\"127.0.0.1\"", "count=3", "tokens=0"]);
    assert!(!gateway.log().contains(SECRET), "{}", gateway.log());
}

#[test]
fn a_burst_is_told_soon_after_its_end() {
    let gateway = Gateway::start(&format!("{DEMO}{RULE}"));
    refuse(&gateway, 2, &Request::get("/"));
    let line = eventually("the line", || told(&gateway).pop());
    assert!(line.contains("count=2"), "{line}");
}

#[test]
fn addresses_are_shown_here_too_as_the_file_wants_it() {
    for (wanted, shown) in [("hashed", "ip=\"h:"), ("off", "rule=")] {
        let table = format!("[access_log]\noutput = \"off\"\nclient_ip = \"{wanted}\"\n");
        let mut gateway = Gateway::start(&format!("{DEMO}{RULE}{table}"));
        refuse(&gateway, 1, &Request::get("/"));
        gateway.terminate();
        assert_eq!(gateway.exit().0, Some(0));
        let line = eventually("the line", || told(&gateway).pop());
        assert!(line.contains(shown) && !line.contains("127.0.0.1"), "{line}");
    }
}
