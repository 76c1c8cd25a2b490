//! A redis-server in a temporary folder, and a link to it.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use super::super::{Connection, Link, Supervisor};
use crate::base::blocking::BlockingCalls;
use crate::load::from_text_in;
use crate::net::lookup::{Resolver, system_resolver};
use crate::observe::metrics::Metrics;
use crate::policy::redis::Redis;
use crate::store::held::Held;
use crate::store::redis::append::Appending;
use crate::store::redis::class::ErrorClass;
use crate::store::redis::nodes::Nodes;

#[path = "../../../../../tests/it/support/ports.rs"]
mod ports;
pub(super) use ports::free_port;

/// Timeout of each wait; long, since the machine may be busy. Most end within a fraction of it.
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// A server on a Unix socket, and on TCP if it was started so. Killed when dropped.
pub(super) struct Server {
    child: Child,
    folder: TempDir,
    arguments: Vec<String>,
}

impl Server {
    /// A server that answers on its socket.
    pub(super) async fn start(arguments: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), arguments).await
    }

    pub(super) async fn start_in(folder: TempDir, arguments: &[&str]) -> Self {
        let arguments: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
        let child = spawn(folder.path(), &arguments);
        let server = Self { child, folder, arguments };
        server.until_up().await;
        server
    }

    pub(super) async fn start_sentinel(folder: TempDir, file: &str) -> Self {
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let child = Command::new("redis-server")
            .args([file, "--sentinel"])
            .current_dir(folder.path())
            .stdout(log)
            .spawn()
            .expect("redis-server is missing: apt-get install redis-server");
        let server = Self { child, folder, arguments: Vec::new() };
        server.until_up().await;
        server
    }

    async fn until_up(&self) {
        let socket = self.socket();
        eventually("redis-server is up", async || UnixStream::connect(&socket).await.is_ok()).await;
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// The url of the socket, as a line of the file.
    pub(super) fn url(&self) -> String {
        format!("url = 'unix://{}'", self.socket().display())
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts the server again, after [`kill`](Self::kill).
    pub(super) async fn restart(&mut self) {
        let _ = std::fs::remove_file(self.socket());
        self.child = spawn(self.folder.path(), &self.arguments);
        self.until_up().await;
    }

    /// Sends a signal to the server, such as SIGSTOP.
    pub(super) fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(self.child.id().try_into().unwrap());
        kill(id, signal).unwrap();
    }

    /// Output of `redis-cli` for a command.
    pub(super) fn ask(&self, command: &str) -> String {
        let output = Command::new("redis-cli")
            .arg("-s")
            .arg(self.socket())
            .args(command.split(' '))
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(folder: &Path, arguments: &[String]) -> Child {
    let log = std::fs::File::create(folder.join("log")).unwrap();
    Command::new("redis-server")
        .args(["--save", "", "--unixsocket", "redis.sock", "--dir"])
        .arg(folder)
        .args(if arguments.iter().any(|text| text.contains("port")) {
            &[][..]
        } else {
            &["--port", "0"]
        })
        .args(arguments)
        .current_dir(folder)
        .stdout(log)
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server is missing: apt-get install redis-server")
}

/// Settings of a file with these lines under `[redis]`. `PW` is an environment variable.
pub(super) fn settings(lines: &str) -> Redis {
    let rest = "[upstreams.api]\nservers = [\"demo\"]\n[routes.all]\n";
    let environment = |name: &str| (name == "PW").then(|| "p/w@1".to_owned());
    // The default is too short for a probe on a busy machine.
    let timeout = if lines.contains("timeout") { "" } else { "timeout = '1s'\n" };
    let text = format!("[redis]\n{timeout}{lines}\n{rest}");
    let policy = from_text_in("gateway.toml", &text, &environment);
    policy.unwrap_or_else(|report| panic!("{report}")).redis.unwrap()
}

/// A link and its supervisor, which ends with the test.
pub(super) struct Running {
    pub(super) link: Arc<Link>,
    task: JoinHandle<()>,
}

impl Running {
    pub(super) fn start(lines: &str) -> Self {
        let (link, supervisor) = Link::new(&settings(lines), None);
        Self { link, task: tokio::spawn(async move { match supervisor.run().await {} }) }
    }

    pub(super) fn start_appending(lines: &str, appending: Appending) -> Self {
        let (held, series) = (Arc::new(Held::new(true)), Metrics::new("test").unwrap().redis());
        let (nodes, supervisor) = Nodes::new(&settings(lines), 1_000, held, series);
        let supervisor = supervisor.appending(appending);
        let link = Arc::clone(nodes.one().unwrap().batcher().link());
        Self { link, task: tokio::spawn(async move { supervisor.run().await }) }
    }

    pub(super) fn start_with(settings: Redis, resolver: Resolver) -> Self {
        let link = Arc::new(Link::default());
        let supervisor = Supervisor::new(Arc::clone(&link), settings, resolver);
        Self { link, task: tokio::spawn(async move { match supervisor.run().await {} }) }
    }

    /// Waits for a connection.
    pub(super) async fn connection(&self) -> Connection {
        eventually("there is a connection", async || self.link.current().is_some()).await;
        self.link.current().unwrap()
    }

    /// Waits until there is none.
    pub(super) async fn until_down(&self) {
        eventually("the connection is gone", async || self.link.current().is_none()).await;
    }

    /// Sends a write that the server answers, and reports its result to the link.
    pub(super) async fn write(&self) -> Result<(), Option<ErrorClass>> {
        self.write_within(WAIT_TIMEOUT).await
    }

    /// Sends a write with this timeout, and reports its result to the link.
    pub(super) async fn write_within(&self, timeout: Duration) -> Result<(), Option<ErrorClass>> {
        let Some(mut connection) = self.link.current() else { return Err(None) };
        let mut call = redis::cmd("SET");
        call.arg("tollgate:x").arg(1);
        let call = call.query_async::<()>(&mut connection.redis);
        match tokio::time::timeout(timeout, call).await {
            Ok(Ok(())) => {
                self.link.answered(&connection);
                Ok(())
            }
            Ok(Err(error)) => Err(Some(self.link.failed(&connection, &error))),
            Err(_) => {
                self.link.timed_out(&connection);
                Err(None)
            }
        }
    }

    /// Waits until writes are answered. The long timeout keeps a busy machine from looking like a
    /// hanging server, whose connection would be replaced.
    pub(super) async fn until_writes(&self) {
        let write = async || self.write_within(Duration::from_millis(500)).await.is_ok();
        eventually("writes are answered", write).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Waits until `condition` holds.
pub(super) async fn eventually<F: Future<Output = bool>>(
    what: &str,
    mut condition: impl FnMut() -> F,
) {
    let waiting = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(
        tokio::time::timeout(WAIT_TIMEOUT, waiting).await.is_ok(),
        "not within {WAIT_TIMEOUT:?}: {what}"
    );
}

/// Error of a connection attempt with these lines.
pub(super) async fn refusal(lines: &str) -> String {
    match super::super::connect::connect(
        &settings(lines),
        &system_resolver(),
        &BlockingCalls::default(),
    )
    .await
    {
        Ok(_) => "connected".to_owned(),
        Err(error) => error.to_string(),
    }
}
