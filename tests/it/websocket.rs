//! WebSocket connections of clients and servers of other projects.

use serde_json::json;

use crate::support::{Gateway, PeerServer, proxy_to, websocket_client};

/// A gateway whose upstream is this server, with a limit of `count` connections.
fn gateway_to(server: &PeerServer, count: usize) -> Gateway {
    let rule = format!("[rules.all]\nper = []\nrate = \"{count}/d\"\n");
    Gateway::start(&format!("{}{rule}", proxy_to(&[server.address])))
}

#[test]
fn websocket_is_counted_once_and_refused_at_the_limit() {
    let server = PeerServer::websocket(None);
    let gateway = gateway_to(&server, 2);
    let url = format!("ws://{}/chat", gateway.address);
    for _ in 0..2 {
        let result = websocket_client(&url, None);
        assert_eq!(result["status"], 101, "{result}");
        assert_eq!(result["echoes"], json!([true, true, true]), "{result}");
        assert_eq!(result["subprotocol"], "echo");
    }
    let refused = websocket_client(&url, None);
    assert_eq!(refused["status"], 429, "{refused}");
    assert!(refused["body"].as_str().unwrap().contains("quota-exceeded"), "{refused}");
    assert_eq!(server.count("open /chat"), 2, "{}", server.log());
    let decisions = |decision| gateway.count("tollgate_decisions_total", &[("decision", decision)]);
    assert_eq!((decisions("allow"), decisions("deny")), (2, 1));
}
