use std::net::IpAddr;
use std::sync::Arc;

use super::*;
use crate::client::principal::TokenIdentity;
use crate::load::from_text;

const PLANS: &str = "[plans.free]\n[plans.pro]\n[upstreams.api]\nservers = [\"demo\"]\n\
    [routes.all]\n[routes.search]\npath = \"/search\"\ncost = 5\n\
    [keys.acme]\nsha256 = \"2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\"\n\
    plan = \"pro\"\n";

fn policy(rules: &str) -> Policy {
    from_text("gateway.toml", &format!("{PLANS}{rules}")).unwrap()
}

#[test]
fn hash_of_nothing_is_that_of_an_empty_text() {
    assert_eq!(hash(b""), HASH_OF_NOTHING);
}

/// The key of a client in a test.
#[derive(Clone, Copy)]
enum Key {
    /// The key at this place of the file.
    Known(usize),
    Unknown([u8; 32]),
    Missing,
}

fn client(policy: &Policy, ip: &str, key: Key) -> Client {
    let key = match key {
        Key::Known(index) => ClientKey::Known(Arc::clone(&policy.keys.all()[index])),
        Key::Unknown(digest) => ClientKey::Unknown(digest),
        Key::Missing => ClientKey::Missing,
    };
    let ip = Some(ip.parse::<IpAddr>().unwrap());
    Client { ip, ..Client::new(&policy.clients, key) }
}

/// A GET of `route`.
fn attributes(route: u32, headers: &HeaderMap) -> RequestAttributes<'_> {
    RequestAttributes { route, method: &Method::GET, host: "a.example", path: "", headers }
}

/// The charges of a GET of `route`, each as the name of its rule and its bucket.
fn buckets(policy: &Policy, client: &Client, route: u32) -> Vec<(String, BucketId)> {
    let headers = HeaderMap::new();
    let attributes = attributes(route, &headers);
    named(policy, &policy.charges(client, &attributes, Scope::All).unwrap())
}

fn named(policy: &Policy, charges: &Charges) -> Vec<(String, BucketId)> {
    let name = |charge: &Charge| policy.rules[charge.rule as usize].name.to_string();
    charges.iter().map(|charge| (name(charge), charge.bucket)).collect()
}

const ANONYMOUS: Key = Key::Missing;
const ACME: Key = Key::Known(0);

#[test]
fn buckets_differ_only_by_the_dimensions_in_per() {
    let policy = policy(
        "[rules.ip]\nper = [\"ip\"]\nrate = \"9/s\"\n[rules.key]\nper = [\"key\"]\nrate = \"9/s\"\n\
         [rules.route]\nper = [\"route\"]\nrate = \"9/s\"\n[rules.all]\nper = []\nrate = \"9/s\"\n",
    );
    let one = buckets(&policy, &client(&policy, "192.0.2.1", ACME), 0);
    let other_ip = buckets(&policy, &client(&policy, "192.0.2.2", ACME), 0);
    let other_route = buckets(&policy, &client(&policy, "192.0.2.1", ACME), 1);
    let anonymous = buckets(&policy, &client(&policy, "192.0.2.1", ANONYMOUS), 0);
    let same = |a: &[(String, BucketId)], b: &[(String, BucketId)]| -> Vec<bool> {
        a.iter().zip(b).map(|(a, b)| a == b).collect()
    };
    assert_eq!(same(&one, &other_ip), [false, true, true, true]);
    assert_eq!(same(&one, &other_route), [true, true, false, true]);
    assert_eq!(same(&one, &anonymous), [true, false, true, true]);
    let mut ids: Vec<BucketId> = one.iter().map(|(_, id)| *id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4, "rules never share a bucket");
}

/// Clients 0 and 1 are of one tenant, 2 is of another, 3 of none.
fn with_tenants(rest: &str) -> Policy {
    let key = |index: usize, tenant: &str| {
        format!("[keys.k{index}]\nsha256 = \"{index:064x}\"\nplan = \"free\"\n{tenant}\n")
    };
    policy(&format!(
        "{rest}\n{}{}{}{}",
        key(0, "tenant = \"acme\""),
        key(1, "tenant = \"acme\"\nplan = \"pro\"").replace("plan = \"free\"\n", ""),
        key(2, "tenant = \"globex\""),
        key(3, "")
    ))
}

