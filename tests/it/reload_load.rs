//! Row 47 of docs/faults.md: many reloads under load. The pace is what the machine allows, at most
//! [`STEP`] each.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{
    Connection, DEMO, Gateway, Request, Response, Upstream, proxy_to, timed, wait_retry_after,
};

/// Number of connections that send requests.
const CONNECTIONS: usize = 64;

/// Least average time of one reload and the following pause.
const STEP: Duration = Duration::from_millis(10);

/// Number of reloads between two comparisons of memory, and number of comparisons.
const STRETCH: usize = 5_000;
const STRETCHES: usize = 3;

/// Two configurations that differ in everything that a request uses: the rule, the upstream, the
/// headers.
fn file(name: &str, upstream: &Upstream) -> String {
    let style = if name == "a" { "x" } else { "draft" };
    let rest = format!(
        "[rules.only-{name}]\nper = []\nrate = \"1000000000/s\"\n[headers]\nstyle = \"{style}\"\n"
    );
    let routes = proxy_to(&[upstream.address]).replace("routes.all", &format!("routes.{name}"));
    format!("{}{rest}", routes.replace("api", &format!("api-{name}")))
}

fn upstream(name: &str) -> Upstream {
    Upstream::responding(format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{name}"))
}

/// The configuration of a response; panics on a mix.
#[track_caller]
fn judged_by(answer: &Response) -> &'static str {
    let x = answer.header("x-ratelimit-limit").is_some();
    let draft = answer.header("ratelimit-policy");
    match (answer.status, answer.text().as_str(), x, draft) {
        (200, "a", true, None) => "a",
        (200, "b", false, Some(policy)) if policy.contains("only-b") => "b",
        _ => panic!("by no single file: {answer:?}"),
    }
}

/// Reloads `count` times under load, alternating between the two files.
fn storm(count: usize) {
    let upstreams = [upstream("a"), upstream("b")];
    let files = [file("a", &upstreams[0]), file("b", &upstreams[1])];
    let gateway = Gateway::start(&files[0]);
    let done = AtomicBool::new(false);
    let served = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let mut grown = 0;
    let mut took = Duration::ZERO;
    std::thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                let mut client = gateway.connect();
                while !done.load(Ordering::Relaxed) {
                    let by = judged_by(&client.send(&Request::get("/")));
                    served[usize::from(by == "b")].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // The first reloads fill caches and pools.
        reload(&gateway, &files, count / 4);
        let (before, _) = gateway.memory_bytes();
        ((), took) = timed(|| reload(&gateway, &files, count));
        grown = gateway.memory_bytes().0.saturating_sub(before) >> 10;
        done.store(true, Ordering::Relaxed);
    });
    let served = served.map(AtomicUsize::into_inner);
    let applied = gateway.reloads("applied");
    eprintln!(
        "{count} reloads in {took:?}, {applied} applied; served {served:?}; grew {grown} KiB"
    );
    assert_eq!(gateway.reloads("rejected"), 0);
    assert!(applied >= count as u64, "{applied} of {count} files were taken");
    assert!(served.iter().all(|served| *served > 0), "{served:?}");
    assert!(grown < 8 << 10, "memory grew by {grown} KiB over {count} reloads");
}

fn reload(gateway: &Gateway, files: &[String; 2], count: usize) {
    let mut admin = Connection::open(gateway.admin);
    let mut spent = Duration::ZERO;
    for number in 0..count {
        let ((), took) = timed(|| {
            gateway.save(&files[(number + 1) % 2]);
            let answer = admin.send(&Request::new("POST", "/api/reload").at(gateway.admin));
            assert_eq!(answer.status, 200, "{}", answer.text());
        });
        // A slow reload is compensated by the following ones.
        let due = STEP * u32::try_from(number + 1).unwrap();
        let pause = due.saturating_sub(spent + took);
        wait_retry_after(pause);
        spent += took + pause;
    }
}

#[test]
fn row_47_200_reloads_under_load_fail_no_request_and_mix_no_policies() {
    storm(200);
}

#[test]
#[ignore = "takes longer than others: `make test-long`"]
fn row_47_1000_reloads_under_load() {
    storm(1_000);
}

/// A file in which every name is new.
#[test]
#[ignore = "takes longer than others: `make test-long`"]
fn thousands_of_reloads_with_new_names_do_not_grow_memory() {
    let file = |number: usize| {
        let rate = 1_000 + number;
        let plan = format!("p{number}");
        let clients = format!("[clients]\nanonymous_plan = \"{plan}\"\n");
        let rule = format!("{clients}[rules.r{number}]\nper = [\"ip\"]\nrate = \"{rate}/d\"\n");
        // All requests are on one connection.
        let rule = format!("{rule}[server.limits]\nmax_requests_per_connection = 0\n");
        let names = DEMO.replace("routes.all", &format!("routes.r{number}"));
        format!("{}{rule}", names.replace("free", &plan).replace("api", &format!("u{number}")))
    };
    let gateway = Gateway::start(&file(0));
    let mut admin = Connection::open(gateway.admin);
    let mut client = gateway.connect();
    // Up to 2,000 series of removed names are kept, so the peak of each interval is compared.
    let mut most = [0; STRETCHES];
    for number in 1..=STRETCHES * STRETCH {
        gateway.save(&file(number));
        assert_eq!(admin.send(&Request::new("POST", "/api/reload").at(gateway.admin)).status, 200);
        assert_eq!(client.send(&Request::get("/")).status, 200);
        if number % 100 == 0 {
            let stretch = &mut most[(number - 1) / STRETCH];
            *stretch = gateway.memory_bytes().0.max(*stretch);
        }
    }
    let series = gateway.metrics().lines().count();
    let most = most.map(|bytes| bytes >> 20);
    eprintln!("MiB in each stretch of {STRETCH} reloads: {most:?}; {series} lines of metrics");
    let grown = most[STRETCHES - 1].saturating_sub(most[STRETCHES - 2]);
    assert!(grown < 8, "memory grew by {grown} MiB");
}
