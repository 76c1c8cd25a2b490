//! Usage of quotas in a file: what a restart, a crash and an upgrade keep, faults of the file, and
//! `GET /api/usage`.

mod logs;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::{
    DEMO, Gateway, Redis, Request, check, eventually, full_config, key, timed_below, tollgate,
    within,
};

/// How far the file may be behind: a second, and the time of two writes.
const BEHIND: Duration = Duration::from_secs(2);

/// How far a busy machine may extend it.
const FAR_BEHIND: Duration = Duration::from_secs(5);

/// Waits until the file is no longer behind. Returns whether it has happened in time.
#[track_caller]
fn is_written(is_there: impl Fn() -> bool) -> bool {
    let poll = || is_there().then_some(());
    timed_below(BEHIND, || within(FAR_BEHIND, poll)).is_some()
}

/// A folder for the file, and its path.
fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("usage.redb");
    (folder, path)
}

/// Two quotas and a bucket for a client with a key.
fn config(file: &Path, limit: &str) -> String {
    format!(
        "{DEMO}[usage]\nfile = \"{}\"\n[rules.quota]\nper = [\"key\"]\nkind = \"fixed_window\"\nlimit = \"{limit}\"\n\
         [rules.each]\nper = [\"ip\"]\nkind = \"fixed_window\"\nlimit = \"1000/year\"\n\
         [rules.bucket]\nper = [\"ip\"]\nrate = \"100000/s\"\n{}",
        file.display(),
        key("acme", "secret", "free"),
    )
}

fn request() -> Request {
    Request::get("/").header("X-Api-Key", "secret")
}

/// Sends requests that pass.
fn send(gateway: &Gateway, count: usize) {
    let mut client = gateway.connect();
    for _ in 0..count {
        assert_eq!(client.send(&request()).status, 200);
    }
}

