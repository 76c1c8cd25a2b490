//! Parses `url` of `[redis]`. Messages never quote it: what looks like a host may be part of a
//! password.

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use super::mistake::Mistake;
use crate::config::reference::covered;
use crate::config::tables;
use crate::net::address::{AddressError, HostPort};
use crate::net::percent;
use crate::policy::redis::{Login, Secret};

/// Default port of Redis.
const REDIS_PORT: u16 = 6379;

/// Default port of sentinels.
const SENTINEL_PORT: u16 = 26379;

/// Maximum length of the path of a Unix socket, without its final NUL.
const MAX_SOCKET_BYTES: usize = 107;

/// The parts of a `redis.url`, with the login percent-decoded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) address: UrlAddress,
    /// Whether the connection uses TLS.
    pub(super) tls: bool,
    pub(super) login: Login,
    /// Number of the database, 0 to 2147483647, if the url has one.
    pub(super) database: Option<u32>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum UrlAddress {
    Server(HostPort),
    Sentinel(Vec<HostPort>, String),
    Socket(PathBuf),
    Cluster(Vec<HostPort>),
}

fn wrong<T>(message: &str, help: &str) -> Result<T, Mistake> {
    Err(Mistake::new(message, help))
}

/// The end of the login in a url as written: its `@`. A reference may contain any character.
pub(super) fn login_end(text: &str) -> Option<usize> {
    let text = &covered(text);
    let start = text.find("://")? + 3;
    let end = text[start..].find('/').map_or(text.len(), |at| start + at);
    text[start..end].rfind('@').map(|at| start + at)
}

/// Parses a `redis.url`. An error says what is wrong, and what to write instead.
pub(super) fn parse(text: &str) -> Result<Url, Mistake> {
    let looks_like = "it looks like `redis://127.0.0.1:6379`, `rediss://…` for TLS, \
                      `redis+sentinel://host:26379/name`, `redis+cluster://host1,host2` or `unix:///path`";
    let Some((scheme, rest)) = text.split_once("://") else {
        return wrong("`url` has no scheme", looks_like);
    };
    match scheme.to_ascii_lowercase().as_str() {
        "redis" => server(rest, false),
        "rediss" => server(rest, true),
        "redis+sentinel" => sentinel(rest, false),
        "rediss+sentinel" => sentinel(rest, true),
        "redis+cluster" => cluster(rest, false),
        "rediss+cluster" => cluster(rest, true),
        "unix" | "redis+unix" => socket(rest),
        "http" | "https" => wrong(
            "`url` has the scheme of HTTP, not of Redis",
            "write `redis://host:6379`, or `rediss://host:6379` for TLS",
        ),
        _ => wrong("`url` has an unknown scheme", looks_like),
    }
}

/// Parses `[user[:password]@]host[:port][/database]`, the part after the scheme.
fn server(rest: &str, tls: bool) -> Result<Url, Mistake> {
    let (login, rest) = login(rest)?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let address = UrlAddress::Server(host_and_port(host, REDIS_PORT)?);
    Ok(Url { address, tls, login, database: database(path)? })
}

/// Parses `[user[:password]@]host[:port][,host[:port]…]/master[/database]`, the part after the
/// scheme.
fn sentinel(rest: &str, tls: bool) -> Result<Url, Mistake> {
    let (login, rest) = login(rest)?;
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (master, path) = path.split_once('/').unwrap_or((path, ""));
    if master.is_empty() {
        return wrong(
            "`url` does not name the master that the sentinels watch",
            "write it after the sentinels: `redis+sentinel://host:26379/mymaster`",
        );
    }
    if !master.bytes().all(|byte| byte.is_ascii_graphic()) {
        return wrong(
            "the name of the master in `url` holds a character that is not visible ASCII",
            "it is the one of `sentinel monitor <name> …`",
        );
    }
    let servers: Result<Vec<_>, _> =
        hosts.split(',').map(|host| host_and_port(host, SENTINEL_PORT)).collect();
    let address = UrlAddress::Sentinel(servers?, master.to_owned());
    Ok(Url { address, tls, login, database: database(path)? })
}

/// Parses `[user[:password]@]host[:port][,host[:port]…]`, the part after the scheme.
fn cluster(rest: &str, tls: bool) -> Result<Url, Mistake> {
    let (login, rest) = login(rest)?;
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    if !path.is_empty() {
        return wrong(
            "`url` of a Redis Cluster has a path",
            "a cluster has database 0 only; write `redis+cluster://host1,host2`",
        );
    }
    let nodes: Result<Vec<_>, _> =
        hosts.split(',').map(|host| host_and_port(host, REDIS_PORT)).collect();
    let address = UrlAddress::Cluster(nodes?);
    Ok(Url { address, tls, login, database: None })
}

