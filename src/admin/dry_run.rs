//! `POST /api/reload?dry_run=true`: what a reload would change, and what needs a restart.

use http::StatusCode;
use serde::Serialize;

use super::answer::Answer as Sent;
use super::finding::{self, Finding};
use super::query::Query;
use super::reload::{ChangedSetting, MAX_ERRORS, Warnings};
use crate::load::LoadError;
use crate::policy::bucket_changes::{self, Effect};
use crate::reload::dry_run::{self, Plan};
use crate::reload::{Reloader, history};

/// Result of a dry run. Nothing is applied.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct DryRun<'a> {
    // Always true, unlike in the answer of a reload.
    #[serde(rename = "dry_run")]
    applies_nothing: bool,
    result: DryRunResult,
    /// Generation of the configuration in force.
    generation: u64,
    changes: Vec<ChangedSetting<'a>>,
    more_changes: usize,
    /// Settings that differ and that a reload cannot change.
    restart: &'a [String],
    /// Whether `tollgate upgrade` would change them, without closing a port.
    by_upgrade: bool,
    /// What happens to the buckets of clients; rules whose buckets are kept as they are have no
    /// entry.
    buckets: Vec<ChangedBuckets<'a>>,
    /// Settings that are not compared, because they are secret.
    not_compared: &'a [String],
    /// What has an assumed value, as it is written in the file.
    assumed: &'a [String],
    errors: Vec<Finding>,
    more_errors: usize,
    #[serde(flatten)]
    warnings: Warnings,
}

/// What a reload would do.
#[derive(Serialize, Clone, Copy)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum DryRunResult {
    /// It would apply the file.
    WouldApply,
    /// It would find nothing to change.
    Unchanged,
    /// It would reject the file, because of settings that need a restart.
    NeedsRestart,
    /// It would reject the file, because of errors.
    Rejected,
}

/// What happens to the buckets of a rule.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ChangedBuckets<'a> {
    rule: &'a str,
    effect: BucketEffect,
    /// The clients concerned, in words.
    clients: String,
    /// The reason, in words.
    why: &'static str,
}

/// What happens to buckets.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum BucketEffect {
    /// Clients keep the fraction that they have left.
    KeepFraction,
    /// What clients have used of a fixed window stays used.
    KeepUsed,
    /// Requests in flight still count.
    KeepHeld,
    /// Clients get a full bucket.
    StartFull,
    /// The bucket is not used any more.
    Expire,
}

/// Whether a request to reload asks for a dry run. Without one, a body would be ignored, so it is
/// an error.
///
/// # Errors
/// The response, if the query is invalid.
pub(super) fn is_wanted(query: Option<&str>, body: &[u8]) -> Result<bool, Box<Sent>> {
    let query = Query::read(query, &["dry_run"], &[])?;
    match query.get("dry_run") {
        Some("true") => Ok(true),
        None | Some("false") if body.is_empty() => Ok(false),
        None | Some("false") => {
            let detail = "a reload reads the file of the gateway, not a body; use `?dry_run=true` \
                          to check a body";
            Err(Sent::refusal(StatusCode::BAD_REQUEST, detail))
        }
        Some(_) => {
            let detail = "`dry_run` is `true` or `false`";
            Err(Sent::refusal(StatusCode::BAD_REQUEST, detail))
        }
    }
}

/// Answers what a reload would do: of the file, or of `body` if it is not empty.
pub(super) async fn answer(reloader: &Reloader, body: Vec<u8>) -> Sent {
    let dry_run::DryRun { generation, plan } =
        if body.is_empty() { reloader.dry_run().await } else { reloader.dry_run_of(body).await };
    match plan {
        Ok(plan) => Sent::json(&DryRun::of(generation, &plan)),
        Err(error) if error.is_blocked() => {
            Sent::problem(StatusCode::SERVICE_UNAVAILABLE, &error.to_string())
        }
        Err(error) => {
            let rejected = DryRun::rejected(generation, &error);
            Sent::json_with(StatusCode::UNPROCESSABLE_ENTITY, &rejected)
        }
    }
}

impl<'a> DryRun<'a> {
    fn of(generation: u64, plan: &'a Plan) -> Self {
        let Plan { changes, restart, by_upgrade, buckets, not_compared, assumed, warnings } = plan;
        let result = if !restart.is_empty() {
            DryRunResult::NeedsRestart
        } else if changes.count() > 0 {
            DryRunResult::WouldApply
        } else {
            DryRunResult::Unchanged
        };
        Self {
            applies_nothing: true,
            result,
            generation,
            changes: changes.list.iter().map(ChangedSetting::of).collect(),
            more_changes: changes.not_kept,
            restart,
            by_upgrade: *by_upgrade,
            buckets: buckets.iter().map(ChangedBuckets::of).collect(),
            not_compared,
            assumed,
            errors: Vec::new(),
            more_errors: 0,
            warnings: Warnings::of(warnings),
        }
    }

    fn rejected(generation: u64, error: &LoadError) -> Self {
        let (errors, more_errors) = finding::members(&history::errors_of(error, MAX_ERRORS));
        Self {
            applies_nothing: true,
            result: DryRunResult::Rejected,
            generation,
            changes: Vec::new(),
            more_changes: 0,
            restart: &[],
            by_upgrade: false,
            buckets: Vec::new(),
            not_compared: &[],
            assumed: &[],
            errors,
            more_errors,
            warnings: Warnings::of(&history::warnings_of(error, MAX_ERRORS)),
        }
    }
}

impl<'a> ChangedBuckets<'a> {
    fn of(change: &'a bucket_changes::BucketChange) -> Self {
        let bucket_changes::BucketChange { rule, effect, clients, why } = change;
        let effect = match effect {
            Effect::KeepFraction => BucketEffect::KeepFraction,
            Effect::KeepUsed => BucketEffect::KeepUsed,
            Effect::KeepHeld => BucketEffect::KeepHeld,
            Effect::StartFull => BucketEffect::StartFull,
            Effect::Expire => BucketEffect::Expire,
        };
        Self { rule, effect, clients: clients.to_string(), why }
    }
}
