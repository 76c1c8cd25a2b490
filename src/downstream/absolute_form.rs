//! Requests whose target is a URL (absolute-form, RFC 9112, section 3.2.2).
//!
//! Pingora 0.9.1 compares the host of the URL with `Host` byte by byte, and answers 400 without a
//! body if they differ only in case or by the default port. Such a URL gets the host as `Host` has
//! it before Pingora reads the head.

use std::io;

use bytes::BytesMut;
use memchr::memchr;
use pingora::protocols::Stream;

use super::first_bytes::first_bytes;
use crate::net::url_target::UrlTarget;

/// Longest method for which the target is waited for, in bytes. No registered method is longer.
const MAX_METHOD_BYTES: usize = 32;

/// Whether the request that begins with these bytes may have a URL as its target.
pub(super) fn may_be(first: &[u8]) -> bool {
    let line = after_line_breaks(first);
    let Some(space) = memchr(b' ', line) else {
        return line.len() <= MAX_METHOD_BYTES && memchr(b'\n', line).is_none();
    };
    let target = &line[space + 1..];
    [&b"http://"[..], b"https://"].iter().any(|scheme| {
        let common = scheme.len().min(target.len());
        target[..common].eq_ignore_ascii_case(&scheme[..common])
    })
}

/// Reads the rest of the head, if its target may be a URL, and writes the host of the URL as `Host`
/// has it.
///
/// # Errors
/// That of a read: the time of the head is over, or it is too long.
pub(super) async fn complete(stream: &mut Stream, mut head: BytesMut) -> io::Result<BytesMut> {
    let mut searched = 0;
    while may_be(&head) && !has_end(&head, searched) {
        searched = head.len();
        let more = first_bytes(stream).await?;
        if more.is_empty() {
            break;
        }
        head.extend_from_slice(&more);
    }
    Ok(aligned(&head).map_or(head, |aligned| BytesMut::from(&aligned[..])))
}

/// Whether the head ends in these bytes. The first `searched` have been searched for that.
fn has_end(bytes: &[u8], searched: usize) -> bool {
    let start = bytes.len() - after_line_breaks(bytes).len();
    // The end is three bytes long at most.
    let from = start.max(searched.saturating_sub(2));
    let rest = bytes.get(from..).unwrap_or_default();
    rest.windows(2).any(|pair| pair == b"\n\n") || rest.windows(3).any(|three| three == b"\n\r\n")
}

/// The bytes with the host of the URL as `Host` has it; `None` if nothing is to be changed.
fn aligned(bytes: &[u8]) -> Option<Vec<u8>> {
    let request = after_line_breaks(bytes);
    let (line, mut rest) = line(request)?;
    let mut parts = line.split(|byte| *byte == b' ');
    let (method, target, version) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || !version.starts_with(b"HTTP/1.") {
        return None;
    }
    let url = UrlTarget::of(target)?;
    let mut host = None;
    loop {
        let (header, after) = self::line(rest)?;
        rest = after;
        match header {
            [] => break,
            // A line that continues the one before.
            [b' ' | b'\t', ..] => return None,
            _ => {}
        }
        let colon = memchr(b':', header)?;
        if header[..colon].eq_ignore_ascii_case(b"host")
            && host.replace(header[colon + 1..].trim_ascii()).is_some()
        {
            return None;
        }
    }
    let host = host.filter(|host| *host != url.authority && url.is_of_host(host))?;
    let after_target = &request[method.len() + 1 + target.len()..];
    Some([method, b" ", url.scheme, host, url.rest, after_target].concat())
}

/// The first line without its line break, and what follows it; `None` if the line has no end.
fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr(b'\n', bytes)?;
    let line = &bytes[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), &bytes[end + 1..]))
}

/// What follows the empty lines that a client may send before a request (RFC 9112, section 2.2).
fn after_line_breaks(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n'));
    bytes.get(start.unwrap_or(bytes.len())..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[test]
    fn bytes_may_begin_a_url_until_they_differ_from_one() {
        for bytes in ["", "\r\n", "GET", "GET ", "GET h", "GET HTTPS://", "get http://a", "X https"]
        {
            assert!(may_be(bytes.as_bytes()), "{bytes}");
        }
        let long = "A".repeat(33);
        for bytes in ["GET /", "GET *", "GET hx", "GET ftp://", "\u{16}\u{3}\n", "GET\n", &long] {
            assert!(!may_be(bytes.as_bytes()), "{bytes}");
        }
    }

    #[test]
    fn host_of_the_url_becomes_that_of_the_header() {
        let align = |head: &str| {
            aligned(head.as_bytes()).map(|aligned| String::from_utf8(aligned).unwrap())
        };
        let changed =
            align("\r\nGET HTTP://A.test:80/x?y HTTP/1.1\r\nX: y\r\nhost:  a.Test \r\n\r\nbody");
        let expected = "GET HTTP://a.Test/x?y HTTP/1.1\r\nX: y\r\nhost:  a.Test \r\n\r\nbody";
        assert_eq!(changed.as_deref(), Some(expected));
        for head in [
            "GET /x HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET http://A/ HTTP/1.1\r\nHost: b\r\n\r\n",
            "GET http://A/ HTTP/1.1\r\n\r\n",
            "GET http://A/ HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            "GET http://A/ HTTP/1.1\r\nX: y\r\n Host: a\r\nHost: a\r\n\r\n",
            "GET http://A/ HTTP/1.1\r\nHost: a\r\n",
            "GET http://A/ x HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET http://A/\r\nHost: a\r\n\r\n",
        ] {
            assert_eq!(align(head), None, "{head}");
        }
    }

    #[tokio::test]
    async fn head_is_read_to_its_end_however_it_is_cut() {
        let head = "GET http://A/ HTTP/1.1\r\nHost: a\r\n\r\n";
        for cut in 1..head.len() {
            let (mut client, server) = tokio::io::duplex(1024);
            client.write_all(&head.as_bytes()[cut..]).await.unwrap();
            let first = BytesMut::from(&head[..cut]);
            let mut server: Stream = Box::new(server);
            let whole = complete(&mut server, first).await.unwrap();
            assert_eq!(whole, head.replace("http://A/", "http://a/"), "{cut}");
        }
    }

    #[tokio::test]
    async fn other_bytes_are_not_waited_for() {
        let (_client, server) = tokio::io::duplex(1024);
        let mut server: Stream = Box::new(server);
        let first = BytesMut::from("GET /x HT");
        assert_eq!(complete(&mut server, first.clone()).await.unwrap(), first);
    }
}
