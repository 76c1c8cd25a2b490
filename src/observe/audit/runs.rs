//! Refusal runs: how refusals form runs, which runs are kept, and how they are searched. Pure: time
//! is a number. Every collection is bounded, for each kind of refusal on its own.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use super::{Kind, RefusalRunView};
use crate::base::time::UtcTime;
use crate::client::principal::CredentialState;
use crate::decide::reason::Reason;
use crate::limit::cost::Cost;
use crate::observe::address::ShownAddress;
use crate::observe::run_span::{self, Times};
use crate::policy::WrittenLimit;

/// How many runs of one kind are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Maximum number of open runs, at least 1. Beyond it, the runs whose last refusal is oldest
    /// end early.
    pub(super) open: usize,
    /// Maximum number of ended runs that can still be found.
    pub(super) ended: usize,
    /// Maximum number of ended runs that wait to be reported.
    pub(super) pending: usize,
}

/// The client of a run, as limits distinguish clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum ClientId {
    /// The id of a known key.
    Key(Arc<str>),
    /// An address; IPv6 addresses are truncated to `clients.ipv6_prefix` bits.
    Address(IpAddr),
    /// A client on a Unix socket.
    Unknown,
}

/// What the refusals of one run have in common, besides their kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RunId {
    pub(super) client: ClientId,
    /// Id of the client's tenant.
    pub(super) tenant: Option<Arc<str>>,
    /// Name of the rule that refused the requests; `None` if no rule did.
    pub(super) rule: Option<Arc<str>>,
    /// Why the requests were refused; `None` if they were allowed.
    pub(super) reason: Option<Reason>,
    /// Where the key was that no client is known by, as an index into the sources of keys of the
    /// configuration.
    pub(super) key_from: Option<usize>,
    /// What is known about that key.
    pub(super) credential: CredentialState,
    /// Name of the known key, if it has one.
    pub(super) key_name: Option<Arc<str>>,
    /// Generation of the configuration.
    pub(super) generation: u64,
}

/// Refused requests, as they are added to a run.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    pub(super) id: RunId,
    pub(super) first: Times,
    pub(super) last: Times,
    /// Number of refusals, at least 1.
    pub(super) count: u64,
    /// Name of the route of the last one.
    pub(super) route: Option<Arc<str>>,
    /// Whether earlier ones were on other routes.
    pub(super) other_routes: bool,
    /// Cost of the last one.
    pub(super) cost: Option<Cost>,
    /// Whole tokens left under the rule; `None` if no bucket was read.
    pub(super) tokens: Option<u64>,
}

/// What is known of a run when it starts.
#[derive(Clone, Debug)]
pub(super) struct Start {
    pub(super) ip: Option<ShownAddress>,
    /// Name of the client's plan.
    pub(super) plan: Option<Arc<str>>,
    /// Where the key was that no client is known by, such as `header:x-api-key`.
    pub(super) key_from: Option<String>,
    /// Whether the configuration takes anything for an API key.
    pub(super) reads_keys: bool,
    /// Rate or limit as written, and burst if it has one, of the rule for the client.
    pub(super) limit: Option<(WrittenLimit, Option<u64>)>,
}

/// Consecutive refusals of one client by one rule.
#[derive(Clone, Debug)]
pub(super) struct RefusalRun {
    kind: Kind,
    start: Start,
    refused: Refused,
}

/// The refusal runs that are kept in memory.
pub(super) struct RefusalRuns {
    by_kind: [RunsOfKind; Kind::ALL.len()],
}

/// The runs of one kind: open, ended and not yet reported.
pub(super) struct RunsOfKind {
    kind: Kind,
    bounds: Bounds,
    open: HashMap<RunId, RefusalRun>,
    /// In the order in which they ended.
    ended: VecDeque<RefusalRun>,
    /// Ended, and not yet returned by [`take_pending`](Self::take_pending).
    pending: Vec<RefusalRun>,
    /// Runs that ended since then beyond `bounds.pending`.
    more_pending: u64,
    /// Number of refusals in runs that were dropped because of `bounds.ended`, or that are in no
    /// run.
    dropped: u64,
    /// Time of the last of them, in microseconds since 1970; 0 if there are none.
    dropped_until_us: u64,
}

