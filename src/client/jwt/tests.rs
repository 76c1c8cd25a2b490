use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::prelude::*;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use super::compact::{Compact, is_token};
use super::key_set::{KeySet, KeySetError};
use super::verify::{Known, Verified, issuer_of, verify};
use super::*;
use crate::client::principal::{Claim, Tenants};
use crate::client::settings::Clients;
use crate::config::words::JwtAlgorithm;
use crate::load::from_text;

const ISSUER: &str = "https://id.test";

/// RFC 7515, appendix A.1.
const A1: &str = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.\
    eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.\
    dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const A1_KEY: &str =
    "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";

/// RFC 7515, appendix A.2.
const A2: &str = "eyJhbGciOiJSUzI1NiJ9.\
    eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.\
    cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5juj\
    Gbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7\
    K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np\
    6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
const A2_N: &str = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt\
    0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5re\
    xMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK\
    -DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";

/// RFC 7515, appendix A.3.
const A3: &str = "eyJhbGciOiJFUzI1NiJ9.\
    eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.\
    DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
const A3_X: &str = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
const A3_Y: &str = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0";

/// RFC 7517, appendix A.1: the first key is for encryption.
const KEY_SET: &str = r#"{"keys":[
    {"kty":"EC","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
     "y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM","use":"enc","kid":"1"},
    {"kty":"RSA","n":"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw",
     "e":"AQAB","alg":"RS256","kid":"2011-04-29"}]}"#;

/// A provider with a key pair.
struct Provider {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl Provider {
    fn new() -> Self {
        let random = SystemRandom::new();
        let scheme = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(scheme, &random).unwrap();
        Self { pair: EcdsaKeyPair::from_pkcs8(scheme, pkcs8.as_ref(), &random).unwrap(), random }
    }

    fn jwks(&self) -> String {
        let point = &self.pair.public_key().as_ref()[1..];
        let [x, y] = [&point[..32], &point[32..]].map(|part| URL_SAFE_NO_PAD.encode(part));
        json!({ "keys": [{ "kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": "a" }] }).to_string()
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        self.sign_text(&header.to_string(), &claims.to_string())
    }

