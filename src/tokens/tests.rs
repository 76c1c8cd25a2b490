use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use super::*;
use crate::client::ClientKey;
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
    let digest = Sha256::digest(TOKEN);
    let mut hash = String::new();
    for byte in digest {
        write!(hash, "{byte:02x}").unwrap();
    }
    let keys = format!("[keys.acme]\nsha256 = '{hash}'");
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
