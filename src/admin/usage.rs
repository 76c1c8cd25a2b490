//! `GET /api/usage`: what clients used of their quotas, by client, rule and period, for billing.

mod by_day;

use std::sync::Arc;
use std::time::Duration;

use http::header::LINK;
use http::{HeaderMap, StatusCode};
use ipnet::IpNet;
use serde::Serialize;

use super::Stores;
use super::answer::Answer;
use super::audit::wanted_tenant;
use super::query::{BadQuery, Query, TimeRange};
use crate::api::usage::{PERIOD_COLUMNS, QuotaUsage, Usage, csv, json_lines};
use crate::base::blocking::BlockingCalls;
use crate::base::clock;
use crate::base::duration::MICROS_PER_SECOND;
use crate::base::text::cut;
use crate::base::time::UtcTime;
use crate::base::unix_time;
use crate::client::address::{counted_address, counted_as, parse_address};
use crate::client::credential::query_parameters;
use crate::client::{Client, ClientKey};
use crate::decide::applicability::{Absent, Applicability, SelectedBy, Subject, applicabilities};
use crate::limit::charge::{BucketId, Charge};
use crate::observe::address::AddressQueryError;
use crate::policy::Policy;
use crate::runtime::Snapshot;
use crate::store::limiter::Limiter;
use crate::store::redis::link::records::RecordsError;
use crate::usage::days::row::Day;
use crate::usage::file::UsageFile;
use crate::usage::kept::Kept;
use crate::usage::record::{Owner, Place, Record};
use crate::usage::shared::codec::RulePeriod;
use crate::usage::shared::store::Position;
use crate::usage::shared::writer::{Writer, help};

/// Default of the parameter `limit`.
const DEFAULT_LIMIT: usize = 1_000;

/// Maximum of the parameter `limit`.
const MAX_LIMIT: usize = 10_000;

/// Maximum time of a read of the file.
const DEADLINE: Duration = Duration::from_secs(30);

/// Clients whose buckets are read at once.
const CLIENTS_AT_ONCE: usize = 256;

const NAMES: [&str; 17] = [
    "rule", "key", "ip", "tenant", "client", "period", "month", "day", "since", "until", "zone",
    "by", "route", "plan", "format", "limit", "cursor",
];

/// Their names elsewhere.
const SYNONYMS: [(&str, &str); 3] = [("from", "since"), ("to", "until"), ("key_id", "key")];

const CSV: &str = "text/csv; charset=utf-8; header=present";

const JSON_LINES: &str = "application/jsonl";

/// Largest difference of a time zone from UTC, with some more: 16 hours in microseconds.
const MAX_OFFSET_US: u64 = 16 * 3_600 * MICROS_PER_SECOND;

/// Which entries are wanted.
#[derive(Debug)]
struct Wanted {
    rule: Option<String>,
    plan: Option<String>,
    who: Who,
    period: Period,
    limit: usize,
}

/// Whose usage is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Who {
    Everyone,
    /// A client of a kind, with its id.
    One(&'static str, String),
    /// Clients of any kind with this id.
    Named(String),
}

/// Which periods are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Period {
    /// Those that contain a time, in microseconds of Unix time.
    At(u64),
    /// Those that overlap a range of Unix time, in microseconds. Without an end, it has none.
    Within(u64, u64),
    /// Those that begin between two days, inclusive, in the zones of their rules.
    Begins(Day, Day),
    /// Those that contain the current time.
    Current,
    All,
}

/// Form of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Csv,
    JsonLines,
}

impl Format {
    fn read(query: &Query) -> Result<Self, Box<Answer>> {
        match query.get("format") {
            None | Some("json") => Ok(Self::Json),
            Some("csv") => Ok(Self::Csv),
            Some("jsonl") => Ok(Self::JsonLines),
            Some(_) => Err(bad("`format` must be `json`, `csv` or `jsonl`".to_owned())),
        }
    }