fn usage(gateway: &Gateway, query: &str) -> Value {
    let answer = gateway.admin(&format!("/api/usage{query}"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// What is used of the rule `quota`, by the API.
fn used(gateway: &Gateway) -> Option<f64> {
    let usage = usage(gateway, "?rule=quota&key=acme");
    let entries = usage["entries"].as_array().unwrap();
    assert!(entries.len() <= 1, "{usage}");
    entries.first().map(|entry| entry["used"].as_f64().unwrap())
}

/// What is left of the rule `quota`, by the bucket.
fn remaining(gateway: &Gateway) -> i64 {
    let answer = gateway.admin("/api/clients/key/acme/buckets");
    let answer = answer.json();
    let rules = answer["rules"].as_array().unwrap();
    let rule = rules.iter().find(|rule| rule["rule"] == "quota").unwrap();
    rule["tokens"].as_i64().unwrap()
}

/// Waits until the file has this number. It may be closed meanwhile, after an upgrade or a failed
/// write.
fn wait_for_used(gateway: &Gateway, expected: f64) {
    eventually("the file has the usage", || {
        let answer = gateway.admin("/api/usage?rule=quota&key=acme");
        let is_there =
            answer.status == 200 && answer.json()["entries"][0]["used"].as_f64() == Some(expected);
        is_there.then_some(())
    });
}

fn stop(mut gateway: Gateway) -> String {
    gateway.terminate();
    assert_eq!(gateway.exit().0, Some(0), "{}", gateway.log());
    gateway.log()
}

#[test]
fn restart_keeps_every_count() {
    let (_folder, file) = place();
    let gateway = Gateway::start(&config(&file, "100/year"));
    send(&gateway, 37);
    // The last requests are written at the end of the process.
    stop(gateway);
    let gateway = Gateway::start(&config(&file, "100/year"));
    assert_eq!(remaining(&gateway), 63);
    assert_eq!(used(&gateway), Some(37.0));
    assert!(gateway.log().contains("usage of quotas is kept in a file"), "{}", gateway.log());
    send(&gateway, 63);
    assert_eq!(gateway.send(&request()).status, 429);
    // A refused request uses nothing.
    wait_for_used(&gateway, 100.0);
    stop(gateway);
    let gateway = Gateway::start(&config(&file, "100/year"));
    assert_eq!(gateway.send(&request()).status, 429);
}

#[test]
fn crash_loses_at_most_the_counts_of_a_second() {
    let (_folder, file) = place();
    let settings = config(&file, "100000/year");
    let mut before = 0;
    for _ in 0..3 {
        let gateway = Gateway::start(&settings);
        assert!(100_000 - remaining(&gateway) >= before);
        // Those of the first part are written meanwhile.
        send(&gateway, 200);
        before = 100_000 - remaining(&gateway);
        let expected = Some(f64::from(i32::try_from(before).unwrap()));
        let is_complete = is_written(|| used(&gateway) == expected);
        assert!(is_complete, "{:?} instead of {expected:?} in the file", used(&gateway));
        send(&gateway, 50);
        let last = 100_000 - remaining(&gateway);
        assert_eq!(last, before + 50);
        // SIGKILL.
        drop(gateway);
        let gateway = Gateway::start(&settings);
        let kept = 100_000 - remaining(&gateway);
        assert!((before..=last).contains(&kept), "{before} <= {kept} <= {last}");
        before = kept;
    }
}

#[test]
fn changed_limit_keeps_what_was_used_over_a_restart() {
    let (_folder, file) = place();
    let gateway = Gateway::start(&config(&file, "100/year"));
    send(&gateway, 30);
    stop(gateway);
    let gateway = Gateway::start(&config(&file, "50/year"));
    send(&gateway, 20);
    assert_eq!(gateway.send(&request()).status, 429);
    gateway.apply(&config(&file, "60/year"));
    send(&gateway, 10);
    assert_eq!(gateway.send(&request()).status, 429);
    stop(gateway);
    let gateway = Gateway::start(&config(&file, "1000/year"));
    assert_eq!(remaining(&gateway), 940);
}

#[test]
fn reset_by_an_operator_is_kept() {
    let (_folder, file) = place();
    let gateway = Gateway::start(&config(&file, "100/year"));
    send(&gateway, 30);
    wait_for_used(&gateway, 30.0);
    let reset = Request::new("POST", "/api/clients/key/acme/reset").body(r#"{"rule": "quota"}"#);
    assert_eq!(gateway.send_admin(&reset).status, 200);
    send(&gateway, 5);
    wait_for_used(&gateway, 5.0);
    let grant = Request::new("POST", "/api/clients/key/acme/grant");
    let grant = grant.body(r#"{"rule": "quota", "tokens": 3}"#);
    assert_eq!(gateway.send_admin(&grant).status, 200);
    wait_for_used(&gateway, 2.0);
    drop(gateway);
    let gateway = Gateway::start(&config(&file, "100/year"));
    assert_eq!(remaining(&gateway), 98);
}

#[test]
fn upgrade_hands_over_the_file() {
    let (_folder, file) = place();
    let gateway = Gateway::start(&config(&file, "100/year"));
    send(&gateway, 30);
    for round in 1..=2 {
        let upgrade = gateway.send_admin(&Request::new("POST", "/api/upgrade"));
        assert_eq!(upgrade.status, 200, "{}", upgrade.text());
        send(&gateway, 10);
        wait_for_used(&gateway, 30.0 + 10.0 * f64::from(round));
    }
    let log = gateway.log();
    assert!(!log.contains("cannot be written"), "{log}");
    drop(gateway);
    let gateway = Gateway::start(&config(&file, "100/year"));
    assert_eq!(remaining(&gateway), 50);
}

#[test]
fn second_process_cannot_use_the_file() {
    let (_folder, file) = place();
    let gateway = Gateway::start(&config(&file, "100/year"));
    let own = tempfile::tempdir().unwrap();
    let path = own.path().join("gateway.toml");
    std::fs::write(&path, full_config(&config(&file, "100/year"))).unwrap();
    let second = tollgate(&["run", "-c", path.to_str().unwrap()], "");
    assert_eq!(second.code, Some(69));
    assert!(second.stderr.contains("another process uses it"), "{}", second.stderr);
    send(&gateway, 1);
    wait_for_used(&gateway, 1.0);
}

#[test]
fn file_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_folder, file) = place();
    let _gateway = Gateway::start(&config(&file, "100/year"));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // The key is in none of its bytes.
    let bytes = std::fs::read(&file).unwrap();
    assert!(!bytes.windows(6).any(|part| part == b"secret"));
}

/// Starts a gateway on a file that it may refuse. Returns its log if it exits.
fn refusal(config: &str) -> Option<String> {
    let own = tempfile::tempdir().unwrap();
    let path = own.path().join("gateway.toml");
    std::fs::write(&path, full_config(config)).unwrap();
    let mut command = Command::new("timeout");
    command.args(["8", env!("CARGO_BIN_EXE_tollgate"), "run", "-c", path.to_str().unwrap()]);
    let output = command.output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!log.contains("panic") && log.contains("INFO"), "{log}");
    (output.status.code() == Some(69)).then_some(log)
}

#[test]
fn damaged_file_is_refused_or_keeps_its_counts() {
    let (folder, file) = place();
    let gateway = Gateway::start(&config(&file, "100/year"));
    send(&gateway, 40);
    stop(gateway);
    let whole = std::fs::read(&file).unwrap();
    for content in ["", "not a database", &"x".repeat(100_000)] {
        let path = folder.path().join(format!("other-{}", content.len()));
        std::fs::write(&path, content).unwrap();
        let log = refusal(&config(&path, "100/year"));
        // An empty file is a new one.
        assert_eq!(log.is_some(), !content.is_empty(), "{log:?}");
        assert!(log.is_none_or(|log| log.contains("damaged or of another program")));
    }
    for cut in [1, 100, 512, 4_096, whole.len() / 2, whole.len() - 1] {
        let path = folder.path().join(format!("cut-{cut}"));
        std::fs::write(&path, &whole[..cut]).unwrap();
        let log = refusal(&config(&path, "100/year"));
        assert!(log.is_some_and(|log| log.contains("damaged or of another program")), "{cut}");
    }
}

#[test]
fn counts_of_a_full_disk_are_written_when_there_is_room() {
    let (_folder, file) = place();
    let settings = config(&file, "100000/year").replace("[\"ip\"]", "[\"ip\", \"header:x-id\"]");
    // A write beyond the limit of the file's size is an error, not a signal.
    let gateway = Gateway::start_with(&settings, |command| {
        let program = command.get_program().to_owned();
        let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(program).args(arguments);
        shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        *command = shell;
    });
    let limit = |bytes: String| {
        let mut command = Command::new("prlimit");
        command.args(["--pid", &gateway.pid().to_string(), &format!("--fsize={bytes}:")]);
        assert!(command.status().unwrap().success());
    };
    send(&gateway, 10);
    wait_for_used(&gateway, 10.0);
    limit(std::fs::metadata(&file).unwrap().len().to_string());
    let has_failed = || gateway.count("tollgate_usage_writes_total", &[("result", "error")]) > 0;
    // More than fits into the file.
    let mut client = gateway.connect();
    let mut sent = 20_u32;
    for id in 0..5_000 {
        if id % 250 == 0 && has_failed() {
            break;
        }
        sent += 1;
        let response = client.send(&request().header("X-Id", id.to_string()));
        assert_eq!(response.status, 200, "{}", response.text());
    }
    eventually("a failed write", || has_failed().then_some(()));
    eventually("the log says so", || {
        gateway.log().contains("usage cannot be written").then_some(())
    });
    send(&gateway, 10);
    limit("unlimited".to_owned());
    wait_for_used(&gateway, f64::from(sent));
    gateway.wait_for_count("tollgate_usage_unwritten", &[], 0);
    eventually("the end in the log", || {
        gateway.log().contains("usage is written again").then_some(())
    });
    drop(gateway);
    let gateway = Gateway::start(&settings);
    assert_eq!(remaining(&gateway), 100_000 - i64::from(sent));
}

#[test]
fn usage_command_shows_what_clients_used() {
    let (_folder, file) = place();
    let gateway = Gateway::start(&config(&file, "100/month"));
    send(&gateway, 3);
    wait_for_used(&gateway, 3.0);
    let admin = gateway.admin.to_string();
    let usage = |arguments: &[&str]| {
        let first = ["usage", "--admin", &admin];
        tollgate(&[&first[..], arguments].concat(), "")
    };
    let row = |outcome: &crate::support::Outcome| {
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let mut lines = outcome.stdout.lines().map(|line| line.split_whitespace());
        lines.any(|words| {
            words.clone().any(|word| word == "acme") && words.rev().take(2).eq(["100", "3"])
        })
    };
    for arguments in [
        &["--key-id", "acme"][..],
        &["--since", "1h"],
        &["--from", "60d", "--to", "0s"],
        &["--period", "all"],
        &["--rule", "quota", "--limit", "1"],
    ] {
        let outcome = usage(arguments);
        assert!(row(&outcome), "{arguments:?}: {outcome:?}");
    }
    let earlier = usage(&["--until", "400d"]);
    assert!(earlier.stdout.starts_with("No usage of quotas in these periods."), "{earlier:?}");
    let json: Value = serde_json::from_str(&usage(&["--json"]).stdout).unwrap();
    assert_eq!((&json["source"], &json["more"]), (&"file".into(), &false.into()));
    assert_eq!(json["entries"][0]["used"], 3.0);
    for (arguments, message) in [
        (&["--period", "all", "--since", "1h"][..], "cannot be used with"),
        (&["--since", "noon"], "`since` must be a time"),
        (&["--ip", "999"], "`ip` is not an address"),
        (&["--limit", "0"], "invalid value '0'"),
    ] {
        let outcome = usage(arguments);
        assert_eq!(outcome.code, Some(64), "{outcome:?}");
        assert!(outcome.stderr.contains(message), "{outcome:?}");
    }
}

#[test]
fn parameters_have_the_names_of_the_other_lists_too() {
    let (_folder, file) = place();
    let gateway = Gateway::start(&config(&file, "100/month"));
    send(&gateway, 1);
    wait_for_used(&gateway, 1.0);
    for query in ["key_id=acme", "from=1h&to=0s&rule=quota", "since=1h&until=0s&key=acme"] {
        let entries = usage(&gateway, &format!("?{query}"));
        assert_eq!(entries["entries"].as_array().unwrap().len(), 1, "{query}: {entries}");
    }
    let samples = gateway.admin("/api/samples?since=1m&until=0s");
    assert_eq!(samples.status, 200, "{}", samples.text());
    let refusals = gateway.admin("/api/audit?from=1m&to=0s&key_id=acme");
    assert_eq!(refusals.status, 200, "{}", refusals.text());
}

/// Addresses of IPv6 are counted by their network, and of IPv4 in their shortest form.
#[test]
fn usage_of_an_address_is_found_by_any_address_of_its_network() {
    let (_folder, file) = place();
    let text = format!("trusted_proxies = [\"127.0.0.1\"]\n{}", config(&file, "100/month"));
    let gateway = Gateway::start(&text);
    for client in ["2001:db8::1", "192.0.2.1"] {
        let request = Request::get("/").header("X-Forwarded-For", client);
        assert_eq!(gateway.send(&request).status, 200);
    }
    for ip in ["2001:db8::1", "2001:db8:0::2", "2001:db8::/64", "192.0.2.1", "::ffff:192.0.2.1"] {
        let query = format!("?rule=each&ip={}", ip.replace('/', "%2F"));
        eventually("one entry", || {
            let found = usage(&gateway, &query)["entries"].as_array().unwrap().len();
            (found == 1).then_some(())
        });
    }
}

#[test]
fn usage_command_shows_periods_in_the_zone_of_their_rule() {
    let (_folder, file) = place();
    let in_berlin = "limit = \"100/month\"\nzone = \"Europe/Berlin\"";
    let settings = config(&file, "100/month").replace("limit = \"100/month\"", in_berlin);
    let gateway = Gateway::start(&settings);
    send(&gateway, 3);
    wait_for_used(&gateway, 3.0);
    let admin = gateway.admin.to_string();
    let usage = |arguments: &[&str]| {
        let first = ["usage", "--admin", &admin, "--rule", "quota"];
        let outcome = tollgate(&[&first[..], arguments].concat(), "");
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        outcome.stdout.lines().nth(1).unwrap().to_owned()
    };
    let row = usage(&[]);
    assert!(row.contains("-01 00:00  Europe/Berlin  3 "), "{row}");
    assert_eq!(row.matches("-01 00:00").count(), 2, "{row}");
    // Berlin is an hour or two ahead of UTC.
    let row = usage(&["--zone", "UTC"]);
    assert!(!row.contains(" 00:00") && row.contains(":00  UTC "), "{row}");
}

#[test]
fn usage_is_listed_by_client_rule_and_period() {
    let (_folder, file) = place();
    let gateway = Gateway::start(&config(&file, "100/month"));
    send(&gateway, 3);
    assert_eq!(gateway.get("/").status, 200);
    let expected = [
        "each ip 127.0.0.1 free 4 of 1000",
        // Without a key, a client is counted by its address.
        "quota ip 127.0.0.1 free 1 of 100",
        "quota key acme free 3 of 100",
    ];
    // The last request can be in a later write than those before it.
    eventually("all entries", || {
        let all = usage(&gateway, "");
        assert_eq!(all["source"], "file");
        let mut entries: Vec<_> = all["entries"].as_array().unwrap().iter().map(summary).collect();
        entries.sort();
        (entries == expected).then_some(())
    });
    let of = |query: &str| usage(&gateway, query)["entries"].as_array().unwrap().len();
    assert_eq!(of("?key=acme"), 1);
    assert_eq!(of("?ip=127.0.0.1"), 2);
    assert_eq!(of("?key=other"), 0);
    assert_eq!(of("?rule=quota"), 2);
    assert_eq!(of("?period=2020-01-01T00:00:00Z"), 0);
    assert_eq!(of("?period=all"), 3);
    // In pages.
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = usage(&gateway, &format!("?limit=1&period=all{cursor}"));
        found.extend(page["entries"].as_array().unwrap().iter().map(summary));
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    found.sort();
    assert_eq!(found, expected);
    let csv = gateway.admin("/api/usage?format=csv&key=acme");
    assert_eq!(csv.header("content-type"), Some("text/csv; charset=utf-8; header=present"));
    let text = csv.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "rule,client_kind,client,plan,period_start,period_end,limit,used,counted_at,bucket,zone,overage"
    );
    assert!(lines[1].starts_with("quota,key,acme,free,20"), "{text}");
    assert!(lines[1].contains("-01T00:00:00.000000Z,100,3.0,"), "{text}");
    assert!(lines[1].ends_with(",UTC,0.0"), "{text}");
    assert_eq!(lines.len(), 2);
    for wrong in
        ["?period=soon", "?format=xml", "?limit=0", "?cursor=x", "?rule=none", "?key=a&ip=1.1.1.1"]
    {
        assert_eq!(gateway.admin(&format!("/api/usage{wrong}")).status, 400, "{wrong}");
    }
}

fn summary(entry: &Value) -> String {
    let text = |name: &str| entry[name].as_str().unwrap().to_owned();
    format!(
        "{} {} {} {} {} of {}",
        text("rule"),
        text("client_kind"),
        text("client"),
        text("plan"),
        entry["used"].as_f64().unwrap(),
        entry["limit"],
    )
}

#[test]
fn without_a_file_the_buckets_of_the_keys_are_shown() {
    let (_folder, file) = place();
    let settings = config(&file, "100/year");
    let in_memory = settings.replace(&format!("file = \"{}\"\n", file.display()), "");
    let gateway = Gateway::start(&in_memory);
    assert_eq!(used(&gateway), None);
    send(&gateway, 3);
    assert_eq!(used(&gateway), Some(3.0));
    let all = usage(&gateway, "");
    assert_eq!(all["source"], "local");
    assert_eq!(all["entries"].as_array().unwrap().len(), 1);
    assert_eq!(gateway.admin("/api/usage?period=all").status, 409);
    assert!(!file.exists());
}

#[test]
fn file_is_not_used_with_redis() {
    let redis = Redis::start();
    let (_folder, file) = place();
    let gateway = Gateway::start(&format!("{}{}", config(&file, "100/year"), redis.table()));
    assert!(gateway.log().contains("`file` has no effect with `[redis]`"), "{}", gateway.log());
    send(&gateway, 3);
    wait_for_used(&gateway, 3.0);
    assert_eq!(usage(&gateway, "")["source"], "redis");
    assert!(!file.exists());
}

#[test]
fn quota_without_a_file_and_without_redis_is_warned_of() {
    let (_folder, file) = place();
    let settings = config(&file, "100/year");
    let with = check(full_config(&settings).as_bytes());
    assert!(!with.stderr.contains("a restart loses"), "{}", with.stderr);
    assert!(!file.exists(), "check creates no file");
    let without = settings.replace(&format!("file = \"{}\"\n", file.display()), "");
    let warned = check(full_config(&without).as_bytes());
    let words = "a restart loses the counts of `quota` and another rule";
    assert!(warned.stderr.contains(words), "{}", warned.stderr);
    assert!(Gateway::start(&without).log().contains(words));
    let redis = format!("{settings}[redis]\nurl = \"redis://127.0.0.1:1\"\n");
    let both = check(full_config(&redis).as_bytes());
    assert!(both.stderr.contains("`file` has no effect with `[redis]`"), "{}", both.stderr);
}

#[test]
fn end_of_the_lack_of_room_in_the_file_is_logged() {
    let (_folder, file) = place();
    let settings = config(&file, "100000/year").replace("[\"key\"]", "[\"header:x-id\"]");
    let settings = settings.replace("1000/year", "100000/year");
    let settings = settings.replace("[usage]\n", "[usage]\nmax_records = 1000\n");
    let gateway = Gateway::start(&settings);
    let mut client = gateway.connect();
    for id in 0..1_010 {
        let response = client.send(&request().header("X-Id", id.to_string()));
        assert_eq!(response.status, 200, "{}", response.text());
    }
    let logged = |words: &str| gateway.log().matches(words).count();
    eventually("the lack of room in the log", || {
        (logged("the file has usage.max_records") == 1).then_some(())
    });
    assert_eq!(logged("usage of new clients is written again"), 0, "{}", gateway.log());
    // Without further requests.
    gateway.save(&settings.replace("max_records = 1000", "max_records = 2000"));
    eventually("the end in the log", || {
        (logged("usage of new clients is written again") == 1).then_some(())
    });
}

#[test]
fn file_that_cannot_be_written_is_an_error_of_the_start_and_of_check() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    let text = |place: &str| {
        format!(
            "{DEMO}[usage]\nfile = \"{place}usage.redb\"\n[key_store]\nurl = \"file:{place}keys.redb\"\n"
        )
    };
    std::fs::write(&file, full_config(&text("/none/"))).unwrap();
    for command in ["run", "check"] {
        let outcome = tollgate(&[command, "-c", file.to_str().unwrap()], "");
        assert_eq!(outcome.code, Some(64), "{outcome:?}");
        for (what, line) in [("of usage", "| file = "), ("of the key store", "| url = ")] {
            let expected = format!(
                "error: the file {what} cannot be written: the folder `/none` does not exist"
            );
            assert!(outcome.stderr.contains(&expected), "{expected}\n{}", outcome.stderr);
            assert!(outcome.stderr.contains(line), "{}", outcome.stderr);
        }
    }
    // A relative path begins at the folder of the file.
    std::fs::write(&file, full_config(&text(""))).unwrap();
    let outcome = tollgate(&["check", "-c", file.to_str().unwrap()], "");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}
