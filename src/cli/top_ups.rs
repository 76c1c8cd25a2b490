//! `tollgate top-ups`: tokens beyond the quotas of a client, until a time.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::HeaderValue;
use serde::Deserialize;
use serde_json::json;

use super::columns::aligned;
use super::file::{ConfigFile, FileFlag};
use super::print;
use super::target::{TargetFlags, exit_of};
use crate::api::top_ups::{RevokedTopUp, TopUps};
use crate::base::random;
use crate::base::text::cut;
use crate::net::percent::encode_component;
use crate::top::GatewayError;

const HEADINGS: [&str; 8] = ["id", "rule", "left", "of", "expires", "granted", "by", "reason"];

/// What to do with top-ups.
#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// List the top-ups of a client that can be used.
    List {
        /// The client, and the gateway.
        #[command(flatten)]
        of: Of,
        /// Print the response of `GET /api/clients/{kind}/{id}/top-ups` as it is.
        #[arg(long)]
        json: bool,
    },
    /// Grant a client tokens beyond a quota until a time, over the ends of its periods.
    Add {
        /// The client, and the gateway.
        #[command(flatten)]
        of: Of,
        /// Name of the rule, a fixed window.
        #[arg(long, value_name = "NAME")]
        rule: String,
        /// Number of tokens.
        #[arg(long, value_name = "N")]
        tokens: u64,
        /// Until when: a time such as `2027-01-31T00:00:00Z`, or a duration from now, such as
        /// `90d`.
        #[arg(long, value_name = "TIME")]
        expires: String,
        /// What identifies the top-up: 1 to 64 letters, digits and `._:-`, the first a letter or
        /// digit. A command with an id that was given before adds nothing [default: random].
        #[arg(long, value_name = "ID")]
        id: Option<String>,
        /// Why, for the list and the audit.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Take away what is left of a top-up.
    Revoke {
        /// The client, and the gateway.
        #[command(flatten)]
        of: Of,
        /// Its id: see `tollgate top-ups list`.
        #[arg(value_name = "TOP-UP")]
        id: String,
        /// Name of its rule, if the client has top-ups with this id under several.
        #[arg(long, value_name = "NAME")]
        rule: Option<String>,
    },
}

/// The client, and the gateway.
#[derive(Debug, Args)]
pub(super) struct Of {
    /// Id of the client's key.
    #[arg(long, visible_alias = "client", value_name = "ID", required_unless_present_any = ["tenant", "ip"])]
    key_id: Option<String>,
    /// The tenant, for rules that count its clients together.
    #[arg(long, value_name = "ID", conflicts_with_all = ["key_id", "ip"])]
    tenant: Option<String>,
    /// Address of the client.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "key_id")]
    ip: Option<String>,
    /// The configuration file.
    #[command(flatten)]
    file: FileFlag,
    /// The gateway.
    #[command(flatten)]
    target: TargetFlags,
}

/// The part of the response to a grant that is shown.
#[derive(Debug, Deserialize)]
struct Granted {
    buckets: Vec<RevisedBucket>,
    top_up: Option<String>,
    #[serde(default)]
    repeated: bool,
}

#[derive(Debug, Deserialize)]
struct RevisedBucket {
    rule: String,
    from: i64,
    to: i64,
}

impl Of {
    /// Path of the client in the admin API.
    fn path(&self) -> String {
        let (kind, id) = match (&self.key_id, &self.tenant, &self.ip) {
            (Some(id), ..) => ("key", id),
            (_, Some(id), _) => ("tenant", id),
            (.., ip) => ("ip", ip.as_ref().unwrap_or(const { &String::new() })),
        };
        format!("/api/clients/{kind}/{}", encode_component(id))
    }
}

impl Action {
    fn of(&self) -> &Of {
        match self {
            Self::List { of, .. } | Self::Add { of, .. } | Self::Revoke { of, .. } => of,
        }
    }

    /// The id with which the action can be repeated after an error that leaves open whether it was
    /// done.
    fn repeatable(&self, error: &GatewayError) -> Option<&str> {
        let Self::Add { id, .. } = self else { return None };
        let is_open = match error {
            // A proxy before the gateway can answer in its place.
            GatewayError::Unreachable { .. } | GatewayError::NotTollgate { .. } => true,
            GatewayError::Refused { status, .. } => *status >= 500,
            _ => false,
        };
        id.as_deref().filter(|_| is_open)
    }

