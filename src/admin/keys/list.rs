//! `GET /api/keys`: clients in the order of their ids.

use super::{Keys, bad, unread};
use crate::admin::answer::Answer;
use crate::admin::query::Query;
use crate::api::keys::{DamagedClient, StoredClient, StoredClients};
use crate::base::text::cut;
use crate::base::time::UtcTime;
use crate::keys::kept::Stored;
use crate::keys::record::Record;

/// Default and maximum of the parameter `limit`.
const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1_000;

/// Maximum number of clients that a request with a filter reads: then it has a `next`.
const MAX_READ: usize = 20_000;

/// The parameters.
const NAMES: [&str; 5] = ["cursor", "plan", "tenant", "metadata", "limit"];

/// Which clients to list.
struct Filter<'a> {
    /// Those of this tenant: the store lists them on their own.
    tenant: Option<&'a str>,
    plan: Option<&'a str>,
    /// Those that have all of these texts; without a text, those that have one of this name.
    metadata: Vec<(&'a str, Option<&'a str>)>,
}

impl Filter<'_> {
    /// Whether the store has further clients between those that it includes.
    fn skips(&self) -> bool {
        self.plan.is_some() || !self.metadata.is_empty()
    }

    fn includes(&self, record: &Record) -> bool {
        self.tenant.is_none_or(|tenant| record.tenant.as_deref() == Some(tenant))
            && self.plan.is_none_or(|plan| record.plan == plan)
            && self.metadata.iter().all(|(name, wanted)| {
                let own = record.metadata.get(*name);
                own.is_some_and(|own| wanted.is_none_or(|wanted| own == wanted))
            })
    }
}

impl Keys<'_> {
    /// Lists clients. `next` is the id of one of them, or of one that the filter excludes, but
    /// never of a client of a tenant that the caller may not see.
    pub(in crate::admin) async fn list(self, query: Option<&str>) -> Result<Answer, Box<Answer>> {
        let query = Query::read(query, &NAMES, &["metadata"])?;
        let limit = query.get("limit").map_or(Ok(DEFAULT_LIMIT), str::parse);
        let limit = limit.ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
        let limit =
            limit.ok_or_else(|| bad(&format!("`limit` must be a number from 1 to {MAX_LIMIT}")))?;
        let filter = Filter {
            tenant: query.get("tenant").or(self.tenant),
            plan: query.get("plan"),
            metadata: query.all("metadata").map(name_and_text).collect(),
        };
        if self.tenant.is_some_and(|own| filter.tenant != Some(own)) {
            return Ok(Answer::json(&StoredClients::default()));
        }
        let after = query.get("cursor").unwrap_or_default();
        let mut clients = self.page(&filter, after, limit).await?;
        if self.tenant.is_none() {
            clients.total = Some(self.store.kept.count().await.map_err(|error| unread(&error))?);
        }
        let ids: Vec<&str> = clients.keys.iter().map(|client| client.id.as_str()).collect();
        let uses = self.store.kept.last_uses(&ids).await.map_err(|error| unread(&error))?;
        for (client, used) in clients.keys.iter_mut().zip(uses) {
            client.last_used = used.map(UtcTime);
        }
        Ok(Answer::json(&clients))
    }

    /// The first clients of the filter after the id `after`.
    async fn page(
        self,
        filter: &Filter<'_>,
        after: &str,
        limit: usize,
    ) -> Result<StoredClients, Box<Answer>> {
        let mut clients = StoredClients::default();
        let (mut cursor, mut read) = (after.to_owned(), 0);
        loop {
            let size = if filter.skips() { MAX_LIMIT } else { limit - clients.keys.len() };
            let page = self.store.kept.list(filter.tenant, &cursor, size).await;
            let page = page.map_err(|error| unread(&error))?;
            if page.is_empty() {
                return Ok(clients);
            }
            for Stored { id, record, .. } in page {
                match record {
                    Ok(record) if filter.includes(&record) => {
                        clients.keys.push(StoredClient::of(&record));
                    }
                    Ok(_) => {}
                    // What it was is not known.
                    Err(_) if self.tenant.is_some() || filter.skips() => {}
                    Err(damage) => {
                        let why = cut(&damage.why, 200);
                        clients.damaged.push(DamagedClient { id: id.clone(), why });
                    }
                }
                read += 1;
                cursor = id;
                if clients.keys.len() == limit || clients.damaged.len() == MAX_LIMIT {
                    break;
                }
            }
            let is_full = clients.keys.len() == limit || clients.damaged.len() == MAX_LIMIT;
            if is_full || read >= MAX_READ {
                clients.next = Some(cursor);
                return Ok(clients);
            }
        }
    }
}

/// Reads `NAME=TEXT`, or `NAME`.
fn name_and_text(text: &str) -> (&str, Option<&str>) {
    match text.split_once('=') {
        Some((name, text)) => (name, Some(text)),
        None => (text, None),
    }
}
