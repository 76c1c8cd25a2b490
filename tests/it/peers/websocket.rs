//! WebSocket connections with the Python package `websockets`, in clear and over TLS.

use serde_json::json;

use super::Site;
use crate::support::{Authority, PeerServer, eventually, proxy_to, websocket_client};

#[test]
fn websocket_is_counted_once_and_refused_at_the_limit() {
    let server = PeerServer::websocket(None);
    let rule = "[rules.all]\nper = []\nrate = \"2/d\"\n";
    let site = Site::start(&format!("{}{rule}", proxy_to(&[server.address])));
    let ca = site.authority.ca();
    let clear = format!("ws://{}/chat", site.clear);
    let tls = format!("wss://api.test:{}/chat", site.tls.port());
    let results = [websocket_client(&clear, None), websocket_client(&tls, Some(&ca))];
    for result in &results {
        assert_eq!(result["status"], 101, "{result}");
        assert_eq!(result["echoes"], json!([true, true, true]), "{result}");
        assert_eq!(result["subprotocol"], "echo");
    }
    assert_eq!((&results[0]["tls"], &results[1]["tls"]), (&json!(null), &json!("TLSv1.3")));
    let refused = websocket_client(&tls, Some(&ca));
    assert_eq!(refused["status"], 429, "{refused}");
    assert!(refused["body"].as_str().unwrap().contains("quota-exceeded"), "{refused}");
    server.wait_for_count("open /chat", 2);
    eventually("both connections to be closed", || (server.count("close 1000") == 2).then_some(()));
    let decisions =
        |decision| site.gateway.count("tollgate_decisions_total", &[("decision", decision)]);
    assert_eq!((decisions("allow"), decisions("deny")), (2, 1));
}

#[test]
fn websocket_passes_to_an_upstream_with_tls() {
    let authority = Authority::new();
    let server = PeerServer::websocket(Some(&authority.issue("ws", &["ws.test"])));
    let tls = format!("tls = {{ ca = {:?}, server_name = \"ws.test\" }}\nservers", authority.ca());
    let config = proxy_to(&[server.address]).replace("[\"127", "[\"https://127");
    let site = Site::start(&config.replace("servers", &tls));
    let ca = site.authority.ca();
    let url = format!("wss://api.test:{}/chat", site.tls.port());
    let result = websocket_client(&url, Some(&ca));
    assert_eq!(result["echoes"], json!([true, true, true]), "{result}");
    server.wait_for_count("open /chat", 1);
}
