//! Client connections and memory against their limits, in words.

use super::words::{count, cut};
use crate::api::status::{Connections, Status};

/// Reasons that are named; the connections of the others are added up.
const NAMED_REASONS: usize = 2;

const MIB: u64 = 1 << 20;

/// Open connections and memory, each with its limit; `None` if the gateway is older than these
/// members.
pub(in crate::top) fn usage(status: &Status) -> Option<String> {
    let (connections, memory) = (status.connections.as_ref()?, status.memory?);
    let [open, max] = [connections.open, connections.max].map(count);
    let used = count(memory.resident_bytes / MIB);
    let limit = memory.max_bytes.map(|max| format!(" of {}", count(max / MIB)));
    Some(format!("{open} of {max} open, memory {used}{} MiB", limit.unwrap_or_default()))
}

/// The connections that were closed in the last minute, the most frequent reasons first.
pub(in crate::top) fn rejected(connections: &Connections) -> String {
    let mut reasons: Vec<_> = connections.rejected_last_minute.iter().collect();
    reasons.sort_by_key(|(_, number)| std::cmp::Reverse(**number));
    let named = reasons.iter().take(NAMED_REASONS);
    let mut parts: Vec<String> =
        named.map(|(reason, number)| format!("{} {}", count(**number), cut(reason, 24))).collect();
    let others: u64 = reasons.iter().skip(NAMED_REASONS).map(|(_, number)| **number).sum();
    parts.extend((others > 0).then(|| format!("{} others", count(others))));
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

/// What the process has run out of; `None`: nothing.
pub(in crate::top) fn overload(status: &Status) -> Option<String> {
    let overloaded = status.overloaded;
    let is_full = status.connections.as_ref().is_some_and(|all| all.open >= all.max);
    let causes = [
        (overloaded.memory, "memory is over its limit"),
        (overloaded.paused, "new connections wait"),
        (overloaded.descriptors, "few file descriptors are left"),
        (is_full, "no more connections are allowed"),
    ];
    let causes: Vec<_> =
        causes.into_iter().filter(|(holds, _)| *holds).map(|(_, cause)| cause).collect();
    (!causes.is_empty()).then(|| causes.join("; "))
}
