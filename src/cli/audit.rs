//! `tollgate audit`: asks a running gateway which requests were refused, and why; and who changed
//! what by the admin API.

mod page;

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::file::ConfigFile;
use super::target::{TargetFlags, exit_of};
use super::{EXIT_BAD_FILE, print};
use crate::api::audit::Refusals;
use crate::api::clients::ClientBuckets;
use crate::net::percent::encode_component;
use crate::top::{Client, GatewayError};
use page::{Page, Search};

/// Maximum number of clients whose buckets are requested.
const MAX_CLIENTS: usize = 4;

/// Which refusals to show.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// Only refusals of the key with this id.
    #[arg(long, value_name = "ID")]
    key_id: Option<String>,
    /// Only refusals of clients of the tenant with this id, and changes of them.
    #[arg(long, value_name = "ID")]
    tenant: Option<String>,
    /// Not the key itself, but its id: `--key-id`.
    #[arg(long, value_name = "KEY", hide = true)]
    key: Option<String>,
    /// Only refusals of this address; for IPv6, of its network.
    #[arg(long, value_name = "ADDRESS")]
    ip: Option<String>,
    /// Only refusals by this rule.
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,
    /// Only refusals of these kinds: limit (429), unavailable (503), unauthorized (401), shadow
    /// (allowed, but a rule in shadow mode would have refused them), change (no refusals, but what
    /// the admin API has changed).
    #[arg(long, value_name = "KINDS")]
    kind: Option<String>,
    /// Only changes by this caller: the name of a token, or `client`.
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Only refusals since then: `10:03`, `yesterday 10:03`, `2026-11-21 10:03`, or an age such as
    /// `15m`. A time of day is the latest before now.
    #[arg(long, value_name = "TIME", alias = "from")]
    since: Option<String>,
    /// Only refusals until then. A time of day is the first after `--since`.
    #[arg(long, value_name = "TIME", alias = "to")]
    until: Option<String>,
    /// Only refusals in the minute that begins then, instead of `--since` and `--until`.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["since", "until"])]
    at: Option<String>,
    /// Time zone of all times, such as Europe/Berlin or UTC. Default: that of the gateway.
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    /// Maximum number of refusal runs, 1 to 1000; the latest are shown.
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: u32,
    /// Also show the refusals of all other gateways, from the stream in Redis (`[audit] stream`).
    #[arg(long)]
    all_gateways: bool,
    /// Print the response of `GET /api/audit` as it is.
    #[arg(long)]
    json: bool,
    /// The gateway.
    #[command(flatten)]
    target: TargetFlags,
}

/// Prints the refusals that match.
pub(super) fn audit(file: &ConfigFile, flags: &Flags) -> ExitCode {
    if flags.key.is_some() {
        eprintln!(
            "error: `tollgate audit` needs no key, but its id, the name of its table in the file: --key-id ID\n  the \
             key of an id is found by its hash: `tollgate hash-key -` reads the key, and prints its sha256"
        );
        return ExitCode::from(EXIT_BAD_FILE);
    }
    let (client, runtime) = match flags.target.client(file) {
        Ok(client) => client,
        Err(exit) => return exit,
    };
    match runtime.block_on(text(&client, flags)) {
        Ok(text) => print(&text),
        Err(error) => {
            eprintln!("error: {error}");
            exit_of(&error)
        }
    }
}

async fn text(client: &Client, flags: &Flags) -> Result<String, GatewayError> {
    let path = flags.path();
    if flags.json {
        let answer: Value = client.get(&path).await?;
        return Ok(serde_json::to_string_pretty(&answer).unwrap_or_default() + "\n");
    }
    let refusals: Refusals = client.get(&path).await?;
    let mut buckets: Vec<(String, ClientBuckets)> = Vec::new();
    for path in refusals.limited_clients().into_iter().take(MAX_CLIENTS) {
        // A client of an earlier configuration has no buckets now.
        if let Ok(found) = client.get(&format!("{path}/buckets")).await {
            buckets.push((path, found));
        }
    }
    Ok(Page { search: flags.search(), refusals, buckets }.render())
}

impl Flags {
    /// Path and query of the request.
    fn path(&self) -> String {
        let mut path = format!("/api/audit?limit={}", self.limit);
        let texts = [
            ("key", &self.key_id),
            ("tenant", &self.tenant),
            ("ip", &self.ip),
            ("rule", &self.rule),
            ("kind", &self.kind),
            ("by", &self.by),
            ("since", &self.since),
            ("until", &self.until),
            ("at", &self.at),
            ("zone", &self.zone),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                let _ = write!(path, "&{name}={}", encode_component(text));
            }
        }
        if self.all_gateways {
            path += "&all=true";
        }
        path
    }

    fn search(&self) -> Search {
        Search {
            key: self.key_id.clone(),
            tenant: self.tenant.clone(),
            ip: self.ip.clone(),
            rule: self.rule.clone(),
            kind: self.kind.clone(),
            all_gateways: self.all_gateways,
        }
    }
}