/// The bucket of each client of [`with_tenants`] under the first rule, and the burst.
fn of_tenants(policy: &Policy) -> [Option<(BucketId, u64)>; 4] {
    // The file begins with another client.
    std::array::from_fn(|index| {
        let client = client(policy, "192.0.2.1", Key::Known(index + 1));
        let headers = HeaderMap::new();
        let attributes = RequestAttributes {
            route: 0,
            method: &Method::GET,
            host: "",
            path: "",
            headers: &headers,
        };
        let charges = policy.charges(&client, &attributes, Scope::All).unwrap();
        charges.first().map(|charge| (charge.bucket, charge.limit.capacity()))
    })
}

#[test]
fn clients_of_a_tenant_share_its_bucket_and_others_have_none() {
    let policy = with_tenants("[rules.t]\nper = [\"tenant\"]\nrate = \"9/s\"\n");
    let [a, b, c, d] = of_tenants(&policy);
    assert!(
        a.is_some() && a == b && a != c && c.is_some() && d.is_none(),
        "{a:?} {b:?} {c:?} {d:?}"
    );
    // A tenant and a client of the same name have different buckets.
    let named = "[keys.acme2]\nsha256 = \"aa\"\n".replace("aa", &"aa".repeat(32));
    let rules = "[rules.t]\nper = [\"tenant\"]\nrate = \"9/s\"\n";
    let policy = with_tenants(&format!("{rules}{named}plan = \"free\"\ntenant = \"acme2\"\n"));
    let client = client(&policy, "192.0.2.1", Key::Known(1));
    let by_tenant = client.tenant().unwrap().tagged(|tag, value| (tag, value.to_vec()));
    let by_key = client.identifier(64).tagged(|tag, value| (tag, value.to_vec()));
    assert!(by_tenant.1 == by_key.1 && by_tenant.0 != by_key.0);
}

#[test]
fn claims_of_different_issuers_have_different_buckets_even_with_the_same_value() {
    let policy = policy("[rules.c]\nper = [\"claim:org\"]\nrate = \"9/s\"\n");
    let of = |issuer: &str, org: Option<&str>| {
        let token = TokenIdentity {
            issuer: issuer.into(),
            digest: [0; 32],
            claims: org.map(|org| ("org".into(), org.into())).into_iter().collect(),
            headers: Vec::new(),
            is_hidden: false,
        };
        let known = Arc::new(Principal::of_token("a", 0, None, token));
        let client = Client::new(&policy.clients, ClientKey::Known(known));
        buckets(&policy, &client, 0)
    };
    assert_eq!(of("https://a.test", Some("x")), of("https://a.test", Some("x")));
    assert_ne!(of("https://a.test", Some("x")), of("https://b.test", Some("x")));
    assert_ne!(of("https://a.test", Some("x")), of("https://a.test", Some("y")));
    assert_eq!(of("https://a.test", None), of("https://b.test", None));
}

#[test]
fn tenant_with_a_plan_has_one_limit_whatever_the_plans_of_its_clients() {
    let rules = "[rules.t]\nper = [\"tenant\"]\nrate = \"9/s\"\nplans.pro = { rate = \"20/s\" }\n";
    let [a, b, ..] = of_tenants(&with_tenants(rules));
    assert_eq!((a.unwrap().1, b.unwrap().1), (9, 20), "the plans of the clients");
    assert_ne!(a.unwrap().0, b.unwrap().0, "different limits never share a bucket");
    let [a, b, c, _] = of_tenants(&with_tenants(&format!(
        "{rules}[tenants.acme]\nplan = \"pro\"\n[tenants.globex]\n"
    )));
    assert!(a == b && a.unwrap().1 == 20 && c.unwrap().1 == 9, "{a:?} {b:?} {c:?}");
}