    fn sign_text(&self, header: &str, claims: &str) -> String {
        let signed = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part)).join(".");
        let signature = self.pair.sign(&self.random, signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// `[clients]` with this provider and `settings`.
    fn clients(&self, settings: &str) -> Clients {
        let text = format!(
            "[plans.free]\n[plans.pro]\n[clients.jwt]\nissuer = '{ISSUER}'\naudience = 'api'\n\
             jwks = '{}'\n{settings}\n[upstreams.api]\nservers = ['demo']\n[routes.all]\n\
             [rules.org]\nper = ['claim:org']\nrate = '1/s'\n",
            self.jwks()
        );
        from_text("gateway.toml", &text).unwrap().clients
    }
}

fn verified(clients: &Clients, token: &str) -> Result<Verified, TokenRefusal> {
    let compact = Compact::parse(token.as_bytes())?;
    let issuer = &clients.issuers[issuer_of(&clients.issuers, &compact)?];
    let settings::KeySource::Fixed(keys) = &issuer.keys else { panic!() };
    verify(
        issuer,
        keys,
        &compact,
        Known { counted: &clients.counted_claims, tenants: &Tenants::default() },
    )
}

fn header() -> Value {
    json!({ "alg": "ES256", "kid": "a" })
}

fn claims() -> Value {
    json!({ "iss": ISSUER, "aud": "api", "sub": "user-42", "exp": 2_000, "nbf": 1_000 })
}

fn with(mut value: Value, changes: &Value) -> Value {
    let object = value.as_object_mut().unwrap();
    for (name, change) in changes.as_object().unwrap() {
        match change {
            Value::Null => object.remove(name),
            change => object.insert(name.clone(), change.clone()),
        };
    }
    value
}

const FREE: &str = "default_plan = 'free'";

#[test]
fn vectors_of_rfc_7515_and_8037_are_verified() {
    let secret = KeySet::of_secret(&URL_SAFE_NO_PAD.decode(A1_KEY).unwrap());
    let jwks =
        |key: Value| KeySet::of_jwks(json!({ "keys": [key] }).to_string().as_bytes()).unwrap();
    let rsa = jwks(json!({ "kty": "RSA", "n": A2_N, "e": "AQAB" }));
    let ec = jwks(json!({ "kty": "EC", "crv": "P-256", "x": A3_X, "y": A3_Y }));
    let sets = [&secret, &rsa, &ec];
    for (token, expected) in [(A1, 0), (A2, 1), (A3, 2)] {
        let token = Compact::parse(token.as_bytes()).unwrap();
        assert_eq!(token.issuer(), Some("joe"));
        for (index, set) in sets.into_iter().enumerate() {
            let result = set.verify(token.algorithm, None, token.signed, &token.signature);
            let expected = if index == expected { Ok(()) } else { Err(TokenRefusal::Algorithm) };
            assert_eq!(result, expected, "{:?} {index}", token.algorithm);
        }
    }
    let x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
    let ed25519 = jwks(json!({ "kty": "OKP", "crv": "Ed25519", "x": x }));
    let signed = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
    let signature =
        "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    assert_eq!(ed25519.verify(JwtAlgorithm::EdDsa, None, signed, &signature), Ok(()));
    let other = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmd";
    let wrong = ed25519.verify(JwtAlgorithm::EdDsa, None, other, &signature);
    assert_eq!(wrong, Err(TokenRefusal::Signature));
}

#[test]
fn keys_that_are_not_for_signatures_are_left_out_of_a_set() {
    assert_eq!(KeySet::of_jwks(KEY_SET.as_bytes()).unwrap().count(), 1);
    let of = |key: Value| KeySet::of_jwks(json!({ "keys": [key] }).to_string().as_bytes());
    let ec = json!({ "kty": "EC", "crv": "P-256", "x": A3_X, "y": A3_Y });
    assert_eq!(of(ec.clone()).map(|set| set.count()), Ok(1));
    for key in [
        with(ec.clone(), &json!({ "use": "enc" })),
        with(ec.clone(), &json!({ "key_ops": ["encrypt"] })),
        with(ec.clone(), &json!({ "alg": "ECDH-ES" })),
        with(ec.clone(), &json!({ "crv": "P-521" })),
        with(ec.clone(), &json!({ "x": "AA" })),
        json!({ "kty": "oct", "k": A1_KEY }),
        // 512 bits.
        json!({ "kty": "RSA", "n": &A2_N[..86], "e": "AQAB" }),
        json!({ "kty": "OKP", "crv": "X25519", "x": A3_X }),
        json!("text"),
    ] {
        assert_eq!(of(key.clone()), Err(KeySetError::NoKey), "{key}");
    }
    for text in ["", "[]", "{}", "{\"keys\":{}}", "<html>"] {
        assert_eq!(KeySet::of_jwks(text.as_bytes()), Err(KeySetError::NotASet), "{text}");
    }
}

#[test]
fn public_key_in_pem_is_that_of_the_key_pair() {
    for (algorithm, expected) in [
        (&rcgen::PKCS_ECDSA_P256_SHA256, "P256"),
        (&rcgen::PKCS_ECDSA_P384_SHA384, "P384"),
        (&rcgen::PKCS_ED25519, "Ed25519"),
    ] {
        let pair = rcgen::KeyPair::generate_for(algorithm).unwrap();
        let key = KeySet::of_pem(pair.public_key_pem().as_bytes()).unwrap();
        assert!(format!("{key:?}").contains(expected), "{key:?}");
        let certificate = rcgen::CertificateParams::new(["a.test".to_owned()]).unwrap();
        let certificate = certificate.self_signed(&pair).unwrap().pem();
        assert_eq!(KeySet::of_pem(certificate.as_bytes()), Ok(key));
        assert!(KeySet::of_pem(pair.serialize_pem().as_bytes()).is_err());
    }
    assert_eq!(KeySet::of_pem(b"text"), Err(KeySetError::NotAKey));
}

#[test]
fn token_identifies_a_client_with_plan_tenant_and_headers() {
    let provider = Provider::new();
    let clients = provider.clients(
        "plan_claim = 'realm.plans'\ntenant_claim = 'https://id.test/org'\nhide_token = true\n\
         headers = { X-User = 'sub', X-Roles = 'realm.plans', X-Admin = 'admin', X-None = 'none' }",
    );
    let more = json!({ "https://id.test/org": "acme", "org": 7, "admin": true,
        "realm": { "plans": ["x", "pro", "free"] } });
    let token = provider.sign(&header(), &with(claims(), &more));
    let found = verified(&clients, &token).unwrap();
    let token = found.principal.token.as_ref().unwrap();
    assert_eq!((&*found.principal.id, found.principal.plan), ("user-42 https://id.test", 1));
    assert_eq!(
        (
            &*token.issuer,
            found.principal.tenant.as_ref().map(|tenant| &*tenant.id),
            token.is_hidden
        ),
        (ISSUER, Some("acme"), true)
    );
    assert_eq!(found.principal.claim("org"), Some(Claim { issuer: ISSUER, value: "7" }));
    let headers: Vec<String> = token
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    assert_eq!(headers, ["x-user: user-42", "x-roles: x,pro,free", "x-admin: true"]);
    assert_eq!(found.refusal(970_000_000 - 1), Some(TokenRefusal::NotYetValid));
    assert_eq!(found.refusal(970_000_000), None);
    assert_eq!(found.refusal(2_030_000_000 - 1), None);
    assert_eq!(found.refusal(2_030_000_000), Some(TokenRefusal::Expired));
}

#[test]
fn file_that_requires_a_token_has_no_warning_about_keys() {
    let text = "[clients]\non_missing_key = 'deny'\non_preflight = 'deny'\n[clients.jwt]\n\
                issuer = 'https://id.test'\naudience = 'api'\n[upstreams.api]\nservers = ['demo']\n\
                [routes.all]\n";
    let policy = from_text("gateway.toml", text).unwrap();
    assert_eq!(policy.warnings.count(), 0, "{:?}", policy.warnings);
}

#[test]
fn ids_of_different_issuers_and_of_the_file_are_different_clients() {
    let provider = Provider::new();
    let clients = provider.clients(FREE);
    let mut other = clients.clone();
    other.issuers[0].issuer = "https://id.test2".into();
    let one = verified(&clients, &provider.sign(&header(), &claims())).unwrap().principal;
    let changed = with(claims(), &json!({ "iss": "https://id.test2" }));
    let two = verified(&other, &provider.sign(&header(), &changed)).unwrap().principal;
    let again = verified(&clients, &provider.sign(&header(), &claims())).unwrap().principal;
    let tag = |key: &std::sync::Arc<crate::client::principal::Principal>| {
        let identifier = crate::client::identifier::Identifier::Known(key);
        identifier.tagged(|tag, value| (tag, value.to_vec()))
    };
    let file = crate::client::principal::Principal::new("user-42".into(), 0, true);
    let file = std::sync::Arc::new(file);
    assert_eq!(tag(&one), tag(&again));
    assert_ne!(tag(&one), tag(&two));
    assert_eq!(tag(&file).0, b'k');
    assert_eq!(tag(&one).0, b'j');
    assert!(one.hash != two.hash && one.hash != file.hash);
    assert_eq!((file.key_id().is_some(), one.key_id()), (true, None));
    assert_eq!(&*one.id, "user-42 https://id.test");
}

#[test]
fn wrong_claims_and_headers_are_refused_each_with_its_reason() {
    use TokenRefusal as R;
    let provider = Provider::new();
    let clients = provider.clients("plan_claim = 'plan'\nplans = { gold = 'pro' }");
    let good = with(claims(), &json!({ "plan": "gold" }));
    assert!(verified(&clients, &provider.sign(&header(), &good)).is_ok());
    let table = [
        (json!({ "plan": "pro" }), R::Plan),
        (json!({ "plan": null }), R::Plan),
        (json!({ "aud": "other" }), R::Audience),
        (json!({ "aud": null }), R::Audience),
        (json!({ "aud": ["other"] }), R::Audience),
        (json!({ "aud": { "api": 1 } }), R::Audience),
        (json!({ "iss": "https://id.test/" }), R::Issuer),
        (json!({ "iss": ["https://id.test"] }), R::Issuer),
        (json!({ "iss": null }), R::Issuer),
        (json!({ "exp": null }), R::Claims),
        (json!({ "exp": "2000" }), R::Claims),
        (json!({ "nbf": "1000" }), R::Claims),
        (json!({ "sub": null }), R::Claims),
        (json!({ "sub": "" }), R::Claims),
        (json!({ "sub": "a\nb" }), R::Claims),
        (json!({ "sub": "admin " }), R::Claims),
        (json!({ "sub": "\u{a0}admin" }), R::Claims),
        (json!({ "sub": ["a,b"] }), R::Claims),
        (json!({ "sub": ["a", " b"] }), R::Claims),
        (json!({ "sub": { "a": 1 } }), R::Claims),
        (json!({ "sub": "x".repeat(257) }), R::Claims),
        (json!({ "org": "x".repeat(1025) }), R::Claims),
    ];
    for (change, expected) in table {
        let token = provider.sign(&header(), &with(good.clone(), &change));
        assert_eq!(verified(&clients, &token), Err(expected), "{change}");
    }
    assert!(
        verified(
            &clients,
            &provider.sign(&header(), &with(good.clone(), &json!({ "aud": ["x", "api"] })))
        )
        .is_ok()
    );
    let headers = [
        (json!({ "alg": "none" }), R::Algorithm),
        (json!({ "alg": "None" }), R::Algorithm),
        (json!({ "alg": "es256" }), R::Algorithm),
        (json!({ "alg": "HS256" }), R::Algorithm),
        (json!({ "alg": "RS256" }), R::Algorithm),
        (json!({ "alg": "ES384" }), R::Algorithm),
        (json!({ "alg": null }), R::Malformed),
        (json!({ "alg": ["ES256"] }), R::Malformed),
        (json!({ "kid": "b" }), R::UnknownKey),
        (json!({ "kid": "../../dev/null" }), R::UnknownKey),
        (json!({ "kid": 1 }), R::Malformed),
        (json!({ "typ": "logout+jwt" }), R::Type),
        (json!({ "typ": 1 }), R::Malformed),
        (json!({ "cty": "JWT" }), R::Malformed),
        (json!({ "crit": ["exp"] }), R::Malformed),
        (json!({ "crit": ["b64"], "b64": false }), R::Malformed),
    ];
    for (change, expected) in headers {
        let token = provider.sign(&with(header(), &change), &good);
        assert_eq!(verified(&clients, &token), Err(expected), "{change}");
    }
    // Keys within the token, and places of keys, make no difference.
    let other = Provider::new();
    let jwk: Value = serde_json::from_str(&other.jwks()).unwrap();
    let injected = json!({ "jwk": jwk["keys"][0], "jku": "https://evil.test/jwks", "x5u": "https://evil.test/",
        "x5c": ["AA"] });
    let header = with(header(), &injected);
    assert_eq!(verified(&clients, &other.sign(&header, &good)), Err(R::Signature));
    assert!(verified(&clients, &provider.sign(&header, &good)).is_ok());
}

#[test]
fn claims_that_a_header_cannot_have_as_they_are_add_none() {
    let provider = Provider::new();
    let clients = provider.clients(&format!("{FREE}\nheaders = {{ X-Roles = 'roles' }}"));
    for (roles, expected) in [
        (json!("admin"), Some("admin")),
        (json!("a b"), Some("a b")),
        (json!("admin "), None),
        (json!("\tadmin"), None),
        (json!(["a", "b"]), Some("a,b")),
        (json!(["a,b"]), None),
        (json!(["a", ""]), None),
        (json!(["a", 1]), None),
        (json!([]), None),
    ] {
        let token = provider.sign(&header(), &with(claims(), &json!({ "roles": roles })));
        let found = verified(&clients, &token).unwrap().principal;
        let headers = &found.token.as_ref().unwrap().headers;
        let values: Vec<&str> = headers.iter().map(|(_, value)| value.to_str().unwrap()).collect();
        assert_eq!(values, Vec::from_iter(expected), "{roles}");
    }
}

#[test]
fn null_claim_is_a_missing_one() {
    let provider = Provider::new();
    let clients =
        provider.clients(&format!("{FREE}\ntenant_claim = 'tenant'\nplan_claim = 'plan'"));
    let mut null = claims();
    for name in ["nbf", "iat", "tenant", "org", "plan"] {
        null[name] = Value::Null;
    }
    let found = verified(&clients, &provider.sign(&header(), &null)).unwrap().principal;
    assert_eq!((found.plan, &found.tenant, found.claim("org")), (0, &None, None));
    for name in ["exp", "sub"] {
        let mut null = claims();
        null[name] = Value::Null;
        let token = provider.sign(&header(), &null);
        assert_eq!(verified(&clients, &token), Err(TokenRefusal::Claims), "{name}");
    }
}

/// A list of other claims does not let tokens pass that never expire; an empty one does.
#[test]
fn expiry_is_required_unless_no_claim_is() {
    let provider = Provider::new();
    let mut endless = claims();
    endless["exp"] = Value::Null;
    for (required, expected) in [
        ("", Err(TokenRefusal::Claims)),
        ("required_claims = ['sub']", Err(TokenRefusal::Claims)),
        ("required_claims = ['exp', 'sub']", Err(TokenRefusal::Claims)),
        ("required_claims = []", Ok(())),
    ] {
        let clients = provider.clients(&format!("{FREE}\n{required}"));
        let found = verified(&clients, &provider.sign(&header(), &endless)).map(drop);
        assert_eq!(found, expected, "{required}");
        assert!(verified(&clients, &provider.sign(&header(), &claims())).is_ok(), "{required}");
    }
}

#[test]
fn key_with_the_kid_is_tried_before_those_without_one() {
    let provider = Provider::new();
    let token = provider.sign(&header(), &claims());
    let key = |provider: &Provider| -> Value {
        serde_json::from_str::<Value>(&provider.jwks()).unwrap()["keys"][0].clone()
    };
    let others = (0..20).map(|_| with(key(&Provider::new()), &json!({ "kid": null })));
    let keys: Vec<Value> = others.chain([key(&provider)]).collect();
    let keys = KeySet::of_jwks(json!({ "keys": keys }).to_string().as_bytes()).unwrap();
    let token = Compact::parse(token.as_bytes()).unwrap();
    let verify = |kid| keys.verify(token.algorithm, kid, token.signed, &token.signature);
    assert_eq!(verify(Some("a")), Ok(()));
    assert_eq!(verify(Some("b")), Err(TokenRefusal::Signature));
    assert_eq!([Some("a"), Some("b"), None].map(|kid| keys.has(kid)), [true, false, false]);
}

#[test]
fn malformed_tokens_are_refused() {
    use TokenRefusal as R;
    let provider = Provider::new();
    let clients = provider.clients(FREE);
    let good = provider.sign(&header(), &claims());
    assert!(verified(&clients, &good).is_ok());
    let parts: Vec<&str> = good.split('.').collect();
    let [head, body, signature] = parts[..] else { panic!() };
    let zeros = URL_SAFE_NO_PAD.encode([0; 64]);
    let repeated_alg = provider.sign_text(r#"{"alg":"none","alg":"ES256"}"#, &claims().to_string());
    let repeated_sub = claims().to_string().replace("\"sub\"", "\"sub\":\"root\",\"sub\"");
    let repeated_sub = provider.sign_text(&header().to_string(), &repeated_sub);
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(5_000), "]".repeat(5_000));
    let deep = provider.sign_text(&header().to_string(), &deep);
    let trailing = provider.sign_text(&header().to_string(), &format!("{} x", claims()));
    let huge = json!({ "x": "x".repeat(MAX_TOKEN_BYTES) });
    let table = [
        (format!("{head}.{body}."), R::Signature),
        (format!("{head}.{body}.{zeros}"), R::Signature),
        (format!("{head}.{body}.{}", &signature[..84]), R::Signature),
        (format!("{head}.{body}.{signature}="), R::Malformed),
        (format!("{head}.{body}.{signature}.x"), R::Malformed),
        (format!("{head}.{body}.{signature}AAAA"), R::Signature),
        (format!("{head}.{body}.{signature} "), R::Malformed),
        (format!("{head}.{body}"), R::Malformed),
        (format!("{head}..{signature}"), R::Malformed),
        (format!(".{body}.{signature}"), R::Malformed),
        (repeated_alg, R::Malformed),
        (repeated_sub, R::Malformed),
        (deep, R::Malformed),
        (trailing, R::Malformed),
        (provider.sign_text(&header().to_string(), "[1]"), R::Malformed),
        (provider.sign_text(&header().to_string(), &format!("\"{good}\"")), R::Malformed),
        (provider.sign(&header(), &with(claims(), &huge)), R::TooLong),
        (Provider::new().sign(&header(), &claims()), R::Signature),
    ];
    for (token, expected) in table {
        assert_eq!(verified(&clients, &token), Err(expected), "{token:.200}");
    }
}

#[test]
fn every_changed_character_is_noticed() {
    let provider = Provider::new();
    let clients = provider.clients(FREE);
    let good = provider.sign(&header(), &claims());
    for at in 0..good.len() {
        for other in ["A", "B", "_", ".", "="] {
            let changed = format!("{}{other}{}", &good[..at], &good[at + 1..]);
            if changed != good {
                assert!(verified(&clients, &changed).is_err(), "{at} {other}");
            }
        }
    }
}

#[test]
fn text_of_three_parts_with_a_json_header_is_a_token() {
    for token in [A1, A2, A3, "eyJh.b.c", "eyJh.b.", "eyJh.b.c.d.e", "ewoi.b.c", "IHsi.b.c"] {
        assert!(is_token(token.as_bytes()), "{token}");
    }
    for key in ["", "secret", "a.b.c", "eyJh", "eyJh.b", "sk_live.a.b", "v1.eyJh.c", "eyJ.b.c"] {
        assert!(!is_token(key.as_bytes()), "{key}");
    }
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    #[test]
    fn any_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = is_token(&bytes);
        prop_assert!(Compact::parse(&bytes).is_err());
    }

    /// Times are numbers of any size and sign.
    #[test]
    fn any_times_are_compared_without_a_panic(exp in any::<f64>(), nbf in any::<i64>(), now in any::<u64>()) {
        let provider = Provider::new();
        let clients = provider.clients(FREE);
        let claims = with(claims(), &json!({ "exp": exp, "nbf": nbf }));
        if let Ok(verified) = verified(&clients, &provider.sign(&header(), &claims)) {
            let refusal = verified.refusal(now);
            prop_assert!(!(refusal.is_none() && exp < 0.0 && now > 60_000_000));
        }
    }
}
