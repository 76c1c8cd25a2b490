//! Pebble, the test server of Let's Encrypt for ACME, with its own DNS server: every name is
//! 127.0.0.1.

use std::net::TcpStream;
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::json;

use super::authority::Authority;
use super::child::Child;
use super::curl::curl;
use super::ports::free_port;
use super::wait::{TIMEOUT, within};

/// How a Pebble behaves.
#[derive(Clone, Copy, Default)]
pub(crate) struct PebbleOptions {
    /// Port on which it checks HTTP-01 challenges.
    pub(crate) http_port: u16,
    /// Port on which it checks TLS-ALPN-01 challenges.
    pub(crate) tls_port: u16,
    /// How long its certificates are valid, in seconds; 0: five years.
    pub(crate) validity: u64,
    /// Identifier and MAC key (base64url) of the only account that it accepts.
    pub(crate) external_account: Option<(&'static str, &'static str)>,
}

/// A running Pebble.
pub(crate) struct Pebble {
    child: Child,
    authority: Authority,
    /// Port of the directory.
    port: u16,
    management: u16,
    options: PebbleOptions,
    _dns: Child,
}

impl Pebble {
    /// Starts a server. Other processes may take its ports in between, so it may need several
    /// attempts.
    pub(crate) fn start(options: PebbleOptions) -> Self {
        for _ in 0..10 {
            let authority = Authority::new();
            let ports = (free_port(), free_port());
            if let Some(pebble) = Self::try_start(options, authority, ports) {
                return pebble;
            }
        }
        panic!("Pebble did not start ten times; start it by hand to see why");
    }

    fn try_start(options: PebbleOptions, authority: Authority, ports: (u16, u16)) -> Option<Self> {
        let (port, management) = ports;
        let (dns_port, dns_management) = (free_port(), free_port());
        let mut dns = Command::new("pebble-challtestsrv");
        dns.args(["-defaultIPv6", "", "-http01", "", "-https01", "", "-tlsalpn01", "", "-dns01"]);
        dns.arg(format!("127.0.0.1:{dns_port}"));
        dns.arg("-management").arg(format!("127.0.0.1:{dns_management}"));
        let mut dns = Child::start(&mut dns, "apt-get install pebble");
        let issued = authority.issue("pebble", &["localhost", "127.0.0.1"]);
        let mut config = json!({
            "listenAddress": format!("127.0.0.1:{port}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": issued.certificate,
            "privateKey": issued.key,
            "httpPort": options.http_port,
            "tlsPort": options.tls_port,
            "externalAccountBindingRequired": options.external_account.is_some(),
        });
        if let Some((key_id, key)) = options.external_account {
            config["externalAccountMACKeys"] = json!({ key_id: key });
        }
        if options.validity > 0 {
            config["certificateValidityPeriod"] = options.validity.into();
        }
        let file = authority.path("pebble.json");
        std::fs::write(&file, json!({ "pebble": config }).to_string()).unwrap();
        let mut command = Command::new("pebble");
        command.arg("-config").arg(&file).arg("-dnsserver").arg(format!("127.0.0.1:{dns_port}"));
        // Without a random delay before each check.
        command.env("PEBBLE_VA_NOSLEEP", "1");
        let mut child = Child::start(&mut command, "apt-get install pebble");
        let mut has_exited = || child.has_exited() || dns.has_exited();
        let answers = within(TIMEOUT, || {
            let listens = |port| TcpStream::connect(("127.0.0.1", port)).is_ok();
            let answers = listens(port) && listens(management) && listens(dns_management);
            (answers || has_exited()).then_some(answers)
        });
        let has_exited = has_exited();
        let pebble = Self { child, authority, port, management, options, _dns: dns };
        (answers == Some(true) && !has_exited).then_some(pebble)
    }

    /// Host and port of the directory.
    pub(crate) fn address(&self) -> String {
        format!("localhost:{}", self.port)
    }

    /// `[acme]` for this server, without `domains`, `storage` and `challenge`.
    pub(crate) fn settings(&self) -> String {
        let (server, ca) = (self.address(), self.authority.ca());
        format!("\n[acme]\ndirectory = \"https://{server}/dir\"\nca = {ca:?}\n")
    }

    /// Stops the server and forgets everything; another one starts at the same address.
    pub(crate) fn restart(self) -> Self {
        let Self { child, authority, port, management, options, .. } = self;
        drop(child);
        Self::try_start(options, authority, (port, management)).expect("Pebble did not restart")
    }

    /// Suspends the server: orders wait until [`resume`](Self::resume).
    pub(crate) fn suspend(&self) {
        self.child.signal(Signal::SIGSTOP);
    }

    pub(crate) fn resume(&self) {
        self.child.signal(Signal::SIGCONT);
    }

    /// Stops the server. Its address refuses connections.
    pub(crate) fn stop(self) -> Authority {
        self.authority
    }

    /// Path of a file with the authority of the certificates that it issues.
    pub(crate) fn root(&self) -> String {
        let url = format!("https://localhost:{}/roots/0", self.management);
        let root = curl(&["--cacert", &self.authority.ca(), &url]).text();
        let path = self.authority.path("root.pem");
        std::fs::write(&path, root).unwrap();
        path
    }
}
