//! Parses a server of an upstream: `host:port`, `http://host:port` or `https://host:port`; or the
//! name of a service, with the same schemes and without a port.

use std::net::{IpAddr, Ipv6Addr};

use super::mistake::Mistake;
use crate::base::text::cut;
use crate::config::diagnostic::Diagnostics;
use crate::config::spanned::Spanned;
use crate::net::address::{AddressError, Authority, HostPort, Origin, is_host};

/// Whether connections to a server have TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    Https,
}

/// Reads a server, or reports an error.
pub(super) fn origin(
    item: &Spanned<String>,
    diagnostics: &mut Diagnostics,
) -> Option<(Scheme, Origin)> {
    reported(item, parse(item.get_ref()), diagnostics)
        .map(|(scheme, server)| (scheme, Origin::Host(server)))
}

/// Reads the name of SRV records, or reports an error.
pub(super) fn service(
    item: &Spanned<String>,
    diagnostics: &mut Diagnostics,
) -> Option<(Scheme, Origin)> {
    reported(item, parse_service(item.get_ref()), diagnostics)
        .map(|(scheme, name)| (scheme, Origin::Service(name)))
}

fn reported<T>(
    item: &Spanned<String>,
    parsed: Result<T, Mistake>,
    diagnostics: &mut Diagnostics,
) -> Option<T> {
    parsed.map_err(|mistake| diagnostics.push(mistake.at(item.span()))).ok()
}

fn parse_service(text: &str) -> Result<(Scheme, Box<str>), Mistake> {
    let (scheme, name) = match text.split_once("://") {
        None => (Scheme::Http, text),
        Some(("http", name)) => (Scheme::Http, name),
        Some(("https", name)) => (Scheme::Https, name),
        Some((_, rest)) => {
            let message = "the scheme of a server is `http://` or `https://`, or left out";
            return Err(Mistake::new(message, format!("write `{}`", cut(bare(rest), 64))));
        }
    };
    let prefix = &text[..text.len() - name.len()];
    if name.contains('@') {
        let help = format!("write `{prefix}{}`", cut(bare(name), 64));
        return Err(Mistake::new("a server has no user and password", help));
    }
    let split = Authority::split(name);
    let is_address = |host: &str| host.parse::<IpAddr>().is_ok();
    if split.is_ok_and(|split| is_address(split.host) || split.in_brackets().is_some())
        || is_address(name)
    {
        let message = format!("`{}` is an address, which has no SRV records", cut(name, 64));
        return Err(Mistake::new(
            message,
            "write a name such as `_http._tcp.api.internal`, or take `resolve` out",
        ));
    }
    if let Ok(Authority { host, port: Some(_) }) = split {
        let message = format!("`{}` has a port, which its SRV records have, too", cut(name, 64));
        return Err(Mistake::new(
            message,
            format!(
                "write `{prefix}{}`; for the addresses of a host, take `resolve` out",
                cut(host, 64)
            ),
        ));
    }
    if is_host(name) {
        return Ok((scheme, name.to_ascii_lowercase().into()));
    }
    let message = format!("`{}` is not the name of SRV records", cut(text, 64));
    Err(Mistake::new(message, "it looks like `_http._tcp.api.internal`"))
}

fn parse(text: &str) -> Result<(Scheme, HostPort), Mistake> {
    let looks_like = || {
        "a server looks like `127.0.0.1:3000`, `[::1]:3000`, `api:3000` or `https://api`".to_owned()
    };
    let (scheme, authority, default_port) = match text.split_once("://") {
        None => (Scheme::Http, text, None),
        Some(("http", authority)) => (Scheme::Http, authority, Some(80)),
        Some(("https", authority)) => (Scheme::Https, authority, Some(443)),
        Some((scheme, rest)) if scheme.starts_with("srv") => {
            let name = cut(bare(rest), 64);
            let message =
                "the scheme of a server is `http://` or `https://`, or left out".to_owned();
            let help = format!("for SRV records, write `{name}`, and `resolve = \"srv\"` below");
            return Err(Mistake { message, help });
        }
        Some((scheme, rest)) => {
            let message =
                "the scheme of a server is `http://` or `https://`, or left out".to_owned();
            let server = cut(bare(rest), 64);
            let help = match scheme {
                "grpc" | "h2c" => format!("write `{server}`, and `protocol = \"h2c\"` below"),
                "grpcs" | "h2" => {
                    format!("write `https://{server}`, and `protocol = \"h2\"` below")
                }
                _ => format!("write `{server}`"),
            };
            return Err(Mistake { message, help });
        }
    };
    let prefix = &text[..text.len() - authority.len()];
    let corrected = || format!("write `{prefix}{}`", cut(bare(authority), 64));
    if authority.contains('@') {
        return Err(Mistake::new("a server has no user and password", corrected()));
    }
    if authority.contains(['/', '?', '#']) {
        let help = if prefix.is_empty() { looks_like() } else { corrected() };
        return Err(Mistake::new("a server is `host:port`, without a path", help));
    }
    if let Some(help) = server_line(text) {
        let message = "what belongs to a server is written as a table".to_owned();
        return Err(Mistake { message, help });
    }
    let shown = cut(text, 64);
    let parsed = HostPort::parse(authority, default_port);
    parsed.map(|server| (scheme, server)).map_err(|error| match error {
        AddressError::ExtraColon if authority.parse::<Ipv6Addr>().is_ok() => {
            let port = default_port.unwrap_or(80);
            let help = format!("write `{prefix}[{}]:{port}`", cut(authority, 64));
            Mistake::new(format!("the server `{shown}` has no port"), help)
        }
        AddressError::NoPort if authority.starts_with('_') => Mistake::new(
            format!("the server `{shown}` has no port"),
            "if its SRV records have the port, write `resolve = \"srv\"`, too",
        ),
        AddressError::NoPort => {
            Mistake::new(format!("the server `{shown}` has no port"), format!("write `{shown}:80`"))
        }
        AddressError::NotPort => {
            let message = format!("the server `{shown}` has no valid port");
            Mistake::new(message, "a port is a number from 1 to 65535")
        }
        _ => Mistake::new(format!("`{shown}` is not a server"), looks_like()),
    })
}

/// The table for a `server` line of nginx: `127.0.0.1:3000 weight=3 backup`.
fn server_line(text: &str) -> Option<String> {
    let (address, parameters) =
        text.trim().trim_end_matches(';').split_once(char::is_whitespace)?;
    let mut settings = format!("address = \"{}\"", cut(address, 64));
    for parameter in parameters.split_whitespace() {
        match parameter.split_once('=') {
            Some(("weight", weight)) => {
                let weight: u32 = weight.parse().ok()?;
                settings = format!("{settings}, weight = {weight}");
            }
            None if parameter == "backup" => settings.push_str(", backup = true"),
            Some(("max_fails" | "fail_timeout" | "max_conns" | "slow_start" | "route", _)) => {}
            None if matches!(parameter, "check" | "resolve" | "down") => {}
            _ => return None,
        }
    }
    Some(format!("write `{{ {settings} }}`"))
}

/// The host and port of a URL without its scheme.
fn bare(rest: &str) -> &str {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
    authority.rsplit('@').next().unwrap_or("")
}
