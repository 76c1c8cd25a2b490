//! `GET /api/audit`: which clients were refused by which rules, and when; and what callers of the
//! admin API have changed.

mod all;

use http::StatusCode;

use super::answer::Answer;
use super::query::{BadQuery, Query, TimeRange};
use crate::api::audit::Refusals;
use crate::base::clock;
use crate::base::text::cut;
use crate::base::time::{self, UtcTime};
use crate::config::suggest;
use crate::observe::address::ShownAddress;
use crate::observe::audit::{self, Audit, ChangeQuery, ChangeView, Kind};
use crate::policy::Policy;
use crate::runtime::Snapshot;
use crate::store::limiter::Limiter;
use crate::store::redis::link::history::Searcher;
use all::FromAll;

/// Default of the parameter `limit`.
const DEFAULT_LIMIT: usize = 100;

/// Maximum of the parameter `limit`.
const MAX_LIMIT: usize = 1_000;

const NAMES: [&str; 12] =
    ["kind", "key", "tenant", "ip", "rule", "by", "since", "until", "at", "zone", "limit", "all"];

/// The name of changes as a kind.
const CHANGE: &str = "change";

/// Their names elsewhere.
const SYNONYMS: [(&str, &str); 3] = [("from", "since"), ("to", "until"), ("key_id", "key")];

/// What a caller may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Visible<'a> {
    /// Whether it sees no more than changes of stored clients and their API keys.
    pub(super) is_of_keys: bool,
    /// The tenant that it is limited to.
    pub(super) tenant: Option<&'a str>,
}

impl Visible<'_> {
    const fn is_all(self) -> bool {
        !self.is_of_keys && self.tenant.is_none()
    }

    /// The changes, and the number of dropped refusals, as far as the caller may see them: a tenant
    /// sees neither addresses of operators nor how much is refused to others.
    fn of(self, changes: Vec<ChangeView>, dropped: u64) -> (Vec<ChangeView>, u64) {
        if self.tenant.is_none() {
            return (changes, dropped);
        }
        let without_peer = |change| ChangeView { peer: None, ..change };
        (changes.into_iter().map(without_peer).collect(), 0)
    }

    fn searcher(self) -> Searcher {
        if self.tenant.is_some() { Searcher::Tenant } else { Searcher::Operator }
    }
}

