//! Topology of a cluster: which master has which slots, from the reply to `CLUSTER SLOTS`. Pure.

use redis::Value;

use super::slots::SLOTS;
use crate::net::address::{HostPort, MAX_HOST_BYTES};

/// Maximum number of masters that are used. Redis recommends at most 1,000 nodes.
pub const MAX_MASTERS: usize = 1_024;

/// Masters, and the slots of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// Addresses, each once, in the order of their first slots.
    pub masters: Vec<HostPort>,
    /// Index of the master of each slot in `masters`; [`NO_MASTER`] for a slot without one.
    pub owners: Vec<u16>,
}

/// Entry of [`Topology::owners`] for a slot that no master has.
pub const NO_MASTER: u16 = u16::MAX;

/// Error: the server does not describe a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadTopology {
    /// The reply has another form than that of `CLUSTER SLOTS`.
    #[error("its reply to CLUSTER SLOTS does not parse")]
    Malformed,
    /// No slot has a master: the cluster was not created yet, or the server has lost all others.
    #[error(
        "no slot of the cluster has a master; was it created with `redis-cli --cluster create`?"
    )]
    Empty,
}

impl Topology {
    /// Reads the reply to `CLUSTER SLOTS` of the server at `asked`. A node without a host is that
    /// server, or has its host.
    ///
    /// # Errors
    /// See [`BadTopology`].
    pub fn read(reply: &Value, asked: &HostPort) -> Result<Self, BadTopology> {
        let Value::Array(ranges) = reply else { return Err(BadTopology::Malformed) };
        let mut read = Vec::with_capacity(ranges.len());
        for range in ranges {
            read.push(read_range(range, asked).ok_or(BadTopology::Malformed)?);
        }
        read.sort_by_key(|range| range.first);
        let mut topology =
            Self { masters: Vec::new(), owners: vec![NO_MASTER; usize::from(SLOTS)] };
        for SlotRange { first, last, master } in read {
            let index = topology.index_of(master).ok_or(BadTopology::Malformed)?;
            topology.owners[usize::from(first)..=usize::from(last)].fill(index);
        }
        if topology.masters.is_empty() { Err(BadTopology::Empty) } else { Ok(topology) }
    }

    pub fn master_of(&self, slot: u16) -> Option<&HostPort> {
        let index = *self.owners.get(usize::from(slot))?;
        self.masters.get(usize::from(index))
    }

    /// The topology after these slots have moved to these masters.
    #[must_use]
    pub fn after<'a>(mut self, moves: impl Iterator<Item = (u16, &'a HostPort)>) -> Self {
        for (slot, at) in moves {
            if self.master_of(slot) != Some(at)
                && let Some(index) = self.index_of(at.clone())
                && let Some(owner) = self.owners.get_mut(usize::from(slot))
            {
                *owner = index;
            }
        }
        self
    }

    /// Index of a master, which is added if it is new; `None` if there are too many.
    fn index_of(&mut self, master: HostPort) -> Option<u16> {
        let found = self.masters.iter().position(|known| *known == master);
        if found.is_none() && self.masters.len() >= MAX_MASTERS {
            return None;
        }
        let index = found.unwrap_or_else(|| {
            self.masters.push(master);
            self.masters.len() - 1
        });
        u16::try_from(index).ok()
    }
}

/// Slots of a master, without gaps.
struct SlotRange {
    first: u16,
    last: u16,
    master: HostPort,
}

fn read_range(range: &Value, asked: &HostPort) -> Option<SlotRange> {
    let Value::Array(parts) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &parts[..] else {
        return None;
    };
    let slot = |number: &i64| u16::try_from(*number).ok().filter(|slot| *slot < SLOTS);
    let (first, last) = (slot(first)?, slot(last)?);
    let [host, Value::Int(port), ..] = &master[..] else { return None };
    let host = match host {
        Value::Nil => String::new(),
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok()?,
        Value::SimpleString(text) => text.clone(),
        _ => return None,
    };
    let master = address(&host, u16::try_from(*port).ok()?, asked)?;
    (first <= last).then_some(SlotRange { first, last, master })
}

