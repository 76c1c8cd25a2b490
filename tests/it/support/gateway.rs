//! Runs the program under test.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::child::{Child, is_busy, is_running};
use super::documented;
use super::files::replace_file;
use super::http::{Connection, Request, Response};
use super::openapi;
use super::wait::{TIMEOUT, Timestamp, eventually, timed, timed_below, within};

/// A running gateway.
pub(crate) struct Gateway {
    /// Address for clients.
    pub(crate) address: SocketAddr,
    /// Address of the admin port.
    pub(crate) admin: SocketAddr,
    child: Child,
    config: String,
    file: PathBuf,
    /// Folder of the file, if the fixture created it.
    _folder: Option<TempDir>,
}

/// Result of a run of the program.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The exit code; `None` if a signal ended the process.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Ports chosen by the kernel, and two threads, so that requests run concurrently.
const SERVER: &str = "[server]\nlisten = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nthreads = 2\n";

/// Adds the beginning of the `[server]` table to a configuration that continues it.
pub(crate) fn full_config(config: &str) -> String {
    format!("{SERVER}{config}")
}

impl Gateway {
    /// Starts a gateway on `config`, which continues the `[server]` table; the ports are added.
    pub(crate) fn start(config: &str) -> Self {
        Self::start_full(&full_config(config))
    }

    /// Starts a gateway on a complete configuration.
    pub(crate) fn start_full(config: &str) -> Self {
        Self::start_logging(config, "info")
    }

    /// Starts a gateway on a complete configuration with this value of `TOLLGATE_LOG`.
    pub(crate) fn start_logging(config: &str, level: &str) -> Self {
        Self::start_with(config, |command| {
            command.env("TOLLGATE_LOG", level);
        })
    }

    /// Starts a gateway on a complete configuration with a modified command.
    pub(crate) fn start_with(config: &str, modify: impl FnOnce(&mut Command)) -> Self {
        assert_matches_schema(config);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gateway.toml");
        std::fs::write(&file, config).unwrap();
        Self::run(program(), &file, Some(folder), modify)
    }

    /// Starts a gateway in a mount namespace of its own, after the shell commands `setup`. `None`:
    /// this user cannot create one, or `setup` fails.
    pub(crate) fn start_in_namespace(setup: &str, config: &str) -> Option<Self> {
        let script = format!("{setup} && exec \"$0\" \"$@\"");
        let unshare = |flags: &str| {
            let mut command = Command::new("unshare");
            command.args([flags, "sh", "-c", &script]);
            command
        };
        let works = |flags: &&str| {
            let output = unshare(flags).arg("true").output();
            output.is_ok_and(|output| output.status.success())
        };
        let flags = ["--mount", "-mUr"].into_iter().find(works)?;
        Some(Self::start_with(config, |command| {
            let mut inside = unshare(flags);
            inside.arg(command.get_program()).args(command.get_args());
            inside.env_remove("TOLLGATE_LOG").env("NO_COLOR", "1");
            *command = inside;
        }))
    }

    /// Starts a gateway on an existing file.
    pub(crate) fn start_on_file(file: &Path) -> Self {
        Self::run(program(), file, None, |_| {})
    }

    /// Starts this program, which behaves like the gateway, on a complete configuration.
    pub(crate) fn start_program(program: &Path, config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gateway.toml");
        std::fs::write(&file, config).unwrap();
        Self::run(command(program), &file, Some(folder), |_| {})
    }

    fn run(
        mut command: Command,
        file: &Path,
        folder: Option<TempDir>,
        modify: impl FnOnce(&mut Command),
    ) -> Self {
        let config = std::fs::read_to_string(file).unwrap();
        command.arg("run").arg("-c").arg(file);
        modify(&mut command);
        let mut child = Child::start(&mut command, "cargo build");
        let addresses = child
            .wait_for(|log| Some((*listening(log).first()?, after(log, "admin port on http://")?)));
        let Some((address, admin)) = addresses else {
            panic!("the gateway did not start\n{}", failure_report(&config, &child.log()));
        };
        Self { address, admin, child, config, file: file.to_owned(), _folder: folder }
    }

