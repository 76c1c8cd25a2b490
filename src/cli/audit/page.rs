//! Refusal runs as text for people: sentences that answer, then a table. Pure.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt::Write as _;

use jiff::tz::TimeZone;

use crate::api::audit::{ChangeView, RefusalKind, RefusalRunView, Refusals};
use crate::api::clients::{ClientBuckets, RuleBucket};
use crate::base::text::cut;
use crate::base::time::{UtcTime, zone};
use crate::cli::columns::aligned;
use crate::limit::cost::Cost;
use crate::net::percent::encode_component;
use crate::policy::Kind;

/// Columns of the table, besides `gateway`.
const HEADINGS: [&str; 11] = [
    "first",
    "last",
    "kind",
    "status",
    "rule",
    "client",
    "route",
    "cost",
    "tokens",
    "generation",
    "count",
];

/// Columns of the table of changes.
const CHANGE_HEADINGS: [&str; 5] = ["at", "by", "client", "status", "what"];

/// Maximum length of what was changed, and of the reason why the page is incomplete, in characters.
const MAX_REASON: usize = 300;

/// Maximum number of sentences.
const MAX_SENTENCES: usize = 8;

/// What was searched for, as the arguments say.
#[derive(Debug, Default)]
pub(super) struct Search {
    pub(super) key: Option<String>,
    pub(super) tenant: Option<String>,
    pub(super) ip: Option<String>,
    pub(super) rule: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) all_gateways: bool,
}

impl RuleBucket {
    /// Milliseconds until the bucket holds `cost` tokens; 0 if it does. An upper bound for a
    /// sliding window.
    fn wait_ms(&self, cost: Cost) -> Option<u64> {
        let burst = self.burst?;
        if !matches!(self.kind, Kind::TokenBucket | Kind::LeakyBucket) {
            let has_enough = u64::try_from(self.tokens?).is_ok_and(|tokens| !cost.exceeds(tokens));
            let of_one = self.next_after_ms.filter(|_| cost == Cost::ONE);
            // A fixed window is full again at once; a unit of requests in flight is free.
            return if has_enough { Some(0) } else { of_one.or(self.full_after_ms) };
        }
        let full = u128::from(burst) * 1_000;
        let beyond = full.checked_sub(cost.thousandths().into())? * u128::from(self.window_ms?);
        let beyond_ms = beyond.checked_div(full)?;
        Some(self.full_after_ms?.saturating_sub(u64::try_from(beyond_ms).unwrap_or(u64::MAX)))
    }
}

/// Everything that is shown.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) search: Search,
    pub(super) refusals: Refusals,
    /// The present buckets of clients, by the path of the client.
    pub(super) buckets: Vec<(String, ClientBuckets)>,
}

/// Runs with the same client, rule, limit and reason.
struct Group<'a> {
    run: &'a RefusalRunView,
    count: u64,
    first: UtcTime,
    last: UtcTime,
    is_open: bool,
}

impl Refusals {
    /// Paths of the clients that a limit refused, the latest first.
    pub(super) fn limited_clients(&self) -> Vec<String> {
        let mut paths: Vec<String> = Vec::new();
        let limited = self.refusal_runs.iter().filter(|run| run.kind == RefusalKind::Limit);
        for path in limited.filter_map(RefusalRunView::path) {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        paths
    }
}

impl RefusalRunView {
    /// Path of the client in the admin API; `None` if its address is hashed or unknown.
    fn path(&self) -> Option<String> {
        match (&self.key, &self.ip) {
            (Some(key), _) => Some(format!("/api/clients/key/{}", encode_component(key))),
            (None, Some(ip)) if !ip.starts_with("h:") => {
                Some(format!("/api/clients/ip/{}", encode_component(ip)))
            }
            (None, _) => None,
        }
    }

    fn client(&self) -> String {
        match (&self.key, &self.ip) {
            (Some(key), _) => match &self.key_name {
                Some(name) => format!("key {key} ({name})"),
                None => format!("key {key}"),
            },
            (None, Some(ip)) => format!("address {ip}"),
            (None, None) => "an unknown address".to_owned(),
        }
    }

