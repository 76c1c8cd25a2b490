//! `max_in_flight` and priorities: which requests are refused while an upstream is overloaded, and
//! what that saves.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::support::{
    ClientGroup, Connection, CpuWaits, Gateway, Load, Report, Request, Response, Upstream,
    eventually, inconclusive_if_stalled, inconclusive_if_waited, key, proxy_to, sleep_for,
};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Two plans, of which enterprise is served first. A limit per client that one more request would
/// exhaust.
fn config(upstream: &Upstream, max_in_flight: &str) -> String {
    let config = proxy_to(&[upstream.address])
        .replace("[upstreams.api]", &format!("[upstreams.api]\n{max_in_flight}"))
        + "[plans.enterprise]\npriority = 10\n";
    config + &key("acme", "secret", "enterprise")
}

fn enterprise() -> Request {
    Request::get("/").header("X-Api-Key", "secret")
}

/// A request with these header lines, as bytes.
fn get(headers: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{headers}\r\n").into_bytes()
}

#[test]
fn request_above_the_limit_is_503_and_takes_no_token() {
    let (upstream, latch) = Upstream::holding();
    let rule = "[rules.each]\nper = [\"ip\"]\nrate = \"3/d\"\n";
    let gateway = Gateway::start(&(config(&upstream, "max_in_flight = 2") + rule));
    let mut first = gateway.connect();
    first.write(&get(""));
    upstream.wait_for_requests(1);
    // Of two, one is for enterprise only.
    let shed = gateway.get("/");
    assert_eq!(shed.status, 503);
    assert_eq!(shed.header("retry-after"), Some("1"));
    let problem = shed.json();
    let kind = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
    assert_eq!(problem["type"], kind);
    assert_eq!(problem["retry_after_ms"], 1_000);
    let mut second = gateway.connect();
    second.write(&get("X-Api-Key: secret\r\n"));
    upstream.wait_for_requests(2);
    assert_eq!(gateway.send(&enterprise()).status, 503);
    latch.open();
    let left = |response: &Response| response.header("x-ratelimit-remaining").map(str::to_owned);
    let first = first.read_response("GET");
    let second = second.read_response("GET");
    assert_eq!((first.status, left(&first).as_deref()), (200, Some("2")));
    assert_eq!((second.status, left(&second).as_deref()), (200, Some("1")));
    gateway.wait_for_count("tollgate_upstream_in_flight", &[("upstream", "api")], 0);
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(gateway.get("/").status, 429);
    gateway.wait_for_count("tollgate_shed_total", &[("upstream", "api"), ("plan", "free")], 1);
    gateway.wait_for_count(
        "tollgate_shed_total",
        &[("upstream", "api"), ("plan", "enterprise")],
        1,
    );
    gateway.wait_for_count("tollgate_rejections_total", &[("reason", "shed")], 2);
    gateway.wait_for_count("tollgate_upstream_in_flight", &[("upstream", "api")], 0);
    assert_eq!(gateway.count("tollgate_upstream_limit", &[("upstream", "api")]), 2);
}

/// Only the heads of their responses are samples, and no further request gets one.
#[test]
fn streams_that_begin_at_once_do_not_hold_the_adaptive_limit() {
    let upstream = Upstream::start(|_, stream| {
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n";
        let _ = stream.write_all(head);
        sleep_for(Duration::from_secs(20));
        false
    });
    let gateway = Gateway::start(&config(&upstream, "max_in_flight = \"auto\""));
    let mut streams: Vec<_> = (0..40).map(|_| gateway.connect()).collect();
    let request = get("X-Api-Key: secret\r\n");
    for stream in &mut streams {
        stream.write(&request);
    }
    let is_allowed = |stream: &mut Connection| stream.read_bytes(12) == b"HTTP/1.1 200";
    let allowed = streams.iter_mut().map(is_allowed).filter(|is_allowed| *is_allowed).count();
    assert!(allowed >= 16, "{allowed}");
    for _ in 0..2 {
        eventually("a further stream", || {
            let mut stream = gateway.connect();
            stream.write(&request);
            is_allowed(&mut stream).then(|| streams.push(stream))
        });
    }
}