/// The refusal runs that match the query, and the changes.
pub(super) async fn show(
    snapshot: &Snapshot,
    audit: &Audit,
    limiter: &Limiter,
    query: Option<&str>,
    visible: Visible<'_>,
) -> Result<Answer, Box<Answer>> {
    let query = Query::read_with(query, &NAMES, &[], &SYNONYMS)?;
    let limit = read_limit(query.get("limit"))?;
    let policy = &snapshot.policy;
    let ip = query.get("ip").map(|text| ShownAddress::parse(text, policy)).transpose();
    let now = clock::unix_us();
    let TimeRange { since, until, zone } = read_range(&query, now)?;
    let tenant = wanted_tenant(query.get("tenant"), visible.tenant)?;
    let selected = Selected { by: query.get("by"), tenant, visible };
    let Kinds { refusals, changes: has_changes } = selected.kinds(query.get("kind"))?;
    let wanted = audit::Query {
        kinds: refusals,
        key: query.get("key").map(str::to_owned),
        tenant: tenant.map(str::to_owned),
        ip: ip.map_err(|error| bad(error.to_string()))?,
        rule: query.get("rule").map(str::to_owned),
        since,
        until,
        limit,
    };
    // Nor does it name clients that the caller may not see.
    let unknown = unknown_name(policy, audit, &wanted).filter(|_| visible.is_all());
    let history = read_all(query.get("all"))?.then(|| all::history(policy, limiter)).transpose()?;
    if let (Some(detail), None) = (&unknown, &history) {
        return Err(bad(detail.clone()));
    }
    let gateway = limiter.redis().map(|nodes| nodes.gateway());
    let searcher = visible.searcher();
    let mut own = audit.find(&wanted);
    own.runs.iter_mut().for_each(|run| run.gateway.clone_from(&gateway));
    let (dropped, kept_since) = (own.dropped, own.kept_since);
    let has_changes = has_changes && wanted.ip.is_none() && wanted.rule.is_none();
    let wanted_changes = selected.of(&wanted);
    let mut changes =
        FoundChanges::of(audit, &wanted_changes, limit, gateway.as_deref(), has_changes);
    let FromAll { runs, more, mut incomplete } = match &history {
        None => FromAll { runs: own.runs, more: own.more, incomplete: None },
        Some(history) => all::merged(history, searcher, &wanted, gateway.as_deref(), own).await,
    };
    if let (Some(history), true) = (&history, changes.are_wanted) {
        let missing = all::add_changes(
            history,
            searcher,
            &wanted,
            &wanted_changes,
            gateway.as_deref(),
            &mut changes,
        )
        .await;
        incomplete = incomplete.or(missing);
    }
    let FoundChanges { list: changes, more: more_changes, kept_since_us, .. } = changes;
    let (changes, dropped) = visible.of(changes, dropped);
    if let (Some(detail), true) = (unknown, runs.is_empty() && changes.is_empty()) {
        return Err(bad(detail));
    }
    Ok(Answer::json(&Refusals {
        refusal_runs: runs,
        more,
        changes,
        more_changes,
        changes_kept_since: UtcTime(kept_since_us),
        dropped,
        kept_since,
        time_zone: time::zone_name(&zone, now),
        since: since.map(UtcTime),
        until: until.map(UtcTime),
        gateway,
        incomplete,
    }))
}

/// Reads the parameter `all`.
fn read_all(text: Option<&str>) -> Result<bool, Box<Answer>> {
    match text {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(bad("`all` must be `true` or `false`".to_owned())),
    }
}

/// The tenant that the query asks for, or that the caller is limited to.
///
/// # Errors
/// These are two.
pub(super) fn wanted_tenant<'a>(
    asked: Option<&'a str>,
    own: Option<&'a str>,
) -> Result<Option<&'a str>, Box<Answer>> {
    match (asked, own) {
        (Some(asked), Some(own)) if asked != own => {
            let detail = format!("the token is for tenant `{}` only", cut(own, 64));
            Err(Answer::refusal(StatusCode::FORBIDDEN, &detail))
        }
        (asked, own) => Ok(own.or(asked)),
    }
}

/// Reads the parameters `since` and `until`, or `at`. `now` is in microseconds of Unix time.
fn read_range(query: &Query, now: u64) -> Result<TimeRange, Box<Answer>> {
    let range = query.time_range(["since", "until"], now)?;
    let minute = query.minute("at", now)?;
    if minute.is_some() && (range.since.is_some() || range.until.is_some()) {
        return Err(bad("`at` is a minute; give it or `since` and `until`".to_owned()));
    }
    Ok(minute.unwrap_or(range))
}

/// Reads the parameter `limit`.
fn read_limit(text: Option<&str>) -> Result<usize, Box<Answer>> {
    let limit = text.map_or(Ok(DEFAULT_LIMIT), str::parse);
    let limit = limit.ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
    limit.ok_or_else(|| bad(format!("`limit` must be a number from 1 to {MAX_LIMIT}")))
}

/// What to list.
struct Kinds {
    /// Refusals of these kinds; `None`: of all.
    refusals: Option<Vec<Kind>>,
    /// Whether changes are listed.
    changes: bool,
}