    /// A response in this form, of a list as JSON and of its entries otherwise.
    fn answer<T: Serialize, E: Serialize>(
        self,
        list: &T,
        entries: &[E],
        columns: &[&str],
        as_cells: impl Fn(&E) -> E,
    ) -> Result<Answer, Box<Answer>> {
        let (body, form) = match self {
            Self::Json => return Ok(Answer::json(list)),
            Self::Csv => (csv(columns, entries.iter().map(as_cells)), CSV),
            Self::JsonLines => (json_lines(entries.iter()), JSON_LINES),
        };
        let Some(body) = body else {
            let detail = "the usage cannot be written in this form";
            return Err(Answer::refusal(StatusCode::INTERNAL_SERVER_ERROR, detail));
        };
        Ok(Answer::of(StatusCode::OK, form, body))
    }
}

/// Shows what clients used, or the tenant that the caller is limited to.
pub(super) async fn show(
    snapshot: &Snapshot,
    stores: Stores<'_>,
    (text, tenant): (Option<&str>, Option<&str>),
    calls: &BlockingCalls,
) -> Result<Answer, Box<Answer>> {
    let Stores { limiter, usage: kept, .. } = stores;
    let query = Query::read_with(text, &NAMES, &[], &SYNONYMS)?;
    let format = Format::read(&query)?;
    let who = Who::read(&query, &snapshot.policy, tenant)?;
    if query.get("by").is_some_and(|by| by != "period") {
        return by_day::show(snapshot, kept, (text, &query, who), format, calls).await;
    }
    if query.get("route").is_some() {
        return Err(bad("`route` needs `by=route`".to_owned()));
    }
    let wanted = Wanted::read(&query, &snapshot.policy, who)?;
    let now_us = unix_time::of(clock::now());
    let usage = match kept {
        Some(Kept::Redis(writer)) => {
            let cursor = query.get("cursor").map(position).transpose()?;
            of_redis(writer, &wanted, cursor, now_us).await?
        }
        Some(Kept::File(keeper)) => {
            let file = keeper.file().ok_or_else(file_closed)?;
            let cursor = query.get("cursor").map(place).transpose()?;
            of_file(file, wanted, cursor, now_us, calls).await?
        }
        None if wanted.period == Period::Current => {
            let cursor = query.get("cursor").map_or(Ok(0), str::parse);
            let first = cursor.map_err(|_| bad_cursor())?;
            of_buckets(snapshot, limiter, &wanted, first, now_us).await
        }
        None => {
            let detail = "periods that have ended are kept in Redis or in `usage.file`, and the configuration has neither";
            return Err(Answer::refusal(StatusCode::CONFLICT, detail));
        }
    };
    let answer = format.answer(&usage, &usage.entries, &PERIOD_COLUMNS, QuotaUsage::as_cells)?;
    Ok(with_next(answer, text, usage.next.as_deref()))
}

/// Links the request for further entries.
fn with_next(answer: Answer, text: Option<&str>, next: Option<&str>) -> Answer {
    let Some(next) = next else { return answer };
    let others = query_parameters(text.unwrap_or_default()).filter(|(name, _)| *name != "cursor");
    let mut query: Vec<String> = others.map(|(name, value)| format!("{name}={value}")).collect();
    query.push(format!("cursor={next}"));
    answer.with_header(LINK, &format!("</api/usage?{}>; rel=\"next\"", query.join("&")))
}

/// The days of the parameters `month` and `day`; `None` without them.
fn days(query: &Query) -> Result<Option<(Day, Day)>, Box<Answer>> {
    match (query.get("month"), query.get("day")) {
        (None, None) => Ok(None),
        (Some(month), None) => Day::month(month)
            .map(Some)
            .ok_or_else(|| bad("`month` must be a month such as `2026-11`".to_owned())),
        (None, Some(day)) => Day::parse(day)
            .map(|day| Some((day, day)))
            .ok_or_else(|| bad("`day` must be a day such as `2026-11-28`".to_owned())),
        (Some(_), Some(_)) => Err(bad("give `month` or `day`".to_owned())),
    }
}

