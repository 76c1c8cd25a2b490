use http::HeaderMap;

use super::credential::*;
use super::identity::{Identity, Peer, identify};
use super::principal::{KeyRefusal, KnownKey, Principal, Validity};
use super::*;
use crate::load::from_text;
use crate::policy::Policy;

/// SHA-256 of the API key `secret`, in hexadecimal digits.
const SECRET: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

/// Unix time at which keys are looked up, in microseconds: 2026-11-27T00:00:00Z.
const NOW_US: u64 = 1_795_737_600_000_000;

fn policy(clients: &str) -> Policy {
    let text = format!(
        "[server]\ntrusted_proxies = [\"10.0.0.0/8\", \"fd00::/8\"]\n[clients]\n{clients}\n\
         [plans.free]\n[plans.pro]\n[keys.acme]\nsha256 = \"{SECRET}\"\nplan = \"pro\"\n\
         [upstreams.api]\nservers = [\"demo\"]\n[routes.all]\n"
    );
    from_text("gateway.toml", &text).unwrap()
}

fn headers(lines: &[(&'static str, &[u8])]) -> HeaderMap {
    let value = |value: &[u8]| http::HeaderValue::from_bytes(value).unwrap();
    lines.iter().map(|(name, text)| (http::HeaderName::from_static(name), value(text))).collect()
}

fn identity(
    policy: &Policy,
    peer: Peer,
    headers: &HeaderMap,
    query: Option<&str>,
) -> Result<Identity, IdentityError> {
    let found =
        policy.keys.look_up(Credential::of(&policy.clients, headers, query)?.as_ref(), || NOW_US);
    let trusted = &policy.server.trusted_proxies;
    Ok(identify(&policy.clients, trusted, peer, headers, None, found))
}

fn address(policy: &Policy, peer: &str, forwarded: &[&'static str]) -> String {
    let lines: Vec<(&str, &[u8])> =
        forwarded.iter().map(|line| ("x-forwarded-for", line.as_bytes())).collect();
    let peer = Some(peer.parse().unwrap());
    let identity =
        self::identity(policy, Peer { address: peer, is_relay: false }, &headers(&lines), None)
            .unwrap();
    identity.client.ip.unwrap().to_string()
}

fn key(
    policy: &Policy,
    lines: &[(&'static str, &[u8])],
    query: Option<&str>,
) -> Result<ClientKey, IdentityError> {
    let identity = identity(policy, Peer::default(), &headers(lines), query)?;
    Ok(identity.client.key)
}

fn acme(policy: &Policy) -> ClientKey {
    ClientKey::Known(Arc::clone(policy.keys.named("acme").unwrap()))
}

#[test]
fn row_34_forwarded_address_is_used_only_from_trusted_proxies() {
    let policy = policy("");
    let table: [(&str, &[&str], &str); 18] = [
        ("203.0.113.1", &["6.6.6.6"], "203.0.113.1"),
        ("10.0.0.1", &["6.6.6.6"], "6.6.6.6"),
        ("10.0.0.1", &["6.6.6.6, 7.7.7.7"], "7.7.7.7"),
        ("10.0.0.1", &["6.6.6.6, 7.7.7.7,10.0.0.2"], "7.7.7.7"),
        ("10.0.0.1", &["6.6.6.6", "7.7.7.7", "10.0.0.2"], "7.7.7.7"),
        ("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("10.0.0.1", &[], "10.0.0.1"),
        ("10.0.0.1", &[""], "10.0.0.1"),
        ("10.0.0.1", &["6.6.6.6, ,10.0.0.2"], "6.6.6.6"),
        ("10.0.0.1", &["6.6.6.6,", "", ",10.0.0.2 ,"], "6.6.6.6"),
        ("10.0.0.1", &["invalid"], "10.0.0.1"),
        ("10.0.0.1", &["6.6.6.6, invalid"], "10.0.0.1"),
        ("10.0.0.1", &["invalid, 6.6.6.6"], "6.6.6.6"),
        ("10.0.0.1", &["6.6.6.6:1234"], "6.6.6.6"),
        ("10.0.0.1", &["[2001:db8::1]:443"], "2001:db8::1"),
        ("10.0.0.1", &["[2001:db8::1]"], "2001:db8::1"),
        ("10.0.0.1", &["fe80::1%eth0"], "10.0.0.1"),
        ("fd00::1", &["::ffff:6.6.6.6"], "6.6.6.6"),
    ];
    for (peer, forwarded, expected) in table {
        assert_eq!(address(&policy, peer, forwarded), expected, "{peer} {forwarded:?}");
    }
}

#[test]
fn row_34_only_the_last_32_hops_are_read() {
    let policy = policy("");
    let chain: &'static str = Box::leak(["6.6.6.6"; 50].join(", ").into_boxed_str());
    assert_eq!(address(&policy, "203.0.113.1", &[chain]), "203.0.113.1");
    assert_eq!(address(&policy, "10.0.0.1", &[chain]), "6.6.6.6");
    let trusted: &'static str = Box::leak(["10.9.9.9"; 500].join(",").into_boxed_str());
    assert_eq!(address(&policy, "10.0.0.1", &[trusted]), "10.9.9.9");
}

#[test]
fn row_35_ipv4_in_ipv6_is_the_ipv4_address() {
    let policy = policy("");
    assert_eq!(address(&policy, "::ffff:192.0.2.7", &[]), "192.0.2.7");
    assert_eq!(address(&policy, "64:ff9b::c000:207", &[]), "192.0.2.7");
    assert_eq!(address(&policy, "64:ff9b::1:c000:207", &[]), "64:ff9b::1:c000:207");
    assert_eq!(address(&policy, "::ffff:10.0.0.1", &["6.6.6.6"]), "6.6.6.6");
}

#[test]
fn row_37_peer_without_an_address_is_a_client_without_one() {
    let identity = identity(&policy(""), Peer::default(), &HeaderMap::new(), None).unwrap();
    assert_eq!(identity.client.ip, None);
    assert!(!identity.via_trusted_proxy);
}

#[test]
fn key_is_read_from_all_configured_sources() {
    let policy = policy("");
    let known = Ok(acme(&policy));
    assert_eq!(key(&policy, &[("x-api-key", b"secret")], None), known);
    assert_eq!(key(&policy, &[("authorization", b"Bearer secret")], None), known);
    assert_eq!(key(&policy, &[("authorization", b"bEARER  secret ")], None), known);
    assert_eq!(key(&policy, &[("authorization", b"Bearer\tsecret")], None), known);
    let other_scheme: [(&str, &[u8]); 1] = [("authorization", b"Bearersecret")];
    assert_eq!(key(&policy, &other_scheme, None), Ok(ClientKey::Missing));
    assert_eq!(key(&policy, &[], Some("a=b&api_key=secret&c")), known);
    assert_eq!(key(&policy, &[], Some("api%5Fkey=s%65cret")), known);
    assert_eq!(key(&policy, &[], Some("API_KEY=secret")), Ok(ClientKey::Missing));
    assert_eq!(key(&policy, &[("authorization", b"Basic secret")], None), Ok(ClientKey::Missing));
    assert_eq!(key(&policy, &[("x_api_key", b"secret")], None), Ok(ClientKey::Missing));
    let plan = identity(&policy, Peer::default(), &headers(&[("x-api-key", b"secret")]), None);
    assert_eq!(policy.plan_name(plan.unwrap().client.plan), "pro");
}

#[test]
fn key_is_valid_from_not_before_until_before_expires() {
    let validity = Validity { not_before_us: 10, expires_us: 20 };
    let principal = |is_enabled| Arc::new(Principal::new("acme".into(), 0, is_enabled));
    let key = KnownKey { principal: principal(true), name: None, validity };
    let table = [
        (0, Some(KeyRefusal::NotYetValid)),
        (9, Some(KeyRefusal::NotYetValid)),
        (10, None),
        (19, None),
        (20, Some(KeyRefusal::Expired)),
        (u64::MAX, Some(KeyRefusal::Expired)),
    ];
    for (at, expected) in table {
        assert_eq!(key.refusal(|| at), expected, "{at}");
    }
    let unread = || panic!("the time is read for a key without times");
    let always = KnownKey { validity: Validity::ALWAYS, ..key };
    assert_eq!(always.refusal(unread), None);
    let disabled = KnownKey { principal: principal(false), ..always };
    assert_eq!(disabled.refusal(unread), Some(KeyRefusal::Disabled));
}

#[test]
fn row_32_different_keys_are_an_error() {
    let conflict = |first, second| Err(IdentityError::ConflictingKeys { first, second });
    let both: [(&str, &[u8]); 2] = [("x-api-key", b"other"), ("x-api-key", b"secret")];
    let strict = policy("");
    assert_eq!(key(&strict, &both, None), conflict(0, 0));
    let in_query = key(&strict, &[("x-api-key", b"secret")], Some("api_key=other"));
    assert_eq!(in_query, conflict(0, 2));
    assert_eq!(key(&strict, &[], Some("api_key=secret&api_key=other")), conflict(2, 2));
    let same: [(&str, &[u8]); 2] = [("x-api-key", b"secret"), ("authorization", b"Bearer secret")];
    assert_eq!(key(&strict, &same, Some("api_key=secret")), Ok(acme(&strict)));
    let first = policy("on_conflicting_keys = \"first\"\non_unknown_key = \"anonymous\"");
    assert_eq!(key(&first, &both, None), Ok(ClientKey::Missing));
    let swapped: [(&str, &[u8]); 2] = [("x-api-key", b"secret"), ("x-api-key", b"other")];
    assert_eq!(key(&first, &swapped, None), Ok(acme(&first)));
}

#[test]
fn row_30_key_is_any_bytes_up_to_1_kib() {
    let policy = policy("on_unknown_key = \"accept\"");
    for bytes in [&b"{}"[..], b"a b", b"\xff\xfe", b"{tag}:x", &[b'k'; 1024]] {
        let found = key(&policy, &[("x-api-key", bytes)], None);
        assert!(matches!(found, Ok(ClientKey::Unknown(_))), "{bytes:?}");
    }
    let long = [b'k'; 1025];
    assert_eq!(
        key(&policy, &[("x-api-key", &long)], None),
        Err(IdentityError::KeyTooLong { at: 0 })
    );
    assert!(matches!(key(&policy, &[], Some("api_key=%0d%0a%00")), Ok(ClientKey::Unknown(_))));
}

#[test]
fn row_33_empty_key_is_no_key_and_on_unknown_key_decides_about_unknown_ones() {
    let unknown: [(&str, &[u8]); 1] = [("x-api-key", b"guess")];
    assert_eq!(key(&policy(""), &[("x-api-key", b"")], None), Ok(ClientKey::Missing));
    assert_eq!(key(&policy(""), &[], Some("api_key")), Ok(ClientKey::Missing));
    assert!(matches!(key(&policy(""), &unknown, None), Ok(ClientKey::Unknown(_))));
    let anonymous = policy("on_unknown_key = \"anonymous\"");
    assert_eq!(key(&anonymous, &unknown, None), Ok(ClientKey::Missing));
}

#[test]
fn alias_differs_from_a_header_by_underscores_only() {
    assert!(is_alias("x_api_key", "x-api-key"));
    assert!(is_alias("x_forwarded-for", "X-Forwarded-For"));
    assert!(!is_alias("x-api-key", "x-api-key"));
    assert!(!is_alias("x_api_key", "X_Api_Key"), "equal names are not aliases");
    assert!(!is_alias("x-api_keys", "x-api-key"));
    assert!(!is_alias("x_api_id", "x-api-key"));
}

/// Gateways of different versions send a client to the same endpoint, and its buckets have the same
/// names.
#[test]
fn hash_and_tag_of_each_identifier_are_fixed() {
    let policy = policy("");
    let client = |key: ClientKey, ip: Option<&str>| Client {
        ip: ip.map(|ip| ip.parse().unwrap()),
        ..Client::new(&policy.clients, key)
    };
    let unknown = client(ClientKey::Unknown([1; 32]), Some("192.0.2.1"));
    let with = |ip| client(ClientKey::Missing, ip);
    let (v4, v6, local) = (with(Some("192.0.2.1")), with(Some("2001:db8::7")), with(None));
    for (identifier, hash, tag) in [
        (client(acme(&policy), Some("192.0.2.1")).identifier(64), 0x130a_7622_2d44_27ef, b'k'),
        (unknown.identifier(64), 0x11a9_d81f_2de6_146f, b'u'),
        (unknown.known_or_address(64), 0x1e00_e9a1_2f82_49cb, b'4'),
        (v4.identifier(64), 0x1e00_e9a1_2f82_49cb, b'4'),
        (v6.identifier(128), 0x2242_4981_b134_f6a0, b'6'),
        (local.identifier(64), 0, b'l'),
    ] {
        let found = (identifier.hash(), identifier.tagged(|tag, _| tag));
        assert_eq!(found, (hash, tag), "{identifier:?}");
    }
    assert_eq!(v6.identifier(64), with(Some("2001:db8::8")).identifier(64));
}
