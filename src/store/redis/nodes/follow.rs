//! Calls that a node redirects to another one. A redirected call was not executed, so it may be
//! made again.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult};

use super::Nodes;
use crate::base::clock;
use crate::net::address::HostPort;
use crate::store::redis::call::{self, Until};
use crate::store::redis::cluster::redirect::Redirect;
use crate::store::redis::cluster::topology::address;
use crate::store::redis::link::{Connection, Link};
use crate::store::redis::node::Node;
use crate::store::redis::script::Batch;

/// Maximum number of redirections of a call.
const MAX_REDIRECTS: usize = 4;

/// Time until a call with keys that are being moved is made again.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(1);

pub struct CallReply {
    /// The reply, or the error.
    pub reply: RedisResult<Vec<i64>>,
    /// The node that it is from, if that is another one than was called.
    pub via: Option<Via>,
}

/// A node that a call was redirected to.
pub struct Via {
    pub node: Arc<Node>,
    /// Its connection on which the call was sent.
    pub connection: Connection,
}

/// Where a redirection leads.
struct Target {
    node: Arc<Node>,
    connection: Connection,
    /// Whether the node imports the slot, and has to be asked to serve it.
    is_asked: bool,
}

impl Nodes {
    /// Follows the redirection that `error` is, not after `ends` (microseconds). `connection` and
    /// `link` are those of the node that has redirected the call. Other errors are returned.
    pub async fn follow(
        &self,
        error: RedisError,
        batch: &Batch,
        slot: u16,
        (mut connection, mut link): (MultiplexedConnection, Arc<Link>),
        ends: u64,
    ) -> CallReply {
        let mut last = CallReply { reply: Err(error), via: None };
        let mut claims = batch.encode_claims();
        for _ in 0..MAX_REDIRECTS {
            let redirect = match &last.reply {
                Err(error) if clock::now() < ends => Redirect::of(error),
                Ok(_) | Err(_) => None,
            };
            let target = match redirect {
                None => break,
                Some(Redirect::TryAgain) => {
                    self.note_migrating(slot);
                    if batch.keys().len() > 1 {
                        // Asked for again one by one, the buckets have no need to be at one node.
                        break;
                    }
                    tokio::time::sleep(TRY_AGAIN_AFTER).await;
                    let until = Until::RunBy(ends, link.clock());
                    last.reply =
                        call::take_claiming(&mut connection, batch, claims.clone(), until).await;
                    continue;
                }
                Some(redirect) => match self.target(&redirect, slot) {
                    None => self.awaited_target(&redirect, slot, ends).await,
                    target => target,
                },
            };
            let Some(Target { node, connection: to, is_asked }) = target else { break };
            // The node that was called may have nothing to repair, and this one may have taken over
            // from it.
            claims = node.batcher().encode_claims(batch, clock::now());
            let mut redis = to.redis.clone();
            let until = Until::RunBy(ends, node.link().clock());
            let reply = if is_asked {
                call::take_asking(&mut redis, batch, claims.clone(), until).await
            } else {
                (connection, link) = (redis.clone(), Arc::clone(node.link()));
                call::take_claiming(&mut redis, batch, claims.clone(), until).await
            };
            last = CallReply { reply, via: Some(Via { node, connection: to }) };
        }
        last
    }

    /// Notes a redirection, and returns where it leads to, if that node can be called.
    fn target(&self, redirect: &Redirect, slot: u16) -> Option<Target> {
        match redirect {
            // A server names the slot of the call.
            Redirect::Moved { slot: named, host, port } if *named == slot => {
                let at = self.named(host, *port)?;
                self.note_moved(slot, &at);
                let (node, connection) = self.connection_to(&at)?;
                Some(Target { node, connection, is_asked: false })
            }
            Redirect::Ask { host, port } => {
                self.note_migrating(slot);
                let at = self.named(host, *port)?;
                let moves = self.moves.lock();
                self.adopt(&at, None);
                drop(moves);
                let Some((node, connection)) = self.connection_to(&at) else {
                    self.refresh.notify_one();
                    return None;
                };
                Some(Target { node, connection, is_asked: true })
            }
            Redirect::Moved { .. } | Redirect::TryAgain => None,
        }
    }

    /// Like [`target`](Self::target), once the first attempt to connect to a node has ended that
    /// became known just now.
    async fn awaited_target(&self, redirect: &Redirect, slot: u16, ends: u64) -> Option<Target> {
        let (Redirect::Moved { host, port, .. } | Redirect::Ask { host, port }) = redirect else {
            return None;
        };
        let node = self.node_at(&self.named(host, *port)?)?;
        let left = Duration::from_micros(ends.saturating_sub(clock::now()));
        node.link().until_first_attempt(left).await;
        self.target(redirect, slot)
    }

    /// Notes that `error` is a redirection, if it is. Returns whether it is: the call was not
    /// executed, and can be made again shortly.
    pub fn note_redirect(&self, error: &RedisError, slot: u16) -> bool {
        let redirect = Redirect::of(error);
        match &redirect {
            None => {}
            Some(Redirect::TryAgain) => self.note_migrating(slot),
            Some(Redirect::Moved { .. } | Redirect::Ask { .. }) => {
                if let Some(redirect) = &redirect {
                    let _ = self.target(redirect, slot);
                }
            }
        }
        redirect.is_some()
    }

    /// The master that `error` names as that of a slot that has moved.
    pub fn moved_to(&self, error: &RedisError) -> Option<Via> {
        match Redirect::of(error)? {
            redirect @ Redirect::Moved { slot, .. } => {
                let Target { node, connection, .. } = self.target(&redirect, slot)?;
                Some(Via { node, connection })
            }
            Redirect::Ask { .. } | Redirect::TryAgain => None,
        }
    }

    /// Address of a node in a redirection. Without a host, it has that of the first master: a
    /// cluster that names no hosts is reached by one.
    fn named(&self, host: &str, port: u16) -> Option<HostPort> {
        let known = self.members.load().masters.first().and_then(|member| member.at.clone());
        address(host, port, &known?)
    }
}
