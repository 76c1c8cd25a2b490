//! Outputs of the access log, and that a failing output of it or of the log of the process delays
//! no request.

use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::{lines, place, table};
use crate::support::{
    ClosedPort, Connection, DEMO, Gateway, Request, each_below, eventually, free_port, full_config,
    tollgate,
};

#[test]
fn reload_starts_moves_and_stops_the_access_log() {
    let (_folder, path) = place();
    let other = path.with_extension("other");
    let gateway = Gateway::start(DEMO);
    gateway.get("/1");
    gateway.apply(&format!("{DEMO}{}", table(&path, "")));
    gateway.get("/2");
    assert_eq!(lines(&path, 1)[0]["path"], "/2");
    gateway.apply(&format!("{DEMO}{}", table(&other, "")));
    gateway.get("/3");
    assert_eq!(lines(&other, 1)[0]["path"], "/3");
    // An output that cannot be written to is an error of the file, which changes nothing.
    gateway.save(&format!("{DEMO}{}", table(Path::new("/none/access.log"), "")));
    let answer = gateway.reload();
    assert_eq!(answer.status, 422);
    assert!(answer.text().contains("the access log cannot be written"), "{}", answer.text());
    gateway.get("/4");
    lines(&other, 2);
    gateway.apply(DEMO);
    gateway.get("/5");
    assert_eq!((lines(&path, 1).len(), lines(&other, 2).len()), (1, 2));
}

#[test]
fn output_that_cannot_be_written_is_an_error_at_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    let name = |name: &str| folder.path().join(name);
    std::fs::write(name("file"), "").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(name("socket")).unwrap();
    let here = folder.path().display();
    let socket = format!("`{here}/socket` is a socket; a file or a named pipe can be written to");
    let table = [
        ("/none/access.log".into(), "the folder `/none` does not exist".to_owned()),
        (name("file/access.log"), format!("`{here}/file/access.log`: not a directory")),
        (folder.path().to_owned(), format!("`{here}` is a folder")),
        (name("socket"), socket),
    ];
    for (path, problem) in table {
        let log = super::table(&path, "");
        std::fs::write(&file, full_config(&format!("{DEMO}{log}"))).unwrap();
        for command in ["run", "check"] {
            let outcome = tollgate(&[command, "-c", file.to_str().unwrap()], "");
            assert_eq!(outcome.code, Some(64), "{outcome:?}");
            let expected = format!("error: the access log cannot be written: {problem}");
            assert!(outcome.stderr.contains(&expected), "{expected}\n{}", outcome.stderr);
            assert!(outcome.stderr.contains("| output = "), "{}", outcome.stderr);
        }
    }
}

#[test]
fn sigterm_flushes_the_access_log() {
    let mut gateway = Gateway::start(&format!("{DEMO}[access_log]\n"));
    let mut client = gateway.connect();
    for number in 0..200 {
        client.send(&Request::get(&format!("/{number}")));
    }
    gateway.terminate();
    assert_eq!(gateway.exit().0, Some(0));
    // Another thread reads the output of the process.
    let last = || gateway.log().contains("\"path\":\"/199\"").then_some(());
    eventually("the last line", last);
    let log = gateway.log();
    let lines = log.lines().filter(|line| line.starts_with('{'));
    let lines: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 200);
}

#[test]
fn sighup_reopens_a_renamed_access_log() {
    let (_folder, path) = place();
    let gateway = Gateway::start(&format!("{DEMO}{}", table(&path, "")));
    gateway.get("/before");
    lines(&path, 1);
    let renamed = path.with_extension("1");
    std::fs::rename(&path, &renamed).unwrap();
    gateway.get("/between");
    lines(&renamed, 2);
    gateway.sighup();
    eventually("the new file", || path.exists().then_some(()));
    gateway.get("/after");
    assert_eq!(lines(&path, 1)[0]["path"], "/after");
    assert_eq!(lines(&renamed, 2)[1]["path"], "/between");
    assert_eq!(gateway.count("tollgate_access_log_dropped_total", &[]), 0);
}