#[test]
fn override_of_a_tenant_separates_its_clients_only_where_nothing_else_does() {
    let tenants = "[tenants.acme]\nrules.r = { rate = \"5/s\" }\n[tenants.globex]\n";
    let under = |per: &str| {
        let rule = format!("[rules.r]\nper = [{per}]\nrate = \"9/s\"\n{tenants}");
        of_tenants(&with_tenants(&rule))
    };
    let [a, b, c, d] = under("\"key\"");
    assert_eq!([a, b, c, d].map(|one| one.unwrap().1), [5, 5, 9, 9]);
    assert_ne!(a, b, "each client has its own bucket");
    let [a, b, c, d] = under("\"ip\"");
    assert!(a == b && a != c && c == d, "the tenant has buckets of its own");
    assert_eq!([a, d].map(|one| one.unwrap().1), [5, 9]);
    // The override does not change the buckets of a client.
    let without = of_tenants(&with_tenants("[rules.r]\nper = [\"key\"]\nrate = \"9/s\"\n"));
    assert_eq!(under("\"key\"")[0].unwrap().0, without[0].unwrap().0);
}

#[test]
fn row_36_ipv6_network_is_one_client() {
    let policy = policy("[rules.ip]\nper = [\"ip\"]\nrate = \"9/s\"\n");
    let bucket = |ip: &str| buckets(&policy, &client(&policy, ip, ANONYMOUS), 0);
    assert_eq!(bucket("2001:db8:0:1::1"), bucket("2001:db8:0:1:ffff::9"));
    assert_ne!(bucket("2001:db8:0:1::1"), bucket("2001:db8:0:2::1"));
    assert_ne!(bucket("192.0.2.1"), bucket("192.0.2.2"));
}

#[test]
fn on_missing_selects_the_bucket_of_a_client_without_a_key() {
    let rules = |on_missing: &str| {
        policy(&format!(
            "[rules.key]\nper = [\"key\"]\nrate = \"9/s\"\non_missing = \"{on_missing}\"\n"
        ))
    };
    let bucket = |policy: &Policy, ip: &str| buckets(policy, &client(policy, ip, ANONYMOUS), 0);
    let by_ip = rules("ip");
    assert_ne!(bucket(&by_ip, "192.0.2.1"), bucket(&by_ip, "192.0.2.2"));
    let shared = rules("shared");
    assert_eq!(bucket(&shared, "192.0.2.1"), bucket(&shared, "192.0.2.2"));
    assert_eq!(bucket(&rules("skip"), "192.0.2.1"), []);
    let deny = rules("deny");
    let headers = HeaderMap::new();
    let attributes =
        RequestAttributes { route: 0, method: &Method::GET, host: "", path: "", headers: &headers };
    let anonymous = client(&deny, "192.0.2.1", ANONYMOUS);
    assert_eq!(deny.charges(&anonymous, &attributes, Scope::All), Err(KeyRequired { rule: 0 }));
    assert_eq!(
        deny.charges(&client(&deny, "192.0.2.1", ACME), &attributes, Scope::All).unwrap().len(),
        1
    );
    let shadow = rules("deny\"\nmode = \"shadow");
    assert_eq!(bucket(&shadow, "192.0.2.1"), [], "shadow rules do not refuse");
    let demands = |key| {
        shadow
            .shadow_key_denials(&client(&shadow, "192.0.2.1", key), 0, Scope::All)
            .collect::<Vec<_>>()
    };
    assert_eq!((demands(ANONYMOUS), demands(ACME)), (vec![0], vec![]));
}

#[test]
fn row_33_refused_key_is_charged_to_its_address_only() {
    let policy = policy(
        "[rules.ip]\nper = [\"ip\"]\nrate = \"9/s\"\n[rules.key]\nper = [\"key\"]\nrate = \"9/s\"\n\
         [rules.skip]\nper = [\"key\"]\non_missing = \"skip\"\nrate = \"9/s\"\n\
         [rules.all]\nper = []\nrate = \"9/s\"\n",
    );
    let headers = HeaderMap::new();
    let attributes =
        RequestAttributes { route: 0, method: &Method::GET, host: "", path: "", headers: &headers };
    let guess = |byte| client(&policy, "192.0.2.1", Key::Unknown([byte; 32]));
    let charged = named(&policy, &policy.address_charges(&guess(1), &attributes));
    let names: Vec<&str> = charged.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["ip", "key"]);
    assert_eq!(charged, named(&policy, &policy.address_charges(&guess(2), &attributes)));
}

