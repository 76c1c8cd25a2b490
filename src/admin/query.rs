//! Reads the parameters of a request's query, and the times among them.

use std::borrow::Cow;

use http::StatusCode;
use jiff::tz::TimeZone;

use super::answer::Answer;
use crate::base::time::{self, Moment};
use crate::client::credential::query_parameters;
use crate::config::suggest;
use crate::net::percent::decode_query;

/// A minute, in microseconds.
const MINUTE_US: u64 = 60_000_000;

/// The parameters of a query, decoded, in order.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

/// Why a query is invalid, as a text for the caller.
#[derive(Debug)]
pub(super) struct BadQuery(pub(super) String);

/// The time that a query is about. Times are in microseconds since the Unix epoch.
#[derive(Debug)]
pub(super) struct TimeRange {
    pub(super) since: Option<u64>,
    pub(super) until: Option<u64>,
    /// The zone of times without an offset.
    pub(super) zone: TimeZone,
}

impl Query {
    /// Reads a query that may contain only `names`; those in `many` can be repeated.
    pub(super) fn read(
        query: Option<&str>,
        names: &[&str],
        many: &[&str],
    ) -> Result<Self, BadQuery> {
        Self::read_with(query, names, many, &[])
    }

    /// The same, with further names of parameters: each with the one of `names` that it is another
    /// word for.
    pub(super) fn read_with(
        query: Option<&str>,
        names: &[&str],
        many: &[&str],
        synonyms: &[(&str, &str)],
    ) -> Result<Self, BadQuery> {
        let mut read = Self::default();
        for (name, value) in query_parameters(query.unwrap_or_default()) {
            let text = |bytes: Cow<'_, [u8]>| {
                let error = |_| BadQuery("the query is not UTF-8".to_owned());
                String::from_utf8(bytes.into_owned()).map_err(error)
            };
            let (given, value) = (text(decode_query(name))?, text(decode_query(value))?);
            let synonym = synonyms.iter().find(|(other, _)| *other == given);
            let name = synonym.map_or_else(|| given.clone(), |(_, own)| (*own).to_owned());
            if !names.contains(&name.as_str()) {
                return Err(BadQuery(suggest::unknown("the query", &name, names)));
            }
            if !many.contains(&name.as_str()) && read.get(&name).is_some() {
                let twice = format!("`{name}` is given twice");
                let also = format!("; `{given}` is another word for it");
                return Err(BadQuery(if given == name { twice } else { twice + &also }));
            }
            read.0.push((name, value));
        }
        Ok(read)
    }

    /// The first value of that name.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// The range from the time that the parameter `since` has to that of `until`, both in the zone
    /// that the parameter `zone` names, else that of this machine. `now` is in microseconds since
    /// the Unix epoch. A time of day is the latest before `now`; after a `since`, the first after
    /// that.
    pub(super) fn time_range(
        &self,
        [since, until]: [&str; 2],
        now: u64,
    ) -> Result<TimeRange, BadQuery> {
        let zone = self.zone()?;
        let first = self.moment(since, now, &zone)?.map(|moment| moment.at(now));
        let last = self.moment(until, now, &zone)?.map(|moment| match first {
            Some(first) => moment.first_from(first),
            None => moment.at(now),
        });
        if first.zip(last).is_some_and(|(first, last)| first > last) {
            return Err(BadQuery(format!("`{since}` is after `{until}`")));
        }
        Ok(TimeRange { since: first, until: last, zone })
    }

    /// The minute that begins at the time of the parameter `at`; `None` without one. `now` is in
    /// microseconds since the Unix epoch.
    pub(super) fn minute(&self, at: &str, now: u64) -> Result<Option<TimeRange>, BadQuery> {
        let zone = self.zone()?;
        let moment = self.moment(at, now, &zone)?;
        Ok(moment.map(|moment| {
            let since = moment.at(now);
            TimeRange { since: Some(since), until: Some(since.saturating_add(MINUTE_US)), zone }
        }))
    }

    /// The zone of times without an offset: that of the parameter `zone`, else that of this
    /// machine.
    fn zone(&self) -> Result<TimeZone, BadQuery> {
        let Some(name) = self.get("zone") else { return Ok(TimeZone::system()) };
        time::zone(name).ok_or_else(|| {
            BadQuery("`zone` must be a time zone such as `Europe/Berlin`, `UTC` or `+01:00`".into())
        })
    }

    fn moment(&self, name: &str, now: u64, zone: &TimeZone) -> Result<Option<Moment>, BadQuery> {
        let wrong = || {
            BadQuery(format!(
                "`{name}` must be a time such as `10:03` or `2026-11-21T16:34:01Z`, or an age such as `15m`"
            ))
        };
        let parse = |text| Moment::parse(text, now, zone).ok_or_else(wrong);
        self.get(name).map(parse).transpose()
    }

    /// All values of that name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

