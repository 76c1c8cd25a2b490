//! `GET /api/samples`: what was counted in a range of the last 24 hours.

use http::StatusCode;
use jiff::Timestamp;

use super::Sampler;
use crate::admin::answer::Answer;
use crate::admin::query::{BadQuery, Query, TimeRange};
use crate::api::samples::SampleRange;
use crate::base::clock;

/// Default of the parameter `from`, in microseconds before now.
const DEFAULT_RANGE_US: u64 = 300_000_000;

const NAMES: [&str; 2] = ["from", "to"];

/// Their names in `GET /api/audit`.
const SYNONYMS: [(&str, &str); 2] = [("since", "from"), ("until", "to")];

/// The samples of the range that the query selects.
pub(in crate::admin) fn show(
    sampler: &Sampler,
    query: Option<&str>,
) -> Result<Answer, Box<Answer>> {
    let query = Query::read_with(query, &NAMES, &[], &SYNONYMS)?;
    let now = clock::unix_us();
    let TimeRange { since, until, zone } = query.time_range(["from", "to"], now)?;
    let to = until.unwrap_or(now);
    let from = since.unwrap_or(to.saturating_sub(DEFAULT_RANGE_US));
    if from > to {
        return Err(BadQuery("`from` is after `to`".to_owned()).into());
    }
    let (from_ms, to_ms) = (from / 1_000, to / 1_000);
    let found = sampler.find(from_ms, to_ms);
    let offset = Timestamp::from_microsecond(i64::try_from(now).unwrap_or_default())
        .map_or(0, |now| zone.to_offset(now).seconds());
    let total = found.total();
    let views = found.samples.iter().map(|sample| sampler.view(sample));
    let range = SampleRange {
        step_ms: found.step_ms,
        from_ms,
        to_ms,
        time_zone: zone.iana_name().map(str::to_owned),
        utc_offset_s: offset,
        total: total.as_ref().map(|total| sampler.view(total)),
        samples: views.collect(),
    };
    Ok(Answer::compact_json(StatusCode::OK, &range))
}
