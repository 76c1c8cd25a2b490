//! The HTTP client of `instant-acme`, over the gateway's own. It makes malformed responses
//! harmless: the library adds `Retry-After` to the time without a check, and reads any error as a
//! problem document.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri};
use http_body::Body as _;
use instant_acme::{BodyWrapper, BytesResponse};
use parking_lot::Mutex;
use serde_json::Value;

use super::error::{AcmeError, readable};
use crate::base::clock;
use crate::net::address::HostPort;
use crate::net::http::{self as net, HttpClient};
use crate::net::tls::{self, ClientTls};

/// Time limit for one request. A public server takes a few seconds to sign a certificate.
const DEADLINE: Duration = Duration::from_secs(30);

/// Maximum size of a response. A certificate with its chain has about 5 KB.
const MAX_BODY_BYTES: usize = 1 << 20;

/// Longest `Retry-After` within an order, in seconds. Longer ones end the order, see
/// [`RetryAfter`].
const MAX_POLL_S: u64 = 60;

/// The headers of a response that the protocol uses, besides `Retry-After`.
const KEPT: [HeaderName; 3] = [HeaderName::from_static("replay-nonce"), LOCATION, CONTENT_TYPE];

type Answer = Result<BytesResponse, instant_acme::Error>;

/// Sends the requests of one order.
pub(super) struct Transport {
    shared: Arc<Shared>,
}

/// The seconds that the server last asked to wait, if it refused a request.
#[derive(Clone)]
pub(super) struct RetryAfter(Arc<Shared>);

struct Shared {
    tls: ClientTls,
    /// Clients by server: the URLs of a directory may lead to several.
    clients: Mutex<HashMap<HostPort, Arc<HttpClient>>>,
    retry_after: Mutex<Option<u64>>,
}

impl Transport {
    /// A transport to servers whose certificates `tls` verifies.
    pub(super) fn new(tls: ClientTls) -> (Self, RetryAfter) {
        let (clients, retry_after) = (Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { tls, clients, retry_after });
        (Self { shared: Arc::clone(&shared) }, RetryAfter(shared))
    }
}

impl RetryAfter {
    /// The seconds, if the server has refused a request and said when to come back.
    pub(super) fn seconds(&self) -> Option<u64> {
        *self.0.retry_after.lock()
    }
}

impl instant_acme::HttpClient for Transport {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Answer> + Send>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let url = request.uri().clone();
            let sent = shared.send(request).await;
            sent.map_err(|reason| {
                let url = readable(&url.to_string());
                instant_acme::Error::Other(Box::new(AcmeError::Unreachable { url, reason }))
            })
        })
    }
}

impl Shared {
    async fn send(&self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, String> {
        let (parts, mut body) = request.into_parts();
        let client = self.client(&parts.uri)?;
        let mut bytes = Vec::new();
        while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            let Ok(frame) = frame;
            bytes.extend(frame.into_data().into_iter().flatten());
        }
        let headers = parts.headers.get(CONTENT_TYPE).cloned();
        let request = net::Request {
            method: parts.method,
            path: parts.uri.path_and_query().map_or("/", |path| path.as_str()),
            headers: headers.map(|value| (CONTENT_TYPE, value)).into_iter().collect(),
            body: &bytes,
        };
        let fetched = client.fetch(&request, DEADLINE, MAX_BODY_BYTES).await;
        let response = fetched.map_err(|error| readable(&error.to_string()))?;
        let body = response.body.map_err(|error| error.to_string())?;
        let wait = retry_after(&response.headers, clock::unix_seconds());
        if response.status.is_client_error() || response.status.is_server_error() {
            *self.retry_after.lock() = wait;
        }
        Ok(answer(response.status, &response.headers, body, wait))
    }

    fn client(&self, url: &Uri) -> Result<Arc<HttpClient>, String> {
        if url.scheme_str() != Some("https") {
            return Err("not an https:// URL".to_owned());
        }
        let authority = url.authority().map_or("", |authority| authority.as_str());
        let server = HostPort::parse(authority, Some(443)).map_err(|error| error.to_string())?;
        let mut clients = self.clients.lock();
        let client = clients.entry(server).or_insert_with_key(|server| {
            Arc::new(HttpClient::new(server.clone(), Some((tls::ACME, self.tls.clone()))))
        });
        Ok(Arc::clone(client))
    }
}

/// Members of responses that are URLs.
const URLS: [&str; 9] = [
    "newNonce",
    "newAccount",
    "newOrder",
    "revokeCert",
    "keyChange",
    "renewalInfo",
    "finalize",
    "certificate",
    "url",
];

