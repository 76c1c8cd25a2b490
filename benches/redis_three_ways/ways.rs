//! What is compared.

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::runtime::Runtime;

use crate::arithmetic::Limit;
use crate::load::MOST_CLIENTS;
use crate::ours::Ours;
use crate::server::RedisServer;
use crate::{commands, script, transactions};

/// A way to take a token from a bucket in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Script,
    Commands,
    Transactions,
    Ours,
    OursCached,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Passed,
    Refused,
    /// Given up: after all tries, or after the time that a request may wait.
    Undecided,
}

/// Connections for all ways.
pub(crate) struct Ways {
    shared: MultiplexedConnection,
    /// One for each client.
    own: Vec<MultiplexedConnection>,
    ours: Ours,
}

/// Somebody who makes requests, one after the other.
pub(crate) struct Client {
    way: Way,
    connection: MultiplexedConnection,
    ours: Ours,
}

impl Way {
    pub(crate) const ALL: [Self; 5] =
        [Self::Script, Self::Commands, Self::Transactions, Self::Ours, Self::OursCached];

    /// As the tables name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Script => "(a) one EVALSHA a request",
            Self::Commands => "(b) HMGET, compute, HMSET, EXPIRE",
            Self::Transactions => "(c) WATCH, MULTI, EXEC, 20 tries",
            Self::Ours => "tollgate, no deny cache",
            Self::OursCached => "tollgate, as it ships",
        }
    }
}

impl Taken {
    /// What a store's answer means.
    pub(crate) fn of(allowed: bool) -> Self {
        if allowed { Self::Passed } else { Self::Refused }
    }
}

impl Ways {
    /// Connects. Way (a), (b) and ours share one connection each among all clients, which sends
    /// on what many ask at once; (c) cannot.
    pub(crate) fn connect(runtime: &Runtime, server: &RedisServer) -> Self {
        // No time limit: a timer for every command would be held against those who send many.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let connect = async || {
            let connection = server.client();
            connection.get_multiplexed_async_connection_with_config(&config).await.unwrap()
        };
        runtime.block_on(async {
            let mut shared = connect().await;
            script::prepare(&mut shared).await;
            let ours = Ours::connect(server.port).await;
            let mut own = Vec::new();
            for _ in 0..MOST_CLIENTS {
                own.push(connect().await);
            }
            Self { shared, own, ours }
        })
    }

    /// The client of that number.
    pub(crate) fn client(&self, way: Way, number: usize) -> Client {
        let connection = match way {
            Way::Transactions => &self.own[number],
            _ => &self.shared,
        };
        Client { way, connection: connection.clone(), ours: self.ours.clone() }
    }
}

impl Client {
    /// Takes a token of that user. Each way has buckets of its own.
    pub(crate) async fn take(&mut self, user: u64, limit: &Limit) -> Taken {
        let connection = &mut self.connection;
        match self.way {
            Way::Script => script::take(connection, &format!("script:{user}"), limit).await,
            Way::Commands => commands::take(connection, &format!("commands:{user}"), limit).await,
            Way::Transactions => {
                transactions::take(connection, &format!("transactions:{user}"), limit).await
            }
            Way::Ours => self.ours.take(user, limit).await,
            Way::OursCached => self.ours.take_cached(user, limit).await,
        }
    }
}
