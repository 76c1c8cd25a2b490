//! A changed file is detected for every way of replacing it, and reloaded on request; the response
//! lists the changes.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use crate::support::{DEMO, Gateway, Request, eventually, full_config, key, timed, timed_below};

/// `DEMO` with another route name, which the demo upstream returns.
fn routed(name: &str) -> String {
    DEMO.replace("routes.all", &format!("routes.{name}"))
}

fn route(gateway: &Gateway) -> String {
    gateway.get("/").json()["route"].as_str().unwrap().to_string()
}

/// Asserts that requests use the configuration with that route within a second.
#[track_caller]
fn assert_taken(gateway: &Gateway, name: &str) {
    let is_there = || (route(gateway) == name).then_some(());
    let what = format!("the route {name}");
    timed_below(Duration::from_secs(1), || eventually(&what, is_there));
}

#[test]
fn row_44_file_written_in_place_is_applied_within_a_second() {
    let gateway = Gateway::start(DEMO);
    for name in ["one", "two"] {
        std::fs::write(gateway.file(), full_config(&routed(name))).unwrap();
        assert_taken(&gateway, name);
    }
    gateway.wait_for_applied(2);
    assert_eq!(gateway.reloads("rejected"), 0);
    gateway.wait_for_count("tollgate_config_generation", &[], 3);
}

#[test]
fn row_44_file_renamed_into_place_is_applied_within_a_second() {
    let gateway = Gateway::start(DEMO);
    for name in ["one", "two"] {
        gateway.save(&routed(name));
        assert_taken(&gateway, name);
    }
    // vim renames the old file and writes a new one.
    let backup = gateway.file().with_extension("toml~");
    std::fs::rename(gateway.file(), backup).unwrap();
    std::fs::write(gateway.file(), full_config(&routed("three"))).unwrap();
    assert_taken(&gateway, "three");
    gateway.wait_for_applied(3);
}

/// A mounted ConfigMap: each version is a folder, and a link in the middle is replaced.
#[test]
fn row_44_swapped_config_map_is_applied_within_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let mount = |version: &str, config: &str| {
        let data = folder.path().join(version);
        std::fs::create_dir(&data).unwrap();
        std::fs::write(data.join("gateway.toml"), full_config(config)).unwrap();
        let new = folder.path().join("..data_tmp");
        symlink(version, &new).unwrap();
        std::fs::rename(new, folder.path().join("..data")).unwrap();
    };
    mount("..2026_11_21", DEMO);
    let file = folder.path().join("gateway.toml");
    symlink("..data/gateway.toml", &file).unwrap();
    let gateway = Gateway::start_on_file(&file);
    for name in ["one", "two"] {
        mount(&format!("..{name}"), &routed(name));
        assert_taken(&gateway, name);
    }
    // The kubelet removes the old version.
    std::fs::remove_dir_all(folder.path().join("..one")).unwrap();
    mount("..three", &routed("three"));
    assert_taken(&gateway, "three");
    gateway.wait_for_applied(3);
    assert_eq!(gateway.reloads("rejected"), 0);
}

