//! The target of a request as a URL (RFC 9112, section 3.2.2), and whether its host is that of
//! `Host`.

use super::address::Authority;

/// A target that is a URL of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UrlTarget<'a> {
    /// Its scheme with `://`, in any case.
    pub scheme: &'a [u8],
    /// Its host, with its port and user information.
    pub authority: &'a [u8],
    /// What follows: a path, a query, or nothing.
    pub rest: &'a [u8],
}

impl<'a> UrlTarget<'a> {
    /// `None` if the target is not a URL of HTTP.
    pub fn of(target: &'a [u8]) -> Option<Self> {
        let is_scheme = |scheme: &&[u8]| {
            target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        };
        let scheme = [&b"http://"[..], b"https://"].into_iter().find(is_scheme)?;
        let (scheme, rest) = target.split_at(scheme.len());
        let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#'));
        let (authority, rest) = rest.split_at(end.unwrap_or(rest.len()));
        Some(Self { scheme, authority, rest })
    }

    /// Whether the host is the same as in `Host`: case makes no difference, nor does the default
    /// port of the scheme.
    pub fn is_of_host(&self, host: &[u8]) -> bool {
        let default = if self.scheme.len() == b"https://".len() { 443 } else { 80 };
        let parts = |text| {
            let authority = Authority::split(std::str::from_utf8(text).ok()?).ok()?;
            let port = authority.port.filter(|port| !port.is_empty());
            let is_number = port.is_none_or(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
            let port: u16 = port.map_or(Some(default), |port| port.parse().ok())?;
            is_number.then_some((authority.host, port))
        };
        match (parts(self.authority), parts(host)) {
            (Some((own, own_port)), Some((host, port))) => {
                own.eq_ignore_ascii_case(host) && own_port == port
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_split_into_scheme_authority_and_rest() {
        let split = |target: &'static str| {
            let url = UrlTarget::of(target.as_bytes())?;
            Some([url.scheme, url.authority, url.rest].map(|part| str::from_utf8(part).unwrap()))
        };
        assert_eq!(split("HTTP://a:80/b?c"), Some(["HTTP://", "a:80", "/b?c"]));
        assert_eq!(split("https://a"), Some(["https://", "a", ""]));
        assert_eq!(split("http://a?b/c"), Some(["http://", "a", "?b/c"]));
        for target in ["/http://a", "*", "ftp://a/", "http:/a", ""] {
            assert_eq!(split(target), None, "{target}");
        }
    }

    #[test]
    fn hosts_are_equal_but_for_case_and_the_default_port() {
        let same = [
            ("http://a.test/", "a.test"),
            ("http://A.test/", "a.TEST"),
            ("http://a.test:80/", "a.test"),
            ("http://a.test", "a.test:80"),
            ("http://a.test:/", "a.test"),
            ("HTTPS://a.test:443/", "a.test"),
            ("http://a.test:8080/", "A.test:8080"),
            ("http://[::1]:80/", "[::1]"),
        ];
        for (target, host) in same {
            assert!(
                UrlTarget::of(target.as_bytes()).unwrap().is_of_host(host.as_bytes()),
                "{target}"
            );
        }
        let other = [
            ("http://a.test/", "b.test"),
            ("http://a.test:8080/", "a.test"),
            ("https://a.test:80/", "a.test"),
            ("https://a.test/", "a.test:80"),
            ("http://u@a.test/", "a.test"),
            ("http://a.test:+80/", "a.test"),
            ("http://a.test\\x/", "a.test"),
            ("http://a:1:2/", "a:1:2"),
            ("http://\u{e4}/", ""),
        ];
        for (target, host) in other {
            assert!(
                !UrlTarget::of(target.as_bytes()).unwrap().is_of_host(host.as_bytes()),
                "{target}"
            );
        }
    }
}
