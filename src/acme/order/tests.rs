//! Orders at servers whose responses are malformed: no panic, and an error that a person can read.

use std::collections::VecDeque;
use std::pin::Pin;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use instant_acme::{BodyWrapper, BytesResponse};
use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;
use crate::acme::account::tests::base64_url;
use crate::acme::challenges::Challenges;
use crate::acme::storage::folder::Folder;
use crate::acme::transport;
use crate::policy::acme::AcmeStorage;
use crate::tls::store::CertificateStore;

/// Answers requests with these responses, in order; then as a server that is overloaded.
struct Scripted(Mutex<VecDeque<(StatusCode, HeaderMap, Vec<u8>)>>);

impl HttpClient for Scripted {
    fn request(
        &self,
        _request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, instant_acme::Error>> + Send>> {
        let overloaded = || (StatusCode::SERVICE_UNAVAILABLE, HeaderMap::new(), Vec::new());
        let (status, headers, body) = self.0.lock().pop_front().unwrap_or_else(overloaded);
        Box::pin(async move { Ok(transport::answer(status, &headers, body, None)) })
    }
}

const DIRECTORY: &str =
    r#"{"newNonce": "https://ca/n", "newAccount": "https://ca/a", "newOrder": "https://ca/o"}"#;
const ORDER: &str =
    r#"{"status": "pending", "authorizations": ["https://ca/z"], "finalize": "https://ca/f"}"#;
const AUTHORIZATION: &str = r#"{"identifier": {"type": "dns", "value": "a.example"}, "status": "pending",
    "challenges": [{"type": "http-01", "url": "https://ca/c", "token": "t", "status": "pending"}]}"#;
const CHALLENGE: &str =
    r#"{"type": "http-01", "url": "https://ca/c", "token": "t", "status": "processing"}"#;
const INVALID: &str =
    r#"{"status": "invalid", "authorizations": ["https://ca/z"], "finalize": "https://ca/f"}"#;

/// The responses of a server that finds the challenge invalid, up to the error of the order.
const SCRIPT: [&str; 7] = [DIRECTORY, "", ORDER, AUTHORIZATION, CHALLENGE, INVALID, AUTHORIZATION];

fn scripted(bodies: impl IntoIterator<Item = Vec<u8>>) -> Scripted {
    let response = |body| {
        let mut headers = HeaderMap::new();
        headers.insert("replay-nonce", HeaderValue::from_static("n"));
        headers.insert("location", HeaderValue::from_static("https://ca/o/1"));
        (StatusCode::OK, headers, body)
    };
    Scripted(Mutex::new(bodies.into_iter().map(response).collect()))
}

/// Orders at this server. Time does not pass.
fn order(server: Scripted) -> AcmeError {
    let (key, pkcs8) = instant_acme::Key::generate_pkcs8().unwrap();
    drop(key);
    let key: String = base64_url(pkcs8.secret_pkcs8_der());
    let credentials =
        format!(r#"{{"id": "https://ca/1", "key_pkcs8": "{key}", "directory": "https://ca/d"}}"#);
    let settings = Acme {
        directory: "https://ca/d".to_owned(),
        email: None,
        domains: vec!["a.example".to_owned()],
        storage: AcmeStorage::Folder("none".into()),
        challenge: Challenge::Http01,
        ca: None,
        eab: None,
    };
    let responder = Arc::new(Challenges::default());
    let store = Arc::new(CertificateStore::default());
    let board = Board::new(Challenge::Http01, Arc::clone(&responder), store);
    let orders = Orders {
        settings,
        storage: Storage::Folder(Folder::new("none".into())),
        accounts: Accounts::default(),
        board: Arc::new(board),
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let credentials = Arc::new(credentials.into_bytes());
    let issued = orders.issue_as(&credentials, "a.example", Box::new(server));
    let error = runtime.unwrap().block_on(issued).err().unwrap();
    assert_eq!(responder.answer("/.well-known/acme-challenge/t"), None, "the challenge is over");
    error
}

#[test]
fn invalid_order_without_a_reason_says_so() {
    let error = order(scripted(SCRIPT.map(|body| body.as_bytes().to_vec())));
    assert_eq!(error.to_string(), "the server refused: the order is invalid, without a reason");
}

#[test]
fn error_of_the_challenge_is_the_reason() {
    let refused = AUTHORIZATION.replace(
        r#""status": "pending"}]"#,
        r#""status": "invalid", "error": {"type": "urn:ietf:params:acme:error:dns", "detail": "no such name"}}]"#,
    );
    let mut script = SCRIPT.map(|body| body.as_bytes().to_vec());
    script[6] = refused.into_bytes();
    let error = order(scripted(script));
    assert_eq!(
        error.to_string(),
        "the challenge failed: no such name (urn:ietf:params:acme:error:dns)"
    );
}

/// The server has checked it before it replies that it begins.
#[test]
fn challenge_that_has_failed_at_once_is_the_reason() {
    let error = r#""status": "invalid", "error": {"type": "urn:ietf:params:acme:error:dns", "detail": "no such name"}}"#;
    let failed =
        |body: &str, status: &str| body.replace(&format!(r#""status": "{status}"}}"#), error);
    let mut script = SCRIPT.map(|body| body.as_bytes().to_vec());
    script[4] = failed(CHALLENGE, "processing").into_bytes();
    script[6] = failed(AUTHORIZATION, "pending").into_bytes();
    let error = order(scripted(script));
    assert_eq!(
        error.to_string(),
        "the challenge failed: no such name (urn:ietf:params:acme:error:dns)"
    );
}

#[test]
fn other_challenges_only_are_an_error() {
    let mut script = SCRIPT.map(|body| body.as_bytes().to_vec());
    script[3] = AUTHORIZATION.replace("http-01", "dns-01").into_bytes();
    let error = order(scripted(script));
    let expected = "the server does not offer the challenge http-01 for this domain";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn url_that_is_none_is_an_error() {
    let (from, to) = ("https://ca/", "https://ca /");
    let wrong = "the response has a URL that is none";
    // A directory is not read from an error.
    for (at, expected) in [(0, "missing field `newNonce`"), (2, wrong), (3, wrong)] {
        let mut script = SCRIPT.map(|body| body.as_bytes().to_vec());
        script[at] = SCRIPT[at].replacen(from, to, 1).into_bytes();
        let error = order(scripted(script)).to_string();
        assert!(error.contains(expected), "{at}: {error}");
    }
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(64))]

    /// A response of the script is replaced, cut, or has a byte changed.
    #[test]
    fn malformed_response_is_a_readable_error(
        at in 0..SCRIPT.len(),
        cut in 0_usize..200,
        change: Option<(usize, u8)>,
        other: Option<Vec<u8>>,
    ) {
        let mut script = SCRIPT.map(|body| body.as_bytes().to_vec());
        let body = &mut script[at];
        body.truncate(cut);
        if let (Some((place, byte)), false) = (change, body.is_empty()) {
            let place = place % body.len();
            body[place] = byte;
        }
        if let Some(other) = other {
            *body = other;
        }
        let text = order(scripted(script)).to_string();
        prop_assert!(!text.is_empty() && !text.contains(char::is_control), "{text:?}");
        prop_assert!(text.chars().count() < 500, "{text}");
    }
}
