//! Rejected files: the previous configuration stays, the reason is reported, and a valid file is
//! applied as soon as it exists.

use std::os::unix::fs::symlink;
use std::path::Path;

use crate::support::{DEMO, Gateway, eventually, full_config, replace_file};

/// Replaces the file of a gateway by an invalid one with `spoil`, expects `words` in the log, and
/// then restores a valid one.
#[track_caller]
fn assert_survives(spoil: impl Fn(&Path), words: &str) {
    let gateway = Gateway::start(DEMO);
    let success = "tollgate_config_last_reload_successful";
    spoil(gateway.file());
    eventually("the bad file to be seen", || (gateway.reloads("rejected") == 1).then_some(()));
    assert_eq!(gateway.count(success, &[]), 0);
    assert_eq!(gateway.get("/").json()["route"], "all");
    eventually(words, || gateway.log().contains(words).then_some(()));
    assert_eq!(gateway.count("tollgate_config_generation", &[]), 1);

    // Every requested reload responds with the same error.
    let answer = gateway.reload();
    assert_eq!(answer.status, 422, "{}", answer.text());
    assert!(answer.text().contains(words.lines().next().unwrap()), "{}", answer.text());

    remove(gateway.file());
    gateway.save(&DEMO.replace("routes.all", "routes.good"));
    let is_good = || (gateway.get("/").json()["route"] == "good").then_some(());
    eventually("the good file to be taken", is_good);
    gateway.wait_for_applied(1);
    gateway.wait_for_count(success, &[], 1);
}

