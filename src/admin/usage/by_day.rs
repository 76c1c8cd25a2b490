//! `GET /api/usage?by=day` and `by=route`: what clients used on each day, and through each route.

use http::StatusCode;

use super::{
    DEADLINE, Format, Who, bad, bad_cursor, days, file_closed, file_unavailable, limit,
    redis_unavailable, tokens, with_next,
};
use crate::admin::answer::Answer;
use crate::admin::query::Query;
use crate::api::usage::{DAY_COLUMNS, DayUsage, UsageByDay};
use crate::base::blocking::BlockingCalls;
use crate::base::clock;
use crate::base::time::UtcTime;
use crate::base::unix_time;
use crate::policy::settings::Detail;
use crate::runtime::Snapshot;
use crate::usage::days::row::{Counts, Day, Position, Row, owner_hash};
use crate::usage::kept::Kept;
use crate::usage::record::OWNER_KINDS;

/// Which entries are wanted.
#[derive(Debug, Clone)]
struct Wanted {
    rule: Option<String>,
    plan: Option<String>,
    route: Option<String>,
    who: Who,
    /// First and last day.
    days: (Day, Day),
    is_by_route: bool,
    limit: usize,
}

/// A page of entries. All those of a client on a day are on the same page.
#[derive(Debug, Default)]
struct Page {
    entries: Vec<DayUsage>,
    /// The client and day of the last entries.
    last: Option<Position>,
    /// Those that the next page begins with.
    next: Option<Position>,
}

/// Shows what clients used by day.
pub(super) async fn show(
    snapshot: &Snapshot,
    kept: Option<&Kept>,
    (text, query, who): (Option<&str>, &Query, Who),
    format: Format,
    calls: &BlockingCalls,
) -> Result<Answer, Box<Answer>> {
    let now_us = unix_time::of(clock::now());
    let wanted = Wanted::read(query, who, now_us)?;
    let detail = snapshot.policy.usage.detail;
    let is_kept = detail == Detail::Route || detail == Detail::Day && !wanted.is_by_route;
    let Some(kept) = kept.filter(|_| is_kept) else {
        let word = if wanted.is_by_route { "route" } else { "day" };
        let detail = format!(
            "usage is not kept by {word}: that needs `usage.detail = \"{word}\"`, and `[redis]` or `usage.file`"
        );
        return Err(Answer::refusal(StatusCode::CONFLICT, &detail));
    };
    let start = Position { day: wanted.days.0, owner: 0 };
    let from = query.get("cursor").map(position).transpose()?.map_or(start, |it| it.max(start));
    let owners = wanted.owners();
    let (source, page) = match kept {
        Kept::Redis(writer) => {
            let mut page = Page::default();
            let wants = |day: Day| day <= wanted.days.1;
            let next = writer.read_days(from, wants, owners.as_deref(), |position, rows| {
                rows.into_iter().all(|(row, counts)| page.add(&wanted, position, row, counts))
            });
            let rest = next.await.map_err(|error| redis_unavailable(&error))?;
            page.next = page.next.or(rest);
            ("redis", page)
        }
        Kept::File(keeper) => {
            let file = keeper.file().ok_or_else(file_closed)?;
            let read = move || {
                let mut page = Page::default();
                let each = |row: Row, counts| {
                    row.day <= wanted.days.1 && page.add(&wanted, row.position(), row, counts)
                };
                file.read_days(from, owners.as_deref(), each).map(|()| page)
            };
            let read = calls.run(DEADLINE, read).await;
            let read = read.map_err(|error| file_unavailable(&error.to_string()))?;
            ("file", read.map_err(|error| file_unavailable(&error.to_string()))?)
        }
    };
    let next = page.next.map(|Position { day, owner }| format!("{}-{owner:x}", day.number()));
    let usage =
        UsageByDay { source: source.into(), at: UtcTime(now_us), entries: page.entries, next };
    let answer = format.answer(&usage, &usage.entries, &DAY_COLUMNS, DayUsage::as_cells)?;
    Ok(with_next(answer, text, usage.next.as_deref()))
}

