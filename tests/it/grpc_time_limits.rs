//! Which time limits apply to gRPC calls, and to requests that only look like them.

use std::net::TcpListener;
use std::time::Duration;

use bytes::Bytes;

use crate::http2::Client;
use crate::http2_upstreams::{request, scripted};
use crate::support::{Gateway, HTTP2_LISTENER, Request, eventually, proxy_to, timed};

/// Within this time, a request has ended if a limit of less than a second applies to it.
const SOON: Duration = Duration::from_secs(8);

/// A gateway whose second listener accepts HTTP/2, and a server that accepts connections and never
/// sends a byte. `settings` belong to the upstream.
fn silent(settings: &str) -> (TcpListener, Gateway) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to_server = proxy_to(&[server.local_addr().unwrap()]);
    let to_server = to_server.replace("[routes", &format!("{settings}\n[routes"));
    let gateway = Gateway::start(&format!("{HTTP2_LISTENER}{to_server}"));
    (server, gateway)
}

fn timeouts(gateway: &Gateway) -> u64 {
    gateway.count("tollgate_upstream_results_total", &[("result", "timeout")])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_post_of_grpc_over_http2_has_no_read_timeout() {
    let (_server, gateway) = silent("protocol = \"h2c\"\nread_timeout = \"300ms\"");
    let native = "application/grpc";
    let others = [
        ("GET", native),
        ("POST", native),
        ("GET", "application/grpc-web-text; x"),
        ("POST", "application/grpc-web+proto"),
        ("POST", "text/plain"),
    ];
    for (method, kind) in others {
        let (answer, took) =
            timed(|| gateway.send(&Request::new(method, "/").header("content-type", kind)));
        let is_timeout = answer.status == 504 || answer.header("grpc-status") == Some("4");
        assert!(is_timeout && took < SOON, "{method} {kind}: {answer:?} after {took:?}");
    }
    let mut client = Client::connect(gateway.listener(1)).await;
    for (method, kind) in [("GET", native), ("POST", "application/grpc-web"), ("PUT", native)] {
        let answer = tokio::time::timeout(SOON, client.send(request(method, kind))).await;
        let answer = answer.expect("a response in time").unwrap();
        let status = answer.headers().get("grpc-status").map(|status| status.to_str().unwrap());
        assert_eq!(status, Some("4"), "{method} {kind}");
    }
    assert_eq!(timeouts(&gateway), 8);
    let call = tokio::spawn(async move { client.send(request("POST", native)).await });
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(!call.is_finished());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_of_grpc_outlives_all_timeouts_between_its_messages() {
    let server = scripted(|(request, mut respond)| async move {
        let mut send = respond.send_response(http::Response::new(()), false).unwrap();
        let mut messages = request.into_body();
        while let Some(Ok(message)) = messages.data().await {
            let _ = messages.flow_control().release_capacity(message.len());
            tokio::time::sleep(Duration::from_millis(900)).await;
            send.send_data(message, false).unwrap();
        }
        let trailers = http::HeaderMap::from_iter([("grpc-status".parse().unwrap(), 0.into())]);
        send.send_trailers(trailers).unwrap();
    });
    let to_server = proxy_to(&[server.await]);
    let short = "protocol = \"h2c\"\nread_timeout = \"300ms\"\nwrite_timeout = \"300ms\"\n[routes";
    let to_server = to_server.replace("[routes", short);
    let server = "read_timeout = \"300ms\"\nlimits.body_min_rate = 1000000000\n";
    let gateway = Gateway::start(&format!("{server}{HTTP2_LISTENER}{to_server}"));
    let mut client = Client::connect(gateway.listener(1)).await;
    let head = request("POST", "application/grpc");
    let (response, mut upload) = client.send.send_request(head, false).unwrap();
    let mut body = response.await.unwrap().into_body();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(900)).await;
        upload.send_data(Bytes::from_static(b"message"), false).unwrap();
        assert_eq!(body.data().await.unwrap().unwrap(), "message");
    }
    upload.send_data(Bytes::new(), true).unwrap();
    assert!(body.data().await.is_none());
    assert_eq!(body.trailers().await.unwrap().unwrap()["grpc-status"], "0");
}

#[test]
fn media_type_of_grpc_lifts_no_minimum_rate_of_an_upload() {
    let (_server, gateway) = silent("protocol = \"h2c\"");
    let mut client = gateway.connect();
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\nContent-Length: 9000\r\n\r\nx";
    let (answer, took) = timed(|| {
        client.write(head.as_bytes());
        client.read_response("POST")
    });
    let message = answer.header("grpc-message").unwrap();
    assert_eq!(message, "The body of the request arrived too slowly.");
    assert!(took >= Duration::from_secs(5), "{took:?}");
}

/// The upstreams speak HTTP/1.1 and HTTP/2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadline_of_a_call_of_grpc_web_ends_it_and_ejects_no_server() {
    for protocol in ["", "protocol = \"h2c\""] {
        let (_server, gateway) = silent(protocol);
        let web = "application/grpc-web+proto";
        let call = Request::new("POST", "/").header("content-type", web).body("x");
        let (answer, took) = timed(|| gateway.send(&call.header("grpc-timeout", "300m")));
        assert_eq!((answer.status, answer.header("grpc-status")), (200, Some("4")), "{protocol}");
        assert!(took >= Duration::from_millis(300) && took < SOON, "{took:?}");
        let mut client = Client::connect(gateway.listener(1)).await;
        let mut call = request("POST", web);
        call.headers_mut().insert("grpc-timeout", http::HeaderValue::from_static("300m"));
        let answer = tokio::time::timeout(SOON, client.send(call)).await;
        let answer = answer.expect("a response in time").unwrap();
        assert_eq!(answer.headers()["grpc-status"], "4", "{protocol}");
        assert_eq!(gateway.count("tollgate_upstream_healthy", &[]), 1);
        assert_eq!(timeouts(&gateway), 2);
        let cause = "cause=\"the deadline of the call has passed\"";
        eventually(cause, || gateway.log().contains(cause).then_some(()));
    }
}

/// The upstream is never asked.
#[test]
fn deadline_of_a_call_passes_while_it_waits_in_a_leaky_bucket() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let rule =
        "[rules.shape]\nper = []\nkind = \"leaky_bucket\"\nrate = \"1/m\"\nmax_delay = \"10m\"\n";
    let to_server = proxy_to(&[server.local_addr().unwrap()]);
    let gateway = Gateway::start(&format!("{to_server}{rule}"));
    let call = Request::new("POST", "/").header("content-type", "application/grpc-web");
    let call = call.header("grpc-timeout", "400m").body("x");
    for _ in 0..2 {
        let (answer, took) = timed(|| gateway.send(&call));
        assert_eq!((answer.status, answer.header("grpc-status")), (200, Some("4")));
        assert!(took >= Duration::from_millis(400) && took < SOON, "{took:?}");
    }
    assert_eq!(timeouts(&gateway), 1);
    assert_eq!(gateway.count("tollgate_waiting_requests", &[]), 0);
}
