//! Response to a client that replaces its own key, by POST to `clients.limits_path`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, header};
use pingora::proxy::Session;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tracing::info;

use crate::base::clock;
use crate::base::hash::Digest;
use crate::base::period;
use crate::base::time::UtcTime;
use crate::client::Client;
use crate::decide::decision::{Decision, NewKeyBody};
use crate::decide::own_key::RotationRefusal;
use crate::decide::{self, Rejection};
use crate::gateway::exchange::Exchange;
use crate::gateway::{Gateway, judge, respond};
use crate::keys::own_rotation::{OwnRotation, Wish};
use crate::observe::address::ShownAddress;
use crate::observe::audit::{CHANGED_BY_CLIENT, ChangeView};
use crate::policy::Policy;

/// Maximum length of a body, in bytes.
const MAX_BODY_BYTES: usize = 1024;

/// Maximum time to receive a body.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Default of `overlap`, in milliseconds: 24 h.
const DEFAULT_OVERLAP_MS: u64 = 86_400_000;

/// Maximum of `overlap`, in milliseconds: 7 d.
const MAX_OVERLAP_MS: u64 = 7 * 86_400_000;

const WRONG_BODY: RotationRefusal = RotationRefusal::Invalid(
    "The body is a JSON object with \"overlap\", a duration up to 7d such as \"24h\", and \"name\"; \
     both may be left out.",
);

/// Body of the request.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    overlap: Option<String>,
    name: Option<String>,
}

/// Body of the response.
#[derive(Serialize)]
struct NewKeyView<'a> {
    key: &'a str,
    name: Option<&'a str>,
    expires: Option<UtcTime>,
    previous_expires: UtcTime,
}

impl Gateway {
    /// Replaces the key of a client, which is a known one.
    pub(in crate::gateway) async fn rotate_own_key(
        &self,
        session: &mut Session,
        exchange: &Exchange,
        client: &Client,
    ) -> Decision {
        let policy = &exchange.snapshot.policy;
        let rotated = match own_key(policy, session, client) {
            None => Err(RotationRefusal::NotStored),
            Some((id, digest)) => self.rotate(session, policy, client, (&id, &digest)).await,
        };
        rotated.unwrap_or_else(|refusal| Decision::Rejected(Rejection::Rotation(refusal)))
    }

    async fn rotate(
        &self,
        session: &mut Session,
        policy: &Policy,
        client: &Client,
        (id, digest): (&Arc<str>, &Digest),
    ) -> Result<Decision, RotationRefusal> {
        let keys = self.keys.as_ref().ok_or(RotationRefusal::NotStored)?;
        let wish = wish(&read(session).await?)?;
        let rotated = keys.rotate_own(id, digest, &wish, clock::now()).await;
        let what = match &rotated {
            Ok(rotation) => Some((200, done(id, rotation, &wish))),
            Err(RotationRefusal::NotConfirmed) => Some((503, unknown(id))),
            Err(_) => None,
        };
        if let Some((status, what)) = what {
            self.note_rotation(policy, client, id, status, &what);
        }
        let OwnRotation { key, expires, previous_expires, .. } = &rotated?;
        Ok(Decision::NewKey(NewKeyBody(respond::pretty(&NewKeyView {
            key,
            name: wish.name.as_deref(),
            expires: *expires,
            previous_expires: *previous_expires,
        }))))
    }

    /// Logs what a client has done, and records it in the audit.
    fn note_rotation(
        &self,
        policy: &Policy,
        client: &Client,
        id: &Arc<str>,
        status: u16,
        what: &str,
    ) {
        let peer = client.ip.and_then(|ip| ShownAddress::of(ip, policy));
        let peer = peer.map(|peer| peer.to_string());
        let path = policy.clients.limits_path.as_deref().unwrap_or_default();
        let client_id: &str = id;
        info!(
            client = client_id,
            peer = peer.as_deref().unwrap_or_default(),
            status,
            "a client replaces its own key: {what}"
        );
        self.audit.record_change(&ChangeView {
            at: UtcTime(clock::unix_us()),
            by: CHANGED_BY_CLIENT.to_owned(),
            peer,
            call: format!("POST {path}"),
            status,
            what: what.to_owned(),
            clients: vec![id.to_string()],
            tenants: client.tenant.iter().map(|tenant| tenant.id.to_string()).collect(),
            gateway: None,
        });
    }
}