    /// Address of the TCP listener with this index, in the order of the file.
    pub(crate) fn listener(&self, index: usize) -> SocketAddr {
        self.listeners()[index]
    }

    /// Addresses of all TCP listeners, in the order of the file.
    pub(crate) fn listeners(&self) -> Vec<SocketAddr> {
        listening(&self.log())
    }

    /// The configuration that the gateway was started with.
    pub(crate) fn config(&self) -> &str {
        &self.config
    }

    /// The file that the gateway was started with.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Replaces the file as most editors do: writes a new file and renames it. `config` continues
    /// the `[server]` table.
    pub(crate) fn save(&self, config: &str) {
        replace_file(&self.file, full_config(config));
    }

    /// Reloads by the admin API and returns the response.
    #[track_caller]
    pub(crate) fn reload(&self) -> Response {
        self.send_admin(&Request::new("POST", "/api/reload"))
    }

    /// Replaces the file and reloads. Panics if the file is rejected.
    #[track_caller]
    pub(crate) fn apply(&self, config: &str) {
        self.save(config);
        let answer = self.reload();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// Number of reloads with this result.
    pub(crate) fn reloads(&self, result: &str) -> u64 {
        self.count("tollgate_config_reloads_total", &[("result", result)])
    }

    /// Waits until so many files have been applied: each is counted shortly after requests use it.
    #[track_caller]
    pub(crate) fn wait_for_applied(&self, expected: u64) {
        let name = "tollgate_config_reloads_total";
        self.wait_for_count(name, &[("result", "applied")], expected);
    }

    /// Sends one request on a new connection and reads the response.
    #[track_caller]
    pub(crate) fn send(&self, request: &Request) -> Response {
        self.connect().send(request)
    }

    /// Sends `GET path` on a new connection.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Response {
        self.send(&Request::get(path))
    }

    /// Opens a connection.
    #[track_caller]
    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    /// URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Sends `GET path` to the admin port.
    pub(crate) fn admin(&self, path: &str) -> Response {
        self.send_admin(&Request::get(path))
    }

    /// Sends a request to the admin port. The response must match the OpenAPI document.
    #[track_caller]
    pub(crate) fn send_admin(&self, request: &Request) -> Response {
        let answer = Connection::open(self.admin).send(&request.at(self.admin));
        openapi::assert_documented(request.method(), request.target(), &answer);
        answer
    }

    /// The endpoints of the first upstream, as the admin API shows them.
    pub(crate) fn endpoints(&self) -> Vec<serde_json::Value> {
        let all = self.admin("/api/upstreams").json();
        all["upstreams"][0]["addresses"].as_array().unwrap().clone()
    }

    /// The endpoints of the upstream with this name.
    pub(crate) fn endpoints_of(&self, upstream: &str) -> Vec<serde_json::Value> {
        let all = self.admin("/api/upstreams").json();
        let mut all = all["upstreams"].as_array().unwrap().iter();
        let own = all.find(|it| it["name"] == upstream).unwrap();
        own["addresses"].as_array().unwrap().clone()
    }

    /// Sends `body` to `POST /api/explain`.
    pub(crate) fn explain(&self, body: impl AsRef<[u8]>) -> Response {
        self.send_admin(&Request::new("POST", "/api/explain").body(body))
    }

    /// All metrics as text.
    pub(crate) fn metrics(&self) -> String {
        self.admin("/metrics").text()
    }

