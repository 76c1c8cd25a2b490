//! A real Redis: Debian's, on a Unix socket of its own in a folder of its own.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::child::Child;
use super::wait::{PATIENCE, within};

/// A running Redis.
pub(crate) struct Redis {
    child: Option<Child>,
    folder: TempDir,
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

    /// Starts it, empty.
    pub(crate) fn come_up(&mut self) {
        let program = std::env::var("TOLLGATE_REDIS_SERVER");
        let mut command = Command::new(program.as_deref().unwrap_or("redis-server"));
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]);
        command.arg(self.socket()).arg("--dir").arg(self.folder.path());
        command.args(["--enable-debug-command", "yes"]);
        self.child = Some(Child::start(&mut command, "apt-get install redis-server"));
        let answers = within(PATIENCE, || self.try_ask::<String>(&["PING"]).ok());
        assert!(answers.is_some(), "redis-server does not answer");
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child = None;
    }

    /// The table of gateway.toml that names it, with all the patience that there is: the machine
    /// may be busy.
    pub(crate) fn table(&self) -> String {
        format!("\n[redis]\nurl = \"unix://{}\"\ntimeout = \"1s\"\n", self.socket().display())
    }

    /// Sends a command.
    pub(crate) fn ask<T: redis::FromRedisValue>(&self, command: &[&str]) -> T {
        self.try_ask(command).unwrap()
    }

    fn try_ask<T: redis::FromRedisValue>(&self, command: &[&str]) -> redis::RedisResult<T> {
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

    fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }
}
