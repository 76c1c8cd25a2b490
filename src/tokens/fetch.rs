//! The requests for the keys of an issuer: bounded in time and in size, without redirects.

use std::time::Duration;

use http::header::ACCEPT;
use http::{HeaderValue, Method, StatusCode};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::base::text::cut;
use crate::client::jwt::key_set::{KeySet, KeySetError};
use crate::client::jwt::settings::{FetchFrom, Fetched};
use crate::net::http::{BodyTooLong, FileReads, HttpClient, HttpError, Request};
use crate::net::tls::{self, ClientTls};
use crate::net::url::HttpUrl;

/// Time limit for one response.
const DEADLINE: Duration = Duration::from_secs(5);

/// Maximum size of a response in bytes. A set of ten keys with certificates has 30 KB.
const MAX_BODY_BYTES: usize = 1 << 20;

/// Why keys cannot be fetched.
#[derive(Debug, Error)]
pub(super) enum FetchError {
    #[error("{url}: {source}")]
    Http { url: String, source: HttpError },
    #[error("{url}: status {status}")]
    Status { url: String, status: StatusCode },
    #[error("{url}: {source}")]
    TooLong { url: String, source: BodyTooLong },
    #[error("{url}: {source}")]
    NoKeys { url: String, source: KeySetError },
    #[error("{url}: the metadata of the provider have no `jwks_uri` with `https://`")]
    NoMetadata { url: String },
    #[error("{url}: the metadata are of another issuer: {found}")]
    OtherIssuer { url: String, found: String },
}

/// Fetches the keys of `issuer`. The file `ca` is read by `reads`.
///
/// # Errors
/// See [`FetchError`].
pub(super) async fn fetch(
    from: &Fetched,
    issuer: &str,
    reads: &FileReads,
) -> Result<KeySet, FetchError> {
    let tls = ClientTls { ca: from.ca.clone(), certificate: None };
    let discovered = match &from.from {
        FetchFrom::Jwks(url) => url.clone(),
        FetchFrom::Discovery(url) => {
            let metadata = get(url, &tls, reads).await?;
            jwks_url(url, &metadata, issuer)?
        }
    };
    let json = get(&discovered, &tls, reads).await?;
    let no_keys = |source| FetchError::NoKeys { url: discovered.as_str().to_owned(), source };
    KeySet::of_jwks(&json).map_err(no_keys)
}

/// The URL of the keys in the metadata of a provider (OpenID Connect Discovery 1.0, section 3).
fn jwks_url(url: &HttpUrl, metadata: &[u8], issuer: &str) -> Result<HttpUrl, FetchError> {
    let shown = || url.as_str().to_owned();
    let no_metadata = || FetchError::NoMetadata { url: shown() };
    let members: Map<String, Value> =
        serde_json::from_slice(metadata).map_err(|_| no_metadata())?;
    let text = |name: &str| members.get(name).and_then(Value::as_str);
    let found = text("issuer").unwrap_or_default();
    if found != issuer {
        return Err(FetchError::OtherIssuer { url: shown(), found: cut(found, 128) });
    }
    let jwks = text("jwks_uri").and_then(HttpUrl::parse);
    jwks.filter(HttpUrl::is_private).ok_or_else(no_metadata)
}

async fn get(url: &HttpUrl, tls: &ClientTls, reads: &FileReads) -> Result<Vec<u8>, FetchError> {
    let shown = || url.as_str().to_owned();
    // A client of its own: there is one request in minutes.
    let tls = url.is_tls.then(|| (tls::JWT, tls.clone()));
    let client = HttpClient::new(url.server.clone(), tls).with_reads(reads);
    let accept = HeaderValue::from_static("application/json");
    let request = Request {
        method: Method::GET,
        path: &url.path,
        headers: vec![(ACCEPT, accept)],
        body: &[],
    };
    let response = client.fetch(&request, DEADLINE, MAX_BODY_BYTES).await;
    let response = response.map_err(|source| FetchError::Http { url: shown(), source })?;
    if response.status != StatusCode::OK {
        return Err(FetchError::Status { url: shown(), status: response.status });
    }
    response.body.map_err(|source| FetchError::TooLong { url: shown(), source })
}
