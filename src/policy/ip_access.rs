//! Which clients may send requests, by their address: `allow_ips` and `deny_ips` of `[server]` and
//! of a route.

use std::net::IpAddr;
use std::sync::Arc;

use super::ip_set::IpSet;

/// A list of networks: those of the file, and those of each file that it names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IpList {
    /// The sets. A file that several lists name is in memory once.
    pub sets: Vec<Arc<IpSet>>,
}

/// The lists that apply to the requests of a route, or to those without one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IpAccess {
    /// Clients in one of these are refused.
    pub deny: Vec<PlacedList>,
    /// Clients that are not in it are refused: the list of the route, else that of `[server]`.
    pub allow: Option<PlacedList>,
}

/// A list, and where it is in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedList {
    /// Where it is.
    pub place: Place,
    pub list: IpList,
}

/// Where a list is in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Server,
    Route,
}

/// Why the address of a client is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpDenial {
    /// It is in `deny_ips`.
    Denied(Place),
    /// It is not in `allow_ips`.
    NotAllowed(Place),
}

impl IpList {
    /// Whether a network of the list contains the address, in canonical form.
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.sets.iter().any(|set| set.contains(ip))
    }

    /// Number of networks as written.
    pub fn networks(&self) -> usize {
        self.sets.iter().map(|set| set.networks()).sum()
    }
}

impl IpAccess {
    /// Why a client with this address is refused; `None` if it may send requests. A client without
    /// an address, on a Unix socket, is in no list.
    pub fn denial(&self, ip: Option<IpAddr>) -> Option<IpDenial> {
        let is_in = |placed: &PlacedList| ip.is_some_and(|ip| placed.list.contains(ip));
        if let Some(denied) = self.deny.iter().find(|placed| is_in(placed)) {
            return Some(IpDenial::Denied(denied.place));
        }
        let allow = self.allow.as_ref().filter(|placed| !is_in(placed));
        allow.map(|placed| IpDenial::NotAllowed(placed.place))
    }

    /// Whether a client with this address is in one of the lists of [`deny`](Self::deny).
    pub fn has_denied(&self, ip: Option<IpAddr>) -> bool {
        self.deny.iter().any(|placed| ip.is_some_and(|ip| placed.list.contains(ip)))
    }

    /// The lists in a few words: `deny_ips: 12 networks (of [server])`.
    pub fn words(&self) -> Vec<String> {
        let denied = self.deny.iter().map(|placed| ("deny_ips", placed));
        let allowed = self.allow.iter().map(|placed| ("allow_ips", placed));
        let words = denied.chain(allowed).map(|(name, placed)| {
            let networks = match placed.list.networks() {
                1 => "1 network".to_owned(),
                number => format!("{number} networks"),
            };
            format!("{name}: {networks} ({})", placed.place.words())
        });
        words.collect()
    }
}

impl Place {
    const fn words(self) -> &'static str {
        match self {
            Self::Server => "of [server]",
            Self::Route => "of the route",
        }
    }
}

impl IpDenial {
    /// The reason for an operator, which a response does not show.
    pub fn words(self) -> String {
        match self {
            Self::Denied(place) => format!("refused: in `deny_ips` {}", place.words()),
            Self::NotAllowed(place) => format!("refused: not in `allow_ips` {}", place.words()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(place: Place, networks: &[&str]) -> PlacedList {
        let set: IpSet = networks.iter().map(|network| network.parse().unwrap()).collect();
        PlacedList { place, list: IpList { sets: vec![Arc::default(), Arc::new(set)] } }
    }

    #[test]
    fn deny_precedes_allow_and_what_is_not_allowed_is_refused() {
        use IpDenial::{Denied, NotAllowed};
        let deny = [
            list(Place::Server, &["10.1.0.0/16"]),
            list(Place::Route, &["10.2.0.0/16", "::1/128"]),
        ];
        let allow = list(Place::Server, &["10.0.0.0/8"]);
        let [neither, denying, allowing, both] = [
            IpAccess::default(),
            IpAccess { deny: deny.to_vec(), allow: None },
            IpAccess { deny: Vec::new(), allow: Some(allow.clone()) },
            IpAccess { deny: deny.to_vec(), allow: Some(allow) },
        ];
        let not_allowed = Some(NotAllowed(Place::Server));
        let table = [
            (Some("10.1.2.3"), Some(Denied(Place::Server)), None, Some(Denied(Place::Server))),
            (Some("10.2.0.1"), Some(Denied(Place::Route)), None, Some(Denied(Place::Route))),
            (Some("10.3.0.1"), None, None, None),
            (Some("192.0.2.1"), None, not_allowed, not_allowed),
            (Some("::1"), Some(Denied(Place::Route)), not_allowed, Some(Denied(Place::Route))),
            (None, None, not_allowed, not_allowed),
        ];
        for (ip, by_deny, by_allow, by_both) in table {
            let ip = ip.map(|ip| ip.parse().unwrap());
            let found = [&neither, &denying, &allowing, &both].map(|access| access.denial(ip));
            assert_eq!(found, [None, by_deny, by_allow, by_both], "{ip:?}");
        }
        let words = ["deny_ips: 1 network (of [server])", "deny_ips: 2 networks (of the route)"];
        assert_eq!(denying.words(), words);
    }
}