    /// Sum of the series `name` that have all these labels; 0 if there is none yet. Panics if
    /// docs/metrics.md has no such metric, or not with these labels. Values must be integers.
    ///
    /// A request is counted shortly after its response: waits for requests in flight first, but not
    /// long, since a test may hold them. Longer while a thread of the gateway has something to do:
    /// on a busy machine, it may have lost its CPU between the response and the count.
    #[track_caller]
    pub(crate) fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let is_quiet =
            || (self.existing("tollgate_requests_in_flight", &[]) == Some(0)).then_some(());
        if within(Duration::from_millis(250), is_quiet).is_none() {
            let is_over = || if self.is_busy() { is_quiet() } else { Some(()) };
            let _ = within(Duration::from_secs(2), is_over);
        }
        self.existing(name, labels).unwrap_or(0)
    }

    /// Whether a thread of the gateway, or of one that an upgrade has started, has something to do.
    fn is_busy(&self) -> bool {
        is_busy(self.pid()) || self.successors().into_iter().any(is_busy)
    }

    /// As [`count`](Self::count), but `None` if there is no such series yet.
    #[track_caller]
    pub(crate) fn existing(&self, name: &str, labels: &[(&str, &str)]) -> Option<u64> {
        documented::assert_metric(name, labels);
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
        metrics.lines().filter_map(value).reduce(|sum, value| sum + value)
    }

    /// Waits until [`count`](Self::count) is `expected`. A gauge has to exist, also for 0.
    #[track_caller]
    pub(crate) fn wait_for_count(&self, name: &str, labels: &[(&str, &str)], expected: u64) {
        let is_there = || {
            let value = self.existing(name, labels);
            let default = if documented::is_gauge(name) { None } else { Some(0) };
            (value.or(default) == Some(expected)).then_some(())
        };
        eventually(&format!("{name}{labels:?} to be {expected}"), is_there);
    }

    /// Waits until Redis decides on requests.
    #[track_caller]
    pub(crate) fn wait_for_redis(&self) {
        let connected = || self.log().contains("connected to Redis").then_some(());
        eventually("a connection to Redis", connected);
        self.wait_for_count("tollgate_breaker_state", &[], 0);
    }

    /// Resident memory in bytes, now and at its peak.
    pub(crate) fn memory_bytes(&self) -> (u64, u64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let kib = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        };
        (kib("VmRSS:") * 1024, kib("VmHWM:") * 1024)
    }

    /// Lets the process open this many files more.
    pub(crate) fn limit_more_files(&self, more: usize) {
        let process = self.child.id().to_string();
        let open = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count();
        let limit = format!("--nofile={}:", open + more);
        let status = Command::new("prlimit").args(["--pid", &process, &limit]).status();
        assert!(status.expect("install it: apt-get install util-linux").success());
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        self.child.log()
    }

    /// Timestamps of the log lines that contain `words`, as the gateway wrote them.
    pub(crate) fn log_times(&self, words: &str) -> Vec<Timestamp> {
        let log = self.log();
        log.lines().filter(|line| line.contains(words)).map(Timestamp::of_line).collect()
    }

    /// Sends SIGTERM and returns at once.
    pub(crate) fn terminate(&self) {
        self.child.signal(Signal::SIGTERM);
    }

    /// Sends SIGHUP and returns at once.
    pub(crate) fn sighup(&self) {
        self.child.signal(Signal::SIGHUP);
    }

    /// Sends SIGQUIT and returns at once.
    pub(crate) fn sigquit(&self) {
        self.child.signal(Signal::SIGQUIT);
    }

    /// Processor time of the process so far, in ticks of 10 ms.
    pub(crate) fn processor_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let (_, after_name) = stat.rsplit_once(')').unwrap();
        let fields = after_name.split_whitespace().skip(11).take(2);
        fields.map(|ticks| ticks.parse::<u64>().unwrap()).sum()
    }

    /// Id of the process that was started first.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ids of the processes that upgrades have started, those that still run.
    pub(crate) fn successors(&self) -> Vec<u32> {
        let log = self.log();
        let started = log.split("a new process starts process=").skip(1);
        let pid = |rest: &str| {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        };
        let file = self.file.display().to_string();
        // Another process can have the id by now.
        let is_own = |pid: &u32| {
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&command).contains(&file)
        };
        started.filter_map(pid).filter(is_own).collect()
    }

    /// Waits until the process exits, which must take less than `limit`. Returns the exit code. How
    /// long it has waited for a CPU is not known afterwards, and extends no limit: it has to be
    /// long enough for a busy machine.
    #[track_caller]
    pub(crate) fn exit_below(&mut self, limit: Duration) -> Option<i32> {
        timed_below(limit, || self.exit().0)
    }

    /// Waits until the process exits. Returns the exit code and how long it took.
    #[track_caller]
    pub(crate) fn exit(&mut self) -> (Option<i32>, Duration) {
        let (status, took) = timed(|| self.child.exit());
        (status.expect("the gateway should end").code(), took)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        for successor in self.successors() {
            let _ = kill(Pid::from_raw(successor.try_into().unwrap()), Signal::SIGKILL);
            // The next gateway may use the same files and addresses.
            let _ = within(TIMEOUT, || (!is_running(successor)).then_some(()));
        }
        if std::thread::panicking() {
            eprintln!("{}", failure_report(&self.config, &self.child.log()));
        }
    }
}

