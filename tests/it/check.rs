//! `tollgate check` with its flags, and `POST /api/reload?dry_run=true`.

use std::path::{Path, PathBuf};

use insta::assert_snapshot;
use tempfile::TempDir;

use crate::support::{
    Authority, ClosedPort, DEMO, Gateway, Outcome, PeerServer, Redis, Request, Response,
    eventually, full_config, replace_file, tollgate,
};

/// A literal secret, which no answer may contain.
const SECRET: &str = "s3cret-0f-the-runn1ng-gateway";

/// Everything that can be secret, from variables and files that do not exist here.
const REFERENCES: &str = "\
    [redis]\nurl = \"rediss://${REDIS_HOST}:${REDIS_PORT}\"\nusername = \"${file:/none/user}\"\n\
    password = \"${file:/none/password}\"\nca = \"${CERTIFICATES}/ca.pem\"\n\
    client_cert = \"/none/cert.pem\"\nclient_key = \"/none/key.pem\"\n\
    [admin]\ntoken = \"${ADMIN_TOKEN}\"\n\
    [access_log]\noutput = \"off\"\nsalt = \"${file:${CREDENTIALS}/salt}\"\n\
    [tracing]\nendpoint = \"${OTLP}\"\nheaders = { authorization = \"Bearer ${OTLP_TOKEN}\" }\n\
    service_name = \"${NAME_OF_SERVICE}\"\n";

/// A file in a folder of its own.
fn file(config: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, full_config(config)).unwrap();
    (folder, path)
}

fn check(file: &Path, flags: &[&str]) -> Outcome {
    let call: Vec<&str> = ["check", file.to_str().unwrap()].iter().chain(flags).copied().collect();
    tollgate(&call, "")
}

/// Standard output and standard error, without the names that differ between runs.
fn shown(outcome: &Outcome, file: &Path) -> String {
    let text = format!("{}{}", outcome.stdout, outcome.stderr);
    text.replace(&file.display().to_string(), "gateway.toml")
}

fn dry_run(gateway: &Gateway, body: &str) -> Response {
    gateway.send_admin(&Request::new("POST", "/api/reload?dry_run=true").body(body))
}

#[test]
fn no_env_assumes_what_has_no_value_here() {
    let (_folder, file) = file(&format!("{DEMO}{REFERENCES}"));
    let strict = check(&file, &[]);
    assert_eq!(strict.code, Some(64));
    let assumed = check(&file, &["--no-env"]);
    assert_eq!(assumed.code, Some(0), "{assumed:?}");
    assert_snapshot!(shown(&assumed, &file));
    // `run` has no such flag.
    let run = tollgate(&["run", file.to_str().unwrap(), "--no-env"], "");
    assert_eq!(run.code, Some(64), "{run:?}");
    assert!(run.stderr.contains("unexpected argument '--no-env'"), "{}", run.stderr);
}

#[test]
fn no_env_accepts_a_redirect_whose_host_is_assumed() {
    let outcome = |to: &str| {
        let (_folder, file) = file(&format!("[routes.a]\nredirect = {{ to = \"{to}\" }}\n"));
        check(&file, &["--no-env"])
    };
    for to in ["https://${TOLLGATE_TEST_HOST}{path}", "${TOLLGATE_TEST_URL}{path}{query}"] {
        let outcome = outcome(to);
        assert_eq!(outcome.code, Some(0), "{to}: {}", outcome.stderr);
    }
    assert_eq!(outcome("https://{path}").code, Some(64));
}

#[test]
fn no_env_still_reports_all_other_errors() {
    let wrong = "[redis]\nurl = \"${REDIS_URL}\"\ntimeout = \"5 apples\"\nusername = \"${1}\"\n\
                 [admin]\ntoken = \"short\"\n[rules.r]\nper = [\"kye\"]\nrate = \"1/s\"\n";
    let (_folder, file) = file(&format!("{DEMO}{wrong}"));
    let outcome = check(&file, &["--no-env"]);
    assert_eq!(outcome.code, Some(64));
    for words in
        ["5 apples", "not the name of a variable", "shorter than 16", "did you mean `key`?"]
    {
        assert!(outcome.stderr.contains(words), "{words}: {}", outcome.stderr);
    }
    assert!(!outcome.stderr.contains("assumed"), "{}", outcome.stderr);
}