/// Whether a response has a text where a URL should be. The library would panic when it requests
/// it.
fn has_wrong_url(body: &[u8]) -> bool {
    let is_url = |value: &Value| value.as_str().is_none_or(|text| text.parse::<Uri>().is_ok());
    let mut values = vec![serde_json::from_slice::<Value>(body).unwrap_or_default()];
    while let Some(value) = values.pop() {
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    let are_urls = match &member {
                        Value::Array(list) if name == "authorizations" => list.iter().all(is_url),
                        member => !URLS.contains(&name.as_str()) || is_url(member),
                    };
                    if !are_urls {
                        return true;
                    }
                    values.push(member);
                }
            }
            Value::Array(list) => values.extend(list),
            _ => {}
        }
    }
    false
}

/// The response as the library expects it. An error that is no problem document becomes one, and so
/// does a response that has a wrong URL.
pub(super) fn answer(
    status: StatusCode,
    headers: &HeaderMap,
    body: Vec<u8>,
    wait: Option<u64>,
) -> BytesResponse {
    let (status, body) = if has_wrong_url(&body) {
        (StatusCode::BAD_GATEWAY, b"the response has a URL that is none".to_vec())
    } else {
        (status, body)
    };
    let is_error = status.is_client_error() || status.is_server_error();
    let body = if is_error && serde_json::from_slice::<instant_acme::Problem>(&body).is_err() {
        let text: String = String::from_utf8_lossy(&body).chars().take(100).collect();
        let detail = format!("HTTP {}: {}", status.as_u16(), readable(text.trim()));
        serde_json::to_vec(&serde_json::json!({ "detail": detail })).unwrap_or_default()
    } else {
        body
    };
    let mut response = http::Response::new(());
    *response.status_mut() = status;
    for name in KEPT {
        let is_url = |value: &HeaderValue| Uri::try_from(value.as_bytes()).is_ok();
        if let Some(value) = headers.get(&name).filter(|value| name != LOCATION || is_url(value)) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    if let Some(seconds) = wait {
        let seconds = HeaderValue::from(seconds.clamp(1, MAX_POLL_S));
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    let (parts, ()) = response.into_parts();
    BytesResponse { parts, body: Box::new(Bytes::from(body)) }
}

/// Seconds from `now` (Unix) that `Retry-After` asks to wait: a number or a date. `None` if it is
/// malformed, missing or over.
fn retry_after(headers: &HeaderMap, now: u64) -> Option<u64> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(seconds);
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(u64::MAX);
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    u64::try_from(date.as_second()).ok()?.checked_sub(now)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(retry_after: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, HeaderValue::from_str(retry_after).unwrap());
        headers
    }

    #[test]
    fn retry_after_is_a_number_or_a_date() {
        let table = [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("Fri, 31 Dec 1999 23:59:59 GMT", Some(59)),
            ("Fri, 31 Dec 1999 23:58:00 GMT", None),
            ("-1", None),
            ("soon", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(retry_after(&headers(text), 946_684_740), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn error_that_is_no_problem_document_is_readable() {
        let page = b"<html>\n<h1>502 Bad Gateway</h1>".to_vec();
        let mut response = answer(StatusCode::BAD_GATEWAY, &HeaderMap::new(), page, None);
        let body = response.body.into_bytes().await.unwrap();
        let problem: instant_acme::Problem = serde_json::from_slice(&body).unwrap();
        insta::assert_snapshot!(problem.detail.unwrap(), @r"HTTP 502: <html>\u{a}<h1>502 Bad Gateway</h1>");
    }

    #[test]
    fn library_gets_a_short_retry_after() {
        let response = answer(StatusCode::OK, &headers("7"), Vec::new(), Some(u64::MAX));
        assert_eq!(response.parts.headers[RETRY_AFTER], "60");
    }

    #[test]
    fn only_https_is_used() {
        let (transport, _) = Transport::new(ClientTls::default());
        for url in ["http://a.example/x", "/x", "https://a.example:0/", "ftp://a.example/"] {
            assert!(transport.shared.client(&url.parse().unwrap()).is_err(), "{url}");
        }
        assert!(transport.shared.client(&"https://a.example/x".parse().unwrap()).is_ok());
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn no_header_and_no_body_panics(
            value in proptest::collection::vec(any::<u8>(), 0..40),
            body: Vec<u8>,
            status in 100_u16..600,
            now: u64,
        ) {
            let mut headers = HeaderMap::new();
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                headers.insert(RETRY_AFTER, value);
            }
            let wait = retry_after(&headers, now);
            let status = StatusCode::from_u16(status).unwrap();
            let response = answer(status, &headers, body, wait);
            prop_assert_eq!(response.parts.status, status);
        }
    }
}
