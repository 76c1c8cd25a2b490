//! Upstreams over TLS: verification, reuse, client certificates, replaced files, WebSocket.

use serde_json::json;

use crate::support::{
    Authority, Gateway, Issued, PeerServer, PythonServer, Request, eventually, replace_file,
    websocket_client,
};

/// One route for all paths to this server over TLS. `rest` continues the table of the upstream.
fn config(server: &str, rest: &str) -> String {
    format!(
        "[upstreams.api]\nservers = [{server:?}]\n{rest}\n[routes.all]\npath = \"/*\"\nupstream = \"api\"\n"
    )
}

fn trusting(authority: &Authority) -> String {
    format!(
        "protocol = \"http1\"\ntls = {{ ca = {:?}, server_name = \"api.test\" }}",
        authority.ca()
    )
}

fn connections(gateway: &Gateway, reused: &str) -> u64 {
    gateway.count("tollgate_upstream_connections_total", &[("reused", reused)])
}

/// Node over TLS, with a certificate for `api.test`.
fn node() -> (Authority, Issued, PeerServer) {
    let authority = Authority::new();
    let issued = authority.issue("api", &["api.test"]);
    let server = PeerServer::node(Some(&issued));
    (authority, issued, server)
}

#[test]
fn connections_with_tls_are_verified_and_reused() {
    let (authority, _, server) = node();
    let config = config(&format!("https://{}", server.address), &trusting(&authority));
    let gateway = Gateway::start(&config);
    let mut connection = gateway.connect();
    for number in 0..4 {
        let answer =
            connection.send(&Request::new("POST", "/echo").body("x".repeat(number * 40_000)));
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.json()["version"], "1.1");
        assert_eq!(answer.json()["length"], number * 40_000);
    }
    assert_eq!((connections(&gateway, "false"), connections(&gateway, "true")), (1, 3));
    assert_eq!(gateway.get("/large").body.len(), 1_000_000);
}

#[test]
fn certificate_that_is_not_valid_is_a_502_with_its_cause_in_the_log() {
    let (authority, _, server) = node();
    let other = Authority::new();
    let address = format!("https://{}", server.address);
    let table = [
        (
            format!("tls = {{ ca = {:?}, server_name = \"other.test\" }}", authority.ca()),
            "certificate of other.test: not valid for this name",
        ),
        (
            format!("tls = {{ ca = {:?} }}", authority.ca()),
            "certificate of 127.0.0.1: not valid for this name",
        ),
        (
            format!("tls = {{ ca = {:?}, server_name = \"api.test\" }}", other.ca()),
            "certificate of api.test: not signed by the authority of this name",
        ),
        (
            "tls = { server_name = \"api.test\" }".to_owned(),
            "certificate of api.test: issued by an unknown authority",
        ),
    ];
    for (tls, cause) in table {
        let gateway = Gateway::start(&config(&address, &tls));
        let answer = gateway.get("/");
        assert_eq!(answer.status, 502, "{tls}");
        assert!(!answer.text().contains("certificate"), "{}", answer.text());
        eventually("the cause in the log", || gateway.log().contains(cause).then_some(()));
        assert!(gateway.log().contains("reason=\"upstream_tls\""), "{}", gateway.log());
    }
    assert_eq!(server.count("request"), 0);
}

#[test]
fn server_that_speaks_no_tls_is_a_502() {
    let server = PythonServer::start();
    let address = format!("https://{}", server.address);
    let gateway = Gateway::start(&config(&address, "tls = { server_name = \"api.test\" }"));
    assert_eq!(gateway.get("/").status, 502);
    let cause =
        "cause=\"the TLS handshake with api.test failed: the server does not speak TLS correctly\"";
    eventually("the cause in the log", || gateway.log().contains(cause).then_some(()));
}

#[test]
fn replaced_authority_is_used_without_a_reload() {
    let (authority, _, server) = node();
    let other = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::copy(other.ca(), &ca).unwrap();
    let tls = format!("tls = {{ ca = {ca:?}, server_name = \"api.test\" }}");
    let gateway = Gateway::start(&config(&format!("https://{}", server.address), &tls));
    assert_eq!(gateway.get("/").status, 502);
    replace_file(&ca, "garbage");
    let rejected = "the TLS files of an upstream cannot be used";
    eventually("the log line", || gateway.log().contains(rejected).then_some(()));
    replace_file(&ca, std::fs::read(authority.ca()).unwrap());
    eventually("status 200", || (gateway.get("/").status == 200).then_some(()));
}

#[test]
fn websocket_over_tls_is_echoed() {
    let authority = Authority::new();
    let issued = authority.issue("api", &["api.test"]);
    let server = PeerServer::websocket(Some(&issued));
    let tls = format!("tls = {{ ca = {:?}, server_name = \"api.test\" }}", authority.ca());
    let gateway = Gateway::start(&config(&format!("https://{}", server.address), &tls));
    let result = websocket_client(&format!("ws://{}/chat", gateway.address), None);
    assert_eq!(result["status"], 101, "{result}");
    assert_eq!(result["echoes"], json!([true, true, true]), "{result}");
}
