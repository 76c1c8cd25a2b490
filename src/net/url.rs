//! URLs of servers that the gateway itself sends requests to.

use std::net::IpAddr;

use http::Uri;

use super::address::HostPort;

/// An absolute URL, without login and fragment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HttpUrl {
    /// Whether it begins with `https://`.
    pub is_tls: bool,
    pub server: HostPort,
    /// Path and query; begins with a slash.
    pub path: String,
    text: String,
}

impl HttpUrl {
    /// Parses a URL with `https://` or `http://`; `None` if it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_plain || text.contains(['@', '#']) {
            return None;
        }
        let uri = text.parse::<Uri>().ok()?;
        let (is_tls, port) = match uri.scheme_str()? {
            "https" => (true, 443),
            "http" => (false, 80),
            _ => return None,
        };
        let server = HostPort::parse(uri.authority()?.as_str(), Some(port)).ok()?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Some(Self { is_tls, server, path, text: text.to_owned() })
    }

    /// The URL as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether what is sent cannot be read or changed on a network: by TLS, or because it stays on
    /// this machine.
    pub fn is_private(&self) -> bool {
        let host = self.server.host.as_str();
        let is_loopback = |address: IpAddr| address.is_loopback();
        self.is_tls || host == "localhost" || host.parse().is_ok_and(is_loopback)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_split_into_server_and_path() {
        let table = [
            ("https://a.test/b?c", Some((true, "a.test:443", "/b?c"))),
            ("http://A.test:8080", Some((false, "a.test:8080", "/"))),
            ("https://[::1]:8443/", Some((true, "[::1]:8443", "/"))),
            ("ftp://a.test/", None),
            ("a.test/b", None),
            ("https://u:p@a.test/", None),
            ("https://a.test/#b", None),
            ("https://a.test/ b", None),
            ("https:///b", None),
        ];
        for (text, expected) in table {
            let url = HttpUrl::parse(text);
            let parts = url.as_ref().map(|url| (url.is_tls, url.server.to_string(), &*url.path));
            let parts = parts.as_ref().map(|(is_tls, server, path)| (*is_tls, &**server, *path));
            assert_eq!(parts, expected, "{text}");
        }
    }

    #[test]
    fn url_without_tls_is_private_on_this_machine_only() {
        for (text, expected) in [
            ("https://a.test", true),
            ("http://localhost:1", true),
            ("http://127.0.0.1:1", true),
            ("http://[::1]:1", true),
            ("http://a.test", false),
            ("http://10.0.0.1", false),
        ] {
            assert_eq!(HttpUrl::parse(text).unwrap().is_private(), expected, "{text}");
        }
    }
}
