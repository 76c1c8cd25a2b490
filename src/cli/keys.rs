//! `tollgate keys`: the clients of the key store, by the admin port of a running gateway.
//!
//! Reading order: this file (the actions), `transfer` (import and export), `table` (CSV).

mod table;
mod transfer;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::HeaderValue;
use tokio::runtime::Runtime;

use super::columns::aligned;
use super::file::{ConfigFile, FileFlag};
use super::target::{TargetFlags, exit_of};
use super::{EXIT_BAD_FILE, print};
use crate::api::keys::{
    DamagedClient, IssuedKey, NewClient, RemovedClient, Rotation, StoredClient, StoredClients,
};
use crate::base::text::cut;
use crate::base::time::UtcTime;
use crate::net::percent::encode_component;
use crate::top::{Client, GatewayError};

/// Number of clients in one response.
const PAGE: usize = 1_000;

const HEADINGS: [&str; 7] = ["id", "plan", "tenant", "state", "keys", "updated", "last used"];

/// What to do with clients.
#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// Create a client, and print its API key: it is shown only now.
    Create(Create),
    /// List clients.
    List(List),
    /// Print one client as JSON.
    Get(One),
    /// Make a new API key for a client, and print it. The others are valid for the overlap.
    Rotate {
        /// The client.
        #[command(flatten)]
        one: One,
        /// How long the other keys are still valid, such as `24h` or `0s`.
        #[arg(long, value_name = "TIME", default_value = "24h")]
        overlap: String,
        /// Name of the new key.
        #[arg(long)]
        name: Option<String>,
    },
    /// Refuse the requests of a client.
    Disable(One),
    /// Serve a client again.
    Enable(One),
    /// Remove a client.
    Delete(One),
    /// Create clients from JSON Lines or CSV. What the store has already does not change.
    Import(transfer::Import),
    /// Write clients as JSON Lines or CSV.
    Export(transfer::Export),
}

/// A new client.
#[derive(Debug, Args)]
pub(super) struct Create {
    /// Id of the client. Default: the gateway makes one.
    #[arg(long)]
    id: Option<String>,
    /// Plan of the client. Default: the only plan of the file.
    #[arg(long)]
    plan: Option<String>,
    /// Tenant of the client.
    #[arg(long)]
    tenant: Option<String>,
    /// Name of the key.
    #[arg(long)]
    name: Option<String>,
    /// When the key ceases to be valid: `2027-01-31T00:00:00Z`.
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
    /// A text to keep with the client: `owner=anna`. Can be repeated.
    #[arg(long, value_name = "NAME=TEXT")]
    metadata: Vec<String>,
    /// The gateway.
    #[command(flatten)]
    gateway: Gateway,
}

/// Which clients.
#[derive(Debug, Args)]
pub(super) struct Filter {
    /// Only clients of this plan.
    #[arg(long)]
    plan: Option<String>,
    /// Only clients of this tenant.
    #[arg(long)]
    tenant: Option<String>,
    /// Only clients with this text: `owner=anna`; or with any text of this name: `owner`. Can be
    /// repeated.
    #[arg(long, value_name = "NAME=TEXT")]
    metadata: Vec<String>,
}

/// Which clients to list.
#[derive(Debug, Args)]
pub(super) struct List {
    /// Which clients.
    #[command(flatten)]
    filter: Filter,
    /// Maximum number of clients, 1 or more.
    #[arg(long, value_name = "N", default_value_t = NonZeroUsize::new(PAGE).unwrap_or(NonZeroUsize::MIN))]
    limit: NonZeroUsize,
    /// Print the clients as JSON.
    #[arg(long)]
    json: bool,
    /// The gateway.
    #[command(flatten)]
    gateway: Gateway,
}

/// A client of the store.
#[derive(Debug, Args)]
pub(super) struct One {
    /// Id of the client.
    #[arg(value_name = "ID")]
    id: String,
    /// The gateway.
    #[command(flatten)]
    gateway: Gateway,
}

/// The gateway to ask.
#[derive(Debug, Args)]
pub(super) struct Gateway {
    /// The configuration file.
    #[command(flatten)]
    file: FileFlag,
    /// The admin port.
    #[command(flatten)]
    target: TargetFlags,
}

/// Why an action ends without success.
pub(super) enum Failed {
    Gateway(GatewayError),
    /// Something else, with its message and exit code.
    Other(String, u8),
}