#[test]
fn plans_with_their_own_limit_have_separate_buckets() {
    let policy = policy(
        "[rules.by-plan]\nper = [\"ip\"]\nplans.free = { rate = \"9/s\" }\n\
         plans.pro = { rate = \"99/s\" }\n[rules.alike]\nper = [\"ip\"]\nrate = \"9/s\"\n\
         [rules.free-only]\nper = []\nplans.free = { rate = \"9/s\" }\n",
    );
    let free = buckets(&policy, &client(&policy, "192.0.2.1", ANONYMOUS), 0);
    let pro = buckets(&policy, &client(&policy, "192.0.2.1", ACME), 0);
    assert_ne!(free[0], pro[0]);
    assert_eq!(free[1], pro[1]);
    assert_eq!((free.len(), pro.len()), (3, 2), "a rule without a limit for a plan does not apply");
}

#[test]
fn override_has_its_own_bucket_and_exempt_clients_have_none() {
    let rules = "[keys.acme.rules.ip]\nrate = \"250/s\"\nburst = 1000\n\
        [rules.ip]\nper = [\"ip\"]\nrate = \"9/s\"\n\
        [rules.all]\nper = []\nrate = \"9/s\"\nexempt = { ips = [\"192.0.2.0/24\"] }\n\
        [rules.keys]\nper = [\"key\"]\nrate = \"9/s\"\nexempt = { keys = [\"acme\"] }\n";
    let policy = policy(rules);
    let headers = HeaderMap::new();
    let attributes =
        RequestAttributes { route: 1, method: &Method::GET, host: "", path: "", headers: &headers };
    let acme =
        policy.charges(&client(&policy, "192.0.2.1", ACME), &attributes, Scope::All).unwrap();
    assert_eq!(acme.len(), 1);
    assert_eq!((acme[0].limit.capacity(), acme[0].cost), (1000, 5));
    let other =
        policy.charges(&client(&policy, "192.0.2.1", ANONYMOUS), &attributes, Scope::All).unwrap();
    assert_ne!(acme[0].bucket, other[0].bucket, "the key with the override has its own bucket");
    assert_eq!(
        policy
            .charges(&client(&policy, "198.51.100.1", ANONYMOUS), &attributes, Scope::All)
            .unwrap()
            .len(),
        3
    );
}

#[test]
fn values_of_requests_cannot_collide() {
    let policy = policy("[rules.h]\nper = [\"host\", \"header:x-a\"]\nrate = \"9/s\"\n");
    let bucket = |host: &str, value: Option<&'static str>| {
        let mut headers = HeaderMap::new();
        if let Some(value) = value {
            headers.insert("x-a", http::HeaderValue::from_static(value));
        }
        let attributes =
            RequestAttributes { route: 0, method: &Method::GET, host, path: "", headers: &headers };
        policy.charges(&client(&policy, "192.0.2.1", ANONYMOUS), &attributes, Scope::All).unwrap()
            [0]
        .bucket
    };
    assert_ne!(bucket("ab", Some("c")), bucket("a", Some("bc")));
    assert_ne!(bucket("a", Some("")), bucket("a", None));
    assert_eq!(bucket("a", Some("b")), bucket("a", Some("b")));
}

#[test]
fn request_without_a_route_is_charged_by_no_more_rules_than_a_route_may_have() {
    let route = |number| {
        format!(
            "[routes.r{number}]\npath = \"/r{number}\"\n[rules.r{number}]\nper = [\"ip\"]\n\
             rate = \"9/s\"\nroutes = [\"r{number}\"]\n"
        )
    };
    let policy = policy(&(0..300).map(route).collect::<String>());
    let (client, headers) = (client(&policy, "192.0.2.1", ANONYMOUS), HeaderMap::new());
    let charges = policy.address_charges_anywhere(&client, &Method::GET, "", "", &headers);
    let rules: Vec<u32> = charges.iter().map(|charge| charge.rule).collect();
    assert_eq!(rules, (0..128).collect::<Vec<u32>>());
}

