//! `resolvers` of `[server]`: the name servers that names of upstream servers are looked up with.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::names::twice;
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::net::address::HostPort;

/// The port of name servers.
const PORT: u16 = 53;

/// The name servers, or none with an error.
pub(super) fn resolvers(
    list: Option<&Spanned<Vec<Spanned<String>>>>,
    diagnostics: &mut Diagnostics,
) -> Arc<[SocketAddr]> {
    let Some(list) = list else { return Arc::default() };
    if list.get_ref().is_empty() {
        let help = "for those of `/etc/resolv.conf`, take `resolvers` out";
        let diagnostic = Diagnostic::new(list.span(), "`resolvers` has no name server");
        diagnostics.push(diagnostic.help(help));
    }
    let mut servers: Vec<(SocketAddr, _)> = Vec::new();
    for item in list.get_ref() {
        let Some(server) = parse(item.get_ref()) else {
            let message =
                format!("`{}` is not the address of a name server", cut(item.get_ref(), 64));
            let help = "it looks like `10.0.0.2`, `127.0.0.1:8600` or `[2001:db8::1]:53`";
            diagnostics.push(Diagnostic::new(item.span(), message).help(help));
            continue;
        };
        match servers.iter().find(|(other, _)| *other == server) {
            Some((_, first)) => {
                let first: &std::ops::Range<usize> = first;
                diagnostics.push(twice(item, first.clone()));
            }
            None => servers.push((server, item.span())),
        }
    }
    servers.into_iter().map(|(server, _)| server).collect()
}

fn parse(text: &str) -> Option<SocketAddr> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(SocketAddr::new(ip, PORT));
    }
    let HostPort { host, port } = HostPort::parse(text, Some(PORT)).ok()?;
    Some(SocketAddr::new(host.parse().ok()?, port))
}
