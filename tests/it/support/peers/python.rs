//! Python clients: gRPC, WebSocket and HTTP/2. Each run prints its result as JSON.

use serde_json::Value;

use super::{PYTHON_INSTALLER, python, script};
use crate::support::child::spawned;

/// Runs a scenario of `grpc_client.py`.
#[track_caller]
pub(crate) fn grpc_client(arguments: &[&str]) -> Value {
    run("grpc_client.py", arguments)
}

/// Runs `websocket_client.py`; `ca` is for `wss`.
#[track_caller]
pub(crate) fn websocket_client(url: &str, ca: Option<&str>) -> Value {
    run("websocket_client.py", &[Some(url), ca].into_iter().flatten().collect::<Vec<_>>())
}

/// Sends `count` concurrent requests on one HTTP/2 connection with httpx.
#[track_caller]
pub(crate) fn http2_client(url: &str, ca: &str, count: usize) -> Value {
    run("http2_client.py", &[url, ca, &count.to_string()])
}

/// Runs a scenario of `http2_abuse.py` against a port in clear.
#[track_caller]
pub(crate) fn http2_abuse(scenario: &str, port: u16) -> Value {
    run("http2_abuse.py", &[scenario, &port.to_string()])
}

#[track_caller]
fn run(name: &str, arguments: &[&str]) -> Value {
    let mut command = python();
    command.arg(script(name)).args(arguments);
    let output = spawned(command.output(), &command, PYTHON_INSTALLER);
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{name} {arguments:?}: {stdout}{stderr}");
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"))
}