fn limit(query: &Query) -> Result<usize, Box<Answer>> {
    let limit = query.get("limit").map_or(Ok(DEFAULT_LIMIT), str::parse);
    let limit = limit.ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
    limit.ok_or_else(|| bad(format!("`limit` must be a number from 1 to {MAX_LIMIT}")))
}

impl Who {
    /// Whose usage a query asks for, or a caller who is limited to a tenant.
    fn read(query: &Query, policy: &Policy, tenant: Option<&str>) -> Result<Self, Box<Answer>> {
        if let Some(own) = tenant {
            if ["key", "ip", "client"].iter().any(|name| query.get(name).is_some()) {
                let detail = format!("the token is for tenant `{}` only", cut(own, 64));
                return Err(Answer::refusal(StatusCode::FORBIDDEN, &detail));
            }
            wanted_tenant(query.get("tenant"), tenant)?;
            return Ok(Self::One("tenant", own.to_owned()));
        }
        let ip = query.get("ip").map(|text| shown_address(text, policy)).transpose()?;
        let owned = |name| query.get(name).map(str::to_owned);
        let one = |kind: &'static str, id: Option<String>| id.map(|id| Self::One(kind, id));
        let each = [
            one("key", owned("key")),
            one("ip", ip),
            one("tenant", owned("tenant")),
            owned("client").map(Self::Named),
        ];
        let mut each = each.into_iter().flatten();
        let who = each.next().unwrap_or(Self::Everyone);
        if each.next().is_some() {
            let detail = "`key`, `ip`, `tenant` and `client` each name the client; give one";
            return Err(bad(detail.to_owned()));
        }
        Ok(who)
    }

    fn includes(&self, owner: &Owner) -> bool {
        match self {
            Self::Everyone => true,
            Self::One(kind, id) => owner.kind == *kind && owner.id == *id,
            Self::Named(id) => owner.id == *id,
        }
    }
}

impl Wanted {
    fn read(query: &Query, policy: &Policy, who: Who) -> Result<Self, Box<Answer>> {
        let limit = limit(query)?;
        let days = days(query)?;
        let now = clock::unix_us();
        let TimeRange { since, until, .. } = query.time_range(["since", "until"], now)?;
        let has_range = since.is_some() || until.is_some();
        if days.is_some() && (has_range || query.get("period").is_some()) {
            let detail = "give one of `period`, `month`, `day`, and `since` and `until`";
            return Err(bad(detail.to_owned()));
        }
        let period = match query.get("period") {
            None if let Some((first, last)) = days => Period::Begins(first, last),
            Some(_) if has_range => {
                return Err(bad("give `period`, or `since` and `until`".to_owned()));
            }
            None if has_range => Period::Within(since.unwrap_or(0), until.unwrap_or(u64::MAX)),
            None | Some("current") => Period::Current,
            Some("all") => Period::All,
            Some(text) => {
                let time = UtcTime::parse(text).ok_or_else(|| {
                    bad("`period` must be `current`, `all` or a time in the period, such as \
                         `2026-11-30T12:00:00Z`"
                        .to_owned())
                });
                Period::At(time?.0)
            }
        };
        let owned = |name| query.get(name).map(str::to_owned);
        let (rule, plan) = (owned("rule"), owned("plan"));
        // A rule that the file had before may have usage.
        if let (Some(name), Period::Current) = (&rule, period)
            && !policy.rules.iter().any(|rule| *rule.name == **name)
        {
            return Err(bad(format!("the file has no rule `{}`", cut(name, 64))));
        }
        Ok(Self { rule, plan, who, period, limit })
    }

    fn includes(&self, record: &Record, now_us: u64) -> bool {
        self.includes_period((record.start_us, record.place.end_us), now_us)
            && self.includes_record(record)
    }

