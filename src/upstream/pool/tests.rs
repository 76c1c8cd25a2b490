use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::base::clock;
use crate::base::request_id::RequestId;
use crate::net::lookup::{Answer, Found, LookupError, Resolver};
use crate::policy::failures::ServerFailure;
use crate::upstream::health::{EjectReason, Order};
use crate::upstream::idle::{Body, Idle};
use crate::upstream::run::Run;
use crate::upstream::transport::Transport;

/// Look-ups by a resolver whose answers have no time to live.
fn names(resolver: Resolver) -> Names {
    Arc::new(move |origin, _| {
        let Origin::Host(server) = origin else { panic!("a service") };
        let (host, looking_up) = (server.host.as_str().into(), resolver(server));
        Box::pin(async move {
            let found = looking_up.await;
            let found = found.map_err(|error| LookupError::Failed(error.to_string()))?;
            let found = found.into_iter().map(|address| Found {
                address,
                host: Arc::clone(&host),
                priority: 0,
                weight: 0,
            });
            Ok(Answer { found: found.collect(), ..Answer::default() })
        })
    })
}

fn pool(servers: &[String], resolver: Resolver) -> Arc<Pool> {
    let file = format!("[upstreams.api]\nservers = {servers:?}\n[routes.all]\n");
    let policy = crate::load::from_text("gateway.toml", &file).unwrap();
    Arc::new(Pool::with_names(&policy.upstreams[0], names(resolver)))
}

/// The pool of the only upstream of a file, whose names have these addresses.
pub(in crate::upstream) async fn pool_at(file: &str, addresses: Vec<SocketAddr>) -> Arc<Pool> {
    let policy = crate::load::from_text("gateway.toml", file).unwrap();
    let resolver: Resolver = Arc::new(move |_| Box::pin(std::future::ready(Ok(addresses.clone()))));
    let pool = Arc::new(Pool::with_names(&policy.upstreams[0], names(resolver)));
    pool.look_up().await;
    pool
}

async fn until(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.unwrap();
}

/// The address of `a<n>:<port>` is 127.0.0.n.
fn found(server: &HostPort) -> io::Result<Vec<SocketAddr>> {
    let last = server.host.trim_start_matches('a').parse().map_err(io::Error::other)?;
    Ok(vec![SocketAddr::from(([127, 0, 0, last], server.port))])
}

#[tokio::test]
async fn slow_name_delays_no_other_name() {
    let resolver: Resolver = Arc::new(|server| match server.host.as_str() {
        "slow" => Box::pin(std::future::pending()),
        _ => Box::pin(std::future::ready(found(server))),
    });
    let names = ["slow:1", "a1:80", "wrong:1", "127.0.0.3:80", "a2:80"].map(str::to_owned);
    let pool = pool(&names, resolver);
    let lookup = tokio::spawn({
        let pool = Arc::clone(&pool);
        async move { pool.look_up().await }
    });
    until(|| pool.endpoints(0).len() == 3).await;
    assert!(!lookup.is_finished());
    let addresses: BTreeSet<_> = pool.endpoints(0).into_iter().map(|view| view.address).collect();
    let expected = ["127.0.0.1:80", "127.0.0.2:80", "127.0.0.3:80"];
    assert_eq!(addresses, expected.map(|address| address.parse().unwrap()).into());
    lookup.abort();
}

#[tokio::test]
async fn names_are_looked_up_in_parallel_up_to_the_maximum() {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let resolver: Resolver = Arc::new({
        let (running, most) = (Arc::clone(&running), Arc::clone(&most));
        move |server| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            let server = server.clone();
            Box::pin(async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(20)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                found(&server)
            })
        }
    });
    let names: Vec<_> = (1..=100).map(|number| format!("a{number}:80")).collect();
    let pool = pool(&names, resolver);
    pool.look_up().await;
    assert_eq!(pool.endpoints(0).len(), 100);
    assert_eq!(most.load(Ordering::SeqCst), MAX_LOOKUPS);
}

