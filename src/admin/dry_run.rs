//! `POST /api/reload?dry_run=true`: what a reload would change, and what needs a restart.

use http::StatusCode;

use super::answer::Answer as Sent;
use super::query::Query;
use super::reload::MAX_ERRORS;
use crate::api::reloads::{ChangedBuckets, ChangedSetting, DryRun, DryRunResult, Warnings};
use crate::config::findings::Findings;
use crate::load::LoadError;
use crate::policy::bucket_changes::BucketChange;
use crate::reload::dry_run::{self, Plan};
use crate::reload::{Reloader, history};

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

impl DryRun {
    fn of(generation: u64, plan: &Plan) -> Self {
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
            restart: restart.clone(),
            by_upgrade: *by_upgrade,
            buckets: buckets.iter().map(ChangedBuckets::of).collect(),
            not_compared: not_compared.clone(),
            assumed: assumed.clone(),
            errors: Vec::new(),
            more_errors: 0,
            warnings: Warnings::of(warnings),
        }
    }

    fn rejected(generation: u64, error: &LoadError) -> Self {
        let Findings { list: errors, not_kept: more_errors } =
            history::errors_of(error, MAX_ERRORS);
        Self {
            applies_nothing: true,
            result: DryRunResult::Rejected,
            generation,
            errors,
            more_errors,
            warnings: Warnings::of(&history::warnings_of(error, MAX_ERRORS)),
            ..Self::default()
        }
    }
}

impl ChangedBuckets {
    fn of(change: &BucketChange) -> Self {
        let BucketChange { rule, effect, clients, why } = change;
        let (rule, clients) = (rule.clone(), clients.to_string());
        Self { rule, effect: *effect, clients, why: (*why).into() }
    }
}
