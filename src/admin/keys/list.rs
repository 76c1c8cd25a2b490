//! `GET /api/keys`: clients in the order of their ids.

use super::{Keys, bad, unread};
use crate::admin::answer::Answer;
use crate::admin::query::Query;
use crate::api::keys::{DamagedClient, StoredClient, StoredClients};
use crate::base::text::cut;
use crate::keys::kept::Stored;
use crate::keys::record::Record;

/// Default and maximum of the parameter `limit`.
const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1_000;

/// Maximum number of clients that a request with a filter reads: then it has a `next`.
const MAX_READ: usize = 20_000;

/// Which clients to list.
struct Filter<'a> {
    /// Those of this tenant: the store lists them on their own.
    tenant: Option<&'a str>,
    plan: Option<&'a str>,
}

impl Filter<'_> {
    fn includes(&self, record: &Record) -> bool {
        self.tenant.is_none_or(|tenant| record.tenant.as_deref() == Some(tenant))
            && self.plan.is_none_or(|plan| record.plan == plan)
    }
}

impl Keys<'_> {
    /// Lists clients. `next` is the id of one of them, or of one that the filter excludes, but
    /// never of a client of a tenant that the caller may not see.
    pub(in crate::admin) async fn list(self, query: Option<&str>) -> Result<Answer, Box<Answer>> {
        let query = Query::read(query, &["cursor", "plan", "tenant", "limit"], &[])?;
        let limit = query.get("limit").map_or(Ok(DEFAULT_LIMIT), str::parse);
        let limit = limit.ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
        let limit =
            limit.ok_or_else(|| bad(&format!("`limit` must be a number from 1 to {MAX_LIMIT}")))?;
        let filter =
            Filter { tenant: query.get("tenant").or(self.tenant), plan: query.get("plan") };
        if self.tenant.is_some_and(|own| filter.tenant != Some(own)) {
            return Ok(Answer::json(&StoredClients::default()));
        }
        let after = query.get("cursor").unwrap_or_default();
        let mut clients = self.page(&filter, after, limit).await?;
        if self.tenant.is_none() {
            clients.total = Some(self.store.kept.count().await.map_err(|error| unread(&error))?);
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
            let size = if filter.plan.is_some() { MAX_LIMIT } else { limit - clients.keys.len() };
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
                    Err(_) if self.tenant.is_some() || filter.plan.is_some() => {}
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