/// `text` continues the table of the upstream, whose servers a and b have the port 443. The
/// address of a is 127.0.0.`a`, that of b is 127.0.0.1.
fn pool_with_tls(a: Arc<AtomicUsize>, text: &str) -> Arc<Pool> {
    let file = format!(
        "[upstreams.api]\nservers = [\"https://a\", \"https://b\"]\n{text}\n[routes.all]\n"
    );
    let policy = crate::load::from_text("gateway.toml", &file).unwrap();
    let resolver: Resolver = Arc::new(move |server| {
        let last = if server.host == "a" { a.load(Ordering::SeqCst) } else { 1 };
        let last = u8::try_from(last).unwrap();
        Box::pin(std::future::ready(Ok(vec![([127, 0, 0, last], 443).into()])))
    });
    Arc::new(Pool::with_names(&policy.upstreams[0], names(resolver)))
}

#[tokio::test]
async fn connection_verified_for_one_name_is_not_used_for_another() {
    let a = Arc::new(AtomicUsize::new(1));
    let pool = pool_with_tls(Arc::clone(&a), "");
    pool.look_up().await;
    let address = SocketAddr::from(([127, 0, 0, 1], 443));
    let before = pool.endpoint(address);
    assert_eq!(before.host.as_deref(), Some("a"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let _accepted = listener.accept().await.unwrap();
    let stream = Transport::clear(stream, pool.idle().gate().open());
    let (request_id, run) = (RequestId::new(), Run::new(0));
    let idle = Idle { stream, request_id, body: Body::Some, run };
    pool.idle.put(&before, idle, Duration::from_secs(60), 0);
    a.store(2, Ordering::SeqCst);
    pool.look_up().await;
    let after = pool.endpoint(address);
    assert_eq!(after.host.as_deref(), Some("b"));
    assert!(pool.idle.take(&after, 0).is_none());
    assert!(pool.idle.take(&before, 0).is_some());
}

#[tokio::test]
async fn connection_is_not_used_after_its_authorities_were_replaced() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let write = |name: &str| {
        let params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        std::fs::write(file.path(), params.self_signed(&key).unwrap().pem()).unwrap();
    };
    write("first.test");
    let table = format!("tls = {{ ca = {:?} }}", file.path());
    let pool = pool_with_tls(Arc::new(AtomicUsize::new(1)), &table);
    let endpoint = || pool.endpoint(([127, 0, 0, 1], 443).into());
    pool.refresh_tls().await;
    let before = endpoint();
    pool.refresh_tls().await;
    assert_eq!(endpoint(), before);
    // What cannot be used changes nothing.
    std::fs::write(file.path(), "garbage").unwrap();
    pool.refresh_tls().await;
    assert_eq!(endpoint(), before);
    write("the-second.test");
    pool.refresh_tls().await;
    assert_ne!(endpoint(), before);
}

#[tokio::test]
async fn host_is_irrelevant_if_the_server_name_is_set() {
    let pool = pool_with_tls(Arc::new(AtomicUsize::new(1)), "tls = { server_name = \"api.test\" }");
    pool.look_up().await;
    assert_eq!(pool.endpoint(([127, 0, 0, 1], 443).into()).host, None);
}

#[tokio::test]
async fn first_name_found_after_an_outage_does_not_replace_the_others() {
    let round = Arc::new(AtomicUsize::new(0));
    let resolver: Resolver = Arc::new({
        let round = Arc::clone(&round);
        move |server| match (round.load(Ordering::SeqCst), server.host.as_str()) {
            (1, _) => Box::pin(std::future::ready(Err(io::Error::other("none")))),
            (2, "a2") => Box::pin(std::future::pending()),
            (2, _) => Box::pin(std::future::ready(Ok(vec![([127, 0, 0, 3], 80).into()]))),
            _ => Box::pin(std::future::ready(found(server))),
        }
    });
    let pool = pool(&["a1:80".to_owned(), "a2:80".to_owned()], resolver);
    pool.look_up().await;
    round.store(1, Ordering::SeqCst);
    pool.look_up().await;
    round.store(2, Ordering::SeqCst);
    let lookup = tokio::spawn({
        let pool = Arc::clone(&pool);
        async move { pool.look_up().await }
    });
    let addresses =
        || pool.endpoints(0).into_iter().map(|view| view.address).collect::<BTreeSet<_>>();
    let third = ([127, 0, 0, 3], 80).into();
    until(|| addresses().contains(&third)).await;
    assert_eq!(addresses(), [([127, 0, 0, 2], 80).into(), third].into());
    lookup.abort();
}

#[tokio::test]
async fn addresses_stay_while_look_ups_fail() {
    let fails = Arc::new(AtomicUsize::new(0));
    let resolver: Resolver = Arc::new({
        let fails = Arc::clone(&fails);
        move |server| {
            let number = server.host.trim_start_matches('a').parse().unwrap_or(0);
            let fails = fails.load(Ordering::SeqCst) >= number;
            let result = if fails { Err(io::Error::other("none")) } else { found(server) };
            Box::pin(std::future::ready(result))
        }
    });
    let pool = pool(&["a1:80".to_owned(), "a2:80".to_owned()], resolver);
    let numbers = || pool.endpoints(0).len();
    pool.look_up().await;
    assert_eq!(numbers(), 2);
    fails.store(1, Ordering::SeqCst);
    pool.look_up().await;
    assert_eq!(numbers(), 2);
    fails.store(2, Ordering::SeqCst);
    pool.look_up().await;
    assert_eq!(numbers(), 2);
}

/// The upstreams of a file with these servers; `text` continues the table.
fn upstreams(name: &str, servers: &str, text: &str) -> Vec<Upstream> {
    let file = format!("[upstreams.{name}]\nservers = [{servers}]\n{text}\n[routes.all]\n");
    crate::load::from_text("gateway.toml", &file).unwrap().upstreams
}

/// A resolver that finds no name, after a time without an answer.
fn failing(after: Duration) -> Resolver {
    Arc::new(move |_| {
        Box::pin(async move {
            tokio::time::sleep(after).await;
            Err(io::Error::other("none"))
        })
    })
}

#[tokio::test(start_paused = true)]
async fn changed_upstream_keeps_addresses_while_names_cannot_be_looked_up() {
    let none = Known::default();
    let resolver: Resolver = Arc::new(|server| Box::pin(std::future::ready(found(server))));
    let first = upstreams("api", "'a1:80', 'a2:80'", "");
    let before = Pool::for_all_with(&first, &[], &none, &names(resolver)).await;
    let known = Pool::known(&before);
    let json = serde_json::to_string(&known.addresses).unwrap();
    assert_eq!(serde_json::from_str::<KnownAddresses>(&json).unwrap(), known.addresses);
    for (name, servers, text, expected) in [
        ("api", "'a1:80', 'a2:80'", "balance = 'random_two'", 2),
        ("api", "'a1:80', 'a2:80'", "sticky = { cookie = 'srv' }", 2),
        ("api", "'a1:80', { address = 'a2:80', weight = 3 }", "", 2),
        ("renamed", "'a2:80'", "", 1),
        ("api", "'a1:81'", "", 0),
    ] {
        let next = upstreams(name, servers, text);
        let silent = failing(Duration::from_secs(60));
        let begin = tokio::time::Instant::now();
        let pools = Pool::for_all_with(&next, &before, &known, &names(silent)).await;
        let waited = begin.elapsed() >= LOOKUP_TIMEOUT;
        assert_eq!((pools[0].endpoints(0).len(), waited), (expected, expected == 0), "{text}");
        assert_eq!(pools[0].has_no_address(), expected == 0);
        pools[0].close_unless_shared(&[]);
        let pools =
            Pool::for_all_with(&next, &before, &known, &names(failing(Duration::ZERO))).await;
        assert_eq!(pools[0].endpoints(0).len(), expected, "{text}");
    }
}

#[tokio::test]
async fn state_that_changes_after_a_reload_is_followed_by_the_new_pool() {
    let of = |text: &str| {
        let text = format!("eject = {{ consecutive_failures = 1 }}\n{text}");
        upstreams("api", "'10.0.0.1:80', '10.0.0.2:80'", &text)
    };
    let none = Known::default();
    let before = Pool::for_all(&of(""), &[], &none).await;
    let now = clock::now();
    let request = before[0].select(Wanted::default(), now).unwrap();
    let after = Pool::for_all(&of("sticky = { cookie = 'srv' }"), &before, &none).await;
    let reason = before[0].observe(&request, Some(ServerFailure::Timeout), now);
    assert_eq!(reason, Some(EjectReason::ConsecutiveFailures));
    for _ in 0..20 {
        let next = after[0].select(Wanted::default(), now).unwrap();
        assert_ne!(next.address(), request.address());
    }
}

#[tokio::test]
async fn reload_skips_no_check_of_an_endpoint_that_has_been_checked() {
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("'{}'", server.local_addr().unwrap());
    let of = |text: &str| {
        let text = format!("health = {{ kind = 'tcp', interval = '1s' }}\n{text}");
        upstreams("api", &server, &text)
    };
    let none = Known::default();
    let before = Pool::for_all(&of(""), &[], &none).await;
    assert_eq!(before[0].endpoints(clock::now())[0].health.state, State::Up);
    // The check is due.
    tokio::time::sleep(Duration::from_millis(1_150)).await;
    let after = Pool::for_all(&of("balance = 'random_two'"), &before, &none).await;
    assert_eq!(after[0].due_checks(1, clock::now()).0.len(), 1);
}

/// A look-up that the pool before a reload has begun may end afterwards.
#[tokio::test]
async fn look_up_before_a_reload_changes_no_health_checks_after_it() {
    let of = |text: &str| upstreams("api", "'127.0.0.1:1'", text);
    let checked = of("health = { kind = 'tcp', timeout = '100ms' }");
    let none = Known::default();
    let mut pools = Pool::for_all(&of(""), &[], &none).await;
    for (next, expected) in [(&checked, State::Unhealthy), (&of(""), State::Up)] {
        let before = pools;
        pools = Pool::for_all(next, &before, &none).await;
        let state = || pools[0].endpoints(clock::now())[0].health.state;
        assert_eq!(state(), expected);
        before[0].look_up().await;
        assert_eq!(state(), expected);
    }
}

#[tokio::test]
async fn order_that_comes_with_a_look_up_is_followed() {
    let pool = three(THREE, "").await;
    let address = "10.0.0.2:80";
    pool.orders.set_endpoint(
        &Origin::Host(HostPort { host: "10.0.0.2".to_owned(), port: 80 }),
        address.parse().unwrap(),
        Some(Order::Disable),
    );
    pool.look_up().await;
    for _ in 0..6 {
        assert_eq!(last(&pool.select(Wanted::default(), clock::now()).unwrap()), 1);
    }
}

#[tokio::test]
async fn changed_upstream_keeps_its_connections_if_its_servers_stay() {
    let none = Known::default();
    let first = upstreams("api", "'10.0.0.1:80', '10.0.0.2:80'", "");
    let before = Pool::for_all(&first, &[], &none).await;
    for (name, servers, text, is_shared) in [
        ("api", "'10.0.0.1:80', '10.0.0.2:80'", "balance = 'random_two'", true),
        ("api", "'10.0.0.1:80', '10.0.0.2:80'", "sticky = { cookie = 'srv' }", true),
        ("api", "'10.0.0.1:80', '10.0.0.2:80'", "slow_start = '10s'", true),
        ("api", "'10.0.0.2:80', { address = '10.0.0.1:80', weight = 3 }", "", true),
        ("api", "'10.0.0.1:80', '10.0.0.2:80'", "proxy_protocol = 'v1'", false),
        ("api", "'10.0.0.1:80', '10.0.0.2:80'", "protocol = 'h2c'", false),
        ("api", "'10.0.0.1:80'", "", false),
        ("other", "'10.0.0.1:80', '10.0.0.2:80'", "", false),
    ] {
        let after = Pool::for_all(&upstreams(name, servers, text), &before, &none).await;
        assert!(!Arc::ptr_eq(&before[0], &after[0]), "{text}");
        assert_eq!(Arc::ptr_eq(&before[0].idle, &after[0].idle), is_shared, "{text}");
        assert_eq!(Arc::ptr_eq(&before[0].http2, &after[0].http2), is_shared, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn new_configuration_waits_five_seconds_for_all_silent_names_together() {
    let servers: Vec<String> = (0..48).map(|number| format!("'silent{number}:80'")).collect();
    let upstreams = upstreams("api", &servers.join(","), "");
    let silent: Resolver = Arc::new(|_| Box::pin(std::future::pending()));
    let begin = tokio::time::Instant::now();
    let none = Known::default();
    let pools = Pool::for_all_with(&upstreams, &[], &none, &names(silent)).await;
    assert!(begin.elapsed() < Duration::from_millis(5_100), "{:?}", begin.elapsed());
    assert!(!pools[0].is_looked_up());
    until(|| pools[0].is_looked_up()).await;
}

/// A pool of three servers; `text` continues its table.
async fn three(servers: &str, text: &str) -> Arc<Pool> {
    let file = format!("[upstreams.api]\nservers = [{servers}]\n{text}\n[routes.all]\n");
    let policy = crate::load::from_text("gateway.toml", &file).unwrap();
    let pool = Arc::new(Pool::new(&policy.upstreams[0]));
    pool.look_up().await;
    pool
}

const THREE: &str = "'10.0.0.1:80', { address = '10.0.0.2:80', weight = 2 }, \
                     { address = '10.0.0.3:80', backup = true }";

/// The last part of the address that is selected.
fn last(endpoint: &InFlight) -> u8 {
    let std::net::IpAddr::V4(ip) = endpoint.address().ip() else { panic!("not IPv4") };
    ip.octets()[3]
}

#[tokio::test]
async fn backup_takes_over_when_no_other_endpoint_is_left() {
    let pool = three(THREE, "").await;
    let now = clock::now();
    let select = || pool.select(Wanted::default(), now).unwrap();
    let picked: Vec<u8> = (0..6).map(|_| last(&select())).collect();
    assert_eq!(picked, [2, 1, 2, 2, 1, 2]);
    let [first, second] = [select(), select()];
    pool.unreachable(&first, now);
    pool.unreachable(&second, now);
    assert_eq!((last(&select()), last(&select())), (3, 3));
    let backup = select();
    pool.unreachable(&backup, now);
    let picked: BTreeSet<u8> = (0..4).map(|_| last(&select())).collect();
    assert_eq!(picked, [1, 2, 3].into());
    let later = pool.select(Wanted::default(), now + 5_000_000).unwrap();
    assert!(last(&later) < 3);
}

#[tokio::test]
async fn retry_goes_to_another_endpoint() {
    for balance in ["round_robin", "least_request", "random_two", "hash:ip"] {
        let pool = three(THREE, &format!("balance = '{balance}'")).await;
        let now = clock::now();
        for number in 0..50 {
            let first =
                pool.select(Wanted { hash: number << 40, ..Wanted::default() }, now).unwrap();
            let again = |not: &[SocketAddr]| {
                let wanted = Wanted { not, hash: number << 40, ..Wanted::default() };
                pool.select(wanted, now).unwrap()
            };
            let second = again(&[first.address()]);
            assert_ne!(second.address(), first.address(), "{balance}");
            assert!(last(&second) < 3);
            // The backup is the only one where it has not failed.
            let both = [first.address(), second.address()];
            let third = again(&both);
            assert_eq!(last(&third), 3, "{balance}");
            again(&[both[0], both[1], third.address()]);
        }
    }
}

#[tokio::test]
async fn retry_goes_to_a_healthy_endpoint_again_rather_than_to_an_ejected_one() {
    for balance in ["round_robin", "least_request", "random_two", "hash:ip"] {
        let text = format!("balance = '{balance}'\nsticky = {{ cookie = 'srv' }}");
        let pool = three("'10.0.0.1:80', '10.0.0.2:80'", &text).await;
        let now = clock::now();
        let (first, second) = ("10.0.0.1:80".parse().unwrap(), "10.0.0.2:80".parse().unwrap());
        let cookie = pool.cookie(second);
        let again = |not: &[SocketAddr], cookie: Option<&str>| {
            last(&pool.select(Wanted { not, cookie, ..Wanted::default() }, now).unwrap())
        };
        let failed = pool.select(Wanted { not: &[second], ..Wanted::default() }, now).unwrap();
        assert_eq!(last(&failed), 1);
        pool.unreachable(&failed, now);
        for cookie in [None, cookie.as_deref()] {
            // Not connected to: the other one. Connected to, without success: that one again.
            let nots = [&[first][..], &[second], &[first, second]];
            let found = nots.map(|not| again(not, cookie));
            assert_eq!(found, [2, 2, 2], "{balance} {cookie:?}");
        }
    }
}

#[tokio::test]
async fn request_is_in_flight_until_its_endpoint_is_dropped() {
    let pool = three(THREE, "balance = 'least_request'").await;
    let held: Vec<_> = (0..6).map(|_| pool.select(Wanted::default(), 0).unwrap()).collect();
    let in_flight = || pool.endpoints(0).iter().map(|view| view.in_flight).collect::<Vec<_>>();
    assert_eq!(in_flight(), [2, 4, 0]);
    drop(held);
    assert_eq!(in_flight(), [0, 0, 0]);
}

#[tokio::test]
async fn cookie_selects_its_endpoint_until_that_is_ejected() {
    let pool = three(THREE, "sticky = { cookie = 'srv' }").await;
    let now = clock::now();
    let cookie = pool.cookie("10.0.0.1:80".parse().unwrap());
    let wanted = Wanted { cookie: cookie.as_deref(), ..Wanted::default() };
    for _ in 0..5 {
        assert_eq!(last(&pool.select(wanted, now).unwrap()), 1);
    }
    pool.unreachable(&pool.select(wanted, now).unwrap(), now);
    assert_eq!(last(&pool.select(wanted, now).unwrap()), 2);
    let wanted = Wanted { cookie: Some("unknown"), ..Wanted::default() };
    assert_eq!(last(&pool.select(wanted, now).unwrap()), 2);
}

#[tokio::test]
async fn slow_start_moves_no_client_of_a_hash() {
    let servers = "'10.0.0.1:80', '10.0.0.2:80', '10.0.0.3:80', '10.0.0.4:80'";
    let pool = three(servers, "balance = 'hash:ip'\nslow_start = '20s'").await;
    let now = clock::now();
    let picks = |now: u64| {
        let wanted = |client: u64| Wanted { hash: client << 58, ..Wanted::default() };
        let held: Vec<_> =
            (0..64).map(|client| pool.select(wanted(client), now).unwrap()).collect();
        held.iter().map(InFlight::address).collect::<Vec<_>>()
    };
    let before = picks(now);
    let returning = pool.select(Wanted::default(), now).unwrap();
    pool.unreachable(&returning, now);
    pool.reachable(&returning, now + 1);
    drop(returning);
    assert_eq!(picks(now + 100_000), before);
}

#[tokio::test]
async fn state_of_endpoints_outlives_a_change_of_weights() {
    let pool = three(THREE, "").await;
    let now = clock::now();
    let first = pool.select(Wanted::default(), now).unwrap();
    pool.unreachable(&first, now);
    let file = "[upstreams.api]\nservers = ['10.0.0.9:80', '10.0.0.2:80']\n[routes.all]\n";
    let policy = crate::load::from_text("gateway.toml", file).unwrap();
    let pools = Pool::for_all(&policy.upstreams, &[Arc::clone(&pool)], &Known::default()).await;
    let views = pools[0].endpoints(now);
    assert_eq!((views[1].address, views[1].in_flight), (first.address(), 1));
    assert!(views[1].health.until > now + 4_000_000, "{views:?}");
}
