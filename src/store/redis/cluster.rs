//! What Redis Cluster defines: [`slots`] (slot of a key), [`topology`] (master of a slot),
//! [`redirect`] (errors by which a node names another one). Pure.

pub mod redirect;
pub mod slots;
pub mod topology;