/// The client of the key store whose key a request has, by its id, and the key.
fn own_key(policy: &Policy, session: &Session, client: &Client) -> Option<(Arc<str>, Digest)> {
    let id = client.principal()?.key_id()?;
    if policy.keys.named(id).is_some() {
        return None;
    }
    let credential = decide::credential(policy, &judge::head(session)).ok()??;
    Some((Arc::clone(id), credential.digest))
}

/// Reads the body of the request.
///
/// # Errors
/// It is too long, or does not come in time.
async fn read(session: &mut Session) -> Result<Vec<u8>, RotationRefusal> {
    if session.is_body_empty() {
        return Ok(Vec::new());
    }
    if session.req_header().headers.contains_key(header::EXPECT) && !session.is_http2() {
        session.write_continue_response().await.map_err(|_| WRONG_BODY)?;
    }
    let reading = async {
        let mut body = Vec::new();
        while let Some(part) = session.read_request_body().await.map_err(|_| WRONG_BODY)? {
            if body.len() + part.len() > MAX_BODY_BYTES {
                return Err(WRONG_BODY);
            }
            body.extend_from_slice(&part);
        }
        Ok(body)
    };
    let body = timeout(READ_TIMEOUT, reading).await.unwrap_or(Err(WRONG_BODY));
    if body.is_err() {
        // Of a body that is not read to its end, it is not known where the next request begins:
        // Pingora considers one with a malformed chunk as read.
        session.set_keepalive(None);
    }
    body
}

/// What the client wants.
///
/// # Errors
/// The body does not say it.
fn wish(body: &[u8]) -> Result<Wish, RotationRefusal> {
    let body = body.trim_ascii();
    // What is derived by serde reads lists, too.
    let Body { overlap, name } = match body {
        [] => Body::default(),
        [b'{', ..] => serde_json::from_slice(body).map_err(|_| WRONG_BODY)?,
        _ => return Err(WRONG_BODY),
    };
    let overlap_ms = overlap.map_or(Ok(DEFAULT_OVERLAP_MS), |text| period::milliseconds(&text));
    let overlap_ms = overlap_ms.ok().filter(|overlap_ms| *overlap_ms <= MAX_OVERLAP_MS);
    Ok(Wish { name, overlap_us: overlap_ms.ok_or(WRONG_BODY)? * 1_000 })
}

/// What a client has done, for the log and the audit.
fn done(id: &str, rotation: &OwnRotation, wish: &Wish) -> String {
    let named = |name: Option<&str>| name.map_or(String::new(), |name| format!(" {name}"));
    format!(
        "client {id} replaced its key{} by a new one{}; the former is valid until {}",
        named(rotation.previous.as_deref()),
        named(wish.name.as_deref()),
        rotation.previous_expires
    )
}

fn unknown(id: &str) -> String {
    format!("client {id} wanted to replace its key; not known whether it was done")
}

/// Writes the response with a new key.
///
/// # Errors
/// The client has closed the connection.
pub(in crate::gateway) async fn respond(
    session: &mut Session,
    exchange: &Exchange,
    body: Bytes,
) -> pingora::Result<()> {
    let mut head = respond::ok(4)?;
    head.insert_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))?;
    head.insert_header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))?;
    respond::send_body(session, exchange, head, body).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_says_the_overlap_and_the_name() {
        let day_us = DEFAULT_OVERLAP_MS * 1_000;
        for (body, overlap_us, name) in [
            ("", day_us, None),
            (" {} ", day_us, None),
            (r#"{"overlap": "0s"}"#, 0, None),
            (r#"{"overlap": "7d", "name": "2027"}"#, 7 * day_us, Some("2027")),
        ] {
            let name = name.map(str::to_owned);
            assert_eq!(wish(body.as_bytes()), Ok(Wish { name, overlap_us }), "{body}");
        }
        for body in [
            "[]",
            "[\"1h\",\"a\"]",
            "x",
            "{\"overlap\": \"8d\"}",
            "{\"overlap\": 5}",
            "{\"key\": 1}",
        ] {
            assert_eq!(wish(body.as_bytes()), Err(WRONG_BODY), "{body}");
        }
    }
}
