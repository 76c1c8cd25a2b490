//! `tollgate check --against URL`: what a reload of the file would change on a running gateway.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use http::HeaderValue;
use serde_json::Value;

use crate::api::reloads::{ChangedBuckets, ChangedSetting, DryRun, DryRunResult, How};
use crate::cli::{EXIT_BAD_FILE, EXIT_UNAVAILABLE, print};
use crate::config::findings::Finding;
use crate::policy::bucket_changes::Effect;
use crate::top::target::Target;
use crate::top::{Client, GatewayError};

/// Path of the dry run.
const PATH: &str = "/api/reload?dry_run=true";

/// Description of the admin API. A gateway without dry runs would reload instead.
const DOCUMENT: &str = "/api/openapi.json";

const TOML: HeaderValue = HeaderValue::from_static("application/toml");

/// Prints how `text`, the content of `file`, differs from the configuration of a gateway.
pub(super) fn compare(file: &Path, text: &str, target: Target, json: bool) -> ExitCode {
    let at = target.shown();
    let answer = match ask(&Client::new(target), text) {
        Ok(answer) => answer,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(match error {
                GatewayError::Unreachable { .. } | GatewayError::NotTollgate { .. } => {
                    EXIT_UNAVAILABLE
                }
                _ => EXIT_BAD_FILE,
            });
        }
    };
    if json {
        let _ = print(&format!("{answer:#}\n"));
    }
    let plan: DryRun = match serde_json::from_value(answer) {
        Ok(plan) => plan,
        Err(error) => {
            eprintln!("error: the answer of {at} cannot be read: {error}");
            return ExitCode::from(EXIT_UNAVAILABLE);
        }
    };
    if !json {
        let _ = print(&render(&file.display().to_string(), &at, &plan));
    }
    if plan.result == DryRunResult::Rejected {
        ExitCode::from(EXIT_BAD_FILE)
    } else {
        ExitCode::SUCCESS
    }
}

fn ask(client: &Client, text: &str) -> Result<Value, GatewayError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| client.unreachable(&error.to_string()))?;
    runtime.block_on(async {
        let document: Value = client.get(DOCUMENT).await?;
        let parameters = document.pointer("/paths/~1api~1reload/post/parameters");
        if !parameters.is_some_and(|list| list.to_string().contains("\"dry_run\"")) {
            return Err(client.not_tollgate("its version has no dry runs; nothing was sent"));
        }
        client.post(PATH, TOML, text.as_bytes()).await
    })
}

/// The differences as text.
fn render(file: &str, at: &str, plan: &DryRun) -> String {
    let mut text = format!("{file} compared with {at}, generation {}\n\n", plan.generation);
    let _ = differences(plan, &mut text);
    let _ = consequences(plan, &mut text);
    text
}

/// One block for each entry of a table, in the order of the answer.
fn differences(plan: &DryRun, text: &mut String) -> std::fmt::Result {
    let mut block = String::new();
    for change in &plan.changes {
        let ChangedSetting { kind, name, what, setting, .. } = change;
        // A setting of a table without names is shown in a block for the table.
        let (title, setting) = match (&**kind, name.split_once('.')) {
            ("setting", Some((table, setting))) => (table.to_owned(), setting),
            ("setting", None) => (name.clone(), ""),
            _ => (format!("{kind} {name}"), setting.as_deref().unwrap_or_default()),
        };
        match what {
            How::Added => writeln!(text, "+ {title}")?,
            How::Removed => writeln!(text, "- {title}")?,
            How::Changed | How::FileChanged | How::SecretChanged => {
                if block != title {
                    writeln!(text, "~ {title}")?;
                }
                writeln!(text, "    {setting}: {}{}", values(change), restart(plan, name))?;
            }
        }
        block = title;
    }
    if plan.more_changes > 0 {
        writeln!(text, "and {} more changes", plan.more_changes)?;
    }
    for name in plan.restart.iter().filter(|name| !is_listed(plan, name)) {
        writeln!(text, "~ {name}{}", restart(plan, name))?;
    }
    if !plan.changes.is_empty() || !plan.restart.is_empty() {
        writeln!(text)?;
    }
    Ok(())
}

fn values(change: &ChangedSetting) -> String {
    match change.what {
        How::SecretChanged => return "the secret changes".to_owned(),
        How::FileChanged if change.name.starts_with("errors.") => {
            return "the file changes".to_owned();
        }
        How::FileChanged => return "the file of networks changes".to_owned(),
        How::Added | How::Removed | How::Changed => {}
    }
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "(default)".to_owned());
    format!("{} -> {}", shown(&change.from), shown(&change.to))
}

fn restart(plan: &DryRun, setting: &str) -> &'static str {
    match plan.restart.iter().any(|name| setting.starts_with(name.as_str())) {
        true if plan.by_upgrade => "   (needs an upgrade)",
        true => "   (needs a restart)",
        false => "",
    }
}

/// How the settings are changed that a reload cannot.
fn way(plan: &DryRun) -> String {
    let settings = plan.restart.join(", ");
    if plan.by_upgrade {
        format!("`tollgate upgrade` changes {settings} without closing a port.")
    } else {
        format!("restart the gateway to change {settings}.")
    }
}

/// Whether a setting that needs a restart is among the changes.
fn is_listed(plan: &DryRun, name: &str) -> bool {
    plan.changes.iter().any(|change| change.kind == "setting" && change.name.starts_with(name))
}