/// Runs of one kind to report.
pub(super) struct Pending {
    pub(super) kind: Kind,
    pub(super) runs: Vec<RefusalRun>,
    /// Number of runs that ended beyond those.
    pub(super) more: u64,
}

/// Which runs to return. A field that is `None` does not restrict them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Only runs of these kinds.
    pub kinds: Option<Vec<Kind>>,
    /// Only runs of the key with this id.
    pub key: Option<String>,
    /// Only runs of clients of the tenant with this id.
    pub tenant: Option<String>,
    /// Only runs with this address.
    pub ip: Option<ShownAddress>,
    /// Only runs by the rule of this name.
    pub rule: Option<String>,
    /// Only runs whose last refusal was at this time or later, in microseconds since 1970.
    pub since: Option<u64>,
    /// Only runs whose first refusal was at this time or earlier, in microseconds since 1970.
    pub until: Option<u64>,
    /// Maximum number of runs; the latest are returned.
    pub limit: usize,
}

/// Result of a [`Query`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matches {
    /// The runs, the latest first.
    pub runs: Vec<RefusalRunView>,
    /// Number of matching runs beyond the query's limit, all of them earlier.
    pub more: usize,
    /// Number of refusals, of all clients, in runs that were dropped to bound the memory.
    pub dropped: u64,
    /// Time since which all runs are kept: the start of the audit, or the last of the dropped
    /// refusals.
    pub kept_since: UtcTime,
}

/// The part of a search that needs the lock. Sorting and formatting follow without it.
pub(super) struct Selection {
    /// Copies of the runs, each with whether it is open.
    runs: Vec<(RefusalRun, bool)>,
    more: usize,
    dropped: u64,
    dropped_until_us: u64,
}

impl Bounds {
    /// Bounds of a kind. Requests without a key and shadow rules can be as many as all requests.
    pub(super) const fn of(kind: Kind) -> Self {
        let (open, ended, pending) = match kind {
            Kind::Limit => (4_096, 10_000, 50),
            Kind::Unavailable | Kind::Unauthorized | Kind::Shadow => (1_024, 2_500, 10),
        };
        Self { open, ended, pending }
    }
}

impl Query {
    fn includes(&self, kind: Kind) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind))
    }
}

impl RefusalRun {
    pub(super) fn view(&self, is_open: bool) -> RefusalRunView {
        let Self { kind, start, refused } = self;
        let key = match &refused.id.client {
            ClientId::Key(key) => Some(key.to_string()),
            ClientId::Address(_) | ClientId::Unknown => None,
        };
        let key_state = match (&key, refused.id.key_from) {
            (Some(_), _) => Some("known"),
            (None, Some(_)) => Some(refused.id.credential.name()),
            (None, None) => start.reads_keys.then_some("missing"),
        };
        let text = |text: &Option<Arc<str>>| text.as_ref().map(ToString::to_string);
        RefusalRunView {
            first: UtcTime(refused.first.unix_us),
            last: UtcTime(refused.last.unix_us),
            count: refused.count,
            kind: *kind,
            status: kind.status(),
            reason: refused.id.reason.map(|reason| Cow::Borrowed(reason.label())),
            key,
            key_state: key_state.map(Cow::Borrowed),
            key_from: start.key_from.clone(),
            key_name: text(&refused.id.key_name),
            tenant: text(&refused.id.tenant),
            ip: start.ip.map(|ip| ip.to_string()),
            rule: text(&refused.id.rule),
            plan: text(&start.plan),
            rate: start.limit.map(|(written, _)| written.to_string()),
            rate_is: start.limit.map(|(written, _)| written.setting().to_owned()),
            burst: start.limit.and_then(|(_, burst)| burst),
            route: text(&refused.route),
            other_routes: refused.other_routes,
            cost: refused.cost,
            tokens: refused.tokens,
            generation: refused.id.generation,
            is_open,
            gateway: None,
        }
    }