    /// Whether a record of a period that may be wanted is wanted.
    fn includes_record(&self, record: &Record) -> bool {
        let begins = || record.limit.quota_calendar().map(|it| Day::of(it.day(record.start_us)));
        let is_in_days = match self.period {
            Period::Begins(first, last) => {
                begins().is_some_and(|day| (first..=last).contains(&day))
            }
            Period::At(_) | Period::Within(..) | Period::Current | Period::All => true,
        };
        is_in_days
            && self.plan.as_ref().is_none_or(|plan| **plan == *record.plan)
            && self.includes_client(&record.rule, &record.owner)
    }

    fn includes_period(&self, (start_us, end_us): (u64, u64), now_us: u64) -> bool {
        let time = match self.period {
            Period::All => return true,
            Period::Within(since, until) => return start_us <= until && end_us > since,
            // About: their zone is not known here.
            Period::Begins(first, last) => {
                let since = first.start_us().saturating_sub(MAX_OFFSET_US);
                let until = last.start_us().saturating_add(2 * MAX_OFFSET_US + MAX_OFFSET_US / 2);
                return (since..until).contains(&start_us);
            }
            Period::Current => now_us,
            Period::At(time) => time,
        };
        (start_us..end_us).contains(&time)
    }

    fn includes_client(&self, rule: &str, owner: &Owner) -> bool {
        self.rule.as_ref().is_none_or(|wanted| wanted == rule) && self.who.includes(owner)
    }

    /// First place that can be included.
    fn begin(&self, now_us: u64) -> Place {
        let time = match self.period {
            Period::All => return Place { end_us: 0, bucket: BucketId(0) },
            Period::Current => now_us,
            Period::At(time) | Period::Within(time, _) => time,
            Period::Begins(first, _) => first.start_us().saturating_sub(MAX_OFFSET_US),
        };
        Place { end_us: time.saturating_add(1), bucket: BucketId(0) }
    }
}

/// Entries from the file, after `cursor`.
async fn of_file(
    file: Arc<UsageFile>,
    wanted: Wanted,
    cursor: Option<Place>,
    now_us: u64,
    calls: &BlockingCalls,
) -> Result<Usage, Box<Answer>> {
    let read = move || {
        let (mut entries, mut next) = (Vec::new(), None);
        let begin =
            wanted.begin(now_us).max(cursor.unwrap_or(Place { end_us: 0, bucket: BucketId(0) }));
        let result = file.read(begin, |record| {
            if wanted.includes(&record, now_us) {
                if entries.len() == wanted.limit {
                    next = Some(shown(record.place));
                    return false;
                }
                entries.push(QuotaUsage::of(&record));
            }
            true
        });
        result.map(|()| (entries, next))
    };
    let read =
        calls.run(DEADLINE, read).await.map_err(|error| file_unavailable(&error.to_string()))?;
    let (entries, next) = read.map_err(|error| file_unavailable(&error.to_string()))?;
    Ok(Usage { source: "file".into(), at: UtcTime(now_us), entries, next })
}

/// Entries from Redis, from `cursor` on.
async fn of_redis(
    writer: &Writer,
    wanted: &Wanted,
    cursor: Option<Position>,
    now_us: u64,
) -> Result<Usage, Box<Answer>> {
    let wants = |period: &RulePeriod| {
        wanted.rule.as_ref().is_none_or(|rule| **rule == *period.rule)
            && wanted.includes_period((period.start_us, period.end_us), now_us)
    };
    let includes = |record: &Record| wanted.includes_record(record);
    let (records, next) = writer
        .read(cursor, wants, includes, wanted.limit)
        .await
        .map_err(|error| redis_unavailable(&error))?;
    let entries = records.iter().map(QuotaUsage::of).collect();
    let next = next.as_ref().map(shown_position);
    Ok(Usage { source: "redis".into(), at: UtcTime(now_us), entries, next })
}