/// Tokens of clients, what was not compared, and what a reload would do.
fn consequences(plan: &DryRun, text: &mut String) -> std::fmt::Result {
    if !plan.buckets.is_empty() {
        writeln!(text, "Tokens of clients (all others stay as they are):")?;
        for ChangedBuckets { rule, effect, clients, why } in &plan.buckets {
            let effect = match effect {
                Effect::KeepFraction => "keep the fraction that is left",
                Effect::KeepUsed => "keep what they have used",
                Effect::KeepHeld => "keep their requests in flight, which still count",
                Effect::StartFull => "start with a full bucket",
                Effect::Expire => "are not limited by it any more",
            };
            writeln!(text, "  rule {rule}: {clients} {effect}, because {why}")?;
        }
        writeln!(text)?;
    }
    if !plan.not_compared.is_empty() {
        let list = plan.not_compared.join(", ");
        writeln!(text, "Not compared, because it is or contains a secret: {list}\n")?;
    }
    let count = plan.changes.len() + plan.more_changes;
    let changes = if count == 1 { "1 change".to_owned() } else { format!("{count} changes") };
    match plan.result {
        DryRunResult::Unchanged if plan.not_compared.is_empty() => writeln!(text, "No changes."),
        DryRunResult::Unchanged => writeln!(text, "No changes in what was compared."),
        DryRunResult::WouldApply => {
            writeln!(text, "{changes}. A reload applies the file without a restart.")
        }
        DryRunResult::NeedsRestart => {
            writeln!(text, "{changes}. A reload rejects the whole file: {}", way(plan))
        }
        DryRunResult::Rejected => {
            for Finding { message, line, .. } in &plan.errors {
                let line = line.map(|line| format!("line {line}: ")).unwrap_or_default();
                writeln!(text, "error: {line}{message}")?;
            }
            if plan.more_errors > 0 {
                writeln!(text, "and {} more errors", plan.more_errors)?;
            }
            writeln!(text, "A reload rejects the file.")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_grouped_and_end_with_the_result() {
        let change = |kind: &str, name: &str, setting: &str, from: Value, to: Value| {
            json!({ "kind": kind, "name": name, "what": "changed", "setting": setting,
                    "from": from, "to": to })
        };
        let plan = json!({
            "dry_run": true, "result": "needs_restart", "generation": 3,
            "changes": [
                { "kind": "key", "name": "acme", "what": "secret_changed", "setting": "sha256" },
                { "kind": "plan", "name": "trial", "what": "added" },
                change("rule", "per-ip", "burst", json!("200"), Value::Null),
                change("rule", "per-ip", "rate", json!("\"20/s\""), json!("\"10/s\"")),
                { "kind": "rule", "name": "old", "what": "removed" },
                change("setting", "server.read_timeout", "", Value::Null, json!("\"5s\"")),
                change("setting", "server.threads", "", json!("2"), json!("4")),
            ],
            "more_changes": 0, "restart": ["server.threads", "redis.url"],
            "by_upgrade": true,
            "buckets": [
                { "rule": "old", "effect": "expire", "clients": "all clients",
                  "why": "the rule is removed or off" },
                { "rule": "per-ip", "effect": "keep_fraction", "clients": "all clients",
                  "why": "rate or burst changes" },
            ],
            "not_compared": ["redis.url"], "assumed": [], "errors": [], "more_errors": 0,
        });
        let plan: DryRun = serde_json::from_value(plan).unwrap();
        insta::assert_snapshot!(render("gateway.toml", "127.0.0.1:9090", &plan), @r#"
        gateway.toml compared with 127.0.0.1:9090, generation 3

        ~ key acme
            sha256: the secret changes
        + plan trial
        ~ rule per-ip
            burst: 200 -> (default)
            rate: "20/s" -> "10/s"
        - rule old
        ~ server
            read_timeout: (default) -> "5s"
            threads: 2 -> 4   (needs an upgrade)
        ~ redis.url   (needs an upgrade)

        Tokens of clients (all others stay as they are):
          rule old: all clients are not limited by it any more, because the rule is removed or off
          rule per-ip: all clients keep the fraction that is left, because rate or burst changes

        Not compared, because it is or contains a secret: redis.url

        7 changes. A reload rejects the whole file: `tollgate upgrade` changes server.threads, redis.url without closing a port.
        "#);
        let plan = DryRun { by_upgrade: false, ..plan };
        assert_eq!(way(&plan), "restart the gateway to change server.threads, redis.url.");
    }

    #[test]
    fn equal_and_rejected_files_are_one_line() {
        let plan = DryRun { result: DryRunResult::Unchanged, generation: 3, ..DryRun::default() };
        insta::assert_snapshot!(render("gateway.toml", "127.0.0.1:9090", &plan), @r"
        gateway.toml compared with 127.0.0.1:9090, generation 3

        No changes.
        ");
        let not_compared = vec!["admin.token".to_owned()];
        let plan = DryRun { not_compared, ..plan };
        insta::assert_snapshot!(render("gateway.toml", "127.0.0.1:9090", &plan), @r"
        gateway.toml compared with 127.0.0.1:9090, generation 3

        Not compared, because it is or contains a secret: admin.token

        No changes in what was compared.
        ");
        let plan = DryRun { not_compared: Vec::new(), ..plan };
        let message = "unknown name `x`".to_owned();
        let errors = vec![Finding { message, line: Some(7), column: None, help: None }];
        let plan = DryRun { result: DryRunResult::Rejected, errors, ..plan };
        insta::assert_snapshot!(render("gateway.toml", "127.0.0.1:9090", &plan), @r"
        gateway.toml compared with 127.0.0.1:9090, generation 3

        error: line 7: unknown name `x`
        A reload rejects the file.
        ");
    }
}
