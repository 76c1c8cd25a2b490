//! The Redis server of the benchmark, and its statistics.

use std::cell::{RefCell, RefMut};
use std::collections::HashMap;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::{Connection, IntoConnectionInfo};
use tempfile::TempDir;

/// Commands that the methods send. Commands within scripts do not count, except `HMGET`, `HMSET`
/// and `EXPIRE`: the script that uses those is counted by its `EVALSHA` only.
const SENT: [&str; 9] =
    ["evalsha", "eval", "hmget", "hmset", "expire", "watch", "multi", "exec", "unwatch"];

/// A running server on its own TCP port, stopped and deleted when dropped. TCP, because gateways
/// usually connect to Redis by TCP.
pub(crate) struct RedisServer {
    child: Child,
    _folder: TempDir,
    pub(crate) port: u16,
    /// Connection for statistics, not for the load.
    control: Option<RefCell<Connection>>,
}

/// Statistics of the server.
#[derive(Clone, Copy, Default)]
pub(crate) struct Done {
    /// Commands of clients since the last reset.
    pub(crate) calls: u64,
    /// User and system CPU time since the start, in microseconds.
    pub(crate) cpu_us: f64,
}

impl RedisServer {
    /// Starts a server and waits until it responds.
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let program = std::env::var("TOLLGATE_REDIS_SERVER").unwrap_or("redis-server".to_string());
        let child = Command::new(&program)
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"])
            .arg(port.to_string())
            .arg("--dir")
            .arg(folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {program}: {error}"));
        let mut server = Self { child, _folder: folder, port, control: None };
        server.control = Some(RefCell::new(server.connect()));
        server
    }

    /// A client with the settings of a gateway.
    pub(crate) fn client(&self) -> redis::Client {
        let address = format!("redis://127.0.0.1:{}", self.port).into_connection_info().unwrap();
        redis::Client::open(address.set_tcp_settings(TcpSettings::default().set_nodelay(true)))
            .unwrap()
    }

    /// Name and version of the server.
    pub(crate) fn version(&self) -> String {
        let info = self.info("server");
        match info.get("valkey_version") {
            Some(version) => format!("Valkey {version}"),
            None => format!("Redis {}", info["redis_version"]),
        }
    }

    /// Resets the counters of commands.
    pub(crate) fn reset(&self) {
        redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut *self.control()).unwrap();
    }

    /// Reads the statistics.
    pub(crate) fn done(&self) -> Done {
        let info = self.info("all");
        let calls = |command: &str| -> u64 {
            let Some(line) = info.get(&format!("cmdstat_{command}")) else { return 0 };
            let calls = line.split(',').find_map(|part| part.strip_prefix("calls="));
            calls.unwrap().parse().unwrap()
        };
        let by_script = calls("eval") + calls("evalsha") > 0;
        let counted = SENT.iter().filter(|name| !by_script || name.starts_with("eval"));
        // A failed transaction has sent its two commands, but none was run.
        let queued = 2 * calls("exec");
        let run_by_exec = if queued > 0 { calls("hmset") + calls("expire") } else { 0 };
        let cpu = |name: &str| info[name].parse::<f64>().unwrap() * 1e6;
        Done {
            calls: counted.map(|name| calls(name)).sum::<u64>() + queued - run_by_exec,
            cpu_us: cpu("used_cpu_user") + cpu("used_cpu_sys"),
        }
    }

    fn info(&self, section: &str) -> HashMap<String, String> {
        let text: String = redis::cmd("INFO").arg(section).query(&mut *self.control()).unwrap();
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        pairs.map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    fn control(&self) -> RefMut<'_, Connection> {
        self.control.as_ref().unwrap().borrow_mut()
    }

    #[allow(clippy::disallowed_methods, reason = "polls for a server that says nothing")]
    fn connect(&self) -> Connection {
        for _ in 0..500 {
            if let Ok(connection) = self.client().get_connection() {
                return connection;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the server at port {} does not answer", self.port);
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