/// Entries of the current periods from the buckets of the keys in the configuration, from the key
/// `first` on.
async fn of_buckets(
    snapshot: &Snapshot,
    limiter: &Limiter,
    wanted: &Wanted,
    first: usize,
    now_us: u64,
) -> Usage {
    let policy = &snapshot.policy;
    let mut entries = Vec::new();
    let mut next = first;
    let keys = policy.keys.all();
    while next < keys.len() && entries.len() < wanted.limit && policy.has_quotas() {
        let charges: Vec<(Client, Charge)> = keys
            .iter()
            .skip(next)
            .take(CLIENTS_AT_ONCE.min(wanted.limit))
            .map(|key| Client::new(&policy.clients, ClientKey::Known(Arc::clone(key))))
            .flat_map(|client| quotas_of(policy, &client, wanted))
            .collect();
        next = next.saturating_add(CLIENTS_AT_ONCE.min(wanted.limit));
        let of_store: Vec<Charge> = charges.iter().map(|(_, charge)| *charge).collect();
        let found = limiter.peek_levels(&of_store, &snapshot.stored_rules).await;
        let each = charges.iter().zip(&found.readings);
        entries.extend(each.filter_map(|((client, charge), reading)| {
            QuotaUsage::of_bucket(policy, client, charge, reading.level, now_us)
        }));
    }
    let next = (next < keys.len() && policy.has_quotas()).then(|| next.to_string());
    Usage { source: "local".into(), at: UtcTime(now_us), entries, next }
}

/// The wanted quotas of a client with a key whose buckets do not depend on the request.
fn quotas_of(policy: &Policy, client: &Client, wanted: &Wanted) -> Vec<(Client, Charge)> {
    let headers = HeaderMap::new();
    let subject = Subject {
        client,
        selected_by: SelectedBy::Key,
        route: None,
        method: None,
        host: None,
        headers: &headers,
        absent: Absent::Only(&[]),
    };
    let of_rule = |applicability: &Applicability<'_>| {
        let charge = applicability.known()?;
        let owner = Owner::of(policy, applicability.rule, client);
        let is_wanted = charge.limit.quota_calendar().is_some()
            && owner.kind == "key"
            && wanted.includes_client(&applicability.rule.name, &owner);
        is_wanted.then(|| (client.clone(), charge))
    };
    applicabilities(policy, &subject).iter().filter_map(of_rule).collect()
}

impl QuotaUsage {
    fn of(record: &Record) -> Self {
        Self {
            rule: record.rule.to_string(),
            client_kind: record.owner.kind.into(),
            client: record.owner.id.clone(),
            plan: record.plan.to_string(),
            period_start: UtcTime(record.start_us),
            period_end: UtcTime(record.place.end_us),
            limit: record.limit_in_tokens(),
            used: tokens(record.used),
            overage: tokens(record.used.saturating_sub(record.limit.full()).max(0)),
            counted_at: (record.counted_at_us > 0).then_some(UtcTime(record.counted_at_us)),
            bucket: format!("{:032x}", record.place.bucket.0),
            zone: record.limit.usage_zone().into(),
        }
    }

    /// The entry of a key at a level; `None` if it is that of the start of a period.
    fn of_bucket(
        policy: &Policy,
        client: &Client,
        charge: &Charge,
        level: i64,
        now_us: u64,
    ) -> Option<Self> {
        let used = charge.limit.full().saturating_sub(level);
        let bounds = charge.limit.usage_period(now_us)?;
        let rule = policy.rules.get(charge.rule as usize)?;
        let owner = Owner::of(policy, rule, client);
        (used != 0).then(|| Self {
            rule: rule.name.to_string(),
            client_kind: owner.kind.into(),
            client: owner.id,
            plan: policy.plan_name(client.plan).to_owned(),
            period_start: UtcTime(bounds.start_us),
            period_end: UtcTime(bounds.end_us),
            limit: charge.limit.capacity(),
            used: tokens(used),
            overage: tokens(used.saturating_sub(charge.limit.full()).max(0)),
            counted_at: None,
            bucket: format!("{:032x}", charge.bucket.0),
            zone: charge.limit.usage_zone().into(),
        })
    }
}

/// Units of a fixed window, in tokens.
#[allow(clippy::cast_precision_loss, reason = "units are at most 2^53")]
fn tokens(units: i64) -> f64 {
    units as f64 / 1_000.0
}

