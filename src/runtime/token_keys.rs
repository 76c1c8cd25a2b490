//! Fetches of the keys of token issuers, when they are due.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use pingora::server::ShutdownWatch;
use tokio::task::JoinSet;

use super::CurrentSnapshot;
use crate::base::background::Background;
use crate::base::clock;

/// Time between two looks at what is due.
const PAUSE: Duration = Duration::from_secs(1);

/// Fetches the keys of all issuers of the current snapshot.
pub struct TokenKeys {
    current: Arc<CurrentSnapshot>,
}

impl TokenKeys {
    /// Creates the service. Each fetch is of the snapshot that `current` then has.
    pub fn new(current: Arc<CurrentSnapshot>) -> Self {
        Self { current }
    }
}

impl Background for TokenKeys {
    /// Runs until the process ends: requests of connections that drain may have tokens of new keys.
    fn start(&self, _shutdown: ShutdownWatch) -> BoxFuture<'_, ()> {
        Box::pin(self.run())
    }
}

impl TokenKeys {
    async fn run(&self) {
        let mut tasks = JoinSet::new();
        loop {
            for keys in self.current.load().tokens.issuers() {
                let keys = Arc::clone(keys);
                tasks.spawn(async move { keys.fetch(clock::now()).await });
            }
            while tasks.try_join_next().is_some() {}
            tokio::time::sleep(PAUSE).await;
        }
    }
}
