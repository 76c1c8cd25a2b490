//! The program under test.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::child::Child;
use super::http::{Connection, Request, Response};
use super::openapi;
use super::wait::{eventually, timed};

/// A running gateway.
pub(crate) struct Gateway {
    /// Where clients connect.
    pub(crate) address: SocketAddr,
    /// Where the operator connects.
    pub(crate) admin: SocketAddr,
    child: Child,
    config: String,
    file: PathBuf,
    /// Lives as long as the gateway, where the file is ours.
    _folder: Option<TempDir>,
}

/// How a call of the program ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The exit code; none where a signal ended it, as a panic in an abort would.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Ports that the kernel chooses, and threads enough for two requests to meet.
const SERVER: &str = "[server]\nlisten = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nthreads = 2\n";

/// A whole file from one that begins inside `[server]`.
pub(crate) fn whole(config: &str) -> String {
    format!("{SERVER}{config}")
}

impl Gateway {
    /// Starts a gateway on `config`, which begins inside `[server]`: ports are already there.
    pub(crate) fn start(config: &str) -> Self {
        Self::start_whole(&whole(config))
    }

    /// Starts a gateway on a whole file.
    pub(crate) fn start_whole(config: &str) -> Self {
        Self::start_logging(config, "info")
    }

    /// Starts a gateway on a whole file that logs what `TOLLGATE_LOG` asks for.
    pub(crate) fn start_logging(config: &str, wanted: &str) -> Self {
        Self::start_by(config, |command| {
            command.env("TOLLGATE_LOG", wanted);
        })
    }

    /// Starts a gateway on a whole file, with its command completed.
    pub(crate) fn start_by(config: &str, complete: impl FnOnce(&mut Command)) -> Self {
        conforms(config);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gateway.toml");
        std::fs::write(&file, config).unwrap();
        Self::run(&file, Some(folder), complete)
    }

    /// Starts a gateway on a file of somebody else's.
    pub(crate) fn start_on(file: &Path) -> Self {
        Self::run(file, None, |_| {})
    }

    fn run(file: &Path, folder: Option<TempDir>, complete: impl FnOnce(&mut Command)) -> Self {
        let config = std::fs::read_to_string(file).unwrap();
        let mut command = program();
        command.arg("run").arg("-c").arg(file);
        complete(&mut command);
        let mut child = Child::start(&mut command, "cargo build");
        let addresses = child.wait_for(|log| {
            Some((after(log, "listening on http://")?, after(log, "admin port on http://")?))
        });
        let Some((address, admin)) = addresses else {
            panic!("the gateway did not start\n{}", story(&config, &child.log()));
        };
        Self { address, admin, child, config, file: file.to_owned(), _folder: folder }
    }

    /// The file that it was started on.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Saves another file in its place, as most editors do: written beside it, then renamed. It
    /// begins inside `[server]`.
    pub(crate) fn save(&self, config: &str) {
        let new = self.file.with_extension("new");
        std::fs::write(&new, whole(config)).unwrap();
        std::fs::rename(new, &self.file).unwrap();
    }

    /// Has the file read again and returns the answer.
    #[track_caller]
    pub(crate) fn reload(&self) -> Response {
        self.ask_admin(&Request::new("POST", "/api/reload"))
    }

    /// Saves another file and has it read; it must be taken.
    #[track_caller]
    pub(crate) fn take(&self, config: &str) {
        self.save(config);
        let answer = self.reload();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// How many files were taken or rejected.
    pub(crate) fn reloads(&self, result: &str) -> u64 {
        self.count("tollgate_config_reloads_total", &[("result", result)])
    }

    /// Sends one request on a connection of its own and reads the answer.
    #[track_caller]
    pub(crate) fn send(&self, request: &Request) -> Response {
        self.connect().send(request)
    }

    /// `GET path` on a connection of its own.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Response {
        self.send(&Request::get(path))
    }

    /// A new connection.
    #[track_caller]
    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    /// Where `path` is, for clients that take URLs.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The answer of the admin port.
    pub(crate) fn admin(&self, path: &str) -> Response {
        self.ask_admin(&Request::get(path))
    }

    /// The admin port's answer to a request, which must be one that its document has.
    #[track_caller]
    pub(crate) fn ask_admin(&self, request: &Request) -> Response {
        let answer = Connection::open(self.admin).send(&request.at(self.admin));
        openapi::documented(request.method(), request.target(), &answer);
        answer
    }

