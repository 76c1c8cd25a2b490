//! [`FailedNodes`]: those that calls of one kind leave out.

use std::sync::Arc;

use crate::store::redis::node::Node;

/// Nodes of which a call has failed, and when, in microseconds: they get no others.
#[derive(Default)]
pub(super) struct FailedNodes(Vec<(Arc<Node>, u64)>);

impl FailedNodes {
    pub(super) fn add(&mut self, node: Arc<Node>, now: u64) {
        self.0.push((node, now));
    }

    /// Forgets those that have failed up to `until` (microseconds).
    pub(super) fn forget(&mut self, until: u64) {
        self.0.retain(|(_, failed_at)| *failed_at > until);
    }

    /// Whether a node can be called, and is none of these.
    pub(super) fn allow(&self, node: &Arc<Node>) -> bool {
        node.is_connected() && !self.0.iter().any(|(one, _)| Arc::ptr_eq(one, node))
    }
}