/// The bucket of an anonymous client from 192.0.2.1, by the only rule of the file.
fn only_bucket(rules: &str) -> BucketId {
    let policy = policy(rules);
    let charged = buckets(&policy, &client(&policy, "192.0.2.1", ANONYMOUS), 0);
    assert_eq!(charged.len(), 1, "{rules}");
    charged[0].1
}

#[test]
fn order_of_dimensions_does_not_change_the_bucket() {
    let all = ["ip", "key", "plan", "route", "method", "host", "header:a", "header:b"];
    let rule = |per: &[&str]| format!("[rules.r]\nper = {per:?}\nrate = \"9/s\"\n");
    let expected = only_bucket(&rule(&all));
    let mut per = all;
    for _ in &all {
        per.rotate_left(1);
        assert_eq!(only_bucket(&rule(&per)), expected, "{per:?}");
    }
    per.reverse();
    assert_eq!(only_bucket(&rule(&per)), expected, "{per:?}");
}

#[test]
fn edits_that_keep_a_clients_limit_keep_its_bucket() {
    let before = "[rules.r]\nper = [\"ip\", \"host\"]\nrate = \"9/s\"\n";
    let bucket = only_bucket(before);
    let per_reversed = before.replace("\"ip\", \"host\"", "\"host\", \"ip\"");
    assert_eq!(only_bucket(&per_reversed), bucket);
    for added in [
        "plans.pro = { rate = \"99/s\" }",
        "burst = 50",
        "description = \"d\"",
        "routes = [\"all\"]",
        "mode = \"shadow\"",
        "on_failure = \"deny\"",
        "exempt = { ips = [\"198.51.100.0/24\"], keys = [\"acme\"] }",
        "[keys.acme.rules.r]\nrate = \"99/s\"",
        "[rules.other]\nper = []\nrate = \"9/s\"\nenabled = false",
        "[routes.another]\npath = \"/another\"",
        "[plans.third]",
    ] {
        assert_eq!(only_bucket(&format!("{before}{added}\n")), bucket, "{added}");
    }
    let other_rate = before.replace("9/s", "5/m");
    assert_eq!(only_bucket(&other_rate), bucket, "the level is kept as a fraction");
}

#[test]
fn plans_without_their_own_table_share_the_buckets_of_the_rule() {
    let policy = policy(
        "[rules.r]\nper = [\"ip\"]\nrate = \"9/s\"\nplans.pro = { rate = \"99/s\" }\n\
         [plans.third]\n",
    );
    let of_plan = |plan| {
        let anonymous = client(&policy, "192.0.2.1", ANONYMOUS);
        buckets(&policy, &Client { plan, ..anonymous }, 0)[0].1
    };
    assert_eq!(of_plan(0), of_plan(2), "free and third have the same limit");
    assert_ne!(of_plan(0), of_plan(1), "pro has its own limit");
}

#[test]
fn certificate_selects_the_bucket_and_its_absence_skips_the_rule() {
    let policy = policy(
        "[rules.cert]\nper = [\"cert\"]\nrate = \"9/s\"\n\
         [rules.both]\nper = [\"key\", \"cert\"]\nrate = \"9/s\"\non_missing = \"deny\"\nmode = \"shadow\"\n\
         [rules.all]\nper = []\nrate = \"9/s\"\n",
    );
    let with = |certificate, key| Client { certificate, ..client(&policy, "192.0.2.1", key) };
    let names = |client: &Client| -> Vec<String> {
        buckets(&policy, client, 0).into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(names(&with(Some([1; 32]), ACME)), ["cert", "both", "all"]);
    assert_eq!(names(&with(None, ACME)), ["all"]);
    // Without a certificate, the rule does not demand a key either.
    let denials = |client: &Client| policy.shadow_key_denials(client, 0, Scope::All).count();
    assert_eq!(denials(&with(None, ANONYMOUS)), 0);
    assert_eq!(denials(&with(Some([1; 32]), ANONYMOUS)), 1);
}

proptest::proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    #[test]
    fn buckets_per_certificate_are_equal_if_and_only_if_the_subjects_are(
        one in ".{0,40}",
        other in ".{0,40}",
        addresses: [u32; 2],
    ) {
        let policy = policy("[rules.cert]\nper = [\"cert\"]\nrate = \"9/s\"\n");
        let bucket = |subject: &str, address: u32| {
            let ip = std::net::Ipv4Addr::from_bits(address).to_string();
            let certificate = Some(Sha256::digest(subject).into());
            let client = Client { certificate, ..client(&policy, &ip, ANONYMOUS) };
            buckets(&policy, &client, 0)
        };
        let same = bucket(&one, addresses[0]) == bucket(&other, addresses[1]);
        proptest::prop_assert_eq!(same, one == other);
        proptest::prop_assert_eq!(bucket(&one, addresses[0]), bucket(&one, addresses[1]));
    }
}