fn redis_unavailable(error: &RecordsError) -> Box<Answer> {
    let help = help(error);
    let detail = format!(
        "usage is in Redis, which cannot be read now: {error}{help}. Gateways keep what is used, and write it \
         when Redis responds again: ask then"
    );
    Answer::refusal(StatusCode::SERVICE_UNAVAILABLE, &detail)
}

fn file_closed() -> Box<Answer> {
    let detail = "the file of usage cannot be opened now; the log has the reason";
    Answer::refusal(StatusCode::SERVICE_UNAVAILABLE, detail)
}

fn file_unavailable(why: &str) -> Box<Answer> {
    let detail = format!("the file of usage cannot be read: {why}");
    Answer::refusal(StatusCode::SERVICE_UNAVAILABLE, &detail)
}

/// An address as the list shows it: of IPv6, the network of `clients.ipv6_prefix` bits.
fn shown_address(text: &str, policy: &Policy) -> Result<String, Box<Answer>> {
    let prefix = policy.clients.ipv6_prefix;
    if let Some(ip) = parse_address(text, prefix) {
        return Ok(counted_as(counted_address(ip, prefix), prefix));
    }
    // The file may have had another prefix.
    let network = text.parse::<IpNet>().map(|_| text.to_owned());
    network.map_err(|_| bad(format!("`ip` is {}", AddressQueryError::NotAnAddress)))
}

/// A place as the parameter `cursor` has it.
fn shown(place: Place) -> String {
    format!("{:x}-{:x}", place.end_us, place.bucket.0)
}

fn place(cursor: &str) -> Result<Place, Box<Answer>> {
    let (end, bucket) = cursor.split_once('-').ok_or_else(bad_cursor)?;
    let end_us = u64::from_str_radix(end, 16).map_err(|_| bad_cursor())?;
    let bucket = u128::from_str_radix(bucket, 16).map_err(|_| bad_cursor())?;
    Ok(Place { end_us, bucket: BucketId(bucket) })
}

/// A position as the parameter `cursor` has it.
fn shown_position(position: &Position) -> String {
    let Position { period, bucket } = position;
    format!("{:x}-{:x}-{:x}-{}", period.end_us, period.start_us, bucket.0, period.rule)
}

fn position(cursor: &str) -> Result<Position, Box<Answer>> {
    let mut parts = cursor.splitn(4, '-');
    let mut part = || parts.next().ok_or_else(bad_cursor);
    let us = |text: &str| u64::from_str_radix(text, 16).map_err(|_| bad_cursor());
    let (end_us, start_us) = (us(part()?)?, us(part()?)?);
    let bucket = u128::from_str_radix(part()?, 16).map_err(|_| bad_cursor())?;
    let period = RulePeriod { end_us, start_us, rule: part()?.into() };
    Ok(Position { period, bucket: BucketId(bucket) })
}

fn bad_cursor() -> Box<Answer> {
    bad("`cursor` must be `next` of an earlier response".to_owned())
}

fn bad(detail: String) -> Box<Answer> {
    BadQuery(detail).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limit;
    use crate::limit::calendar::{Calendar, Period};
    use crate::limit::charge::BucketId;
    use crate::limit::fixed_window::FixedWindow;
    use crate::usage::record::Place;

    #[test]
    fn time_of_the_last_request_is_null_before_the_first() {
        let calendar = Calendar::new(Period::Month, "UTC", 1).unwrap();
        let record = |counted_at_us| Record {
            place: Place { end_us: 9_000_000, bucket: BucketId(1) },
            start_us: 0,
            rule: "monthly".into(),
            owner: Owner { kind: "key", id: "acme".to_owned() },
            plan: "free".into(),
            limit: Limit::FixedWindow(FixedWindow::new(5, calendar).unwrap()),
            used: -50_000,
            counted_at_us,
        };
        assert_eq!(QuotaUsage::of(&record(0)).counted_at, None);
        assert_eq!(QuotaUsage::of(&record(7)).counted_at, Some(UtcTime(7)));
    }
}
