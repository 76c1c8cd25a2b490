//! `tollgate top`: once as text, and live on a terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use parking_lot::Mutex;

use crate::support::{
    ClosedPort, DEMO, Gateway, Upstream, eventually, free_port, full_config, key, tollgate,
};

const RULES: &str = "[rules.per-key]\nper = [\"key\"]\nrate = \"3/d\"\n";

const TOKEN: &str = "0123456789abcdef-token";

fn once(admin: &str) -> crate::support::Outcome {
    tollgate(&["top", "--once", "--admin", admin], "")
}

fn gateway() -> Gateway {
    let gateway = Gateway::start(&format!("{DEMO}{RULES}{}", key("acme", "secret", "free")));
    for _ in 0..5 {
        gateway.get("/");
    }
    gateway
}

#[test]
fn once_has_the_requests_of_the_second_in_progress() {
    let gateway = Gateway::start(DEMO);
    // A second without requests, which alone would show a rate of 0.
    eventually("a sample", || {
        let samples = gateway.admin("/api/samples?from=1m").json();
        (!samples["samples"].as_array().unwrap().is_empty()).then_some(())
    });
    for _ in 0..20 {
        assert_eq!(gateway.get("/").status, 200);
    }
    let page = once(&gateway.admin.to_string()).stdout;
    let line = page.lines().find(|line| line.starts_with("requests ")).unwrap();
    assert!(!line.contains(" 0.0/s: allowed"), "{page}");
}

#[test]
fn once_prints_everything_as_text() {
    let gateway = gateway();
    let outcome = once(&gateway.admin.to_string());
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    for line in [
        format!("tollgate   {} at {}, up ", env!("CARGO_PKG_VERSION"), gateway.admin),
        "file       generation 1, no reload since the start\n".to_owned(),
        "redis      none\n".to_owned(),
        "requests   ".to_owned(),
        "responses  ".to_owned(),
    ] {
        assert!(outcome.stdout.contains(&line), "{line}\n{}", outcome.stdout);
    }
    let has = |words: &[&str]| {
        let mut lines = outcome.stdout.lines();
        lines.any(|line| line.split_whitespace().eq(words.iter().copied()))
    };
    assert!(has(&["ip", "127.0.0.1", "per-key", "5", "2"]), "{}", outcome.stdout);
    // The totals agree, also if the rates are those of several seconds.
    let rates = |line: &str| {
        let line = outcome.stdout.lines().find(|found| found.starts_with(line)).unwrap();
        let words = line.split([' ', ',', ';']);
        let rates = words.filter_map(|word| {
            word.trim_end_matches([':', '/']).trim_end_matches("/s").parse().ok()
        });
        rates.collect::<Vec<f64>>()
    };
    let requests = rates("requests ");
    assert!((requests[0] - requests[1] - requests[2]).abs() < 0.2, "{}", outcome.stdout);
    assert!(has(&["api", "demo", "-"]), "{}", outcome.stdout);
    // Output that is not a terminal gets text.
    let piped = tollgate(&["top", "--admin", &format!("http://{}", gateway.admin)], "");
    assert_eq!((piped.code, piped.stdout.contains('\u{1b}')), (Some(0), false));
}

#[test]
fn top_reads_address_and_token_from_the_file() {
    let admin = format!("[admin]\ntoken = \"{TOKEN}\"\n");
    let gateway = Gateway::start(&format!("{DEMO}{admin}"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    let text = full_config(&format!("{DEMO}{admin}"));
    let text =
        text.replacen("admin = \"127.0.0.1:0\"", &format!("admin = \"{}\"", gateway.admin), 1);
    std::fs::write(&file, text).unwrap();
    let outcome = tollgate(&["top", "-c", file.to_str().unwrap()], "");
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.contains(&gateway.admin.to_string()));

    let token_file = folder.path().join("token");
    let at = gateway.admin.to_string();
    let by_file = |token: &str| {
        std::fs::write(&token_file, token).unwrap();
        tollgate(&["top", "--admin", &at, "--token-file", token_file.to_str().unwrap()], "")
    };
    assert_eq!(by_file(&format!("{TOKEN}\n")).code, Some(0));
    let wrong = by_file("another-token-of-16");
    assert_eq!(wrong.code, Some(64));
    assert_eq!(wrong.stderr, format!("error: the token is not the one that {at} asks for\n"));
    let none = once(&at);
    assert_eq!(none.code, Some(64));
    assert!(none.stderr.contains("--token-file or TOLLGATE_ADMIN_TOKEN"), "{}", none.stderr);
    for output in [&outcome.stdout, &wrong.stderr, &none.stderr] {
        assert!(
            !output.contains("0123456789abcdef") && !output.contains("another-token"),
            "{output}"
        );
    }
}

#[test]
fn top_reads_the_default_file_if_there_is_one() {
    let gateway = Gateway::start(DEMO);
    let folder = tempfile::tempdir().unwrap();
    let top = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.current_dir(folder.path()).args(["top", "--once"]).args(arguments);
        let output = command.env_remove("TOLLGATE_ADMIN_TOKEN").output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let closed = ClosedPort::bind().address.to_string();
    let (_, _, without_file) = top(&["--admin", &closed]);
    assert!(without_file.contains(&format!("no gateway answers at {closed}")), "{without_file}");
    let file = folder.path().join("gateway.toml");
    let text = full_config(DEMO);
    let admin = format!("admin = \"{}\"", gateway.admin);
    std::fs::write(&file, text.replacen("admin = \"127.0.0.1:0\"", &admin, 1)).unwrap();
    let (code, page, error) = top(&[]);
    assert_eq!(code, Some(0), "{error}");
    assert!(page.contains(&format!("at {}", gateway.admin)), "{page}");
    std::fs::write(&file, "[servr]\n").unwrap();
    let (code, _, error) = top(&[]);
    assert_eq!(code, Some(64));
    assert!(error.contains("gateway.toml:1") && error.contains("`server`"), "{error}");
    // The address is given, so the file is not read.
    assert_eq!(top(&["--admin", &gateway.admin.to_string()]).0, Some(0));
}

#[test]
fn top_reports_a_missing_gateway_or_another_server() {
    let missing = once(&format!("127.0.0.1:{}", free_port()));
    assert_eq!(missing.code, Some(69));
    assert!(missing.stderr.starts_with("error: no gateway answers at 127.0.0.1:"));
    let answers: [(&str, &str); 4] = [
        ("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", "is not tollgate's admin port"),
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "it answers 404"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "missing field"),
        ("220 mail.example ESMTP\r\n\r\n", "is not tollgate's admin port"),
    ];
    for (answer, expected) in answers {
        let other = Upstream::responding(answer);
        let outcome = once(&other.address.to_string());
        assert_eq!(outcome.code, Some(69), "{answer}");
        assert!(outcome.stderr.contains(expected), "{answer}: {}", outcome.stderr);
    }
    for (admin, expected) in
        [("https://h", "ssh -L"), ("http://h/x", "path"), ("a b", "not an address")]
    {
        let outcome = once(admin);
        assert_eq!(outcome.code, Some(64), "{admin}");
        assert!(outcome.stderr.contains(expected), "{admin}: {}", outcome.stderr);
    }
    let outcome = tollgate(&["top", "-c", "/nonexistent/gateway.toml"], "");
    assert_eq!(outcome.code, Some(64));
}