const COLOCATED: &str = "[redis]\nurl = \"redis+cluster://h\"\ncolocate = \"key\"\n\
    [rules.one]\nper = [\"key\"]\nrate = \"9/s\"\n\
    [rules.two]\nper = [\"key\", \"route\"]\nrate = \"9/s\"\n\
    [rules.three]\nper = [\"key\", \"ip\"]\nplans.pro = { rate = \"9/s\" }\nrate = \"8/s\"\n\
    [rules.ip]\nper = [\"ip\"]\nrate = \"9/s\"\n[rules.all]\nper = []\nrate = \"9/s\"\n";

/// The highest 32 bits of the client parts.
fn tops(policy: &Policy, client: &Client) -> Vec<u128> {
    let each = buckets(policy, client, 0).into_iter().zip(&policy.rules);
    each.map(|((_, id), rule)| (id.0 ^ rule.salt) >> 96).collect()
}

#[test]
fn colocated_buckets_of_a_client_differ_only_below_their_highest_32_bits() {
    let policy = policy(COLOCATED);
    let unknown = |byte| Key::Unknown([byte; 32]);
    let mut clients =
        vec![client(&policy, "192.0.2.1", ACME), client(&policy, "2001:db8::1", ACME)];
    assert_eq!(tops(&policy, &clients[0])[0], tops(&policy, &clients[1])[0], "one key");
    clients.truncate(1);
    clients.extend([
        client(&policy, "192.0.2.1", unknown(1)),
        client(&policy, "192.0.2.1", unknown(2)),
        client(&policy, "192.0.2.1", ANONYMOUS),
        client(&policy, "192.0.2.2", ANONYMOUS),
        client(&policy, "2001:db8::1", ANONYMOUS),
    ]);
    let mut seen = Vec::new();
    for client in &clients {
        let [one, two, three, ip, all] = tops(&policy, client)[..] else { panic!("five rules") };
        assert!(one == two && two == three, "{client:?}");
        assert!(one != ip && one != all && !seen.contains(&one), "{client:?}");
        seen.push(one);
    }
    assert_eq!(
        tops(&policy, &client(&policy, "2001:db8::1", ANONYMOUS)),
        tops(&policy, &client(&policy, "2001:db8::2", ANONYMOUS)),
        "one network"
    );
    // What maps and shards use is the same with and without the setting.
    let plain = self::policy(&COLOCATED.replace("= \"key\"", "= \"off\""));
    let low = |policy: &Policy| -> Vec<u128> {
        let low = |(_, id): (String, BucketId)| id.0 & (u128::MAX >> 32);
        buckets(policy, &clients[0], 0).into_iter().map(low).collect()
    };
    assert_eq!(low(&policy), low(&plain));
    assert_ne!(tops(&policy, &clients[0]), tops(&plain, &clients[0]));
}

/// Known by their names, such as `k1` and `k2`, and by their addresses.
#[test]
fn colocated_clients_are_spread_evenly() {
    let key = |n| format!("[keys.k{n}]\nsha256 = \"{n:064x}\"\nplan = \"free\"\n");
    let keys = (0..1_000).map(key).collect::<Vec<_>>().concat();
    let policy = policy(&format!("{COLOCATED}{keys}"));
    let by_key = (1..1_001).map(|key| client(&policy, "192.0.2.1", Key::Known(key)));
    let by_address =
        (0..1_000).map(|n| client(&policy, &format!("10.0.{}.{}", n / 250, n % 250), ANONYMOUS));
    let spread = |clients: &mut dyn Iterator<Item = Client>| {
        let mut counts = [0; 16];
        clients.for_each(|client| counts[(tops(&policy, &client)[0] % 16) as usize] += 1);
        // 62.5 on average, with a standard deviation of 7.7.
        assert!(counts.iter().all(|count| (30..=95).contains(count)), "{counts:?}");
    };
    spread(&mut by_key.into_iter());
    spread(&mut by_address.into_iter());
}

