use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use super::*;
use crate::client::ClientKey;
use crate::client::credential::CredentialKind;
use crate::client::principal::KeyRefusal;
use crate::load::from_text;

/// RFC 7515, appendix A.1.
const TOKEN: &str = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.\
    eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.\
    dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";

fn policy(jwt: &str, keys: &str) -> Policy {
    let text = format!(
        "[clients.jwt]\nissuer = 'joe'\naudience = []\nid_claim = 'iss'\n{jwt}\n{keys}\n\
         [upstreams.api]\nservers = ['demo']\n[routes.all]\n"
    );
    from_text("gateway.toml", &text).unwrap()
}

/// The hash of a key, as the file has it.
fn sha256(key: &str) -> String {
    let mut hash = String::new();
    for byte in Sha256::digest(key) {
        write!(hash, "{byte:02x}").unwrap();
    }
    hash
}

fn look_up(tokens: &Tokens, policy: &Policy, token: &str, unix_us: u64) -> Result<Found, NoKeys> {
    let mut headers = http::HeaderMap::new();
    headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
    let credential = Credential::of(&policy.clients, &headers, None).unwrap();
    tokens.look_up(policy, credential.as_ref(), || unix_us)
}

#[test]
fn refusal_of_a_cached_token_depends_on_the_time() {
    let policy = policy("secret = '0123456789abcdef0123456789abcdef'\nclock_skew = '0s'", "");
    let tokens = Tokens::new(&policy.clients, None);
    for _ in 0..2 {
        let found = look_up(&tokens, &policy, TOKEN, 0).unwrap();
        assert_eq!(found.refusal, Some(KeyRefusal::Token(TokenRefusal::Signature)));
    }
    assert_eq!(look_up(&tokens, &policy, "opaque", 0).unwrap().refusal, None);
}

#[test]
fn key_of_the_file_that_looks_like_a_token_stays_a_key() {
    let keys = format!("[keys.acme]\nsha256 = '{}'", sha256(TOKEN));
    let policy = policy("secret = '0123456789abcdef0123456789abcdef'", &keys);
    let tokens = Tokens::new(&policy.clients, None);
    let found = look_up(&tokens, &policy, TOKEN, 0).unwrap();
    let ClientKey::Known(known) = found.key else { panic!() };
    assert_eq!(known.key_id().map(|id| &**id), Some("acme"));
}

#[test]
fn tokens_cannot_be_verified_before_keys_were_fetched() {
    let policy = policy("jwks = 'https://127.0.0.1:1/jwks.json'", "");
    let tokens = Tokens::new(&policy.clients, None);
    assert_eq!(look_up(&tokens, &policy, TOKEN, 0), Err(NoKeys));
    // A token of another issuer is refused.
    let other = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJhbm4ifQ.AAAA";
    let found = look_up(&tokens, &policy, other, 0).unwrap();
    assert_eq!(found.refusal, Some(KeyRefusal::Token(TokenRefusal::Issuer)));
    assert_eq!(tokens.issuers()[0].view().map(|view| view.keys), Some(0));
    let again = Tokens::new(&policy.clients, Some(&tokens));
    assert!(Arc::ptr_eq(&tokens.issuers()[0], &again.issuers()[0]), "kept at a reload");
}

