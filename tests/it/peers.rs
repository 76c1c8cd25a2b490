//! Clients and servers of other projects over TLS, HTTP/2, gRPC, WebSocket, OTLP and the PROXY
//! protocol.

mod abuse;
mod curl;
mod grpc;
mod h2load;
mod haproxy;
mod httpx;
mod openssl;
mod otlp;
mod upstreams;
mod websocket;

use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::support::{Authority, Gateway, Issued, fetch, free_port};

/// A gateway with a clear listener that also accepts HTTP/2, and a TLS listener for `api.test`.
struct Site {
    authority: Authority,
    gateway: Gateway,
    clear: SocketAddr,
    tls: SocketAddr,
}

impl Site {
    /// `config` is the rest of the file, after the listeners.
    fn start(config: &str) -> Self {
        Self::with("", "", config)
    }

    /// `server` continues the `[server]` table, `tls` the table of the TLS listener.
    fn with(server: &str, tls: &str, config: &str) -> Self {
        let authority = Authority::new();
        let api = authority.issue("api", &["api.test", "localhost"]);
        let listeners = format!("{}{}{tls}", clear_listener("http2 = true"), tls_listener(&[&api]));
        let gateway = Gateway::start_full(&file(server, &listeners, config));
        let [clear, tls] = gateway.listeners()[..] else { panic!("{}", gateway.log()) };
        Self { authority, gateway, clear, tls }
    }

    /// curl on `https://api.test/…`: the arguments, then the path.
    #[track_caller]
    fn https(&self, arguments: &[&str], path: &str) -> crate::support::Fetched {
        let ca = self.authority.ca();
        let url = format!("https://api.test:{}{path}", self.tls.port());
        fetch(&[&["--cacert", &ca], arguments, &[&url]].concat())
    }

    /// curl on the clear listener.
    #[track_caller]
    fn http(&self, arguments: &[&str], path: &str) -> crate::support::Fetched {
        fetch(&[arguments, &[&format!("http://api.test:{}{path}", self.clear.port())]].concat())
    }

    /// Asserts how many requests had each status. They are counted just after the client has its
    /// response.
    #[track_caller]
    fn assert_requests<const N: usize>(&self, expected: [(&str, u64); N]) {
        for (status, count) in expected {
            let labels = [("status", status)];
            self.gateway.wait_for_count("tollgate_requests_total", &labels, count);
        }
    }
}

/// A complete file without `server.listen`.
fn file(server: &str, listeners: &str, config: &str) -> String {
    format!("[server]\nadmin = \"127.0.0.1:0\"\nthreads = 2\n{server}\n{listeners}\n{config}")
}

fn clear_listener(more: &str) -> String {
    format!("[[listeners]]\naddress = \"127.0.0.1:0\"\n{more}\n")
}

/// A listener with these certificates; settings can follow. Its port is in the file, for redirects.
fn tls_listener(certificates: &[&Issued]) -> String {
    let mut entries = String::new();
    for certificate in certificates {
        let _ = write!(entries, "{}, ", certificate.entry());
    }
    let port = free_port();
    format!("[[listeners]]\naddress = \"127.0.0.1:{port}\"\ncertificates = [{entries}]\n")
}
