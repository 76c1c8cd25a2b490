//! A real server for unit tests: on a Unix socket in a temporary folder, killed when dropped.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::link::Link;
use crate::policy::OnFailure;
use crate::policy::redis::{Address, Colocate, Login, Ready, Redis, StartWithout};

#[path = "../../../tests/it/support/inconclusive.rs"]
mod inconclusive;
#[path = "../../../tests/it/support/pressure.rs"]
mod pressure;

/// Measures a time that has a limit.
#[derive(Clone)]
pub(crate) struct Timer {
    started: Instant,
    waits: Arc<pressure::CpuWaits>,
}

impl Timer {
    #[allow(clippy::disallowed_methods, reason = "measures how long it takes")]
    pub(crate) fn start() -> Self {
        Self { started: Instant::now(), waits: Arc::new(pressure::CpuWaits::now()) }
    }

    /// Measures from now on, beside waits that have been counted since this timer was started:
    /// counting them takes long.
    #[allow(clippy::disallowed_methods, reason = "measures how long it takes")]
    pub(crate) fn restarted(&self) -> Self {
        Self { started: Instant::now(), waits: Arc::clone(&self.waits) }
    }

    /// Asserts that less than `limit` has passed, or that it is longer only because the processes
    /// of the test waited for a CPU.
    #[track_caller]
    pub(crate) fn assert_below(&self, limit: Duration) {
        if let Some(why) = self.waits.judge(self.started.elapsed(), limit) {
            inconclusive::inconclusive(&why);
        }
    }

    /// Reports `what` as inconclusive if a call can have waited for a CPU for longer than `least`
    /// since the start. Panics otherwise.
    #[track_caller]
    pub(crate) fn inconclusive_if_stalled(&self, what: &str, least: Duration) {
        pressure::inconclusive_if_stalled(what, self.waits.stall(), least);
    }
}

/// Environment variable with the program to start, for tests against several versions.
const PROGRAM: &str = "TOLLGATE_REDIS_SERVER";

/// A running server. Killed, and its folder removed, when dropped.
pub(crate) struct RedisServer {
    child: Child,
    folder: TempDir,
}

impl RedisServer {
    /// Starts a server and waits until it answers.
    pub(crate) fn start(options: &[&str]) -> Self {
        let program = std::env::var(PROGRAM).unwrap_or_else(|_| "redis-server".to_string());
        let folder = tempfile::tempdir().unwrap();
        let child = Command::new(&program)
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(folder.path().join("redis.sock"))
            .arg("--dir")
            .arg(folder.path())
            .args(options)
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("cannot start {program}: {error}; try `apt-get install redis-server`")
            });
        let server = Self { child, folder };
        server.wait();
        server
    }

    /// Path of the Unix socket that the server listens on.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// The settings of a gateway that uses it.
    pub(crate) fn settings(&self) -> Redis {
        Redis {
            address: Address::Socket(self.socket()),
            tls: None,
            login: Login::default(),
            database: 0,
            timeout: Duration::from_secs(1),
            on_failure: OnFailure::Local,
            prefix: "t:".to_owned(),
            ready: Ready::Always,
            lanes: None,
            colocate: Colocate::Off,
            repair: true,
            start_without: StartWithout::Full,
            breaker: crate::limit::breaker::Settings::default(),
        }
    }

    /// A statistic of `EVALSHA`, such as `calls`: the calls of the script so far.
    pub(crate) fn evalsha(&self, statistic: &str) -> usize {
        let mut connection = self.client().get_connection().unwrap();
        let info: String = redis::cmd("INFO").arg("commandstats").query(&mut connection).unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:")).unwrap();
        let mut statistics = line.split(',').filter_map(|one| one.split_once('='));
        statistics.find(|(name, _)| *name == statistic).unwrap().1.parse().unwrap()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    pub(crate) fn client(&self) -> redis::Client {
        client(&self.socket())
    }

    #[allow(clippy::disallowed_methods, reason = "polls for a server that says nothing")]
    fn wait(&self) {
        // 20 s, since the machine may be busy.
        for _ in 0..2_000 {
            let ping = |mut connection| redis::cmd("PING").query::<String>(&mut connection);
            if self.client().get_connection().and_then(ping).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the server at {} does not answer", self.socket().display());
    }
}

/// A link by these settings, connected until the runtime of the test ends.
pub(crate) async fn connected(settings: &Redis) -> Arc<Link> {
    let (link, supervisor) = Link::new(settings, None);
    tokio::spawn(async move { supervisor.run().await });
    while link.current().is_none() {
        tokio::task::yield_now().await;
    }
    link
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn client(socket: &Path) -> redis::Client {
    redis::Client::open(format!("unix://{}", socket.display())).unwrap()
}