    /// The key of requests that a limit refused, in words; empty if it is known, or if that is not
    /// known.
    fn key_words(&self) -> String {
        match (self.key_state.as_deref(), &self.key_from) {
            (Some("missing"), _) => " without a key".to_owned(),
            (Some("unknown"), Some(from)) => format!(" with an unknown key in {from}"),
            (Some("refused"), Some(from)) => format!(" with a refused key or token in {from}"),
            (Some("unverified"), Some(from)) => {
                format!(" with an unverified key or token in {from}")
            }
            _ => String::new(),
        }
    }

    /// The limit in words; empty if no rule limits.
    fn limit(&self) -> String {
        let rate = self.rate.clone();
        let burst = self.burst.map(|burst| format!("burst {burst}"));
        let plan = self.plan.as_ref().map(|plan| format!("plan {plan}"));
        rate.into_iter().chain(burst).chain(plan).collect::<Vec<_>>().join(", ")
    }
}

impl Page {
    /// The page, which ends with a line break.
    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        match (&self.refusals.refusal_runs[..], &self.refusals.changes[..]) {
            ([], []) => self.nothing(&mut text),
            ([], _) => {}
            _ => {
                self.sentences(&mut text);
                self.table(&mut text);
            }
        }
        if !self.refusals.changes.is_empty() {
            self.changes(&mut text);
        }
        if let Some(why) = &self.refusals.incomplete {
            let _ = writeln!(text, "\nIncomplete: {}.", cut(why, MAX_REASON));
        }
        text
    }

    fn sentences(&self, text: &mut String) {
        let groups = groups(&self.refusals.refusal_runs);
        for group in groups.iter().take(MAX_SENTENCES) {
            let _ = writeln!(text, "{}", self.sentence(group));
        }
        if groups.len() > MAX_SENTENCES {
            let _ = writeln!(text, "… and {} more, in the table.", groups.len() - MAX_SENTENCES);
        }
    }

    fn sentence(&self, group: &Group<'_>) -> String {
        let Group { run, count, first, last, is_open } = *group;
        let requests = if count == 1 { "request" } else { "requests" };
        // A 401 says so at its end.
        let key =
            if run.kind == RefusalKind::Unauthorized { String::new() } else { run.key_words() };
        let what = format!("{count} {requests} of {}{key}", run.client());
        let (from, to) = (self.time(first), self.after(first, last));
        let mut when = if self.time(last) == from {
            format!("at {from}")
        } else {
            format!("from {from} to {to}")
        };
        if is_open {
            when += " (still going on)";
        }
        let rule = run.rule.as_deref().unwrap_or("The gateway");
        let limit = match run.limit() {
            limit if limit.is_empty() => String::new(),
            limit => format!(" ({limit})"),
        };
        match run.kind {
            RefusalKind::Unauthorized => {
                let why = match (run.reason.as_deref(), &run.key_from) {
                    (Some("unknown_key"), Some(from)) => {
                        format!("the API key in {from} is unknown")
                    }
                    (Some("missing_key"), _) => "they have no API key".to_owned(),
                    (Some("expired_key"), _) => "the API key has expired".to_owned(),
                    (Some("early_key"), _) => "the API key is not valid yet".to_owned(),
                    (Some("disabled_key"), _) => "the client is disabled".to_owned(),
                    (reason, _) => reason.unwrap_or("no valid API key").to_owned(),
                };
                format!("{rule} refused {what} {when}, with 401: {why}.")
            }
            RefusalKind::Unavailable if run.reason.as_deref() == Some("key_store_unavailable") => {
                format!("{rule} refused {what} {when}, with 503: the key store did not answer.")
            }
            RefusalKind::Unavailable => format!(
                "{rule}{limit} refused {what} {when}, with 503: Redis was unavailable, and the rule has \
                 on_failure = \"deny\"."
            ),
            RefusalKind::Shadow => {
                format!("{rule}{limit}, in shadow mode, would have refused {what} {when}.")
            }
            RefusalKind::Limit => {
                format!("{rule}{limit} refused {what} {when}, with 429{}.", self.present(run))
            }
        }
    }

