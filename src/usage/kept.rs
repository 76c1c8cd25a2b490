//! [`Kept`]: where the usage of quotas is kept.

use std::sync::Arc;

use super::keeper::Keeper;
use super::ledger::Ledger;
use super::shared::writer::Writer;
use crate::policy::settings::Usage;

/// Where usage is kept.
#[derive(Clone)]
pub enum Kept {
    /// In a file, without Redis.
    File(Arc<Keeper>),
    Redis(Arc<Writer>),
}

impl Kept {
    /// What requests used since the last write.
    #[inline]
    pub fn ledger(&self) -> &Ledger {
        match self {
            Self::File(keeper) => &keeper.ledger,
            Self::Redis(writer) => &writer.ledger,
        }
    }

    /// Sets how long usage is kept, and how much of it, and which events are sent where.
    pub fn configure(&self, settings: &Usage) {
        self.ledger().notices().configure(&settings.webhooks);
        match self {
            Self::File(keeper) => keeper.configure(settings),
            Self::Redis(writer) => writer.configure(settings),
        }
    }

    /// Writes, and ends the thread. Blocks.
    pub fn close(&self) {
        match self {
            Self::File(keeper) => keeper.close(),
            Self::Redis(writer) => writer.close(),
        }
    }
}