/// The last steps of the list in `decide::step`, which need a running gateway. Each request could
/// be refused by all steps after the one that refuses it.
#[test]
fn shedding_precedes_a_full_queue_and_that_an_exhausted_limit() {
    let (upstream, latch) = Upstream::holding();
    let rest = "[upstreams.demo]\nservers = [\"demo\"]\n\
                [routes.shaped]\npath = \"/shaped\"\nupstream = \"demo\"\n\
                [routes.plain]\npath = \"/plain\"\nupstream = \"demo\"\n\
                [rules.shape]\nper = []\nroutes = [\"all\", \"shaped\"]\n\
                kind = \"leaky_bucket\"\nrate = \"1/m\"\nmax_delay = \"10m\"\n\
                [rules.limit]\nper = []\nrate = \"2/d\"\n\
                [server.limits]\nmax_waiting_requests = 1\n";
    let gateway = Gateway::start(&(config(&upstream, "max_in_flight = 1") + rest));
    let mut held = gateway.connect();
    held.write(&get(""));
    upstream.wait_for_requests(1);
    let mut queued = gateway.connect();
    queued.write(b"GET /shaped HTTP/1.1\r\nHost: a\r\n\r\n");
    gateway.wait_for_count("tollgate_waiting_requests", &[], 1);
    for (path, status, reason) in
        [("/", 503, "shed"), ("/shaped", 429, "queue_full"), ("/plain", 429, "limited")]
    {
        assert_eq!(gateway.get(path).status, status, "{path}");
        gateway.wait_for_count("tollgate_rejections_total", &[("reason", reason)], 1);
    }
    latch.open();
    assert_eq!(held.read_response("GET").status, 200);
}

#[test]
fn grpc_call_above_the_limit_is_unavailable() {
    let (upstream, latch) = Upstream::holding();
    let gateway = Gateway::start(&config(&upstream, "max_in_flight = 1"));
    let mut first = gateway.connect();
    first.write(&get(""));
    upstream.wait_for_requests(1);
    let call = Request::new("POST", "/").header("Content-Type", "application/grpc-web").body("");
    let shed = gateway.send(&call);
    assert_eq!((shed.status, shed.header("grpc-status")), (200, Some("14")));
    assert_eq!(shed.header("grpc-retry-pushback-ms"), Some("1000"));
    latch.open();
    assert_eq!(first.read_response("GET").status, 200);
}

