//! `tollgate upstreams`: the endpoints of a running gateway, and which of them get requests.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::HeaderValue;

use super::columns::aligned;
use super::file::{ConfigFile, FileFlag};
use super::print;
use super::target::{TargetFlags, exit_of};
use crate::api::upstreams::{UpstreamHealth, Upstreams};
use crate::net::percent::encode_component;
use crate::top::{endpoint_in_words, lookup_in_words};

const HEADINGS: [&str; 6] = ["upstream", "address", "weight", "priority", "in flight", "health"];

/// What to do with endpoints.
#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// List the endpoints of all upstreams, and which of them get requests.
    List {
        /// The configuration file.
        #[command(flatten)]
        file: FileFlag,
        /// Print the response of `GET /api/upstreams` as it is.
        #[arg(long)]
        json: bool,
        /// The gateway.
        #[command(flatten)]
        target: TargetFlags,
    },
    /// Send an endpoint no more requests, but those of clients whose cookie selects it (`sticky`).
    Drain(Endpoint),
    /// Send an endpoint no more requests. Those in flight end as usual.
    Disable(Endpoint),
    /// Take `drain` and `disable` back.
    Enable(Endpoint),
}

/// An endpoint of a gateway.
#[derive(Debug, Args)]
pub(super) struct Endpoint {
    /// Name of the upstream.
    #[arg(value_name = "UPSTREAM")]
    upstream: String,
    /// Address of the endpoint, such as `10.0.0.7:80`; or a server as the file writes it, such as
    /// `api.internal:80`, for all its addresses.
    #[arg(value_name = "SERVER")]
    server: String,
    /// Give the order to all gateways with the same Redis, and keep it when they are restarted.
    #[arg(long)]
    all: bool,
    /// The configuration file.
    #[command(flatten)]
    file: FileFlag,
    /// The gateway.
    #[command(flatten)]
    target: TargetFlags,
}

impl Action {
    /// The configuration file that the action names.
    pub(super) fn file(&mut self) -> FileFlag {
        std::mem::take(match self {
            Self::List { file, .. } => file,
            Self::Drain(endpoint) | Self::Disable(endpoint) | Self::Enable(endpoint) => {
                &mut endpoint.file
            }
        })
    }
}

/// Lists the endpoints, or gives an order and lists those of the upstream.
pub(super) fn upstreams(file: &ConfigFile, action: &Action) -> ExitCode {
    let (verb, endpoint) = match action {
        Action::List { json, target, .. } => return list(file, *json, target),
        Action::Drain(endpoint) => ("drain", endpoint),
        Action::Disable(endpoint) => ("disable", endpoint),
        Action::Enable(endpoint) => ("enable", endpoint),
    };
    let (client, runtime) = match endpoint.target.client(file) {
        Ok(client) => client,
        Err(exit) => return exit,
    };
    let [upstream, server] = [&endpoint.upstream, &endpoint.server].map(|it| encode_component(it));
    let scope = if endpoint.all { "?scope=all" } else { "" };
    let path = format!("/api/upstreams/{upstream}/{server}/{verb}{scope}");
    let kind = HeaderValue::from_static("application/json");
    match runtime.block_on(client.post::<UpstreamHealth>(&path, kind, b"")) {
        Ok(upstream) => print(&page(&[upstream])),
        Err(error) => {
            eprintln!("error: {error}");
            exit_of(&error)
        }
    }
}

fn list(file: &ConfigFile, json: bool, target: &TargetFlags) -> ExitCode {
    let (client, runtime) = match target.client(file) {
        Ok(client) => client,
        Err(exit) => return exit,
    };
    match runtime.block_on(client.get::<Upstreams>("/api/upstreams")) {
        Ok(all) if json => {
            print(&format!("{}\n", serde_json::to_string_pretty(&all).unwrap_or_default()))
        }
        Ok(all) => print(&page(&all.upstreams)),
        Err(error) => {
            eprintln!("error: {error}");
            exit_of(&error)
        }
    }
}

/// The endpoints as a table.
fn page(upstreams: &[UpstreamHealth]) -> String {
    let mut rows = vec![HEADINGS.map(str::to_owned).to_vec()];
    for upstream in upstreams {
        if upstream.addresses.is_empty() {
            let is_demo = upstream.servers.iter().all(|server| server == "demo");
            let health = if is_demo { "built in" } else { "no address" };
            let servers = upstream.servers.join(", ");
            let empty = || "-".to_owned();
            let name = upstream.name.clone();
            rows.push(vec![name, servers, empty(), empty(), empty(), health.to_owned()]);
        }
        rows.extend(upstream.addresses.iter().map(|endpoint| {
            vec![
                upstream.name.clone(),
                endpoint.address.clone(),
                endpoint.weight.to_string(),
                endpoint.priority.to_string(),
                endpoint.in_flight.to_string(),
                endpoint_in_words(endpoint),
            ]
        }));
    }
    let lookups = upstreams.iter().flat_map(|upstream| &upstream.lookups);
    let lines = aligned(&rows).into_iter().chain(lookups.filter_map(lookup_in_words));
    lines.fold(String::new(), |page, line| page + &line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_a_table() {
        let all: Upstreams = serde_json::from_str(
            r#"{"upstreams": [
            {"name": "api", "servers": ["a.test:80"], "in_flight": 3, "limit": null, "addresses": [
                {"address": "10.0.0.7:80", "health": "ok", "state": "up", "reason": "", "retry_after_ms": 0,
                 "weight": 3, "priority": 0, "in_flight": 3},
                {"address": "10.0.0.8:80", "health": "down", "state": "ejected", "reason": "error rate",
                 "since": "2026-11-26T12:00:00Z", "retry_after_ms": 20000, "weight": 1, "priority": 0, "in_flight": 0},
                {"address": "10.0.0.9:80", "health": "down", "state": "drained", "reason": "operator",
                 "retry_after_ms": 0, "weight": 1, "priority": 1, "in_flight": 0}]},
            {"name": "try", "servers": ["demo"], "limit": null, "addresses": []},
            {"name": "far", "servers": ["far.test:80"], "limit": null, "addresses": [], "lookups": [
                {"server": "far.test:80", "state": "failed", "reason": "no name server answered", "since": null,
                 "answered": null, "next_ms": 0}]}]}"#,
        )
        .unwrap();
        insta::assert_snapshot!(page(&all.upstreams), @r"
        upstream  address      weight  priority  in flight  health
        api       10.0.0.7:80  3       0         3          ok
        api       10.0.0.8:80  1       0         0          ejected: error rate, retried in 20 s
        api       10.0.0.9:80  1       1         0          drained: operator
        try       demo         -       -         -          built in
        far       far.test:80  -       -         -          no address
        look-up of far.test:80 failed: no name server answered
        ");
    }
}
