//! `GET /api/samples`: what was counted in a range of the last 24 hours.

use http::StatusCode;
use jiff::Timestamp;
use serde::Serialize;

use super::Sampler;
use super::view::SampleView;
use crate::admin::answer::Answer;
use crate::admin::query::{BadQuery, Query, TimeRange};
use crate::base::clock;

/// Default of the parameter `from`, in microseconds before now.
const DEFAULT_RANGE_US: u64 = 300_000_000;

const NAMES: [&str; 2] = ["from", "to"];

/// Their names in `GET /api/audit`.
const SYNONYMS: [(&str, &str); 2] = [("since", "from"), ("until", "to")];

/// Response of `GET /api/samples`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::admin) struct SampleRange<'a> {
    /// Time between two samples, in milliseconds.
    step_ms: u64,
    /// Beginning of the range, in milliseconds since the Unix epoch.
    from_ms: u64,
    /// End of the range.
    to_ms: u64,
    /// Name of the time zone of the gateway, such as `Europe/Berlin`; `null` if it has no name.
    time_zone: Option<String>,
    /// Present difference of that zone from UTC, in seconds.
    utc_offset_s: i32,
    /// The sum of the samples; `null` without any.
    total: Option<SampleView<'a>>,
    /// The samples that overlap the range, in the order of time.
    samples: Vec<SampleView<'a>>,
}

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