    /// What the admin port says would become of the request in `body`.
    pub(crate) fn explain(&self, body: impl AsRef<[u8]>) -> Response {
        self.ask_admin(&Request::new("POST", "/api/explain").body(body))
    }

    /// All metrics as text.
    pub(crate) fn metrics(&self) -> String {
        self.admin("/metrics").text()
    }

    /// The sum of the series of whole numbers `name` that have all these labels.
    pub(crate) fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let wanted: Vec<_> =
            labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
        let metrics = self.metrics();
        let value = |line: &str| {
            let (series, value) = line.rsplit_once(' ')?;
            let (own_name, own_labels) = series.split_once('{').unwrap_or((series, "}"));
            let own_labels: Vec<_> = own_labels.trim_end_matches('}').split(',').collect();
            let matches = own_name == name && wanted.iter().all(|w| own_labels.contains(&&**w));
            matches.then(|| value.parse::<u64>().unwrap())
        };
        metrics.lines().filter_map(value).sum()
    }

    /// Waits until the sum of series is `expected`.
    #[track_caller]
    pub(crate) fn wait_for_count(&self, name: &str, labels: &[(&str, &str)], expected: u64) {
        let is_there = || (self.count(name, labels) == expected).then_some(());
        eventually(&format!("{name}{labels:?} to be {expected}"), is_there);
    }

    /// Bytes of memory in use now, and the most that ever were.
    pub(crate) fn memory_bytes(&self) -> (u64, u64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let kib = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        };
        (kib("VmRSS:") * 1024, kib("VmHWM:") * 1024)
    }

    /// Everything it has logged.
    pub(crate) fn log(&self) -> String {
        self.child.log()
    }

    /// Sends SIGTERM and returns at once.
    pub(crate) fn terminate(&self) {
        self.signal("-TERM");
    }

    /// Sends SIGHUP and returns at once.
    pub(crate) fn hang_up(&self) {
        self.signal("-HUP");
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// Waits for its end: the exit code, and how long that took.
    #[track_caller]
    pub(crate) fn exit(&mut self) -> (Option<i32>, Duration) {
        let (status, took) = timed(|| self.child.exit());
        (status.expect("the gateway should end").code(), took)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", story(&self.config, &self.child.log()));
        }
    }
}

/// A file that a gateway starts on is one that editors take for a good one.
fn conforms(config: &str) {
    const SCHEMA: &str = include_str!("../../../docs/gateway.schema.json");

    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    let name = "http://localhost/schema.json";
    compiler.add_resource(name, serde_json::from_str(SCHEMA).unwrap()).unwrap();
    let index = compiler.compile(name, &mut schemas).unwrap();
    let file = toml::from_str(config).unwrap();
    if let Err(wrong) = schemas.validate(&file, index) {
        panic!("{wrong:#}\n{config}");
    }
}

/// Runs the program to its end.
pub(crate) fn tollgate(arguments: &[&str], stdin: &str) -> Outcome {
    use std::io::Write as _;

    let mut command = program();
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    // A program that reads nothing may end before all is written.
    let _ = process.stdin.take().unwrap().write_all(stdin.as_bytes());
    let output = process.wait_with_output().unwrap();
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// `tollgate check` on a file with this content.
pub(crate) fn check(content: &[u8]) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    std::fs::write(&file, content).unwrap();
    check_file(&file)
}

/// `tollgate check` on a file.
pub(crate) fn check_file(file: &Path) -> Outcome {
    tollgate(&["check", "-c", file.to_str().unwrap()], "")
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    // Whoever runs the tests may have set it for a gateway of their own.
    command.env_remove("TOLLGATE_LOG").env("NO_COLOR", "1");
    command
}

/// What one needs to see a failure again by hand.
fn story(config: &str, log: &str) -> String {
    let program = env!("CARGO_BIN_EXE_tollgate");
    format!(
        "--- gateway.toml, for `{program} run -c gateway.toml` ---\n{config}\n\
         --- what the gateway logged ---\n{log}\n---"
    )
}

/// The address behind `words` in a log.
fn after(log: &str, words: &str) -> Option<SocketAddr> {
    let rest = log.split_once(words)?.1;
    let (address, _) = rest.split_once(|c: char| c.is_whitespace() || c == '\u{1b}')?;
    address.parse().ok()
}
