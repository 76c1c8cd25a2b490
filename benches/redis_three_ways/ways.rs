//! The methods that are compared.

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::runtime::Runtime;

use crate::arithmetic::Limit;
use crate::load::MOST_CLIENTS;
use crate::ours::Ours;
use crate::server::RedisServer;
use crate::{commands, script, transactions};

/// A method to take a token from a bucket in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Script,
    Commands,
    Transactions,
    Ours,
    OursCached,
}

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Passed,
    Refused,
    /// Gave up, after all attempts or after the timeout of a request.
    Undecided,
}

/// Connections of all methods.
pub(crate) struct Ways {
    shared: MultiplexedConnection,
    /// One connection per client.
    own: Vec<MultiplexedConnection>,
    ours: Ours,
}

/// A client that sends requests in sequence.
pub(crate) struct Client {
    way: Way,
    connection: MultiplexedConnection,
    ours: Ours,
}

impl Way {
    pub(crate) const ALL: [Self; 5] =
        [Self::Script, Self::Commands, Self::Transactions, Self::Ours, Self::OursCached];

    /// Name in the tables.
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
    /// Converts the decision of a store.
    pub(crate) fn of(allowed: bool) -> Self {
        if allowed { Self::Passed } else { Self::Refused }
    }
}

impl Ways {
    /// Opens the connections. Methods (a), (b) and tollgate share one connection each among all
    /// clients, which pipelines concurrent requests; (c) cannot.
    pub(crate) fn connect(runtime: &Runtime, server: &RedisServer) -> Self {
        // No timeout, because a timer per command would penalise the methods with many commands.
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

    /// Creates a client.
    pub(crate) fn client(&self, way: Way, number: usize) -> Client {
        let connection = match way {
            Way::Transactions => &self.own[number],
            _ => &self.shared,
        };
        Client { way, connection: connection.clone(), ours: self.ours.clone() }
    }
}

impl Client {
    /// Takes a token of a user. Each method uses separate buckets.
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
