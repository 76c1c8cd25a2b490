//! Addresses to listen on, and networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv4Net};

use super::mistake::Mistake;
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::listener;
use crate::config::spanned::Spanned;
use crate::config::tables::List;

/// Parses an address and a port; `name` is the setting.
pub(super) fn socket(
    name: &str,
    field: &Spanned<String>,
    diagnostics: &mut Diagnostics,
) -> Option<SocketAddr> {
    let text = field.get_ref();
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let message = format!("`{}` is not an address and a port", cut(text, 64));
    let diagnostic = Diagnostic::new(field.span(), message);
    let help = match listener::meant(name, text) {
        Some(address) if text.starts_with("https://") => {
            format!("write `{address}`: clients connect by plain HTTP")
        }
        Some(address) if address.ip().is_unspecified() => {
            format!("for every address, write `{address}`")
        }
        Some(address) => format!("write `{address}`"),
        None => format!("it looks like `{name} = \"127.0.0.1:8080\"` or `\"[::1]:8080\"`"),
    };
    diagnostics.push(diagnostic.help(help));
    None
}

/// Parses a list of networks or addresses.
pub(super) fn networks(list: &List, diagnostics: &mut Diagnostics) -> Vec<IpNet> {
    let items = list.as_ref().map_or(&[][..], |list| list.get_ref());
    items.iter().filter_map(|item| network(item, diagnostics)).collect()
}

/// The IPv4 network inside an IPv6 network, if there is one. The IPv6 form would never match,
/// because addresses of clients are converted before they are compared
/// (`client::address::canonical`).
fn ipv4_inside(network: &IpNet) -> Option<IpNet> {
    let IpNet::V6(network) = network else { return None };
    let prefix = network.prefix_len().checked_sub(96)?;
    let nat64 = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0).octets();
    let octets = network.network().octets();
    let [.., a, b, c, d] = octets;
    let inside = network.network().to_ipv4_mapped().is_some() || octets[..12] == nat64[..12];
    let ip = Ipv4Addr::new(a, b, c, d);
    inside.then(|| Ipv4Net::new(ip, prefix).ok().map(IpNet::V4))?
}

/// Parses a network such as `10.0.0.0/8`, or one address.
pub(super) fn network(item: &Spanned<String>, diagnostics: &mut Diagnostics) -> Option<IpNet> {
    match parse_network(item.get_ref()) {
        Ok(network) => Some(network),
        Err(mistake) => {
            diagnostics.push(mistake.at(item.span()));
            None
        }
    }
}

/// Parses a network such as `10.0.0.0/8`, or one address.
///
/// # Errors
/// See [`Mistake`].
pub(super) fn parse_network(text: &str) -> Result<IpNet, Mistake> {
    let single = text.parse::<IpAddr>().map(IpNet::from);
    let Ok(network) = single.clone().or_else(|_| text.parse::<IpNet>()) else {
        let message = format!("`{}` is neither an address nor a network", cut(text, 64));
        let help = "it looks like `10.0.0.0/8`, `192.0.2.7` or `2001:db8::/32`";
        return Err(Mistake::new(message, help));
    };
    if let Some(inside) = ipv4_inside(&network) {
        let message =
            format!("`{}` matches no client: IPv4 inside IPv6 is read as IPv4", cut(text, 64));
        let inside = if single.is_ok() { inside.addr().to_string() } else { inside.to_string() };
        return Err(Mistake::new(message, format!("write `{inside}`")));
    }
    if network.addr() == network.network() {
        return Ok(network);
    }
    let message = format!("`{network}` has bits set beyond its prefix");
    Err(Mistake::new(message, format!("the network is `{}`", network.trunc())))
}