#[test]
fn dry_run_of_the_file_applies_nothing() {
    let gateway = Gateway::start(DEMO);
    assert_eq!(dry_run(&gateway, "").json()["result"], "unchanged");
    let rule = "[rules.r]\nper = []\nrate = \"1/d\"\n";
    // A name that no other test has, in a file that the gateway does not watch yet.
    gateway.save(&format!("{DEMO}{rule}"));
    eventually("the file to be applied", || (gateway.reloads("applied") == 1).then_some(()));
    gateway.get("/");
    assert_eq!(gateway.get("/").status, 429);
    let before = gateway.reloads("rejected");
    let answer = dry_run(&gateway, &full_config(DEMO));
    assert_eq!(answer.status, 200);
    let json = answer.json();
    assert_eq!((&json["result"], &json["dry_run"]), (&"would_apply".into(), &true.into()));
    assert_eq!(json["buckets"][0]["effect"], "expire");
    assert_eq!((gateway.get("/").status, gateway.reloads("rejected")), (429, before));
    assert_eq!(gateway.count("tollgate_config_generation", &[]), 2);
}

#[test]
fn dry_run_lists_changes_restarts_and_buckets() {
    let rule = "[rules.r]\nper = [\"ip\"]\nrate = \"10/d\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{rule}"));
    let new = full_config(&format!("{DEMO}{}", rule.replace("10/d", "5/d")));
    let new = new.replace("threads = 2", "threads = 3");
    let answer = dry_run(&gateway, &new);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_snapshot!(answer.text());
    // The same of the file, which the gateway has rejected.
    replace_file(gateway.file(), new);
    eventually("the rejection", || (gateway.reloads("rejected") == 1).then_some(()));
    let of_file = dry_run(&gateway, "").json();
    assert_eq!(of_file["result"], "needs_restart");
    assert_eq!(of_file["changes"], answer.json()["changes"]);
    assert_eq!(gateway.reloads("rejected"), 1);
}

#[test]
fn dry_run_of_the_file_rejects_what_a_reload_rejects() {
    let gateway = Gateway::start(DEMO);
    let folder = tempfile::tempdir().unwrap();
    let with_log_in = |folder: &Path| {
        full_config(&format!("{DEMO}[access_log]\noutput = \"{}/a.log\"\n", folder.display()))
    };
    replace_file(gateway.file(), with_log_in(&folder.path().join("none")));
    eventually("the rejection", || (gateway.reloads("rejected") == 1).then_some(()));
    let planned = dry_run(&gateway, "");
    let reload = gateway.send_admin(&Request::new("POST", "/api/reload"));
    assert_eq!((planned.status, reload.status), (422, 422), "{}", planned.text());
    assert_eq!(planned.json()["errors"], reload.json()["errors"]);
    // A new file is not created by a dry run. The gateway's own file would not do: it may be read
    // again at any time.
    assert_eq!(dry_run(&gateway, &with_log_in(folder.path())).json()["result"], "would_apply");
    assert!(!folder.path().join("a.log").exists());
}

#[test]
fn dry_run_rejects_invalid_content_and_parameters() {
    let gateway = Gateway::start(DEMO);
    let answer = dry_run(&gateway, "[rules.r]\nper = [\"kye\"]\n");
    assert_eq!(answer.status, 422);
    let json = answer.json();
    assert_eq!(json["result"], "rejected");
    let is_there = |error: &serde_json::Value| error["line"] == 2 && error["column"] == 8;
    assert!(json["errors"].as_array().unwrap().iter().any(is_there), "{json:#}");
    let table = [
        ("/api/reload?dry_run=yes", "", 400),
        ("/api/reload?dryrun=true", "", 400),
        ("/api/reload", "[server]", 400),
        ("/api/reload?dry_run=false", "[server]", 400),
        ("/api/reload?dry_run=false", "", 200),
    ];
    for (target, body, expected) in table {
        let answer = gateway.send_admin(&Request::new("POST", target).body(body));
        assert_eq!(answer.status, expected, "{target}: {}", answer.text());
    }
    // Larger than other bodies may be, and larger than a file may be.
    let comment = |bytes: usize| format!("{}\n#{}", full_config(DEMO), "a".repeat(bytes));
    assert_eq!(dry_run(&gateway, &comment(1 << 20)).json()["result"], "unchanged");
    assert_eq!(dry_run(&gateway, &comment(4 << 20)).status, 413);
    assert_eq!(gateway.reloads("rejected"), 0);
}