#[test]
fn bearer_text_of_three_parts_is_a_token_unless_it_is_a_key_of_the_file() {
    let anonymous = "on_unknown_key = 'anonymous'\napi_key = ['header:x-api-key', 'bearer']";
    let text = format!(
        "[clients]\n{anonymous}\n[clients.jwt]\nissuer = 'joe'\naudience = []\n\
         secret = '0123456789abcdef0123456789abcdef'\n[keys.acme]\nsha256 = '{}'\n\
         [upstreams.api]\nservers = ['demo']\n[routes.all]\n",
        sha256("sk_live.a.b")
    );
    let policy = from_text("gateway.toml", &text).unwrap();
    let tokens = Tokens::new(&policy.clients, None);
    let refused = Some(KeyRefusal::Token(TokenRefusal::Malformed));
    for (token, refusal) in [
        ("opaque", None),
        ("a.b", None),
        ("sk_live.a.b", None),
        ("sk_live.a.c", refused),
        ("..", refused),
        ("e30.e30.", refused),
        ("+yJh.e30.AA", refused),
        ("a.b.c.d.e", refused),
    ] {
        let found = look_up(&tokens, &policy, token, 0).unwrap();
        assert_eq!(found.refusal, refusal, "{token}");
    }
    let mut headers = http::HeaderMap::new();
    headers.insert("x-api-key", "sk_live.a.c".parse().unwrap());
    let credential = Credential::of(&policy.clients, &headers, None).unwrap();
    assert_eq!(credential.unwrap().kind, CredentialKind::Key, "an API key in its own header");
}

/// A provider may replace a key without a name, or under tokens without one.
#[test]
fn wrong_signature_demands_a_fetch_unless_the_key_is_named() {
    let policy = policy("jwks = 'https://127.0.0.1:1/jwks.json'", "");
    let issuer = &policy.clients.issuers[0];
    let keys = |kid: &str| {
        let x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
        let key =
            format!("{{\"keys\":[{{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"{x}\"{kid}}}]}}");
        KeySet::of_jwks(key.as_bytes()).unwrap()
    };
    let (named, unnamed) = (keys(",\"kid\":\"a\""), keys(""));
    let token = |header: &str| {
        use base64::Engine as _;
        let header = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(header);
        format!("{header}.e30.")
    };
    let with_kid = token("{\"alg\":\"EdDSA\",\"kid\":\"a\"}");
    let without = token("{\"alg\":\"EdDSA\"}");
    let hmac = token("{\"alg\":\"HS256\"}");
    for (keys, token, why, expected) in [
        (&named, &with_kid, TokenRefusal::Signature, false),
        (&named, &without, TokenRefusal::Signature, true),
        (&unnamed, &with_kid, TokenRefusal::Signature, true),
        (&unnamed, &without, TokenRefusal::Algorithm, true),
        (&unnamed, &hmac, TokenRefusal::Algorithm, false),
        (&named, &with_kid, TokenRefusal::UnknownKey, true),
        (&unnamed, &without, TokenRefusal::Audience, false),
    ] {
        let token = Compact::parse(token.as_bytes()).unwrap();
        assert_eq!(may_have_new_key(issuer, keys, &token, why), expected, "{why:?}");
    }
}

#[test]
fn keys_are_kept_by_a_reload_that_changes_only_how_often_they_are_fetched() {
    let url = "jwks = 'https://127.0.0.1:1/jwks.json'";
    let before = Tokens::new(&policy(url, "").clients, None);
    for (settings, is_kept) in [
        (format!("{url}\nrefresh = '1h'"), true),
        (format!("{url}\nheaders = {{ X-User = 'sub' }}"), true),
        (format!("{url}\nca = 'ca.pem'"), false),
        ("jwks = 'https://127.0.0.1:1/other.json'".to_owned(), false),
    ] {
        let after = Tokens::new(&policy(&settings, "").clients, Some(&before));
        let is_same = Arc::ptr_eq(&before.issuers()[0], &after.issuers()[0]);
        assert_eq!(is_same, is_kept, "{settings}");
    }
}

/// The start ends a fetch that takes too long, so its failure is that of a later one.
#[tokio::test]
async fn first_failure_that_ends_is_logged_after_one_that_was_given_up() {
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("jwks = 'http://{}/jwks.json'", server.local_addr().unwrap());
    let policy = policy(&url, "");
    let keys = IssuerKeys::new(&policy.clients.issuers[0]);
    let now = clock::now();
    // The system accepts the connection, and nothing answers.
    let short = Duration::from_millis(50);
    assert!(tokio::time::timeout(short, keys.fetch(now)).await.is_err());
    assert!(!keys.is_failure_logged());
    drop(server);
    keys.fetch(now + 600_000_000).await;
    assert!(keys.is_failure_logged());
}