impl Kinds {
    /// Parses a list of kinds, separated by commas.
    fn read(text: Option<&str>) -> Result<Self, Box<Answer>> {
        let Some(text) = text else { return Ok(Self { refusals: None, changes: true }) };
        let mut kinds = Self { refusals: Some(Vec::new()), changes: false };
        for name in text.split(',').map(str::trim) {
            match (Kind::parse(name), &mut kinds.refusals) {
                (Some(kind), Some(refusals)) => refusals.push(kind),
                _ if name == CHANGE => kinds.changes = true,
                _ => {
                    let mut names = Kind::ALL.map(Kind::name).to_vec();
                    names.push(CHANGE);
                    let help = suggest::help(name, &names);
                    return Err(bad(format!("there is no kind `{}`: {help}", cut(name, 64))));
                }
            }
        }
        Ok(kinds)
    }
}

/// Which changes are selected, beside what refusals are selected by.
#[derive(Debug, Clone, Copy)]
struct Selected<'a> {
    /// Only those by this caller.
    by: Option<&'a str>,
    /// Only those about this tenant.
    tenant: Option<&'a str>,
    /// Only those that the caller may see.
    visible: Visible<'a>,
}

impl Selected<'_> {
    /// The kinds that a query lists: of changes by one caller, or of keys, no refusals.
    fn kinds(&self, text: Option<&str>) -> Result<Kinds, Box<Answer>> {
        let kinds = Kinds::read(text)?;
        let has_refusals = self.by.is_none() && !self.visible.is_of_keys;
        Ok(if has_refusals { kinds } else { Kinds { refusals: Some(Vec::new()), ..kinds } })
    }

    /// The changes that a query asks for.
    fn of<'a>(&'a self, query: &'a audit::Query) -> ChangeQuery<'a> {
        ChangeQuery {
            client: query.key.as_deref(),
            tenant: self.tenant,
            // The others name clients of other tenants, too.
            is_of_one_tenant: self.visible.tenant.is_some(),
            since: query.since,
            until: query.until,
            by: self.by,
            of_keys: self.visible.is_of_keys,
        }
    }
}

/// Changes that match a query.
struct FoundChanges {
    are_wanted: bool,
    list: Vec<ChangeView>,
    /// Number of matching changes beyond the query's limit.
    more: usize,
    kept_since_us: u64,
}

impl FoundChanges {
    /// The changes of this `gateway`; none unless they are wanted.
    fn of(
        audit: &Audit,
        wanted: &ChangeQuery<'_>,
        limit: usize,
        gateway: Option<&str>,
        are_wanted: bool,
    ) -> Self {
        let (mut list, mut more, kept_since_us) = audit.find_changes(wanted, limit);
        if !are_wanted {
            list.clear();
            more = 0;
        }
        for change in &mut list {
            change.gateway = gateway.map(str::to_owned);
        }
        Self { are_wanted, list, more, kept_since_us }
    }
}

/// Says that the key or the rule of the query is neither in the present file nor in the audit; else
/// the response to a misspelt name would look like that to a name without refusals. Refusals of
/// other gateways may have it: another file, or an earlier one.
fn unknown_name(policy: &Policy, audit: &Audit, query: &audit::Query) -> Option<String> {
    let every = audit::Query::default;
    let unknown = |kind: &str, name: &str, names: &[&str], wanted: audit::Query| {
        if names.contains(&name) || audit.find(&wanted).more > 0 {
            return None;
        }
        let help = suggest::help(name, names);
        Some(format!("the file has no {kind} `{}`: {help}", cut(name, 64)))
    };
    // The key store may have it.
    let key = query.key.as_ref().filter(|_| policy.key_store.is_none());
    let key = key.and_then(|key| {
        let names: Vec<_> = policy.keys.all().iter().map(|key| &*key.id).collect();
        unknown("key", key, &names, audit::Query { key: Some(key.clone()), ..every() })
    });
    key.or_else(|| {
        let rule = query.rule.as_ref()?;
        let names: Vec<_> = policy.rules.iter().map(|rule| &*rule.name).collect();
        unknown("rule", rule, &names, audit::Query { rule: Some(rule.clone()), ..every() })
    })
}

fn bad(detail: String) -> Box<Answer> {
    BadQuery(detail).into()
}