    /// Adds later refusals. Refusals of several threads may overlap in time.
    fn add(&mut self, refused: Refused) {
        let own = &mut self.refused;
        own.count = own.count.saturating_add(refused.count);
        own.other_routes |= refused.other_routes || own.route != refused.route;
        if refused.first.monotonic_us < own.first.monotonic_us {
            own.first = refused.first;
        }
        if refused.last.monotonic_us >= own.last.monotonic_us {
            let Refused { last, route, cost, tokens, .. } = refused;
            (own.last, own.route, own.cost, own.tokens) = (last, route, cost, tokens);
        }
    }

    fn is_over(&self, now: u64) -> bool {
        run_span::is_over(self.refused.first, self.refused.last, now)
    }

    fn matches(&self, query: &Query) -> bool {
        let Refused { id, first, last, .. } = &self.refused;
        let is_key = |key: &String| matches!(&id.client, ClientId::Key(own) if **own == **key);
        query.key.as_ref().is_none_or(is_key)
            && (query.tenant.is_none() || id.tenant.as_deref() == query.tenant.as_deref())
            && query.ip.is_none_or(|ip| self.start.ip == Some(ip))
            && query.rule.as_ref().is_none_or(|rule| id.rule.as_deref() == Some(rule))
            && query.since.is_none_or(|since| last.unix_us >= since)
            && query.until.is_none_or(|until| first.unix_us <= until)
    }
}

impl Default for RefusalRuns {
    fn default() -> Self {
        Self { by_kind: Kind::ALL.map(|kind| RunsOfKind::new(kind, Bounds::of(kind))) }
    }
}

impl RefusalRuns {
    /// Adds refusals of a kind; see [`RunsOfKind::add`].
    pub(super) fn add(&mut self, kind: Kind, refused: Refused, start: impl FnOnce() -> Start) {
        if let Some(runs) = self.by_kind.get_mut(kind as usize) {
            runs.add(refused, start);
        }
    }

    /// Counts refusals of a kind that are in no run. `until` is at or after the last of them.
    pub(super) fn lose(&mut self, kind: Kind, count: u64, until: Times) {
        if let (Some(runs), 1..) = (self.by_kind.get_mut(kind as usize), count) {
            runs.dropped = runs.dropped.saturating_add(count);
            runs.dropped_until_us = runs.dropped_until_us.max(until.unix_us);
        }
    }

    /// Ends every run that is over at `now`, in microseconds of the monotonic clock.
    pub(super) fn end_expired(&mut self, now: u64) {
        self.by_kind.iter_mut().for_each(|runs| runs.end_expired(now));
    }

    pub(super) fn end_all(&mut self) {
        self.by_kind.iter_mut().for_each(RunsOfKind::end_all);
    }

    /// The runs of each kind that ended since the last call.
    pub(super) fn take_pending(&mut self) -> [Pending; Kind::ALL.len()] {
        self.by_kind.each_mut().map(|runs| {
            let (kind, (runs, more)) = (runs.kind, runs.take_pending());
            Pending { kind, runs, more }
        })
    }

    /// Copies the latest runs that match. Nothing is sorted here: the thread that reports runs
    /// waits for the lock.
    pub(super) fn select(&self, query: &Query) -> Selection {
        let kinds = || self.by_kind.iter().filter(|runs| query.includes(runs.kind));
        let mut all: Vec<_> = kinds().flat_map(|runs| runs.matching(query)).collect();
        let more = all.len().saturating_sub(query.limit);
        if more > 0 {
            let last = |(run, _): &(&RefusalRun, bool)| Reverse(run.refused.last.unix_us);
            all.select_nth_unstable_by_key(query.limit, last);
            all.truncate(query.limit);
        }
        Selection {
            runs: all.into_iter().map(|(run, is_open)| (run.clone(), is_open)).collect(),
            more,
            dropped: kinds().map(|runs| runs.dropped).sum(),
            dropped_until_us: kinds().map(|runs| runs.dropped_until_us).max().unwrap_or(0),
        }
    }
}

