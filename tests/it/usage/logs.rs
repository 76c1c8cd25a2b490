//! Logs of sliding windows in the file: what a restart, a crash and an upgrade keep.

use std::path::Path;
use std::time::Duration;

use super::{FAR_BEHIND, is_written, place, remaining, request, send, stop};
use crate::support::{DEMO, Gateway, Request, check, eventually, full_config, key, sleep_for};

/// A sliding window for a client with a key.
fn config(file: &Path, limit: &str) -> String {
    let own = key("acme", "secret", "free");
    format!(
        "{DEMO}[usage]\nfile = \"{}\"\n[rules.quota]\nper = [\"key\"]\nkind = \"sliding_window\"\nlimit = \"{limit}\"\n{own}",
        file.display(),
    )
}

/// Number of successful writes of the file.
fn writes(gateway: &Gateway) -> u64 {
    gateway.count("tollgate_usage_writes_total", &[("result", "ok")])
}

/// Requests that [`wait_until_written`] sends.
const MORE: i64 = 2;

/// Waits until the stamps of all requests so far are in the file. A write may have begun before the
/// last of them, but the one after it has not. Nothing is written without a further request.
#[track_caller]
fn wait_until_written(gateway: &Gateway) {
    for _ in 0..MORE {
        let before = writes(gateway);
        send(gateway, 1);
        let has_written = is_written(|| writes(gateway) > before);
        assert!(has_written, "no write within {FAR_BEHIND:?}");
    }
}

#[test]
fn restart_keeps_every_stamp() {
    let (_folder, file) = place();
    let settings = config(&file, "100/h");
    let gateway = Gateway::start(&settings);
    send(&gateway, 37);
    // The last requests are written at the end of the process.
    stop(gateway);
    let gateway = Gateway::start(&settings);
    assert_eq!(remaining(&gateway), 63);
    send(&gateway, 63);
    let refused = gateway.send(&request());
    assert_eq!(refused.status, 429);
    // When the first token leaves the window, which is less than an hour away.
    let wait = |answer: &crate::support::Response| -> u64 {
        answer.header("retry-after").unwrap().parse().unwrap()
    };
    let before = wait(&refused);
    assert!((3_500..=3_600).contains(&before), "{before}");
    sleep_for(Duration::from_secs(1));
    stop(gateway);
    let gateway = Gateway::start(&settings);
    let refused = gateway.send(&request());
    assert_eq!(refused.status, 429);
    assert!(wait(&refused) < before, "the stamps keep their times: {} of {before}", wait(&refused));
    // Quotas alone are listed.
    let usage = super::usage(&gateway, "?rule=quota");
    assert_eq!(usage["entries"].as_array().unwrap().len(), 0, "{usage}");
}

#[test]
fn stamps_of_a_short_window_are_not_kept() {
    let (_folder, file) = place();
    let gateway = Gateway::start(&config(&file, "100/59m"));
    send(&gateway, 10);
    stop(gateway);
    let gateway = Gateway::start(&config(&file, "100/59m"));
    assert_eq!(remaining(&gateway), 100);
}

#[test]
fn crash_forgets_at_most_the_stamps_of_a_second() {
    let (_folder, file) = place();
    let settings = config(&file, "4000/h");
    let used = |gateway: &Gateway| 4_000 - remaining(gateway);
    let mut before = 0;
    for _ in 0..3 {
        let gateway = Gateway::start(&settings);
        assert_eq!(used(&gateway), before);
        // More than are written in one part.
        send(&gateway, 200);
        before = used(&gateway);
        wait_until_written(&gateway);
        send(&gateway, 50);
        let last = used(&gateway);
        assert_eq!(last, before + MORE + 50);
        // SIGKILL.
        drop(gateway);
        let gateway = Gateway::start(&settings);
        let kept = used(&gateway);
        assert!((before..=last).contains(&kept), "{before} <= {kept} <= {last}");
        before = kept;
    }
}

