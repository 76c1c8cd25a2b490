//! Secrets in files (`${file:…}`): a changed one is reloaded, a bad one changes nothing, and none
//! is shown.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use insta::assert_snapshot;
use tempfile::TempDir;

use crate::support::{
    DEMO, Gateway, Redis, Request, check_file, eventually, free_port, full_config, replace_file,
};

/// Puts something at the path of a secret.
type Make = fn(&Path);

/// Tokens of the admin port, which occur nowhere else.
const ONE: &str = "0ne-s3cret-0f-the-admin-p0rt";
const TWO: &str = "tw0-s3cret-0f-the-admin-p0rt";

/// A folder with a configuration file and its secrets.
struct Folder(TempDir);

impl Folder {
    fn with(config: &str) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.write("gateway.toml", full_config(config));
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }

    fn replace(&self, name: &str, content: impl AsRef<[u8]>) {
        replace_file(self.path(name), content);
    }

    fn start(&self) -> Gateway {
        Gateway::start_on_file(&self.path("gateway.toml"))
    }

    /// What `check` prints about the file, without the path of the folder.
    fn check(&self) -> String {
        let outcome = check_file(&self.path("gateway.toml"));
        (outcome.stdout + &outcome.stderr).replace(&self.0.path().display().to_string(), "FOLDER")
    }
}

/// A gateway whose admin port has the token in the file `token`.
fn with_token(reference: &str) -> String {
    format!("{DEMO}[admin]\ntoken = \"{reference}\"\n")
}

fn status(gateway: &Gateway, token: &str) -> u16 {
    let request = Request::get("/api/status").header("Authorization", format!("Bearer {token}"));
    gateway.send_admin(&request).status
}

#[track_caller]
fn assert_token(gateway: &Gateway, token: &str, previous: &str) {
    let is_taken = || (status(gateway, token) == 200).then_some(());
    eventually("the token to be in force", is_taken);
    assert_eq!(status(gateway, previous), 401);
}

fn reloads(gateway: &Gateway, token: &str) -> serde_json::Value {
    let request = Request::get("/api/reloads").header("Authorization", format!("Bearer {token}"));
    gateway.send_admin(&request).json()
}

#[test]
fn changed_secret_is_reloaded_and_shown_without_its_value() {
    let folder = Folder::with(&with_token("${file:token}"));
    folder.write("token", format!("{ONE}\n"));
    let gateway = folder.start();
    assert_eq!(status(&gateway, ONE), 200);
    folder.write("token", TWO);
    assert_token(&gateway, TWO, ONE);
    folder.replace("token", format!("{ONE}\r\n"));
    assert_token(&gateway, ONE, TWO);
    // Another line break at the end is no change.
    folder.replace("token", ONE);
    crate::support::wait_retry_after(std::time::Duration::from_millis(300));
    assert_eq!((gateway.reloads("applied"), gateway.reloads("rejected")), (2, 0));
    let shown = reloads(&gateway, ONE);
    assert_snapshot!(
        shown["reloads"][0]["changes"].to_string(),
        @r#"[{"kind":"setting","name":"admin.token","what":"secret_changed"}]"#
    );
    let log = eventually("the change in the log", || {
        Some(gateway.log()).filter(|log| log.matches("token: the secret changed").count() == 2)
    });
    for secret in [ONE, TWO] {
        assert!(!log.contains(secret) && !shown.to_string().contains(secret), "{log} {shown}");
    }
}

/// Each version is a folder, and a link in the middle is replaced.
#[test]
fn swapped_kubernetes_secret_is_reloaded() {
    let folder = Folder::with(&with_token("${file:secrets/token}"));
    std::fs::create_dir(folder.path("secrets")).unwrap();
    let mount = |version: &str, token: &str| {
        std::fs::create_dir(folder.path("secrets").join(version)).unwrap();
        folder.write(&format!("secrets/{version}/token"), token);
        symlink(version, folder.path("secrets/..data_tmp")).unwrap();
        std::fs::rename(folder.path("secrets/..data_tmp"), folder.path("secrets/..data")).unwrap();
    };
    mount("..one", ONE);
    symlink("..data/token", folder.path("secrets/token")).unwrap();
    let gateway = folder.start();
    mount("..two", TWO);
    assert_token(&gateway, TWO, ONE);
    std::fs::remove_dir_all(folder.path("secrets/..one")).unwrap();
    mount("..three", ONE);
    assert_token(&gateway, ONE, TWO);
    gateway.wait_for_applied(2);
    assert_eq!(gateway.reloads("rejected"), 0);
}

