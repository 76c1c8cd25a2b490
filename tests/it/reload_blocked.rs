//! Blocked reads of the configuration file, as on a network mount whose server is unreachable. A
//! write lease on the file has the same effect: `open` blocks until the lease ends.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{DEMO, Gateway, TIMEOUT, eventually, full_config, timed, tollgate, within};

/// A write lease on a file: opening the file blocks until it ends, or for 45 s.
struct Lease(Child);

/// Python script: `nix` has no leases, and a direct system call would be `unsafe`.
const HOLD: &str = "\
import fcntl, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = open(sys.argv[1], 'r+')
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('held', flush=True)
sys.stdin.read()
";

impl Lease {
    /// Takes the lease. The kernel refuses while the gateway has the file open, so it may take
    /// more than one attempt.
    fn hold(file: &Path) -> Self {
        eventually("a lease on the file", || {
            let mut command = Command::new("python3");
            command.args(["-c", HOLD]).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.stderr(Stdio::null()).spawn().unwrap();
            let mut word = [0; 4];
            let held = child.stdout.as_mut().unwrap().read_exact(&mut word).is_ok();
            let lease = Self(child);
            held.then_some(lease)
        })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn success(gateway: &Gateway) -> u64 {
    gateway.count("tollgate_config_last_reload_successful", &[])
}

#[test]
fn blocked_read_is_503_and_later_reloads_work() {
    let gateway = Gateway::start(DEMO);
    let lease = Lease::hold(gateway.file());
    let (answer, took) = timed(|| gateway.reload());
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert!(answer.text().contains("took longer than 5 s"), "{}", answer.text());
    assert!(took < TIMEOUT, "{took:?}");
    assert!(gateway.reloads("rejected") >= 1);
    assert_eq!(success(&gateway), 0);
    assert!(gateway.log().contains("took longer than 5 s"), "{}", gateway.log());
    assert_eq!(gateway.get("/").json()["route"], "all");

    // The path now leads to another file. The read of the previous one is still blocked.
    gateway.save(&DEMO.replace("routes.all", "routes.other"));
    eventually("the other file to be taken", || {
        (gateway.get("/").json()["route"] == "other").then_some(())
    });
    assert_eq!(gateway.reload().status, 200);
    assert_eq!(success(&gateway), 1);
    drop(lease);
}

#[test]
fn blocked_reads_are_bounded_and_reloads_work_again_once_they_end() {
    let gateway = Gateway::start(DEMO);
    let lease = Lease::hold(gateway.file());
    // All get a response, none much later than two deadlines.
    std::thread::scope(|scope| {
        let ask = || timed(|| gateway.reload());
        let asking: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        for answered in asking {
            let (answer, took) = answered.join().unwrap();
            assert_eq!(answer.status, 503, "{}", answer.text());
            assert!(took < Duration::from_secs(15), "{took:?}");
        }
    });
    gateway.sighup();
    // More attempts than allowed blocked reads: the last ones are rejected without a read.
    let refused = within(2 * TIMEOUT, || {
        let answer = gateway.reload();
        assert_eq!(answer.status, 503, "{}", answer.text());
        answer.text().contains("are still blocked").then_some(())
    });
    assert!(refused.is_some(), "each reload began another read");
    assert_eq!(gateway.get("/").status, 200);
    drop(lease);
    eventually("reloads to work again", || (gateway.reload().status == 200).then_some(()));
    assert_eq!(success(&gateway), 1);
    gateway.apply(&DEMO.replace("routes.all", "routes.other"));
    assert_eq!(gateway.get("/").json()["route"], "other");
}

#[test]
fn blocked_read_of_a_certificate_does_not_block_reloads() {
    let gateway = Gateway::start(DEMO);
    let pipe = gateway.file().with_file_name("ca.pem");
    make_pipe(&pipe);
    let tracing =
        format!("[tracing]\nendpoint = \"https://127.0.0.1:1\"\nca = \"{}\"\n", pipe.display());
    gateway.save(&format!("{DEMO}{tracing}"));
    let answer = gateway.reload();
    assert_eq!(answer.status, 503, "{}", answer.text());
    gateway.save(&DEMO.replace("routes.all", "routes.other"));
    eventually("a file without the certificate to be taken", || {
        (gateway.get("/").json()["route"] == "other").then_some(())
    });
}

#[test]
fn blocked_read_of_a_secret_does_not_block_reloads() {
    let folder = tempfile::tempdir().unwrap();
    let (file, secret) = (folder.path().join("gateway.toml"), folder.path().join("salt"));
    std::fs::write(&secret, "0123456789abcdef").unwrap();
    let log = "[access_log]\noutput = \"off\"\nsalt = \"${file:salt}\"\n";
    std::fs::write(&file, full_config(&format!("{DEMO}{log}"))).unwrap();
    let gateway = Gateway::start_on_file(&file);
    let lease = Lease::hold(&secret);
    let answer = gateway.reload();
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.text().contains("or a file that it names, took longer than 5 s"));
    assert_eq!((gateway.get("/").status, success(&gateway)), (200, 0));
    gateway.save(&DEMO.replace("routes.all", "routes.other"));
    eventually("a file without the secret to be taken", || {
        (gateway.get("/").json()["route"] == "other").then_some(())
    });
    drop(lease);
}

#[test]
fn start_with_a_blocked_file_exits_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("gateway.toml");
    make_pipe(&pipe);
    std::thread::scope(|scope| {
        for subcommand in ["check", "run"] {
            let path = pipe.to_str().unwrap();
            scope.spawn(move || {
                let outcome = tollgate(&[subcommand, "-c", path], "");
                assert_eq!(outcome.code, Some(64), "{subcommand}: {outcome:?}");
                assert!(outcome.stderr.contains("took longer than 10 s"), "{outcome:?}");
            });
        }
    });
    // A pipe with a writer can be read like a file.
    let outcome = tollgate(&["check", "-c", "/dev/stdin"], &full_config(DEMO));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}