impl Wanted {
    fn read(query: &Query, who: Who, now_us: u64) -> Result<Self, Box<Answer>> {
        let is_by_route = match query.get("by") {
            Some("day") => false,
            Some("route") => true,
            _ => return Err(bad("`by` must be `period`, `day` or `route`".to_owned())),
        };
        if query.get("period").is_some() || query.get("zone").is_some() {
            let detail = "`period` and `zone` are for usage by period; days are those of the rule's zone: give `month`, \
                          `day`, or `since` and `until` as days";
            return Err(bad(detail.to_owned()));
        }
        let owned = |name| query.get(name).map(str::to_owned);
        Ok(Self {
            rule: owned("rule"),
            plan: owned("plan"),
            route: owned("route"),
            who,
            days: range(query, now_us)?,
            is_by_route,
            limit: limit(query)?,
        })
    }

    /// Hashes of the wanted clients, in ascending order; `None` for all.
    fn owners(&self) -> Option<Vec<u128>> {
        let mut owners = match &self.who {
            Who::Everyone => return None,
            Who::One(kind, id) => vec![owner_hash(kind, id)],
            Who::Named(id) => OWNER_KINDS.iter().map(|kind| owner_hash(kind, id)).collect(),
        };
        owners.sort_unstable();
        Some(owners)
    }

    fn includes(&self, row: &Row) -> bool {
        let is = |wanted: &Option<String>, name: &str| {
            wanted.as_ref().is_none_or(|wanted| *wanted == name)
        };
        is(&self.rule, &row.rule)
            && is(&self.plan, &row.plan)
            && is(&self.route, &row.route)
            && self.who.includes(&row.owner)
    }
}

/// The first and the last day that are wanted; by default those of the current month in UTC.
fn range(query: &Query, now_us: u64) -> Result<(Day, Day), Box<Answer>> {
    let days = days(query)?;
    let bound = |name: &str| {
        let wrong = || bad(format!("`{name}` must be a day such as `2026-11-28`"));
        query.get(name).map(|text| Day::parse(text).ok_or_else(wrong)).transpose()
    };
    let (since, until) = (bound("since")?, bound("until")?);
    match (days, since, until) {
        (Some(days), None, None) => Ok(days),
        (Some(_), ..) => Err(bad("give one of `month`, `day`, and `since` and `until`".to_owned())),
        (None, None, None) => {
            let today = Day::of_unix(now_us);
            let month = today.to_string();
            Ok(month.get(..7).and_then(Day::month).unwrap_or((today, today)))
        }
        (None, since, until) => {
            let (first, last) = (since.unwrap_or(Day::FIRST), until.unwrap_or(Day::LAST));
            if first > last {
                return Err(bad("`since` is after `until`".to_owned()));
            }
            Ok((first, last))
        }
    }
}

impl Page {
    /// Adds a row. Returns whether there is room for more.
    fn add(&mut self, wanted: &Wanted, position: Position, row: Row, counts: Counts) -> bool {
        if !wanted.includes(&row) {
            return true;
        }
        if self.last != Some(position) && self.entries.len() >= wanted.limit {
            self.next = Some(position);
            return false;
        }
        let is_same_client = self.last == Some(position);
        self.last = Some(position);
        let entry = entry(row, counts, wanted.is_by_route);
        let known =
            if is_same_client { self.entries.iter_mut().rev() } else { [].iter_mut().rev() };
        let known = known
            .take_while(|known| known.day == entry.day && known.client == entry.client)
            .find(|known| known.is_of_the_same(&entry));
        match known {
            Some(known) => {
                known.requests += entry.requests;
                known.used += entry.used;
                known.overage += entry.overage;
            }
            None => self.entries.push(entry),
        }
        true
    }
}

impl DayUsage {
    fn is_of_the_same(&self, other: &Self) -> bool {
        let identity =
            |one: &Self| (one.rule.clone(), one.zone.clone(), one.plan.clone(), one.route.clone());
        self.client_kind == other.client_kind && identity(self) == identity(other)
    }
}

fn entry(row: Row, counts: Counts, is_by_route: bool) -> DayUsage {
    DayUsage {
        day: row.day.to_string(),
        zone: row.zone.to_string(),
        rule: row.rule.to_string(),
        client_kind: row.owner.kind.into(),
        client: row.owner.id,
        plan: row.plan.to_string(),
        route: is_by_route.then(|| row.route.to_string()),
        requests: counts.requests,
        used: tokens(counts.units),
        overage: tokens(counts.overage),
    }
}

fn position(cursor: &str) -> Result<Position, Box<Answer>> {
    let (day, owner) = cursor.split_once('-').ok_or_else(bad_cursor)?;
    let day = day.parse().ok().and_then(Day::of_number).ok_or_else(bad_cursor)?;
    let owner = u128::from_str_radix(owner, 16).map_err(|_| bad_cursor())?;
    Ok(Position { day, owner })
}