fn remove(path: &Path) {
    match path.symlink_metadata() {
        Ok(about) if about.is_dir() => std::fs::remove_dir(path).unwrap(),
        Ok(_) => std::fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
}

#[test]
fn row_41_deleted_file_changes_nothing() {
    assert_survives(|path| std::fs::remove_file(path).unwrap(), "cannot read");
}

/// root can read every file, but not a folder.
#[test]
fn row_41_unreadable_file_changes_nothing() {
    let folder = |path: &Path| {
        std::fs::remove_file(path).unwrap();
        std::fs::create_dir(path).unwrap();
    };
    assert_survives(folder, "is a directory");
}

#[test]
fn row_41_link_to_itself_changes_nothing() {
    let looping = |path: &Path| {
        std::fs::remove_file(path).unwrap();
        symlink(path, path).unwrap();
    };
    assert_survives(looping, "cannot read");
}

#[test]
fn row_42_empty_file_changes_nothing() {
    assert_survives(|path| std::fs::write(path, "").unwrap(), "there are no routes");
}

#[test]
fn row_42_half_written_file_changes_nothing() {
    let half = full_config(DEMO).replace("path = \"/*\"\nupstream = \"api\"\n", "path = \"/");
    assert_survives(move |path| replace_file(path, &half), "a string is not closed");
}

#[test]
fn row_42_binary_file_changes_nothing() {
    assert_survives(|path| replace_file(path, b"[server]\n\0\0\0"), "a NUL, at byte 9");
    assert_survives(|path| replace_file(path, b"[server]\n\xff"), "not UTF-8, at byte 9");
}

#[test]
fn row_42_file_above_4_mib_is_rejected() {
    let huge = |path: &Path| {
        let new = path.with_extension("new");
        std::fs::File::create(&new).unwrap().set_len(100 << 20).unwrap();
        std::fs::rename(new, path).unwrap();
    };
    let gateway = Gateway::start(DEMO);
    let (_, before) = gateway.memory_bytes();
    huge(gateway.file());
    eventually("the file to be seen", || (gateway.reloads("rejected") == 1).then_some(()));
    let grown = gateway.memory_bytes().1.saturating_sub(before) >> 20;
    assert!(grown < 16, "memory grew by {grown} MiB");
    drop(gateway);
    assert_survives(huge, "is larger than 4 MiB");
}

#[test]
fn row_42_byte_order_mark_is_accepted() {
    let gateway = Gateway::start(DEMO);
    let other = DEMO.replace("routes.all", "routes.other");
    replace_file(gateway.file(), format!("\u{feff}{}", full_config(&other)).as_bytes());
    assert_eq!(gateway.reload().status, 200);
    assert_eq!(gateway.get("/").json()["route"], "other");
}

#[test]
fn row_43_errors_are_reported_with_their_place_and_nothing_is_applied() {
    let gateway = Gateway::start(DEMO);
    let rules = "[rules.new]\nper = [\"ip\"]\nrate = \"1/d\"\n[rules.bad]\nper = [\"kye\"]\n\
        rate = \"10/sec\"\n[keys.acme]\nsha256 = \"hunter2\"\n";
    gateway.save(&format!("{DEMO}{rules}"));
    let answer = gateway.reload();
    assert_eq!(answer.status, 422);
    let json = answer.json();
    assert_eq!((&json["result"], &json["generation"]), (&"rejected".into(), &1.into()));
    let errors = json["errors"].as_array().unwrap();
    let first = &errors[0];
    assert_eq!(first["message"], "`per` does not take `kye`");
    assert_eq!(first["help"], "did you mean `key`?");
    let text = full_config(&format!("{DEMO}{rules}"));
    let line = text.lines().position(|line| line.contains("kye")).unwrap() + 1;
    assert_eq!((&first["line"], &first["column"]), (&line.into(), &8.into()));
    assert!(errors.len() >= 3, "{json:#}");
    assert!(!answer.text().contains("hunter2") && !gateway.log().contains("hunter2"));
    // The valid rule of the rejected file is not in force either.
    for _ in 0..3 {
        assert_eq!(gateway.get("/").status, 200);
    }
    // The log has one line for each error.
    let last = format!("error={}", errors.last().unwrap()["message"]);
    eventually(&last, || gateway.log().contains(&last).then_some(()));
    let logged = gateway.log().matches(" configuration error path=").count();
    assert_eq!(logged, errors.len(), "{}", gateway.log());
}

#[test]
fn rejected_file_is_logged_once_while_it_is_unchanged() {
    let gateway = Gateway::start(DEMO);
    let bad = full_config(&format!("{DEMO}[rules.r]\n"));
    replace_file(gateway.file(), &bad);
    eventually("the bad file to be seen", || (gateway.reloads("rejected") == 1).then_some(()));
    // The same content again: an event without a change.
    for _ in 0..3 {
        replace_file(gateway.file(), &bad);
        crate::support::wait_retry_after(std::time::Duration::from_millis(200));
    }
    assert_eq!(gateway.reloads("rejected"), 1);
    // The log is written after the reload is counted.
    let rejected = "was rejected; the previous configuration stays in force";
    let log =
        eventually("the log line", || Some(gateway.log()).filter(|log| log.contains(rejected)));
    assert_eq!(log.matches(rejected).count(), 1, "{log}");
    // The file in force again: not a reload, and no longer an error.
    gateway.save(DEMO);
    let good = "tollgate_config_last_reload_successful";
    gateway.wait_for_count(good, &[], 1);
    assert_eq!(gateway.reloads("applied"), 0);
    let restored = "matches the configuration in force again";
    let log =
        eventually("the log line", || Some(gateway.log()).filter(|log| log.contains(restored)));
    assert_eq!(log.matches(restored).count(), 1, "{log}");
}

#[test]
fn row_45_duplicate_rules_and_routes_are_rejected() {
    let rule = "[rules.r]\nper = []\nrate = \"1/d\"\n";
    let twin = "[routes.twin]\npath = \"/*\"\nupstream = \"api\"\n";
    let gateway = Gateway::start(DEMO);
    for (added, words) in [
        (format!("{rule}{rule}"), "is written twice"),
        (twin.to_string(), "match the same requests"),
        ("[rules.r]\nper = [\"ip\", \"ip\"]\nrate = \"1/d\"\n".to_string(), "twice"),
    ] {
        gateway.save(&format!("{DEMO}{added}"));
        let answer = gateway.reload();
        assert_eq!(answer.status, 422, "{added}");
        assert!(answer.text().contains(words), "{words} in {}", answer.text());
    }
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn row_48_file_that_needs_a_restart_is_rejected_as_a_whole() {
    let gateway = Gateway::start(DEMO);
    let other = DEMO.replace("routes.all", "routes.other");
    let server = full_config(&other);
    // (text to replace, replacement, settings named in the error)
    let table: [(&str, &str, &[&str]); 6] = [
        ("listen = [\"127.0.0.1:0\"]", "listen = [\"127.0.0.1:1\"]", &["`listen` of [server]"]),
        ("admin = \"127.0.0.1:0\"", "admin = \"127.0.0.1:1\"", &["`admin` of [server]"]),
        (
            "threads = 2",
            "threads = 3\ndrain_delay = \"1s\"\ndrain_timeout = \"1s\"",
            &["`threads` of [server]", "`drain_delay` of [server]", "`drain_timeout` of [server]"],
        ),
        ("[plans.free]", "[plans.free]\n[memory]\nmax_buckets = 7", &["`max_buckets` of [memory]"]),
        (
            "[plans.free]",
            "[plans.free]\n[redis]\nurl = \"redis://u:hunter2@h\"",
            &["`url` of [redis]"],
        ),
        ("threads = 2", "", &["`threads` of [server]"]),
    ];
    for (from, to, names) in table {
        replace_file(gateway.file(), server.replace(from, to).as_bytes());
        let answer = gateway.reload();
        assert_eq!(answer.status, 422, "{to}");
        for name in names {
            let words = format!("{name} cannot change while the gateway runs");
            assert!(answer.text().contains(&words), "{words} in {}", answer.text());
            eventually(&words, || gateway.log().contains(&words).then_some(()));
        }
        assert!(answer.text().contains("restart the gateway"), "{}", answer.text());
        assert_eq!(gateway.get("/").json()["route"], "all", "{to}");
    }
    assert!(!gateway.log().contains("hunter2"));
    gateway.apply(&other);
    assert_eq!(gateway.get("/").json()["route"], "other");
}

#[test]
fn row_49_file_that_would_fail_the_start_changes_nothing() {
    let gateway = Gateway::start(DEMO);
    for bad in ["", "[server", "listen = 5", "[rules.r]\nper = [\"ip\"]\n"] {
        replace_file(gateway.file(), bad);
        let start = crate::support::tollgate(&["run", "-c", gateway.file().to_str().unwrap()], "");
        assert_eq!((start.code, gateway.reload().status), (Some(64), 422), "{bad}");
        assert_eq!((gateway.get("/").status, gateway.admin("/ready").status), (200, 200));
    }
}
