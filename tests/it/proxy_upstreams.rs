//! The PROXY protocol to upstreams.

use std::net::Ipv4Addr;

use crate::support::{Connection, Gateway, HaProxy, PeerServer, Request, Upstream, eventually};

const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);

fn config(server: &str, rest: &str) -> String {
    format!(
        "[upstreams.api]\nservers = [{server:?}]\n{rest}\n[routes.all]\npath = \"/*\"\nupstream = \"api\"\n"
    )
}

#[test]
fn each_connection_begins_with_the_address_of_its_client() {
    let server = Upstream::echo();
    for version in ["v1", "v2"] {
        let proxy = HaProxy::start("http", "accept-proxy", server.address, "");
        let rest = format!("proxy_protocol = {version:?}");
        let gateway = Gateway::start(&config(&proxy.address.to_string(), &rest));
        let mut connection = Connection::open_from(CLIENT, gateway.address);
        for _ in 0..3 {
            assert_eq!(connection.send(&Request::get("/")).status, 200);
        }
        let source = format!("src={CLIENT}");
        let lines = || proxy.log().lines().filter(|line| line.contains(&source)).count();
        eventually("three requests", || (lines() >= 3).then_some(()));
        // No connection is used twice.
        let count =
            |reused| gateway.count("tollgate_upstream_connections_total", &[("reused", reused)]);
        assert_eq!((count("false"), count("true")), (3, 0));
    }
}

#[test]
fn connection_over_http2_begins_with_the_address_of_its_client() {
    let server = PeerServer::node(None);
    let proxy = HaProxy::start("tcp", "accept-proxy", server.address, "");
    let rest = "protocol = \"h2c\"\nproxy_protocol = \"v2\"";
    let gateway = Gateway::start(&config(&proxy.address.to_string(), rest));
    for _ in 0..2 {
        assert_eq!(gateway.get("/").json()["version"], "2.0");
    }
    assert_eq!(server.count("session"), 2);
}
