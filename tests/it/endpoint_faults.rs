//! One of four servers fails in each way that servers do, under 64 connections, and comes back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{
    Connection, CpuWaits, Gateway, Nginx, PeerServer, Request, eventually, full_config,
    inconclusive_if_stalled, inconclusive_if_waited, sleep_for, timed_below,
};

/// Connections of the load, and the pause of each after a response.
const CONNECTIONS: usize = 64;
const PAUSE: Duration = Duration::from_millis(180);

/// How long an endpoint may stay in use after it has failed: three checks, a tenth later each, and
/// the timeout of the last. The same for its return: two checks.
const DETECTED_BELOW: Duration = Duration::from_millis(1_200);

/// How long the shares of the other endpoints are judged.
const JUDGED: Duration = Duration::from_millis(1_500);

/// `read_timeout`. A server that waits longer for a CPU is ejected as if it had failed.
const PATIENCE: Duration = Duration::from_millis(300);

const SETTINGS: &str = "
read_timeout = \"300ms\"
health = { path = \"/healthz\", interval = \"250ms\", timeout = \"200ms\", rise = 2, fall = 3 }
eject = { consecutive_failures = 5, for = \"1s\" }
retries = { count = 2, on = [\"connect\", \"reset\", \"timeout\", \"5xx\"], budget = \"20%\" }";

/// Clients that send requests until they are stopped.
struct Clients {
    stopped: Arc<AtomicBool>,
    threads: Vec<JoinHandle<BTreeMap<u16, usize>>>,
}

impl Clients {
    fn start(gateway: &Gateway) -> Self {
        let stopped = Arc::new(AtomicBool::new(false));
        let address = gateway.address;
        let client = move |stopped: &AtomicBool| {
            let mut statuses = BTreeMap::new();
            let mut connection = Connection::open(address);
            while !stopped.load(Ordering::SeqCst) {
                let status = connection.send(&Request::get("/")).status;
                *statuses.entry(status).or_default() += 1;
                if status >= 500 {
                    connection = Connection::open(address);
                }
                sleep_for(PAUSE);
            }
            statuses
        };
        let threads = (0..CONNECTIONS).map(|_| {
            let stopped = Arc::clone(&stopped);
            std::thread::spawn(move || client(&stopped))
        });
        Self { threads: threads.collect(), stopped }
    }

    fn stop(self) -> BTreeMap<u16, usize> {
        self.stopped.store(true, Ordering::SeqCst);
        let mut all = BTreeMap::new();
        for thread in self.threads {
            for (status, count) in thread.join().unwrap() {
                *all.entry(status).or_default() += count;
            }
        }
        all
    }
}

fn state(gateway: &Gateway, server: &PeerServer) -> String {
    let own = server.address.to_string();
    let endpoint = gateway.endpoints().into_iter().find(|endpoint| endpoint["address"] == *own);
    endpoint.unwrap()["state"].as_str().unwrap().to_owned()
}

/// Requests by server since a line of the access log.
fn served(gateway: &Gateway, since: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in gateway.log().lines().skip(since).filter(|line| line.starts_with('{')) {
        let line: Value = serde_json::from_str(line).unwrap();
        *counts.entry(line["server"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
    counts
}

/// Waits until the endpoint gets no requests, and then compares the shares of the others. They may
/// differ because one of the servers waited for a CPU meanwhile, or the gateway: then the
/// measurement is inconclusive.
#[track_caller]
fn others_share_its_requests(gateway: &Gateway, server: &PeerServer, fault: &str) {
    let waits = CpuWaits::now();
    timed_below(DETECTED_BELOW, || {
        eventually(fault, || (state(gateway, server) == "unhealthy").then_some(()));
    });
    let (since, of_load) = (gateway.log().lines().count(), CpuWaits::now());
    sleep_for(JUDGED);
    let mut counts = served(gateway, since);
    // Requests in flight at the change of state.
    let late = counts.remove(&server.address.to_string()).unwrap_or_default();
    assert!(late <= CONNECTIONS / 2, "{fault}: {late} requests");
    let total: usize = counts.values().sum();
    // Without a server, a request is refused.
    assert!(counts.len() <= 3 && !counts.contains_key(""), "{fault}: {counts:?}");
    // Each client waits for its response: a gateway that delays requests has a weak load, too.
    assert!(total > 100, "{fault}: {counts:?}");
    if total <= 300 {
        inconclusive_if_waited(&format!("{fault}: a weak load: {counts:?}"), &of_load, JUDGED);
    }
    let is_even = |count: &usize| (count * 3).abs_diff(total) * 100 <= total * 2 + 300;
    if counts.len() < 3 || !counts.values().all(is_even) {
        let found = format!("{fault}: {counts:?}");
        inconclusive_if_stalled(&found, waits.stall_of_servers(), PATIENCE);
    }
}

fn returns(gateway: &Gateway, server: &PeerServer, fault: &str) {
    timed_below(DETECTED_BELOW, || {
        eventually(fault, || (state(gateway, server) == "up").then_some(()));
    });
    let since = gateway.log().lines().count();
    let own = server.address.to_string();
    eventually("its share", || {
        sleep_for(Duration::from_millis(100));
        served(gateway, since).get(&own).is_some_and(|count| *count > 20).then_some(())
    });
}

#[test]
fn clients_notice_no_fault_of_one_of_four_servers() {
    let nginx = Nginx::listening("", |_| "location / { return 200 ok; }".to_owned());
    let gunicorn = PeerServer::python_http1("gunicorn");
    let node = PeerServer::node_http1();
    let mut faulty = PeerServer::faulty(None);
    let servers = [nginx.address, gunicorn.address, node.address, faulty.address];
    let servers = servers.map(|server| server.to_string());
    let gateway = Gateway::start_full(&full_config(&format!(
        "[access_log]\noutput = \"stdout\"\n[upstreams.api]\nservers = {servers:?}{SETTINGS}\n\
         [routes.all]\n"
    )));
    // Each fault is a phase: a wait is an excuse for failed requests only if it was in one of them.
    let mut waits = CpuWaits::now();
    let clients = Clients::start(&gateway);
    sleep_for(Duration::from_secs(2));
    for order in ["500", "slow", "refuse"] {
        waits.next_phase();
        faulty.order(order);
        others_share_its_requests(&gateway, &faulty, order);
        faulty.order("200");
        returns(&gateway, &faulty, order);
    }
    waits.next_phase();
    faulty.signal(Signal::SIGSTOP);
    others_share_its_requests(&gateway, &faulty, "hung");
    faulty.signal(Signal::SIGCONT);
    returns(&gateway, &faulty, "hung");
    waits.next_phase();
    let port = faulty.address.port();
    faulty.signal(Signal::SIGKILL);
    others_share_its_requests(&gateway, &faulty, "killed");
    drop(faulty);
    faulty = PeerServer::faulty(Some(port));
    returns(&gateway, &faulty, "killed");
    let statuses = clients.stop();
    let failed: usize = statuses.iter().filter(|(status, _)| **status != 200).map(|it| it.1).sum();
    // Only what the budget of retries leaves may fail.
    let over = gateway.count("tollgate_upstream_retries_over_budget_total", &[("upstream", "api")]);
    assert!(failed * 100 <= statuses[&200], "{statuses:?}");
    if failed as u64 > over {
        let what = format!("{statuses:?}, {over} over the budget");
        inconclusive_if_stalled(&what, waits.stall_of_servers(), PATIENCE);
    }
}