/// Asserts that a configuration is valid by the JSON Schema.
fn assert_matches_schema(config: &str) {
    const SCHEMA: &str = include_str!("../../../docs/gateway.schema.json");

    // To compile it takes longer than to start a gateway. By the name of its host, it is not
    // compared with the schema of schemas, which another test does.
    static COMPILED: LazyLock<(boon::Schemas, boon::SchemaIndex)> = LazyLock::new(|| {
        let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
        let name = "http://json-schema.org/tollgate.json";
        compiler.add_resource(name, serde_json::from_str(SCHEMA).unwrap()).unwrap();
        let index = compiler.compile(name, &mut schemas).unwrap();
        (schemas, index)
    });

    let (schemas, index) = &*COMPILED;
    let file = as_editors_compare(toml::from_str(config).unwrap());
    if let Err(error) = schemas.validate(&file, *index) {
        panic!("{error:#}\n{config}");
    }
}

/// A file as JSON; dates are texts.
fn as_editors_compare(value: toml::Value) -> serde_json::Value {
    match value {
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(items) => items.into_iter().map(as_editors_compare).collect(),
        toml::Value::Table(table) => {
            table.into_iter().map(|(name, value)| (name, as_editors_compare(value))).collect()
        }
        other => serde_json::to_value(other).unwrap(),
    }
}

/// Runs the program until it exits.
pub(crate) fn tollgate(arguments: &[&str], stdin: &str) -> Outcome {
    use std::io::Write as _;

    let mut command = program();
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    // A program that does not read its input may exit before everything is written.
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
    command(Path::new(env!("CARGO_BIN_EXE_tollgate")))
}

fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    // The variable may be set in the environment of the tests.
    command.env_remove("TOLLGATE_LOG").env_remove("TOLLGATE_LOG_FORMAT").env("NO_COLOR", "1");
    command
}

/// Configuration and log, to reproduce a failure.
fn failure_report(config: &str, log: &str) -> String {
    let program = env!("CARGO_BIN_EXE_tollgate");
    format!(
        "--- gateway.toml, for `{program} run -c gateway.toml` ---\n{config}\n\
         --- what the gateway logged ---\n{log}\n---"
    )
}

/// The addresses of TCP listeners in a log.
fn listening(log: &str) -> Vec<SocketAddr> {
    log.lines()
        .filter_map(|line| {
            after(line, "listening on http://").or_else(|| after(line, "listening on https://"))
        })
        .collect()
}

/// The address that follows `words` in a log.
fn after(log: &str, words: &str) -> Option<SocketAddr> {
    let rest = log.split_once(words)?.1;
    let end = rest.find(|c: char| c.is_whitespace() || c == '"').unwrap_or(rest.len());
    rest[..end].parse().ok()
}