impl From<GatewayError> for Failed {
    fn from(error: GatewayError) -> Self {
        Self::Gateway(error)
    }
}

impl Action {
    /// The configuration file that the action names.
    pub(super) fn file(&mut self) -> FileFlag {
        std::mem::take(&mut self.gateway_mut().file)
    }

    fn gateway_mut(&mut self) -> &mut Gateway {
        match self {
            Self::Create(create) => &mut create.gateway,
            Self::List(list) => &mut list.gateway,
            Self::Get(one)
            | Self::Rotate { one, .. }
            | Self::Disable(one)
            | Self::Enable(one)
            | Self::Delete(one) => &mut one.gateway,
            Self::Import(import) => &mut import.gateway,
            Self::Export(export) => &mut export.gateway,
        }
    }

    const fn target(&self) -> &TargetFlags {
        match self {
            Self::Create(create) => &create.gateway.target,
            Self::List(list) => &list.gateway.target,
            Self::Get(one)
            | Self::Rotate { one, .. }
            | Self::Disable(one)
            | Self::Enable(one)
            | Self::Delete(one) => &one.gateway.target,
            Self::Import(import) => &import.gateway.target,
            Self::Export(export) => &export.gateway.target,
        }
    }
}

/// Does it, and prints the result.
pub(super) fn keys(file: &ConfigFile, action: &Action) -> ExitCode {
    let (client, runtime) = match action.target().client(file) {
        Ok(client) => client,
        Err(exit) => return exit,
    };
    match act(&client, &runtime, action) {
        Ok(text) => print(&text),
        Err(Failed::Gateway(error)) => {
            eprintln!("error: {error}");
            exit_of(&error)
        }
        Err(Failed::Other(message, exit)) => {
            eprintln!("error: {message}");
            ExitCode::from(exit)
        }
    }
}

fn act(client: &Client, runtime: &Runtime, action: &Action) -> Result<String, Failed> {
    runtime.block_on(async {
        Ok(match action {
            Action::Create(create) => issued(&post(client, "", &create.request()?).await?),
            Action::List(list) => list.text(client).await?,
            Action::Get(one) => json(&client.get::<StoredClient>(&one.path()).await?),
            Action::Rotate { one, overlap, name } => {
                let (overlap, name) = (Some(overlap.clone()), name.clone());
                let rotation = Rotation { overlap, name, expires: None };
                issued(&post(client, &format!("/{}/rotate", one.encoded()), &rotation).await?)
            }
            Action::Disable(one) => one.order(client, "disable").await?,
            Action::Enable(one) => one.order(client, "enable").await?,
            Action::Delete(one) => {
                let removed: RemovedClient = client.delete(&one.path()).await?;
                format!("{} is removed.\n", cut(&removed.id, 64))
            }
            Action::Import(import) => import.run(client).await?,
            Action::Export(export) => export.run(client).await?,
        })
    })
}

/// Sends JSON to a path below `/api/keys`.
async fn post<T: serde::de::DeserializeOwned>(
    client: &Client,
    path: &str,
    body: &impl serde::Serialize,
) -> Result<T, Failed> {
    let kind = HeaderValue::from_static("application/json");
    let body = serde_json::to_vec(body).unwrap_or_default();
    Ok(client.post(&format!("/api/keys{path}"), kind, &body).await?)
}

/// The API key on standard output alone, so that a script can read it.
fn issued(issued: &IssuedKey) -> String {
    let client = &issued.client;
    eprintln!(
        "Give this key to the client {} (plan {}). It is not stored, and is shown only now:",
        cut(&client.id, 64),
        cut(&client.plan, 64)
    );
    format!("{}\n", issued.key.as_deref().unwrap_or_default())
}

fn json(value: &impl serde::Serialize) -> String {
    format!("{}\n", serde_json::to_string_pretty(value).unwrap_or_default())
}