impl RunsOfKind {
    pub(super) fn new(kind: Kind, bounds: Bounds) -> Self {
        Self {
            kind,
            bounds,
            open: HashMap::new(),
            ended: VecDeque::new(),
            pending: Vec::new(),
            more_pending: 0,
            dropped: 0,
            dropped_until_us: 0,
        }
    }

    /// Adds refusals to the open run of their client, rule and generation, or starts a run. `start`
    /// is called only if a run starts.
    fn add(&mut self, refused: Refused, start: impl FnOnce() -> Start) {
        if let Some(run) = self.open.get_mut(&refused.id) {
            if !run.is_over(refused.first.monotonic_us) {
                run.add(refused);
                return;
            }
            self.end(&refused.id);
        }
        if self.open.len() >= self.bounds.open {
            self.end_quietest();
        }
        let id = refused.id.clone();
        self.open.insert(id, RefusalRun { kind: self.kind, start: start(), refused });
    }

    fn end_expired(&mut self, now: u64) {
        self.end_where(|run| run.is_over(now));
    }

    fn end_all(&mut self) {
        self.end_where(|_| true);
    }

    /// Runs that ended since the last call, at most `bounds.pending`, and how many ended beyond
    /// those.
    fn take_pending(&mut self) -> (Vec<RefusalRun>, u64) {
        (std::mem::take(&mut self.pending), std::mem::take(&mut self.more_pending))
    }

    /// The runs that match, each with whether it is open.
    fn matching(&self, query: &Query) -> impl Iterator<Item = (&RefusalRun, bool)> {
        let open = self.open.values().map(|run| (run, true));
        let ended = self.ended.iter().map(|run| (run, false));
        open.chain(ended).filter(|(run, _)| run.matches(query))
    }

    /// Ends the quarter of the open runs whose last refusals are oldest. Ending one run at a time
    /// would search all of them for each new client.
    fn end_quietest(&mut self) {
        let last = |run: &RefusalRun| run.refused.last.monotonic_us;
        let mut all: Vec<u64> = self.open.values().map(last).collect();
        let quarter = all.len() / 4;
        let (_, &mut quietest, _) = all.select_nth_unstable(quarter);
        self.end_where(|run| last(run) <= quietest);
    }

    fn end_where(&mut self, is_over: impl Fn(&RefusalRun) -> bool) {
        let over = self.open.iter().filter(|(_, run)| is_over(run));
        let mut ids: Vec<_> =
            over.map(|(id, run)| (run.refused.last.monotonic_us, id.clone())).collect();
        ids.sort_by_key(|(last, _)| *last);
        for (_, id) in &ids {
            self.end(id);
        }
    }

    fn end(&mut self, id: &RunId) {
        let Some(run) = self.open.remove(id) else { return };
        if self.pending.len() < self.bounds.pending {
            self.pending.push(run.clone());
        } else {
            self.more_pending += 1;
        }
        self.ended.push_back(run);
        while self.ended.len() > self.bounds.ended {
            let Some(Refused { count, last, .. }) =
                self.ended.pop_front().map(|dropped| dropped.refused)
            else {
                return;
            };
            self.dropped = self.dropped.saturating_add(count);
            self.dropped_until_us = self.dropped_until_us.max(last.unix_us);
        }
    }
}

impl Selection {
    /// `started_us` is when the audit started, in microseconds since 1970.
    pub(super) fn into_matches(mut self, started_us: u64) -> Matches {
        self.runs.sort_by_key(|(run, _)| Reverse(run.refused.last.unix_us));
        let runs = self.runs.iter().map(|(run, is_open)| run.view(*is_open)).collect();
        let kept_since = UtcTime(self.dropped_until_us.max(started_us));
        Matches { runs, more: self.more, dropped: self.dropped, kept_since }
    }
}
