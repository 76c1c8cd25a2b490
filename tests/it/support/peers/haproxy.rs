//! HAProxy in front of the gateway, or between the gateway and an upstream.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use tempfile::TempDir;

use crate::support::child::Child;
use crate::support::gateway::Gateway;
use crate::support::ports::free_port;
use crate::support::wait::{TIMEOUT, within};

/// A running HAProxy with one frontend.
pub(crate) struct HaProxy {
    pub(crate) address: SocketAddr,
    child: Child,
    _folder: TempDir,
}

impl HaProxy {
    /// Forwards connections to `server`. `mode` is `tcp` or `http`; `bind` and `target` are options
    /// of the two lines, such as `accept-proxy` and `send-proxy-v2`.
    pub(crate) fn start(mode: &str, bind: &str, server: SocketAddr, target: &str) -> Self {
        Self::start_with(mode, bind, &format!("  server one {server} {target}\n"))
    }

    /// Balances requests over these gateways, of which it uses those whose `/ready` is 200. It
    /// reads that five times a second. It sends each request once, on a new connection.
    pub(crate) fn balance(gateways: &[&Gateway]) -> Self {
        let mut backend = "  option httpchk\n  http-check send meth GET uri /ready ver HTTP/1.1 hdr Host localhost\n  \
                           timeout check 5s\n  option http-server-close\n  retries 0\n"
            .to_owned();
        for (number, gateway) in gateways.iter().enumerate() {
            let (address, port) = (gateway.address, gateway.admin.port());
            let _ = writeln!(
                backend,
                "  server s{number} {address} check port {port} inter 200ms fall 1 rise 1"
            );
        }
        Self::start_with("http", "", &backend)
    }

    fn start_with(mode: &str, bind: &str, backend: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // HAProxy does not print a port that the kernel chose, so another process may take the port
        // in between.
        for _ in 0..10 {
            let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
            let file = folder.path().join("haproxy.cfg");
            std::fs::write(&file, text(mode, &format!("{address} {bind}"), backend)).unwrap();
            let mut command = Command::new("haproxy");
            command.arg("-db").arg("-f").arg(&file);
            let mut child = Child::start(&mut command, "apt-get install haproxy");
            let accepts = within(TIMEOUT, || {
                let accepts = TcpStream::connect(address).is_ok();
                (accepts || child.has_exited()).then_some(accepts)
            });
            if accepts == Some(true) && !child.has_exited() {
                return Self { address, child, _folder: folder };
            }
            assert!(child.log().contains("cannot bind"), "{}", child.log());
        }
        panic!("HAProxy did not start ten times");
    }

    /// Output so far; with `mode http` a line per request.
    pub(crate) fn log(&self) -> String {
        self.child.log()
    }
}

fn text(mode: &str, bind: &str, backend: &str) -> String {
    let line = match mode {
        "http" => "src=%ci request=%{+Q}r status=%ST",
        _ => "src=%ci",
    };
    format!(
        "global
  log stdout format raw local0
defaults
  mode {mode}
  log global
  timeout connect 10s
  timeout client 60s
  timeout server 60s
frontend clients
  bind {bind}
  log-format \"{line}\"
  default_backend gateway
backend gateway
{backend}"
    )
}
