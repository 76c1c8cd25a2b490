//! dnsmasq as a name server.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::process::Command;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::child::Child;
use super::ports::free_port;

/// A running dnsmasq, which knows names below `.test` only.
pub(crate) struct Dnsmasq {
    pub(crate) address: SocketAddr,
    child: Option<Child>,
    folder: TempDir,
}

impl Dnsmasq {
    /// Starts one with this configuration, such as `host-record=api.test,127.0.0.1`. Records have a
    /// time to live of `ttl_s` seconds.
    pub(crate) fn start(ttl_s: u32, records: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // dnsmasq cannot choose a free port itself, so another process may take it in between.
        for _ in 0..10 {
            let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
            if let Some(child) = try_start(&folder, address, ttl_s, records) {
                return Self { address, child: Some(child), folder };
            }
        }
        panic!("dnsmasq did not start ten times");
    }

    /// The line of `[server]` that makes a gateway use it.
    pub(crate) fn setting(&self) -> String {
        format!("resolvers = [\"{}\"]\n", self.address)
    }

    /// Kills it.
    pub(crate) fn stop(&mut self) {
        self.child = None;
    }

    /// Starts it again at its address, with other records.
    pub(crate) fn restart(&mut self, ttl_s: u32, records: &str) {
        self.stop();
        self.child = try_start(&self.folder, self.address, ttl_s, records);
        assert!(self.child.is_some(), "dnsmasq did not start again");
    }

    /// Suspends it, as if it hung, until [`resume`](Self::resume).
    pub(crate) fn suspend(&self) {
        self.signal(Signal::SIGSTOP);
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        self.child.as_ref().unwrap().signal(signal);
    }
}

fn try_start(folder: &TempDir, address: SocketAddr, ttl_s: u32, records: &str) -> Option<Child> {
    // Only if root starts it, it becomes another user, who cannot read the folder.
    let mut text = format!(
        "port={}\nlisten-address={}\nbind-interfaces\nno-resolv\nno-hosts\nlocal=/test/\n\
         local-ttl={ttl_s}\nuser=root\npid-file=\nlog-facility=-\n",
        address.port(),
        address.ip()
    );
    let _ = writeln!(text, "{records}");
    let file = folder.path().join("dnsmasq.conf");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new("dnsmasq");
    command.arg("--keep-in-foreground").arg(format!("--conf-file={}", file.display()));
    if let Some(path) = std::env::var_os("PATH") {
        // Debian installs it in a folder that is not in the path of every user.
        let mut path = path;
        path.push(":/usr/sbin");
        command.env("PATH", &path);
    }
    let mut child = Child::start(&mut command, "apt-get install dnsmasq-base");
    child.wait_for(|log| log.contains("started, version").then_some(()))?;
    Some(child)
}
