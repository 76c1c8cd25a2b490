//! A real Redis server on a Unix socket in a temporary folder.

use std::path::PathBuf;
use std::process::Command;

use nix::sys::signal::Signal;
use parking_lot::Mutex;
use tempfile::TempDir;

use super::child::Child;
use super::wait::{TIMEOUT, within};

/// A Redis, running or not.
pub(crate) struct Redis {
    child: Option<Child>,
    folder: TempDir,
}

/// A connection of an operator that is kept open.
pub(crate) struct Session(Mutex<redis::Connection>);

impl Session {
    /// Sends a command and discards the reply.
    pub(crate) fn execute(&self, command: &[&str]) -> redis::RedisResult<()> {
        let (name, arguments) = command.split_first().unwrap();
        redis::cmd(name).arg(arguments).exec(&mut *self.0.lock())
    }

    /// Waits until one replica has all writes so far. `WAIT` only waits for those of its
    /// connection.
    pub(crate) fn replicate(&self) {
        self.execute(&["SET", "last-write", "1"]).unwrap();
        let mut wait = redis::cmd("WAIT");
        let replicas: u64 = wait.arg(1).arg(20_000).query(&mut *self.0.lock()).unwrap();
        assert_eq!(replicas, 1);
    }
}

impl Redis {
    /// Starts a server and waits until it responds.
    pub(crate) fn start() -> Self {
        let mut redis = Self::stopped();
        redis.launch();
        redis
    }

    /// A server that is not running yet. Its socket path is fixed.
    pub(crate) fn stopped() -> Self {
        Self { child: None, folder: tempfile::tempdir().unwrap() }
    }

    /// Starts the server, with the data that it has saved; by default it saves nothing.
    pub(crate) fn launch(&mut self) {
        self.launch_with(|_| {});
    }

    /// Starts the server with a modified command.
    pub(crate) fn launch_with(&mut self, modify: impl FnOnce(&mut Command)) {
        self.spawn(modify);
        self.wait_for("+PONG", redis::RedisResult::is_ok);
    }

    /// Restarts the server with its data, which it loads so slowly that it replies `-LOADING`.
    pub(crate) fn restart_loading(&mut self) {
        self.query::<String>(&["DEBUG", "POPULATE", "3000"]);
        self.query::<String>(&["SAVE"]);
        self.kill();
        // Delay per key in microseconds; clients are served every 1024 bytes.
        let slowly =
            ["--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024"];
        self.spawn(|command| {
            command.args(slowly);
        });
        let loads = |answer: &redis::RedisResult<String>| {
            answer.as_ref().is_err_and(|error| error.code() == Some("LOADING"))
        };
        self.wait_for("-LOADING", loads);
    }

    /// Starts a sentinel with this configuration, which it rewrites.
    pub(crate) fn start_sentinel(lines: &str) -> Self {
        let mut sentinel = Self::stopped();
        let file = sentinel.folder().join("sentinel.conf");
        let socket = sentinel.socket();
        std::fs::write(&file, format!("unixsocket {}\n{lines}", socket.display())).unwrap();
        let mut command = server();
        command.arg(file).arg("--sentinel").current_dir(sentinel.folder());
        sentinel.child = Some(Child::start(&mut command, "apt-get install redis-server"));
        sentinel.wait_for("+PONG", redis::RedisResult::is_ok);
        sentinel
    }

    fn spawn(&mut self, modify: impl FnOnce(&mut Command)) {
        let mut command = server();
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]);
        command.arg(self.socket()).arg("--dir").arg(self.folder.path());
        command.args(["--enable-debug-command", "yes"]);
        modify(&mut command);
        self.child = Some(Child::start(&mut command, "apt-get install redis-server"));
    }

    fn wait_for(&self, what: &str, is_there: impl Fn(&redis::RedisResult<String>) -> bool) {
        let answer = || self.try_query::<String>(&["PING"]);
        let answers = within(TIMEOUT, || is_there(&answer()).then_some(()));
        let log = || self.child.as_ref().map(Child::log).unwrap_or_default();
        assert!(answers.is_some(), "redis-server does not answer {what}:\n{}", log());
    }

    /// Stops the server with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child = None;
    }

    /// Suspends the process: connections stay open, and commands are not answered.
    pub(crate) fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Resumes the process after [`pause`](Self::pause).
    pub(crate) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        self.child.as_ref().unwrap().signal(signal);
    }

    /// The `[redis]` table, with a long timeout, since the machine may be busy.
    pub(crate) fn table(&self) -> String {
        self.table_with_timeout("1s")
    }

    /// The `[redis]` table with this timeout.
    pub(crate) fn table_with_timeout(&self, timeout: &str) -> String {
        let socket = self.socket();
        format!("\n[redis]\nurl = \"unix://{}\"\ntimeout = \"{timeout}\"\n", socket.display())
    }

    /// Sends a command and returns the reply.
    pub(crate) fn query<T: redis::FromRedisValue>(&self, command: &[&str]) -> T {
        self.try_query(command).unwrap()
    }

    /// Changes a setting of the server.
    pub(crate) fn configure(&self, name: &str, value: &str) {
        self.query::<String>(&["CONFIG", "SET", name, value]);
    }

    /// Opens a connection that is kept.
    pub(crate) fn session(&self) -> Session {
        let client = redis::Client::open(format!("unix://{}", self.socket().display())).unwrap();
        Session(Mutex::new(client.get_connection().unwrap()))
    }

    pub(crate) fn try_query<T: redis::FromRedisValue>(
        &self,
        command: &[&str],
    ) -> redis::RedisResult<T> {
        let client = redis::Client::open(format!("unix://{}", self.socket().display()))?;
        let mut connection = client.get_connection()?;
        let (name, arguments) = command.split_first().unwrap();
        redis::cmd(name).arg(arguments).query(&mut connection)
    }

    /// Number of script calls.
    pub(crate) fn script_calls(&self) -> u64 {
        self.calls("evalsha") + self.calls("eval")
    }

    /// Number of calls of a command, including those by scripts.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        let stats: String = self.query(&["INFO", "commandstats"]);
        let name = format!("cmdstat_{command}:");
        let line = stats.lines().find_map(|line| line.strip_prefix(&name));
        let calls = line.and_then(|rest| rest.strip_prefix("calls=")?.split(',').next());
        calls.map_or(0, |calls| calls.parse::<u64>().unwrap())
    }

    /// Folder of the server, where it saves data.
    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Path of the Unix socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }
}

fn server() -> Command {
    let program = std::env::var("TOLLGATE_REDIS_SERVER");
    Command::new(program.as_deref().unwrap_or("redis-server"))
}