#[test]
fn changed_limit_and_window_keep_stamps_over_a_restart() {
    let (_folder, file) = place();
    let gateway = Gateway::start(&config(&file, "100/h"));
    send(&gateway, 30);
    stop(gateway);
    let gateway = Gateway::start(&config(&file, "50/2h"));
    send(&gateway, 20);
    assert_eq!(gateway.send(&request()).status, 429);
    gateway.apply(&config(&file, "60/2h"));
    send(&gateway, 10);
    assert_eq!(gateway.send(&request()).status, 429);
    stop(gateway);
    let gateway = Gateway::start(&config(&file, "1000/d"));
    assert_eq!(remaining(&gateway), 940);
    send(&gateway, 1);
    stop(gateway);
    // The newest ten.
    let gateway = Gateway::start(&config(&file, "10/d"));
    assert_eq!(remaining(&gateway), 0);
}

#[test]
fn reset_and_grant_by_an_operator_are_kept() {
    let (_folder, file) = place();
    let settings = config(&file, "100/h");
    let gateway = Gateway::start(&settings);
    send(&gateway, 80);
    // All of these are written, so that the next write is that of the grant.
    stop(gateway);
    let gateway = Gateway::start(&settings);
    assert_eq!(remaining(&gateway), 20);
    let post = |path: &str, body: &str| {
        let request = Request::new("POST", &format!("/api/clients/key/acme/{path}")).body(body);
        assert_eq!(gateway.send_admin(&request).status, 200);
    };
    // Each change reaches the file by itself.
    let before = writes(&gateway);
    post("grant", r#"{"rule": "quota", "tokens": 30}"#);
    eventually("a write", || (writes(&gateway) > before).then_some(()));
    drop(gateway);
    let gateway = Gateway::start(&settings);
    assert_eq!(remaining(&gateway), 50);
    let before = writes(&gateway);
    let reset = Request::new("POST", "/api/clients/key/acme/reset").body(r#"{"rule": "quota"}"#);
    assert_eq!(gateway.send_admin(&reset).status, 200);
    eventually("a write", || (writes(&gateway) > before).then_some(()));
    drop(gateway);
    let gateway = Gateway::start(&settings);
    assert_eq!(remaining(&gateway), 100);
}

#[test]
fn upgrade_hands_over_the_file_with_the_logs() {
    let (_folder, file) = place();
    let settings = config(&file, "1000/h");
    let gateway = Gateway::start(&settings);
    send(&gateway, 100);
    for _ in 0..2 {
        let upgrade = gateway.send_admin(&Request::new("POST", "/api/upgrade"));
        assert_eq!(upgrade.status, 200, "{}", upgrade.text());
        send(&gateway, 10);
    }
    let log = gateway.log();
    assert!(!log.contains("cannot be written"), "{log}");
    eventually("the successor writes", || (writes(&gateway) > 0).then_some(()));
    // The first write can come between the last requests.
    wait_until_written(&gateway);
    // The successor, too.
    drop(gateway);
    let gateway = Gateway::start(&settings);
    // Those that were sent to wait for the file may be lost.
    assert!((880 - MORE..=880).contains(&remaining(&gateway)), "{}", remaining(&gateway));
}

#[test]
fn sliding_window_without_a_file_and_without_redis_is_warned_of() {
    let (_folder, file) = place();
    let words = "a restart loses the counts of `quota`";
    let table = format!("[usage]\nfile = \"{}\"\n", file.display());
    for (limit, is_warned) in [("100/h", true), ("100/59m", false)] {
        let settings = config(&file, limit);
        let with = check(full_config(&settings).as_bytes());
        assert!(!with.stderr.contains(words), "{}", with.stderr);
        let without = settings.replace(&table, "");
        let warned = check(full_config(&without).as_bytes());
        assert_eq!(warned.stderr.contains(words), is_warned, "{}", warned.stderr);
        assert_eq!(Gateway::start(&without).log().contains(words), is_warned);
    }
}