/// The program on a pseudo-terminal.
struct Live {
    child: Child,
    terminal: File,
    /// Our side of the pseudo-terminal, which keeps it open after the program has exited.
    inside: std::os::fd::OwnedFd,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Live {
    fn start(admin: &str) -> Self {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let OpenptyResult { master, slave } = openpty(Some(&size), None).unwrap();
        let inside = || Stdio::from(slave.try_clone().unwrap());
        // In its own session, so that it does not use the terminal of the test run.
        let mut command = Command::new("setsid");
        command.arg(env!("CARGO_BIN_EXE_tollgate")).args(["top", "--admin", admin]);
        command.stdin(inside()).stdout(inside()).stderr(inside()).env("TERM", "xterm");
        command.env_remove("TOLLGATE_ADMIN_TOKEN");
        let child = command.spawn().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut reader = File::from(master.try_clone().unwrap());
        let written = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count) = reader.read(&mut buffer) {
                written.lock().extend_from_slice(&buffer[..count]);
            }
        });
        Self { child, terminal: master.into(), inside: slave, seen }
    }

    fn press(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    /// Forgets what was on the screen so far.
    fn forget(&self) {
        self.seen.lock().clear();
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock()).into_owned()
    }

    /// Waits until the screen contains these words in one piece.
    #[track_caller]
    fn wait_for(&self, words: &str) {
        eventually(words, || self.text().contains(words).then_some(()));
    }

    fn echoes(&self) -> bool {
        tcgetattr(&self.inside).unwrap().local_flags.contains(LocalFlags::ECHO)
    }

    /// Waits until the program exits, and checks that the terminal is restored.
    #[track_caller]
    fn ended(&mut self) -> Option<i32> {
        let code = self.child.wait().unwrap().code();
        assert!(self.echoes());
        let leaves = |text: &String| text.contains("\u{1b}[?1049l") && text.contains("\u{1b}[?25h");
        eventually("the first screen and the cursor", || leaves(&self.text()).then_some(()));
        code
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn live_view_draws_handles_keys_and_restores_the_terminal() {
    let gateway = gateway();
    let mut live = Live::start(&gateway.admin.to_string());
    live.wait_for("allowed/s, the last 5 min");
    assert!(!live.echoes());
    live.press("2");
    live.wait_for("ip 127.0.0.1");
    live.press("\r");
    live.wait_for("0 / 3");
    live.press("\u{1b}");
    live.press("4");
    live.wait_for("Upstreams,");
    live.forget();
    live.press("5");
    live.wait_for("first");
    live.press("?");
    live.wait_for("Keys");
    live.press("xq");
    assert_eq!(live.ended(), Some(0));
}

#[test]
fn live_view_waits_for_a_gateway_and_ends_on_a_signal() {
    let mut gateway = gateway();
    let at = gateway.admin.to_string();
    let live = &mut Live::start(&at);
    live.wait_for("generation");
    gateway.terminate();
    gateway.exit();
    live.wait_for("no gateway answers");
    kill(Pid::from_raw(live.child.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(live.ended(), Some(0));
    // Ctrl-C without a gateway.
    let mut live = Live::start(&at);
    live.wait_for("no gateway answers");
    live.press("\u{3}");
    assert_eq!(live.ended(), Some(0));
}
