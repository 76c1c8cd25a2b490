//! Refusal runs and changes of all gateways, from the streams in Redis.

use std::cmp::Reverse;
use std::ops::ControlFlow;
use std::sync::Arc;

use http::StatusCode;

use super::FoundChanges;
use crate::admin::answer::Answer;
use crate::observe::audit::{
    CHANGES_STREAM, ChangeQuery, ChangeView, Kind, Matches, Query, RefusalRunView,
};
use crate::policy::Policy;
use crate::store::limiter::Limiter;
use crate::store::redis::link::history::{History, HistoryError, Range, Record, Searcher};

/// How much later than its last refusal the record of a run can be written: a run is at most a
/// minute old, and records wait while Redis is unavailable.
const MAX_DELAY_MS: u64 = 3_600_000;

/// How far the clock of Redis can be behind that of a gateway.
const MAX_SKEW_MS: u64 = 60_000;

/// The runs of all gateways.
pub(super) struct FromAll {
    pub(super) runs: Vec<RefusalRunView>,
    /// Number of matching runs beyond the query's limit, at least.
    pub(super) more: usize,
    /// Why runs may be missing; `None` if none is.
    pub(super) incomplete: Option<String>,
}

/// The streams that the gateways write.
///
/// # Errors
/// The response, if the file has no stream.
pub(super) fn history(policy: &Policy, limiter: &Limiter) -> Result<Arc<History>, Box<Answer>> {
    let missing = |what: &str| {
        let detail = format!(
            "the refusals of all gateways are in a stream in Redis, and {what}; without `all`, the \
             response has those of this gateway"
        );
        Answer::refusal(StatusCode::CONFLICT, &detail)
    };
    let Some(history) = limiter.redis().map(|nodes| nodes.history()) else {
        return Err(missing("the file has no [redis]: add it, and `stream = true` under [audit]"));
    };
    if policy.audit.stream.is_none() {
        return Err(missing("none is written: set `stream = true` under [audit]"));
    }
    Ok(history)
}

/// When the records of a query were written, by the clock of Redis, in milliseconds.
fn range_of(query: &Query) -> (u64, u64) {
    let from_ms = query.since.map_or(0, |us| (us / 1_000).saturating_sub(MAX_SKEW_MS));
    let to_ms = query.until.map_or(u64::MAX, |us| (us / 1_000).saturating_add(MAX_DELAY_MS));
    (from_ms, to_ms)
}

/// Why a search has not all records.
fn incomplete(read: Result<bool, HistoryError>) -> Option<String> {
    match read {
        Ok(true) => None,
        Ok(false) => Some(
            "the stream has more records than one search reads: give `since` and `until`"
                .to_owned(),
        ),
        Err(error) => Some(format!("{error}; only refusals of this gateway are complete")),
    }
}

/// Adds the changes by calls of the other gateways, and returns why some may be missing.
pub(super) async fn add_changes(
    history: &History,
    searcher: Searcher,
    query: &Query,
    wanted: &ChangeQuery<'_>,
    gateway: Option<&str>,
    changes: &mut FoundChanges,
) -> Option<String> {
    let (from_ms, to_ms) = range_of(query);
    let kept_since_us = changes.kept_since_us;
    let mut found = Vec::new();
    let visit = |Record { fields, .. }: Record| {
        let change = ChangeView::stored(&fields).filter(|change| change.matches(wanted));
        // A later one of this gateway is in its memory.
        let is_own = |it: &ChangeView| it.gateway.as_deref() == gateway && it.at.0 > kept_since_us;
        found.extend(change.filter(|change| !is_own(change)));
        if found.len() > query.limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let read =
        history.read(Range { searcher, streams: &[CHANGES_STREAM], from_ms, to_ms }, visit).await;
    changes.list.append(&mut found);
    changes.list.sort_by_key(|change| Reverse(change.at.0));
    changes.more += changes.list.len().saturating_sub(query.limit);
    changes.list.truncate(query.limit);
    incomplete(read)
}

/// Adds the runs of the other gateways to `own`, which are those of this `gateway` that match the
/// query.
pub(super) async fn merged(
    history: &History,
    searcher: Searcher,
    query: &Query,
    gateway: Option<&str>,
    own: Matches,
) -> FromAll {
    let wanted = |kind: &Kind| query.kinds.as_ref().is_none_or(|kinds| kinds.contains(kind));
    let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(wanted).collect();
    let streams: Vec<&str> = kinds.iter().map(|kind| kind.stream()).collect();
    let (from_ms, to_ms) = range_of(query);
    let mut found: Vec<Vec<RefusalRunView>> = vec![Vec::new(); kinds.len()];
    // A later run of this gateway is in its memory: `own` has it, or counts it in `more`.
    let is_own = |run: &RefusalRunView| {
        let is_kept = run.gateway.as_deref() == gateway && run.last.0 > own.kept_since.0;
        is_kept || own.runs.iter().any(|own| own.is_same_run(run))
    };
    let visit = |Record { stream, fields }: Record| {
        let kind = kinds.get(stream).copied();
        let run = kind.and_then(|kind| RefusalRunView::stored(kind, &fields));
        let run = run.filter(|run| run.matches(query));
        let (Some(run), Some(found)) = (run, found.get_mut(stream)) else {
            return ControlFlow::Continue(());
        };
        if !is_own(&run) {
            found.push(run);
        }
        if found.len() > query.limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let read = history.read(Range { searcher, streams: &streams, from_ms, to_ms }, visit).await;
    let incomplete = incomplete(read);
    let mut runs = own.runs;
    runs.extend(found.into_iter().flatten());
    runs.sort_by_key(|run| Reverse(run.last.0));
    let beyond = runs.len().saturating_sub(query.limit);
    runs.truncate(query.limit);
    FromAll { runs, more: own.more + beyond, incomplete }
}