#[test]
fn client_that_leaves_frees_its_place() {
    let (upstream, latch) = Upstream::holding();
    let gateway = Gateway::start(&config(&upstream, "max_in_flight = 1"));
    let mut first = gateway.connect();
    first.write(&get(""));
    upstream.wait_for_requests(1);
    assert_eq!(gateway.get("/").status, 503);
    drop(first);
    gateway.wait_for_count("tollgate_upstream_in_flight", &[("upstream", "api")], 0);
    latch.open();
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn reload_applies_the_limit_and_keeps_the_requests_in_flight() {
    let (upstream, latch) = Upstream::holding();
    let gateway = Gateway::start(&config(&upstream, "max_in_flight = 1"));
    let mut first = gateway.connect();
    first.write(&get("X-Api-Key: secret\r\n"));
    upstream.wait_for_requests(1);
    assert_eq!(gateway.send(&enterprise()).status, 503);
    gateway.apply(&config(&upstream, "max_in_flight = 2"));
    let mut second = gateway.connect();
    second.write(&get("X-Api-Key: secret\r\n"));
    upstream.wait_for_requests(2);
    assert_eq!(gateway.send(&enterprise()).status, 503);
    latch.open();
    assert_eq!((first.read_response("GET").status, second.read_response("GET").status), (200, 200));
}

/// Workers of a server. Requests that find all busy wait in a queue without end.
struct Workers {
    free: Mutex<u32>,
    is_free: Condvar,
}

const WORKERS: u32 = 8;
const SERVICE: Duration = Duration::from_millis(40);

/// A server that works on 8 requests at a time, for 40 ms each: 200 responses a second.
fn bounded() -> Upstream {
    let workers = Arc::new(Workers { free: Mutex::new(WORKERS), is_free: Condvar::new() });
    Upstream::start(move |_, stream| {
        let mut free = workers.free.lock();
        workers.is_free.wait_while(&mut free, |free| *free == 0);
        *free -= 1;
        drop(free);
        sleep_for(SERVICE);
        *workers.free.lock() += 1;
        workers.is_free.notify_one();
        stream.write_all(OK).is_ok()
    })
}

/// What the threads of the test wait for CPUs in a phase on a busy machine, in sum. On a quiet one,
/// they wait for less than two seconds.
const WAITED: Duration = Duration::from_secs(5);

/// The answers of one phase.
struct Phase {
    enterprise: Report,
    free: Report,
    /// From a gateway without a limit before a server that is never overloaded.
    control: Report,
    /// What `enterprise` and `free` cover: the phase without its first three seconds.
    seconds: f64,
    waits: CpuWaits,
}

/// 40 requests a second of enterprise, and of the plan free as many as these clients send that wait
/// for each response, ten a second each at most. Beside them, 40 requests a second to `control`.
fn overload(gateway: &Gateway, control: &Gateway, free_clients: u32) -> Phase {
    let of_20 = |gateway| ClientGroup::new(gateway, &enterprise(), 20, Duration::from_millis(500));
    let free =
        ClientGroup::new(gateway, &Request::get("/"), free_clients, Duration::from_millis(100));
    let waits = CpuWaits::now();
    let load = Load::start(vec![of_20(gateway), free, of_20(control)]);
    let from = Duration::from_secs(3);
    sleep_for(Duration::from_secs(7));
    let until = load.elapsed();
    let seconds = until.saturating_sub(from).as_secs_f64();
    let [enterprise, free, control] = <[Report; 3]>::try_from(load.stop()).ok().unwrap();
    let seen = |report: Report| report.during(&(from..until));
    Phase { enterprise: seen(enterprise), free: seen(free), control, seconds, waits }
}

impl Phase {
    /// Whether the machine delayed the control. A pause of a third of a second makes few requests
    /// of a phase late, but more than a twentieth of those in the part that is judged. Call it
    /// right after the phase, whose waits explain the delay.
    fn is_disturbed(&self) -> bool {
        let slow = [(950, SERVICE * 3 / 2), (1_000, SERVICE * 5 / 2)];
        let late = slow.into_iter().find(|(part, most)| self.control.quantile(*part) > *most);
        if let Some((part, _)) = late {
            let took = self.control.quantile(part);
            let found = format!("control: {part} of 1000 within {took:?}, {SERVICE:?} of work");
            let least = took.saturating_sub(SERVICE) / 2;
            inconclusive_if_stalled(&found, self.waits.stall(), least);
        }
        late.is_some()
    }
}

fn ok(report: &Report) -> u32 {
    report.counts().get(&200).copied().unwrap_or_default().try_into().unwrap()
}

#[test]
fn overloaded_upstream_serves_high_priorities_in_time_and_loses_no_throughput() {
    let upstream = bounded();
    let gateway = Gateway::start(&config(&upstream, "max_in_flight = \"auto\""));
    let other = bounded();
    let control = Gateway::start(&config(&other, ""));
    let alone = overload(&gateway, &control, 1);
    let unloaded = alone.enterprise.quantile(950);
    let is_disturbed = alone.is_disturbed();
    let phase = overload(&gateway, &control, 80);
    let (enterprise, free) = (&phase.enterprise, &phase.free);
    let possible = f64::from(WORKERS) / SERVICE.as_secs_f64() * phase.seconds;
    let goodput = f64::from(ok(enterprise) + ok(free)) / possible;
    let served = f64::from(ok(enterprise)) / f64::from(u32::try_from(enterprise.len()).unwrap());
    let (p95, shed) = (enterprise.quantile(950), free.counts().get(&503).copied());
    eprintln!(
        "goodput {goodput:.2}, served {served:.2}, {p95:?} instead of {unloaded:?}, {shed:?}"
    );
    assert!(shed.is_some_and(|shed| shed > 100), "{shed:?}");
    // Whatever the machine does.
    assert!(served > 0.5 && goodput > 0.3, "{served} {goodput}");
    if phase.is_disturbed() || is_disturbed {
        return;
    }
    let control_p95 = alone.control.quantile(950);
    assert!(unloaded < 2 * control_p95, "{unloaded:?}, {control_p95:?} without a limit");
    // Most requests are those of `gateway`, so a busy machine delays it more than the control.
    if goodput <= 0.75 || served <= 0.9 || p95 >= 5 * unloaded / 2 {
        let found = format!("goodput {goodput}, served {served}, {p95:?} instead of {unloaded:?}");
        return inconclusive_if_waited(&found, &phase.waits, WAITED);
    }

    gateway.apply(&config(&upstream, ""));
    let phase = overload(&gateway, &control, 80);
    let collapsed = phase.enterprise.quantile(950);
    if collapsed <= 5 * unloaded {
        let found = format!("without a limit {collapsed:?}, {unloaded:?} unloaded");
        inconclusive_if_waited(&found, &phase.waits, WAITED);
    }
}