#[test]
fn bad_secret_keeps_the_previous_one_and_is_reported() {
    let folder = Folder::with(&with_token("${file:token}"));
    folder.write("token", ONE);
    let gateway = folder.start();
    let success = "tollgate_config_last_reload_successful";
    let bad: [&[u8]; 4] =
        [b"", b"sh0rt", b"n0t-text-\xff-and-l0ng-enough", b"nul-\0-and-l0ng-en0ugh"];
    for (number, content) in (1..).zip(bad) {
        folder.replace("token", content);
        let is_seen = || (gateway.reloads("rejected") == number).then_some(());
        eventually("the bad secret to be seen", is_seen);
        assert_eq!((status(&gateway, ONE), gateway.count(success, &[])), (200, 0));
        folder.replace("token", ONE);
        gateway.wait_for_count(success, &[], 1);
    }
    std::fs::remove_file(folder.path("token")).unwrap();
    eventually("the missing secret", || (gateway.reloads("rejected") == 5).then_some(()));
    // It is listed after it is counted.
    let missing = || {
        let shown = reloads(&gateway, ONE)["reloads"][0]["errors"][0].clone();
        shown.to_string().contains("cannot read").then_some(shown)
    };
    let shown = eventually("the missing secret in the list", missing);
    let shown = shown.to_string().replace(&folder.0.path().display().to_string(), "FOLDER");
    assert_snapshot!(shown, @r#"{"column":9,"help":"a relative path begins at the folder of the configuration file","line":15,"message":"cannot read FOLDER/token: No such file or directory (os error 2)"}"#);
    // The present secret stays in force, and a good file is reloaded as soon as it is there.
    assert_eq!(status(&gateway, ONE), 200);
    folder.write("token", TWO);
    assert_token(&gateway, TWO, ONE);
    gateway.wait_for_count(success, &[], 1);
    for text in ["sh0rt", "n0t-text", "nul-"] {
        assert!(!gateway.log().contains(text), "{}", gateway.log());
    }
}

#[test]
fn file_that_names_a_secret_too_early_is_applied_once_it_is_there() {
    let folder = Folder::with(DEMO);
    let gateway = folder.start();
    folder.replace("gateway.toml", full_config(&with_token("${file:token}")));
    eventually("the rejection", || (gateway.reloads("rejected") == 1).then_some(()));
    folder.write("token", ONE);
    // Until then the port needs no token.
    eventually("the token to be applied", || (gateway.reloads("applied") == 1).then_some(()));
    assert_token(&gateway, ONE, TWO);
}

#[test]
fn files_that_are_no_secrets_are_errors_at_their_place() {
    let folder = Folder::with(&with_token("${file:token}"));
    let make: [(&str, Make); 5] = [
        ("missing", |_| {}),
        ("a directory", |path| std::fs::create_dir(path).unwrap()),
        ("a pipe", |path| {
            nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRUSR).unwrap();
        }),
        ("empty", |path| std::fs::write(path, "\n").unwrap()),
        ("large", |path| std::fs::write(path, "a".repeat((64 << 10) + 1)).unwrap()),
    ];
    let mut all = String::new();
    for (name, make) in make {
        let path = folder.path("token");
        if path.is_dir() {
            std::fs::remove_dir(&path).unwrap();
        } else if path.exists() {
            std::fs::remove_file(&path).unwrap();
        }
        make(&path);
        all.extend(["== ", name, "\n", &folder.check()]);
    }
    assert_snapshot!(all);
}

#[test]
fn references_that_name_no_file_are_errors() {
    let mut all = String::new();
    for lines in [
        "[admin]\ntoken = \"${file:}\"",
        "[admin]\ntoken = \"${file:${file:a}}\"",
        "[admin]\ntoken = \"${file:${NOT_SET_ANYWHERE}/a}\"",
        "[redis]\nurl = \"rediss://h\"\nca = \"${file:ca.pem}\"",
        "[access_log]\noutput = \"${file:a}\"",
    ] {
        all += &Folder::with(&format!("{DEMO}{lines}\n")).check();
    }
    assert_snapshot!(all);
}