/// Gateways of different versions share buckets.
#[test]
fn hash_of_a_colocated_client_is_fixed() {
    let mut hash = ClientHash::default();
    hash.add(b'k', b"acme");
    assert_eq!(hash.at_the_top_of(7), 0xCFAF_586B << 96 | 7);
}

/// Gateways of different versions share buckets, and buckets outlive an upgrade.
#[test]
fn bucket_of_each_kind_of_client_is_fixed() {
    let policy = policy(
        "[clients]\nanonymous_plan = \"free\"\n\
         [rules.key]\nper = [\"key\"]\nrate = \"9/s\"\n\
         [rules.ip]\nper = [\"ip\", \"route\"]\nrate = \"9/s\"\nplans.pro = { rate = \"5/s\" }\n\
         [rules.plan]\nper = [\"plan\"]\nrate = \"9/s\"\n",
    );
    let known = buckets(&policy, &client(&policy, "192.0.2.1", ACME), 0);
    let unknown = Key::Unknown([1; 32]);
    let unknown = buckets(&policy, &client(&policy, "192.0.2.1", unknown), 0);
    let anonymous = buckets(&policy, &client(&policy, "2001:db8::7", ANONYMOUS), 0);
    let ids = |buckets: Vec<(String, BucketId)>| -> Vec<String> {
        buckets.iter().map(|(_, bucket)| format!("{:032x}", bucket.0)).collect()
    };
    assert_eq!(
        ids(known),
        [
            "774951a6859bd835cb4428ac62588fd5",
            "abcbbbbb6df9093e546ba165b5b36929",
            "cfe9f630c95ca68cd202752f8e0b49a3"
        ]
    );
    assert_eq!(
        ids(unknown),
        [
            "28fd14698c2b6c7551fa81f96caff824",
            "7ebdf4b3760233c17d2414738c5cd394",
            "fbd584c789e29f6cf773da8e3289ae56"
        ]
    );
    assert_eq!(
        ids(anonymous),
        [
            "97d5a9ae2ef6c5a7b8e55f51af49f5ca",
            "210b59e01dbae323366daa20e7019372",
            "fbd584c789e29f6cf773da8e3289ae56"
        ]
    );
}

#[test]
fn rule_is_enforced_for_its_share_of_the_clients_and_always_for_the_same_ones() {
    let of = |share: &str| {
        policy(&format!("[rules.r]\nper = []\nrate = \"10/s\"\nenforce = \"{share}\"\n"))
    };
    let shares = ["0%", "0.5%", "10%", "50%", "100%"].map(of);
    let enforced = |policy: &Policy, number: u32| {
        let ip = format!("10.{}.{}.1", number / 256, number % 256);
        policy.mode_for(&policy.rules[0], &client(policy, &ip, ANONYMOUS)) == Mode::Enforce
    };
    let mut counts = [0; 5];
    for number in 0..10_000 {
        let modes = shares.each_ref().map(|policy| enforced(policy, number));
        assert!(modes.is_sorted(), "{number}: {modes:?}");
        counts
            .iter_mut()
            .zip(modes)
            .for_each(|(count, is_enforced)| *count += u32::from(is_enforced));
    }
    assert_eq!((counts[0], counts[4]), (0, 10_000));
    assert!((20..90).contains(&counts[1]), "{counts:?}");
    assert!((850..1_150).contains(&counts[2]) && (4_700..5_300).contains(&counts[3]), "{counts:?}");
    // A client is its key, wherever it is used, or else its network.
    for policy in &shares {
        let mode = |ip: &str, key| policy.mode_for(&policy.rules[0], &client(policy, ip, key));
        assert_eq!(mode("10.0.0.1", ACME), mode("::1", ACME));
        assert_eq!(mode("2001:db8::1", ANONYMOUS), mode("2001:db8::2", ANONYMOUS));
    }
}