impl From<BadQuery> for Box<Answer> {
    fn from(BadQuery(message): BadQuery) -> Self {
        Answer::refusal(StatusCode::BAD_REQUEST, &message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::UtcTime;

    #[test]
    fn parameters_are_decoded_and_unknown_ones_are_errors() {
        let read = |query| Query::read(query, &["rule", "header"], &["header"]);
        let query = read(Some("rule=a%20b+c&header=x%3A1&header=&")).unwrap();
        assert_eq!(query.get("rule"), Some("a b c"));
        assert_eq!(query.all("header").collect::<Vec<_>>(), ["x:1", ""]);
        assert!(read(None).unwrap().get("rule").is_none());
        let wrong = |query| read(Some(query)).unwrap_err().0;
        assert_eq!(wrong("rul=1"), "the query has an unknown name `rul`: did you mean `rule`?");
        assert_eq!(wrong("rule=1&rule=2"), "`rule` is given twice");
        assert_eq!(wrong("rule=%ff"), "the query is not UTF-8");
    }

    #[test]
    fn synonym_is_read_as_the_parameter_that_it_is_another_word_for() {
        let read = |query| {
            Query::read_with(Some(query), &["since", "until"], &[], &[("from", "since")])
                .map(|query| query.get("since").map(str::to_owned))
                .map_err(|error| error.0)
        };
        assert_eq!(read("from=15m&until=5m"), Ok(Some("15m".to_owned())));
        assert_eq!(
            read("since=15m&from=10m"),
            Err("`since` is given twice; `from` is another word for it".to_owned())
        );
        assert!(read("to=5m").unwrap_err().starts_with("the query has an unknown name `to`"));
    }

    #[test]
    fn minute_begins_at_a_time() {
        let now = UtcTime::parse("2026-11-21T16:34:01Z").unwrap().0;
        let minute = |query| {
            let query = Query::read(Some(query), &["at", "zone"], &[]).unwrap();
            let range = query.minute("at", now).unwrap()?;
            Some([range.since, range.until].map(|us| format!("{:.0}", UtcTime(us.unwrap()))))
        };
        let at = |since: &str, until: &str| Some([since.to_owned(), until.to_owned()]);
        let expected = at("2026-11-21T10:03:00Z", "2026-11-21T10:04:00Z");
        assert_eq!(minute("at=11:03&zone=%2B01:00"), expected);
        assert_eq!(minute("at=23:59:30Z"), at("2026-11-20T23:59:30Z", "2026-11-21T00:00:30Z"));
        assert_eq!(minute("zone=UTC"), None);
    }

    #[test]
    fn until_is_the_first_such_time_after_since() {
        let now = UtcTime::parse("2026-11-21T16:34:01Z").unwrap().0;
        let read = |query| {
            let query = Query::read(Some(query), &["since", "until", "zone"], &[]).unwrap();
            let range = query.time_range(["since", "until"], now).map_err(|error| error.0)?;
            let shown =
                |time: Option<u64>| time.map_or(String::new(), |us| format!("{:.0}", UtcTime(us)));
            Ok::<_, String>((shown(range.since), shown(range.until)))
        };
        let at = |since: &str, until: &str| Ok((since.to_owned(), until.to_owned()));
        let (morning, evening) = ("2026-11-21T10:03:00Z", "2026-11-20T22:00:00Z");
        let table = [
            ("zone=UTC", at("", "")),
            ("since=10:03Z", at(morning, "")),
            ("since=10:03&zone=UTC", at(morning, "")),
            ("since=11:03&zone=%2B01:00", at(morning, "")),
            ("until=22:00Z", at("", evening)),
            ("since=10:03Z&until=10:05Z", at(morning, "2026-11-21T10:05:00Z")),
            ("since=16:00Z&until=17:00Z", at("2026-11-21T16:00:00Z", "2026-11-21T17:00:00Z")),
            ("since=22:00Z&until=10:03Z", at(evening, morning)),
            ("since=10:03Z&until=0s", at(morning, "2026-11-21T16:34:01Z")),
            ("since=1h&until=2h", Err("`since` is after `until`".to_owned())),
        ];
        for (query, expected) in table {
            assert_eq!(read(query), expected, "{query}");
        }
        assert!(read("zone=Nowhere").unwrap_err().starts_with("`zone` must be a time zone"));
        assert!(read("until=now").unwrap_err().starts_with("`until` must be a time"));
    }
}
