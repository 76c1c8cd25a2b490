//! `GET /api/usage`: what clients used of their quotas, by client, rule and period, for billing.

use std::sync::Arc;
use std::time::Duration;

use http::header::LINK;
use http::{HeaderMap, StatusCode};
use ipnet::IpNet;

use super::Stores;
use super::answer::Answer;
use super::query::{BadQuery, Query, TimeRange};
use crate::api::usage::{QuotaUsage, Usage};
use crate::base::blocking::BlockingCalls;
use crate::base::clock;
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

const NAMES: [&str; 10] =
    ["rule", "key", "ip", "period", "since", "until", "zone", "format", "limit", "cursor"];

/// Their names elsewhere.
const SYNONYMS: [(&str, &str); 3] = [("from", "since"), ("to", "until"), ("key_id", "key")];

const CSV: &str = "text/csv; charset=utf-8; header=present";

/// The head of the CSV: the members of an [`QuotaUsage`].
const COLUMNS: [&str; 11] = [
    "rule",
    "client_kind",
    "client",
    "plan",
    "period_start",
    "period_end",
    "limit",
    "used",
    "counted_at",
    "bucket",
    "zone",
];

/// Which entries are wanted.
#[derive(Debug)]
struct Wanted {
    rule: Option<String>,
    key: Option<String>,
    ip: Option<String>,
    period: Period,
    limit: usize,
}

/// Which periods are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Period {
    /// Those that contain a time, in microseconds of Unix time.
    At(u64),
    /// Those that overlap a range of Unix time, in microseconds. Without an end, it has none.
    Within(u64, u64),
    /// Those that contain the current time.
    Current,
    All,
}

/// Form of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Csv,
}

/// Shows what clients used.
pub(super) async fn show(
    snapshot: &Snapshot,
    stores: Stores<'_>,
    text: Option<&str>,
    calls: &BlockingCalls,
) -> Result<Answer, Box<Answer>> {
    let Stores { limiter, usage: kept, .. } = stores;
    let query = Query::read_with(text, &NAMES, &[], &SYNONYMS)?;
    let format = match query.get("format") {
        None | Some("json") => Format::Json,
        Some("csv") => Format::Csv,
        Some(_) => return Err(bad("`format` must be `json` or `csv`".to_owned())),
    };
    let wanted = Wanted::read(&query, &snapshot.policy)?;
    let now_us = unix_time::of(clock::now());
    let usage = match kept {
        Some(Kept::Redis(writer)) => {
            let cursor = query.get("cursor").map(position).transpose()?;
            of_redis(writer, &wanted, cursor, now_us).await?
        }
        Some(Kept::File(keeper)) => {
            let Some(file) = keeper.file() else {
                let detail = "the file of usage cannot be opened now; the log has the reason";
                return Err(Answer::refusal(StatusCode::SERVICE_UNAVAILABLE, detail));
            };
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
    let answer = match format {
        Format::Json => Answer::json(&usage),
        Format::Csv => csv_of(&usage)?,
    };
    let Some(next) = &usage.next else { return Ok(answer) };
    let others = query_parameters(text.unwrap_or_default()).filter(|(name, _)| *name != "cursor");
    let mut query: Vec<String> = others.map(|(name, value)| format!("{name}={value}")).collect();
    query.push(format!("cursor={next}"));
    Ok(answer.with_header(LINK, &format!("</api/usage?{}>; rel=\"next\"", query.join("&"))))
}

impl Wanted {
    fn read(query: &Query, policy: &Policy) -> Result<Self, Box<Answer>> {
        let limit = query.get("limit").map_or(Ok(DEFAULT_LIMIT), str::parse);
        let limit = limit.ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
        let limit =
            limit.ok_or_else(|| bad(format!("`limit` must be a number from 1 to {MAX_LIMIT}")))?;
        let now = clock::unix_us();
        let TimeRange { since, until, .. } = query.time_range(["since", "until"], now)?;
        let has_range = since.is_some() || until.is_some();
        let period = match query.get("period") {
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
        let (key, rule) = (owned("key"), owned("rule"));
        let ip = query.get("ip").map(|text| shown_address(text, policy)).transpose()?;
        if key.is_some() && ip.is_some() {
            return Err(bad("`key` and `ip` both name the client; give one".to_owned()));
        }
        // A rule that the file had before may have usage.
        if let (Some(name), Period::Current) = (&rule, period)
            && !policy.rules.iter().any(|rule| *rule.name == **name)
        {
            return Err(bad(format!("the file has no rule `{}`", cut(name, 64))));
        }
        Ok(Self { rule, key, ip, period, limit })
    }

    fn includes(&self, record: &Record, now_us: u64) -> bool {
        self.includes_period((record.start_us, record.place.end_us), now_us)
            && self.includes_client(&record.rule, &record.owner)
    }

    fn includes_period(&self, (start_us, end_us): (u64, u64), now_us: u64) -> bool {
        let time = match self.period {
            Period::All => return true,
            Period::Within(since, until) => return start_us <= until && end_us > since,
            Period::Current => now_us,
            Period::At(time) => time,
        };
        (start_us..end_us).contains(&time)
    }

    fn includes_client(&self, rule: &str, owner: &Owner) -> bool {
        let is = |kind: &str, wanted: &Option<String>| {
            wanted.as_ref().is_none_or(|id| owner.kind == kind && owner.id == *id)
        };
        self.rule.as_ref().is_none_or(|wanted| wanted == rule)
            && is("key", &self.key)
            && is("ip", &self.ip)
    }

    /// First place that can be included.
    fn begin(&self, now_us: u64) -> Place {
        let time = match self.period {
            Period::All => return Place { end_us: 0, bucket: BucketId(0) },
            Period::Current => now_us,
            Period::At(time) | Period::Within(time, _) => time,
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
    let unavailable = |why: &str| {
        let detail = format!("the file of usage cannot be read: {why}");
        Answer::refusal(StatusCode::SERVICE_UNAVAILABLE, &detail)
    };
    let read = calls.run(DEADLINE, read).await.map_err(|error| unavailable(&error.to_string()))?;
    let (entries, next) = read.map_err(|error| unavailable(&error.to_string()))?;
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
    let includes = |record: &Record| wanted.includes_client(&record.rule, &record.owner);
    let (records, next) =
        writer.read(cursor, wants, includes, wanted.limit).await.map_err(|error| {
            let help = help(&error);
            let detail = format!(
                "usage is in Redis, which cannot be read now: {error}{help}. Gateways keep what is used, and write it \
                 when Redis responds again: ask then"
            );
            Answer::refusal(StatusCode::SERVICE_UNAVAILABLE, &detail)
        })?;
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
    while next < keys.len() && entries.len() < wanted.limit && policy.has_quotas {
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
    let next = (next < keys.len() && policy.has_quotas).then(|| next.to_string());
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
            counted_at: Some(UtcTime(record.counted_at_us)),
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

/// The entries as CSV (RFC 4180), with a head. Further entries are linked by a header.
fn csv_of(usage: &Usage) -> Result<Answer, Box<Answer>> {
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    let head = writer.write_record(COLUMNS);
    let written =
        head.and_then(|()| usage.entries.iter().try_for_each(|one| writer.serialize(one)));
    let body = written.ok().and_then(|()| writer.into_inner().ok());
    let Some(body) = body else {
        let detail = "the usage cannot be written as CSV";
        return Err(Answer::refusal(StatusCode::INTERNAL_SERVER_ERROR, detail));
    };
    Ok(Answer::of(StatusCode::OK, CSV, body))
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