    /// The present state of the bucket, if it is known.
    fn present(&self, run: &RefusalRunView) -> String {
        let path = run.path();
        let of_client = self.buckets.iter().find(|(own, _)| Some(own) == path.as_ref());
        let Some((_, ClientBuckets { levels, rules, .. })) = of_client else {
            return String::new();
        };
        let bucket = rules.iter().find(|bucket| Some(&bucket.rule) == run.rule.as_ref());
        let Some(bucket @ RuleBucket { tokens: Some(tokens), full_after_ms: Some(full_ms), .. }) =
            bucket
        else {
            return String::new();
        };
        // A run has the name of its gateway only with Redis.
        let whose = if levels == "local" && run.gateway.is_some() {
            "this gateway, without Redis, holds its bucket, which"
        } else {
            "its bucket"
        };
        if *full_ms == 0 {
            return format!("; {whose} is full again now");
        }
        let wait = run.cost.and_then(|cost| Some((cost, bucket.wait_ms(cost)?)));
        let next = match wait {
            Some((cost, ms @ 1..)) if ms < *full_ms => format!(", {cost} in {}", span(ms)),
            _ => String::new(),
        };
        let and = if next.is_empty() { " and" } else { ", and" };
        format!("; {whose} has {tokens} tokens now{next}{and} is full again in {}", span(*full_ms))
    }

    fn table(&self, text: &mut String) {
        let runs = &self.refusals.refusal_runs;
        let mut rows = vec![HEADINGS.map(str::to_owned).to_vec()];
        let dash = || "-".to_owned();
        let number = |number: Option<u64>| number.map_or_else(dash, |number| number.to_string());
        for run in runs {
            let more = if run.other_routes { " …" } else { "" };
            let route = run.route.as_ref().map_or_else(dash, |route| format!("{route}{more}"));
            rows.push(vec![
                self.time(run.first),
                self.after(run.first, run.last),
                run.kind.name().to_owned(),
                number(run.status.map(u64::from)),
                run.rule.clone().unwrap_or_else(dash),
                run.client(),
                route,
                run.cost.map_or_else(dash, |cost| cost.to_string()),
                number(run.tokens),
                run.generation.to_string(),
                run.count.to_string(),
            ]);
        }
        if self.search.all_gateways {
            let gateways = runs.iter().map(|run| run.gateway.clone().unwrap_or_else(dash));
            let names = std::iter::once("gateway".to_owned()).chain(gateways);
            rows.iter_mut().zip(names).for_each(|(row, name)| row.push(name));
        }
        let _ = writeln!(text, "\nTimes are in {}.", self.refusals.time_zone);
        for line in aligned(&rows) {
            let _ = writeln!(text, "{line}");
        }
        if self.refusals.more > 0 {
            let more = self.refusals.more;
            let _ = writeln!(text, "… and {more} earlier: give --until, or a larger --limit.");
        }
    }

    /// The changes by callers of the admin API.
    fn changes(&self, text: &mut String) {
        let Refusals { changes, more_changes, time_zone, refusal_runs, .. } = &self.refusals;
        let mut rows = vec![CHANGE_HEADINGS.map(str::to_owned).to_vec()];
        rows.extend(changes.iter().map(|change| {
            let ChangeView { at, by, clients, what, status, .. } = change;
            let clients = match &clients[..] {
                [] => "-".to_owned(),
                [one] => cut(one, 64),
                [one, ..] => format!("{} and {} more", cut(one, 64), clients.len() - 1),
            };
            vec![self.time(*at), cut(by, 64), clients, status.to_string(), cut(what, MAX_REASON)]
        }));
        let before = if refusal_runs.is_empty() { "" } else { "\n" };
        let _ = writeln!(text, "{before}Changes by the admin API (times are in {time_zone}):");
        for line in aligned(&rows) {
            let _ = writeln!(text, "{line}");
        }
        if *more_changes > 0 {
            let _ =
                writeln!(text, "… and {more_changes} earlier: give --until, or a larger --limit.");
        }
    }