#[test]
fn key_is_required_of_the_clients_for_which_the_rule_is_enforced() {
    let of = |share: &str| {
        let rule = "per = [\"key\"]\nrate = \"10/s\"\non_missing = \"deny\"";
        policy(&format!("[rules.r]\n{rule}\nenforce = \"{share}\"\n"))
    };
    for (share, is_required) in [("0%", false), ("100%", true)] {
        let policy = of(share);
        let client = client(&policy, "10.0.0.1", ANONYMOUS);
        let headers = HeaderMap::new();
        let attributes = attributes(0, &headers);
        let charges = policy.charges(&client, &attributes, Scope::All);
        assert_eq!(charges.is_err(), is_required, "{share}");
        let shadow = policy.shadow_key_denials(&client, 0, Scope::All).count();
        assert_eq!(shadow, usize::from(!is_required), "{share}");
    }
}

#[test]
fn candidate_counts_only_clients_with_the_limit_that_it_may_replace() {
    let policy = policy(
        "[rules.r]\nper = [\"ip\"]\nrate = \"10/s\"\nplans.pro = { rate = \"9/s\" }\n\
         candidate = { rate = \"5/s\" }\n",
    );
    let of = |key| buckets(&policy, &client(&policy, "10.0.0.1", key), 0);
    let names = |key| of(key).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(ANONYMOUS), ["r", "r.candidate"]);
    assert_eq!(names(ACME), ["r"]);
    let buckets: Vec<BucketId> = of(ANONYMOUS).into_iter().map(|(_, bucket)| bucket).collect();
    assert_ne!(buckets[0], buckets[1]);
    assert_eq!(policy.rules[1].mode, Mode::Shadow);
}

/// A rule bounds look-ups only if it charges each client of an address the same.
#[test]
fn charges_of_any_client_are_those_of_each_client() {
    let table = [
        ("per = ['ip']\nrate = '9/s'", true),
        ("per = ['ip', 'route', 'header:x']\nrate = '9/s'\ncost = 3", true),
        ("per = ['ip']\nrate = '9/s'\nexempt = { ips = ['198.51.100.0/24'] }", true),
        ("per = ['route']\nrate = '9/s'", false),
        ("per = ['key']\nrate = '9/s'", false),
        ("per = ['ip', 'key']\nrate = '9/s'", false),
        ("per = ['ip', 'plan']\nrate = '9/s'", false),
        ("per = ['ip', 'tenant']\nrate = '9/s'", false),
        ("per = ['ip']\nrate = '9/s'\nplans.pro = { rate = '99/s' }", false),
        ("per = ['ip']\nplans.free = { rate = '9/s' }", false),
        ("per = ['ip']\nrate = '9/s'\nexempt = { keys = ['acme'] }", false),
        ("per = ['ip']\nrate = '9/s'\nmode = 'shadow'", false),
        ("per = ['ip']\nrate = '9/s'\nenforce = '50%'", false),
        ("per = ['ip']\nrate = '9/s'\nenabled = false", false),
        ("per = ['ip']\nrate = '9/s'\n[keys.acme.rules.r]\nrate = '99/s'", false),
    ];
    let headers = HeaderMap::new();
    for (rule, is_bound) in table {
        let policy = policy(&format!("[rules.r]\n{rule}\n[clients]\nanonymous_plan = 'free'\n"));
        assert_eq!(policy.limits_addresses(), is_bound, "{rule}");
        let attributes = attributes(1, &headers);
        let guess = policy.address_charges(&client(&policy, "192.0.2.1", ANONYMOUS), &attributes);
        let bound = policy.charges_of_any_client(guess);
        let of_acme = client(&policy, "192.0.2.1", ACME);
        let of_acme = policy.charges(&of_acme, &attributes, Scope::All).unwrap();
        let expected = if is_bound { of_acme } else { Charges::new() };
        assert_eq!(bound, expected, "{rule}");
    }
}