/// Neither by its answer nor by a difference between answers.
#[test]
fn dry_run_reveals_no_secret_of_the_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    std::fs::write(&path, SECRET).unwrap();
    let redis = |password: &str| {
        format!("[redis]\nurl = \"redis://127.0.0.1:1\"\npassword = \"{password}\"\n")
    };
    let config = full_config(&format!("{DEMO}{}", redis(SECRET)));
    let gateway = Gateway::start_with(&config, |command| {
        command.env("TOLLGATE_TEST_SECRET", SECRET);
    });
    let answer = |lines: &str| {
        let answer = dry_run(&gateway, &full_config(&format!("{DEMO}{lines}")));
        assert!(!answer.text().contains(SECRET), "{}", answer.text());
        answer.text()
    };
    assert_eq!(answer(&redis(SECRET)), answer(&redis("another-guess-at-the-secret!!")));
    let file = path.display();
    let (known, unknown) = ("${TOLLGATE_TEST_SECRET}", "${TOLLGATE_TEST_SECRE2}");
    for place in [
        "service_name = \"X\"",
        "endpoint = \"http://X/\"",
        "ca = \"X\"",
        "headers = { a = \"X\" }",
    ] {
        let of = |name: &str| answer(&format!("[tracing]\n{}\n", place.replace('X', name)));
        assert_eq!(of(known).replace("SECRET}", "SECRE2}"), of(unknown), "{place}");
        let (there, missing) = (format!("${{file:{file}}}"), format!("${{file:{file}.none}}"));
        assert_eq!(of(&there).replace("secret}", "secret.none}"), of(&missing), "{place}");
    }
    // A certificate is not read, whether it exists or not.
    let of = |path: &str| {
        answer(&format!("[tracing]\nendpoint = \"https://h\"\nca = \"{path}\"\n")).replace(path, "")
    };
    assert_eq!(of("/etc/passwd"), of("/none/passwd"));
    assert!(!gateway.log().contains(SECRET), "{}", gateway.log());
}

fn against(gateway: &Gateway, file: &Path, flags: &[&str]) -> Outcome {
    let url = format!("http://{}", gateway.admin);
    let flags: Vec<&str> = ["--against", &url].iter().chain(flags).copied().collect();
    check(file, &flags)
}

#[test]
fn against_shows_what_a_reload_would_change() {
    let rules = "[rules.per-ip]\nper = [\"ip\"]\nrate = \"20/s\"\nburst = 200\n\
                 [rules.old]\nper = []\nrate = \"9/d\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{rules}"));
    let new = format!(
        "{DEMO}[plans.trial]\n{}[redis]\nurl = \"redis://u:${{REDIS_PASSWORD}}@h\"\n",
        rules.replace("20/s", "10/s").replace("rules.old", "rules.new")
    );
    let (_folder, path) = file(&new);
    let outcome = against(&gateway, &path, &[]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let text = shown(&outcome, &path).replace(&gateway.admin.to_string(), "127.0.0.1:9090");
    assert_snapshot!(text);
    let json: serde_json::Value =
        serde_json::from_str(&against(&gateway, &path, &["--json"]).stdout).unwrap();
    assert_eq!(
        (&json["result"], &json["restart"][0]),
        (&"needs_restart".into(), &"redis.url".into())
    );
    assert_eq!(gateway.count("tollgate_config_generation", &[]), 1);

    let same = against(&gateway, gateway.file(), &[]);
    assert_eq!(same.code, Some(0));
    assert!(same.stdout.ends_with("No changes.\n"), "{}", same.stdout);
    std::fs::write(&path, "[rules.r]\n").unwrap();
    let bad = against(&gateway, &path, &[]);
    assert_eq!((bad.code, &*bad.stdout), (Some(64), ""));
    assert!(bad.stderr.contains("gateway.toml:1:"), "{}", bad.stderr);
}