impl Create {
    fn request(&self) -> Result<NewClient, Failed> {
        let wrong = |message: &str| Failed::Other(message.to_owned(), EXIT_BAD_FILE);
        let expires = self.expires.as_deref().map(|text| {
            UtcTime::parse(text)
                .ok_or_else(|| wrong("--expires is a time such as 2027-01-31T00:00:00Z"))
        });
        let metadata = self.metadata.iter().map(|text| {
            let (name, text) =
                text.split_once('=').ok_or_else(|| wrong("--metadata is NAME=TEXT"))?;
            Ok((name.to_owned(), text.to_owned()))
        });
        Ok(NewClient {
            id: self.id.clone(),
            plan: self.plan.clone(),
            tenant: self.tenant.clone(),
            name: self.name.clone(),
            expires: expires.transpose()?,
            metadata: metadata.collect::<Result<BTreeMap<_, _>, Failed>>()?,
            ..NewClient::default()
        })
    }
}

impl One {
    fn encoded(&self) -> String {
        encode_component(&self.id)
    }

    fn path(&self) -> String {
        format!("/api/keys/{}", self.encoded())
    }

    async fn order(&self, client: &Client, order: &str) -> Result<String, Failed> {
        let path = format!("/{}/{order}", self.encoded());
        let changed: StoredClient = post(client, &path, &BTreeMap::<String, String>::new()).await?;
        let state = if changed.enabled { "enabled" } else { "disabled" };
        Ok(format!("{} is {state}.\n", cut(&changed.id, 64)))
    }
}

impl List {
    async fn text(&self, client: &Client) -> Result<String, Failed> {
        let (mut found, mut damaged, mut cursor) = (Vec::new(), Vec::new(), None);
        let total = loop {
            let wanted = self.limit.get().saturating_sub(found.len()).clamp(1, PAGE);
            let path = self.filter.path(wanted, cursor.as_deref());
            let page: StoredClients = client.get(&path).await?;
            found.extend(page.keys);
            damaged.extend(page.damaged);
            cursor = page.next;
            if cursor.is_none() || found.len() >= self.limit.get() {
                break page.total;
            }
        };
        warn_of(&damaged);
        if self.json {
            return Ok(json(&found));
        }
        Ok(page(&found, total, cursor.is_some()))
    }
}

impl Filter {
    /// Path and query of a page.
    fn path(&self, limit: usize, cursor: Option<&str>) -> String {
        let mut path = format!("/api/keys?limit={limit}");
        let texts = [
            ("plan", self.plan.as_deref()),
            ("tenant", self.tenant.as_deref()),
            ("cursor", cursor),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                let _ = write!(path, "&{name}={}", encode_component(text));
            }
        }
        for text in &self.metadata {
            let _ = write!(path, "&metadata={}", encode_component(text));
        }
        path
    }
}

/// Prints the clients that cannot be read, on standard error.
fn warn_of(damaged: &[DamagedClient]) {
    for DamagedClient { id, why } in damaged {
        eprintln!(
            "the record of {} cannot be read: {}; `tollgate keys delete` removes it",
            cut(id, 64),
            cut(why, 200)
        );
    }
}

/// The clients as a table.
fn page(clients: &[StoredClient], total: Option<u64>, has_more: bool) -> String {
    let mut rows = vec![HEADINGS.map(str::to_owned).to_vec()];
    rows.extend(clients.iter().map(|client| {
        vec![
            cut(&client.id, 64),
            cut(&client.plan, 64),
            client.tenant.as_deref().map_or("-".to_owned(), |tenant| cut(tenant, 64)),
            if client.enabled { "enabled" } else { "disabled" }.to_owned(),
            client.secrets.len().to_string(),
            format!("{:.0}", client.updated),
            client.last_used.map_or("-".to_owned(), |at| format!("{at:.0}")),
        ]
    }));
    let mut text = aligned(&rows).join("\n") + "\n";
    if has_more {
        text += "… and more: give a larger --limit.\n";
    }
    if let Some(total) = total {
        let _ = writeln!(text, "{total} in the store.");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::record::tests::record;

    #[test]
    fn clients_are_a_table() {
        let mut disabled = StoredClient::of(&record("acme", 7));
        (disabled.enabled, disabled.tenant) = (false, Some("north".to_owned()));
        disabled.last_used = Some(UtcTime(2_000_000));
        let clients = [StoredClient::of(&record("a", 1)), disabled];
        insta::assert_snapshot!(page(&clients, Some(7), true), @r"
        id    plan  tenant  state     keys  updated               last used
        a     free  -       enabled   1     1970-01-01T00:00:01Z  -
        acme  free  north   disabled  1     1970-01-01T00:00:01Z  1970-01-01T00:00:02Z
        … and more: give a larger --limit.
        7 in the store.
        ");
    }
}