    /// The configuration file that the action names.
    pub(super) fn file(&mut self) -> FileFlag {
        std::mem::take(match self {
            Self::List { of, .. } | Self::Add { of, .. } | Self::Revoke { of, .. } => &mut of.file,
        })
    }
}

/// Lists, adds or revokes top-ups.
pub(super) fn top_ups(file: &ConfigFile, mut action: Action) -> ExitCode {
    if let Action::Add { id, .. } = &mut action {
        id.get_or_insert_with(|| random::number().to_string());
    }
    let (client, runtime) = match action.of().target.client(file) {
        Ok(client) => client,
        Err(exit) => return exit,
    };
    let path = action.of().path();
    let shown: Result<String, GatewayError> = runtime.block_on(async {
        Ok(match &action {
            Action::List { json, .. } => {
                let all: TopUps = client.get(&format!("{path}/top-ups")).await?;
                if *json {
                    format!("{}\n", serde_json::to_string_pretty(&all).unwrap_or_default())
                } else {
                    page(&all)
                }
            }
            Action::Add { rule, tokens, expires, id, reason, .. } => {
                let body = json!({
                    "rule": rule, "tokens": tokens, "expires": expires, "id": id, "reason": reason,
                });
                let kind = HeaderValue::from_static("application/json");
                let path = format!("{path}/grant");
                let granted: Granted =
                    client.post(&path, kind, body.to_string().as_bytes()).await?;
                let moved = granted.buckets.iter().map(|bucket| {
                    format!("{}: {} -> {} tokens", bucket.rule, bucket.from, bucket.to)
                });
                let moved = moved.collect::<Vec<_>>().join(", ");
                let before = if granted.repeated { " was granted before" } else { "" };
                format!("{moved}, top-up {}{before}\n", granted.top_up.unwrap_or_default())
            }
            Action::Revoke { id, rule, .. } => {
                let rule = rule.as_ref().map(|rule| format!("?rule={}", encode_component(rule)));
                let rule = rule.unwrap_or_default();
                let path = format!("{path}/top-ups/{}{rule}", encode_component(id));
                let RevokedTopUp { rule, from, to, .. } = client.delete(&path).await?;
                format!("{rule}: {from} -> {to} tokens\n")
            }
        })
    });
    match shown {
        Ok(text) => print(&text),
        Err(error) => {
            eprintln!("error: {error}");
            if let Some(id) = action.repeatable(&error) {
                eprintln!("note: the same command with `--id {id}` adds the top-up at most once");
            }
            exit_of(&error)
        }
    }
}

/// The top-ups as a table.
fn page(all: &TopUps) -> String {
    if all.top_ups.is_empty() {
        return format!("{} has no top-ups\n", all.client.id);
    }
    let mut rows = vec![HEADINGS.map(str::to_owned).to_vec()];
    rows.extend(all.top_ups.iter().map(|one| {
        vec![
            one.id.clone(),
            cut(&one.rule, 64),
            one.left.to_string(),
            one.tokens.to_string(),
            format!("{:.0}", one.expires),
            format!("{:.0}", one.granted),
            cut(&one.by, 64),
            one.reason.as_deref().map_or_else(|| "-".to_owned(), |reason| cut(reason, 200)),
        ]
    }));
    aligned(&rows).into_iter().fold(String::new(), |page, line| page + &line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn top_ups_are_a_table() {
        let all: TopUps = serde_json::from_str(
            r#"{"client": {"kind": "key", "id": "acme", "plan": "pro"}, "top_ups": [
            {"id": "7", "rule": "monthly", "tokens": 5000, "left": 4999.5, "expires": "2026-12-31T00:00:00Z",
             "granted": "2026-11-28T06:00:00.000123Z", "by": "ops", "reason": "invoice 4711"},
            {"id": "81", "rule": "daily", "tokens": 10, "left": 10, "expires": "2027-01-31T00:00:00Z",
             "granted": "2026-11-28T06:00:00Z", "by": "anonymous"}]}"#,
        )
        .unwrap();
        insta::assert_snapshot!(page(&all), @r"
        id  rule     left    of    expires               granted               by         reason
        7   monthly  4999.5  5000  2026-12-31T00:00:00Z  2026-11-28T06:00:00Z  ops        invoice 4711
        81  daily    10      10    2027-01-31T00:00:00Z  2026-11-28T06:00:00Z  anonymous  -
        ");
        let none = TopUps { top_ups: Vec::new(), ..all };
        assert_eq!(page(&none), "acme has no top-ups\n");
    }
}
