//! Refusal runs: how refusals form runs, which runs are kept, and how they are searched. Pure: time
//! is a number. Every collection is bounded.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use serde::Serialize;

use crate::limit::MICROS_PER_SECOND;
use crate::observe::address::ShownAddress;
use crate::observe::time::UtcTime;

/// How many runs are kept, and when a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Maximum number of open runs, at least 1. Beyond it, the runs whose last refusal is oldest end
    /// early.
    pub(super) open: usize,
    /// Maximum number of ended runs that can still be found.
    pub(super) ended: usize,
    /// Maximum number of ended runs that wait to be reported.
    pub(super) pending: usize,
    /// A run ends after this time without a refusal, in microseconds.
    pub(super) quiet_us: u64,
    /// A run ends at this age in any case, in microseconds, so that a long one is reported while it
    /// continues.
    pub(super) max_age_us: u64,
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

/// A refused request, as it is added to a run.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    pub(super) client: ClientId,
    /// Name of the rule that refused the request.
    pub(super) rule: Arc<str>,
    /// Name of the client's plan.
    pub(super) plan: Arc<str>,
    /// Whole tokens left under the rule; `None` if no bucket was read.
    pub(super) tokens: Option<u64>,
}

/// One point in time by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    /// Microseconds of the monotonic clock, which measures runs.
    pub(super) monotonic_us: u64,
    /// Microseconds since 1970, which is shown.
    pub(super) unix_us: u64,
}

/// Consecutive refusals of one client by one rule.
#[derive(Clone, Debug)]
pub(super) struct RefusalRun {
    first: Times,
    last: Times,
    count: u64,
    client: ClientId,
    ip: Option<ShownAddress>,
    rule: Arc<str>,
    plan: Arc<str>,
    tokens: Option<u64>,
}

/// The refusal runs that are kept in memory: open, ended and not yet reported.
pub(super) struct RefusalRuns {
    bounds: Bounds,
    open: HashMap<(ClientId, Arc<str>), RefusalRun>,
    /// In the order in which they ended.
    ended: VecDeque<RefusalRun>,
    /// Ended, and not yet returned by [`take_pending`](Self::take_pending).
    pending: Vec<RefusalRun>,
    /// Runs that ended since then beyond `bounds.pending`.
    more_pending: u64,
    /// Number of refusals in runs that were dropped because of `bounds.ended`.
    dropped: u64,
}

/// A refusal run as logs and the admin API show it. It contains no secret: keys are shown by their
/// id, and addresses as `access_log.client_ip` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "RefusalRun"))]
pub struct RefusalRunView {
    /// Time of the first refusal, in UTC.
    #[cfg_attr(test, schemars(with = "String"))]
    pub first: UtcTime,
    /// Time of the last refusal, in UTC.
    #[cfg_attr(test, schemars(with = "String"))]
    pub last: UtcTime,
    /// Number of refusals in the run.
    pub count: u64,
    /// The id of the client's key; null for a client without a known key.
    pub key: Option<String>,
    /// The client's address at the first refusal.
    pub ip: Option<String>,
    /// Name of the rule.
    pub rule: String,
    /// Name of the client's plan.
    pub plan: String,
    /// Whole tokens left under the rule at the last refusal; null if no bucket was read.
    pub tokens: Option<u64>,
    /// Whether the run continues.
    #[serde(rename = "open")]
    pub is_open: bool,
}

/// Which runs to return. A field that is `None` does not restrict them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Only runs of the key with this id.
    pub key: Option<String>,
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
}

/// The part of a search that needs the lock. Sorting and formatting follow without it.
pub(super) struct Selection {
    /// Copies of the runs, each with whether it is open.
    runs: Vec<(RefusalRun, bool)>,
    more: usize,
    dropped: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            open: 4_096,
            ended: 10_000,
            pending: 50,
            quiet_us: 10 * MICROS_PER_SECOND,
            max_age_us: 60 * MICROS_PER_SECOND,
        }
    }
}

impl RefusalRun {
    pub(super) fn view(&self, is_open: bool) -> RefusalRunView {
        let key = match &self.client {
            ClientId::Key(key) => Some(key.to_string()),
            ClientId::Address(_) | ClientId::Unknown => None,
        };
        RefusalRunView {
            first: UtcTime(self.first.unix_us),
            last: UtcTime(self.last.unix_us),
            count: self.count,
            key,
            ip: self.ip.map(|ip| ip.to_string()),
            rule: self.rule.to_string(),
            plan: self.plan.to_string(),
            tokens: self.tokens,
            is_open,
        }
    }

    fn is_over(&self, bounds: &Bounds, now: u64) -> bool {
        now.saturating_sub(self.last.monotonic_us) >= bounds.quiet_us
            || now.saturating_sub(self.first.monotonic_us) >= bounds.max_age_us
    }

