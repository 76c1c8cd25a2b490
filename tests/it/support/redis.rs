//! A real Redis: Debian's, on a Unix socket of its own in a folder of its own.

use std::path::PathBuf;
use std::process::Command;

use nix::sys::signal::Signal;
use parking_lot::Mutex;
use tempfile::TempDir;

use super::child::Child;
use super::wait::{PATIENCE, within};

/// A Redis, running or not.
pub(crate) struct Redis {
    child: Option<Child>,
    folder: TempDir,
}

/// An operator's connection: who is in, stays in.
pub(crate) struct Session(Mutex<redis::Connection>);

impl Session {
    /// Sends a command whose answer nobody needs.
    pub(crate) fn say(&self, command: &[&str]) -> redis::RedisResult<()> {
        let (name, arguments) = command.split_first().unwrap();
        redis::cmd(name).arg(arguments).exec(&mut *self.0.lock())
    }
}

impl Redis {
    /// Starts one and waits until it answers.
    pub(crate) fn start() -> Self {
        let mut redis = Self::absent();
        redis.come_up();
        redis
    }

    /// One that is not there yet, but has its place already.
    pub(crate) fn absent() -> Self {
        Self { child: None, folder: tempfile::tempdir().unwrap() }
    }

    /// Starts it, with what it has saved, which by itself is nothing.
    pub(crate) fn come_up(&mut self) {
        self.come_up_with(|_| {});
    }

    /// The same, with its command completed.
    pub(crate) fn come_up_with(&mut self, complete: impl FnOnce(&mut Command)) {
        self.spawn(complete);
        self.wait_for("+PONG", redis::RedisResult::is_ok);
    }

    /// Starts it with all that it holds, which it reads so slowly that it is seen `-LOADING`.
    pub(crate) fn come_up_slowly(&mut self) {
        self.ask::<String>(&["DEBUG", "POPULATE", "3000"]);
        self.ask::<String>(&["SAVE"]);
        self.kill();
        // Microseconds for each key, and a look at clients every so many bytes.
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

    /// Starts a sentinel with these lines in its file, which it rewrites.
    pub(crate) fn start_sentinel(lines: &str) -> Self {
        let mut sentinel = Self::absent();
        let file = sentinel.folder().join("sentinel.conf");
        let socket = sentinel.socket();
        std::fs::write(&file, format!("unixsocket {}\n{lines}", socket.display())).unwrap();
        let mut command = server();
        command.arg(file).arg("--sentinel").current_dir(sentinel.folder());
        sentinel.child = Some(Child::start(&mut command, "apt-get install redis-server"));
        sentinel.wait_for("+PONG", redis::RedisResult::is_ok);
        sentinel
    }

    fn spawn(&mut self, complete: impl FnOnce(&mut Command)) {
        let mut command = server();
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]);
        command.arg(self.socket()).arg("--dir").arg(self.folder.path());
        command.args(["--enable-debug-command", "yes"]);
        complete(&mut command);
        self.child = Some(Child::start(&mut command, "apt-get install redis-server"));
    }

    fn wait_for(&self, what: &str, is_there: impl Fn(&redis::RedisResult<String>) -> bool) {
        let answer = || self.try_ask::<String>(&["PING"]);
        let answers = within(PATIENCE, || is_there(&answer()).then_some(()));
        let log = || self.child.as_ref().map(Child::log).unwrap_or_default();
        assert!(answers.is_some(), "redis-server does not answer {what}:\n{}", log());
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child = None;
    }

    /// Stops it in its tracks: its connections stand, and nothing moves.
    pub(crate) fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets it go on after [`pause`](Self::pause).
    pub(crate) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        self.child.as_ref().unwrap().signal(signal);
    }

    /// The table of gateway.toml that names it, with all the patience that there is: the machine
    /// may be busy.
    pub(crate) fn table(&self) -> String {
        self.table_with_patience("1s")
    }

    /// The same with so much patience.
    pub(crate) fn table_with_patience(&self, timeout: &str) -> String {
        let socket = self.socket();
        format!("\n[redis]\nurl = \"unix://{}\"\ntimeout = \"{timeout}\"\n", socket.display())
    }

    /// Sends a command.
    pub(crate) fn ask<T: redis::FromRedisValue>(&self, command: &[&str]) -> T {
        self.try_ask(command).unwrap()
    }

    /// Sets one of its settings.
    pub(crate) fn configure(&self, name: &str, value: &str) {
        self.ask::<String>(&["CONFIG", "SET", name, value]);
    }

    /// A connection that is kept.
    pub(crate) fn session(&self) -> Session {
        let client = redis::Client::open(format!("unix://{}", self.socket().display())).unwrap();
        Session(Mutex::new(client.get_connection().unwrap()))
    }

    pub(crate) fn try_ask<T: redis::FromRedisValue>(
        &self,
        command: &[&str],
    ) -> redis::RedisResult<T> {
        let client = redis::Client::open(format!("unix://{}", self.socket().display()))?;
        let mut connection = client.get_connection()?;
        let (name, arguments) = command.split_first().unwrap();
        redis::cmd(name).arg(arguments).query(&mut connection)
    }

    /// How often clients have run the script.
    pub(crate) fn script_calls(&self) -> u64 {
        self.calls("evalsha") + self.calls("eval")
    }

    /// How often a command has been run, by scripts too.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        let stats: String = self.ask(&["INFO", "commandstats"]);
        let name = format!("cmdstat_{command}:");
        let line = stats.lines().find_map(|line| line.strip_prefix(&name));
        let calls = line.and_then(|rest| rest.strip_prefix("calls=")?.split(',').next());
        calls.map_or(0, |calls| calls.parse::<u64>().unwrap())
    }

    /// Its folder, where it saves what it is told to.
    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Where clients connect.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }
}

fn server() -> Command {
    let program = std::env::var("TOLLGATE_REDIS_SERVER");
    Command::new(program.as_deref().unwrap_or("redis-server"))
}

/// A port that is free now.
pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