#[test]
fn against_needs_a_gateway_and_its_token() {
    let token = format!("[admin]\ntoken = \"{SECRET}\"\n");
    let gateway = Gateway::start(&format!("{DEMO}{token}"));
    let (folder, path) = file(DEMO);
    let token_file = folder.path().join("token");
    let token_file = token_file.to_str().unwrap();
    let outcome = against(&gateway, &path, &[]);
    assert_eq!(outcome.code, Some(64));
    assert!(outcome.stderr.contains("asks for a token: give it by --token-file"), "{outcome:?}");
    std::fs::write(token_file, "wrong-token-of-the-admin-port").unwrap();
    let outcome = against(&gateway, &path, &["--token-file", token_file]);
    assert_eq!(outcome.code, Some(64));
    std::fs::write(token_file, format!("{SECRET}\n")).unwrap();
    let outcome = against(&gateway, &path, &["--token-file", token_file]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");

    let closed = ClosedPort::bind();
    for (url, expected) in [
        (format!("http://{}", closed.address), 69),
        // The port for clients is not an admin port.
        (format!("http://{}", gateway.address), 69),
        ("https://h".to_owned(), 64),
    ] {
        let outcome = check(&path, &["--against", &url]);
        assert_eq!(outcome.code, Some(expected), "{url}: {outcome:?}");
    }
    let alone = check(&path, &["--json"]);
    assert_eq!(alone.code, Some(64), "{alone:?}");
}

#[test]
fn connect_warns_of_servers_that_cannot_be_used() {
    let closed = ClosedPort::bind();
    let redis = Redis::start();
    redis.query::<String>(&["CONFIG", "SET", "requirepass", "pw"]);
    let table = redis.table();
    let config = format!(
        "{DEMO}[upstreams.down]\nservers = [\"{}\", \"no-such-name.invalid:80\"]\n\
         [routes.down]\npath = \"/down\"\nupstream = \"down\"\n{table}",
        closed.address
    );
    let (_folder, path) = file(&config);
    assert_eq!(check(&path, &[]).stderr, "");
    let outcome = check(&path, &["--connect"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let text = shown(&outcome, &path)
        .replace(&closed.address.to_string(), "127.0.0.1:9")
        .replace(&redis.socket().display().to_string(), "/run/redis.sock");
    assert_snapshot!(text);
    assert_eq!(check(&path, &["--connect", "--strict"]).code, Some(64));
}

#[test]
fn connect_performs_the_tls_handshake_with_upstreams() {
    let (authority, other) = (Authority::new(), Authority::new());
    let issued = authority.issue("api", &["api.test"]);
    let server = PeerServer::node(Some(&issued));
    let warnings = |authority: &Authority, name: &str| {
        let config = format!(
            "{DEMO}[upstreams.tls]\nservers = [\"https://{}\"]\n\
             tls = {{ ca = {:?}, server_name = \"{name}\" }}\n\
             [routes.tls]\npath = \"/tls\"\nupstream = \"tls\"\n",
            server.address,
            authority.ca(),
        );
        let (_folder, path) = file(&config);
        check(&path, &["--connect"]).stderr
    };
    assert_eq!(warnings(&authority, "api.test"), "");
    let wrong_name = warnings(&authority, "other.test");
    let expected = "TLS: certificate of other.test: not valid for this name";
    assert!(wrong_name.contains(expected), "{wrong_name}");
    let help = "= help: the server runs; in `tls` of the upstream, check `ca`";
    assert!(wrong_name.contains(help), "{wrong_name}");
    let unknown = warnings(&other, "api.test");
    assert!(unknown.contains("TLS: certificate of api.test: not signed by"), "{unknown}");
}

#[test]
fn connect_checks_the_rights_of_the_user_in_redis() {
    let redis = Redis::start();
    let rights =
        "on >pw resetkeys ~tollgate:* resetchannels -@all +ping +eval +evalsha +time +get +set";
    let set = |rights: &str| {
        let call: Vec<&str> =
            ["ACL", "SETUSER", "gateway"].into_iter().chain(rights.split(' ')).collect();
        redis.query::<String>(&call);
    };
    set(rights);
    let config = format!("{DEMO}{}username = \"gateway\"\npassword = \"${{PW}}\"\n", redis.table());
    let (_folder, path) = file(&config.replace("${PW}", "pw"));
    let warnings = || check(&path, &["--connect"]).stderr;
    let missing = "its user may not run ZADD, ZREMRANGEBYSCORE, ZCARD, PEXPIRE";
    assert!(warnings().contains(missing), "{}", warnings());
    set("+zadd +zremrangebyscore +zcard +pexpire");
    assert_eq!(warnings(), "");
    let quota = "[rules.quota]\nper = [\"ip\"]\nkind = \"fixed_window\"\nlimit = \"9/d\"\n";
    let (_folder, with_quota) = file(&format!("{config}{quota}").replace("${PW}", "pw"));
    let of_quota = || check(&with_quota, &["--connect"]).stderr;
    let missing = "its user may not run HGET, HSET, HINCRBY, HSCAN, HDEL";
    assert!(of_quota().contains(missing), "{}", of_quota());
    set("+hget +hset +hincrby +hscan +hdel");
    assert!(!of_quota().contains("its user may not run"), "{}", of_quota());
    let ban = "[rules.ip]\nper = [\"ip\"]\nrate = \"1/s\"\nban = { after = 9 }\n";
    let (_folder, with_ban) = file(&format!("{config}{ban}").replace("${PW}", "pw"));
    let of_ban = || check(&with_ban, &["--connect"]).stderr;
    let missing = "its user may not run ZREM, ZRANGEBYLEX";
    assert!(of_ban().contains(missing), "{}", of_ban());
    set("+zrem +zrangebylex");
    assert!(!of_ban().contains("its user may not run"), "{}", of_ban());
    set("-set");
    assert!(warnings().contains("a check of limits would fail"), "{}", warnings());
    // Only the bucket of a probe was written.
    let keys: Vec<String> = redis.query(&["KEYS", "*"]);
    assert!(keys.iter().all(|key| key.ends_with(":~probe")), "{keys:?}");

    let (_folder, path) = self::file(&config);
    let outcome = check(&path, &["--connect", "--no-env"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.stdout.contains("Redis was not tried, because"), "{outcome:?}");
}