    fn matches(&self, query: &Query) -> bool {
        let is_key = |key: &String| matches!(&self.client, ClientId::Key(own) if **own == **key);
        query.key.as_ref().is_none_or(is_key)
            && query.ip.is_none_or(|ip| self.ip == Some(ip))
            && query.rule.as_ref().is_none_or(|rule| *self.rule == **rule)
            && query.since.is_none_or(|since| self.last.unix_us >= since)
            && query.until.is_none_or(|until| self.first.unix_us <= until)
    }
}

impl RefusalRunView {
    /// Names and values for the stream in Redis; fields without a value are left out.
    pub(super) fn fields(&self) -> Vec<(&'static str, String)> {
        let Self { first, last, count, key, ip, rule, plan, tokens, is_open: _ } = self;
        let mut fields = vec![
            ("first", first.to_string()),
            ("last", last.to_string()),
            ("count", count.to_string()),
            ("rule", rule.clone()),
            ("plan", plan.clone()),
        ];
        let tokens = tokens.map(|tokens| tokens.to_string());
        let optional = [("key", key.clone()), ("ip", ip.clone()), ("tokens", tokens)];
        fields.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
        fields
    }
}

impl RefusalRuns {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            open: HashMap::new(),
            ended: VecDeque::new(),
            pending: Vec::new(),
            more_pending: 0,
            dropped: 0,
        }
    }

    /// Adds a refusal to the open run of its client and rule, or starts a run. `shown` returns the
    /// client's address; it is called only if a run starts.
    pub(super) fn add(
        &mut self,
        refused: Refused,
        at: Times,
        shown: impl FnOnce() -> Option<ShownAddress>,
    ) {
        let Refused { client, rule, plan, tokens } = refused;
        let id = (client, rule);
        if let Some(run) = self.open.get_mut(&id) {
            if !run.is_over(&self.bounds, at.monotonic_us) {
                run.count += 1;
                (run.last, run.tokens) = (at, tokens);
                return;
            }
            self.end(&id);
        }
        if self.open.len() >= self.bounds.open {
            self.end_quietest();
        }
        let (client, rule) = id.clone();
        let run =
            RefusalRun { first: at, last: at, count: 1, client, ip: shown(), rule, plan, tokens };
        self.open.insert(id, run);
    }

    /// Ends every run that is over at `now`, in microseconds of the monotonic clock.
    pub(super) fn end_expired(&mut self, now: u64) {
        let bounds = self.bounds;
        self.end_where(|run| run.is_over(&bounds, now));
    }

    pub(super) fn end_all(&mut self) {
        self.end_where(|_| true);
    }

    /// Runs that ended since the last call, at most `bounds.pending`, and how many ended beyond
    /// those.
    pub(super) fn take_pending(&mut self) -> (Vec<RefusalRun>, u64) {
        (std::mem::take(&mut self.pending), std::mem::take(&mut self.more_pending))
    }

    /// Copies the latest runs that match. Refusals wait for the lock meanwhile, so nothing is sorted
    /// here.
    pub(super) fn select(&self, query: &Query) -> Selection {
        let open = self.open.values().map(|run| (run, true));
        let ended = self.ended.iter().map(|run| (run, false));
        let mut all: Vec<_> = open.chain(ended).filter(|(run, _)| run.matches(query)).collect();
        let more = all.len().saturating_sub(query.limit);
        if more > 0 {
            all.select_nth_unstable_by_key(query.limit, |(run, _)| Reverse(run.last.unix_us));
            all.truncate(query.limit);
        }
        let runs = all.into_iter().map(|(run, is_open)| (run.clone(), is_open)).collect();
        Selection { runs, more, dropped: self.dropped }
    }

    /// Ends the quarter of the open runs whose last refusals are oldest. Ending one run at a time
    /// would search all of them for each new client.
    fn end_quietest(&mut self) {
        let mut last: Vec<u64> = self.open.values().map(|run| run.last.monotonic_us).collect();
        let quarter = last.len() / 4;
        let (_, &mut quietest, _) = last.select_nth_unstable(quarter);
        self.end_where(|run| run.last.monotonic_us <= quietest);
    }

    fn end_where(&mut self, is_over: impl Fn(&RefusalRun) -> bool) {
        let over = self.open.iter().filter(|(_, run)| is_over(run));
        let mut ids: Vec<_> = over.map(|(id, run)| (run.last.monotonic_us, id.clone())).collect();
        ids.sort_by_key(|(last, _)| *last);
        for (_, id) in &ids {
            self.end(id);
        }
    }

    fn end(&mut self, id: &(ClientId, Arc<str>)) {
        let Some(run) = self.open.remove(id) else { return };
        if self.pending.len() < self.bounds.pending {
            self.pending.push(run.clone());
        } else {
            self.more_pending += 1;
        }
        self.ended.push_back(run);
        while self.ended.len() > self.bounds.ended {
            self.dropped += self.ended.pop_front().map_or(0, |run| run.count);
        }
    }
}

impl Selection {
    pub(super) fn into_matches(mut self) -> Matches {
        self.runs.sort_by_key(|(run, _)| Reverse(run.last.unix_us));
        let runs = self.runs.iter().map(|(run, is_open)| run.view(*is_open)).collect();
        Matches { runs, more: self.more, dropped: self.dropped }
    }
}