/// Parses the absolute path of a Unix socket, the part after the scheme.
fn socket(path: &str) -> Result<Url, Mistake> {
    if !path.starts_with('/') || path.len() < 2 {
        return wrong(
            "`url` does not name a Unix socket by its whole path",
            "write three slashes: `unix:///run/redis/redis.sock`",
        );
    }
    if path.len() > MAX_SOCKET_BYTES {
        return wrong(
            "the path of a Unix socket has at most 107 bytes",
            "the system takes no longer one",
        );
    }
    let address = UrlAddress::Socket(PathBuf::from(path));
    Ok(Url { address, tls: false, login: Login::default(), database: None })
}

/// Splits off the login, which may be missing, and returns it with the rest.
fn login(rest: &str) -> Result<(Login, &str), Mistake> {
    let authority = rest.find('/').map_or(rest, |at| &rest[..at]);
    let Some(at) = authority.rfind('@') else {
        if rest.contains('@') {
            return wrong(
                "`url` has a `/` before its `@`",
                "in a user or a password write `/` as `%2F`, or use the setting `password`",
            );
        }
        no_query(rest)?;
        return Ok((Login::default(), rest));
    };
    let rest_after = &rest[at + 1..];
    no_query(rest_after)?;
    let Some((username, password)) = authority[..at].split_once(':') else {
        return wrong(
            "`url` has a user without a password",
            "a password without a user is written `redis://:password@host`",
        );
    };
    let (username, password) = (percent_decoded(username)?, percent_decoded(password)?);
    if password.is_empty() {
        return wrong(
            "the password in `url` is empty",
            "without a password, leave out the `@` too",
        );
    }
    let username = (!username.is_empty()).then_some(username);
    Ok((Login { username, password: Some(Secret::new(password)) }, rest_after))
}

/// Rejects `?` and `#`: other programs accept options there, which must not be ignored silently.
fn no_query(rest: &str) -> Result<(), Mistake> {
    if rest.contains(['?', '#']) {
        return wrong(
            "`url` cannot hold `?` or `#`",
            "write such options as settings of `[redis]`",
        );
    }
    Ok(())
}

/// Parses `host`, `host:port`, `[address]` or `[address]:port`.
fn host_and_port(text: &str, default_port: u16) -> Result<HostPort, Mistake> {
    let ipv6 = "IPv6 looks like `redis://[::1]:6379`";
    let server = HostPort::parse(text, Some(default_port));
    server.or_else(|error| match error {
        AddressError::UnclosedBracket => wrong("`url` has a `[` without `]`", ipv6),
        AddressError::NotIpv6 => wrong("`url` has no address in `[]`", ipv6),
        AddressError::AfterBracket => {
            wrong("`url` has no `:` before its port", "it looks like `[::1]:6379`")
        }
        AddressError::ExtraColon => {
            wrong("an IPv6 address needs brackets", "it looks like `redis://[::1]:6379`")
        }
        AddressError::NoHost => {
            wrong("`url` names no host", "it looks like `redis://127.0.0.1:6379`")
        }
        AddressError::NotHost => {
            wrong("the host in `url` is not a host", "a host is a name or an address")
        }
        AddressError::NoPort | AddressError::NotPort => {
            wrong("the port in `url` is not a port", "a port is a number from 1 to 65535")
        }
    })
}

/// The database after the last slash.
fn database(path: &str) -> Result<Option<u32>, Mistake> {
    if path.is_empty() {
        return Ok(None);
    }
    let is_number = path.bytes().all(|byte| byte.is_ascii_digit());
    match path.parse() {
        Ok(number) if is_number && tables::Redis::database.range().has(number) => Ok(Some(number)),
        _ => wrong(
            "the database in `url` is not a number",
            "it looks like `redis://127.0.0.1:6379/2`; Redis has databases 0 to 15 by default",
        ),
    }
}

/// Decodes a percent-encoded text.
fn percent_decoded(text: &str) -> Result<String, Mistake> {
    let help = "write a `%` as `%25`, or use the settings `username` and `password`";
    let Some(bytes) = percent::decode_strict(text) else {
        return wrong("a `%` in `url` lacks its two digits", help);
    };
    String::from_utf8(bytes).or_else(|_| wrong("user or password in `url` are not UTF-8", help))
}