/// With `systemctl`'s `LoadCredential=`, the folder of the credentials is in a variable.
#[test]
fn path_may_contain_a_variable() {
    let folder = Folder::with(&with_token("${file:${CREDENTIALS_DIRECTORY}/token}"));
    let credentials = tempfile::tempdir().unwrap();
    std::fs::write(credentials.path().join("token"), ONE).unwrap();
    let text = std::fs::read_to_string(folder.path("gateway.toml")).unwrap();
    let gateway = Gateway::start_with(&text, |command| {
        command.env("CREDENTIALS_DIRECTORY", credentials.path());
    });
    assert_eq!(status(&gateway, ONE), 200);
    replace_file(credentials.path().join("token"), TWO);
    assert_token(&gateway, TWO, ONE);
}

/// Rights of the gateway's user, as docs/redis.md lists them.
const RIGHTS: &str = "resetkeys ~tollgate:* resetchannels -@all +ping +eval +evalsha +time +get +set \
                      +zadd +zremrangebyscore +zcard +pexpire";

/// Both passwords are valid during the rotation. The gateway keeps its connection with the previous
/// one and says that the new one needs a restart.
#[test]
fn password_of_redis_is_rotated_by_its_file_while_requests_continue() {
    // Every character that a URL would need encoded.
    let (old, new) = ("0ld/p@ss:w%rd?#[é]", "n3w/p@ss:w%rd?#[é]");
    let port = free_port().to_string();
    let mut redis = Redis::stopped();
    redis.launch_with(|command| {
        command.args(["--port", &port]);
    });
    let set_user = |more: &[&str]| {
        let call: Vec<&str> = ["ACL", "SETUSER", "gateway"].iter().chain(more).copied().collect();
        redis.query::<String>(&call);
    };
    set_user(&["on", &format!(">{old}")]);
    set_user(&RIGHTS.split_whitespace().collect::<Vec<_>>());
    let folder = Folder::with(&format!(
        "{DEMO}[rules.all]\nper = []\nrate = \"100/d\"\n[redis]\ntimeout = \"1s\"\n\
         url = \"redis://gateway:${{file:redis}}@127.0.0.1:{port}\"\n"
    ));
    folder.write("redis", format!("{old}\n"));
    let first = folder.start();
    let send = |gateway: &Gateway, count: usize| {
        (0..count).filter(|_| gateway.get("/").status == 200).count()
    };
    let by_redis =
        |gateway: &Gateway| gateway.count("tollgate_decisions_total", &[("source", "redis")]);
    assert_eq!(send(&first, 20), 20);

    set_user(&[&format!(">{new}")]);
    folder.replace("redis", new);
    let message = "`password` of [redis] cannot change while the gateway runs";
    eventually(message, || first.log().contains(message).then_some(()));
    assert_eq!(send(&first, 20), 20);
    assert_eq!((by_redis(&first), first.reloads("rejected")), (40, 1));
    let answer = first.reload();
    assert_eq!(answer.status, 422);
    assert!(answer.text().contains("the secret that it names has changed"), "{}", answer.text());

    // A rolling restart, then the previous password is withdrawn.
    let second = folder.start();
    assert_eq!(send(&second, 20), 20);
    first.terminate();
    set_user(&[&format!("<{old}")]);
    redis.query::<i64>(&["CLIENT", "KILL", "USER", "gateway"]);
    let lost = "the connection was closed";
    eventually("the loss of the connection", || second.log().contains(lost).then_some(()));
    // The state is shown after the loss is logged, so 0 alone could be that of before.
    second.wait_for_count("tollgate_breaker_transitions_total", &[("to", "closed")], 1);
    second.wait_for_count("tollgate_breaker_state", &[], 0);
    assert_eq!(60 + send(&second, 60), 100);
    for secret in [old, new, "0ld", "n3w"] {
        assert!(!first.log().contains(secret) && !second.log().contains(secret));
        assert!(!answer.text().contains(secret));
    }
}
