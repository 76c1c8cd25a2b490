//! The header `Accept` (RFC 9110, section 12.5.1), as far as errors need it: parameters of media
//! types are ignored, and items that are not valid.

use http::{HeaderMap, header};

/// Media type that names all JSON here, also problem documents.
pub(super) const JSON: &str = "application/json";

/// How many items of the header are read. Browsers send less than ten.
const MAX_RANGES: usize = 64;

/// The media types that a client accepts.
#[derive(Debug)]
pub struct Accept<'a> {
    ranges: Vec<Range<'a>>,
}

#[derive(Debug)]
struct Range<'a> {
    /// `text/html`, `text/*` or `*/*`.
    pattern: &'a str,
    /// In thousandths.
    quality: u16,
}

/// How much a client prefers a media type; more is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Preference {
    /// In thousandths, above 0.
    quality: u16,
    fit: Fit,
}

/// How a range matches a media type, the least specific first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    All,
    Kind,
    Named,
}

impl<'a> Accept<'a> {
    /// What a request with these headers accepts; `None` without the header, or if nothing of it is
    /// valid.
    pub fn of(request: &'a HeaderMap) -> Option<Self> {
        let lines = request.get_all(header::ACCEPT);
        let values = lines.iter().filter_map(|line| line.to_str().ok());
        let ranges = values.flat_map(|line| line.split(',')).filter_map(range);
        let ranges: Vec<_> = ranges.take(MAX_RANGES).collect();
        (!ranges.is_empty()).then_some(Self { ranges })
    }

    /// How much the client prefers a media type; `None`: it does not accept it. The most specific
    /// range decides. `is_json`: `application/json` names it, too, unless it is refused.
    pub fn preference(&self, media_type: &str, is_json: bool) -> Option<Preference> {
        let fits = self.ranges.iter().filter_map(|range| {
            let own = range.fit(media_type);
            let fit = own.or_else(|| range.fit(JSON).filter(|_| is_json && range.quality > 0))?;
            Some((fit, own.is_some(), range.quality))
        });
        let (fit, _, quality) = fits.max()?;
        (quality > 0).then_some(Preference { quality, fit })
    }
}

impl Range<'_> {
    /// How it matches a media type in lower case.
    fn fit(&self, media_type: &str) -> Option<Fit> {
        if self.pattern == "*/*" {
            return Some(Fit::All);
        }
        if self.pattern.eq_ignore_ascii_case(media_type) {
            return Some(Fit::Named);
        }
        let kind = self.pattern.strip_suffix("/*")?;
        let (own, _) = media_type.split_once('/')?;
        own.eq_ignore_ascii_case(kind).then_some(Fit::Kind)
    }
}

/// An item of the list; `None` if it is not valid.
fn range(item: &str) -> Option<Range<'_>> {
    let mut parts = item.split(';').map(str::trim);
    let pattern = parts.next().filter(|pattern| pattern.contains('/'))?;
    let weight = parts.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then_some(value.trim())
    });
    Some(Range { pattern, quality: weight.map_or(Some(1_000), quality)? })
}

/// A weight, such as `0.8`, in thousandths. Some clients write `.8`.
fn quality(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_valid = fraction.len() <= 3 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let thousandths = format!("{fraction:0<3}").parse().ok().filter(|_| is_valid)?;
    match whole {
        "" if fraction.is_empty() => None,
        "" | "0" => Some(thousandths),
        "1" if thousandths == 0 => Some(1_000),
        _ => None,
    }
}