/// Address of a node as the server at `asked` names it. A host that is empty or `?` is unknown to
/// that server: it is that of the server. `None` if it is no host.
pub fn address(host: &str, port: u16, asked: &HostPort) -> Option<HostPort> {
    let host = if matches!(host, "" | "?") { &asked.host } else { host };
    // The name is looked up and logged.
    let is_host = host.len() <= MAX_HOST_BYTES && host.bytes().all(|byte| byte.is_ascii_graphic());
    (is_host && port > 0).then(|| HostPort { host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> HostPort {
        HostPort { host: "seed".to_owned(), port: 7_000 }
    }

    fn at(host: &str, port: u16) -> HostPort {
        HostPort { host: host.to_owned(), port }
    }

    fn node(host: &str, port: i64) -> Value {
        let id = Value::BulkString(vec![b'x'; 40]);
        Value::Array(vec![Value::BulkString(host.into()), Value::Int(port), id])
    }

    fn range(first: i64, last: i64, nodes: Vec<Value>) -> Value {
        let mut parts = vec![Value::Int(first), Value::Int(last)];
        parts.extend(nodes);
        Value::Array(parts)
    }

    #[test]
    fn masters_and_their_slots_are_read() {
        let reply = Value::Array(vec![
            range(10_923, 16_383, vec![node("10.0.0.3", 6_379), node("10.0.0.6", 6_379)]),
            range(0, 5_460, vec![node("10.0.0.1", 6_379)]),
            range(5_461, 5_461, vec![node("10.0.0.3", 6_379)]),
            range(5_463, 10_922, vec![node("", 7_001)]),
        ]);
        let topology = Topology::read(&reply, &asked()).unwrap();
        let masters = [at("10.0.0.1", 6_379), at("10.0.0.3", 6_379), at("seed", 7_001)];
        assert_eq!(topology.masters, masters);
        let table = [
            (0, Some(0)),
            (5_460, Some(0)),
            (5_461, Some(1)),
            (5_462, None),
            (5_463, Some(2)),
            (10_922, Some(2)),
            (10_923, Some(1)),
            (16_383, Some(1)),
        ];
        for (slot, master) in table {
            assert_eq!(topology.master_of(slot), master.map(|at: usize| &masters[at]), "{slot}");
        }
    }

    #[test]
    fn moves_override_a_topology() {
        let reply = Value::Array(vec![
            range(0, 9, vec![node("10.0.0.1", 6_379)]),
            range(10, 19, vec![node("10.0.0.2", 6_379)]),
        ]);
        let (known, new) = (at("10.0.0.2", 6_379), at("10.0.0.3", 6_379));
        let moves = [(3, &known), (4, &new), (5, &new), (10, &known)];
        let topology = Topology::read(&reply, &asked()).unwrap().after(moves.into_iter());
        assert_eq!(topology.masters, [at("10.0.0.1", 6_379), known.clone(), new.clone()]);
        let master = |slot| topology.master_of(slot).unwrap();
        assert_eq!([master(3), master(4), master(5), master(10)], [&known, &new, &new, &known]);
        assert_eq!((master(2), master(6)), (&at("10.0.0.1", 6_379), &at("10.0.0.1", 6_379)));
        assert_eq!(topology.master_of(20), None);
    }

    #[test]
    fn masters_are_bounded_whatever_servers_name() {
        let at_number = |number: usize| at(&format!("10.0.{}.{}", number / 250, number % 250), 1);
        let host = |number: i64| format!("10.0.{}.{}", number / 250, number % 250);
        let most = i64::try_from(MAX_MASTERS).unwrap();
        let ranges = |count| {
            Value::Array((0..count).map(|n| range(n, n, vec![node(&host(n), 1)])).collect())
        };
        let read = Topology::read(&ranges(most), &asked()).unwrap();
        assert_eq!(read.masters.len(), MAX_MASTERS);
        assert_eq!(Topology::read(&ranges(most + 1), &asked()), Err(BadTopology::Malformed));
        // Redirections to many other servers.
        let others: Vec<HostPort> = (2_000..5_000).map(at_number).collect();
        let known = at_number(3);
        let moves = (0_u16..).zip(&others).chain([(9_000, &known)]);
        let after = read.clone().after(moves);
        assert_eq!(after.masters, read.masters);
        assert_eq!(after.master_of(9_000), Some(&known));
        assert_eq!(after.master_of(7), read.master_of(7));
    }

    #[test]
    fn other_replies_are_errors() {
        let table = [
            (Value::Nil, BadTopology::Malformed),
            (Value::Array(vec![]), BadTopology::Empty),
            (Value::Array(vec![range(0, 1, vec![])]), BadTopology::Malformed),
            (Value::Array(vec![range(2, 1, vec![node("h", 1)])]), BadTopology::Malformed),
            (Value::Array(vec![range(0, 16_384, vec![node("h", 1)])]), BadTopology::Malformed),
            (Value::Array(vec![range(0, 1, vec![node("h", 65_536)])]), BadTopology::Malformed),
            (Value::Array(vec![range(0, 1, vec![node("a\nb", 1)])]), BadTopology::Malformed),
            (Value::Array(vec![range(0, 1, vec![node("h", 0)])]), BadTopology::Malformed),
        ];
        for (reply, error) in table {
            assert_eq!(Topology::read(&reply, &asked()), Err(error), "{reply:?}");
        }
    }
}
