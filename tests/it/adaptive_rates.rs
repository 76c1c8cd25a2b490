//! `adapt`: rates that fall while an upstream is slow, and recover.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{
    CpuWaits, Gateway, Redis, Request, Stopwatch, TIMEOUT, Upstream, eventually,
    inconclusive_if_stalled, proxy_to, sleep_for, within,
};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

const RULES: &str = "[rules.all]\nper = [\"ip\"]\nrate = \"100000/s\"\n\
    adapt = { upstream = \"api\", p99 = \"250ms\", errors = \"50%\", floor = \"40%\" }\n\
    [server.limits]\nmax_requests_per_connection = 0\n";

/// How much longer than `p99` a slow upstream takes.
const SLOW: Duration = Duration::from_millis(400);

/// An upstream that is slow while the switch is on.
fn upstream() -> (Upstream, Arc<AtomicBool>) {
    let is_slow = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&is_slow);
    let upstream = Upstream::start(move |_, stream| {
        if is_slow.load(Ordering::Relaxed) {
            sleep_for(SLOW);
        }
        stream.write_all(OK).is_ok()
    });
    (upstream, switch)
}

/// The share of the rate, in percent.
fn percent(gateway: &Gateway) -> f64 {
    gateway.admin("/api/policy").json()["rules"][0]["rate_percent"].as_f64().unwrap()
}

/// Sends requests on 20 connections to each gateway while `work` runs.
fn under_load<T>(gateways: &[Gateway], work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for gateway in gateways {
            for _ in 0..20 {
                let is_over = &is_over;
                scope.spawn(move || {
                    let mut connection = gateway.connect();
                    while !is_over.load(Ordering::Relaxed) {
                        connection.send(&Request::get("/"));
                        sleep_for(Duration::from_millis(100));
                    }
                });
            }
        }
        let result = work();
        is_over.store(true, Ordering::Relaxed);
        result
    })
}

#[test]
fn row_221_rate_falls_while_the_upstream_is_slow_and_recovers_on_two_gateways() {
    let (upstream, is_slow) = upstream();
    let redis = Redis::start();
    let text = format!("{}{RULES}{}", proxy_to(&[upstream.address]), redis.table());
    let gateways: [Gateway; 2] = std::array::from_fn(|_| Gateway::start(&text));
    gateways.iter().for_each(Gateway::wait_for_redis);
    let [a, b] = &gateways;
    assert!(percent(a) >= 100.0 && percent(b) >= 100.0);
    under_load(&gateways, || {
        is_slow.store(true, Ordering::Relaxed);
        let is_lowest = || (percent(a) <= 40.0 && percent(b) <= 40.0).then_some(());
        eventually("the lowest rate", is_lowest);
        assert!(percent(a) >= 40.0 && percent(b) >= 40.0, "never below the floor");
        is_slow.store(false, Ordering::Relaxed);
        eventually("a higher rate", || (percent(a) > 44.0 && percent(b) > 44.0).then_some(()));
        for _ in 0..10 {
            // One may be a step ahead when they are asked: then they agree after the next one.
            let (waits, mut last) = (CpuWaits::now(), [0.0; 2]);
            let agree = || {
                last = [percent(a), percent(b)];
                assert!(last[0].max(last[1]) <= 100.0, "{last:?}");
                ((last[0] - last[1]).abs() <= 5.0).then_some(())
            };
            if within(Duration::from_millis(2_500), agree).is_none() {
                let what = format!("the gateways differ: {last:?}");
                return inconclusive_if_stalled(&what, waits.stall(), Duration::from_millis(250));
            }
            sleep_for(Duration::from_millis(300));
        }
    });
    let metrics = a.metrics();
    let line = metrics.lines().find(|line| line.starts_with("tollgate_adaptive_rate{"));
    let share: f64 = line.unwrap().rsplit_once(' ').unwrap().1.parse().unwrap();
    assert!((0.4..1.0).contains(&share), "{line:?}");
    let explained = a.explain("{\"path\": \"/\"}").json();
    let rule = &explained["rules"][0];
    assert_eq!(rule["adapt"], "to api: p99 250ms, errors 50%, floor 40%");
    assert!(rule["rate_percent"].as_f64().unwrap() >= 40.0, "{rule}");
}

/// A client that waits for a token waits longer: what is left of the rate is in `Retry-After`. In
/// Redis as in memory, buckets refill by it.
#[test]
fn bucket_refills_by_the_rate_of_the_moment() {
    let redis = Redis::start();
    for table in [String::new(), redis.table()] {
        let ((upstream, is_slow), quick) = (upstream(), Upstream::responding(OK));
        is_slow.store(true, Ordering::Relaxed);
        let rule = |name: &str, rate: &str| {
            format!(
                "[routes.{name}]\npath = \"/{name}\"\nupstream = \"quick\"\n\
                 [rules.{name}]\nper = [\"ip\"]\nroutes = [\"{name}\"]\n{rate}\
                 adapt = {{ upstream = \"api\", p99 = \"250ms\", floor = \"10%\" }}\n"
            )
        };
        let text = format!(
            "{}{RULES}[upstreams.quick]\nservers = [\"{}\"]\n{}{}{table}",
            proxy_to(&[upstream.address]),
            quick.address,
            rule("rare", "rate = \"1/h\"\n"),
            rule("often", "rate = \"20/s\"\nburst = 1\n"),
        );
        let gateways = [Gateway::start(&text)];
        let gateway = &gateways[0];
        if !table.is_empty() {
            gateway.wait_for_redis();
        }
        assert_eq!(gateway.get("/rare").status, 200);
        let wait = || -> u64 {
            let response = gateway.get("/rare");
            response.header("retry-after").unwrap().parse().unwrap()
        };
        let whole = wait();
        assert!((3_500..=3_600).contains(&whole), "{whole}");
        let rates = || {
            let rules = gateway.admin("/api/policy").json()["rules"].clone();
            [1, 2].map(|rule: usize| rules[rule]["rate_percent"].as_f64().unwrap())
        };
        under_load(&gateways, || {
            eventually("the lowest rates", || {
                rates().iter().all(|rate| *rate <= 10.0).then_some(())
            });
            gateway.get("/often");
            let (watch, mut allowed) = (Stopwatch::start(), 0_u32);
            while allowed < 6 {
                allowed += u32::from(gateway.get("/often").status == 200);
                assert!(watch.elapsed() < TIMEOUT, "{allowed} of 6 requests in {TIMEOUT:?}");
            }
            // Two a second, of which the bucket holds one; 20 a second would take 0.3 s.
            let took = watch.elapsed();
            assert!(took >= Duration::from_millis(2_400), "6 requests in {took:?}");
        });
        let tenth = wait();
        assert!((30_000..=36_000).contains(&tenth), "{tenth}");
        let shared = gateway.existing("tollgate_decisions_total", &[("source", "redis")]);
        assert_eq!(shared.is_some(), !table.is_empty());
    }
}