    /// What was searched, and what else to try.
    fn nothing(&self, text: &mut String) {
        let Search { key, tenant, ip, rule, kind, all_gateways } = &self.search;
        let Refusals { kept_since, time_zone, since, until, incomplete, .. } = &self.refusals;
        let mut what = "No refusals".to_owned();
        let named = [
            ("of key", key),
            ("of tenant", tenant),
            ("of address", ip),
            ("by rule", rule),
            ("of kind", kind),
        ];
        for (word, name) in named {
            if let Some(name) = name {
                let _ = write!(what, " {word} {}", cut(name, 64));
            }
        }
        for (word, time) in [("since", since), ("until", until)] {
            if let Some(time) = time {
                let _ = write!(what, " {word} {}", self.time(*time));
            }
        }
        let are_all = *all_gateways && incomplete.is_none();
        let gateways = if are_all { "all gateways" } else { "this gateway" };
        let kept = self.time(*kept_since);
        let _ = writeln!(text, "{what} on {gateways} (times are in {time_zone}).");
        let _ = writeln!(text, "This gateway has all refusals since {kept} in memory.\n");
        let _ = writeln!(text, "What else to try:");
        if !all_gateways {
            let _ =
                writeln!(text, "- Another gateway may have refused the requests: --all-gateways");
        }
        if key.is_some() {
            let _ = writeln!(
                text,
                "- With a wrong key, a request is refused by its address: 401, and 429 (unknown key) \
                 beyond the limit of that address. Both are listed by address: --ip, without --key-id"
            );
        }
        let _ = writeln!(
            text,
            "- 400, 404 and errors of the upstream are no refusals: see the access log (`reason`)"
        );
        if let Some(key) = key {
            let _ = writeln!(
                text,
                "- What would a request get now? tollgate explain --key-id {} --path /…",
                cut(key, 64)
            );
        }
    }

    /// A time that is shown after an earlier one: without the date if that is the same.
    fn after(&self, earlier: UtcTime, time: UtcTime) -> String {
        let (earlier, time) = (self.time(earlier), self.time(time));
        match (earlier.split_once(' '), time.split_once(' ')) {
            (Some((earlier, _)), Some((date, clock))) if earlier == date => clock.to_owned(),
            _ => time,
        }
    }

    /// A time in the zone of the page, to the second.
    fn time(&self, time: UtcTime) -> String {
        let zone = zone(&self.refusals.time_zone).unwrap_or(TimeZone::UTC);
        time.in_zone(zone, "%Y-%m-%d %H:%M:%S")
    }
}

/// Groups runs, the latest first.
fn groups(runs: &[RefusalRunView]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut index: HashMap<_, usize> = HashMap::new();
    for run in runs {
        let RefusalRunView { kind, reason, key, key_state, key_from, rule, rate, burst, .. } = run;
        let key = (key, &run.key_name);
        let ip = run.ip.as_ref().filter(|_| run.key.is_none());
        let id = (kind, reason, key, (key_state, key_from), rule, rate, burst, ip, &run.plan);
        let at = *index.entry(id).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => {
                // Records of the stream can have any count.
                group.count = group.count.saturating_add(run.count);
                group.first = group.first.min(run.first);
                group.last = group.last.max(run.last);
                group.is_open |= run.is_open;
            }
            None => groups.push(Group {
                run,
                count: run.count,
                first: run.first,
                last: run.last,
                is_open: run.is_open,
            }),
        }
    }
    groups
}

/// A duration for people, rounded up.
fn span(ms: u64) -> String {
    match ms.div_ceil(1_000) {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7_199 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h", seconds.div_ceil(3_600)),
    }
}