#[test]
fn row_44_file_behind_a_link_is_applied_within_a_second() {
    let (here, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (link, file) = (here.path().join("gateway.toml"), elsewhere.path().join("real.toml"));
    std::fs::write(&file, full_config(DEMO)).unwrap();
    symlink(&file, &link).unwrap();
    let gateway = Gateway::start_on_file(&link);
    std::fs::write(&file, full_config(&routed("one"))).unwrap();
    assert_taken(&gateway, "one");
    let new = elsewhere.path().join("new.toml");
    std::fs::write(&new, full_config(&routed("two"))).unwrap();
    std::fs::rename(&new, &file).unwrap();
    assert_taken(&gateway, "two");
}

/// inotify reports closed files. Only the poll detects changes of a file that stays open.
#[test]
#[ignore = "takes longer than others: `make test-long`"]
fn row_44_change_without_notification_is_found_by_polling() {
    use std::io::Write as _;

    let gateway = Gateway::start(DEMO);
    // The first poll comes right after the start.
    gateway.save(&routed("one"));
    assert_taken(&gateway, "one");
    crate::support::wait_retry_after(Duration::from_millis(500));
    let mut file = std::fs::File::create(gateway.file()).unwrap();
    file.write_all(full_config(&routed("polled")).as_bytes()).unwrap();
    file.flush().unwrap();
    let is_there = || (route(&gateway) == "polled").then_some(());
    let ((), took) = timed(|| eventually("the poll", is_there));
    assert!((2..12).contains(&took.as_secs()), "{took:?}");
    drop(file);
}

#[test]
fn sighup_reloads_the_file() {
    let gateway = Gateway::start(DEMO);
    // The content is unchanged, so this is not a reload.
    gateway.sighup();
    eventually("the signal", || gateway.log().contains("SIGHUP").then_some(()));
    assert_eq!((route(&gateway).as_str(), gateway.reloads("applied")), ("all", 0));
    // A pipe is read only on request, and rejected.
    std::fs::remove_file(gateway.file()).unwrap();
    make_pipe(gateway.file());
    gateway.sighup();
    eventually("the pipe to be refused", || (gateway.reloads("rejected") > 0).then_some(()));
    gateway.save(&routed("one"));
    gateway.sighup();
    assert_taken(&gateway, "one");
}

fn make_pipe(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn reload_response_lists_the_changes() {
    let secret = |secret: &str| key("acme", secret, "free");
    let rule = "[rules.r]\nper = [\"ip\"]\nrate = \"10/s\"\n";
    let old = format!("{DEMO}{rule}{}", secret("hunter2"));
    let gateway = Gateway::start(&old);
    let unchanged = gateway.reload();
    assert_eq!(unchanged.status, 200);
    assert_eq!(
        unchanged.json(),
        serde_json::json!({
            "result": "unchanged", "generation": 1, "warnings": [], "more_warnings": 0,
        })
    );

    let new = format!(
        "read_timeout = \"9s\"\n{}[plans.pro]\n{}{}",
        DEMO.replace("routes.all", "routes.other"),
        rule.replace("10/s", "5/s"),
        secret("hunter3")
    );
    // The gateway takes a changed file by itself after 50 ms. If that is sooner than the request,
    // both files are applied once more.
    let mut generation = 0;
    let answer = eventually("a reload by the request", || {
        generation += 2;
        gateway.apply(&old);
        gateway.save(&new);
        let answer = gateway.reload();
        assert_eq!(answer.status, 200);
        (answer.json()["result"] == "applied").then_some(answer)
    });
    let expected = serde_json::json!({
        "result": "applied",
        "generation": generation,
        "changes": [
            { "kind": "key", "name": "acme", "what": "secret_changed", "setting": "sha256" },
            { "kind": "plan", "name": "pro", "what": "added" },
            { "kind": "route", "name": "all", "what": "removed" },
            { "kind": "route", "name": "other", "what": "added" },
            {
                "kind": "rule", "name": "r", "what": "changed", "setting": "rate",
                "from": "\"10/s\"", "to": "\"5/s\"",
            },
            { "kind": "setting", "name": "server.read_timeout", "what": "changed", "to": "\"9s\"" },
        ],
        "more_changes": 0,
        "warnings": [],
        "more_warnings": 0,
    });
    assert_eq!(answer.json(), expected);
    let line = "configuration applied: 6 changes: key acme: the secret changed; plan pro added; route all \
        removed; route other added; rule r rate: \"10/s\" -> \"5/s\"; server.read_timeout: \
        nothing -> \"9s\"";
    eventually(line, || gateway.log().contains(line).then_some(()));
    assert_eq!(route(&gateway), "other");
    let with_key = |key: &str| gateway.send(&Request::get("/").header("X-Api-Key", key)).status;
    assert_eq!((with_key("hunter2"), with_key("hunter3")), (401, 200));
    for text in [gateway.log(), answer.text()] {
        assert!(!text.contains("hunter"), "{text}");
        assert!(!text.contains(secret("hunter3").split('"').nth(1).unwrap()), "{text}");
    }
    assert_eq!(gateway.admin("/api/reload").status, 405);
}

#[test]
fn new_upstream_is_resolved_before_the_file_is_applied() {
    let gateway = Gateway::start(DEMO);
    for body in ["one", "two"] {
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let upstream = crate::support::Upstream::responding(answer);
        let port = upstream.address.port();
        gateway.apply(&DEMO.replace("demo", &format!("localhost:{port}")));
        assert_eq!(gateway.get("/").text(), body);
    }
}
