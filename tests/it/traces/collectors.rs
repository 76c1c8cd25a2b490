//! Collectors that are missing, hang, refuse or recover: no request fails or waits, and lost spans
//! are counted.

use std::io::Write as _;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
};
use prost::Message as _;

use crate::support::{ClosedPort, Collector, DEMO, Gateway, Request, eventually, timed_below};

const REFUSED: &[u8] = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";

/// Time limit for 200 requests on one connection: they take about 100 ms on a busy machine, far
/// less than one wait for a collector.
const PROMPT: Duration = Duration::from_secs(5);

fn serve(gateway: &Gateway) {
    let mut client = gateway.connect();
    timed_below(PROMPT, || {
        for _ in 0..200 {
            assert_eq!(client.send(&Request::get("/")).status, 200);
        }
    });
}

fn spans(gateway: &Gateway, result: &str) -> u64 {
    gateway.count("tollgate_traces_spans_total", &[("result", result)])
}

fn tracing_to(address: std::net::SocketAddr, more: &str) -> String {
    format!("{DEMO}\n[tracing]\nendpoint = \"http://{address}\"\nsample = 1\n{more}\n")
}

#[test]
fn missing_collector_delays_no_request() {
    let closed = ClosedPort::bind();
    let unused_address = closed.address;
    let mut gateway = Gateway::start(&tracing_to(unused_address, ""));
    serve(&gateway);
    gateway.wait_for_count("tollgate_traces_spans_total", &[("result", "failed")], 200);
    assert!(gateway.count("tollgate_traces_exports_total", &[("result", "connect")]) >= 3);
    assert_eq!(spans(&gateway, "sent"), 0);
    serve(&gateway);
    gateway.terminate();
    assert_eq!(gateway.exit_below(Duration::from_secs(5)), Some(0));
    let log = gateway.log();
    assert_eq!(log.matches("traces cannot be sent to").count(), 1, "{log}");
    assert!(log.contains(&format!("http://{unused_address}/v1/traces")), "{log}");
}

#[test]
fn hanging_collector_delays_no_request() {
    // Accepts connections and never responds.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut gateway =
        Gateway::start(&tracing_to(silent.local_addr().unwrap(), "timeout = \"100ms\""));
    serve(&gateway);
    gateway.wait_for_count("tollgate_traces_spans_total", &[("result", "failed")], 200);
    assert!(gateway.count("tollgate_traces_exports_total", &[("result", "timeout")]) >= 3);

    // Even with a long timeout, shutdown does not wait for it.
    gateway.apply(&tracing_to(silent.local_addr().unwrap(), "timeout = \"1m\""));
    serve(&gateway);
    gateway.terminate();
    assert_eq!(gateway.exit_below(Duration::from_secs(8)), Some(0));
    assert!(gateway.log().contains("the last spans are lost"), "{}", gateway.log());
}

/// After a reload with another collector, the old one's pending spans delay nothing.
#[test]
fn reload_replaces_a_hanging_collector() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = tracing_to(silent.local_addr().unwrap(), "timeout = \"2s\"");
    let gateway = Gateway::start(&silent);
    // Several messages, each of which would be sent three times.
    (0..10).for_each(|_| serve(&gateway));
    let collector = Collector::start();
    gateway.apply(&format!("{DEMO}{}", collector.table("")));
    serve(&gateway);
    // The spans for the old collector would take 36 s.
    eventually("spans", || (!collector.spans().is_empty()).then_some(()));
    assert_eq!(spans(&gateway, "queue_full"), 0);
}

#[test]
fn full_queue_drops_and_counts_spans() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = tracing_to(silent.local_addr().unwrap(), "timeout = \"1m\"");
    let gateway = Gateway::start(&config);
    let load = |requests: usize| {
        let mut client = gateway.connect();
        for _ in 0..requests {
            assert_eq!(client.send(&Request::get("/")).status, 200);
        }
    };
    // More than the queue and one batch hold.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| load(2_500));
        }
    });
    gateway.wait_for_count("tollgate_requests_in_flight", &[], 0);
    let dropped = spans(&gateway, "queue_full");
    assert!((10_000 - 8_192 - 2 * 512..=10_000 - 8_192).contains(&dropped), "{dropped}");
}