#[test]
fn row_74_full_disk_drops_lines_and_delays_no_request() {
    let gateway = Gateway::start(&format!("{DEMO}{}", table(Path::new("/dev/full"), "")));
    for _ in 0..10 {
        assert_eq!(gateway.get("/").status, 200);
    }
    // A partly written line waits for space for its rest; here no line begins to be written.
    gateway.wait_for_count("tollgate_access_log_dropped_total", &[], 10);
    // Lines are counted just before the log says so.
    let complaints = || gateway.log().matches("the access log cannot be written").count();
    eventually("a line of the log", || (complaints() > 0).then_some(()));
    assert_eq!(complaints(), 1, "{}", gateway.log());
}

#[test]
fn row_74_stopped_reader_of_the_access_log_delays_no_request() {
    let (_folder, path) = place();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let mut gateway = Gateway::start(&format!("{DEMO}{}", table(&path, "")));
    // The reader opens the pipe and never reads.
    let reader = std::fs::File::open(&path).unwrap();
    let mut client = gateway.connect();
    let dropped = "tollgate_access_log_dropped_total";
    let path = format!("/{}", "long".repeat(500));
    // The queue holds 4 MiB, about 1,700 lines; further lines are dropped.
    for _ in 0..32 {
        each_below(Duration::from_millis(500), 100, |_| {
            assert_eq!(client.send(&Request::get(&path)).status, 200);
        });
    }
    assert!(gateway.count(dropped, &[]) > 1_000, "{}", gateway.count(dropped, &[]));
    gateway.terminate();
    assert_eq!(gateway.exit_below(Duration::from_secs(4)), Some(0));
    drop(reader);
}

/// The log of the process fills the pipe of standard error. The first failure of each upstream is
/// a line.
#[test]
fn row_74_stopped_reader_of_the_log_delays_no_request() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    let [listen, admin] =
        [free_port(), free_port()].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let server = format!("[server]\nlisten = [\"{listen}\"]\nadmin = \"{admin}\"\n");
    let closed = ClosedPort::bind();
    let address = closed.address;
    let routes = (0..1_500).map(|n| {
        format!(
            "[upstreams.u{n}]\nservers = [\"{address}\"]\nretries = {{ count = 0 }}\n\
             [routes.r{n}]\npath = \"/{n}\"\nupstream = \"u{n}\"\n"
        )
    });
    let routes: Vec<String> = routes.collect();
    std::fs::write(&file, format!("{server}{}", routes.concat())).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(["run", "-c"]).arg(&file).env_remove("TOLLGATE_LOG").stderr(Stdio::piped());
    let mut process = Killed(command.spawn().unwrap());
    eventually("the gateway", || TcpStream::connect(listen).ok());
    for hundred in 0..15 {
        each_below(Duration::from_secs(3), 100, |n| {
            let get = Request::get(&format!("/{}", 100 * hundred + n));
            assert_eq!(Connection::open(listen).send(&get).status, 502);
        });
    }
    let metrics = Connection::open(admin).send(&Request::get("/metrics")).text();
    let dropped = metrics.lines().find_map(|line| line.strip_prefix("tollgate_log_dropped_total "));
    assert!(dropped.unwrap().parse::<u64>().unwrap() > 0, "{metrics}");
    kill(Pid::from_raw(process.0.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    let status = eventually("the end of the process", || process.0.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
    let mut log = String::new();
    process.0.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(log.contains("request failed") && log.ends_with('\n'), "{log}");
}

/// A process that is killed when the test ends.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn access_log_file_is_not_readable_by_other_users() {
    use std::os::unix::fs::PermissionsExt as _;

    let (_folder, path) = place();
    let gateway = Gateway::start(&format!("{DEMO}{}", table(&path, "")));
    gateway.get("/");
    lines(&path, 1);
    let mode = path.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777 & !0o640, 0, "{mode:o}");
}