#[test]
fn failing_collector_is_retried_until_it_recovers() {
    let is_well = Arc::new(AtomicBool::new(false));
    let view = Arc::clone(&is_well);
    let collector = Collector::answering(move |_, stream| {
        let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        let answer = if view.load(Ordering::SeqCst) { &ok[..] } else { REFUSED };
        stream.write_all(answer).is_ok()
    });
    let gateway = Gateway::start(&tracing_to(collector.address, ""));
    gateway.get("/1");
    // 500 is final: the message itself may be malformed.
    gateway.wait_for_count("tollgate_traces_spans_total", &[("result", "failed")], 1);
    assert_eq!(gateway.count("tollgate_traces_exports_total", &[("result", "5xx")]), 1);
    is_well.store(true, Ordering::SeqCst);
    gateway.get("/2");
    gateway.wait_for_count("tollgate_traces_spans_total", &[("result", "sent")], 1);
    eventually("the loss and its end in the log", || {
        let log = gateway.log();
        (log.contains("spans are dropped: it answers 500") && log.contains("again")).then_some(())
    });
    // Both messages used one connection.
    let connections: Vec<_> = collector.messages().iter().map(|seen| seen.connection).collect();
    assert_eq!(connections, [0, 0]);
}

#[test]
fn busy_collector_gets_the_same_spans_again() {
    let is_first = AtomicBool::new(true);
    let collector = Collector::answering(move |_, stream| {
        let busy =
            b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n";
        let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        let answer = if is_first.swap(false, Ordering::SeqCst) { &busy[..] } else { &ok[..] };
        stream.write_all(answer).is_ok()
    });
    let gateway = Gateway::start(&tracing_to(collector.address, ""));
    gateway.get("/1");
    gateway.wait_for_count("tollgate_traces_spans_total", &[("result", "sent")], 1);
    let sent = collector.spans();
    assert_eq!(sent.len(), 2, "{sent:#?}");
    assert_eq!(sent[0].id, sent[1].id);
}

#[test]
fn connection_closed_by_the_collector_is_replaced() {
    let collector = Collector::answering(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        // Closed without notice: the gateway finds the kept connection closed.
        false
    });
    let gateway = Gateway::start(&tracing_to(collector.address, ""));
    for sent in 1..=3 {
        gateway.get("/");
        gateway.wait_for_count("tollgate_traces_spans_total", &[("result", "sent")], sent);
    }
    assert_eq!(spans(&gateway, "failed"), 0);
}

#[test]
fn spans_refused_by_the_collector_are_counted() {
    let partial_success = Some(ExportTracePartialSuccess {
        rejected_spans: 1,
        error_message: "too \u{1b}[31m old".to_owned(),
    });
    let body = ExportTraceServiceResponse { partial_success }.encode_to_vec();
    let collector = Collector::answering(move |_, stream| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(&[head.as_bytes(), &body].concat()).is_ok()
    });
    let gateway = Gateway::start(&tracing_to(collector.address, ""));
    gateway.get("/");
    gateway.wait_for_count("tollgate_traces_spans_total", &[("result", "rejected")], 1);
    // It is logged after it is counted.
    let line = "it rejected spans: too [31m old";
    eventually(line, || gateway.log().contains(line).then_some(()));
}

#[test]
fn sigterm_sends_pending_spans() {
    let collector = Collector::start();
    let mut gateway = Gateway::start(&tracing_to(collector.address, ""));
    let mut client = gateway.connect();
    for _ in 0..1_000 {
        client.send(&Request::get("/"));
    }
    gateway.terminate();
    assert_eq!(gateway.exit().0, Some(0));
    assert_eq!(collector.spans().len(), 1_000);
}
